"""Every public number that a release depends on is named with its epsilon."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest

import fedprivacy as fp
from fedprivacy.loss import Gdp
from fedprivacy.mechanisms import Mechanism, SplittingRun
from fedprivacy.privacy_loss import PUBLIC, PrivacyLoss
from fedprivacy.relations import Adjacency
from fedprivacy.sampling.scheme import among

SMP = fp.SparsifiedPerturbation(
    noise_multiplier=1.4, clip_norm=0.5, kept=10, dimension=99, cohort=100, sparsifier="top_k"
)
LD = fp.FederatedLangevin(
    step_size=0.01, temperature=1.5, correlation=0.5, weight=0.1, batch_fraction=0.25,
    gradient_sensitivity=2.5, steps=3,
)  # fmt: skip
HMC = fp.FederatedHamiltonian(
    step_size=0.01, leapfrog_steps=4, gradient_noise_multiplier=2.0, correlation=0.5,
    weight=0.1, batch_fraction=0.25,    gradient_sensitivity=2.5,
)  # fmt: skip
PLT = SplittingRun(
    step_size=0.1, noise_scale=0.2, sensitivity=0.02, strong_convexity=0.5, smoothness=1.25,
    penalty=3.0, local_steps=5, rounds=7,
)  # fmt: skip
POISSON = fp.Gaussian(noise_multiplier=1.4, clip_norm=0.5, unit="client").sampled(fp.Poisson(0.02))


def named(run, adjacency, **more):
    """Return the assumption that names the public numbers; there is one."""
    bound = fp.epsilon(run, delta=1e-5, adjacency=adjacency, accountant="rdp", **more)
    (found,) = (words for words in bound.assumptions if words.startswith(PUBLIC))
    return found


@pytest.mark.parametrize(
    ("run", "adjacency", "wanted"),
    [
        (
            SMP.sampled(fp.FixedSize(100, population=6000)) * 180,
            "zero_out",
            "noise multiplier = 1.4|clip norm = 0.5|kept = 10|dimension = 99|cohort = 100|"
            "population = 6000|size = 100|rounds = 180|denominator|classes|"
            "public records that masks are made of|missing = 0",
        ),
        (
            POISSON * 30,
            "replace_one",
            "probability = 0.02|clip norm = 0.5|denominator|dimension|classes|rounds = 30|"
            "number of clients",
        ),
        (
            LD.in_cohort(fp.FixedSize(3, population=12)) * 9,
            "replace_one",
            "number of clients|records of every client|gradient sensitivity = 2.5|step size = 0.01|"
            "steps = 3|batch fraction = 0.25|clip norm|weight = 0.1|temperature = 1.5|rounds = 9|"
            "correlation = 0.5|population = 12",
        ),
        (HMC * 2, "replace_one", "leapfrog steps = 4|records of every client|number of clients"),
        (
            PLT,
            "replace_one",
            "number of agents|q_i|bound of the features|penalty = 3|regularisation|"
            "noise scale = 0.2|local steps = 5",
        ),
    ],
    ids=["Fed-SMP", "DP-FedAvg", "FA-LD", "FA-HMC", "Fed-PLT"],
)
def test_every_public_number_is_named(run, adjacency, wanted):
    told = named(run, adjacency)
    for words in wanted.split("|"):
        assert words in told, words
    # The words of every run are put together in one place, so two runs are enough here.
    for question in (fp.tradeoff_curve, fp.attack_risk):
        if adjacency == "zero_out" or run == POISSON * 30:
            assert told in question(run, adjacency=adjacency, fpr=0.1, tolerance=0.1).assumptions


def test_under_add_remove_no_number_of_units_is_public():
    assert "number of" not in named(POISSON, "add_remove").replace("number of classes", "")
    drawn = fp.Gaussian(noise_multiplier=1.0).sampled(fp.FixedSize(3, population=40))
    assert "no neighbouring data set has fewer units) = 40" in named(drawn, "add_remove")
    assert "population = 40" in named(drawn, "zero_out")


def test_a_bound_names_what_differs_between_rounds_once():
    steps = [fp.Gaussian(noise_multiplier=1.0 + i / 10) for i in range(7)]
    run = steps[0]
    for step in steps[1:]:
        run = run + step
    assert "noise multiplier = 1 or 1.1 or 1.2 or 4 others" in named(run, "zero_out")


@pytest.mark.usefixtures("no_plots")
def test_a_page_names_them_and_an_accountant_remembers_them(tmp_path):
    found = fp.audit(POISSON * 5, claim=(9.0, 1e-5), adjacency="zero_out")
    assert PUBLIC in fp.report(found, tmp_path / "a.html").read_text()
    account = fp.accountants.PldAccountant().compose((POISSON * 5).privacy_loss("zero_out"))
    twin = fp.accountants.PldAccountant().restore(account.state())
    assert twin.epsilon(1e-5) == account.epsilon(1e-5)


@dataclass(frozen=True)
class Foreign(Mechanism):
    """A mechanism that somebody wrote."""

    strength: float
    protects = None

    def loss_under(self, facts):
        return PrivacyLoss(Gdp(self.strength), facts)


class Outspoken(Foreign):
    def public(self, adjacency):
        hidden = adjacency is Adjacency.ADD_REMOVE
        return {} if hidden else {"hospitals": 12, "calendar": None}


def test_a_mechanism_of_ones_own_names_its_fields_or_what_it_likes():
    assert "strength = 0.5" in named(Foreign(0.5), "add_remove")
    told = named(Outspoken(0.5).sampled(fp.Poisson(0.5)), "zero_out")
    assert "hospitals = 12, calendar" in told and "strength" not in told
    assert "hospitals" not in named(Outspoken(0.5).sampled(fp.Poisson(0.5)), "add_remove")


@pytest.mark.parametrize("scheme", [fp.FixedSize(4, 10), fp.WithReplacement(4, population=10)])
def test_a_population_is_a_floor_and_never_a_ceiling(scheme):
    generator = np.random.default_rng(0)
    larger = among(scheme, 20)
    drawn = np.concatenate([larger.draw(20, generator) for _ in range(2000)])
    often = np.bincount(drawn, minlength=20) / 2000
    # 20 units, each in at most 4/20 of the draws: five standard errors are .045.
    assert len(often) == 20 and often.max() <= 0.2 + 0.05 < 4 / 10
    for few in (9, 1):
        with pytest.raises(fp.ParameterError, match=r"population must equal .* = 10"):
            among(scheme, few)
    truncated = fp.TruncatedPoisson(0.5, population=10, largest=6)
    with pytest.raises(fp.ParameterError, match=r"population must equal .* = 10"):
        among(truncated, 11)


@pytest.mark.parametrize("adjacency", ["add_remove", "zero_out", "replace_one"])
@pytest.mark.parametrize("kind", [fp.FixedSize, fp.WithReplacement])
def test_more_units_than_the_floor_cost_no_more(kind, adjacency):
    base = fp.Gaussian(noise_multiplier=2.0)
    costs = [
        fp.epsilon(base.sampled(kind(5, population=n)) * 20, delta=1e-5, adjacency=adjacency)
        for n in (50, 51, 80)
    ]
    for fewer, more in pairwise(costs):
        assert fewer.upper >= more.resolution[0]
    assert costs[0].resolution[0] > costs[2].upper
