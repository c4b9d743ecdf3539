"""The ledger on real files: every byte changed, every length cut, real kills."""

import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np
import pytest

import fedprivacy as fp
from fedprivacy.errors import DamagedLedger, ForeignLedger, LedgerError, ParameterError
from fedprivacy.evidence.repricing import as_released, run_of, spent
from fedprivacy.ledger import REGISTRY, FinishedRound, Ledger
from fedprivacy.ledger.lines import DECODER, TAIL, IntentLine, line_of
from fedprivacy.mechanisms import Mechanism
from fedprivacy.registry import encode
from tests.common import ROOT

pytestmark = pytest.mark.usefixtures("narrowest")

GAUSS = fp.Gaussian(noise_multiplier=1.0, unit="client")
SMP = fp.SparsifiedPerturbation(
    noise_multiplier=1.4, clip_norm=0.5, kept=10, dimension=100, cohort=100, missing=2, colluding=3
)
RECORD = fp.Gaussian(noise_multiplier=0.9, clip_norm=2.0, unit="record")
MECHANISMS = {
    "gaussian": GAUSS,
    "no unit": fp.Gaussian(noise_multiplier=0.1 + 0.2),
    "sparsified": SMP,
    "top_k": fp.SparsifiedPerturbation(
        noise_multiplier=1e-3,
        clip_norm=1e3,
        kept=1,
        dimension=7,
        cohort=2,
        sparsifier="top_k",
        topped_up=True,
    ),
    "poisson": GAUSS.sampled(fp.Poisson(0.01)),
    "truncated": GAUSS.sampled(fp.TruncatedPoisson(0.01, population=900, largest=20)),
    "allocated": GAUSS.sampled(fp.RandomAllocation(rounds_per_epoch=50)),
    "fixed size": SMP.sampled(fp.FixedSize(100, 6000)),
    "everyone": GAUSS.sampled(fp.Everyone()),
    "held": RECORD.sampled(fp.Poisson(0.5), held=4),
    "run": GAUSS * 3 + SMP.sampled(fp.FixedSize(100, 6000)) * 2,
    "cohort": (RECORD.sampled(fp.Poisson(0.5)) * 5).in_cohort(fp.FixedSize(3, 10)),
    "nested": (
        ((RECORD.sampled(fp.Poisson(0.5)) * 5 + RECORD).in_cohort(fp.FixedSize(3, 10)) * 4)
        .in_cohort(fp.Everyone())
    ),
}  # fmt: skip
FACTS = {"unit": "client", "adjacency": "zero_out"}


def new(path: Path, **changes: object) -> Ledger:
    return Ledger.create(path, **{**FACTS, **changes})


def one_round(ledger: Ledger, mechanism: Mechanism = GAUSS, std: float = 1.0) -> int:
    number = ledger.intent(mechanism, clip_norm=1.0, noise_std=1.0)
    ledger.done(number, cohort=5, arrived=4, refused=1, noise_std=std)
    return number


def small(path: Path) -> bytes:
    """Write a ledger with every kind of line but close, and return its bytes."""
    with new(path, claim=(1.0, 1e-5), plan=GAUSS * 3) as ledger:
        one_round(ledger)
        ledger.abort(ledger.intent(GAUSS, clip_norm=1.0, noise_std=1.0), "too few arrived")
        ledger.intent(GAUSS, clip_norm=1.0, noise_std=1.0)
    return path.read_bytes()


# The read values are the written ones


@pytest.mark.parametrize("name", MECHANISMS)
def test_every_mechanism_comes_back(path, name):
    mechanism = MECHANISMS[name]
    unit = mechanism.protects or "client"
    with new(path, unit=unit, plan=mechanism * 7) as ledger:
        ledger.intent(mechanism, clip_norm=1.0, noise_std=1e6)
    read = Ledger.open(path)
    assert read.rounds[0].mechanism == mechanism
    assert repr(read.rounds[0].mechanism) == repr(mechanism)
    assert read.plan == mechanism * 7
    assert run_of(read.rounds) == mechanism * 1


def test_every_mechanism_and_scheme_of_the_package_can_be_recorded():
    from fedprivacy import factors, mechanisms, sampling

    kinds = {kind for kind in vars(mechanisms).values() if isinstance(kind, type)}
    concrete = {k for k in kinds if issubclass(k, Mechanism) and not k.__abstractmethods__}
    schemes = {
        value
        for value in vars(sampling).values()
        if hasattr(value, "amplify") and hasattr(value, "__dataclass_fields__")
    }
    parts = {getattr(factors, name) for name in factors.__all__ if name[0].isupper()}
    laws = {kind for kind in kinds if issubclass(kind, mechanisms.Trials)}
    ours = {kind for kind in REGISTRY.values() if kind.__module__.startswith("fedprivacy.")}
    assert concrete | schemes | laws - {mechanisms.Trials} <= ours
    assert ours - concrete - schemes - laws <= parts


def test_facts_and_rounds_come_back(path):
    with new(
        path,
        observer="server",
        claim=(2.0, 1e-5),
        schedule="adaptive",
        budget_rule="RDP filter",
        description="a «test»\nof two lines",
    ) as ledger:
        one_round(ledger)
        ledger.abort(ledger.intent(SMP, clip_norm=0.5, noise_std=0.7), "")
        ledger.intent(SMP, clip_norm=0.5, noise_std=0.7)
        written = ledger.rounds
    read = Ledger.open(path)
    assert read.facts == ("client", "zero_out", "server")
    assert (read.claim, read.schedule, read.budget_rule) == ((2.0, 1e-5), "adaptive", "RDP filter")
    assert read.description == "a «test»\nof two lines"
    assert read.created.endswith("+00:00")
    assert read.versions["fedprivacy"] == fp.__version__
    assert set(read.versions) == {"fedprivacy", "python", "numpy"}
    assert read.plan is None
    assert read.rounds == written
    assert read.rounds[0].done == FinishedRound(cohort=5, arrived=4, refused=1, noise_std=1.0)
    assert [r.spent for r in read.rounds] == [True, False, True]
    assert [r.aborted for r in read.rounds] == [None, "", None]
    assert read.spent_rounds == 2
    assert not read.closed
    assert read.notes == ()
    assert run_of(read.rounds) == GAUSS + SMP


def test_a_claim_without_delta_is_read_again(tmp_path):
    path = tmp_path / "run.ledger"
    with new(path, claim=(0.45, 0.0)):
        pass
    assert Ledger.open(path).claim == (0.45, 0.0)


def test_the_seed_policy_is_told(path, tmp_path):
    with new(path) as ledger:
        assert (ledger.seed_policy, ledger.reproducible) == ("operating system", False)
        assert "not private" not in ledger.seed_statement
    with new(tmp_path / "seeded", seed_policy="fixed") as ledger:
        assert (ledger.seed_policy, ledger.reproducible) == ("fixed", True)
        assert ledger.seed_statement == "reproducible: not private"


def test_nothing_spent_is_no_mechanism(path):
    with new(path) as ledger:
        ledger.abort(ledger.intent(GAUSS, clip_norm=1.0, noise_std=1.0), "nobody came")
        assert run_of(ledger.rounds) is None
        assert ledger.spent_rounds == 0


def test_close_is_for_complete_runs_only(path):
    with new(path) as ledger:
        one_round(ledger)
        ledger.close()
        assert ledger.closed
        ledger.release()
        for write in (
            lambda: ledger.intent(GAUSS, clip_norm=1.0, noise_std=1.0),
            lambda: ledger.done(0, cohort=1, arrived=1, refused=0, noise_std=1.0),
            lambda: ledger.abort(0, "late"),
            ledger.close,
        ):
            with pytest.raises(LedgerError, match="closed"):
                write()
    assert Ledger.open(path).closed
    with pytest.raises(LedgerError, match="is closed"):
        Ledger.open(path, resume=True)


def test_an_exception_leaves_the_ledger_open(path):
    with pytest.raises(ZeroDivisionError), new(path) as ledger:
        one_round(ledger)
        raise ZeroDivisionError
    assert not Ledger.open(path).closed
    with Ledger.open(path, resume=True) as again:
        assert one_round(again) == 1


# Order


def test_rounds_are_begun_and_finished_in_order(path):
    with new(path) as ledger:
        with pytest.raises(LedgerError, match="no round is open; write its intent first"):
            ledger.done(0, cohort=1, arrived=1, refused=0, noise_std=1.0)
        number = one_round(ledger)
        for finish in (
            lambda: ledger.done(number, cohort=1, arrived=1, refused=0, noise_std=1.0),
            lambda: ledger.abort(number, "changed my mind"),
        ):
            with pytest.raises(LedgerError, match="is not the open round"):
                finish()
        ledger.intent(GAUSS, clip_norm=1.0, noise_std=1.0)
        with pytest.raises(LedgerError, match="the open round is 1"):
            ledger.abort(0, "the wrong one")
        ledger.abort(1, "")
        with pytest.raises(LedgerError, match="is not the open round"):
            ledger.done(1, cohort=1, arrived=1, refused=0, noise_std=1.0)
    assert Ledger.open(path).spent_rounds == 1


def test_a_round_begun_before_a_crash_stays_spent(path):
    small(path)
    with Ledger.open(path, resume=True) as ledger:
        for finish in (
            lambda: ledger.done(2, cohort=1, arrived=1, refused=0, noise_std=1.0),
            lambda: ledger.abort(2, "surely not released"),
        ):
            with pytest.raises(LedgerError, match="counts as spent"):
                finish()
        assert one_round(ledger) == 3
    assert Ledger.open(path).spent_rounds == 3


def forge(path: Path, *events: object) -> None:
    """Append events with right checksums, as a faulty or dishonest writer would."""
    lines = path.read_bytes()
    check = lines.splitlines()[-1][-66:-2].decode()
    for event in events:
        line, check = line_of(event, check)
        lines += line
    path.write_bytes(lines)


GAUSS_TEXT = b'{"type":"Gaussian","version":1,"fields":{"noise_multiplier":1.0}}'


def intent(round_: int = 0, text: bytes = GAUSS_TEXT) -> IntentLine:
    return IntentLine(round=round_, clip_norm=1.0, noise_std=1.0, mechanism=msgspec.Raw(text))


@pytest.mark.parametrize(
    "text",
    [
        b'{"type":"os.system","version":1,"fields":{}}',
        b'{"type":"FixedSize","version":1,"fields":{"size":1,"population":2}}',
        b'{"type":"Gaussian","version":1,"fields":{"noise_multiplier":0}}',
        b'{"type":"Gaussian","version":1,"fields":{"noise_multiplier":1,"unit":"record"}}',
        b'{"type":"Run","version":1,"fields":{"parts":[]}}',
        b'{"type":"Run","version":1,"fields":{"parts":[[' + GAUSS_TEXT + b",-3]]}}",
        b'{"type":"SampledMechanism","version":1,"fields":{"inner":'
        + GAUSS_TEXT
        + b',"scheme":1}}',
        b"[" * 50_000 + b"]" * 50_000,
        b"[1,2]",
        b"null",
        b'"\xff"',
        b"1e999",
    ],
)
def test_records_in_a_line_are_untrusted(path, text):
    new(path).release()
    forge(path, intent(text=text))
    with pytest.raises(ForeignLedger, match="line 2"):
        Ledger.open(path)


@pytest.mark.parametrize(
    "line",
    [
        b'{"kind":"eval","code":"1"',
        b'{"kind":"close","rounds":0,"extra":1',
        b'{"kind":"close","rounds":"0"',
        b'{"kind":"close","rounds":-1',
        b'{"kind":"close","rounds":1e999',
        b'{"kind":"close"',
        b'{"rounds":0',
    ],
)
def test_lines_are_of_known_kinds_with_known_fields(path, line):
    from hashlib import sha256

    new(path).release()
    content = path.read_bytes()
    check = sha256(content[-67:-3] + line).hexdigest()
    path.write_bytes(content + line + f',"check":"{check}"}}\n'.encode())
    with pytest.raises(ForeignLedger, match="line 2"):
        Ledger.open(path)


# Damage


def test_every_changed_byte_is_found(path, tmp_path):
    content = small(path)
    changed = tmp_path / "changed"
    for position in range(len(content)):
        newline = content[position] ^ 0x0A
        for flip in (1 << position % 8, newline)[: 1 + (position % 4 == 0)]:
            flipped = bytearray(content)
            flipped[position] ^= flip
            if flipped == content:
                continue
            changed.write_bytes(flipped)
            if position == len(content) - 1:
                assert ") and was ignored; no noise was drawn" in Ledger.open(changed).notes[0]
                continue
            with pytest.raises((DamagedLedger, ForeignLedger)):
                Ledger.open(changed)


def test_damage_names_the_line_and_the_way_out(path):
    lines = small(path).splitlines(keepends=True)
    path.write_bytes(b"".join(lines).replace(b'"arrived":4', b'"arrived":5'))
    with pytest.raises(DamagedLedger, match=r"line 3: .*copy"):
        Ledger.open(path)
    for i in range(1, len(lines) - 1):
        path.write_bytes(b"".join(lines[:i] + lines[i + 1 :]))
        with pytest.raises(DamagedLedger, match=f"line {i + 1}"):
            Ledger.open(path)
        path.write_bytes(b"".join([*lines[:i], lines[i + 1], lines[i], *lines[i + 2 :]]))
        with pytest.raises(DamagedLedger, match=f"line {i + 1}"):
            Ledger.open(path)


def test_every_cut_opens_and_counts_what_was_whole(path, tmp_path):
    content = small(path)
    header = content.index(b"\n") + 1
    cut = tmp_path / "cut"
    aside = tmp_path / "cut.torn"
    for length in range(len(content) + 1):
        cut.write_bytes(content[:length])
        if length < header:
            with pytest.raises(ForeignLedger):
                Ledger.open(cut)
            with pytest.raises(ForeignLedger):
                Ledger.open(cut, resume=True)
            continue
        whole = [line for line in content[:length].split(b"\n")[:-1]]
        torn = content[:length].split(b"\n")[-1]
        intents = sum(line.startswith(b'{"kind":"intent"') for line in whole)
        aborts = sum(line.startswith(b'{"kind":"abort"') for line in whole)
        read = Ledger.open(cut)
        assert read.spent_rounds == intents - aborts
        assert len(read.notes) == bool(torn)
        assert cut.read_bytes() == content[:length], "reading changes nothing"
        if len(torn) % 40 > 1:
            continue
        with Ledger.open(cut, resume=True) as again:
            assert again.spent_rounds == read.spent_rounds
            assert len(again.notes) == bool(torn)
            one_round(again)
        assert Ledger.open(cut).spent_rounds == read.spent_rounds + 1
        assert len(Ledger.open(cut).notes) == bool(torn), "the repair stays on record"
        if torn:
            assert aside.read_bytes() == torn
            aside.unlink()
        assert not aside.exists()


def test_a_half_intent_says_why_it_does_not_count(path):
    content = small(path)
    path.write_bytes(content[:-5])
    (note,) = Ledger.open(path).notes
    assert "line 6" in note
    assert "an intent" in note
    assert "no noise was drawn" in note


@pytest.mark.parametrize("more", [b"{", b"garbage", b"\0" * 100])
def test_half_a_line_behind_a_closed_ledger_is_no_crash(path, more):
    with new(path) as ledger:
        ledger.close()
    path.write_bytes(path.read_bytes() + more)
    with pytest.raises(DamagedLedger, match="line follows the end of a closed ledger"):
        Ledger.open(path)


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"", "empty"),
        (b"\n", "does not begin"),
        (b"{}\n", "does not begin"),
        (b'{"kind":"header"}\n', "does not begin"),
        (b'[{"format":"fedprivacy ledger","schema":2}]\n', "does not begin"),
        (bytes(range(256)) * 40, "does not begin"),
        (b"\0" * 5000, "does not begin"),
        (b"[" * 100_000 + b"\n", "does not begin"),
        (b'{"kind":"header","format":"fedprivacy ledger","schema":1,"un', "first line"),
        (b'{"kind":"header","format":"fedprivacy ledger","schema":2,"new":1}\n', "upgrade"),
        ("epsilon,delta\n1,1e-5\n".encode("utf-16"), "does not begin"),
    ],
)
@pytest.mark.parametrize("resume", [False, True])
def test_foreign_files(path, content, named, resume):
    path.write_bytes(content)
    with pytest.raises(ForeignLedger, match=named):
        Ledger.open(path, resume=resume)
    assert path.read_bytes() == content


def test_a_line_without_an_end_is_not_read_into_memory(path, monkeypatch):
    monkeypatch.setattr("fedprivacy.ledger.history.MAX_LINE", 2000)
    content = small(path)
    path.write_bytes(content + b"x" * 5000)
    with pytest.raises(DamagedLedger, match="too long"):
        Ledger.open(path)


# Files and locks


@pytest.mark.parametrize("resume", [False, True])
def test_no_such_file_or_not_a_file(tmp_path, resume):
    with pytest.raises(LedgerError, match="No such file"):
        Ledger.open(tmp_path / "none", resume=resume)
    with pytest.raises(LedgerError, match=r"directory|not a file"):
        Ledger.open(tmp_path, resume=resume)


def test_an_existing_file_is_never_overwritten(path, tmp_path):
    path.write_text("precious")
    with pytest.raises(LedgerError, match="never overwritten"):
        new(path)
    assert path.read_text() == "precious"
    with pytest.raises(LedgerError, match="No such file"):
        new(tmp_path / "no" / "folder")


def test_one_writer_any_readers(path):
    with new(path) as ledger:
        one_round(ledger)
        with pytest.raises(LedgerError, match="is being written"):
            Ledger.open(path, resume=True)
        code = "import sys; from fedprivacy.ledger import Ledger as L; "
        code += "print(L.open(sys.argv[1]).spent_rounds); L.open(sys.argv[1], resume=True)"
        other = run_child("-c", code, str(path))
        out, err = other.communicate(timeout=250)
        assert (out.strip(), other.returncode) == ("1", 1)
        assert "LedgerError" in err
        reader = Ledger.open(path)
        with pytest.raises(LedgerError, match="opened for reading"):
            reader.intent(GAUSS, clip_norm=1.0, noise_std=1.0)
        one_round(ledger)
    with Ledger.open(path, resume=True) as again:
        assert again.spent_rounds == 2
    with pytest.raises(LedgerError, match="released"):
        again.intent(GAUSS, clip_norm=1.0, noise_std=1.0)


def test_a_forgotten_ledger_gives_its_lock_back(path):
    ledger = new(path)
    del ledger
    Ledger.open(path, resume=True).release()


def test_a_file_changed_under_the_writer_is_not_written_to(path):
    with new(path) as ledger:
        with open(path, "ab") as other:
            other.write(b"something")
        with pytest.raises(LedgerError, match="another program changed the file"):
            ledger.intent(GAUSS, clip_norm=1.0, noise_std=1.0)


@pytest.mark.parametrize("set_back", [False, True])
def test_a_change_in_place_that_keeps_the_size_is_noticed(path, set_back):
    """Even where the time of the change is set back to what it was."""
    with new(path) as ledger:
        one_round(ledger)
        before = os.stat(path)
        text = path.read_bytes()
        with open(path, "r+b") as other:
            other.seek(text.index(b'"cohort"') + 9)
            other.write(b"7")
        # The file system's clock may have coarse steps.
        while os.stat(path).st_ctime_ns == before.st_ctime_ns:
            os.utime(path)
        if set_back:
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert path.read_bytes() != text and path.stat().st_size == before.st_size
        with pytest.raises(LedgerError, match="another program changed the file"):
            ledger.intent(GAUSS, clip_norm=1.0, noise_std=1.0)


def test_a_file_that_was_touched_and_holds_the_same_is_written_to(path):
    with new(path) as ledger:
        one_round(ledger)
        os.utime(path)
        path.chmod(0o600)
        one_round(ledger)
    assert Ledger.open(path).spent_rounds == 2


# Bad input


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"unit": "person"}, "unit must be one of"),
        ({"unit": None}, "unit"),
        ({"adjacency": "remove"}, "adjacency"),
        ({"observer": "everyone"}, "observer"),
        ({"claim": 1.0}, "claim"),
        ({"claim": (1.0, 1.5)}, "delta"),
        ({"claim": (float("inf"), 1e-5)}, "epsilon"),
        ({"schedule": "random"}, "schedule"),
        ({"seed_policy": 7}, "seed_policy"),
        ({"budget_rule": 3}, "budget_rule"),
        ({"description": "\ud800"}, "description"),
        ({"plan": "everything"}, "plan must be a mechanism"),
        ({"plan": RECORD}, "plan.unit"),
    ],
)
def test_bad_facts(path, changes, named):
    with pytest.raises(ParameterError, match=named):
        new(path, **changes)
    assert not path.exists()


def test_bad_rounds(path):
    nan, inf = float("nan"), float("inf")
    with new(path) as ledger:
        for changes, named in [
            ({"clip_norm": 0.0}, "clip_norm"),
            ({"clip_norm": nan}, "clip_norm"),
            ({"noise_std": 0.0}, "noise_std"),
            ({"noise_std": inf}, "noise_std"),
            ({"mechanism": None}, "mechanism"),
            ({"mechanism": RECORD}, "mechanism.unit"),
        ]:
            values = {"mechanism": GAUSS, "clip_norm": 1.0, "noise_std": 1.0, **changes}
            with pytest.raises(ParameterError, match=named):
                ledger.intent(values.pop("mechanism"), **values)
        assert ledger.rounds == ()
        number = ledger.intent(GAUSS, clip_norm=1.0, noise_std=1.0)
        for changes, named in [
            ({"cohort": -1}, "cohort"),
            ({"cohort": 1.5}, "cohort"),
            ({"arrived": 6}, "arrived must be at most cohort = 5"),
            ({"refused": 6}, "refused"),
            ({"noise_std": nan}, "noise_std"),
            ({"noise_std": -1.0}, "noise_std"),
        ]:
            values = {"cohort": 5, "arrived": 5, "refused": 0, "noise_std": 1.0, **changes}
            with pytest.raises(ParameterError, match=named):
                ledger.done(number, **values)
        with pytest.raises(ParameterError, match="reason"):
            ledger.abort(number, 404)
        assert ledger.spent_rounds == 1
    assert Ledger.open(path).spent_rounds == 1


def test_a_mechanism_of_ones_own_is_not_recorded(path):
    class Mine(type(GAUSS)):
        pass

    with new(path) as ledger, pytest.raises(LedgerError, match="unknown type 'Mine'"):
        ledger.intent(Mine(noise_multiplier=1.0), clip_norm=1.0, noise_std=1.0)


# What the noise did


def test_less_noise_than_priced_is_priced_as_used(path):
    sampled = GAUSS.sampled(fp.Poisson(0.5))
    with new(path) as ledger:
        for std in (1.0, 0.5, 1.0 - 1e-12, 2.0, 0.5):
            one_round(ledger, sampled, std)
        half = fp.Gaussian(noise_multiplier=0.5, unit="client").sampled(fp.Poisson(0.5))
        assert run_of(ledger.rounds) == sampled * 3 + half * 2
        (note,) = spent(ledger.rounds).notes
        assert "2 rounds from round 1" in note
        assert "0.5" in note
    read = Ledger.open(path)
    assert run_of(read.rounds) == run_of(ledger.rounds)
    assert spent(read.rounds).notes == (note,)


def test_an_unconfirmed_round_is_priced_by_its_planned_noise(path):
    with new(path) as ledger:
        ledger.intent(GAUSS, clip_norm=2.0, noise_std=1.0)
        assert run_of(ledger.rounds) == fp.Gaussian(noise_multiplier=0.5, unit="client") * 1


def test_dropouts_are_priced_as_missing_shares(path):
    full = SMP.sampled(fp.FixedSize(100, 6000))
    with new(path) as ledger:
        for arrived in (100, 98, 97, 90):
            number = ledger.intent(full, clip_norm=0.5, noise_std=0.7)
            std = SMP.sum_noise_std(arrived)
            ledger.done(number, cohort=100, arrived=arrived, refused=0, noise_std=std)
        (kept, two), (three, one), (ten, other) = run_of(ledger.rounds).parts
        assert (kept, two, one, other) == (full, 2, 1, 1)
        assert (three.inner.missing, ten.inner.missing) == (3, 10)
        assert ten.inner.noise_multiplier == SMP.noise_multiplier
        assert len(spent(ledger.rounds).notes) == 2


def test_colluders_subtract_their_shares_in_full():
    priced = fp.SparsifiedPerturbation(
        noise_multiplier=2.0,
        clip_norm=1.0,
        kept=1,
        dimension=1,
        cohort=10,
        colluding=4,
    )
    for used in (1.9, 1.5, 1.3, 1.27):
        actual = as_released(priced, clip_norm=1.0, planned_std=2.0, used_std=used)
        assert actual.traits.sum_multiplier**2 == pytest.approx(used**2 - 4 * 2.0**2 / 10)
    for used in (1.26, 1.0, 0.0):
        assert as_released(priced, clip_norm=1.0, planned_std=2.0, used_std=used) is None


@pytest.mark.parametrize(
    "scheme",
    [fp.TruncatedPoisson(0.1, population=60, largest=9), fp.RandomAllocation(rounds_per_epoch=7)],
    ids=repr,
)
def test_a_scheme_stays_when_less_noise_was_used(scheme):
    actual = as_released(GAUSS.sampled(scheme), clip_norm=1.0, planned_std=1.0, used_std=0.5)
    assert actual == fp.Gaussian(noise_multiplier=0.5, unit="client").sampled(scheme)


def test_several_sums_in_a_round_are_scaled_together():
    gauss, other = (fp.Gaussian(noise_multiplier=z, unit="record") for z in (1.0, 3.0))
    both = (gauss * 2 + other).in_cohort(fp.Poisson(0.5))
    actual = as_released(both, clip_norm=1.0, planned_std=4.0, used_std=2.0)
    halves = [fp.Gaussian(noise_multiplier=z, unit="record") for z in (0.5, 1.5)]
    assert actual == (halves[0] * 2 + halves[1]).in_cohort(fp.Poisson(0.5))
    assert as_released(both, clip_norm=1.0, planned_std=4.0, used_std=4.0) is both


def test_an_audit_says_what_aborted_rounds_assume(path):
    full = replace(SMP, absent=40).sampled(fp.FixedSize(100, 6000))
    with new(path, claim=(9.0, 1e-5)) as ledger:
        for arrived in (100, 20):
            number = ledger.intent(full, clip_norm=0.5, noise_std=0.7)
            if arrived == 20:
                ledger.abort(number, "too few")
            else:
                std = SMP.sum_noise_std(arrived)
                ledger.done(number, cohort=100, arrived=arrived, refused=0, noise_std=std)
        ledger.close()
    assert run_of(fp.Ledger.open(path).rounds).parts[0][0].inner.absent == 40
    found = fp.audit(path)
    assert any("were aborted" in words and "absent" in words for words in found.reasons)
    assert found.auditor_only == ("1 round(s) were aborted.",)


def test_a_round_without_noise_has_no_epsilon(path):
    with new(path) as ledger:
        one_round(ledger, GAUSS, 0.0)
        assert "it is accounted without noise" in spent(ledger.rounds).notes[0]
        with pytest.raises(LedgerError, match="no epsilon"):
            run_of(ledger.rounds)


def test_the_epsilon_of_what_was_done_is_never_below_the_planned_one(path):
    full = SMP.sampled(fp.FixedSize(100, 6000))
    with new(path) as ledger:
        for arrived in (98, 95, 100):
            number = ledger.intent(full, clip_norm=0.5, noise_std=0.7)
            std = SMP.sum_noise_std(arrived)
            ledger.done(number, cohort=100, arrived=arrived, refused=0, noise_std=std)
        done = fp.epsilon(run_of(ledger.rounds), delta=1e-5, adjacency="zero_out")
    planned = fp.epsilon(full * 3, delta=1e-5, adjacency="zero_out")
    assert done.upper > planned.upper


# Speed


def test_the_disk_is_waited_for_before_noise_and_before_a_place_is_told(path, monkeypatch):
    """Once a round: what confirms a round is on disk with the next round's intent."""
    waits = []
    whole = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (waits.append(fd), whole(fd))[1])
    with new(path) as ledger:
        waits.clear()
        for rounds in range(1, 6):
            number = ledger.intent(GAUSS, clip_norm=1.0, noise_std=1.0)
            ledger.done(number, cohort=1, arrived=1, refused=0, noise_std=1.0)
            assert len(waits) == rounds
        assert ledger.place == ledger.place and len(waits) == 6
        ledger.abort(ledger.intent(GAUSS, clip_norm=1.0, noise_std=1.0), "too few")
        assert len(waits) == 7
    assert len(waits) == 8


def test_ten_thousand_rounds_are_read_with_a_few_calls_each(path, monkeypatch):
    """Calls are counted, since a busy machine takes longer: 37 for a line, 74 for a round."""
    monkeypatch.setattr(os, "fsync", lambda fd: None)
    mechanism = SMP.sampled(fp.FixedSize(100, 6000))
    with new(path) as ledger:
        for i in range(10_000):
            number = ledger.intent(mechanism, clip_norm=0.5, noise_std=0.7)
            std = SMP.sum_noise_std(100 - i % 4)
            ledger.done(number, cohort=100, arrived=100 - i % 4, refused=0, noise_std=std)
    calls = 0

    def count(frame, event, argument):
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        read = Ledger.open(path)
        parts = run_of(read.rounds).parts
    finally:
        sys.setprofile(None)
    assert [count for _, count in parts] == [7500, 2500]
    assert len({id(r.mechanism) for r in read.rounds}) == 1
    assert calls < 200 * 10_000, calls


# Kills

KILLS = 60


def run_child(*args: str) -> subprocess.Popen[str]:
    root = ROOT
    search = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))
    return subprocess.Popen(
        [sys.executable, *args],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": search},
    )


def test_kills_at_random_moments(path, tmp_path):
    """After every kill: no release uncounted, at most one round a kill too much."""
    observer = tmp_path / "observer"
    observer.touch()
    new(path, unit="client").release()
    moments = random.Random(20261120)
    parent = run_child(
        str(ROOT / "tests" / "contract" / "killed_ledger.py"), str(path), str(observer)
    )
    assert parent.stdout.readline() == "ready\n", parent.stderr.read()
    progress, released = [0], 0
    for kills in range(1, KILLS + 1):
        print(file=parent.stdin, flush=True)
        child = int(parent.stdout.readline())
        # On a busy machine a child may not have begun: every third one makes a round first.
        while kills % 3 == 0 and observer.stat().st_size == released:
            time.sleep(0.001)
        time.sleep(moments.uniform(0.0, 0.06))
        os.kill(child, signal.SIGKILL)
        assert parent.stdout.readline() == f"died of signal {signal.SIGKILL:d}\n"
        released = observer.stat().st_size
        ledger = Ledger.open(path)
        assert released <= ledger.spent_rounds <= released + kills
        confirmed = sum(r.done is not None for r in ledger.rounds)
        assert confirmed <= released <= confirmed + kills
        assert all(
            "was removed when the run resumed; it does" in n
            or ") and was ignored; no noise was drawn" in n
            for n in ledger.notes
        )
        progress.append(ledger.spent_rounds)
    _, errors = parent.communicate()
    assert errors == ""
    assert all(before <= after for before, after in pairwise(progress))
    assert progress[-1] > KILLS // 4, "the children got on with it"
    with Ledger.open(path, resume=True) as ledger:
        ledger.close()
    assert Ledger.open(path).closed


def dense_run(rounds=40):
    # Nearly the identity, so that anything may be asked of it at once.
    entries = np.tril(np.random.default_rng(4).random((rounds, rounds))) / rounds + np.eye(rounds)
    return fp.CorrelatedNoise(
        factor=fp.factors.Matrix(entries),
        noise_multiplier=4.0,
        rounds=rounds,
        participation=fp.MinimumSeparation(rounds),
        unit="client",
    )


def with_rows(path, run, plan, rows=3):
    with Ledger.create(path, unit="client", adjacency="zero_out", plan=plan) as ledger:
        for i in range(rows):
            number = ledger.intent(run.row(i), clip_norm=1.0, noise_std=4.0)
            ledger.done(number, cohort=1, arrived=1, refused=0, noise_std=4.0)
    return path.read_bytes().splitlines(keepends=True)


def test_lines_refer_to_the_factor_of_the_plan(tmp_path):
    run, path = dense_run(), tmp_path / "run.ledger"
    header, *lines = with_rows(path, run, run)
    assert len(header) > 10_000
    assert max(map(len, lines)) < 1000
    found = Ledger.open(path)
    assert [r.mechanism for r in found.rounds] == [run.row(i) for i in range(3)]
    # Every line's factor is the very object of the plan: none is read again.
    assert all(r.mechanism.run.factor is found.plan.factor for r in found.rounds)
    with Ledger.open(path, resume=True) as again:
        again.intent(run.row(3), clip_norm=1.0, noise_std=4.0)
    assert Ledger.open(path).rounds[-1].mechanism == run.row(3)


def test_another_factor_than_the_plans_is_written_out(tmp_path):
    run = dense_run()
    other = replace(run, factor=run.factor.leading(39, 40), rounds=39)
    path = tmp_path / "run.ledger"
    for plan in (None, other):
        lines = with_rows(path, run, plan)[1:]
        assert len(lines[0]) > 10_000
        assert Ledger.open(path).rounds[0].mechanism == run.row(0)
        path.unlink()


def rewritten(path, lines, change):
    """Write the lines anew, changed, each with the checksum of an honest writer."""
    check = ""
    with open(path, "wb") as file:
        for line in lines:
            event = DECODER.decode(line[: -TAIL - 1] + b"}")
            if isinstance(event, IntentLine):
                event = msgspec.structs.replace(event, mechanism=change(event.mechanism))
            text, check = line_of(event, check)
            file.write(text)


def test_lines_with_whole_factors_still_open(tmp_path):
    run, path = dense_run(), tmp_path / "run.ledger"
    lines = with_rows(path, run, run)
    whole = msgspec.json.encode(encode(run.row(0), REGISTRY))
    rewritten(path, lines, lambda _: msgspec.Raw(whole))
    assert {r.mechanism for r in Ledger.open(path).rounds} == {run.row(0)}


def test_a_record_that_its_run_declares_void_certifies_nothing(path):
    """A cohort that was drawn and dropped, a release without an intent: no line could say so."""
    with new(path, claim=(50.0, 1e-5)) as ledger:
        for _ in range(3):
            number = ledger.intent(GAUSS, clip_norm=1.0, noise_std=1.0)
            ledger.done(number, cohort=1, arrived=1, refused=0, noise_std=1.0)
        first = ledger.void("a cohort was drawn and dropped")
        second = ledger.void("a release had no intent")
        assert (first, second) == (0, 1) and len(ledger.voids) == 2
        ledger.lift(first)
        assert ledger.voids == ("a release had no intent",)
        for wrong in (first, 2):
            with pytest.raises(LedgerError, match="cannot be lifted"):
                ledger.lift(wrong)
        with pytest.raises(ParameterError, match="reason"):
            ledger.void(3)
        with pytest.raises(ParameterError, match="number"):
            ledger.lift(0.5)
    with Ledger.open(path, resume=True) as ledger:
        assert ledger.voids == ("a release had no intent",)
        ledger.close()
    for claim in ((50.0, 1e-5), (1e-3, 1e-5)):
        found = fp.audit(path, claim=claim)
        assert found.verdict == "CANNOT BE CERTIFIED" and found.void and found.rounds == 3
        assert "a line that declares the record of the run void" in found.reasons[0]
        assert "the run declared its record void: a release had no intent" in found.reasons
    with pytest.raises(fp.UnsupportedCombination, match="void"):
        fp.account(path, delta=1e-5)


def test_what_is_lifted_is_as_if_it_had_not_been(path):
    with new(path, claim=(50.0, 1e-5)) as ledger:
        number = ledger.intent(GAUSS, clip_norm=1.0, noise_std=1.0)
        void = ledger.void("a batch waits for its step")
        ledger.done(number, cohort=1, arrived=1, refused=0, noise_std=1.0)
        ledger.lift(void)
        ledger.close()
    found = fp.audit(path)
    assert found.verdict == "HOLDS" and not any("void" in reason for reason in found.reasons)


def test_a_check_may_refuse_to_close(path):
    with new(path) as ledger:
        ledger.before_close(lambda: 1 / 0)
        assert ledger.writable
        with pytest.raises(ZeroDivisionError):
            ledger.close()
        assert not ledger.closed
    assert not ledger.writable and not Ledger.open(path).writable
