"""gdpnum: its mu, read as a Gaussian guarantee."""

from importlib.metadata import version

from common import sampled_gaussians
from gdpnum import CTDAccountant
from scipy.optimize import brentq
from scipy.stats import norm

NAME, VERSION, ANSWERS = "gdpnum, mu as a bound", version("gdpnum"), "estimate"


def mu_of(case):
    found = CTDAccountant()
    found.history = sampled_gaussians(case)
    mu, _ = found.get_mu_and_regret()
    return mu


def delta_at(mu, epsilon):
    first = norm.cdf(mu / 2 - epsilon / mu)
    return first - norm.cdf(-mu / 2 - epsilon / mu) * 2.718281828459045**epsilon


def epsilon(case):
    mu = mu_of(case)
    if not 0.0 < case["delta"] < delta_at(mu, 0.0):
        raise NotImplementedError("the curve of the mu has no such point")
    return brentq(lambda x: delta_at(mu, x) - case["delta"], 0.0, 700.0, xtol=1e-12)


def power(case):
    return norm.cdf(norm.ppf(case["fpr"]) + mu_of(case))


def advantage(case):
    return 2.0 * norm.cdf(mu_of(case) / 2.0) - 1.0
