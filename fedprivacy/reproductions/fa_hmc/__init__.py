"""The figures of FA-HMC (Liang et al.)."""
