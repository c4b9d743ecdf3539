"""Projected noisy gradient descent: a linear model of which only the end is released."""
