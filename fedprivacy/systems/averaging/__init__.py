"""Generalised FedAvg and DP-FedAvg, including Fed-SMP's loop."""
