"""FA-LD: convergence, the grid and Theorem 6.1."""
