"""Mistakes in a curve of one's own are refused, and right curves are not."""

import math
from dataclasses import dataclass

import numpy as np
import pytest

import fedprivacy as fp
from fedprivacy.loss import Curve, Gdp, LaplacePair, MaxLoss, Sampled, Support, Tails
from fedprivacy.loss.curves.checks import check_own
from fedprivacy.privacy_loss import PrivacyLoss
from fedprivacy.relations import Unit


@dataclass(frozen=True)
class Own(Curve):
    """The tails of another curve, with one mistake."""

    inner: Curve
    mistake: str = ""

    def tails(self, loss, side=None):
        del side
        one = self.inner.tails(loss)
        match self.mistake:
            case "order":
                return Tails(one.p_above, one.p_below, one.q_above, one.q_below)
            case "scalar":
                return Tails(*(float(np.max(logs)) for logs in one))
            case "no logarithms":
                return Tails(*(np.exp(logs) for logs in one))
            case "swapped":
                return Tails(one.q_above, one.p_above, one.q_below, one.p_below)
            case "half":
                return one._replace(q_above=one.q_above + math.log(0.5))
        return one

    def support(self):
        own = self.inner.support()
        largest = own.largest
        if self.mistake == "infinite":
            largest = MaxLoss.exactly(1.0, 0.25)
        return Support(largest=largest, symmetric=self.mistake == "symmetric" or own.symmetric)


@dataclass(frozen=True)
class Noise(fp.Mechanism):
    curve: Curve
    protects = Unit.RECORD

    def loss_under(self, facts):
        return PrivacyLoss(self.curve, facts)


RIGHT = [
    Gdp(0.5),
    Gdp(3.0),
    LaplacePair(1.0),
    Sampled(Gdp(1.0), 0.1),
    Sampled(Gdp(2.0), 0.3).swap(),
]


@pytest.mark.parametrize("curve", RIGHT, ids=repr)
def test_right_curves_pass(curve):
    check_own(Own(curve))
    run = Noise(Own(curve))
    assert fp.epsilon(run, delta=1e-5, adjacency="add_remove").upper > 0.0


@pytest.mark.parametrize(
    ("curve", "mistake", "said"),
    [
        (Gdp(0.5), "order", r"P\(L > x\)"),
        (Gdp(0.5), "scalar", "four arrays like its losses"),
        (Gdp(0.5), "no logarithms", "logarithms"),
        (Gdp(0.5), "swapped", r"P\(L > x\) >= e\^x Q"),
        (Gdp(0.5), "half", r"Q\(L > x\) \+ Q"),
        (Sampled(Gdp(1.0), 0.1), "symmetric", "its own swap"),
        (LaplacePair(1.0), "infinite", "mass at infinite loss"),
    ],
)
def test_mistakes_are_refused_before_any_number(curve, mistake, said):
    with pytest.raises(fp.ParameterError, match=said):
        fp.epsilon(Noise(Own(curve, mistake)), delta=1e-5, adjacency="add_remove")
    check_own(Own(curve))
