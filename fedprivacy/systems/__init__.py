"""The training loops: one package for each system, with the loop and what it uses."""
