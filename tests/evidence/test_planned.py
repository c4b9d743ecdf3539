"""Rounds against the plan: no edit of a round lowers the price of a claim that holds."""

import json
from hashlib import sha256

import pytest

import fedprivacy as fp
from fedprivacy.evidence.defects import Defect
from fedprivacy.ledger.lines import CHECK, TAIL
from tests.evidence.test_repricing import CLIPPED as SPLITTING
from tests.evidence.test_repricing import LANGEVIN

pytestmark = pytest.mark.usefixtures("narrowest")

SMP = fp.SparsifiedPerturbation(
    noise_multiplier=2.0, clip_norm=1.0, kept=3, dimension=9, cohort=10, missing=1
)
SUM = fp.Gaussian(noise_multiplier=2.0, unit="client")
# Round, clip norm, std of its noise, adjacency, cohort.
KINDS = {
    "Poisson": (SUM.sampled(fp.Poisson(0.05)), 1.0, 2.0, "zero_out", 10),
    "FixedSize": (SUM.sampled(fp.FixedSize(10, population=200)), 1.0, 2.0, "zero_out", 10),
    "Shuffled": (SUM.sampled(fp.Shuffled(5)), 1.0, 2.0, "zero_out", 10),
    "Fed-SMP": (SMP.sampled(fp.FixedSize(10, population=200)), 1.0, None, "zero_out", 10),
    "FA-LD": (LANGEVIN.in_cohort(fp.FixedSize(10, population=40)), 0.1, None, "replace_one", 10),
    "Fed-PLT": (SPLITTING.in_cohort(fp.Poisson(0.3)), 1.0, None, "replace_one", 10),
}
ROUNDS = 3


def write(path, one, clip_norm, std, adjacency, cohort, *, claim, **options):
    """Write a closed ledger of a few rounds; ``options``: plan, used, and facts of the ledger."""
    plan = options.pop("plan", one * ROUNDS)
    used = options.pop("used", std)
    every = options.pop("every", [one] * ROUNDS)
    facts = {"unit": one.protects, "adjacency": adjacency, "claim": (claim, 1e-5)}
    with fp.Ledger.create(path, plan=plan, **facts, **options) as ledger:
        for each in every:
            number = ledger.intent(each, clip_norm=clip_norm, noise_std=std)
            given = {"cohort": cohort, "arrived": cohort, "refused": 0, "denominator": 10.0}
            ledger.done(number, noise_std=used, **given)
        ledger.close()
    return path


def kind(name):
    one, clip_norm, std, adjacency, cohort = KINDS[name]
    if std is None:
        std = clip_norm * min(one.noise_ratios(clip_norm))
    return one, clip_norm, std, adjacency, cohort


def price(found):
    return min(bound.upper for bound in found.bounds[str(found.facts.observer)].values())


def leaves(value, at=()):
    """Yield the place of every number, word and truth value in plain JSON values."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from leaves(each, (*at, key)) if key != "version" else ()
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from leaves(each, (*at, number))
    else:
        yield at, value


def others(value):
    """Return values that somebody might put in the place of one."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value - 1, value + 1, 100 * value]
    if isinstance(value, float):
        return [value * factor for factor in (0.02, 0.999, 1.5)]
    return [True, 1, 0.5, "record"] if value is None else [None]


def edited(text, rows, at, value):
    """Return a ledger whose rounds have another value in their mechanisms, with a valid chain."""
    made, before, intents = [], "", 0
    for line in text.splitlines(keepends=True):
        body = line[: -TAIL - 1]
        if b'"intent"' in body[:40]:
            if intents in rows:
                event = json.loads(line)
                del event[list(event)[-1]]
                place = event["mechanism"]
                for key in at[:-1]:
                    place = place[key]
                place[at[-1]] = value
                body = json.dumps(event, separators=(",", ":")).encode()[:-1]
            intents += 1
        before = sha256(before.encode() + body).hexdigest()
        made.append(body + CHECK + before.encode() + b'"}\n')
    assert intents == ROUNDS
    return b"".join(made)


def judged(path):
    try:
        return fp.audit(path, accountant="rdp")
    except fp.errors.FedPrivacyError:
        return None


def edits(mechanism, every):
    """Yield the place of a value, and its replacement: all others, or one at a time."""
    for at, value in leaves(mechanism):
        found = others(value)
        yield from (
            (at, other) for other in (found if every else [found[len(str(at)) % len(found)]])
        )


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", KINDS)
def test_no_field_of_a_rounds_mechanism_lowers_the_price(tmp_path, name, every):
    one, clip_norm, std, adjacency, cohort = kind(name)
    loose = fp.epsilon(one * ROUNDS, delta=1e-5, adjacency=adjacency, accountant="rdp").upper
    path = write(tmp_path / "run", one, clip_norm, std, adjacency, cohort, claim=1.0001 * loose)
    whole = fp.audit(path, accountant="rdp")
    assert whole.verdict == "HOLDS" and not whole.defects
    text, tried, told = path.read_bytes(), 0, 0
    line = next(line for line in text.splitlines() if b'"intent"' in line[:40])
    for at, other in edits(json.loads(line)["mechanism"], every):
        path.write_bytes(edited(text, {1}, at, other))
        found = judged(path)
        if found is None:
            continue
        tried += 1
        cheaper = price(found) < price(whole) * (1.0 - 1e-6)
        assert found.verdict != "HOLDS" or not cheaper, (at, other)
        if found.run != whole.run:
            assert {Defect.UNPLANNED, Defect.LESS_NOISE} & {*found.defects}, (at, other)
        told += Defect.CHEAPER in found.defects
    # Some are read and some lower the price; an epoch costs the same in any number of batches.
    least = (5, 2) if every else (2, 1)
    assert tried >= least[0] and (told >= least[1] or name == "Shuffled"), (tried, told)


def test_a_hundredth_of_the_population_is_no_cheaper_run(tmp_path):
    """Every round edited, by every accountant: the shown price is that of the rounds."""
    one, *rest = kind("FixedSize")
    claim = fp.epsilon(one * ROUNDS, delta=1e-5, adjacency="zero_out").lower / 2.0
    path = write(tmp_path / "run", one, *rest, claim=claim)
    assert fp.audit(path).verdict == "FAILS"
    place = ("fields", "scheme", "fields", "population")
    path.write_bytes(edited(path.read_bytes(), {0, 1, 2}, place, 20_000))
    found = fp.audit(path)
    assert found.verdict == "CANNOT BE CERTIFIED" and price(found) < claim
    assert found.defects == (Defect.CHEAPER, Defect.UNPLANNED)
    assert "rounds cost less than planned" in found.statement
    assert "some rounds are not in the plan" in str(fp.account(path, delta=1e-5))


ONE, *REST = kind("FixedSize")
LOUDER = fp.Gaussian(noise_multiplier=3.0, unit="client").sampled(fp.FixedSize(10, population=200))
DEARER = fp.Gaussian(noise_multiplier=2.0, unit="client").sampled(fp.FixedSize(10, population=100))


@pytest.mark.parametrize(
    ("options", "defects"),
    [
        ({}, ()),
        ({"plan": None}, ()),
        ({"used": 3.0}, ()),
        ({"every": [ONE]}, ()),
        ({"every": [ONE] * 5}, ()),
        ({"every": [DEARER] * ROUNDS}, (Defect.UNPLANNED,)),
        ({"every": [LOUDER] * ROUNDS, "used": 3.0}, (Defect.UNPLANNED,)),
    ],
)
def test_whoever_leaves_a_plan_for_good_reasons_is_not_accused(tmp_path, options, defects):
    path = write(tmp_path / "run", ONE, *REST, claim=50.0, **options)
    found = fp.audit(path, accountant="rdp")
    assert (found.verdict, found.defects) == ("HOLDS", defects)


def test_an_adaptive_run_leaves_its_plan_under_its_filter(tmp_path):
    rule = fp.Budget(50.0, 1e-5, adjacency="zero_out", adaptive=True).rule
    adaptive = {
        "schedule": "adaptive",
        "budget_rule": rule,
        "every": [LOUDER] * ROUNDS,
        "used": 3.0,
    }
    found = fp.audit(write(tmp_path / "run", ONE, *REST, claim=50.0, **adaptive))
    assert (found.verdict, found.defects) == ("HOLDS", ())


def test_rounds_of_several_kinds_stand_for_those_that_are_missing(tmp_path):
    plan = ONE * 2 + DEARER * 2
    cheap = fp.Gaussian(noise_multiplier=2.0, unit="client").sampled(fp.FixedSize(10, 10_000))
    path = write(tmp_path / "run", ONE, *REST, claim=50.0, plan=plan, every=[ONE, ONE, cheap])
    found = fp.audit(path, accountant="rdp")
    assert (found.verdict, found.numbers) == (
        "CANNOT BE CERTIFIED",
        "valid for the recorded rounds only",
    )
    again = write(tmp_path / "again", ONE, *REST, claim=50.0, plan=plan, every=[ONE, ONE, DEARER])
    assert fp.audit(again, accountant="rdp").verdict == "HOLDS"
