"""Fed-SMP: convergence, the moments of Lemma 3 and Theorem 1."""
