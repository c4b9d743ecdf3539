"""Tests of ``fedprivacy.sampling.scheme``."""

import math
from dataclasses import replace

import numpy as np
import pytest

import fedprivacy as fp
from tests.mechanisms.test_base import sparse

AWAY = {"noise_multiplier": 5.0, "clip_norm": 1.0, "kept": 4, "dimension": 4}


@pytest.mark.parametrize("adjacency", ["replace_one", "zero_out"])
@pytest.mark.parametrize("observer", ["aggregate", "server"])
def test_clients_that_are_away_for_good_leave_the_others_to_take_part_more_often(
    adjacency, observer
):
    """8 of 20 never answer and 2 of 10 may be missing: released are 8 or more, of the same 12."""
    facts = {"adjacency": adjacency, "observer": observer, "delta": 1e-5}

    def price(**options):
        step = fp.SparsifiedPerturbation(**AWAY, cohort=10, missing=2, **options)
        return fp.epsilon(step.sampled(fp.FixedSize(10, population=20)) * 60, **facts)

    left = fp.Gaussian(noise_multiplier=5.0 * math.sqrt(0.8))
    really = fp.epsilon(left.sampled(fp.FixedSize(8, population=12)) * 60, **facts)
    stated = price(absent=8)
    assert stated.upper >= really.upper and stated.lower == price().lower
    assert really.lower > price().upper or adjacency == "zero_out"
    alone = fp.SparsifiedPerturbation(**AWAY, cohort=1, absent=1)
    always = fp.epsilon(fp.Gaussian(noise_multiplier=5.0) * 50, **facts).upper
    found = fp.epsilon(alone.sampled(fp.FixedSize(1, population=2)) * 50, **facts).upper
    assert always <= found + 1e-3 <= always + 2e-3
    with pytest.raises(
        fp.UnsupportedCombination, match="no theorem covers add_remove with absent clients, since"
    ):
        fp.epsilon(alone.sampled(fp.FixedSize(1, population=2)), delta=1e-5, adjacency="add_remove")


def test_draws_with_replacement_are_from_those_who_are_there():
    step = fp.SparsifiedPerturbation(**AWAY, cohort=10, missing=1, absent=15)
    facts = {"adjacency": "zero_out", "delta": 1e-5}
    found = fp.epsilon(step.sampled(fp.WithReplacement(10, population=40)), **facts)
    fewer = replace(step, absent=0).sampled(fp.WithReplacement(10, population=25))
    assert found.upper == fp.epsilon(fewer, **facts).upper > found.lower
    assert any("absent = 15" in words for words in found.assumptions)
    with pytest.raises(fp.ParameterError, match=r"absent must be 0 if WithReplacement has no p"):
        step.sampled(fp.WithReplacement(10, probability=0.1))
    with pytest.raises(fp.UnsupportedCombination, match="colluder"):
        replace(step, colluding=1).sampled(fp.WithReplacement(10, population=40))


def test_a_unit_is_sampled_once():
    sampled = fp.Gaussian(noise_multiplier=1.0).sampled(fp.Poisson(0.5))
    for twice in (sampled, sampled * 2, sampled + sampled, sampled.in_cohort(fp.Everyone())):
        with pytest.raises(fp.UnsupportedCombination, match=r"already sampled"):
            twice.sampled(fp.FixedSize(1, population=2))
    assert sampled.in_cohort(fp.Poisson(0.5)).in_cohort(fp.Poisson(0.5))


@pytest.mark.parametrize(
    "scheme", [fp.Poisson(0.3), fp.FixedSize(6, population=20), fp.Everyone()], ids=repr
)
def test_schemes_draw_what_they_say(scheme):
    """2000 draws of 20 units: every unit takes part ``rate`` of the time, within 6 sigma."""
    generator = np.random.default_rng(9)
    seen = np.zeros(20)
    for _ in range(2000):
        drawn = scheme.draw(20, generator)
        assert len(set(drawn.tolist())) == len(drawn)
        assert isinstance(scheme, fp.Poisson) or len(drawn) == scheme.rate * 20
        seen[drawn] += 1
    spread = math.sqrt(2000 * scheme.rate * (1 - scheme.rate))
    assert np.abs(seen - 2000 * scheme.rate).max() <= 6 * spread


CLIENT = fp.Gaussian(noise_multiplier=1.0, unit="client")


@pytest.mark.parametrize(
    "inner",
    [
        CLIENT,
        CLIENT * 3,
        CLIENT.sampled(fp.Poisson(0.5)),
        fp.Gaussian(noise_multiplier=1.0) + CLIENT,
        fp.Parallel((CLIENT, CLIENT * 2)),
        fp.Laplace(noise_multiplier=1.0, unit="client"),
        fp.ApproximateDp(guarantees=((1.0, 0.0),), adjacency="zero_out", unit="client"),
        sparse(),
        sparse(topped_up=True),
    ],
    ids=repr,
)
def test_a_client_is_in_no_client_s_cohort(inner):
    """T4 keeps the rest of the cohort; a client's slot is refilled, and the list shows it."""
    for scheme in (fp.FixedSize(99, population=100), fp.Poisson(0.5), fp.Everyone()):
        with pytest.raises(fp.UnsupportedCombination, match=r"is a client, got.*use \.sampled"):
            inner.in_cohort(scheme)


def test_units_that_are_away_are_sampled_not_in_a_cohort():
    class Away(fp.Gaussian):
        def worst_scheme(self, scheme):
            return fp.Poisson(1.0)

    with pytest.raises(fp.UnsupportedCombination, match="absent units"):
        Away(noise_multiplier=1.0).in_cohort(fp.Poisson(0.5))


def test_a_scheme_of_ones_own_need_not_know_cohorts(tmp_path):
    class Unknown:
        rate = 0.5

    from fedprivacy.sampling.scheme import unlikely

    assert unlikely(Unknown(), {3: 10}, 0.5) == []
