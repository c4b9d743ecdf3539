"""The tables of Fed-PLT (Bastianello, Liu and Johansson)."""
