"""Privacy losses as curves: dominating pairs of laws, one family per file."""
