"""A client of several records: the law of how many are drawn, and its pairs by enumeration."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from mpmath import mpf
from scipy.special import ndtr

import fedprivacy as fp
from fedprivacy.errors import ParameterError, UnsupportedCombination
from fedprivacy.ledger import REGISTRY
from fedprivacy.loss import Side
from fedprivacy.registry import decode, encode
from fedprivacy.sampling.binomial import law
from fedprivacy.sampling.held import _split
from tests import truth

RECORD = fp.Gaussian(noise_multiplier=1.0, unit="record")
ADJACENCIES = ("add_remove", "zero_out", "replace_one")


def hypergeometric(drawn, marked, population):
    """Return {number: probability} in fractions."""
    least, most = max(0, drawn + marked - population), min(drawn, marked)
    ways = {
        s: math.comb(marked, s) * math.comb(population - marked, drawn - s)
        for s in range(least, most + 1)
    }
    return {s: Fraction(n, math.comb(population, drawn)) for s, n in ways.items()}


def binomial(k, q):
    return {s: math.comb(k, s) * mpf(q) ** s * (1 - mpf(q)) ** (k - s) for s in range(k + 1)}


@pytest.mark.parametrize("k, q", [(10**4, 1e-4), (10**4, 0.3), (30, 0.01), (2, 0.5), (700, 1e-9)])
def test_rare_numbers_beside_a_law_lie_above_it(k, q):
    whole = law(k, q, Side.UP)
    common, rare = _split(whole)
    mass = sum(mpf(w) for w, _ in rare)
    for _, s in whole:
        tail = sum(mpf(w) for w, t in whole if t >= s)
        seen = (1 - mass) * sum(mpf(w) for w, t in common if t >= s)
        seen += sum(mpf(w) for w, t in rare if t >= s)
        assert seen >= tail * (1 - mpf("1e-15"))
    assert mass <= mpf("2e-13")


@pytest.mark.parametrize("k, q, z", [(2, 0.3, 1.0), (4, 0.05, 0.7)])
def test_poisson_rounds_are_the_mixture_of_how_many_are_drawn(k, q, z):
    run = fp.Gaussian(noise_multiplier=z).sampled(fp.Poisson(q), held=k)
    there = truth.mixture(*((w, s / mpf(z)) for s, w in binomial(k, q).items()))
    none = truth.mixture((1, 0))
    for epsilon in (0.2, 1.0):
        pairs = ((there, none), (none, there))
        true = max(truth.mixture_delta(pair, epsilon) for pair in pairs)
        for adjacency in ("add_remove", "zero_out"):
            bound = fp.delta(run, epsilon=epsilon, adjacency=adjacency)
            assert bound.lower <= true <= bound.upper <= bound.lower * (1 + 1e-8)


def cohorts(size, others, mine, z):
    """The sum's law when every cohort of ``size`` is as likely, as a mixture."""
    every = list(itertools.combinations([*others, *mine], size))
    return truth.mixture(*((mpf(1) / len(every), sum(c) / mpf(z)) for c in every))


@pytest.mark.fast_cells(2)
@pytest.mark.parametrize(
    "size, held, population, z", [(2, 2, 5, 1.0), (3, 2, 5, 0.8), (2, 3, 4, 1.5)]
)
def test_no_tiny_population_loses_more_than_fixed_size_says(size, held, population, z):
    """All data sets whose records send -1, 0 or 1: none loses more, one the lower end."""
    run = fp.Gaussian(noise_multiplier=z).sampled(fp.FixedSize(size, population), held=held)
    found = {adjacency: [] for adjacency in ADJACENCIES}
    values = (-1.0, 0.0, 1.0)
    sends = list(itertools.combinations_with_replacement(values, held))
    for others in itertools.combinations_with_replacement((-1.0, 0.0, 1.0), population - held):
        for mine in sends:
            if sum(mine) < 0:
                continue  # the mirror image
            here = cohorts(size, others, mine, z)
            found["zero_out"].append((here, cohorts(size, others, (0.0,) * held, z)))
            found["replace_one"] += [(here, cohorts(size, others, other, z)) for other in sends]
            if size <= population - held:
                found["add_remove"].append((here, cohorts(size, others, (), z)))
    for adjacency, pairs in found.items():
        if not pairs:
            with pytest.raises(
                UnsupportedCombination, match="without the client's records, a cohort cannot be"
            ):
                fp.delta(run, epsilon=1.0, adjacency=adjacency)
            continue
        for epsilon in (0.0, 0.5, 2.0):
            bound = fp.delta(run, epsilon=epsilon, adjacency=adjacency)
            worst = max(largest(p, q, epsilon) for p, q in pairs)
            worst = max(worst, max(largest(q, p, epsilon) for p, q in pairs))
            assert worst <= bound.upper + 2e-7
            assert bound.lower <= worst + 2e-7


Y = np.linspace(-16.0, 16.0, 16001)


def largest(p, q, epsilon):
    """H at e^epsilon by the trapezoid rule (right to 2e-7)."""
    one, other = (
        sum(float(w) * np.exp(-0.5 * (Y - float(m)) ** 2) for w, m in merged(side))
        for side in (p, q)
    )
    gap = np.maximum(one - math.exp(epsilon) * other, 0.0)
    return float(np.sum(gap)) * (Y[1] - Y[0]) / math.sqrt(2 * math.pi)


def merged(side):
    found = {}
    for w, m in side:
        found[m] = found.get(m, 0) + w
    return [(w, m) for m, w in found.items()]


@pytest.mark.parametrize("scheme", [fp.Poisson(0.2), fp.FixedSize(3, 12), fp.Everyone()])
def test_the_server_sees_how_many_records_are_drawn(scheme):
    held, z = 3, 1.5
    run = fp.Gaussian(noise_multiplier=z).sampled(scheme, held=held)
    weights = {
        fp.Poisson: lambda: binomial(held, 0.2),
        fp.FixedSize: lambda: hypergeometric(3, held, 12),
        fp.Everyone: lambda: {held: 1},
    }[type(scheme)]()
    for adjacency, moves in (("zero_out", 1), ("replace_one", 2)):
        for epsilon in (0.1, 1.0):
            true = sum(
                mpf(w.numerator) / w.denominator * d if isinstance(w, Fraction) else w * d
                for s, w in weights.items()
                if s
                for d in [truth.gaussian_delta(epsilon, moves * s / mpf(z))]
            )
            bound = fp.delta(run, epsilon=epsilon, adjacency=adjacency, observer="server")
            assert bound.lower <= true <= bound.upper <= true * (1 + 1e-9)
    with pytest.raises(UnsupportedCombination, match="membership"):
        run.privacy_loss("add_remove", "server")


@pytest.mark.parametrize(
    "scheme", [fp.Poisson(0.01), fp.FixedSize(3, 30), fp.Everyone(), fp.Shuffled(10)]
)
def test_one_record_is_todays_object(scheme):
    assert RECORD.sampled(scheme, held=1) == RECORD.sampled(scheme)
    assert repr(RECORD.sampled(scheme, held=1)) == repr(RECORD.sampled(scheme))


@pytest.mark.fast_cells(3)
@pytest.mark.parametrize("scheme", [fp.Poisson(0.05), fp.FixedSize(5, 100)])
@pytest.mark.parametrize("adjacency", ADJACENCIES)
def test_more_records_lose_more_and_two_more_than_one(scheme, adjacency):
    step = fp.Gaussian(noise_multiplier=3.0)
    ask = {"delta": 1e-5, "adjacency": adjacency}
    bounds = [fp.epsilon(step.sampled(scheme, held=k) * 20, **ask) for k in (1, 2, 4, 9)]
    for fewer, more in itertools.pairwise(bounds):
        assert more.lower > fewer.upper or more.upper > fewer.upper * 1.2


def test_with_replacement_a_client_is_a_unit_of_so_much_chance():
    run = RECORD.sampled(fp.WithReplacement(5, population=40), held=8)
    one = fp.Gaussian(noise_multiplier=1.0).sampled(fp.WithReplacement(5, population=5))
    for adjacency in ADJACENCIES:
        loss, other = run.privacy_loss(adjacency), one.privacy_loss(adjacency)
        assert (loss.curve, loss.witness) == (other.curve, other.witness)
        assert loss.facts.unit == "client"
    by_chance = RECORD.sampled(fp.WithReplacement(5, probability=0.025), held=8)
    assert by_chance.privacy_loss("zero_out").curve == run.privacy_loss("zero_out").curve


def test_everyone_is_one_shift():
    run = RECORD.sampled(fp.Everyone(), held=7)
    assert run.privacy_loss("zero_out").curve.mu == 7.0
    exact = fp.epsilon(fp.Gaussian(noise_multiplier=1 / 7), delta=1e-5, adjacency="zero_out")
    found = fp.epsilon(run, delta=1e-5, adjacency="zero_out")
    assert found.lower <= exact.upper and exact.lower <= found.upper
    replaced = fp.epsilon(run, delta=1e-5, adjacency="replace_one")
    twice = fp.epsilon(fp.Gaussian(noise_multiplier=1 / 14), delta=1e-5, adjacency="zero_out")
    assert replaced.lower <= twice.upper and twice.lower <= replaced.upper


@pytest.mark.parametrize("k, q, z, rounds", [(5, 0.1, 2.0, 20)])
def test_the_mixture_event_of_dp_accounting_agrees(k, q, z, rounds):
    dpa = pytest.importorskip("dp_accounting")
    from dp_accounting import dp_event
    from dp_accounting.pld import PLDAccountant

    weights = [float(w) for w in binomial(k, q).values()]
    weights[0] = 1.0 - math.fsum(weights[1:])
    event = dp_event.MixtureOfGaussiansDpEvent(z, list(range(k + 1)), weights)
    relation = dpa.NeighboringRelation.ADD_OR_REMOVE_ONE
    theirs = PLDAccountant(relation, 2e-3).compose(event, rounds).get_epsilon(1e-5)
    run = fp.Gaussian(noise_multiplier=z).sampled(fp.Poisson(q), held=k) * rounds
    bound = fp.epsilon(run, delta=1e-5, adjacency="add_remove")
    assert bound.lower - 1e-6 <= theirs <= bound.upper + 2e-3


@pytest.mark.fast_cells(3)
@pytest.mark.parametrize("k, q, z", [(10**4, 1e-4, 5.0), (10**4, 0.01, 200.0), (3000, 0.1, 100.0)])
@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
def test_large_clients_are_certified(k, q, z, adjacency):
    run = fp.Gaussian(noise_multiplier=z).sampled(fp.Poisson(q), held=k) * 10
    bound = fp.epsilon(run, delta=1e-5, adjacency=adjacency)
    assert 0.0 < bound.lower <= bound.upper < math.inf
    if adjacency == "add_remove":
        assert bound.upper <= bound.lower * 1.001
        # at least what k q records that are always there would lose
        sure = math.sqrt(10) * k * q / z
        assert float(truth.gaussian_delta(bound.lower, 0.5 * sure)) <= 1e-5


def test_tiny_deltas_are_served_by_the_rare_numbers_too():
    """Ten of ten records are drawn once in 1e20 rounds."""
    run = fp.Gaussian(noise_multiplier=0.3).sampled(fp.Poisson(0.01), held=10)
    weights = binomial(10, 0.01)
    for epsilon in (20.0, 150.0, 400.0):
        bound = fp.delta(run, epsilon=epsilon, adjacency="zero_out")
        pair = (
            truth.mixture(*((w, s / mpf("0.3")) for s, w in weights.items())),
            truth.mixture((1, 0)),
        )
        true = truth.mixture_delta(pair, epsilon)
        assert bound.lower * (1 - 1e-9) <= true <= bound.upper * (1 + 1e-9)


RUNS = [
    RECORD.sampled(fp.Poisson(0.01), held=5),
    RECORD.sampled(fp.FixedSize(10, 1000), held=20) * 3,
    RECORD.sampled(fp.WithReplacement(3, population=30), held=2),
]


@pytest.mark.parametrize("run", RUNS)
def test_it_is_written_read_and_said(run):
    assert decode(encode(run, REGISTRY), REGISTRY) == run
    one = run.sequence()[0][0]
    assert run.protects == "client" and f"held={one.held}" in repr(one)
    loss = run.privacy_loss("replace_one")
    assert any(f"at most {one.held} records" in told for told in loss.assumptions)
    assert any("public" in told and "records of a client" in told for told in loss.assumed)
    assert ("replacement keeps the number of records of a" in " ".join(loss.assumptions)) == (
        one.scheme.name != "Poisson"
    )
    bound = fp.epsilon(run, delta=1e-5, adjacency="zero_out")
    assert "client level" in str(bound)


REFUSED = [
    (lambda: RECORD.sampled(fp.Shuffled(10), held=2), "Shuffled.*group privacy"),
    (lambda: RECORD.sampled(fp.RandomAllocation(10), held=2), "RandomAllocation"),
    (
        lambda: RECORD.sampled(fp.TruncatedPoisson(0.1, population=50, largest=9), held=2),
        "TruncatedPoisson",
    ),
    (lambda: fp.Laplace(noise_multiplier=1.0).sampled(fp.Poisson(0.1), held=2), "one Gaussian sum"),
    (lambda: (RECORD * 2).sampled(fp.Poisson(0.1), held=2), "one Gaussian sum"),
    (
        lambda: fp.Gaussian(noise_multiplier=1.0, unit="client").sampled(fp.Poisson(0.1), held=2),
        "unit of this mechanism is already a client",
    ),
    (
        lambda: fp.CorrelatedNoise(
            factor=fp.factors.Identity(),
            noise_multiplier=1.0,
            rounds=5,
            participation=fp.SingleParticipation(),
        ).sampled(fp.Poisson(0.1), held=2),
        "held=2 records of one client in correlated noise",
    ),
    (lambda: RUNS[0].in_cohort(fp.Poisson(0.5)), "the unit of this mechanism is a client"),
    (lambda: RUNS[0].sampled(fp.Poisson(0.5)), "already sampled"),
    (lambda: RUNS[0] + RECORD.sampled(fp.Poisson(0.1)), "unit"),
    (lambda: RUNS[0].privacy_loss("add_remove", "server"), "membership"),
]


@pytest.mark.parametrize("make, said", REFUSED)
def test_what_has_no_theorem_is_refused(make, said):
    with pytest.raises((UnsupportedCombination, ParameterError), match=said):
        make()


@pytest.mark.parametrize("held", [0, -1, 1.5, math.nan, math.inf, "3", True, None, 10**9 + 1])
def test_bad_numbers_of_records_are_refused(held):
    with pytest.raises(ParameterError, match="held"):
        RECORD.sampled(fp.Poisson(0.1), held=held)


@pytest.mark.parametrize(
    "scheme",
    [
        fp.FixedSize(3, 10),
        fp.WithReplacement(3, population=10),
        fp.WithReplacement(2, probability=0.1),
    ],
)
def test_nobody_holds_more_records_than_there_are(scheme):
    with pytest.raises(ParameterError, match="held must be at most"):
        RECORD.sampled(scheme, held=11)
    assert RECORD.sampled(scheme, held=10).privacy_loss("zero_out")


def test_a_whole_population_of_one_client():
    everything = RECORD.sampled(fp.FixedSize(4, 9), held=9)
    assert everything.privacy_loss("zero_out").curve.tails(
        np.array([0.0])
    ).p_above == pytest.approx(math.log(ndtr(2.0)))
