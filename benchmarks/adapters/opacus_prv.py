"""Opacus, its PRV accountant."""

from importlib.metadata import version

from common import opacus_functions

NAME, VERSION, ANSWERS = "Opacus PRV", version("opacus"), "upper"
epsilon, resumed, noise_multiplier = opacus_functions("prv")
