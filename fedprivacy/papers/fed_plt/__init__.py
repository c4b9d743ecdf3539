"""Fed-PLT: the law of quadratics, the grid and Proposition 4."""
