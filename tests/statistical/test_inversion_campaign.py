"""Random settings of compositions: every order that must hold between certified ends. Slow."""

import math
import random

import pytest

import fedprivacy as fp
from fedprivacy.accountants import PldAccountant
from fedprivacy.loss import Composed, Fold, GaussianMix, Gdp, Mix, Sampled, Side, compose
from fedprivacy.loss.curves.lattice import TooLarge
from fedprivacy.loss.moments.contour import NoMoments
from fedprivacy.loss.strategies import inversion
from fedprivacy.loss.strategies import tail_splitting as jumps

pytestmark = pytest.mark.slow


def log_uniform(rng, low, high):
    return math.exp(rng.uniform(math.log(low), math.log(high)))


def leaf(kind, z, q):
    """One round of a kind, from its noise and rate."""
    sampled = Sampled(Gdp(1 / z), q)
    if kind == "sampled":
        return sampled
    if kind == "replaced":
        return GaussianMix(z, ((1 - q, 0.0), (q, 1.0)), ((1 - q, 0.0), (q, -1.0)))
    if kind == "erased":
        return Mix(((1 - q, Gdp(0.0)), (q, Gdp(1 / z))))
    if kind == "folded":
        return Fold(sampled, sampled)
    zeroed = GaussianMix(z, ((1 - q, -1.0), (q, 1.0)), ((1 - q, -1.0), (q, 0.0)))
    return zeroed if kind == "zeroed" else Fold(zeroed, sampled)


KINDS = ["sampled", "replaced", "erased", "folded", "zeroed", "unlike"]


def setting(seed):
    """(kind, z, q, rounds, delta, turned), in the extremes now and then."""
    rng = random.Random(seed)
    if rng.random() < 0.7:
        z, q = log_uniform(rng, 0.4, 30), log_uniform(rng, 1e-4, 0.9)
        rounds, delta = int(log_uniform(rng, 2, 1e6)), log_uniform(rng, 1e-15, 0.3)
    else:
        z, q = log_uniform(rng, 0.05, 1e3), log_uniform(rng, 1e-9, 0.99)
        rounds, delta = int(log_uniform(rng, 2, 1e9)), log_uniform(rng, 1e-30, 0.999)
    return rng.choice(KINDS), z, q, rounds, delta, rng.random() < 0.5


def interval(kind, z, q, rounds, delta, turned):
    """Epsilon's ends, trivial ones where the method declines."""
    curve = leaf(kind, z, q)
    curve = Composed(((curve.swap() if turned else curve, rounds),))
    try:
        low, high = inversion.epsilon_interval(curve, delta, 1e-3)
    except NoMoments:
        return 0.0, math.inf
    assert 0.0 <= low <= high
    return low, high


@pytest.mark.parametrize("batch", range(80))
def test_more_noise_fewer_rounds_less_delta(batch):
    """50 settings a batch; each is moved in four ways, and ends may not contradict each other."""
    for seed in range(50 * batch, 50 * batch + 50):
        kind, z, q, rounds, delta, turned = setting(seed)
        high = interval(kind, z, q, rounds, delta, turned)[1]
        gentler = [
            (kind, 1.02 * z, q, rounds, delta, turned),
            (kind, z, q, max(rounds - max(rounds // 50, 1), 1), delta, turned),
            (kind, z, q, rounds, min(1.05 * delta, 0.9999), turned),
        ]
        if kind in ("sampled", "erased", "replaced", "folded"):
            gentler.append((kind, z, 0.98 * q, rounds, delta, turned))
        for one in gentler:
            assert interval(*one)[0] <= high, (seed, one)


@pytest.mark.parametrize("batch", range(40))
def test_there_and_back(batch):
    """delta at an end of epsilon; compose(m, n) and unlike parts in any order are one."""
    for seed in range(50 * batch, 50 * batch + 50):
        kind, z, q, rounds, delta, turned = setting(100_000 + seed)
        curve = leaf(kind, z, q)
        curve = curve.swap() if turned else curve
        one = Composed(((curve, rounds),))
        try:
            low, high = inversion.epsilon_interval(one, delta, 1e-3)
            if math.isfinite(high):
                assert inversion.delta_interval(one, high)[0] <= delta
            assert low == 0.0 or inversion.delta_interval(one, low)[1] >= delta
            first = max(rounds // 3, 1)
            split = Composed(((curve, first), (curve, rounds - first)))
            again = inversion.epsilon_interval(split, delta, 1e-3)
        except NoMoments:
            continue
        assert again[0] <= high and low <= again[1]


@pytest.mark.parametrize("seed", range(300))
def test_smoothed_ends_hold_sharp_ones(seed):
    kind, z, q, rounds, delta, turned = setting(200_000 + seed)
    low, high = interval(kind, z, q, rounds, delta, turned)
    if not math.isfinite(high) or low == 0.0:
        return
    curve = leaf(kind, z, q)
    curve = Composed(((curve.swap() if turned else curve, rounds),))
    std = min(10 ** random.Random(seed).uniform(-4, -1.5) * low, 0.4)  # what the engine may use
    try:
        smooth = compose([(curve, 1), (Gdp(std), 1)])
        smoothed = jumps.Smoothed(inversion.invert(smooth, low, math.log(delta)), std)
    except NoMoments:
        return
    ends = inversion._around(smoothed, delta, low, 0.0)
    assert ends[0] <= high and ends[1] >= low


@pytest.mark.parametrize("seed", range(150))
def test_lattices_agree(seed):
    rng = random.Random(300_000 + seed)
    z, q = log_uniform(rng, 0.5, 20), log_uniform(rng, 1e-4, 0.9)
    rounds, delta = int(log_uniform(rng, 2, 3000)), log_uniform(rng, 1e-20, 0.5)
    curve = leaf(rng.choice(KINDS), z, q)
    curve = Composed(((curve.swap() if rng.random() < 0.5 else curve, rounds),))
    try:
        low, high = inversion.epsilon_interval(curve, delta, 1e-3)
        step = max(low, 0.05) / 400
        below = curve.composition(step, Side.DOWN, 1e-7 * delta).epsilon(delta)
        above = curve.composition(step, Side.UP, 1e-7 * delta).epsilon(delta)
    except (NoMoments, TooLarge):
        return
    assert below <= high and low <= above


@pytest.mark.parametrize("seed", range(200))
def test_cut_rounds_agree_with_lattices_and_with_themselves(seed):
    rng = random.Random(500_000 + seed)
    z, q = log_uniform(rng, 0.3, 20), log_uniform(rng, 1e-6, 0.02)
    rounds, delta = int(log_uniform(rng, 2, min(1e6, 30 / q))), log_uniform(rng, 1e-15, 1e-3)
    curve = leaf(rng.choice(KINDS), z, q)
    curve = Composed(((curve.swap() if rng.random() < 0.2 else curve, rounds),))
    try:
        low, high = jumps.epsilon_interval(curve, delta, 1e-3)
    except NoMoments:
        return
    for epsilon in (low, high):
        if 0 < epsilon < math.inf:
            try:
                least, most = jumps.delta_interval(curve, epsilon, 1e-3)
            except NoMoments:
                continue
            assert least <= delta if epsilon == high else most >= delta
    try:
        step = max(low, 0.02) / 300
        below = curve.composition(step, Side.DOWN, 1e-7 * delta).epsilon(delta)
        above = curve.composition(step, Side.UP, 1e-7 * delta).epsilon(delta)
    except TooLarge:
        return
    assert below <= high and low <= above


@pytest.mark.parametrize("seed", range(200))
def test_peers_and_other_accountants_are_above(seed):
    """dp-accounting's pessimistic PLD and our cruder accountants bound the same pair."""
    from dp_accounting.pld import privacy_loss_distribution as theirs

    rng = random.Random(400_000 + seed)
    z, q = log_uniform(rng, 0.7, 10), log_uniform(rng, 1e-3, 0.5)
    rounds, delta = int(log_uniform(rng, 2, 3000)), log_uniform(rng, 1e-10, 0.1)
    peer = theirs.from_gaussian_mechanism(z, sampling_prob=q, value_discretization_interval=1e-3)
    above = peer.self_compose(rounds).get_epsilon_for_delta(delta)
    run = fp.Gaussian(noise_multiplier=z).sampled(fp.Poisson(q)) * rounds
    ask = {"delta": delta, "adjacency": "add_remove"}
    low, high = fp.epsilon(run, **ask).resolution
    assert low <= above + 1e-9
    for other in ("rdp", "advanced"):
        assert fp.epsilon(run, accountant=other, **ask).upper >= low
    loss = (fp.Gaussian(noise_multiplier=z).sampled(fp.Poisson(q))).privacy_loss("add_remove")
    apart = PldAccountant()
    for count in (rounds - rounds // 2, rounds // 2):
        apart.compose(loss, count)
    again = apart.epsilon(delta).resolution
    assert again[0] <= high and low <= again[1]
