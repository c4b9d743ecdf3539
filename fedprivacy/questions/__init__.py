"""The questions about a mechanism: one file for each."""
