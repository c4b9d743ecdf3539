"""Topped-up discrete Gaussian noise: sums of any number of shares are nearly one law (I6)."""

import itertools
import math

import numpy as np
import pytest

import fedprivacy as fp


def topped(std, width=1, cohort=2, **more):
    """Topped-up discrete Gaussians of an integer std, one of them moved."""
    return fp.DistributedDiscreteGaussian(
        noise_multiplier=std, clip_norm=1.0, granularity=1.0, dimension=width, cohort=cohort,
        bits=16, rotated=False, topped_up=True, **more,
    )  # fmt: skip


@pytest.mark.parametrize("std", [3.0, 3.4, 5.0])
def test_sums_of_any_number_of_shares_are_within_the_distance_that_is_counted(std):
    """Convolved shares of every number against one number; and one share more against one less.

    The distance is at most 20 times the truth where doubles show it.
    """
    mechanism, epsilons = topped(std, overflow=0.1), (0.0, 0.3, 1.0, 3.0)
    bounds = [fp.delta(mechanism, epsilon=e, adjacency="add_remove") for e in epsilons]
    sums = [exact_law(n, std**2 / n) for n in range(1, mechanism.most_shares + 1)]
    farthest = max(0.5 * float(np.abs(law - sums[0]).sum()) for law in sums)
    assert len(sums) == 8 and farthest <= mechanism._apart() + 1e-13
    assert farthest < 1e-12 or mechanism._apart() < 20.0 * farthest
    for less, more in itertools.pairwise(sums):
        p, q = np.append(0.0, more), np.append(less, 0.0)
        for epsilon, bound in zip(epsilons, bounds, strict=True):
            counted = (1.0 + math.exp(epsilon)) * (mechanism._apart() + 1e-13)
            for a, b in ((p, q), (q, p)):
                truth = float(np.maximum(a - math.exp(epsilon) * b, 0.0).sum())
                assert truth - 1e-12 <= bound.upper < 1.001 * truth + 3.0 * counted
                assert bound.lower <= truth + 1e-12


def exact_law(shares, variance):
    """Masses of a sum of shares N_Z(0, variance) at -60 .. 60."""
    k = np.arange(-60.0, 61.0)
    share = np.exp(-k * k / (2.0 * variance))
    law = np.ones(1)
    for _ in range(shares):
        law = np.convolve(law, share / share.sum())
    middle = len(law) // 2
    return np.pad(law, 60)[middle : middle + 121]


def test_the_distance_is_counted_over_all_coordinates_and_rounds():
    run = topped(6.0, width=50)
    apart = 50 * run._apart()
    off = run.privacy_loss("add_remove").tv_error
    assert apart <= off < 1.001 * apart + 1e-40
    wide = fp.epsilon(run * 10, delta=1e-5, adjacency="add_remove")
    [gaussian] = [fp.Gaussian(noise_multiplier=6.0 / math.sqrt(run.square)) * 10]
    ideal = fp.epsilon(gaussian, delta=1e-5, adjacency="add_remove").lower
    assert ideal < wide.upper < 1.2 * ideal
    # Where the distance is not small compared with delta, no number is certified.
    none = fp.epsilon(topped(5.0, width=50) * 1000, delta=1e-9, adjacency="add_remove")
    assert none.upper == math.inf and "exceeds delta" in none.reason
    with pytest.raises(fp.UnsupportedCombination, match="are too small for every theorem here"):
        topped(4.0, width=50).privacy_loss("add_remove")


def test_more_shares_than_are_counted_are_refused():
    mechanism = topped(6.0, width=3)
    most = mechanism.most_shares
    assert mechanism.release(np.zeros(3), shares=most).shape == (3,)
    with pytest.raises(fp.ParameterError, match="let the other clients send contribution"):
        mechanism.release(np.zeros(3), shares=most + 1)
    told = mechanism.privacy_loss("add_remove").assumptions
    assert any(f"at most {most} shares" in one for one in told)
