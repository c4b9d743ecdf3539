"""prv-accountant: its three numbers are a lower end, an estimate and an upper end."""

from importlib.metadata import version

from common import event_of, one, parts, sampled_gaussians
from prv_accountant import LaplaceMechanism, PoissonSubsampledGaussianMechanism, PRVAccountant
from prv_accountant.dpsgd import find_noise_multiplier

NAME, VERSION, ANSWERS = "prv-accountant", version("prv-accountant"), "bounds"
# Its own messages: delta too small for floats, no noise found.
REFUSES = (ValueError, RuntimeError)


def mechanisms(case):
    """Return the mechanisms, with their counts."""
    found = list(parts(event_of(case)))
    if all(inner["type"] == "LaplaceDpEvent" and not sampling for inner, sampling, _ in found):
        if case["relation"] != "ADD_OR_REMOVE_ONE":
            raise NotImplementedError("it knows one relation")
        return [(LaplaceMechanism(1.0 / inner["noise_multiplier"]), n) for inner, _, n in found]
    return [(PoissonSubsampledGaussianMechanism(q, z), n) for z, q, n in sampled_gaussians(case)]


def account(case, delta):
    made = mechanisms(case)
    counts = [count for _, count in made]
    found = PRVAccountant(
        [one for one, _ in made],
        eps_error=0.01,
        delta_error=delta / 1000,
        max_self_compositions=counts,
    )
    return found, counts


def epsilon(case):
    if case["delta"] == 0.0:
        raise NotImplementedError("delta must be above 0")
    found, counts = account(case, case["delta"])
    low, _, high = found.compute_epsilon(case["delta"], counts)
    return low, high


def delta(case):
    found, counts = account(case, 1e-5)
    low, _, high = found.compute_delta(case["epsilon"], counts)
    return low, high


def noise_multiplier(case):
    _, rate, steps = one(sampled_gaussians(case))
    return None, find_noise_multiplier(rate, steps, case["epsilon"], case["delta"])
