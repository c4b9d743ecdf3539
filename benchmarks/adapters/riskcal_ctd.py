"""riskcal: its accountant, its error rates, its calibration."""

from importlib.metadata import version

from common import one, sampled_gaussians
from riskcal.accountants import CTDAccountant
from riskcal.calibration.blackbox import find_noise_multiplier_for_epsilon_delta

NAME, VERSION, ANSWERS = "riskcal", version("riskcal"), "estimate"


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


def resumed(case):
    found = CTDAccountant()
    for piece in case["pieces"]:
        state, found = found.state_dict(), CTDAccountant()
        if state["history"]:
            found.load_state_dict(state)
        found.history += sampled_gaussians(case, piece)
    return found.get_epsilon(delta=case["delta"])


def noise_multiplier(case):
    _, rate, steps = one(sampled_gaussians(case))
    return find_noise_multiplier_for_epsilon_delta(
        accountant=CTDAccountant,
        sample_rate=rate,
        num_steps=steps,
        epsilon=case["epsilon"],
        delta=case["delta"],
    )
