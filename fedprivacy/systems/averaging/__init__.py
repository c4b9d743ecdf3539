"""Generalised FedAvg and DP-FedAvg, Fed-SMP's loop included."""
