"""From moments or lattices to delta and epsilon: the ways to a number."""
