"""Tests of ``fedprivacy.training.posterior``."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedprivacy.errors import ParameterError
from fedprivacy.training import Posterior, SoftmaxRegression
from tests.property.test_training_properties import federated
from tests.systems.fa_ld.test_loop import langevin, posterior, records
from tests.training.test_chains import gradient

pytest.importorskip("torch")

import torch

from fedprivacy import training
from fedprivacy.training.posterior import checked_shares


def gaussian(parameters, inputs, responses):
    return -0.5 * ((responses - inputs @ parameters) / 0.5) ** 2


def test_a_posterior_of_any_likelihood():
    rng = np.random.default_rng(0)
    truth, clients = np.array([1.0, -2.0]), []
    for count in (300, 200, 500):
        x = rng.normal(size=(count, 2))
        clients.append((x, x @ truth + 0.5 * rng.normal(size=count)))
    target = Posterior.of(gaussian, clients=clients, dimension=2)
    assert target.shares == pytest.approx([0.3, 0.2, 0.5])
    sampler = training.LangevinSampling(
        target=target, step_size=2e-5, local_steps=5, burn_in=20, draws=60, chains=4, seed=0
    )
    draws = training.train(sampler, target, rounds=sampler.rounds).state.draws.reshape(-1, 2)
    assert draws.mean(0).numpy() == pytest.approx(truth, abs=0.05)
    assert draws.std(0).numpy() == pytest.approx(0.5 / math.sqrt(1000), rel=0.35)


def test_a_posterior_without_targets():
    clients = [np.ones((10, 3)), np.ones((5, 3))]
    target = Posterior.of(lambda mean, x: -((x - mean) ** 2).sum(1), clients=clients, dimension=3)
    assert target.data.labels.shape == (15, 0) and list(target.counts) == [10, 5]


@pytest.mark.parametrize(
    ("likelihood", "message"),
    [
        (lambda p, x, y: gaussian(p, x, y).sum(), r"return shape \(2,\) for two records"),
        (lambda p, x, y: p[7] * y, "function of tensors.*IndexError"),
        (lambda p, x, y: None, "got 'NoneType'"),
    ],
)
def test_likelihoods_that_are_none(likelihood, message):
    with pytest.raises(ParameterError, match=message):
        Posterior.of(likelihood, clients=[(np.zeros((4, 2)), np.zeros(4))], dimension=2)


def test_clients_that_do_not_agree():
    ragged = [(np.zeros((4, 2)), np.zeros(4)), (np.zeros((4, 2)), np.zeros(3))]
    with pytest.raises(ParameterError, match=r"clients\[1\] must have one target for every input"):
        Posterior.of(gaussian, clients=ragged, dimension=2)


pytestmark = pytest.mark.usefixtures("one_thread")
UNEQUAL = np.array([1.0, 2.0, 3.0, 2.0, 1.0, 3.0]) / 12.0
MODEL = SoftmaxRegression(4, 3)


def test_batches_are_drawn_without_replacement_and_evenly():
    target_ = posterior(counts=(10, 4))
    local = target_.local(np.array([[0, 1]]), target_.start[None], 0.25, np.random.default_rng(2))
    counts, rounds = np.zeros(14), 800
    for _ in range(rounds):
        rows, mask = local._drawn()
        for seat, size in ((0, 3), (1, 1)):
            drawn = rows[seat][mask[seat] > 0].tolist()
            assert len(set(drawn)) == len(drawn) == size
            assert set(drawn) <= set(target_.data.clients[seat].tolist())
            counts[drawn] += 1
    for own, rate in ((counts[:10], 0.3), (counts[10:], 0.25)):
        errors = (own - rounds * rate) / math.sqrt(rounds * rate * (1 - rate))
        assert np.abs(errors).max() < 6.5


def test_batches_rounded_up_are_accounted_as_they_are():
    loop = langevin(posterior(counts=(10, 4)), batch_fraction=0.25)
    assert loop.kinds == ((10 / 14, 0.3), (4 / 14, 0.25))
    assert len(loop.notes) == 1 and "batches of 3 records, rounded up" in loop.notes[0]
    asked = [part.batch_fraction for part in loop.round_mechanism.mechanisms]
    assert asked == [0.3, 0.25]
    assert langevin(posterior(counts=(10, 10)), batch_fraction=0.3).notes == ()


def test_a_gradient_from_a_batch_is_unbiased():
    target_ = posterior(clip_norm=None)
    at = torch.zeros(1, MODEL.dimension)
    make = lambda f: target_.local(np.array([[0]]), at, f, np.random.default_rng(4))  # noqa: E731
    whole, part = make(1.0), make(0.3)
    exact = gradient(whole)[0, 0]
    drawn = torch.stack([gradient(part)[0, 0] for _ in range(400)])
    error = (drawn.mean(dim=0) - exact) / (drawn.std(dim=0) / 20.0)
    assert float(error.abs().max()) < 6.5


def test_points_are_rounded_after_their_noise_only():
    """A gradient sum that is cut to single precision before noise is added moves by its cut."""
    data = records(features=5)
    target = Posterior(model=SoftmaxRegression(5, 3), data=data, clip_norm=1.0)
    assert data.features.dtype == torch.float32
    local = target.local(np.arange(3)[None], target.start[None], 1.0, np.random.default_rng(0))
    assert local.points.dtype == gradient(local).dtype == torch.float64
    noise = np.random.default_rng(1)
    assert local.normal(noise).dtype == local.shared(noise).dtype == torch.float64
    assert local.finish(local.points).dtype == torch.float32


SETTINGS = settings(derandomize=True, deadline=None, max_examples=25)
FEW = settings(derandomize=True, deadline=None, max_examples=8)


# ---- posteriors


@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=5),
    fraction=st.sampled_from([0.1, 0.2, 0.25, 1 / 3, 0.5, 0.7, 1.0]),
)
@SETTINGS
def test_a_batch_is_the_fraction_of_a_client_s_records_rounded_up(sizes, fraction):
    from fractions import Fraction

    exact = Fraction(fraction).limit_denominator(10)
    target = training.Posterior(model=training.SoftmaxRegression(3, 2), data=federated(sizes))
    counts, shares = target.batch_sizes(fraction)
    assert counts.tolist() == [math.ceil(exact * size) for size in sizes]
    assert shares.tolist() == [count / size for count, size in zip(counts, sizes, strict=True)]
    assert (
        target.shares.sum() == pytest.approx(1.0)
        and checked_shares(target.shares, len(sizes)) is not None
    )


@pytest.mark.parametrize(("fraction", "wanted"), [(0.07, 7), (0.55, 55), (0.56, 56), (0.071, 8)])
def test_a_product_that_rounds_up_adds_no_record(fraction, wanted):
    """Of 100 records 0.07 are 7.000000000000001 in doubles."""
    target = training.Posterior(model=training.SoftmaxRegression(3, 2), data=federated([100]))
    assert target.batch_sizes(fraction)[0].tolist() == [wanted]


@given(
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    clip=st.sampled_from([None, 0.3, 2.0]),
    seed=st.integers(0, 5),
)
@FEW
def test_a_client_s_gradient_is_that_of_its_clipped_records(sizes, clip, seed):
    """By autograd, record by record; the weighted mean over clients is the whole gradient."""
    own = federated(sizes, classes=3, seed=seed)
    target = training.Posterior(model=training.SoftmaxRegression(3, 3), data=own, clip_norm=clip)
    point = torch.randn(12, generator=torch.Generator().manual_seed(seed))
    clients = np.arange(len(sizes))[None]
    local = target.local(clients, point[None], 1.0, np.random.default_rng(0))
    found, prior = local.parts(local.points, 1.0)
    assert prior == 1.0
    whole = torch.zeros(12, dtype=torch.float64)
    for client in range(len(sizes)):
        mine = torch.zeros(12, dtype=torch.float64)
        for x, y in zip(*own.records(client), strict=True):
            at = point.double().requires_grad_()
            scores = at[:9].view(3, 3) @ x.double() + at[9:]
            (slope,) = torch.autograd.grad(-torch.log_softmax(scores, 0)[y], at)
            mine += slope if clip is None else slope * min(1.0, clip / float(slope.norm()))
        scaled = mine / target.shares[client]
        torch.testing.assert_close(found[0, client], scaled, rtol=1e-4, atol=1e-5)
        whole += mine
    mean = (torch.from_numpy(target.shares)[:, None] * found[0]).sum(0)
    torch.testing.assert_close(mean, whole, rtol=1e-4, atol=1e-5)
