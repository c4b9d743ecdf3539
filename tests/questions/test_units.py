"""Tests of ``fedprivacy.questions.units``."""

import pytest

import fedprivacy as fp
from fedprivacy.questions.units import allows_publishing, units_of
from tests.questions.test_claim import SMALL

RUN = fp.Gaussian(noise_multiplier=1.0, unit="client")


# ---- a delta of one over the number of units


@pytest.mark.parametrize(
    ("run", "units"),
    [
        (RUN, None),
        (RUN.sampled(fp.Poisson(0.1)), None),
        (SMALL, 100),
        (RUN.sampled(fp.WithReplacement(10, population=70)), 70),
        (RUN.sampled(fp.TruncatedPoisson(0.1, population=60, largest=9)), 60),
        (RUN.sampled(fp.Shuffled(5, population=50)), 50),
        (SMALL + RUN, 100),
        # Records of one client of a cohort: how many clients there are is another number.
        (
            fp.Gaussian(noise_multiplier=1.0)
            .sampled(fp.FixedSize(5, population=40))
            .in_cohort(fp.FixedSize(2, population=1000)),
            40,
        ),
        (fp.Gaussian(noise_multiplier=1.0).in_cohort(fp.FixedSize(2, population=1000)), None),
        # Clients who hold up to seven of the hundred records each are fifteen at least.
        (
            fp.Gaussian(noise_multiplier=1.0).sampled(fp.FixedSize(5, population=100), held=7),
            15,
        ),
        (fp.Parallel((RUN.sampled(fp.FixedSize(5, population=30)),) * 3), 90),
        ("no run", None),
    ],
)
def test_how_many_units_there_are_at_least(run, units):
    assert units_of(run) == units


@pytest.mark.parametrize("units", [1, 3, 7, 49, 93, 100, 1000, 10**6])
def test_the_limit_is_one_over_the_number_of_units(units):
    assert allows_publishing(1.0 / units, units) != ""
    assert allows_publishing(1.0 / units * (1 - 1e-12), units) == ""
    assert allows_publishing(0.5, None) == "" and allows_publishing(0.0, units) == ""
