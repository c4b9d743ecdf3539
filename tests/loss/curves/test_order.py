"""Many different rounds drawn with replacement: each lies between its two representatives."""

import math

import numpy as np
import pytest

import fedprivacy as fp
from fedprivacy.accountants import ACCOUNTANTS
from fedprivacy.loss import Bracketed, Fold, Gdp, LeastOf, Mix, Sampled, Side, compose
from fedprivacy.loss.curves import between
from fedprivacy.loss.curves.components import Unordered
from fedprivacy.loss.curves.order import bound
from fedprivacy.loss.strategies import direct

EPSILONS = np.array([0.0, 0.05, 0.5, 2.0, 6.0])
ADJACENCIES = ["add_remove", "zero_out", "replace_one"]


def known(loss):
    """Return the curve of a loss, of several that dominate the one that has an order."""
    return loss.curve.first if isinstance(loss.curve, LeastOf) else loss.curve


def losses(adjacency, count, observer="aggregate"):
    """Return losses of rounds that all differ, in noise, number of draws and population."""
    found = []
    for k in range(count):
        step = fp.Gaussian(noise_multiplier=0.8 + 0.8 * (k * 0.377 % 1.0), unit="record")
        scheme = fp.WithReplacement(200 + k * 7919 % 2000, population=90_000 + 777 * k)
        found.append(step.sampled(scheme).privacy_loss(adjacency, observer))
    return found


def few_draws(adjacency, count):
    """Return losses of rounds of 2 to 6 draws, each often the same unit's."""
    found = []
    for k in range(count):
        step = fp.Gaussian(noise_multiplier=2.0 + (k * 0.377 % 1.0), unit="record")
        scheme = fp.WithReplacement(2 + k % 5, probability=0.2 + 0.01 * k)
        found.append(step.sampled(scheme).privacy_loss(adjacency, "aggregate"))
    return found


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("made", [losses, few_draws])
@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_bounds_lie_on_both_sides_of_every_round(adjacency, made, turned):
    curves = [known(loss) for loss in made(adjacency, 7)]
    above, below = (bound(curves, side) for side in (Side.UP, Side.DOWN))
    if turned:
        above, below, *curves = [curve.swap() for curve in (above, below, *curves)]
    most = direct.delta(above, EPSILONS, Side.UP)
    least = direct.delta(below, EPSILONS, Side.DOWN)
    for curve in curves:
        assert np.all(least <= direct.delta(curve, EPSILONS, Side.UP))
        assert np.all(direct.delta(curve, EPSILONS, Side.DOWN) <= most)
    assert np.any(least < 0.9 * most)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_the_bound_of_one_round_is_hardly_more(adjacency):
    (loss,) = losses(adjacency, 1)
    for side in (Side.UP, Side.DOWN):
        found = direct.delta(bound([known(loss)] * 2, side), EPSILONS, side)
        assert found == pytest.approx(direct.delta(known(loss), EPSILONS, side), rel=1e-9)


@pytest.mark.parametrize("few", [False, True])
@pytest.mark.parametrize("adjacency", ["zero_out", "replace_one"])
def test_both_halves_of_a_bound_are_of_one_profile(adjacency, few):
    """With few draws the last labels, which some rounds lack, are not rare at all."""
    curves = [known(loss) for loss in (few_draws if few else losses)(adjacency, 30)]
    for side in (Side.UP, Side.DOWN):
        fold = bound(curves, side)
        up, down = (direct.delta(half, np.zeros(1), side)[0] for half in (fold.up, fold.down))
        assert up == pytest.approx(down, rel=1e-12)


@pytest.mark.parametrize(
    "curves",
    [
        [Gdp(1.0), Sampled(Gdp(1.0), 0.5)],
        [Mix(((0.5, Gdp(1.0)), (0.5, Gdp(0.5)))), Mix(((0.5, Gdp(0.5)), (0.5, Gdp(1.0))))],
        [Mix(((0.5, Gdp(1.0)), (0.5, Fold(Gdp(2.0), Gdp(2.0)))))] * 2,
        [fp.Laplace(noise_multiplier=1.0).privacy_loss("zero_out").curve] * 2,
    ],
)
def test_what_is_of_no_known_order_is_refused(curves):
    with pytest.raises(Unordered):
        bound(curves, Side.UP)


@pytest.mark.fast_cells("add_remove-pld", "add_remove-rdp")
@pytest.mark.parametrize("name", list(ACCOUNTANTS))
@pytest.mark.parametrize(
    "adjacency",
    ["add_remove", *(pytest.param(one, marks=pytest.mark.slow) for one in ADJACENCIES[1:])],
)
def test_groups_hold_the_answer_of_all_rounds(adjacency, name, monkeypatch):
    every = losses(adjacency, 20)

    def asked():
        account = ACCOUNTANTS[name]()
        for loss in every:
            account.compose(loss, 40)
        return account.epsilon(1e-5)

    exact = asked()
    monkeypatch.setattr(between, "MOST", 5 if adjacency == "add_remove" else 8)
    wide = asked()
    assert wide.resolution[0] <= exact.resolution[0] <= exact.upper < wide.upper
    # The attained end may be computed with another tolerance.
    assert wide.lower <= exact.upper and math.isfinite(wide.upper)
    if name == "pld":
        assert "grouped" in wide.reason and not exact.reason
        assert 0.0 < wide.resolution[0] < exact.resolution[0]


@pytest.mark.slow
def test_deltas_are_held_too(monkeypatch):
    every = [(loss.curve, 40) for loss in losses("add_remove", 8)]

    def asked():
        # An accountant keeps what it composed.
        account = ACCOUNTANTS["pld"]()
        for one in losses("add_remove", 8):
            account.compose(one, 40)
        return account.delta(8.0)

    exact = asked()
    assert exact.upper <= 1.001 * exact.resolution[0]
    monkeypatch.setattr(between, "MOST", 2)
    wide = asked()
    assert any(isinstance(part, Bracketed) for part, _ in compose(every).parts)
    assert 0.0 < wide.resolution[0] < exact.resolution[0] <= exact.upper < wide.upper


def test_delta_of_draws_with_replacement_takes_no_minutes():
    """The law's last atom, 1e-30 at all draws, made every moment huge."""
    run = (
        fp.Gaussian(noise_multiplier=1.0).sampled(fp.WithReplacement(1000, population=90_000)) * 40
    )
    found = fp.delta(run, epsilon=8.0, adjacency="add_remove", deadline=30.0)
    assert not found.reason
    assert 1.886e-5 < found.resolution[0] <= found.upper < 1.889e-5
