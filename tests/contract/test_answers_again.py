"""Answers that are kept, and asked of again: certificates, budgets, private sweeps."""

import json

import pytest

import fedprivacy as fp
from fedprivacy import check_certificate as checker
from fedprivacy.errors import ParameterError

ZERO = {"adjacency": "zero_out"}


def certified(run, adjacency="zero_out", told=None):
    """Return a certificate as it is published, with another adjacency told than was asked."""
    found = fp.epsilon(run, delta=1e-5, adjacency=adjacency).certificate()
    made = json.loads(json.dumps(found))
    made["bound"]["adjacency"] = told or adjacency
    made["digest"] = checker.digest(made)
    return made


@pytest.mark.parametrize("inside", [False, True])
def test_no_certificate_is_of_one_more_in_a_cohort_of_everybody(inside):
    """Proved at 4.377, where 9.731 is attained: a sixth of five takes somebody's place."""
    pytest.importorskip("flint")
    unit = "record" if inside else "client"
    run = fp.Gaussian(noise_multiplier=1.0, unit=unit).sampled(fp.FixedSize(5, population=5))
    run = run.in_cohort(fp.Poisson(0.5)) if inside else run
    assert checker.check(certified(run))["upper"] == "proved"
    with pytest.raises(checker.Refused, match="a cohort of the whole population cannot be"):
        checker.check(certified(run, told="add_remove"))


def test_no_certificate_is_of_units_that_are_sampled_twice():
    node = {"type": "Gaussian", "version": 1, "fields": {"noise_multiplier": 1.0}}
    drawn = {"size": 1, "population": 10**6}
    for _ in range(2):
        scheme = {"type": "FixedSize", "version": 1, "fields": drawn}
        fields = {"inner": node, "scheme": scheme}
        node = {"type": "SampledMechanism", "version": 1, "fields": fields}
    with pytest.raises(checker.Refused, match="inside a sampled mechanism cannot be sampled again"):
        checker.asked(node, "zero_out", "server")


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


def test_a_private_sweep_s_folder_shows_its_own_answer_alone(tmp_path):
    """20 rounds of 60 clients were shown as done, with the answer for 2 rounds of 40."""
    pytest.importorskip("torch")
    from fedprivacy.mechanisms.selection import LAWS
    from fedprivacy.runs.private_sweep import PrivateSweep
    from fedprivacy.runs.sweep import Sweep

    def selection(**changed):
        more = {name: changed.pop(name) for name in ("dropout_rate",) if name in changed}
        sweep = Sweep(
            method="dp-fedavg",
            grid={"noise_multiplier": [4.0, 5.0]},
            folder=tmp_path / "a",
            delta=1e-3,
            epsilon=8.0,
            source={"rounds": 1, "cohort": 10, "clients": 20} | changed,
            **more,
        )
        return PrivateSweep(sweep=sweep, trials=LAWS["logarithmic"](1.5), public_test=True)

    first = selection().run()
    assert selection().run().setting == first.setting
    for changed in ({"rounds": 2}, {"clients": 30}, {"dropout_rate": 0.1}):
        with pytest.raises(ParameterError, match="same private sweep"):
            selection(**changed).run()


@pytest.mark.parametrize("domain", [5, (None, 2), (1, 2, 3), "ab", (2.0, 1.0)])
def test_a_domain_is_a_pair_of_numbers(domain):
    def run(z):
        return fp.Gaussian(noise_multiplier=z)

    with pytest.raises(ParameterError, match=r"domain must be \(smallest, largest\)"):
        fp.calibrate(run, epsilon=1.0, delta=1e-5, domain=domain, **ZERO)
