"""Opacus, its GDP accountant."""

from importlib.metadata import version

from common import opacus_functions

NAME, VERSION, ANSWERS = "Opacus GDP", version("opacus"), "estimate"
epsilon, resumed, noise_multiplier = opacus_functions("gdp")
