"""Families of fixed cohorts: profiles are convex, and a few members represent all rounds."""

import functools

import numpy as np
import pytest
from scipy.special import ndtr

from fedprivacy.loss import Composed, Gdp, Sampled, Side, Triangles, given_way
from fedprivacy.loss.curves.composed import ComposedMoments
from fedprivacy.loss.moments.contour import Contour
from fedprivacy.loss.moments.folded_gaussians import FoldedGaussians, GivenWay
from fedprivacy.loss.strategies import direct
from fedprivacy.loss.strategies.inversion import epsilon_interval


def zeroed(mu, q):
    return Triangles(given_way(1.0 / mu, q), Sampled(Gdp(1.0 / (1.0 / mu)), q))


def replaced(mu, q):
    return Triangles(Sampled(Gdp(mu), q), Sampled(Gdp(mu), q))


MAKERS = {
    "zeroed": zeroed,
    "zeroed, turned": lambda mu, q: zeroed(mu, q).swap(),
    "replaced": replaced,
    "gives way": lambda mu, q: given_way(1.0 / mu, q),
    "gives way, turned": lambda mu, q: given_way(1.0 / mu, q).swap(),
}
KINDS = {
    "weak": (0.2, 0.6, 0.05),
    "usual": (0.55, 1.25, 0.01),
    "strong": (1.1, 1.4, 0.2),
    "narrow": (0.9, 0.901, 0.02),
}
STEPS = {"weak": 0.03, "usual": 0.03, "strong": 0.03, "narrow": 0.0001}
EVERY = [(name, kind) for name in MAKERS for kind in KINDS]


def profile(curve, alpha):
    """Return H_alpha as the sum over a fine grid of the outcomes scaled to unit variance."""
    y = np.linspace(-14.0, 20.0, 40_001)
    p, q = (
        sum(w * np.exp(-0.5 * (y - m / curve.std) ** 2) for w, m in side)
        for side in (curve.p, curve.q)
    )
    return np.maximum(p - alpha * q, 0.0).sum() * (y[1] - y[0]) / np.sqrt(2.0 * np.pi)


@pytest.mark.parametrize("q", [0.01, 0.3, 0.9])
@pytest.mark.parametrize("alpha", [0.2, 0.7, 0.97, 1.0, 1.05, 2.0, 9.0])
def test_the_profile_of_a_unit_that_gives_way_is_convex(q, alpha):
    mu = np.linspace(0.05, 2.5, 60)
    value = np.array([profile(given_way(1.0 / m, q), alpha) for m in mu])
    slope = np.diff(value) / np.diff(ndtr(mu))
    assert np.all(np.diff(value) >= -1e-9)
    assert np.all(np.diff(slope) >= -1e-6)


def test_another_parameter_would_not_be_convex():
    # In Phi(mu / 2), as for sampled pairs, the profile of a unit that gives way bends the other
    # way.
    mu = np.linspace(0.5, 2.5, 60)
    every = [given_way(1.0 / m, 0.01) for m in mu.tolist()]
    found = np.array([direct.delta(one, np.log([1.05]), Side.UP)[0] for one in every])
    assert np.any(np.diff(np.diff(found) / np.diff(ndtr(0.5 * mu))) < -1e-5)


@functools.cache
def moments(name, kind):
    low, high, q = KINDS[kind]
    every = [MAKERS[name](m, q) for m in np.linspace(low, high, 300).tolist()]
    return ComposedMoments([(one.moments(), 1 + k % 2) for k, one in enumerate(every)])


@pytest.mark.parametrize("name, kind", EVERY)
def test_every_round_has_its_place(name, kind):
    family, shift = moments(name, kind).parts[7][0].place()
    assert KINDS[kind][0] < shift < KINDS[kind][1]
    made = family.moments(shift).spectrum(Contour(2.0, 0.5, 8))
    own = moments(name, kind).parts[7][0].spectrum(Contour(2.0, 0.5, 8))
    assert np.exp(made.log_size) * made.values == pytest.approx(
        np.exp(own.log_size) * own.values, rel=1e-12
    )
    assert family.swap().swap() == family


@pytest.mark.parametrize("name, kind", EVERY)
@pytest.mark.parametrize("tilt", [0.4, 2.0])
def test_members_hold_the_moments_of_all_rounds(name, kind, tilt):
    whole = moments(name, kind)
    few = whole.between(STEPS[kind])
    line = Contour(tilt, 0.4, 40)
    exact, found = whole.spectrum(line), few.spectrum(line)
    unit = np.exp(found.log_size - exact.log_size)
    apart = np.abs(found.values * unit - exact.values)
    assert np.all(apart <= (found.error + found.excess) * unit + exact.error)
    assert found.values[0].real * unit >= exact.values[0].real - exact.error[0]


@pytest.mark.parametrize("name, kind", EVERY)
@pytest.mark.parametrize("tilt", [0.4, 2.0])
def test_the_product_stays_below_the_bound_on_its_fall(name, kind, tilt):
    whole = moments(name, kind)
    heights = np.linspace(0.0, 30.0, 61)
    bound = whole.between(STEPS[kind]).decay(tilt, heights).log_rest
    exact = whole.spectrum(Contour(tilt, 0.5, 61))
    with np.errstate(divide="ignore"):
        size = exact.log_size + np.log(np.maximum(np.abs(exact.values) - exact.error, 0.0))
    assert np.all(np.maximum.accumulate(size[::-1])[::-1] <= bound)
    # The fall is at least a tenth of that which every round's own slabs show.
    own = whole.decay(tilt, heights).log_rest
    assert bound[0] - bound[-1] > 0.1 * (own[0] - own[-1]) or name == "gives way, turned"


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("zeroed", marks=pytest.mark.slow),
        "replaced",
        pytest.param("gives way", marks=pytest.mark.slow),
    ],
)
def test_epsilon_is_that_of_all_rounds(name):
    low, high, q = KINDS["usual"]
    every = tuple((MAKERS[name](m, q), 1) for m in np.linspace(low, high, 300).tolist())
    curve = Composed(every)
    found, exact = (epsilon_interval(curve, 1e-5, tolerance) for tolerance in (1e-3, 1e-9))
    assert curve.moments().between(0.05) is not None
    assert found[0] <= exact[1]
    assert exact[0] <= found[1]
    assert found[1] - found[0] <= 1e-3


def test_far_rounds_have_no_members():
    far = [(MAKERS["zeroed"](m, 0.01), 1) for m in np.linspace(2.0, 4.0, 300).tolist()]
    assert ComposedMoments([(one.moments(), n) for one, n in far]).between(0.05) is None
    assert GivenWay.bend == FoldedGaussians(0.1, True).bend == 1.0
    assert FoldedGaussians(0.1, False).bend == 0.5
