"""Accountants: contradicting certificates raise, and NaN certifies no number."""

import math
from itertools import product

import numpy as np
import pytest

import fedprivacy as fp
from fedprivacy.accountants import ACCOUNTANTS, RdpAccountant
from fedprivacy.accountants.base import Answer
from fedprivacy.errors import ContradictionError, UnsupportedCombination
from fedprivacy.loss import Curve, Gdp, LaplacePair, MomentBounds, Side, Tails
from fedprivacy.loss.strategies import direct
from fedprivacy.relations import Adjacency, Observer

GAUSSIAN = fp.Gaussian(noise_multiplier=1.0)
ADD = {"adjacency": "add_remove"}


class Blind(Curve):
    """A curve whose arithmetic breaks down."""

    def tails(self, loss, side=Side.UP):
        return Tails(*np.full((4, *np.shape(loss)), math.nan))

    def moments(self):
        return MomentBounds(lambda order: math.nan)


class Unbounded(Blind):
    """The same, with moments that follow from the tails."""

    def moments(self):
        return Curve.moments(self)


def test_an_answer_holds_no_nan():
    answer = Answer(math.nan, math.nan, math.nan)
    assert (answer.upper, answer.low, answer.attained) == (math.inf, 0.0, 0.0)
    assert answer.reason
    assert direct.epsilon(Blind(), 1e-5, Side.UP) == math.inf
    assert direct.epsilon(Blind(), 1e-5, Side.DOWN) == 0.0


def test_an_audit_compares_all_accountants(monkeypatch):
    run = GAUSSIAN * 3
    assert fp.audit(run, claim=(9.0, 1e-5), **ADD).verdict == "HOLDS"
    monkeypatch.setattr(RdpAccountant, "_epsilon", lambda *_: Answer(7.0, method="a slip"))
    with pytest.raises(ContradictionError) as caught:
        fp.audit(run, claim=(7.5, 1e-5), **ADD)
    told = str(caught.value)
    for word in ("'pld'", "'rdp'", "a slip", "7.0", "aggregate", "1e-05", "attained by"):
        assert word in told, word


def test_an_audit_compares_what_observers_see(monkeypatch):
    """The server sees the sum and more: its upper end holds for the sum as well."""
    run = GAUSSIAN.sampled(fp.Poisson(0.1)) * 3
    true = RdpAccountant._epsilon

    def slip(self, loss, delta):
        if loss.facts.observer is Observer.SERVER:
            return Answer(0.1, method="a slip")
        return true(self, loss, delta)

    monkeypatch.setattr(RdpAccountant, "_epsilon", slip)
    with pytest.raises(ContradictionError, match="a slip, server"):
        fp.audit(run, claim=(7.5, 1e-5), adjacency="zero_out")


SCHEMES = [
    None,
    fp.Everyone(),
    fp.Poisson(0.03),
    fp.FixedSize(3, population=20),
    fp.WithReplacement(3, population=20),
    fp.Shuffled(rounds_per_epoch=4),
    fp.RandomAllocation(4),
    fp.TruncatedPoisson(0.2, population=20, largest=6),
]
MECHANISMS = [GAUSSIAN, fp.Gaussian(noise_multiplier=0.05), fp.Laplace(noise_multiplier=0.7)]


def settings():
    for mechanism, scheme in product(MECHANISMS, SCHEMES):
        try:
            one = mechanism if scheme is None else mechanism.sampled(scheme)
        except (UnsupportedCombination, fp.ParameterError):
            continue
        for count, adjacency, observer in product((1, 7), Adjacency, Observer):
            try:
                (one * count).privacy_loss(adjacency, observer).require_upper()
            except UnsupportedCombination:
                continue
            yield one * count, {"adjacency": adjacency, "observer": observer}


EVERY = list(settings())


def test_there_are_many_settings():
    assert len(EVERY) > 200


@pytest.mark.parametrize(
    "part", [0, *(pytest.param(k, marks=pytest.mark.slow) for k in (1, 2, 3, 40, 41, 42, 43))]
)
def test_no_two_certificates_cross(part):
    """Every upper end above every lower end, also at a larger delta."""
    for run, facts in EVERY[part::80]:
        deltas = (0.0, 1e-9, 0.02)
        found = [
            [
                fp.epsilon(run, delta=d, accountant=name, tolerance=0.01, deadline=0.2, **facts)
                for name in ACCOUNTANTS
            ]
            for d in deltas
        ]
        for tight, loose in ((i, j) for i in range(3) for j in range(i, 3)):
            upper = min(bound.upper for bound in found[tight])
            lower = max(bound.lower for bound in found[loose])
            assert lower <= upper, (run, facts, deltas[tight], deltas[loose])


@pytest.mark.parametrize("kind", [Gdp, LaplacePair])
@pytest.mark.parametrize("shift", [math.nan, -1.0])
def test_pairs_know_how_far_apart_they_are(kind, shift):
    """An epsilon of 0 was certified of a Gaussian pair NaN apart, by every accountant."""
    with pytest.raises(ValueError, match="at least 0"):
        kind(shift)
