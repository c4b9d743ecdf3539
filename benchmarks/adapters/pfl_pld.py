"""pfl, PLDPrivacyAccountant."""

from common import pfl_functions

NAME, VERSION, ANSWERS, epsilon, delta, noise_multiplier = pfl_functions("PLD")
