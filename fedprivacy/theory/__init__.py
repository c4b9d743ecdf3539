"""The papers' theorems as functions, and exact laws where every iterate is Gaussian.

``gaussian`` W2 distances, affine maps, the privacy of two Gaussians with one covariance;
``targets`` Gaussian targets split over clients and chains on them; ``langevin`` FA-LD and
``hamiltonian`` FA-HMC: exact chains, exact privacy for quadratic losses, convergence theorems;
``statement`` what a theorem's function returns; ``hidden_state`` the account of contractive steps
of which only the last is seen. Nothing here imports the rest of the package but its errors.
"""
