"""What floating point may add: one unit for every count of roundings in the package.

A correctly rounded operation errs by at most half a spacing of its result, 2^-53 = 1.11e-16 of it;
so do +, -, *, / and sqrt. Logarithms, exponentials and the functions of ``scipy.special`` that are
used here err by a few such units, and are counted with at least four.
"""

UNIT = 1.2e-16
"""The unit round-off, rounded up."""

FEW = 1e-15
"""Eight units: what a short expression may be off, where its roundings are not told apart."""
