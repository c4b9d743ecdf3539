"""Random nests of dp-accounting's events: a certified number or a typed refusal, never less than
dp-accounting's from below, and n rounds at once are n rounds one by one."""

import math
import random

import dp_accounting as dpa
import pytest
from dp_accounting import dp_event
from dp_accounting.pld import privacy_loss_distribution as distribution

from fedprivacy.errors import FedPrivacyError
from fedprivacy.integrations.dp_accounting import CertifiedAccountant

RELATIONS = list(dpa.NeighboringRelation)
ADD, SWAP, ZERO = (
    dpa.NeighboringRelation.ADD_OR_REMOVE_ONE,
    dpa.NeighboringRelation.REPLACE_ONE,
    dpa.NeighboringRelation.REPLACE_SPECIAL,
)
MESH = 2e-3


def leaf(draw):
    noise = draw.choice([0.0, 0.7, 1.3, 3.0]) if draw.random() < 0.1 else draw.uniform(0.6, 5.0)
    chance = draw.choice([0.0, 1.0, draw.uniform(0.01, 0.6)])
    return draw.choice(
        [
            lambda: dpa.GaussianDpEvent(noise),
            lambda: dpa.GaussianDpEvent(noise),
            lambda: dpa.LaplaceDpEvent(noise),
            lambda: dp_event.DiscreteLaplaceDpEvent(noise, draw.randint(0, 4)),
            lambda: dpa.RandomizedResponseDpEvent(chance, draw.randint(1, 6)),
            lambda: dp_event.MixtureOfGaussiansDpEvent(noise, (0.0, 1.0, 2.0), (0.5, 0.25, 0.25)),
            lambda: dpa.ZCDpEvent(draw.uniform(0.0, 0.2), draw.choice([0.0, 0.05])),
            lambda: dpa.SingleEpochTreeAggregationDpEvent(noise, draw.randint(0, 40)),
            lambda: dpa.TruncatedSubsampledGaussianDpEvent(
                draw.randint(5, 60), chance, draw.randint(0, 20), noise
            ),
            lambda: dpa.NoOpDpEvent(),
            lambda: draw.choice([dpa.NonPrivateDpEvent(), dpa.UnsupportedDpEvent()]),
        ]
    )()


def tree(draw, depth=0):
    kind = draw.random()
    if depth >= 3 or kind < 0.3:
        return leaf(draw)
    if kind < 0.5:
        return dpa.SelfComposedDpEvent(tree(draw, depth + 1), draw.randint(1, 4))
    if kind < 0.7:
        return dpa.ComposedDpEvent([tree(draw, depth + 1) for _ in range(draw.randint(0, 3))])
    if kind < 0.85:
        return dpa.PoissonSampledDpEvent(draw.choice([0.0, 0.05, 0.3, 1.0]), tree(draw, depth + 1))
    if kind < 0.93:
        return dpa.SampledWithoutReplacementDpEvent(40, draw.randint(0, 40), tree(draw, depth + 1))
    mean, shape = draw.uniform(1.0, 5.0), draw.choice([0.0, 1.0, math.inf])
    return dp_event.RepeatAndSelectDpEvent(tree(draw, depth + 1), mean, shape)


def nothing():
    """Their identity is a distribution from above; noise of 1e8 loses no more to the mesh."""
    return distribution.from_gaussian_mechanism(
        1e8, pessimistic_estimate=False, value_discretization_interval=MESH
    )


def optimistic(event, relation, count=1):
    """Their distribution from below; None where it has none that is right."""
    if type(event) is dpa.SelfComposedDpEvent:
        return optimistic(event.event, relation, count * event.count)
    if type(event) is dpa.ComposedDpEvent:
        found = nothing()
        for each in event.events:
            part = optimistic(each, relation, count)
            if part is None:
                return None
            found = found.compose(part)
        return found
    share = 1.0
    if type(event) is dpa.PoissonSampledDpEvent:
        share, event = event.sampling_probability, event.event
    given = {"pessimistic_estimate": False, "value_discretization_interval": MESH}
    if type(event) is dpa.NoOpDpEvent or share == 0.0:
        return nothing()
    if type(event) is dpa.GaussianDpEvent and event.noise_multiplier > 0:
        part = distribution.from_gaussian_mechanism(
            event.noise_multiplier, sampling_prob=share, neighboring_relation=relation, **given
        )
    elif type(event) is dpa.LaplaceDpEvent and event.noise_multiplier > 0 and relation != SWAP:
        part = distribution.from_laplace_mechanism(
            event.noise_multiplier, sampling_prob=share, **given
        )
    else:
        return None
    return part.self_compose(count)


def check(seed):
    """Return "number", "compared" or "refused" for a random event."""
    draw = random.Random(seed)
    event, relation = tree(draw), draw.choice(RELATIONS)
    name, delta = draw.choice(["pld", "rdp", "advanced"]), draw.choice([1e-2, 1e-5])
    settings = {"accountant": name, "tolerance": 1e-2}
    account = CertifiedAccountant(relation, **settings)
    if not account.supports(event):
        details = account._maybe_compose(event, 1, False)
        assert details.invalid_event is not None and details.error_message
        with pytest.raises((dpa.UnsupportedEventError, FedPrivacyError)):
            account.compose(event)
        assert isinstance(account.ledger, dpa.NoOpDpEvent)
        return "refused"
    at_once = account.compose(event, 2).bound(delta)
    one_by_one = CertifiedAccountant(relation, **settings).compose(event).compose(event)
    assert one_by_one.bound(delta) == at_once
    twice = dpa.SelfComposedDpEvent(event, 2)
    assert CertifiedAccountant(relation, **settings).compose(twice).bound(delta) == at_once
    assert 0.0 <= at_once.lower <= at_once.upper
    theirs = optimistic(event, relation, 2)
    if theirs is None:
        return "number"
    assert at_once.upper >= theirs.get_epsilon_for_delta(delta) - 1e-9
    return "compared"


@pytest.mark.parametrize("seed", range(40))
def test_random_events(seed):
    assert check(seed) in ("number", "compared", "refused")
