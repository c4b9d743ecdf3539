"""Mathematics that several systems share.

``gaussian`` has W2 distances, affine maps and the privacy of two Gaussians with one covariance.
``targets`` has Gaussian targets split over clients, and chains on these targets. ``hidden_state``
is the account of contractive steps if only the last step is released. ``splitting_privacy`` is the
account of a run of Fed-PLT. ``statement`` is the return type of convergence theorems.

The theorems of one paper are in the package of its system, in ``fedprivacy.systems``.
"""
