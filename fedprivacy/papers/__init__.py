"""The theorems of the papers: bounds, grids of settings, and published claims.

One package for each paper. No epsilon and no training loop depends on them. ``fedprivacy.systems``
has the laws and the search that a loop itself uses.
"""
