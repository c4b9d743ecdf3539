"""Mathematics that several systems share.

``gaussian`` has W2 distances, affine maps and the privacy of two Gaussians with one covariance.
``targets`` has Gaussian targets split over clients, and chains on them. ``hidden_state`` is the
account of contractive steps of which only the last is seen. ``splitting_privacy`` is the account
of a run of Fed-PLT. ``statement`` is what convergence theorems return.

The theorems of one paper lie with its system, in ``fedprivacy.systems``.
"""
