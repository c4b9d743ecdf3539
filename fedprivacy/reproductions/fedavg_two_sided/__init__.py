"""The tables and figures of two-sided FedAvg (Yang, Fang and Liu)."""
