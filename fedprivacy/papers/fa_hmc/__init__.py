"""FA-HMC: convergence."""
