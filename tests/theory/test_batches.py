"""Batches with only the end seen: payments close the distance, and are the cheapest."""

import itertools
import math

import pytest

from fedprivacy.theory.batches import BatchedRun, cyclic_factor, spread


def taut(c, epochs, length, reach):
    """Return the least mu over every start of a free distance, with one point per step."""
    steps = epochs * length

    def least(tau, free):
        kept, height, width = [(0.0, 0.0)], c ** (steps - tau) * free, 0.0
        for k in range(tau + 1, steps + 1):
            weight = c ** (steps - k)
            width += weight**2
            height += weight * (k % length == 0)
            point = (width, height)
            while len(kept) > 1 and slope(kept[-2], kept[-1]) >= slope(kept[-1], point):
                kept.pop()
            kept.append(point)
        rises = [(d - b) ** 2 / (e - a) for (a, b), (e, d) in itertools.pairwise(kept) if e > a]
        return math.sqrt(math.fsum(rises))

    starts = [least(tau, reach) for tau in range(steps)] if reach < math.inf else []
    return min([least(0, 0.0), *starts])


def slope(a, b):
    return (b[1] - a[1]) / (b[0] - a[0]) if b[0] > a[0] else math.inf


@pytest.mark.parametrize("reach", [math.inf, 0.5, 2.0, 20.0])
@pytest.mark.parametrize("c", [1.0, 0.99, 0.7, 0.3])
@pytest.mark.parametrize(("epochs", "length"), [(1, 1), (1, 7), (9, 1), (12, 5)])
def test_a_fixed_order_costs_the_least_that_payments_allow(c, epochs, length, reach):
    found = cyclic_factor(1.0 - c, epochs, length, reach)
    least = taut(1.0 - (1.0 - c), epochs, length, reach)
    assert least * (1.0 - 1e-12) <= found <= least * 1.0001


def test_extreme_fixed_orders():
    assert cyclic_factor(1.0, 10**6, 10) == pytest.approx(1.0, rel=1e-10)
    assert cyclic_factor(0.0, 10**12, 10**3) == pytest.approx(math.sqrt(1 + (1e12 - 1) / 1e3))
    assert cyclic_factor(1e-300, 10**9, 10) <= cyclic_factor(0.0, 10**9, 10) * (1.0 + 1e-9)
    assert cyclic_factor(0.0, 10**6, 10, 1e-300) == pytest.approx(1.0, rel=1e-9)


RUN = BatchedRun(gap=0.01, steps=500, multiplier=3.0, moved=2.0, reach=40.0, drift=0.01)


@pytest.mark.parametrize("gap", [0.0, 1e-9, 0.01, 0.5, 1.0])
@pytest.mark.parametrize("last", [1, 7, 499])
@pytest.mark.parametrize("reach", [40.0, math.inf])
def test_payments_close_the_distance_of_two_runs(gap, last, reach):
    """Followed step by step, with the largest distance, drift included."""
    run = RUN._replace(gap=gap, reach=reach)
    c, apart = 1.0 - gap, 0.0
    for _ in range(run.steps - last):
        apart = min(c * apart + run.moved + run.drift, reach)
    assert apart <= run.before(last) <= apart * (1.0 + 1e-9) + 1e-9
    constant, after = run.push(last), apart
    for _ in range(last):
        after = max(c * after + run.drift - constant, 0.0)
    assert after <= 1e-9
    # T17's payments fall back from the end.
    split = run.split(last, 0.3)
    squares = math.fsum(c ** (2 * i) for i in range(last))
    paid = [split.distance / squares * c ** (last - 1 - i) for i in range(last)]
    after = apart
    for one in paid:
        after = max(c * after + run.drift - one, 0.0)
    assert after <= 1e-9
    cost = math.sqrt(math.fsum(one * one for one in paid)) / (run.multiplier * math.sqrt(0.3))
    assert cost <= split.mu <= cost * (1.0 + 1e-9)


def test_the_choice_is_near_the_best_of_all():
    split, square = RUN.best_split(0.05, 1.0)
    assert 1 <= split.steps < RUN.steps
    # A squared mu of the same kind at every place, for one share.
    each = [RUN.split(j, split.share).mu ** 2 for j in range(1, RUN.steps)]
    rounds = (square - RUN.split(split.steps, split.share).mu ** 2) / split.steps
    assert square <= 1.05 * min(mu + (j + 1) * rounds for j, mu in enumerate(each))
    assert spread(0.0, 5) == 5.0
    assert spread(1.0, 5) == 1.0
