"""FA-LD: federated averaging Langevin dynamics."""
