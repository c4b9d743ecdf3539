"""Certificates are proved by a program that shares no code, and a changed one is refused."""

import copy
import functools
import itertools
import json
import math
import random
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

import fedprivacy as fp
from fedprivacy import check_certificate as checker
from tests.common import ROOT
from tests.contract.test_repeated_questions import certified

check_certificate = pytest.importorskip(
    "fedprivacy.check_certificate", reason="needs python-flint", exc_type=ImportError
)


@pytest.mark.parametrize("inside", [False, True])
def test_no_certificate_is_of_one_more_in_a_cohort_of_everybody(inside):
    """Proved at 4.377, where 9.731 is attained: a sixth of five takes somebody's place."""
    pytest.importorskip("flint")
    unit = "record" if inside else "client"
    run = fp.Gaussian(noise_multiplier=1.0, unit=unit).sampled(fp.FixedSize(5, population=5))
    run = run.in_cohort(fp.Poisson(0.5)) if inside else run
    assert checker.check(certified(run))["upper"] == "proved"
    with pytest.raises(checker.Refused, match="a cohort of the whole population cannot be"):
        checker.check(certified(run, told="add_remove"))


def test_a_right_end_is_not_called_wrong_because_a_grid_is_coarse():
    """The product sums finer cells, so its lower end is above what the checker's cells show."""
    pytest.importorskip("flint")
    run = fp.Gaussian(noise_multiplier=1.0).sampled(fp.RandomAllocation(8, take=2))
    bound = fp.epsilon(run, delta=1e-6, adjacency="zero_out")
    found = checker.check(bound.certificate())
    assert found["upper"] == "proved"
    assert found["lower"].startswith(("proved", "not decided (a finer grid"))


def test_no_certificate_is_of_units_that_are_sampled_twice():
    node = {"type": "Gaussian", "version": 1, "fields": {"noise_multiplier": 1.0}}
    drawn = {"size": 1, "population": 10**6}
    for _ in range(2):
        scheme = {"type": "FixedSize", "version": 1, "fields": drawn}
        fields = {"inner": node, "scheme": scheme}
        node = {"type": "SampledMechanism", "version": 1, "fields": fields}
    with pytest.raises(checker.Refused, match="inside a sampled mechanism cannot be sampled again"):
        checker.asked(node, "zero_out", "server")


BENCHMARKS = ROOT / "benchmarks"
G, L = fp.Gaussian, fp.Laplace
FIXED = fp.FixedSize(10, population=1000)
SETTINGS = {
    "one Gaussian": (G(noise_multiplier=1.0), "replace_one", "aggregate"),
    "everyone": (G(noise_multiplier=20.0) * 10**6, "add_remove", "aggregate"),
    "Poisson": (
        G(noise_multiplier=1.0).sampled(fp.Poisson(0.01)) * 1000,
        "add_remove",
        "aggregate",
    ),
    "few": (G(noise_multiplier=2.0).sampled(fp.Poisson(0.2)) * 3, "replace_one", "aggregate"),
    "fixed, added": (G(noise_multiplier=1.0).sampled(FIXED) * 10**5, "add_remove", "aggregate"),
    "fixed, zeroed": (G(noise_multiplier=1.0).sampled(FIXED) * 1000, "zero_out", "aggregate"),
    "fixed, replaced": (G(noise_multiplier=1.0).sampled(FIXED) * 1000, "replace_one", "aggregate"),
    "server": (G(noise_multiplier=2.0).sampled(FIXED) * 100, "zero_out", "server"),
    "Laplace": (L(noise_multiplier=2.0) * 20, "zero_out", "aggregate"),
    "Laplace, sampled": (L(noise_multiplier=2.0).sampled(FIXED) * 20, "replace_one", "aggregate"),
    "two kinds": (
        G(noise_multiplier=2.0).sampled(fp.Poisson(0.1)) * 20 + L(noise_multiplier=3.0) * 2,
        "add_remove",
        "aggregate",
    ),
    "five folds": (G(noise_multiplier=1.0).sampled(FIXED) * 5, "zero_out", "aggregate"),
    "two folds": (G(noise_multiplier=1.0).sampled(FIXED) * 2, "zero_out", "aggregate"),
    "Laplace, replaced": (
        L(noise_multiplier=5.0).sampled(fp.Poisson(0.3)) * 3,
        "replace_one",
        "aggregate",
    ),
    "five of Laplace": (L(noise_multiplier=0.558) * 5, "replace_one", "aggregate"),
    "a million folds": (
        G(noise_multiplier=0.7).sampled(FIXED) * 10**6,
        "zero_out",
        "aggregate",
    ),
    "records": (G(noise_multiplier=2.0).in_cohort(FIXED) * 50, "replace_one", "server"),
}


def asked(name, delta=1e-5):
    run, adjacency, observer = SETTINGS[name]
    return fp.epsilon(run, delta=delta, adjacency=adjacency, observer=observer)


def through_json(bound):
    return json.loads(json.dumps(bound.certificate(), allow_nan=False))


def proved(document):
    found = check_certificate.check(document)
    return [name for name, verdict in found.items() if verdict == "proved"]


def signed(document):
    return {**document, "digest": check_certificate.digest(document)}


QUICK = {"one Gaussian", "everyone", "Poisson", "few", "server"}


@pytest.mark.parametrize(
    "name",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in SETTINGS],
)
def test_the_ends_are_proved(name):
    found = check_certificate.check(through_json(asked(name)))
    assert set(found.values()) == {"proved"}


@pytest.mark.slow
def test_losses_that_are_small_but_for_rare_ones_are_proved():
    scheme = fp.FixedSize(6, population=36347)
    run = G(noise_multiplier=2.03).sampled(scheme) * 55
    found = check_certificate.check(
        through_json(fp.epsilon(run, delta=3e-10, adjacency="zero_out"))
    )
    assert set(found.values()) == {"proved"}


def orientations(document):
    """Return the orientations of the dominating run."""
    plan = check_certificate._plans(document, 1e-30).above
    return next(check_certificate._runs(document, plan, {}))


def on_lattice(name, points, monkeypatch):
    """Return (balls around delta at both ends) of the slower orientation, and delta."""
    document = through_json(asked(name))
    monkeypatch.setattr(check_certificate.ctx, "prec", check_certificate.BITS)
    ends = document["bound"]["resolution"]
    run = orientations(document)[0]
    share = check_certificate.arb(1e-17)
    lattices = [check_certificate.Lattice(run.rounds, end, points, share) for end in ends]
    return [one.delta(check_certificate.arb(end)) for one, end in zip(lattices, ends, strict=True)]


@pytest.mark.parametrize("name", ["few", "Poisson", "Laplace, sampled", "server"])
def test_a_lattice_holds_delta_at_both_ends(name, monkeypatch):
    """The ends are on both sides of where delta is 1e-5, and a ball holds delta."""
    widths = []
    for points in (200, 800):
        at_low, at_high = on_lattice(name, points, monkeypatch)
        assert not at_low < 1e-5 and not at_high > 1e-5
        widths.append(float(at_high.upper() - at_high.lower()))
    assert widths[1] < widths[0] / 4


def test_a_lattice_and_a_line_agree(monkeypatch):
    document = through_json(asked("Poisson"))
    monkeypatch.setattr(check_certificate.ctx, "prec", check_certificate.BITS)
    run, x = orientations(document)[0], document["bound"]["upper"]
    line, lattice = next(run.on_a_line(x, 1e-5)), next(run.on_lattices((1 << 12,), x, 1e-5))
    assert lattice.overlaps(line) and float(line.rad()) < 1e-7


def test_a_delta_of_one_is_an_upper_end_of_any_run():
    run = check_certificate.Run([], False)
    assert run.at_most(1e9, 1.0)


def test_of_two_equal_weights_each_keeps_its_own():
    half = check_certificate._completed([[0.5, "first"], [0.5, "second"]])
    assert sorted(what for _, what in half) == ["first", "second"]


def test_a_loss_that_turns_often_is_not_taken_for_one_that_rises():
    arb = check_certificate.arb
    p = check_certificate._normal([[0.5, -1.0], [0.5, 1.0]], 1)
    q = check_certificate._normal([[0.4, -3.0], [0.3, 0.0], [0.3, 3.0]], 1)
    piece = check_certificate.Piece(
        True, p, q, check_certificate._less(p, q), None, None, arb(0), 1
    )
    with pytest.raises(check_certificate.Undecided, match="turning points"):
        check_certificate._monotone(piece)


def test_a_delta_is_proved():
    run, adjacency, _ = SETTINGS["Poisson"]
    bound = fp.delta(run, epsilon=2.0, adjacency=adjacency)
    assert proved(through_json(bound)) == ["upper", "lower", "resolution"]


def test_pure_differential_privacy_is_proved():
    assert len(proved(through_json(asked("Laplace", delta=0.0)))) == 3
    assert asked("Poisson", delta=0.0).certificate()["bound"]["upper"] == "inf"


def numbers(value, path=()):
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            yield from numbers(item, (*path, key))
    elif type(value) in (int, float):
        yield path


def changed(document, path, times):
    twin = copy.deepcopy(document)
    at = twin
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = at[path[-1]] * times + (at[path[-1]] == 0)
    return twin


def test_any_changed_number_is_refused():
    document = through_json(asked("fixed, zeroed"))
    paths = list(numbers(document))
    assert len(paths) > 20
    for path in paths:
        with pytest.raises(check_certificate.Refused, match="digest"):
            check_certificate.check(changed(document, path, 1 + 1e-9))


def leaves(value, path=()):
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            yield from leaves(item, (*path, key))
    else:
        yield path, value


def nearly(value):
    """Return what differs least from a leaf."""
    if isinstance(value, float):
        return math.nextafter(value, math.inf)
    if isinstance(value, bool) or value is None:
        return not value
    return value + 1 if isinstance(value, int) else value + " "


def replaced(document, path, value):
    twin = copy.deepcopy(document)
    at = twin
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return twin


def random_documents(count, monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import certify

    found = (certify.bound(random.Random(f"3/{n}")) for n in itertools.count())
    return [through_json(b) for b in itertools.islice((b for b in found if b), count)]


@pytest.mark.slow
def test_any_leaf_changed_least_is_refused(monkeypatch):
    for document in random_documents(20, monkeypatch):
        for path, value in leaves(document):
            with pytest.raises(check_certificate.Refused):
                check_certificate.check(replaced(document, path, nearly(value)))


@pytest.mark.slow
def test_ends_signed_again_are_told_wrong(monkeypatch):
    """Of a bracket moved below or above itself no document of 20 proves the end that is untrue.

    Some are not decided: another pair may prove them, or a check takes more than its time.
    """
    verdicts = []
    for document in random_documents(20, monkeypatch):
        low, high = map(float, document["bound"]["resolution"])
        if not 0 < low <= high < math.inf or document["bound"]["upper"] == 1:
            continue
        less, more = low * (1 - 1e-3), high * (1 + 1e-3)
        down = replaced(document, ("bound", "upper"), less)
        down = replaced(down, ("bound", "resolution"), [0.0, less])
        verdicts.append(check_certificate.check(signed(down))["upper"])
        up = replaced(document, ("bound", "lower"), more)
        verdicts.append(check_certificate.check(signed(up))["lower"])
    assert "proved" not in verdicts
    assert verdicts.count("wrong") >= 0.8 * len(verdicts) > 16


def test_what_follows_from_the_question_is_computed_again():
    document = through_json(asked("two kinds"))
    pairs = [path for path in numbers(document) if path[0] in ("mechanism", "rounds")]
    for path in [path for path in pairs if "clip_norm" not in path]:
        forged = signed(changed(document, path, 2))
        with pytest.raises(check_certificate.Refused):
            check_certificate.check(forged)


def test_false_ends_are_told_from_true_ones():
    document = through_json(asked("Poisson"))
    lowered = changed(
        changed(document, ("bound", "upper"), 1 - 1e-9), ("bound", "resolution", 1), 1 - 1e-9
    )
    assert "upper" not in proved(signed(lowered))
    raised = changed(document, ("bound", "lower"), 1 + 1e-9)
    assert proved(signed(raised)) == ["upper", "resolution"]


@pytest.mark.slow
def test_the_rounding_allowance_of_sums_is_needed(monkeypatch):
    """No width shows the sign of an allowance; a proof of the ends does."""
    from fedprivacy.loss.moments import contour, spectrum

    run = G(noise_multiplier=0.5).sampled(fp.Poisson(0.3)) * 10**5
    right = contour.summing
    for module in (contour, spectrum):
        monkeypatch.setattr(module, "summing", lambda count: -right(count))
    bound = fp.epsilon(run, delta=1.01e-5, adjacency="replace_one")
    monkeypatch.undo()
    assert len(proved(through_json(bound))) < 3
    again = fp.epsilon(run, delta=1.02e-5, adjacency="replace_one")
    assert len(proved(through_json(again))) == 3


def test_what_is_not_covered_is_refused():
    run = fp.RandomizedResponse(chance=0.5, answers=2) * 10
    document = through_json(fp.epsilon(run, delta=1e-5, adjacency="replace_one"))
    with pytest.raises(check_certificate.Refused, match="not covered"):
        check_certificate.check(document)


def test_a_matrix_with_entries_above_its_diagonal_is_refused():
    """They were not read, so the pair was that of another factor."""
    factor = fp.factors.Matrix([[1.0, 0.0], [0.5, 1.0]])
    run = fp.CorrelatedNoise(
        factor=factor, noise_multiplier=2.0, rounds=2, participation=fp.MinimumSeparation(1)
    )
    document = through_json(fp.epsilon(run, delta=1e-5, adjacency="zero_out"))
    assert len(proved(document)) == 2
    document["mechanism"]["fields"]["factor"]["fields"]["array"][0].append(9.0)
    with pytest.raises(check_certificate.Refused, match="row 0 of the matrix must have 1 entries"):
        check_certificate.check(signed(document))


SPACED = fp.MinimumSeparation(5)
MADE = {
    "replacement, seen": (
        G(noise_multiplier=2.0).sampled(fp.WithReplacement(10, population=100)) * 20,
        "zero_out",
        "server",
    ),
    "replacement, inside": (
        G(noise_multiplier=2.0).sampled(fp.WithReplacement(3, population=30)) * 3,
        "zero_out",
        "aggregate",
    ),
    "replacement, replaced": (
        G(noise_multiplier=2.0).sampled(fp.WithReplacement(3, population=30)) * 3,
        "replace_one",
        "aggregate",
    ),
    "truncated": (
        G(noise_multiplier=2.0).sampled(fp.TruncatedPoisson(0.1, population=100, largest=25)) * 20,
        "add_remove",
        "aggregate",
    ),
    "shuffled, seen": (
        G(noise_multiplier=2.0).sampled(fp.Shuffled(rounds_per_epoch=10)) * 2,
        "replace_one",
        "server",
    ),
    "square root": (
        fp.CorrelatedNoise(
            factor=fp.factors.SquareRootToeplitz(),
            noise_multiplier=2.0,
            rounds=20,
            participation=SPACED,
        ),
        "zero_out",
        "server",
    ),
    "BLT": (
        fp.CorrelatedNoise(
            factor=fp.factors.BufferedToeplitz(4),
            noise_multiplier=2.0,
            rounds=20,
            participation=SPACED,
        ),
        "replace_one",
        "aggregate",
    ),
    "tree": (
        fp.CorrelatedNoise(
            factor=fp.factors.Tree(), noise_multiplier=2.0, rounds=20, participation=SPACED
        ),
        "zero_out",
        "aggregate",
    ),
    "allocation": (
        G(noise_multiplier=2.0).sampled(fp.RandomAllocation(3)),
        "replace_one",
        "aggregate",
    ),
    "shuffled": (
        G(noise_multiplier=2.0).sampled(fp.Shuffled(rounds_per_epoch=10)),
        "zero_out",
        "aggregate",
    ),
    "several records": (
        G(noise_multiplier=2.0).sampled(fp.Poisson(0.1), held=3),
        "replace_one",
        "aggregate",
    ),
    "bins": (
        fp.CorrelatedNoise(
            factor=fp.factors.Banded(5),
            noise_multiplier=4.0,
            rounds=20,
            participation=fp.FixedEpochs(5),
        ).sampled(fp.RandomAllocation(5)),
        "zero_out",
        "aggregate",
    ),
    "groups": (
        fp.CorrelatedNoise(
            factor=fp.factors.Banded(5),
            noise_multiplier=4.0,
            rounds=20,
            participation=fp.FixedEpochs(5),
        ).sampled(fp.Poisson(0.1)),
        "zero_out",
        "aggregate",
    ),
    "integers": (
        fp.DistributedDiscreteGaussian(
            noise_multiplier=2.0, clip_norm=1.0, dimension=100, cohort=10, bits=16
        ).sampled(fp.Everyone()),
        "replace_one",
        "aggregate",
    ),
    "skellam": (
        fp.Skellam(
            noise_multiplier=2.0,
            clip_norm=1.0,
            dimension=100,
            cohort=10,
            bits=16,
            topped_up=True,
        ).sampled(fp.Poisson(0.1))
        * 20,
        "zero_out",
        "aggregate",
    ),
}
"""Runs whose pairs a certificate leaves to the checker."""


def made(name):
    run, adjacency, observer = MADE[name]
    return through_json(fp.epsilon(run, delta=1e-5, adjacency=adjacency, observer=observer))


made_once = functools.cache(made)


@pytest.mark.parametrize("name", MADE)
def test_pairs_that_a_certificate_does_not_state_are_made(name):
    document = made(name)
    assert {one["pair"] for one in document["rounds"]} == {None}
    found, trusts = check_certificate.judged(document)
    assert found == {"upper": "proved", "lower": "proved"}
    assert trusts


def test_a_round_of_a_cohort_that_is_often_full_is_proved():
    scheme = fp.TruncatedPoisson(0.3, population=20, largest=3)
    step = G(noise_multiplier=2.0).sampled(scheme)
    document = through_json(fp.epsilon(step, delta=1e-5, adjacency="zero_out"))
    silent = G(noise_multiplier=2.0).sampled(fp.Poisson(scheme.rate))
    plain = fp.epsilon(silent, delta=1e-5, adjacency="zero_out")
    assert document["bound"]["lower"] > 1.3 * plain.upper
    assert proved(document) == ["upper", "lower"]


@pytest.mark.slow
@pytest.mark.parametrize("adjacency", ["add_remove", "zero_out", "replace_one"])
@pytest.mark.parametrize(("size", "rounds"), [(3, 20), (6, 1), (10, 100)])
def test_ends_of_cohorts_that_are_often_full_are_proved(size, rounds, adjacency):
    """Six of the nine lower ends are those of data sets whose others send a vector aslant."""
    scheme = fp.TruncatedPoisson(0.1, population=60, largest=size)
    run = G(noise_multiplier=2.0).sampled(scheme) * rounds
    document = through_json(fp.epsilon(run, delta=1e-5, adjacency=adjacency))
    assert proved(document) == ["upper", "lower"]
    document["bound"]["lower"] = 1.02 * document["bound"]["lower"]
    assert "lower" not in proved(signed(document))


def test_a_field_that_is_not_known_is_refused():
    """Several rounds of an epoch were priced as one before the field was known."""
    document = made("allocation")
    document["mechanism"]["fields"]["scheme"]["fields"]["twice"] = True
    with pytest.raises(check_certificate.Refused, match="the field 'twice' of 'RandomAllocation'"):
        check_certificate.check(signed(document))


@pytest.mark.slow
def test_a_unit_that_draws_more_rounds_than_were_priced_is_not_proved():
    document = made("allocation")
    document["mechanism"]["fields"]["scheme"]["fields"]["take"] = 2
    assert "upper" not in proved(signed(document))


HOSTILE = {
    "noise_multiplier": (-2.0, 0, 1e-300, 1.999, 10**400, None),
    "clip_norm": (1e308, 1e-308, 0.9, "1"),
    "cohort": (0, 9.5, 10**400),
    "granularity": (1e-308, 1e308, 0.1, [1]),
    "dimension": (2**52, 10),
    "kept": (2**52, 200),
    "missing": (10, -1),
    "sparsifier": ("largest",),
    "overflow": (0, 1e-320, 0.5),
}


@pytest.mark.parametrize("field", HOSTILE)
def test_skellam_noise_that_no_run_has_ends_in_one_line(field, tmp_path):
    path = tmp_path / "run.json"
    at = ("mechanism", "fields", "parts", 0, 0, "fields", "inner", "fields", field)
    for value in HOSTILE[field]:
        document = signed(replaced(made_once("skellam"), at, value))
        path.write_text(json.dumps(document))
        code, said = check_certificate.read(str(path))
        assert code in (1, 2) or "upper not decided" in said, (value, said)
        assert "\n" not in said


def test_an_end_is_wrong_only_if_the_other_side_shows_it():
    """One Gaussian dominates Skellam noise. It is not attained."""
    document = made_once("skellam")
    bound = document["bound"]
    bound.update(upper=0.999 * bound["upper"], lower=1.001 * bound["upper"])
    bound["resolution"] = [bound["lower"], bound["upper"]]
    found = check_certificate.check(signed(document))
    assert found["upper"] == "not decided (another pair may prove it)"
    assert found["lower"] == "wrong"


def test_a_delta_of_0_ends_at_once():
    """Noise without a largest loss has no epsilon at a delta of 0, and a delta above 0."""
    document = through_json(fp.epsilon(G(noise_multiplier=2.0), delta=1e-5, adjacency="zero_out"))
    document["bound"]["given"] = 0.0
    assert check_certificate.check(signed(document))["upper"] == "wrong"
    document = through_json(fp.delta(G(noise_multiplier=2.0), epsilon=1.0, adjacency="zero_out"))
    document["bound"].update(upper=0.0, resolution=[0.0, 0.0], lower=0.0)
    assert check_certificate.check(signed(document))["upper"] == "wrong"
    document["bound"]["lower"] = -0.5
    with pytest.raises(check_certificate.Refused, match="a number of at least 0"):
        check_certificate.check(signed(document))


def test_what_is_left_after_a_time_is_not_decided(monkeypatch):
    monkeypatch.setattr(check_certificate, "SECONDS", -1.0)
    found = check_certificate.check(through_json(asked("Poisson")))
    assert all(told.startswith("not decided (") for told in found.values())


def test_moves_that_are_too_large_are_not_cut_into_cells():
    one = {"mu": check_certificate.arb(10) ** 9, "take": 2, "rounds": 8, "share": 1}
    for opposite in (True, False):
        with pytest.raises(check_certificate.Undecided, match="so large a move"):
            check_certificate._summed_rounds({**one, "opposite": opposite})
    far = check_certificate.arb(10) ** 9
    with pytest.raises(check_certificate.Undecided, match="so large a move"):
        check_certificate._in_cells(far, 64, lambda y: (y, y))


def test_a_lower_end_along_the_sum_of_all_columns_is_proved():
    run = fp.CorrelatedNoise(
        factor=fp.factors.SquareRootToeplitz(),
        noise_multiplier=4.0,
        rounds=5,
        participation=fp.FixedEpochs(1),
    ).sampled(fp.Poisson(0.1))
    document = through_json(fp.epsilon(run, delta=1e-5, adjacency="zero_out"))
    assert document["bound"]["lower"] > 0.1
    assert check_certificate.check(document)["lower"] == "proved"
    document["bound"]["lower"] *= 1.2
    assert check_certificate.check(signed(document))["lower"] != "proved"


def test_a_linear_loss_is_integrated_between_known_ends():
    """Delta of N(mu, 1) against N(0, 1), also of one so far that cells would be many."""
    for mu, x in ((1.0, 0.5), (1.0, -2.0), (800.0, 321000.0)):
        pair = check_certificate.made(check_certificate._node("Gdp", mu=mu))
        for one in (pair, pair.swap()):
            delta = check_certificate.alone(one, check_certificate.arb(x), check_certificate.arb(1))
            truth = norm.cdf(mu / 2 - x / mu) - math.exp(norm.logcdf(-mu / 2 - x / mu) + x)
            assert float(delta) == pytest.approx(truth, rel=1e-9)


def test_masses_in_units_hold_their_products():
    first = [check_certificate.arb(k + 1) / 55 for k in range(10)]
    exact = [Fraction(k + 1, 55) for k in range(10)]
    for bits in (8, 40):
        power = check_certificate.Masses.of(first, bits).power(5, 20)
        truth = [Fraction(1)]
        for _ in range(5):
            made = [Fraction(0)] * (len(truth) + 9)
            for i, j in itertools.product(range(len(truth)), range(10)):
                made[i + j] += truth[i] * exact[j]
            truth = made
        off = [abs(Fraction(x, 2**bits) - y) for x, y in zip(power.units, truth, strict=False)]
        assert 0 < sum(off) <= Fraction(power.error, 2**bits) <= Fraction(20 * 20, 2**bits)


def test_a_mass_that_may_be_0_leaves_a_lattice_finite():
    """Twenty rounds of draws with replacement had no lattice, and took 80 s."""
    arb = check_certificate.arb
    spread = object.__new__(check_certificate.Spread)
    spread.h, spread.first, spread.held = arb(0.1), 0, [arb(0), arb(0)]
    spread.masses, spread.gaps = [arb(0)] * 3, [0.0] * 3
    spread._put(arb(1e-60, 1e-59), arb(0, 1e-59), 0)
    assert 1e-60 <= spread.gaps[0] < 1e-57


def test_levels_that_do_not_fit_prove_no_upper_end():
    document = made("bins")
    (one,) = document["rounds"]
    (children, value), *rest = one["levels"]
    one["levels"] = [[children + 1, value], *rest]
    with pytest.raises(check_certificate.Refused, match="levels must be a number from 2 to 5"):
        check_certificate.check(signed(document))
    one["levels"] = [[children, 0.5 * value], *rest]
    assert "upper" not in proved(signed(document))


def drawn_again(factor, rule, scheme, rounds=6, **asks):
    """Return the certificate of a run whose rounds are drawn again and again."""
    run = fp.CorrelatedNoise(
        factor=factor, noise_multiplier=3.0, rounds=rounds, participation=rule
    ).sampled(scheme)
    return through_json(fp.epsilon(run, delta=1e-5, adjacency="zero_out", **asks))


SQUARE_ROOT, PLAIN = fp.factors.SquareRootToeplitz(), fp.factors.Identity()
AGAIN = {
    "groups": (SQUARE_ROOT, fp.FixedEpochs(3), fp.Poisson(0.1)),
    "apart": (SQUARE_ROOT, fp.MinimumSeparation(3), fp.Poisson(0.1)),
    "apart, plain": (PLAIN, fp.MinimumSeparation(3), fp.Poisson(0.1)),
    "new bins": (SQUARE_ROOT, fp.MinimumSeparation(1, at_most=2), fp.RandomAllocation(3)),
    "new bins, plain": (PLAIN, fp.MinimumSeparation(1, at_most=2), fp.RandomAllocation(3)),
}


again_once = functools.cache(lambda name: drawn_again(*AGAIN[name]))


IN_TIME = ("groups", "new bins")
SOME_AGAIN = [pytest.param(x, marks=[pytest.mark.slow] * (x not in IN_TIME)) for x in AGAIN]


@pytest.mark.parametrize("name", SOME_AGAIN)
def test_rounds_that_are_drawn_again_are_proved(name):
    document = again_once(name)
    found, trusts = check_certificate.judged(document)
    assert found == {"upper": "proved", "lower": "proved"}
    assert "Theorem J" in trusts


UNTRUE = {
    "groups": (("scheme", "probability"), 0.2),
    "apart": (("scheme", "probability"), 0.5),
    "apart, plain": (("noise", "rounds"), 30),
    "new bins": (("participation", "at_most"), 3),
    "new bins, plain": (("noise", "noise_multiplier"), 2.5),
}


@pytest.mark.parametrize(
    "name", [pytest.param(x, marks=[pytest.mark.slow] * (x != "new bins")) for x in AGAIN]
)
def test_rounds_that_are_drawn_otherwise_than_was_asked_are_not_proved(name):
    """The changed runs lose more than the upper end, or no theorem covers them."""
    at = {"scheme": ("scheme", "fields"), "noise": ("noise", "fields")}
    at["participation"] = ("noise", "fields", "participation", "fields")
    (where, field), value = UNTRUE[name]
    path = ("mechanism", "fields", *at[where], field)
    document = signed(replaced(again_once(name), path, value))
    if name == "new bins":
        with pytest.raises(check_certificate.Refused, match="is not covered"):
            check_certificate.check(document)
    else:
        assert "upper" not in proved(document)


def true_delta(matrix, sets, z, x):
    """Return delta at x of the mixture over sets of rounds against none, both orientations.

    A sum over a grid of outcomes of every row, at most 3 rows.
    """
    axis = np.linspace(-8.0, 11.0, 115)
    grid = np.stack(np.meshgrid(*[axis] * len(matrix), indexing="ij"), axis=-1)
    mass = norm.pdf(axis) * (axis[1] - axis[0])
    none = functools.reduce(np.multiply.outer, [mass] * len(matrix))
    ratio = np.zeros_like(none)
    for chance, rounds in sets:
        mean = matrix[:, list(rounds)].sum(axis=1) / z
        ratio += chance * np.exp(grid @ mean - mean @ mean / 2)
    gain = np.maximum(ratio - math.exp(x), 0.0), np.maximum(1 - math.exp(x) * ratio, 0.0)
    return [float((one * none).sum()) for one in gain]


def spaced_sets(rounds, gap, q):
    """Yield (chance, rounds) of a unit that rests for gap - 1 rounds after each of its rounds."""
    for drawn in itertools.product([False, True], repeat=rounds):
        chosen, chance, free = [], 1.0, 0
        for j, here in enumerate(drawn):
            if j < free:
                chance *= not here
                continue
            chance *= q if here else 1 - q
            chosen += [j] * here
            free = j + gap if here else free
        if chance:
            yield chance, chosen


TRUTHS = {
    "every round": (lambda c: c.Repeated(c.arb(0.3)), list(spaced_sets(3, 1, 0.3))),
    "two apart": (lambda c: c.Repeated(c.arb(0.3), 2), list(spaced_sets(3, 2, 0.3))),
    "one of an epoch": (lambda c: c.OnceAnEpoch(3, [[3, 9.0]]), [(1 / 3, [j]) for j in range(3)]),
    "one of each of three": (lambda c: c.OnceAnEpoch(1), [(1.0, [0, 1, 2])]),
}


WAYS = {"every round": 4, "two apart": 3, "one of an epoch": 3, "one of each of three": 1}
"""One dimension and widths of bins; known rounds and two forms of a tree."""


@pytest.mark.parametrize("name", TRUTHS)
def test_delta_of_three_rounds_lies_between_the_pairs_that_are_made(name, monkeypatch):
    """Each way above is above the true delta, each way below is below it."""
    monkeypatch.setattr(check_certificate.ctx, "prec", check_certificate.BITS)
    make, sets = TRUTHS[name]
    matrix, z = np.array([[1.0, 0.0, 0.0], [0.5, 1.0, 0.0], [0.4, 0.5, 1.0]]), 1.5
    rows = [[check_certificate.arb(x) for x in row] for row in matrix.tolist()]
    known = check_certificate._by_rows(
        make(check_certificate), 1e-9, rows, check_certificate.arb(z)
    )
    assert len(known.above) == WAYS[name]
    x = 0.3
    for side, truth in enumerate(true_delta(matrix, sets, z, x)):
        # The sum over the grid has an error of about 1e-4 of it.
        assert all(bounded(way, side, x, truth).upper() > 0.998 * truth for way in known.above)
        assert all(bounded(way, side, x, truth).lower() < 1.002 * truth for way in known.below)
        assert max(bounded(way, side, x, truth).lower() for way in known.below) > 0.95 * truth


def bounded(parts, side, x, share):
    """Return a ball that holds delta of a way to see a run, and what is added to it."""
    runs, arb = check_certificate._orientations(parts, True), check_certificate.arb
    run = runs[min(side, len(runs) - 1)]
    if [n for _, n in run.rounds] == [1]:
        return check_certificate.alone(run.rounds[0][0], arb(x), arb(share)) + run.apart(x)
    lattice = check_certificate.Lattice(run.rounds, x, 100, arb(share) * 1e-9)
    return lattice.delta(arb(x)) + run.apart(x)


LONG = ("allocation", "shuffled", "bins", "groups")


@pytest.mark.parametrize(
    "name", [pytest.param(x, marks=[pytest.mark.slow] * (x in LONG)) for x in MADE]
)
def test_ends_beyond_the_true_ones_are_not_proved_of_pairs_that_are_made(name):
    document = made(name)
    upper = 0.999 * document["bound"]["lower"]
    lower = 1.001 * document["bound"]["upper"]
    document["bound"].update(lower=lower, upper=upper, resolution=[0.0, upper])
    assert proved(signed(document)) == []


NOISE = ("mechanism", "fields", "inner", "fields", "noise_multiplier")
RATE = ("mechanism", "fields", "scheme", "fields", "probability")
PAIRS = ("pair", "attained")
OF_NOBODY = {
    "no such observer": {("bound", "observer"): "Server"},
    "no such quantity": {("bound", "quantity"): "eps", ("bound", "upper"): 0.9},
    "a later version": {("version",): 2},
    "the server's list": {("bound", "observer"): "server", ("bound", "adjacency"): "add_remove"},
    "another unit": {("bound", "unit"): "client"},
    "no such delta": {("bound", "given"): 5.0, ("bound", "upper"): 0.0},
    "noise below 0": {NOISE: -2.0},
    "no noise": {NOISE: 0},
    "noise of which no pair has the mu": {NOISE: 1e-320},
    "noise beyond doubles": {NOISE: 10**400},
    "nobody drawn": {RATE: 0, **{("rounds", 0, name, "fields", "q"): 0 for name in PAIRS}},
    "more than all drawn": {RATE: 2, **{("rounds", 0, name, "fields", "q"): 2 for name in PAIRS}},
}


@pytest.mark.parametrize("edits", OF_NOBODY.values(), ids=OF_NOBODY)
def test_what_no_run_is_proves_nothing(edits, tmp_path):
    """A document made for the purpose, its pairs and its digest fitting."""
    run = G(noise_multiplier=2.0, unit="record").sampled(fp.Poisson(0.1))
    document = through_json(fp.epsilon(run, delta=1e-4, adjacency="zero_out"))
    if ("bound", "observer") in edits and ("bound", "adjacency") in edits:
        seen = fp.epsilon(run, delta=1e-4, adjacency="zero_out", observer="server")
        document = through_json(seen)
    for path, value in edits.items():
        document = replaced(document, path, value)
    if ("bound", "upper") in edits:
        ends = [0.0, document["bound"]["upper"]]
        document = replaced(document, ("bound", "resolution"), ends)
    path = tmp_path / "run.json"
    path.write_text(json.dumps(signed(document)))
    assert check_certificate.read(str(path))[0] == 2


@pytest.mark.parametrize("count", [-1, 0, 0.5, True, "2"])
def test_rounds_are_counted_by_whole_numbers(count):
    document = through_json(asked("few"))
    for path in (("mechanism", "fields", "parts", 0, 1), ("rounds", 0, "count")):
        document = replaced(document, path, count)
    with pytest.raises(check_certificate.Refused, match="count"):
        check_certificate.check(signed(document))


def test_a_bound_of_no_run_has_no_certificate():
    loss = G(noise_multiplier=1.0).privacy_loss("zero_out")
    bound = fp.accountants.PldAccountant().compose(loss).epsilon(1e-5)
    with pytest.raises(fp.errors.ParameterError, match="compute it with"):
        bound.certificate()


def test_the_command_and_the_script_are_one(tmp_path):
    path = tmp_path / "run.json"
    path.write_text(json.dumps(asked("one Gaussian").certificate()))
    script = [sys.executable, "-I", str(BENCHMARKS / "check_certificate.py"), str(path)]
    command = [sys.executable, "-m", "fedprivacy", "verify", str(path)]
    for each in (script, command):
        done = subprocess.run(each, capture_output=True, text=True)
        assert done.returncode == 0 and "upper proved" in done.stdout, done.stderr
    path.write_text(path.read_text().replace('"replace_one"', '"zero_out"'))
    assert subprocess.run(command, capture_output=True).returncode == 2


def test_the_script_imports_nothing_of_the_package():
    source = Path(check_certificate.__file__).read_text()
    assert "fedprivacy" not in source and "from ." not in source


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_two_thousand_random_settings(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import certify

    found = list(certify.certified(2000, seed=2))
    wrong = [(n, v) for n, v, _, _ in found if "wrong" in v or "refused" in v]
    assert not wrong
    assert sum(v == "proved" for _, v, _, _ in found) >= 0.95 * len(found)


def test_a_lattice_of_too_many_points_is_not_begun():
    """An end of 1e-12 with losses of several units needed all of the memory."""
    pair = check_certificate.made({"type": "LaplacePair", "version": 1, "fields": {"shift": 2.0}})
    with pytest.raises(check_certificate.Undecided, match="too many points"):
        check_certificate.Lattice([(pair, 3)], 1e-12, 1 << 12, check_certificate.arb(1e-20))


def test_many_rounds_are_proved_on_a_line(monkeypatch):
    """Lattices of a thousand rounds took a minute, a line takes half a second."""
    run = L(noise_multiplier=5.0).sampled(fp.Poisson(0.01)) * 1000
    bound = fp.epsilon(run, delta=1e-6, adjacency="replace_one")
    assert "lattice" in bound.method
    monkeypatch.setattr(check_certificate.Run, "on_lattices", lambda *given: iter(()))
    assert set(check_certificate.check(through_json(bound)).values()) == {"proved"}


def test_outermost_ratios_beyond_the_last_label_are_read():
    """Below, the last place holds a tail, whose ratio may lie beyond every label."""
    pytest.importorskip("flint")
    law = checker._tree_of_ratios([(4, checker.arb(1))], -1, 1e-9)
    assert 0.999 < float(sum(law.p, checker.ZERO)) <= 1.0
    assert 0.999 < float(sum(law.q, checker.ZERO)) <= 1.0
