"""Tests of ``fedprivacy.mechanisms.mixture``."""

import mpmath
import pytest

import fedprivacy as fp

SWAP, ZERO, ADD = "replace_one", "zero_out", "add_remove"


def mixture_delta(std, moves, chances, epsilon):
    """H both ways by quadrature in 30 digits, the likelihood ratio growing."""
    with mpmath.workdps(30):

        def log_ratio(y):
            return mpmath.log(
                sum(
                    w * mpmath.exp((y * c - mpmath.mpf(c) ** 2 / 2) / mpmath.mpf(std) ** 2)
                    for w, c in zip(chances, moves, strict=True)
                )
            )

        def above(at):
            p = sum(w * mpmath.ncdf((c - at) / std) for w, c in zip(chances, moves, strict=True))
            return p, mpmath.ncdf(-at / mpmath.mpf(std))

        def cut(level):
            low, high = mpmath.mpf(-200), mpmath.mpf(200)
            if log_ratio(low) > level:
                return low
            for _ in range(120):
                middle = (low + high) / 2
                low, high = (middle, high) if log_ratio(middle) < level else (low, middle)
            return low

        p, q = above(cut(mpmath.mpf(epsilon)))
        up = p - mpmath.exp(epsilon) * q
        p, q = above(cut(-mpmath.mpf(epsilon)))
        return max(up, (1 - q) - mpmath.exp(epsilon) * (1 - p))


@pytest.mark.parametrize("adjacency", [ADD, ZERO])
def test_mixtures_are_contained(adjacency):
    moves, chances = (0.0, 1.0, 2.0), (0.25, 0.5, 0.25)
    run = fp.MixtureOfGaussians(standard_deviation=1.5, sensitivities=moves, probabilities=chances)
    for delta in (1e-2, 1e-6):
        bound = fp.epsilon(run, delta=delta, adjacency=adjacency)
        assert mixture_delta(1.5, moves, chances, bound.upper) <= delta
        assert mixture_delta(1.5, moves, chances, bound.lower) >= delta


def test_mixtures_are_the_runs_they_describe():
    sampled = fp.Gaussian(noise_multiplier=1.5).sampled(fp.Poisson(0.125))
    mixed = fp.MixtureOfGaussians(
        standard_deviation=1.5, sensitivities=[1.0, 0.0, 5.0], probabilities=[0.125, 0.875, 0.0]
    )
    one, other = (fp.epsilon(run * 50, delta=1e-6, adjacency=ADD) for run in (sampled, mixed))
    assert one.lower <= other.upper and other.lower <= one.upper
    sure = fp.MixtureOfGaussians(
        standard_deviation=3.0, sensitivities=(2.0, 2.0), probabilities=(0.5, 0.5)
    )
    assert sure.privacy_loss(ADD).curve == fp.GaussianDp(mu=2 / 3, adjacency=ADD).curve
    for refused in (lambda: mixed.privacy_loss(SWAP), lambda: mixed.sampled(fp.Poisson(0.5))):
        with pytest.raises(fp.UnsupportedCombination):
            refused()


def test_dp_accountings_own_mixture_lies_between_the_ends():
    """The setting and the number of its pld_privacy_accountant_test.py."""
    one = fp.MixtureOfGaussians(
        standard_deviation=1.0, sensitivities=(0.0, 1.0, 2.0), probabilities=(0.2, 0.6, 0.2)
    )
    other = fp.MixtureOfGaussians(
        standard_deviation=2.0, sensitivities=(0.0, 2.0, 3.0), probabilities=(0.33, 0.34, 0.33)
    )
    bound = fp.epsilon(one * 3 + other * 2, delta=1e-6, adjacency="add_remove", tolerance=1e-5)
    assert bound.lower - 1e-6 <= 17.193115 <= bound.upper + 1e-6
