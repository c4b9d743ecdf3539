"""Opacus, its RDP accountant."""

from importlib.metadata import version

from common import opacus_functions

NAME, VERSION, ANSWERS = "Opacus RDP", version("opacus"), "upper"
epsilon, resumed, noise_multiplier = opacus_functions("rdp")
