"""All data sets of three or four units, with all draws: no loss exceeds the bound.

The mechanism is discrete Laplace noise on an integer sum, with laws that are exact up to the last
digits of a double. Every scheme is written out here as the law of its draws, by its definition.
"""

import functools
import itertools
import math

import numpy as np
import pytest

import fedprivacy as fp

A = 0.7
"""Noise of k has probability tanh(A / 2) e^(-A |k|)."""
HALF = 45
"""Beyond it lie less than 1e-13 of the noise."""
WIDTH = 2 * HALF + 1
NOISE = math.tanh(A / 2) * np.exp(-A * np.abs(np.arange(-HALF, HALF + 1)))
LOST = 1e-12
EPSILONS = (0.0, 0.3, 0.69, 1.1)
STEP = fp.DiscreteLaplace(noise_parameter=A)
VALUES = (-1, 0, 1)


@functools.cache
def around(total):
    """The law of the noisy sum, on the integers from -HALF to HALF."""
    return np.roll(NOISE, total)


def hockey_stick(p, q, epsilon):
    """P - e^epsilon Q where that is positive, over labelled outcomes."""
    empty = np.zeros(1)
    return sum(
        float(np.maximum(p.get(k, empty) - math.exp(epsilon) * q.get(k, empty), 0.0).sum())
        for k in p
    )


def mixed(draws, data, show):
    """The law of one release: {label: weights}, the label being the cohort where that is shown."""
    found = {}
    for chance, cohort in draws:
        label = cohort if show else ()
        law = chance * around(sum(data[i] for i in cohort))
        found[label] = found.get(label, 0.0) + law
    return found


def poisson(n, q=0.4):
    for size in range(n + 1):
        for cohort in itertools.combinations(range(n), size):
            yield q**size * (1 - q) ** (n - size), cohort


def truncated(n, q=0.6, largest=2):
    """Of a cohort that is too large as many as allowed stay, drawn evenly."""
    found = {}
    for chance, cohort in poisson(n, q):
        kept = list(itertools.combinations(cohort, min(len(cohort), largest)))
        for each in kept:
            found[each] = found.get(each, 0.0) + chance / len(kept)
    return [(chance, cohort) for cohort, chance in found.items()]


def fixed(n, size=2):
    every = list(itertools.combinations(range(n), size))
    return [(1 / len(every), cohort) for cohort in every]


def everyone(n):
    return [(1.0, tuple(range(n)))]


def epochs(assignments, data, show):
    """The law of two rounds: who is in the first; the others are in the second."""
    found = {}
    for chance, first in assignments:
        sums = [sum(data[i] for i in first), sum(data) - sum(data[i] for i in first)]
        label = first if show else ()
        law = chance * np.multiply.outer(*map(around, sums)).ravel()
        found[label] = found.get(label, 0.0) + law
    return found


N = 4
SCHEMES = {
    "Poisson": (fp.Poisson(0.4), lambda n, d, s: mixed(poisson(n), d, s)),
    "TruncatedPoisson": (
        fp.TruncatedPoisson(0.6, population=N, largest=2),
        lambda n, d, s: mixed(truncated(n), d, s),
    ),
    "FixedSize": (fp.FixedSize(2, population=N), lambda n, d, s: mixed(fixed(n), d, s)),
    "Everyone": (fp.Everyone(), lambda n, d, s: mixed(everyone(n), d, s)),
    # Two batches of two: every half is the first as often.
    "Shuffled": (
        fp.Shuffled(rounds_per_epoch=2, population=N),
        lambda n, d, s: epochs(fixed(n, n // 2), d, s),
    ),
    "RandomAllocation": (
        fp.RandomAllocation(rounds_per_epoch=2),
        lambda n, d, s: epochs(poisson(n, 0.5), d, s),
    ),
}


def neighbours(adjacency):
    """Pairs of data sets: the other three units in every way, and two states of the fourth."""
    for others in itertools.combinations_with_replacement(VALUES, N - 1):
        if adjacency == "replace_one":
            yield from (((*others, a), (*others, b)) for a, b in ((1, -1), (1, 0), (-1, 1)))
        else:
            for mine in (1, -1):
                there = (*others, mine)
                gone = (*others, 0) if adjacency == "zero_out" else others
                yield there, gone
                yield gone, there


CELLS = [
    (name, adjacency, observer)
    for name in SCHEMES
    for adjacency in ("add_remove", "zero_out", "replace_one")
    for observer in ("aggregate", "server")
]


@pytest.mark.parametrize(("name", "adjacency", "observer"), CELLS)
def test_no_data_set_of_four_units_loses_more_than_is_said(name, adjacency, observer):
    scheme, law = SCHEMES[name]
    run, ask = STEP.sampled(scheme), {"adjacency": adjacency, "observer": observer}
    try:
        bounds = [fp.delta(run, epsilon=epsilon, **ask) for epsilon in EPSILONS]
    except fp.UnsupportedCombination:
        hopeless = adjacency == "add_remove" and (observer == "server" or name == "Shuffled")
        # Under replace_one an integer sum has no theorem where slots are not exchanged.
        assert hopeless or (adjacency == "replace_one" and name in ("Poisson", "TruncatedPoisson"))
        return
    show = observer == "server"
    laws = {}
    for pair in neighbours(adjacency):
        for data in pair:
            laws.setdefault(data, law(len(data), data, show))
    worst = [
        max(hockey_stick(laws[x], laws[y], epsilon) for x, y in neighbours(adjacency))
        for epsilon in EPSILONS
    ]
    for true, bound in zip(worst, bounds, strict=True):
        assert true - LOST <= bound.upper, (true, bound)
        if name not in ("Shuffled", "RandomAllocation", "TruncatedPoisson"):
            assert bound.lower <= true + LOST, (true, bound)
    # Without amplification, or if a unit's sum is the pair, the ends equal the truth.
    exact = observer == "server" or name == "Everyone"
    if exact and name != "TruncatedPoisson":
        assert worst == pytest.approx([bound.upper for bound in bounds], abs=1e-9)


TWICE = [
    (name, adjacency)
    for name in ("Poisson", "FixedSize", "TruncatedPoisson", "Everyone")
    for adjacency in ("add_remove", "zero_out", "replace_one")
    if (name, adjacency) not in {("Poisson", "replace_one"), ("TruncatedPoisson", "replace_one")}
]


@pytest.mark.parametrize(("name", "adjacency"), TWICE)
def test_two_rounds_on_tiny_data_lose_no_more_than_is_composed(name, adjacency):
    """Data that stay and data that change from round to round, the unit's own included."""
    scheme, law = SCHEMES[name]
    run = STEP.sampled(scheme) * 2
    pairs = [p for p in neighbours(adjacency) if abs(sum(p[0][: N - 1])) in (0, N - 1)]
    laws = {data: law(len(data), data, False)[()] for pair in pairs for data in pair}
    bounds = {e: fp.delta(run, epsilon=e, adjacency=adjacency) for e in (0.0, 0.69, 1.7)}
    # A neighbour stays a neighbour; the unit fixes only the direction of a round.
    seconds = {size: [p for p in pairs if len(p[0]) == size] for size in (N - 1, N)}
    for x, y in pairs:
        for u, v in seconds[len(x)][:: 5 if adjacency == "replace_one" else 4]:
            p, q = (np.multiply.outer(laws[a], laws[b]).ravel() for a, b in ((x, u), (y, v)))
            for epsilon, bound in bounds.items():
                true = float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())
                assert true - LOST <= bound.upper, (x, y, u, v, epsilon)


def test_the_definitions_above_are_laws():
    """Each draws with probability 1, and a unit as often as the scheme says."""
    for name, draws in {
        "Poisson": list(poisson(N)),
        "TruncatedPoisson": truncated(N),
        "FixedSize": fixed(N),
        "Everyone": everyone(N),
    }.items():
        assert math.fsum(chance for chance, _ in draws) == pytest.approx(1.0, abs=1e-15)
        often = math.fsum(chance for chance, cohort in draws if 0 in cohort)
        assert SCHEMES[name][0].rate == pytest.approx(often, rel=1e-12), name
    assert math.fsum(NOISE) == pytest.approx(1.0, abs=1e-13)
    assert math.fsum(around(3) * np.arange(-HALF, HALF + 1)) == pytest.approx(3.0, abs=1e-10)


@pytest.mark.parametrize("name", ["Poisson", "FixedSize", "TruncatedPoisson"])
def test_cohorts_are_drawn_by_these_laws(name):
    """4,000 draws: every cohort within 5 standard errors, which chance exceeds once in 1e5."""
    draws = {"Poisson": poisson, "FixedSize": fixed, "TruncatedPoisson": truncated}[name](N)
    generator, seen, times = np.random.default_rng(7), {}, 4000
    for _ in range(times):
        cohort = tuple(sorted(SCHEMES[name][0].draw(N, generator).tolist()))
        seen[cohort] = seen.get(cohort, 0) + 1
    wanted = {cohort: chance for chance, cohort in draws}
    assert set(seen) <= set(wanted)
    for cohort, chance in wanted.items():
        error = 5.0 * math.sqrt(chance * (1 - chance) / times)
        assert abs(seen.get(cohort, 0) / times - chance) <= error, cohort


# Answers of randomised response


@pytest.mark.parametrize(("chance", "answers"), [(0.5, 2), (0.3, 3), (0.8, 5)])
@pytest.mark.parametrize("rounds", [1, 3])
def test_every_run_of_answers_is_counted(chance, answers, rounds):
    """All answers of all rounds, one by one, under two answers of the unit in each round."""
    own, other = 1 - chance + chance / answers, chance / answers
    laws = {a: [own if b == a else other for b in range(answers)] for a in range(answers)}
    run = fp.RandomizedResponse(chance=chance, answers=answers) * rounds
    for epsilon in (0.0, 0.4, 1.5):
        worst = 0.0
        for x, y in itertools.product(itertools.product(range(2), repeat=rounds), repeat=2):
            p, q = (
                functools.reduce(np.multiply.outer, [laws[a] for a in told], np.ones(()))
                for told in (x, y)
            )
            worst = max(worst, float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum()))
        bound = fp.delta(run, epsilon=epsilon, adjacency="replace_one")
        assert bound.lower - 1e-14 <= worst <= bound.upper + 1e-14
        assert worst == pytest.approx(bound.upper, abs=1e-3)


def test_which_of_two_questions_was_answered_is_part_of_the_answer():
    """Kinds: neighbours differ in a unit of one kind, and the other kind's answers do not move."""
    often, seldom = (fp.RandomizedResponse(chance=c, answers=2) for c in (0.9, 0.4))
    for epsilon in (0.1, 0.7):
        own = fp.delta(fp.Parallel((often, seldom)), epsilon=epsilon, adjacency="replace_one")
        told = 1 - 0.4 / 2
        worst = max(told - math.exp(epsilon) * (1 - told), 0.0)
        assert own.resolution[0] - 1e-12 <= worst <= own.upper + 1e-12
