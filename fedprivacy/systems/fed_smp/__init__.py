"""Fed-SMP: sparsified model perturbation."""
