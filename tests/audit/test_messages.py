"""Tests of ``fedprivacy.audit.messages``."""

import math
import re
from statistics import NormalDist

import pytest

import fedprivacy as fp
from fedprivacy.audit.messages import RATES, _attack, described, in_words, participation_in_words
from fedprivacy.audit.statement import rows_of
from tests.audit.test_reporting import LEFT

pytestmark = pytest.mark.usefixtures("narrowest")


def test_the_words_carry_the_numbers_and_the_facts():
    bound = fp.epsilon(
        fp.Gaussian(noise_multiplier=2.0, unit="client"), delta=1e-5, adjacency="add_remove"
    )
    words = in_words(bound)
    lower, upper = bound.ends()
    assert float(lower) <= bound.lower <= bound.upper <= float(upper) < bound.upper + 1e-3
    assert "client" in words and upper in words and "1e-05" in words
    factor = float(re.search(r"at most ([\d.]+) times", words)[1])
    assert math.exp(bound.upper) <= factor < 1.01 * math.exp(bound.upper)


def test_dense_fed_smp_is_dp_fedavg_in_words():
    dense = {"noise_multiplier": 1.0, "clip_norm": 1.0, "dimension": 650, "cohort": 20}
    assert described(fp.SparsifiedPerturbation(kept=650, **dense)).startswith("DP-FedAvg")
    assert described(fp.SparsifiedPerturbation(kept=65, **dense)).startswith("Fed-SMP, rand-k, 65 ")


def test_an_attackers_success_is_certified():
    """Against the exact trade-off of one Gaussian: Phi(Phi^-1(fpr) + mu)."""
    normal = NormalDist()
    found = fp.audit(fp.Gaussian(noise_multiplier=0.5), claim=(99, 1e-5), adjacency="zero_out")
    advantage, rates = _attack(found)
    for fpr, told in zip(RATES, rates, strict=True):
        truth = normal.cdf(normal.inv_cdf(fpr) + 2.0)
        assert truth <= told < 1.1 * truth
    assert 2 * normal.cdf(1.0) - 1 <= advantage < 0.69


SIX = fp.Gaussian(noise_multiplier=4.0, unit="client") * 6
PLAIN = {"adjacency": "zero_out"}


def test_correlated_noise_is_told_as_what_it_is(tmp_path):
    """Its one release covers all rounds: no course is drawn, and no unit is in all rounds."""
    noise = LEFT["not a sum whose rounds hang together"][0]
    found = fp.audit(noise, claim=(9.0, 1e-5), **PLAIN)
    rows = dict(rows_of(found))
    assert rows["sampler"].startswith(
        "every unit takes part at most once; no guarantee depends on sampling"
    )
    assert "6 sums" in rows["mechanism"] and "correlated" in rows["mechanism"]
    assert rows["covered runs"].startswith("6 rounds")
    page = fp.report(found, tmp_path / "a.html").read_text()
    assert page.count("<svg") == 2 and "Epsilon by round" not in page
    spaced = fp.MinimumSeparation(2, at_most=3)
    assert "at most 3 times, at least 2 rounds" in participation_in_words(spaced)
    assert "any number of times, at least 2" in participation_in_words(fp.MinimumSeparation(2))
