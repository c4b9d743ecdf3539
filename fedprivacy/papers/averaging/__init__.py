"""Generalised FedAvg with two-sided learning rates: convergence."""
