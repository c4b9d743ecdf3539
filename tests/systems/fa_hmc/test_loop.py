"""De-biased FA-HMC: its printed formulas step by step, its law, and the cost of its uploads."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import chi2, norm

import fedprivacy as fp
from fedprivacy.errors import ParameterError
from fedprivacy.evidence.repricing import run_of
from fedprivacy.theory.gaussian import point
from fedprivacy.theory.targets import GaussianTarget
from fedprivacy.training import (
    DebiasedSampling,
    FederatedData,
    GaussianPosterior,
    HamiltonianSampling,
    Posterior,
    SoftmaxRegression,
    train,
)

FAILS = 1e-9  # chance that a sound sampler fails a statistical check of these fixed seeds
SHARES = np.array([1.0, 2.0, 3.0]) / 6.0


def target(kinds=3, clients=3, size=2, shares=SHARES):
    generator = np.random.default_rng(5)
    hessians = []
    for _ in range(kinds):
        basis = np.linalg.qr(generator.normal(size=(size, size)))[0]
        whole = basis @ np.diag(generator.uniform(1.0, 4.0, size)) @ basis.T
        hessians.append((whole + whole.T) / 2.0)
    each = np.array([hessians[c % kinds] for c in range(clients)])
    centres = generator.normal(size=(clients, size))
    return GaussianTarget(hessians=each, centres=centres, weights=shares)


def debiased(posterior=None, **options):
    settings = {"step_size": 0.2, "leapfrog_steps": 3, "iterations": 2, "seed": 3} | options
    made = GaussianPosterior(target=target()) if posterior is None else posterior
    return DebiasedSampling(target=made, **settings)


def records(**options):
    generator = np.random.default_rng(1)
    inputs = torch.from_numpy(generator.normal(size=(18, 4)).astype(np.float32))
    data = FederatedData(
        features=inputs,
        labels=torch.from_numpy(generator.integers(3, size=18)),
        clients=tuple(np.split(np.arange(18), [7, 12])),
        num_classes=3,
    )
    model = SoftmaxRegression(4, 3)
    return Posterior(**({"model": model, "data": data, "clip_norm": 0.5} | options))


def by_hand(loop, rounds, start=(0.0, 0.0), earlier=(0.0, 0.0)):
    """Algorithms B.1 and B.2 with the loop's shared momenta and no other.

    ``start`` is theta_0. ``earlier`` is theta_{-T}: the paper prints 0, the loop takes theta_0.
    """
    aim, eta = loop.target.target, loop.step_size

    def slope(c, x):
        return aim.hessians[c] @ (x - aim.centres[c])

    now, before, mean = np.array(start), np.array(earlier), np.zeros(aim.dimension)
    for number in range(rounds):
        momenta = loop._generator("shared", number).standard_normal((2, aim.dimension))
        ends = []
        for c in range(aim.clients):
            x = now
            for p in momenta:
                for _ in range(loop.leapfrog_steps):
                    old = slope(c, x)
                    x = x + eta * p - eta**2 / 2.0 * (old - slope(c, before) + mean)
                    p = p - eta / 2.0 * (old + slope(c, x) - 2 * slope(c, before) + 2 * mean)
            ends.append(x)
        mean = sum(w * slope(c, now) for c, w in enumerate(aim.shares))
        before, now = now, np.einsum("c,cd->d", aim.shares, np.array(ends))
    return now


def test_it_is_the_printed_algorithm():
    start = torch.zeros(2, dtype=torch.float64)
    loop = debiased(correlation=1.0, start=start)
    for rounds in (1, 2, 3, 7):
        found = train(loop, loop.target, rounds=rounds).state.positions[0].numpy()
        assert np.allclose(found, by_hand(loop, rounds), rtol=0.0, atol=1e-12)


def test_the_first_round_differs_from_the_printed_one_unless_chains_start_at_zero():
    start = (5.0, -1.0)
    loop = debiased(correlation=1.0, start=torch.tensor(start, dtype=torch.float64))
    for rounds in (1, 2, 5):
        found = train(loop, loop.target, rounds=rounds).state.positions[0].numpy()
        ours, printed = by_hand(loop, rounds, start, start), by_hand(loop, rounds, start)
        assert np.allclose(found, ours, rtol=0.0, atol=1e-12)
        assert np.linalg.norm(found - printed) > 0.05
    # The laws follow the loop: only noise moves the first round.
    assert np.array_equal(loop.exact_laws.law(point(np.array(start)), 1).mean, np.array(start))


@pytest.mark.parametrize("correlation", [0.0, 0.4])
@pytest.mark.parametrize("rounds", [1, 2, 4])
def test_positions_have_the_exact_law(rounds, correlation):
    loop = debiased(correlation=correlation, chains=3000)
    law = loop.exact_laws.law(point(np.zeros(2)), rounds)
    positions = train(loop, loop.target, rounds=rounds).state.positions.numpy()
    points = np.linalg.solve(np.linalg.cholesky(law.covariance), (positions - law.mean).T)
    means, squares = points.sum(axis=1) / math.sqrt(3000), (points**2).sum(axis=1)
    assert means @ means < chi2.isf(FAILS, 2)
    assert np.all((chi2.isf(1 - FAILS, 3000) < squares) & (squares < chi2.isf(FAILS, 3000)))
    assert abs(points[0] @ points[1]) / math.sqrt(3000) < 6.5


def private(**options):
    settings = {"gradient_noise_multiplier": 2.0, "batch_fraction": 0.5} | options
    return debiased(records(), **settings)


def exact_epsilon(mechanism):
    return fp.epsilon(mechanism, delta=1e-5, adjacency="replace_one").upper


def batch_epsilon(multiplier, fraction):
    """Of one Gaussian release of a batch drawn without replacement, replace_one, by bisection."""
    low, high = 0.0, 50.0
    moved = 1.0 / multiplier
    while high - low > 1e-12 * high:
        middle = (low + high) / 2.0
        inner = math.log1p(math.expm1(middle) / fraction)
        cut = inner / moved
        found = fraction * (
            norm.cdf(moved / 2.0 - cut) - math.exp(inner) * norm.cdf(-moved / 2.0 - cut)
        )
        low, high = (middle, high) if found > 1e-5 else (low, middle)
    return high


def test_a_round_costs_the_plain_round_and_one_gradient_more():
    ask = {"delta": 1e-5, "adjacency": "replace_one"}
    for steps in (1, 2):
        loop = private(leapfrog_steps=steps, correlation=0.3, iterations=1)
        plain = HamiltonianSampling(
            **{name: getattr(loop, name) for name in ("target", "step_size", "leapfrog_steps")},
            **{name: getattr(loop, name) for name in ("iterations", "correlation")},
            gradient_noise_multiplier=2.0,
            batch_fraction=0.5,
        )
        for (weight, fraction), kind in zip(
            loop.kinds, loop.round_mechanism.mechanisms, strict=True
        ):
            (upload, once), (release, also) = kind.sequence()
            assert (upload, once, also) == (plain._client(0, weight, fraction), 1, 1)
            assert release.gradient_noise_std == upload.gradient_noise_std > 0.0
            # No momentum hides it: a batch's Gaussian.
            assert math.isclose(exact_epsilon(release), batch_epsilon(2.0, fraction), rel_tol=1e-9)
        more, less = (fp.epsilon(each.run(1), **ask).upper for each in (loop, plain))
        assert more > less


def test_what_is_released_has_the_noise_that_is_accounted():
    loop = private(chains=400, batch_fraction=1.0)
    state = loop.init()
    work = loop._work(state, loop._seats(0, None))
    found = loop._gradients(work)[0].numpy()
    exact = loop.target.local(np.arange(3)[None], state.positions, 1.0, None)
    own, public = exact.parts(exact.points, 1.0)
    centres = (own + public * exact.points).numpy()
    kinds = loop.round_mechanism.sequence()[0][0].mechanisms
    for seat, kind in enumerate(kinds):
        std = kind.sequence()[1][0].gradient_noise_std
        squares = float((((found - centres)[:, seat] / std) ** 2).sum())
        count = found[:, seat].size
        assert chi2.isf(1 - FAILS, count) < squares < chi2.isf(FAILS, count)


def test_corrections_are_made_of_what_was_released():
    loop = private(seed=11)
    state = loop.init()
    work = loop._work(state, loop._seats(0, None))
    released = loop._gradients(work)[0]
    after, info = loop.step(state)
    shares = torch.tensor([7.0, 5.0, 6.0]) / 18.0
    mean = (released * shares[None, :, None]).sum(1, keepdim=True)
    assert torch.allclose(after.corrections, mean - released, atol=1e-6)
    assert info.upload_bytes == 2 * 3 * loop.target.dimension * 4


def test_rounds_are_recorded_as_they_are_planned(tmp_path):
    loop = private()
    facts = {"unit": "record", "adjacency": "replace_one", "seed_policy": "fixed"}
    with fp.Ledger.create(tmp_path / "run.ledger", **facts, plan=loop.run(3)) as ledger:
        train(loop, loop.target, rounds=3, ledger=ledger)
        assert run_of(ledger.rounds) == loop.run(3) == ledger.plan
    ends = fp.account(tmp_path / "run.ledger", delta=1e-5)
    planned = fp.epsilon(loop.run(3), delta=1e-5, adjacency="replace_one")
    assert ends.upper == planned.upper and planned.lower <= planned.upper < math.inf


def test_without_noise_on_gradients_nothing_is_private():
    loop = private(gradient_noise_multiplier=0.0, leapfrog_steps=1)
    assert fp.epsilon(loop.run(1), delta=1e-5, adjacency="replace_one").upper == math.inf


def test_a_run_in_pieces_is_the_run(tmp_path):
    loop, checkpoint = private(chains=2), tmp_path / "state.pt"
    whole = train(loop, loop.target, rounds=4).state
    for rounds in (1, 2, 4):
        pieces = train(loop, loop.target, rounds=rounds, checkpoint=checkpoint).state
    assert torch.equal(whole.positions, pieces.positions)
    assert torch.equal(whole.corrections, pieces.corrections)


def test_refusals():
    with pytest.raises(ParameterError, match="averaging"):
        debiased(averaging="I", cohort=2)
    with pytest.raises(ParameterError, match="exact_jump"):
        debiased(exact_jump=True)
    loop = debiased()
    with pytest.raises(ParameterError, match="exact_laws"):
        _ = loop.exact
    with pytest.raises(ParameterError, match="dropout"):
        loop.step(loop.init(), dropout=lambda cohort: cohort[:1])
    plain = HamiltonianSampling(target=loop.target, step_size=0.1)
    with pytest.raises(ParameterError, match="state"):
        loop.step(plain.init())
    noisy = debiased(GaussianPosterior(target=target(), sensitivity=1.0))
    noisy = replace(noisy, gradient_noise_multiplier=1.0)
    with pytest.raises(ParameterError, match="weights"):
        _ = noisy.exact_laws


def test_positions_are_kept_and_gone_on_from():
    loop = debiased(burn_in=1, draws=2, chains=2)
    state = loop.init()
    for done in range(1, 5):
        before, (state, _) = state, loop.step(state)
        assert type(state) is type(before) and state.round == done
        kept = state.positions if 2 <= done <= 3 else state.draws[:, -1]
        assert done < 2 or torch.equal(state.draws[:, min(done, 3) - 2], kept)
