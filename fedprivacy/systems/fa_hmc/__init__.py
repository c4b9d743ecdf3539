"""FA-HMC: federated averaging Hamiltonian Monte Carlo."""
