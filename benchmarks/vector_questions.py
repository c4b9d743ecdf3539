"""The questions of the test vectors, by family. `benchmarks/vectors.py` answers and writes them."""

from collections.abc import Iterator
from itertools import product
from typing import Any

import fedprivacy as fp
from fedprivacy import factors
from fedprivacy.mechanisms import Mechanism

ALL = ("add_remove", "zero_out", "replace_one")
MOVES = ("add_remove", "replace_one")
SLOTS = ("zero_out", "replace_one")
Asked = dict[str, Any]


def gaussian(z: float) -> Mechanism:
    return fp.Gaussian(noise_multiplier=z)


def laplace(b: float) -> Mechanism:
    return fp.Laplace(noise_multiplier=b)


def ask(run: Mechanism, adjacency: str, *tags: str, **given: Any) -> Asked:
    """Return a question; about epsilon at delta 1e-5 if nothing else is given."""
    kind = given.pop("ask", "delta" if "epsilon" in given else "epsilon")
    if kind in ("epsilon", "resumed", "noise_multiplier"):
        given.setdefault("delta", 1e-5)
    return {"ask": kind, "run": run, "adjacency": adjacency, "tags": tags, **given}


def plain_gaussian() -> Iterator[Asked]:
    for z, rounds, adjacency in product((0.3, 0.5, 1.0, 2.0, 5.0, 20.0), (1, 10, 100), MOVES):
        yield ask(gaussian(z) * rounds, adjacency)
    yield ask(gaussian(1.0), "zero_out")
    yield ask(gaussian(4.530877117), "add_remove", delta=1e-6)
    for z, epsilon in product((0.5, 1.0, 5.0), (0.0, 0.1, 1.0, 8.0)):
        yield ask(gaussian(z), "add_remove", epsilon=epsilon)
    for rounds in (10, 100):
        yield ask(gaussian(10.0) * rounds, "replace_one", epsilon=1.0)


def plain_laplace() -> Iterator[Asked]:
    for b, rounds, adjacency in product((0.5, 1.0, 2.0, 10.0), (1, 10, 100), MOVES):
        yield ask(laplace(b) * rounds, adjacency)
    for b, epsilon in product((0.5, 1.0, 5.0), (0.0, 0.1, 1.0)):
        yield ask(laplace(b), "add_remove", epsilon=epsilon)
    yield ask(laplace(4.0) * 10, "add_remove")


SAMPLED = (
    (0.5, 0.01, 1),
    (1.0, 0.001, 1),
    (1.0, 0.1, 1),
    (0.5, 0.2, 3),
    (2.0, 0.5, 10),
    (1.0, 0.9, 10),
    (0.8, 0.05, 40),
    (1.0, 0.01, 100),
    (4.0, 0.2, 100),
    (1.4, 1 / 60, 180),
    (0.5, 0.01, 1000),
    (1.0, 0.01, 1000),
    (3.0, 0.1, 512),
    (0.8, 0.001, 10_000),
    (1.1, 0.004, 10_000),
    (4.0, 0.01, 10_000),
    (2.0, 0.1, 10_000),
)
"""Noise multiplier, probability, rounds."""


def poisson_gaussian() -> Iterator[Asked]:
    for (z, q, rounds), adjacency in product(SAMPLED, ALL):
        yield ask(gaussian(z).sampled(fp.Poisson(q)) * rounds, adjacency)
    for delta in (1e-3, 1e-9, 1e-12):
        yield ask(gaussian(1.0).sampled(fp.Poisson(0.01)) * 1000, "add_remove", delta=delta)
    for epsilon in (0.0, 0.5, 1.0, 4.0):
        yield ask(gaussian(1.0).sampled(fp.Poisson(0.01)) * 1000, "add_remove", epsilon=epsilon)
    yield ask(gaussian(0.5).sampled(fp.Poisson(0.2)) * 3, "add_remove", epsilon=1.0)


def poisson_laplace() -> Iterator[Asked]:
    for (b, q, rounds), adjacency in product(
        ((1.0, 0.1, 1), (1.0, 0.01, 20), (4.0, 0.1, 20), (2.0, 0.5, 5), (1.0, 0.1, 200)), ALL
    ):
        yield ask(laplace(b).sampled(fp.Poisson(q)) * rounds, adjacency)
    yield ask(laplace(0.5).sampled(fp.Poisson(0.2)) * 3, "add_remove", delta=0.0)
    # With two rounds the larger delta is that of the added record.
    for (b, q, epsilon), rounds in product(((4.0, 0.1, 0.01), (2.0, 0.5, 0.05)), (1, 2)):
        run = laplace(b).sampled(fp.Poisson(q)) * rounds
        yield ask(run, "add_remove", "the direction changes with the rounds", epsilon=epsilon)


def fixed_size() -> Iterator[Asked]:
    draws = (
        (1.0, 1, 2, 1),
        (2.0, 10, 100, 1),
        (1.0, 10, 100, 100),
        (2.0, 10, 100, 20),
        (1.4, 100, 6000, 180),
        (1.0, 100, 10_000, 1000),
        (5.0, 50, 100, 10),
        (0.8, 10, 10_000, 10_000),
        (4.0, 500, 50_000, 1000),
    )
    for (z, size, population, rounds), adjacency in product(draws, ALL):
        tags = ("a sum moves by 2 C",) if adjacency == "replace_one" else ("a slot is filled",)
        scheme = fp.FixedSize(size, population=population)
        yield ask(gaussian(z).sampled(scheme) * rounds, adjacency, *tags)
    for (b, rounds), adjacency in product(((1.0, 1), (4.0, 20), (2.0, 100)), ALL):
        scheme = fp.FixedSize(10, population=100)
        yield ask(laplace(b).sampled(scheme) * rounds, adjacency)
    scheme = fp.FixedSize(100, population=6000)
    run = gaussian(1.4).sampled(scheme) * 180
    for adjacency in SLOTS:
        yield ask(run, adjacency, "the server sees who takes part", observer="server")


def with_replacement() -> Iterator[Asked]:
    draws = ((1.0, 10, 100, 1), (2.0, 10, 100, 20), (1.0, 1, 50, 100), (5.0, 100, 1000, 10))
    for (z, size, population, rounds), adjacency in product(draws, ALL):
        scheme = fp.WithReplacement(size, population=population)
        yield ask(gaussian(z).sampled(scheme) * rounds, adjacency)


def shuffled() -> Iterator[Asked]:
    runs = (
        (0.4, 10_000, 1),
        (0.5, 10_000, 1),
        (1.0, 100, 1),
        (1.0, 1000, 1),
        (1.0, 1000, 5),
        (2.0, 10, 2),
        (1.1, 468, 5),
        (1.1, 240, 60),
        (5.0, 10, 100),
    )
    for (z, rounds, epochs), adjacency in product(runs, SLOTS):
        run = gaussian(z).sampled(fp.Shuffled(rounds_per_epoch=rounds)) * epochs
        yield ask(run, adjacency, "not Poisson sampling")
    run = gaussian(0.8).sampled(fp.Shuffled(rounds_per_epoch=1000))
    yield ask(run, "zero_out", "not Poisson sampling", delta=1e-6)


def allocation() -> Iterator[Asked]:
    runs = (
        (1.0, 10, 1, 1e-5),
        (1.0, 100, 1, 1e-5),
        (2.0, 100, 10, 1e-5),
        (0.8, 1000, 1, 1e-6),
        (4.0, 10, 20, 1e-5),
        (3.0, 50, 4, 1e-6),
        (0.5, 20, 1, 1e-5),
    )
    for (z, rounds, epochs, delta), adjacency in product(runs, ALL):
        scheme = fp.RandomAllocation(rounds_per_epoch=rounds)
        yield ask(gaussian(z).sampled(scheme) * epochs, adjacency, delta=delta)
    for (z, rounds, take, epochs), adjacency in product(
        ((2.0, 10, 3, 1), (2.0, 100, 10, 1), (4.0, 20, 5, 10)), ALL
    ):
        scheme = fp.RandomAllocation(rounds_per_epoch=rounds, take=take)
        run = gaussian(z).sampled(scheme) * epochs
        yield ask(run, adjacency, "a unit is in several rounds of an epoch")


def truncated_poisson() -> Iterator[Asked]:
    runs = (
        (1.0, 0.5, 4, 2, 3),
        (1.0, 0.1, 100, 15, 20),
        (2.0, 0.1, 100, 25, 20),
        (1.0, 0.01, 10_000, 130, 1000),
        (2.0, 0.01, 1000, 20, 100),
        (5.0, 0.2, 50, 20, 10),
    )
    for (z, q, n, most, rounds), adjacency in product(runs, ALL):
        scheme = fp.TruncatedPoisson(q, population=n, largest=most)
        yield ask(gaussian(z).sampled(scheme) * rounds, adjacency)
    pieces = [
        gaussian(1.0).sampled(fp.TruncatedPoisson(0.5, population=n, largest=2)) for n in (4, 3)
    ]
    yield ask(pieces[0] * 3 + pieces[1] * 2, "zero_out", delta=1e-6)


def user_level() -> Iterator[Asked]:
    for (z, q, held, rounds), adjacency in product(
        ((1.0, 0.01, 2, 100), (1.0, 0.01, 5, 100), (2.0, 0.001, 20, 1000), (4.0, 0.1, 3, 50)), ALL
    ):
        run = fp.Gaussian(noise_multiplier=z).sampled(fp.Poisson(q), held=held) * rounds
        yield ask(run, adjacency, "a user holds several records")
    for (z, size, n, held, rounds), adjacency in product(
        ((4.0, 10, 1000, 5, 100), (2.0, 50, 1000, 2, 20)), ALL
    ):
        scheme = fp.FixedSize(size, population=n)
        run = fp.Gaussian(noise_multiplier=z).sampled(scheme, held=held) * rounds
        yield ask(run, adjacency, "a user holds several records")


def different_rounds() -> Iterator[Asked]:
    sampled = gaussian(1.0).sampled(fp.Poisson(0.01))
    runs = (
        gaussian(1.0) * 3 + gaussian(2.0) * 5,
        sampled * 500 + gaussian(2.0).sampled(fp.Poisson(0.05)) * 100,
        sampled * 100 + gaussian(5.0) * 2,
        sampled * 100 + laplace(10.0) * 2,
        gaussian(2.0) * 4 + laplace(4.0).sampled(fp.Poisson(0.1)) * 10,
        gaussian(2.0).sampled(fp.FixedSize(10, population=100)) * 10 + gaussian(4.0) * 3,
        sum(
            (gaussian(1.0 + k / 10).sampled(fp.Poisson(0.01 + k / 500)) * 10 for k in range(1, 12)),
            gaussian(1.0).sampled(fp.Poisson(0.01)) * 10,
        ),
    )
    for run, adjacency in product(runs, MOVES):
        yield ask(run, adjacency)
    yield ask(runs[1], "zero_out", epsilon=1.0)


def mixtures() -> Iterator[Asked]:
    for std, moves, chances, rounds in (
        (1.0, (0.0, 1.0), (0.9, 0.1), 10),
        (2.0, (0.0, 1.0, 2.0), (0.81, 0.18, 0.01), 50),
        (1.0, (0.5, 1.5), (0.5, 0.5), 1),
        (3.0, (0.0, 1.0, 5.0), (0.5, 0.4, 0.1), 20),
    ):
        one = fp.MixtureOfGaussians(
            standard_deviation=std, sensitivities=moves, probabilities=chances
        )
        yield ask(one * rounds, "add_remove")
        yield ask(one * rounds, "add_remove", epsilon=0.5)


def correlated_noise() -> Iterator[Asked]:
    runs = (
        (factors.SquareRootToeplitz(), 20, fp.MinimumSeparation(5, at_most=4)),
        (factors.SquareRootToeplitz(), 100, fp.SingleParticipation()),
        (factors.Tree(), 64, fp.SingleParticipation()),
        (factors.Identity(), 50, fp.MinimumSeparation(1, at_most=10)),
        (factors.Banded(3, (1.0, 0.5, 0.25)), 60, fp.MinimumSeparation(5, at_most=12)),
        (factors.Banded(2, (1.0, 0.5)), 100, fp.FixedEpochs(10, 10)),
        (
            factors.BufferedToeplitz(2, (0.9, 0.5), (0.2, 0.1)),
            40,
            fp.MinimumSeparation(8, at_most=5),
        ),
    )
    for (factor, rounds, participation), z in product(runs, (1.0, 4.0)):
        run = fp.CorrelatedNoise(
            noise_multiplier=z, factor=factor, rounds=rounds, participation=participation
        )
        for adjacency in SLOTS:
            yield ask(run, adjacency)
    run = fp.CorrelatedNoise(
        noise_multiplier=4.0,
        factor=factors.Banded(2, (1.0, 0.5)),
        rounds=20,
        participation=fp.MinimumSeparation(4, at_most=5),
    )
    yield ask(run, "zero_out", epsilon=1.0)


def projected_descent() -> Iterator[Asked]:
    for (convexity, steps, std), rounds in product(
        ((0.0, 10, 0.5), (0.0, 1000, 0.5), (0.0, 100_000, 0.5), (0.5, 100, 0.2)), (1, 5)
    ):
        one = fp.mechanisms.NoisyGradientDescent(
            step_size=0.5,
            noise_std=std,
            sensitivity=0.1,
            strong_convexity=convexity,
            smoothness=1.0,
            steps=steps,
            radius=1.0,
        )
        yield ask(one * rounds, "replace_one", "only the last point of each solve is seen")


def integer_noise() -> Iterator[Asked]:
    kinds = (fp.DistributedDiscreteGaussian, fp.Skellam)
    for kind, (z, rounds), adjacency in product(kinds, ((1.0, 1), (2.0, 10)), SLOTS):
        one = kind(noise_multiplier=z, clip_norm=1.0, dimension=1000, cohort=10, bits=20)
        yield ask(one * rounds, adjacency, "secure aggregation")
    for kind in kinds:
        one = kind(
            noise_multiplier=2.0,
            clip_norm=1.0,
            dimension=100,
            cohort=10,
            bits=20,
            topped_up=True,
        )
        yield ask(one.sampled(fp.Poisson(0.1)) * 10, "add_remove", "secure aggregation")
    for a, moves, rounds in ((1.0, 1, 1), (1.0, 1, 10), (0.5, 2, 10), (0.1, 5, 100), (0.2, 1, 50)):
        one = fp.DiscreteLaplace(noise_parameter=a, sensitivity=moves)
        for adjacency in MOVES:
            yield ask(one * rounds, adjacency)
        yield ask(one * rounds, "add_remove", epsilon=0.5)


def pure_dp() -> Iterator[Asked]:
    for b, rounds in product((0.5, 1.0, 10.0), (1, 10, 100)):
        yield ask(laplace(b) * rounds, "add_remove", "pure epsilon", delta=0.0)
    for a, rounds in product((0.1, 1.0), (1, 10)):
        one = fp.DiscreteLaplace(noise_parameter=a, sensitivity=1)
        yield ask(one * rounds, "add_remove", "pure epsilon", delta=0.0)
    for (chance, answers), rounds in product(((0.5, 2), (0.75, 4), (0.1, 10)), (1, 10)):
        one = fp.RandomizedResponse(chance=chance, answers=answers)
        for delta in (0.0, 1e-5):
            yield ask(one * rounds, "replace_one", "every answer counts", delta=delta)
    for epsilon, rounds, delta in product((0.1, 1.0), (1, 10, 100), (0.0, 1e-6)):
        one = fp.ApproximateDp(guarantees=((epsilon, 0.0),), adjacency="add_remove")
        yield ask(one * rounds, "add_remove", "stated guarantees", delta=delta)
    one = fp.ApproximateDp(guarantees=((0.1, 1e-8),), adjacency="add_remove")
    yield ask(one * 100, "add_remove", "stated guarantees", delta=1e-5)


def extreme_delta() -> Iterator[Asked]:
    runs = (
        gaussian(1.0),
        gaussian(10.0) * 100,
        gaussian(1.0).sampled(fp.Poisson(0.01)) * 1000,
        gaussian(0.8).sampled(fp.Poisson(0.001)) * 10_000,
        gaussian(2.0).sampled(fp.FixedSize(10, population=100)) * 20,
        laplace(1.0) * 20,
        laplace(4.0).sampled(fp.Poisson(0.1)) * 20,
    )
    for run, delta in product(runs, (1e-300, 1e-100, 1e-30, 1e-15, 1e-14, 0.0, 0.5, 0.9)):
        yield ask(run, "add_remove", "extreme delta", delta=delta)
    run = gaussian(20.0).sampled(fp.Poisson(0.01)) * 1000
    for delta in (1.1e-18, 1.13e-18):
        yield ask(run, "add_remove", "extreme delta", delta=delta)


def extreme_rounds() -> Iterator[Asked]:
    for power in range(13):
        yield ask(gaussian(10.0 * 10 ** (power / 2)) * 10**power, "add_remove", "many rounds")
        sampled = gaussian(2.0).sampled(fp.Poisson(0.1 * 10 ** (-power / 2))) * 10**power
        yield ask(sampled, "add_remove", "many rounds")
    for power in (4, 6, 9):
        yield ask(gaussian(1.0).sampled(fp.Poisson(0.01)) * 10**power, "replace_one", "many rounds")
        yield ask(laplace(10.0 * 10 ** (power / 2)) * 10**power, "add_remove", "many rounds")


def extreme_noise() -> Iterator[Asked]:
    for z, adjacency in product((1e-3, 1e-2, 0.1, 100.0, 1e4, 1e8), MOVES):
        yield ask(gaussian(z), adjacency, "extreme noise")
    for z in (1e-2, 0.1, 100.0, 1e4, 1e8):
        yield ask(gaussian(z).sampled(fp.Poisson(0.1)) * 100, "add_remove", "extreme noise")
    for b in (1e-3, 0.1, 100.0, 1e6):
        yield ask(laplace(b), "add_remove", "extreme noise")
    yield ask(gaussian(0.3).sampled(fp.Poisson(0.1)) * 1000, "add_remove", "extreme noise")


def resumed() -> Iterator[Asked]:
    sampled = gaussian(1.0).sampled(fp.Poisson(0.01))
    split = (
        (gaussian(2.0), (3, 7)),
        (sampled, (1, 999)),
        (sampled, (250, 250, 500)),
        (gaussian(0.8).sampled(fp.Poisson(0.001)), (4000, 6000)),
        (laplace(4.0).sampled(fp.Poisson(0.1)), (10, 10)),
        (laplace(2.0), (5, 5)),
        (gaussian(2.0).sampled(fp.FixedSize(10, population=100)), (5, 15)),
    )
    for (one, counts), adjacency in product(split, MOVES):
        pieces = [one * count for count in counts]
        yield ask(one * sum(counts), adjacency, "saved and resumed", ask="resumed", pieces=pieces)
    pieces = [sampled * 100, gaussian(2.0).sampled(fp.Poisson(0.05)) * 50, sampled * 100]
    run = pieces[0] + pieces[1] + pieces[2]
    yield ask(run, "add_remove", "saved and resumed", ask="resumed", pieces=pieces)


def calibration() -> Iterator[Asked]:
    def asked(run: Mechanism, adjacency: str, epsilon: float, delta: float) -> Asked:
        return ask(run, adjacency, ask="noise_multiplier", epsilon=epsilon, delta=delta)

    # The question about these runs is their noise multiplier.
    for epsilon, delta, adjacency in product((0.01, 0.1, 1.0, 8.0), (1e-5, 1e-9), MOVES):
        yield asked(gaussian(1.0), adjacency, epsilon, delta)
    for q, rounds, epsilon in (
        (0.01, 1000, 8.0),
        (0.01, 1000, 1.0),
        (0.01, 10_000, 3.0),
        (0.1, 100, 2.0),
        (0.001, 10_000, 0.5),
        (0.2, 10, 4.0),
        (0.5, 1, 1.0),
    ):
        for adjacency in MOVES:
            run = gaussian(1.0).sampled(fp.Poisson(q)) * rounds
            yield asked(run, adjacency, epsilon, 1e-5)
    for epsilon, adjacency in product((0.5, 3.0), MOVES):
        yield asked(laplace(1.0) * 10, adjacency, epsilon, 1e-5)
    for epsilon in (1.0, 8.0):
        run = gaussian(1.0).sampled(fp.FixedSize(100, population=6000)) * 180
        yield asked(run, "add_remove", epsilon, 1e-5)
    yield asked(gaussian(1.0) * 100, "add_remove", 1.0, 1e-5)


def attack_risk() -> Iterator[Asked]:
    runs = (
        gaussian(1.0),
        gaussian(0.5),
        gaussian(4.0) * 10,
        laplace(1.0),
        gaussian(1.0).sampled(fp.Poisson(0.01)) * 1000,
        gaussian(2.0).sampled(fp.Poisson(0.1)) * 50,
    )
    for run, adjacency in product(runs, MOVES):
        for fpr in (0.1, 0.01, 1e-4, 1e-8):
            yield ask(run, adjacency, ask="power", fpr=fpr)
        yield ask(run, adjacency, ask="advantage")


FAMILIES = {
    function.__name__.replace("_", "-"): function
    for function in (
        plain_gaussian,
        plain_laplace,
        poisson_gaussian,
        poisson_laplace,
        fixed_size,
        with_replacement,
        shuffled,
        allocation,
        truncated_poisson,
        user_level,
        different_rounds,
        mixtures,
        correlated_noise,
        projected_descent,
        integer_noise,
        pure_dp,
        extreme_delta,
        extreme_rounds,
        extreme_noise,
        resumed,
        calibration,
        attack_risk,
    )
}
