"""Steps of lattices that suit losses with mass at their ends."""

from types import SimpleNamespace

import pytest

from fedprivacy.loss import Allocated, Gdp, LaplacePair, Sampled, compose
from fedprivacy.loss.curves.composed import convolved
from fedprivacy.loss.curves.lattice import Side
from fedprivacy.loss.strategies.search import Lattices
from fedprivacy.loss.strategies.steps import aligned, few_jumps

LAPLACE = compose([(LaplacePair(2.13), 50)])
DRAWN = compose([(Sampled(LaplacePair(0.77), 0.3), 40)])


def ends(run, step, delta=1e-6):
    return [convolved(run, step, side, 1e-20).epsilon(delta) for side in (Side.DOWN, Side.UP)]


@pytest.mark.parametrize("run", [LAPLACE, DRAWN])
@pytest.mark.parametrize("step", [0.003, 0.004])
def test_a_step_that_suits_both_ends_leaves_a_fifth_of_the_width(run, step):
    near = aligned(run, step)
    assert 0.7 * step <= near <= step
    worst = max(high - low for low, high in (ends(run, near * k) for k in (1.004, 1.002, 0.998)))
    low, high = ends(run, near)
    assert low <= high
    assert high - low <= 0.2 * worst


def test_steps_of_other_rounds_are_kept():
    for run in (
        compose([(Gdp(1.0), 3)]),
        compose([(LaplacePair(1.0), 3), (LaplacePair(2.0), 2)]),
        compose([(Sampled(Gdp(1.0), 0.1), 30)]),
    ):
        assert aligned(run, 0.0123) == 0.0123
        assert not few_jumps(run)


def test_a_step_resolves_the_largest_loss():
    run = compose([(LaplacePair(1e-3), 1000)])
    assert aligned(run, 0.5) <= 5e-4


def test_few_jumps_are_those_of_one_size():
    assert few_jumps(compose([(LaplacePair(1.0), 20)]))
    assert not few_jumps(compose([(LaplacePair(1.0), 2000)]))


def test_laws_that_are_computed_for_every_step_begin_near_the_last_one():
    few = [compose([(one, 10)]) for one in (Allocated(1.0, 1000), Sampled(Gdp(1.0), 0.1))]
    asked = [SimpleNamespace(curve=run, tolerance=1e-3) for run in few]
    law, read = (Lattices.first_step(question) for question in asked)
    assert law < 0.2 * read
