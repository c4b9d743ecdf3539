"""delta = 0 and 1, epsilon = infinity: the largest losses, their sums, and what they cap."""

import json
import math

import mpmath
import numpy as np
import pytest
from click.testing import CliRunner

import fedprivacy as fp
from fedprivacy.accountants import ACCOUNTANTS
from fedprivacy.cli import cli
from fedprivacy.loss import (
    IDENTITY,
    Allocated,
    AnyOf,
    Atoms,
    Composed,
    Fold,
    GaussianMix,
    Gdp,
    LaplacePair,
    Mix,
    RenyiPoints,
    Sampled,
    Swapped,
    stated_pair,
)

ADD = {"adjacency": "add_remove"}
LAPLACES = fp.Laplace(noise_multiplier=1.0) * 3 + fp.Laplace(noise_multiplier=2.0) * 2
GAUSSIAN = fp.Gaussian(noise_multiplier=1.0)


@pytest.mark.fast_cells(2)
@pytest.mark.parametrize("accountant", ACCOUNTANTS)
def test_largest_losses_add_up_and_cap(accountant):
    ask = {**ADD, "accountant": accountant}
    pure = fp.epsilon(LAPLACES, delta=0, **ask)
    assert (pure.lower, pure.upper, pure.resolution) == (4.0, 4.0, (4.0, 4.0))
    assert pure.witness and pure.method == "sum of the largest losses"
    for delta in (1e-300, 1e-14, 1e-9):
        assert fp.epsilon(LAPLACES, delta=delta, **ask).upper <= 4.0
    for epsilon in (4.0, 4.5, 1e9, math.inf):
        assert fp.delta(LAPLACES, epsilon=epsilon, **ask).upper == 0.0
    assert fp.delta(LAPLACES, epsilon=math.nextafter(4.0, 0.0), **ask).upper > 0.0
    assert fp.epsilon(LAPLACES, delta=1, **ask).upper == 0.0


@pytest.mark.parametrize("accountant", ACCOUNTANTS)
def test_gaussian_losses_have_no_limit(accountant):
    ask = {**ADD, "accountant": accountant}
    for run in (GAUSSIAN, GAUSSIAN.sampled(fp.Poisson(0.1)) * 10, GAUSSIAN * 10**9):
        pure = fp.epsilon(run, delta=0.0, **ask)
        assert pure.lower == pure.upper == math.inf
        assert pure.reason and pure.witness
        assert pure.verdict(1e300) is fp.Verdict.FAILS
        assert json.loads(json.dumps(pure.to_dict(), allow_nan=False))["upper"] == "inf"
        at_infinity = fp.delta(run, epsilon=math.inf, **ask)
        assert (at_infinity.lower, at_infinity.upper) == (0.0, 0.0)


def test_stated_guarantees():
    pure = fp.ApproximateDp(guarantees=((1.0, 0.0),), adjacency="zero_out") * 3
    found = fp.epsilon(pure, delta=0, adjacency="zero_out")
    assert 3.0 <= found.upper <= 3.0 * (1 + 1e-14)
    assert found.lower == 0.0  # no data sets are named that lose that much
    leaky = fp.ApproximateDp(guarantees=((1.0, 1e-6),), adjacency="zero_out") * 3
    found = fp.epsilon(leaky, delta=0, adjacency="zero_out")
    assert (found.lower, found.upper) == (0.0, math.inf)
    assert found.reason
    with mpmath.workdps(40):
        truth = 1 - (1 - mpmath.mpf(1e-6)) ** 3
    at_infinity = fp.delta(leaky, epsilon=math.inf, adjacency="zero_out")
    low, high = at_infinity.resolution
    assert low <= truth <= high
    assert high - low <= 1e-14 * high
    beyond = fp.delta(leaky, epsilon=3.1, adjacency="zero_out")
    assert truth <= beyond.upper <= high
    assert fp.epsilon(leaky, delta=3e-6, adjacency="zero_out").upper <= 3.0 * (1 + 1e-14)
    renyi = fp.RenyiDp(divergences=((2.0, 0.1),), adjacency="zero_out")
    found = fp.epsilon(renyi, delta=0, adjacency="zero_out")
    assert (found.lower, found.upper) == (0.0, math.inf)


@pytest.mark.parametrize("epsilon", [1e-9, 0.3, 1.0, 7.0, 700.0])
@pytest.mark.parametrize("q", [1e-12, 0.01, 0.7])
def test_sampled_laplace(epsilon, q):
    """log(1 - q + q e^s) with the unit, -log(1 - q + q e^-s) without it."""
    with mpmath.workdps(60):
        s, rate = mpmath.mpf(epsilon), mpmath.mpf(q)
        curve = Sampled(LaplacePair(epsilon), q)
        for one, truth in (
            (curve, mpmath.log(1 - rate + rate * mpmath.exp(s))),
            (curve.swap(), -mpmath.log(1 - rate + rate * mpmath.exp(-s))),
        ):
            found = one.support().largest
            assert found.low <= truth <= found.high
            assert found.high - found.low <= 1e-14 * found.high
            assert found.infinite_high == 0.0


@pytest.mark.parametrize("q", [0.001, 0.3])
def test_absence_shows_little_under_sampling(q):
    """Without the unit at most -log(1 - q), even where its presence shows everything."""
    for inner in (Gdp(3.0), GaussianMix(1.0, ((0.5, 0.0), (0.5, 4.0)), ((1.0, 0.0),))):
        assert Sampled(inner, q).support().largest.high == math.inf
    with mpmath.workdps(40):
        truth = -mpmath.log(1 - mpmath.mpf(q))
    for inner in (Gdp(3.0), Atoms((), 1.0, 1.0), RenyiPoints(((2.0, 0.1),))):
        found = Sampled(inner, q).swap().support().largest
        assert found.low <= truth <= found.high
    revealed = Sampled(Atoms((), 1.0, 1.0), q).support().largest
    assert revealed.infinite_low <= q <= revealed.infinite_high


MIXTURES = [
    GaussianMix(1.0, ((0.7, 0.0), (0.3, 1.0)), ((1.0, 0.0),)),
    GaussianMix(0.5, ((0.7, -1.0), (0.3, 1.0)), ((0.7, -1.0), (0.3, 0.0))),
    GaussianMix(3.0, ((0.99, -1.0), (0.01, 1.0)), ((0.99, -1.0), (0.01, 0.0))),
    GaussianMix(1.0, ((0.7, 0.0), (0.3, 1.0)), ((0.7, 0.0), (0.3, -1.0))),
    GaussianMix(1.0, ((0.5, 0.0), (0.3, 1.0), (0.2, 2.0)), ((1.0, 0.0),)),
]


@pytest.mark.fast_cells(3)
@pytest.mark.parametrize("curve", MIXTURES, ids=repr)
def test_mixtures_against_mpmath(curve):
    def density(mixture, y):
        return mpmath.fsum(w * mpmath.exp(-((y - m) ** 2) / 2 / curve.std**2) for w, m in mixture)

    def loss(y):
        return mpmath.log(density(curve.p, y) / density(curve.q, y))

    grid = np.concatenate([np.linspace(-1000, 1000, 801), np.linspace(-5, 5, 4001)])
    with mpmath.workdps(40):
        points = [loss(mpmath.mpf(y)) for y in grid]
        for one, seen in ((curve, max(points)), (Swapped(curve), -min(points))):
            found = one.support().largest
            assert seen <= found.high
            if math.isinf(found.high):
                assert seen > 100.0
            else:
                assert found.low <= seen + mpmath.mpf("1e-3")
                assert found.high - found.low <= 1e-9


def test_rare_kinds_of_curves():
    assert IDENTITY.support().largest.high == 0.0
    assert Allocated(0.5, 10).support().largest.low == math.inf
    assert Allocated(0.5, 10).swap().support().largest.low == math.inf
    unknown = AnyOf((IDENTITY, Gdp(1.0))).support().largest
    assert (unknown.low, unknown.epsilon(0.0), unknown.delta(5.0)) == (0.0, math.inf, 1.0)
    pair = LaplacePair(0.5)
    fold = Fold(pair, Sampled(pair, 0.1))
    assert fold.support().largest == pair.support().largest
    assert fold.swap().support().largest == Sampled(pair, 0.1).support().largest
    mixed = Mix(((0.25, stated_pair(((1.0, 0.5),))), (0.75, pair))).support().largest
    assert mixed.infinite_low <= 0.125 <= mixed.infinite_high
    assert mixed.high >= 1.0


def test_sums_are_rounded_once_and_outwards():
    shift = 0.1
    for count in (3, 10, 10**15):
        with mpmath.workdps(50):
            truth = mpmath.mpf(shift) * count
            found = Composed(((LaplacePair(shift), count),)).support().largest
            assert found.low <= truth <= found.high
            assert found.high - found.low <= math.ulp(found.high)


SCHEMES = (fp.Poisson(0.1), fp.FixedSize(3, population=10), fp.Everyone(), None)


@pytest.mark.fast_cells(6)
@pytest.mark.parametrize("adjacency", fp.Adjacency)
@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_delta_zero_is_the_limit(adjacency, scheme):
    """Epsilon rises to its value at 0, and the two certificates never cross."""
    run = fp.Laplace(noise_multiplier=2.0)
    run = (run if scheme is None else run.sampled(scheme)) * 3
    pure = fp.epsilon(run, delta=0, adjacency=adjacency)
    near = fp.epsilon(run, delta=1e-13, adjacency=adjacency)
    assert 0.0 < near.lower <= pure.lower <= pure.upper
    assert near.resolution[0] <= pure.upper
    assert near.upper <= pure.upper <= near.resolution[0] + 2e-3
    assert fp.delta(run, epsilon=pure.upper, adjacency=adjacency).upper == 0.0
    below = 0.99 * pure.lower
    assert fp.delta(run, epsilon=below, adjacency=adjacency).lower > 0.0


def test_randomised_response_is_a_discrete_pair():
    """Two points of loss 1 and -1: 5 of them lose 5, the truth at 0."""
    lie = 1.0 / (1.0 + math.e)
    pair = Atoms(((-1.0, lie), (1.0, 1.0 - lie)))
    found = Composed(((pair, 5),)).support().largest
    assert (found.low, found.high, found.infinite_high) == (5.0, 5.0, 0.0)


def test_budgets_claims_and_calibration_at_zero():
    found = fp.calibrate(lambda s: fp.Laplace(noise_multiplier=s) * 4, epsilon=3, delta=0, **ADD)
    assert found.value == pytest.approx(4 / 3, rel=1e-3)
    assert found.bound.upper <= 3.0
    with pytest.raises(fp.errors.ImpossibleBudget, match="infinite"):
        fp.calibrate(lambda s: fp.Gaussian(noise_multiplier=s), epsilon=3, delta=0, **ADD)
    budget = fp.Budget(4, 0, **ADD)
    assert not budget.keeps([(fp.Laplace(noise_multiplier=1.0), 5)])
    assert budget.spent().upper == 4.0
    with pytest.raises(fp.ParameterError, match="delta"):
        fp.Budget(4, 0, adaptive=True, **ADD)
    for claim, verdict in (((4, 0), "HOLDS"), ((3.99, 0), "FAILS")):
        assert fp.audit(LAPLACES, claim=claim, **ADD).verdict == verdict
    # At delta = 1 a claim has no content.
    with pytest.raises(fp.ParameterError, match="did you swap epsilon and delta"):
        fp.audit(LAPLACES, claim=(0, 1), **ADD)
    assert fp.audit(GAUSSIAN, claim=(1e9, 0), **ADD).verdict == "FAILS"


def test_the_ledger_and_the_command_line_take_zero(tmp_path):
    with fp.Ledger.create(tmp_path / "a.ledger", claim=(4.0, 0.0), unit="client", **ADD) as ledger:
        assert ledger.claim == (4.0, 0.0)
    options = ["--noise-multiplier", "1", "--delta", "0", "--adjacency", "zero_out"]
    for accountant in ACCOUNTANTS:
        told = CliRunner().invoke(cli, ["epsilon", *options, "--accountant", accountant])
        assert told.exit_code == 0
        assert "epsilon in [inf, inf] at delta = 0" in told.output
    options[2:4] = ["--epsilon", "inf"]
    told = CliRunner().invoke(cli, ["delta", *options, "--json"])
    assert told.exit_code == 0
