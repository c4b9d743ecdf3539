"""Properties of every cell of the reference table: monotonicity, and answers that agree."""

import functools
import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

import fedprivacy as fp
from tests.common import SCHEMES

STEP = fp.Gaussian(noise_multiplier=1.5)
ADJACENCIES = [str(each) for each in fp.Adjacency]
DELTA = 1e-3


def served(scheme, adjacency, observer):
    """Whether the table has a finite end in the cell (tests/contract/test_table.py counts them)."""
    return adjacency != "add_remove" or (observer == "aggregate" and scheme != "Shuffled")


CELLS = [
    cell
    for cell in itertools.product(SCHEMES, ADJACENCIES, ["aggregate", "server"])
    if served(*cell)
]
DEAR = {
    (name, adjacency, "aggregate")
    for name in ("WithReplacement", "TruncatedPoisson", "Shuffled", "RandomAllocation")
    for adjacency in ("zero_out", "replace_one")
} | {("FixedSize", "zero_out", "aggregate")}
"""Of which numbers take a tenth of a second and more."""


def each(cells):
    """Every cell in turn; those that are dear in the longer run."""
    found = [pytest.param(c, marks=[pytest.mark.slow] if c in DEAR else []) for c in cells]
    return pytest.mark.parametrize("cell", found, ids="-".join)


cells = each(CELLS)
MIXTURES = ("WithReplacement", "FixedSize", "TruncatedPoisson")
QUICK = [cell for cell in CELLS if cell[0] not in MIXTURES or cell[2] == "server"]
"""Without mixtures, of which a number takes up to half a second."""
CURVES = [cell for cell in CELLS if cell[0] in ("Everyone", "Poisson") or cell[2] == "server"]
"""Those whose whole curve takes no second; one code draws all."""
quick, afforded = each(CURVES), each(QUICK)


def described(cell):
    """The run of a cell, and its facts."""
    name, adjacency, observer = cell
    return STEP.sampled(SCHEMES[name]) * 4, {"adjacency": adjacency, "observer": observer}


@functools.cache
def asked(cell, rounds=4, delta=DELTA, step=STEP, accountant="pld"):
    """Epsilon of rounds of a cell's scheme, once."""
    name, adjacency, observer = cell
    run = step.sampled(SCHEMES[name]) * rounds
    return fp.epsilon(
        run, delta=delta, adjacency=adjacency, observer=observer, accountant=accountant
    )


TWO_PAIRS = ("RandomAllocation", "replace_one", "aggregate")
"""The one cell whose ends are of two pairs, far apart."""


def below(better, worse, cell=()):
    """The whole interval lies below the other: the same number for both would not do."""
    if cell == TWO_PAIRS:
        assert better.lower < worse.lower and better.upper < worse.upper
    else:
        assert better.upper < worse.resolution[0], (better, worse)
    # Where the worst case itself is known, no data set of the better run reaches it.
    assert better.lower <= worse.upper


@pytest.mark.fast_cells(12)
@cells
def test_less_noise_loses_more(cell):
    below(asked(cell, step=fp.Gaussian(noise_multiplier=2.25)), asked(cell), cell)


@cells
def test_more_rounds_lose_more(cell):
    below(asked(cell), asked(cell, rounds=8), cell)


@cells
def test_a_smaller_delta_asks_for_more_epsilon(cell):
    below(asked(cell), asked(cell, delta=DELTA / 100), cell)
    impossible = asked(cell, delta=1.0)
    assert (impossible.lower, impossible.upper) == (0.0, 0.0)


MORE = {
    "Poisson": fp.Poisson(0.3),
    "FixedSize": fp.FixedSize(8, population=25),
    "WithReplacement": fp.WithReplacement(8, population=25),
    "RandomAllocation": fp.RandomAllocation(rounds_per_epoch=3),
}
"""Schemes that draw a unit more often than those above."""


@each([cell for cell in CELLS if cell[0] in MORE])
def test_whoever_is_drawn_more_often_loses_more(cell):
    name, adjacency, observer = cell
    often = STEP.sampled(MORE[name]) * 4
    worse = fp.epsilon(often, delta=DELTA, adjacency=adjacency, observer=observer)
    if name == "RandomAllocation" and observer == "server":
        # Once an epoch either way, and the server sees the round.
        assert worse.upper == pytest.approx(asked(cell).upper, rel=1e-9)
    elif name == "RandomAllocation" and adjacency == "replace_one":
        # Its two ends belong to two pairs: only the attained one has an order.
        assert worse.lower > asked(cell).lower
    else:
        below(asked(cell), worse)


@pytest.mark.fast_cells(10)
@afforded
def test_delta_at_that_epsilon_is_that_delta(cell):
    """The two questions invert one curve, whatever rounds it off."""
    found, (run, ask) = asked(cell), described(cell)
    at_upper = fp.delta(run, epsilon=found.upper, **ask)
    at_low = fp.delta(run, epsilon=found.resolution[0], **ask)
    assert at_upper.resolution[0] <= DELTA <= at_low.upper
    # Beyond the interval, on either side, the other answer is distinguished.
    assert fp.delta(run, epsilon=found.upper + 0.5, **ask).upper < DELTA
    assert fp.delta(run, epsilon=found.resolution[0] - 0.5, **ask).resolution[0] > DELTA


@pytest.mark.fast_cells(10)
@afforded
def test_a_profile_is_the_deltas_one_by_one(cell):
    run, ask = described(cell)
    epsilons = [math.inf, 0.25, 2.0]
    found = fp.profile(run, epsilons=epsilons, **ask)
    assert found.epsilons.tolist() == epsilons
    assert found.upper[0] < 1e-15 and found.upper[1] > found.lower[1] > found.upper[2] > 0.0
    for epsilon, low, high in zip(*found[:1], found.lower, found.upper, strict=True):
        alone = fp.delta(run, epsilon=epsilon, **ask)
        assert low <= alone.upper and alone.resolution[0] <= high


@pytest.mark.fast_cells(21)
@afforded
@pytest.mark.parametrize("accountant", ["rdp", "advanced"])
def test_no_accountant_ends_below_what_is_attained(cell, accountant):
    exact = asked(cell)
    loose = asked(cell, accountant=accountant)
    assert loose.upper >= max(exact.lower, loose.lower)
    assert loose.upper >= exact.resolution[0], "pairs are the same, so are their numbers"
    assert loose.facts == exact.facts


@afforded
def test_one_more_kind_of_round_costs_more_and_its_place_is_nothing(cell):
    first, facts = described(cell)
    other, ask = fp.Gaussian(noise_multiplier=2.0) * 1, {"delta": DELTA, **facts}
    ahead, behind = fp.epsilon(other + first, **ask), fp.epsilon(first + other, **ask)
    below(asked(cell), ahead, cell)
    assert ahead.resolution[0] <= behind.upper and behind.resolution[0] <= ahead.upper
    assert abs(ahead.upper - behind.upper) <= 2e-3


@pytest.mark.parametrize("scheme", ["Poisson", "FixedSize", "Everyone"])
def test_to_leave_a_unit_out_loses_no_more_than_to_replace_it(scheme):
    """A unit may be replaced by an empty contribution; leaving and joining replaces a unit."""
    zeroed, replaced = (asked((scheme, a, "aggregate")) for a in ("zero_out", "replace_one"))
    assert zeroed.resolution[0] <= replaced.upper
    assert zeroed.lower <= replaced.upper
    name = SCHEMES[scheme]
    run = STEP.sampled(name) * 4
    for epsilon in (0.5, 1.5):
        swapped = fp.delta(run, epsilon=2 * epsilon, adjacency="replace_one")
        left = fp.delta(run, epsilon=epsilon, adjacency="zero_out")
        # x -> empty -> x': group privacy over the two moves (Vadhan 2017, Lemma 2.2).
        assert swapped.lower <= (1 + math.exp(epsilon)) * left.upper * (1 + 1e-12)


@each(
    [cell for cell in CELLS if cell[2] == "server" and cell[:2] != ("WithReplacement", "zero_out")]
)
def test_whoever_sees_the_cohort_sees_no_less(cell):
    name, adjacency, _ = cell
    hidden = asked((name, adjacency, "aggregate"))
    assert hidden.resolution[0] <= asked(cell).upper
    assert hidden.lower <= asked(cell).upper
    amplified = name not in ("Everyone", "Shuffled")
    assert (hidden.upper < asked(cell).resolution[0]) is amplified


@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_one_draw_is_one_draw_with_replacement_or_without(adjacency):
    """For one participant, replacement has no effect."""
    put_back = STEP.sampled(fp.WithReplacement(1, population=12)) * 3
    kept = STEP.sampled(fp.FixedSize(1, population=12)) * 3
    for question in ({"delta": 1e-3}, {"delta": 1e-9}):
        one, other = (fp.epsilon(run, adjacency=adjacency, **question) for run in (put_back, kept))
        assert one.lower <= other.upper and other.lower <= one.upper
        assert one.upper > 0.0 and other.upper > 0.0
        if adjacency != "zero_out":
            assert one.upper == pytest.approx(other.upper, abs=2e-3)


@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize(
    "scheme",
    [
        fp.Poisson(1.0),
        fp.TruncatedPoisson(1.0, population=9, largest=9),
        fp.FixedSize(9, population=9),
        fp.RandomAllocation(rounds_per_epoch=1),
        fp.Shuffled(rounds_per_epoch=1),
        fp.Everyone(),
    ],
    ids=lambda scheme: type(scheme).__name__,
)
@pytest.mark.parametrize("observer", ["aggregate", "server"])
def test_to_draw_everybody_is_to_draw_nobody_in_particular(scheme, adjacency, observer):
    ask = {"delta": 1e-4, "adjacency": adjacency, "observer": observer}
    listed = observer == "server" and adjacency == "add_remove"
    moved = isinstance(scheme, fp.FixedSize) and adjacency == "add_remove"
    if listed or moved:
        with pytest.raises(fp.UnsupportedCombination, match="add_remove"):
            fp.epsilon(STEP.sampled(scheme), **ask)
        return
    plain = fp.epsilon(STEP * 3, **{**ask, "observer": "aggregate"})
    drawn = fp.epsilon(STEP.sampled(scheme) * 3, **ask)
    if isinstance(scheme, fp.TruncatedPoisson) and adjacency == "add_remove":
        # A unit more and somebody is left out: then another one's slot is taken.
        assert drawn.resolution[0] > plain.upper
        return
    assert drawn.upper == pytest.approx(plain.upper, rel=1e-9)
    assert drawn.lower == pytest.approx(plain.lower, rel=1e-9) and drawn.lower > 1.0


@pytest.mark.fast_cells(10)
@quick
def test_a_curve_of_tests_lies_above_the_lines_of_every_guarantee(cell):
    """(epsilon, delta) is a line under the trade-off curve, and the curve is their envelope."""
    run, ask = described(cell)
    fpr = np.array([0.0, 0.01, 0.2, 0.7])
    curve = fp.tradeoff_curve(run, fpr=fpr, tolerance=0.1, **ask)
    for epsilon in (0.0, 1.0, 3.0):
        delta = fp.delta(run, epsilon=epsilon, **ask)
        line = 1.0 - delta.upper - math.exp(epsilon) * fpr
        # No attacker's true rates lie below; so the curve's upper ends do not.
        assert (curve.worst.upper >= line - 1e-12).all()
        # And each attained test is a guarantee that cannot be smaller.
        shown = 1.0 - curve.worst.attained - math.exp(epsilon) * fpr
        assert shown.max() <= delta.upper + 1e-12
    assert (curve.f_dp <= curve.worst.upper).all() and (curve.f_dp <= 1.0 - fpr + 1e-12).all()
    assert (np.diff(curve.worst.lower) <= 0.0).all()


@pytest.mark.fast_cells(10)
@quick
def test_what_an_attacker_gains_at_best_is_delta_at_0(cell):
    run, ask = described(cell)
    risk = fp.attack_risk(run, fpr=0.1, tolerance=0.1, **ask)
    at_0 = fp.delta(run, epsilon=0.0, **ask)
    assert risk.advantage.lower <= at_0.upper and at_0.resolution[0] <= risk.advantage.upper
    assert risk.advantage.attained <= at_0.upper
    # At one rate the attacker gains no more than at the best one.
    assert risk.tpr.attained[0] - 0.1 <= at_0.upper
    assert risk.tpr.upper[0] >= 0.1 and risk.advantage.upper > 0.0


def test_equal_runs_are_remembered_as_equal_and_others_are_not():
    """An answer that is kept by its question must not be another question's."""
    runs = [STEP.sampled(scheme) * 4 for scheme in SCHEMES.values()]
    runs += [replace(STEP, noise_multiplier=1.5 + 1e-12).sampled(fp.Poisson(0.2)) * 4]
    for one, other in itertools.combinations(runs, 2):
        assert one != other and one == one * 1
    facts = {"adjacency": "zero_out", "observer": "server"}
    losses = {run: run.privacy_loss(**facts) for run in runs}
    for run, loss in losses.items():
        assert run.privacy_loss(**facts) == loss
        assert run.privacy_loss("replace_one", "server") != loss
    curves = {run: loss.curve for run, loss in losses.items()}
    assert curves[runs[0]] != curves[runs[-1]]
