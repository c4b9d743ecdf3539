"""One room a system: its loop, its exact law, its bounds, its published claim."""
