"""The papers' figures and tables, run again; only the command line imports them.

``catalogue`` lists them and needs neither torch nor data. A figure names the module that computes
its cells, which is imported when a cell runs.
"""
