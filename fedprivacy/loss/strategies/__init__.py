"""Strategies that compute delta and epsilon from moments or lattices."""
