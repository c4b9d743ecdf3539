"""Tests of ``fedprivacy.mechanisms.parallel``."""

import pytest

import fedprivacy as fp
from fedprivacy.errors import ParameterError, UnsupportedCombination
from tests.mechanisms.test_upload import epsilon, langevin

DELTA = 1e-5


# Kinds of units


def test_the_worst_kind_counts_over_the_whole_run():
    hard, easy = langevin(3.0), langevin(9.0)
    first, second = fp.Parallel((hard, easy)), fp.Parallel((easy, hard))
    assert epsilon(first * 4).upper == epsilon(hard * 4).upper
    mixed = epsilon(first * 2 + second * 2)
    assert mixed.upper == pytest.approx(epsilon(hard * 2 + easy * 2).upper, rel=1e-9)
    assert mixed.upper < epsilon(hard * 4).upper
    assert mixed.lower == pytest.approx(epsilon(hard * 2 + easy * 2).lower, rel=1e-9)
    cohort = fp.Parallel((hard, easy)).in_cohort(fp.FixedSize(2, 5))
    assert cohort.mechanisms[0] == hard.in_cohort(fp.FixedSize(2, 5))
    assert fp.Parallel((hard, hard)).privacy_loss("replace_one") == hard.privacy_loss("replace_one")


def test_rounds_of_different_kinds_do_not_compose():
    pair, triple = fp.Parallel((langevin(3.0), langevin(9.0))), None
    triple = fp.Parallel((langevin(3.0), langevin(9.0), langevin(4.0)))
    with pytest.raises(UnsupportedCombination, match="same"):
        epsilon(pair + triple)
    with_all = epsilon(pair + langevin(2.0))
    assert with_all.upper == pytest.approx(epsilon(langevin(3.0) + langevin(2.0)).upper, rel=1e-9)


@pytest.mark.parametrize(
    "mechanisms, wanted",
    [
        ((), "at least one mechanism"),
        ((langevin(), "noise"), "contain only mechanisms"),
        ((langevin(), fp.Gaussian(noise_multiplier=1.0, unit="client")), "unit"),
    ],
)
def test_kinds_that_are_none(mechanisms, wanted):
    with pytest.raises(ParameterError, match=wanted):
        fp.Parallel(mechanisms)
