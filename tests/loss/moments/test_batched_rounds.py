"""Many different rounds in a batch: the same results as one by one, in little time."""

import time

import mpmath
import numpy as np
import pytest

import fedprivacy as fp
from fedprivacy.accountants import ACCOUNTANTS
from fedprivacy.loss.moments.batched_gaussians import Folds, enough, stackable
from fedprivacy.loss.moments.batched_rounds import Bundle
from fedprivacy.loss.moments.contour import Contour

SCHEMES = {
    "poisson": fp.Poisson,
    "fixed": lambda q: fp.FixedSize(round(10**5 * q), population=10**5),
}


def losses(scheme, adjacency, observer, count):
    """Return losses of rounds that all differ."""
    found = []
    for k in range(count):
        step = fp.Gaussian(noise_multiplier=0.6 + 1.5 * k / count, unit="record")
        rate = 0.002 + 0.05 * (k * 0.618 % 1.0)
        found.append(step.sampled(SCHEMES[scheme](rate)).privacy_loss(adjacency, observer))
    return found


def composed(name, every, times=1):
    account = ACCOUNTANTS[name]()
    for one in every:
        account.compose(one, times)
    return account


@pytest.mark.fast_cells(4)
@pytest.mark.parametrize("adjacency", ["zero_out", "replace_one"])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    "line", [Contour(0.3, 0.0, 1), Contour(1.5, 0.9, 40), Contour(12.0, 0.2, 25)]
)
def test_folds_side_by_side_are_what_they_are_alone(adjacency, turned, line):
    curves = [loss.curve for loss in losses("fixed", adjacency, "aggregate", 24)]
    parts = [(curve.swap() if turned else curve).part for curve in curves]
    assert len({stackable(part) for part in parts}) == 1
    seen = 0
    for rows, together in Folds.of(parts).spectra(line):
        for row, k in enumerate(rows):
            alone = parts[k].spectrum(line)
            size = np.exp(alone.log_size - together.log_size[row, 0])
            apart = np.abs(together.values[row] - alone.values * size)
            allowed = together.error[row] + alone.error * size
            assert np.all(apart <= allowed)
            assert np.max(together.error[row]) <= 30.0 * np.max(alone.error) + 1e-13
            seen += 1
    assert seen == len(parts)


def fold_moment(mu, q):
    """Return E_P (P/Q)^2 of the fold of S(G(mu), q) with itself, to thirty digits."""

    def likelihood(y):
        return 1 - q + q * mpmath.exp(mu * y - mpmath.mpf(mu) ** 2 / 2)

    def over(power):
        at = [mpmath.mpf(mu) / 2, 2, 5, 9, 20, 40]
        return mpmath.quad(lambda y: mpmath.npdf(y) * likelihood(y) ** power, at)

    # Losses above 0 are S's, those below the swap's, and the rest is at loss 0.
    return over(3) + over(-2) + (1 - over(1) - over(0))


def test_a_fold_s_moment_is_within_its_error_of_thirty_digits():
    every = losses("fixed", "replace_one", "aggregate", 6)
    seen = 0
    for rows, found in Folds.of([loss.curve.part for loss in every]).spectra(Contour(2.0, 0.0, 1)):
        for row, k in enumerate(rows):
            inner = every[k].curve.up
            with mpmath.workdps(30):
                size = mpmath.exp(mpmath.mpf(float(found.log_size[row, 0])))
                value = mpmath.mpf(float(found.values[row, 0].real)) * size
                truth = fold_moment(inner.inner.mu, inner.q)
                assert abs(value - truth) <= float(found.error[row, 0]) * size
            seen += 1
    assert seen == 6


@pytest.mark.parametrize(
    "setting",
    [
        ("fixed", "zero_out", "aggregate"),
        ("fixed", "replace_one", "aggregate"),
        ("poisson", "zero_out", "server"),
    ],
)
def test_many_kinds_agree_with_each_alone(setting, monkeypatch):
    every = losses(*setting, 15)
    tightly = composed("pld", every, 20).epsilon(1e-5).resolution
    order = composed("rdp", every, 20).epsilon(1e-5).upper
    monkeypatch.setattr(Bundle, "__init__", _alone)
    alone = composed("pld", every, 20).epsilon(1e-5).resolution
    assert max(tightly[0], alone[0]) <= min(tightly[1], alone[1])
    assert composed("rdp", every, 20).epsilon(1e-5).upper == pytest.approx(order, rel=1e-9)


def _alone(self, parts):
    self._counts = np.array([count for _, count in parts], dtype=np.float64)
    self._known = None
    self._stacks = []
    self._single = [(k, part, count) for k, (part, count) in enumerate(parts)]


def test_masses_at_loss_zero_that_count_are_kept_apart():
    parts = [(loss.curve.part, 1.0) for loss in losses("fixed", "zero_out", "aggregate", 30)]
    assert not enough(parts[:8])
    assert enough([(part, 100.0) for part, _ in parts])


@pytest.mark.fast_cells(3)
@pytest.mark.parametrize("name", list(ACCOUNTANTS))
@pytest.mark.parametrize(
    "setting",
    [("fixed", "zero_out", "aggregate"), ("poisson", "replace_one", "server")],
)
@pytest.mark.parametrize(
    ("rounds", "seconds"), [(12, 60.0), pytest.param(100, 60.0, marks=pytest.mark.slow)]
)
def test_an_account_of_many_different_rounds_takes_little(name, setting, rounds, seconds):
    every = losses(*setting, rounds)
    # It takes a second on an idle machine; a separate lattice for each round takes minutes.
    start = time.process_time()
    assert np.isfinite(composed(name, every).epsilon(1e-5).upper)
    assert time.process_time() - start < seconds
