"""Tests of ``fedprivacy.sampling.cohorts``."""

import itertools
import math
from collections import Counter

import pytest
from scipy.stats import binom

import fedprivacy as fp
from fedprivacy.sampling.cohorts import excluded, goes_with
from tests.mechanisms.test_base import sparse

CLIENT = fp.Gaussian(noise_multiplier=1.0, unit="client")
RECORD = fp.Gaussian(noise_multiplier=1.0, unit="record")


@pytest.mark.parametrize(
    "run",
    [
        CLIENT,
        CLIENT * 2,
        CLIENT + fp.Gaussian(noise_multiplier=2.0),
        fp.Parallel((CLIENT, CLIENT * 2)),
        fp.Laplace(noise_multiplier=1.0, unit="client"),
        fp.ApproximateDp(guarantees=((1.0, 0.0),), adjacency="add_remove", unit="client"),
        sparse(topped_up=True),
        CLIENT.sampled(fp.Everyone()),
    ],
    ids=repr,
)
def test_the_list_of_participants_shows_which_clients_there_are(run):
    ask = {"delta": 1e-5, "adjacency": "add_remove"}
    with pytest.raises(fp.UnsupportedCombination, match="list of participants shows membership"):
        fp.epsilon(run, observer="server", **ask)
    for observer in ("aggregate", "final"):
        assert fp.epsilon(run, observer=observer, **ask).upper > 0.0
    assert (
        "list of part"
        in fp.audit(run, claim=(1.0, 1e-5), adjacency="add_remove").unsupported["server"]
    )


def test_of_a_record_the_list_shows_nothing():
    ask = {"delta": 1e-5, "adjacency": "add_remove", "observer": "server"}
    unsaid = fp.epsilon(fp.Gaussian(noise_multiplier=1.0), **ask)
    assert any("the unit is a record" in words for words in unsaid.assumptions)
    told = fp.epsilon(RECORD, **ask)
    assert told.upper == unsaid.upper and not any("record (" in w for w in told.assumptions)
    loss = fp.Gaussian(noise_multiplier=1.0).privacy_loss("add_remove", "server")
    with pytest.raises(fp.UnsupportedCombination, match="list of participants"):
        loss.under(CLIENT.privacy_loss("add_remove").facts._replace(observer=fp.Observer.SERVER))
    with pytest.raises(fp.ParameterError, match="unit must agree"):
        RECORD.privacy_loss("zero_out").under(CLIENT.privacy_loss("zero_out").facts)


def test_a_population_that_the_law_of_cohorts_needs_is_said_to_be_public():
    run = fp.Gaussian(noise_multiplier=2.0).sampled(
        fp.TruncatedPoisson(0.01, population=900, largest=20)
    )
    bound = fp.epsilon(run, delta=1e-5, adjacency="add_remove", accountant="rdp")
    assert "declared public, which add_remove does not hide) = 900" in bound.assumptions[-1]
    other = fp.epsilon(run, delta=1e-5, adjacency="zero_out", accountant="rdp")
    assert "population = 900" in other.assumptions[-1]


@pytest.mark.parametrize(("rounds", "most"), [(2, 12), (3, 7)])
@pytest.mark.parametrize("known", [False, True])
def test_a_doubt_is_as_rare_as_it_says(rounds, most, known):
    """Every outcome of every small population, counted out."""
    q, chance = 0.3, 0.2
    seen = 0.0
    for n in range(1, most + 1):
        law = binom.pmf(range(n + 1), n, q)
        wrong = 0.0
        for drawn in itertools.product(range(n + 1), repeat=rounds):
            sizes = {size: drawn.count(size) for size in drawn}
            if excluded(sizes, q, chance, n if known else None):
                wrong += math.prod(law[size] for size in drawn)
        assert wrong <= chance
        seen = max(seen, wrong)
    assert seen > 0.0


def test_how_rare_it_is_that_cohorts_go_with_a_schedule():
    """Every order of few cohorts, with every schedule of two kinds of noise."""
    for sizes in ([1, 2, 3, 4, 5, 6], [1, 1, 1, 2, 2, 9]):
        for noise in ([1.0] * 3 + [2.0] * 3, [1.0] * 5 + [2.0]):
            for chance in (0.9, 0.5, 0.3, 0.1):
                orders = list(itertools.permutations(sizes))
                wrong = sum(
                    goes_with(Counter(zip(order, noise, strict=True)), chance) for order in orders
                )
                assert wrong <= chance * len(orders)
    perfect = Counter(zip(range(40), map(float, range(40)), strict=True))
    assert goes_with(perfect, 1e-4) and not goes_with(perfect, 1e-9)
