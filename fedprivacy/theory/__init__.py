"""The papers' theorems as functions, and exact laws where every iterate is Gaussian.

``gaussian`` W2 distances, affine maps, the privacy of two Gaussians with one covariance;
``targets`` Gaussian targets split over clients and chains on them; ``langevin`` FA-LD and
``hamiltonian`` FA-HMC: exact chains and exact privacy for quadratic losses, with their convergence
theorems from ``langevin_bounds`` and ``hamiltonian_bounds``; ``statement`` what those return;
``averaging`` two-sided FedAvg and ``sparsified`` Fed-SMP; ``splitting``, ``splitting_law`` and
``splitting_privacy`` Fed-PLT; ``hidden_state`` the account of contractive steps of which only the
last is seen. Nothing here imports the rest of the package but its errors.
"""
