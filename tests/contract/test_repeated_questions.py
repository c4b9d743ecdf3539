"""Cached and repeated answers: certificates, budgets, private sweeps."""

import json

import pytest

import fedprivacy as fp
from fedprivacy import check_certificate as checker
from fedprivacy.errors import ParameterError

ZERO = {"adjacency": "zero_out"}


def certified(run, adjacency="zero_out", told=None):
    """Return a published certificate, with another adjacency than the requested one."""
    found = fp.epsilon(run, delta=1e-5, adjacency=adjacency).certificate()
    made = json.loads(json.dumps(found))
    made["bound"]["adjacency"] = told or adjacency
    made["digest"] = checker.digest(made)
    return made


@pytest.mark.parametrize("adjacency", ["zero_out", "replace_one"])
def test_records_of_a_fixed_size_inside_a_cohort_are_certified(adjacency):
    """Refused: its pair was written in another form than the checker's."""
    pytest.importorskip("flint")
    inner = fp.Gaussian(noise_multiplier=2.0, unit="record").sampled(fp.FixedSize(3, population=5))
    found = checker.check(certified(inner.in_cohort(fp.Poisson(0.3)), adjacency))
    assert found["upper"] == "proved"


@pytest.mark.parametrize("adaptive", [True, False])
def test_a_budget_gives_nothing_back(adaptive):
    """Steps of a negative number let 32 rounds of 39.4 into a budget of 8."""
    step = fp.Gaussian(noise_multiplier=1.0)
    budget = fp.Budget(8.0, 1e-5, adaptive=adaptive, **ZERO)
    while budget.allows(step):
        budget.spend(step)
    for count in (-1, 0, 1.5):
        with pytest.raises(ParameterError, match="count must be an integer of at least 1"):
            budget.keeps([(step, count)])
    assert not budget.allows(step) and not budget.keeps([(step, 1)])


@pytest.mark.parametrize("domain", [5, (None, 2), (1, 2, 3), "ab", (2.0, 1.0)])
def test_a_domain_is_a_pair_of_numbers(domain):
    def run(z):
        return fp.Gaussian(noise_multiplier=z)

    with pytest.raises(ParameterError, match=r"domain must be \(smallest, largest\)"):
        fp.calibrate(run, epsilon=1.0, delta=1e-5, domain=domain, **ZERO)
