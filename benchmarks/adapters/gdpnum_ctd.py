"""gdpnum: its accountant and its error rates."""

from importlib.metadata import version

from common import sampled_gaussians
from gdpnum import CTDAccountant

NAME, VERSION, ANSWERS = "gdpnum", version("gdpnum"), "estimate"


def account(case):
    found = CTDAccountant()
    found.history = sampled_gaussians(case)
    return found


def epsilon(case):
    return account(case).get_epsilon(delta=case["delta"])


def power(case):
    return 1.0 - account(case).get_beta(alpha=case["fpr"])


def advantage(case):
    return account(case).get_advantage()
