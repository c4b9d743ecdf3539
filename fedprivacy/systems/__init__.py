"""One package for each system: its loop, its exact law, its bounds and its published claim."""
