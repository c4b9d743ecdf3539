"""Tests of ``fedprivacy.ledger.lines``."""

import json
from dataclasses import fields

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedprivacy as fp
from fedprivacy.errors import DamagedLedger, ForeignLedger, LedgerError
from fedprivacy.ledger import Ledger
from fedprivacy.ledger.lines import CloseLine, DoneLine, LiftLine, VoidLine, long_factors
from tests.contract.test_leaks import covered
from tests.ledger.test_joint import copied
from tests.ledger.test_ledger import dense_run, forge, intent, new, rewritten, with_rows
from tests.ledger.test_rounds import STORIES

pytest.importorskip("torch")

from fedprivacy.ledger import lines
from fedprivacy.runs.experiment import TrainedRun
from fedprivacy.training import RoundInfo

ROUND = fp.Gaussian(noise_multiplier=1.0, unit="client")
DELTA = 1e-5


# Files


def test_copies_that_are_resumed_differ_from_the_first_line_on(tmp_path):
    files = [path.read_bytes().splitlines() for path in copied(tmp_path, after=(4, 4))]
    shared = [one == other for one, other in zip(*files, strict=True)]
    assert shared == [True] * 7 + [False] * (len(shared) - 7)
    assert [json.loads(lines[7])["kind"] for lines in files] == ["resume"] * 2


def test_a_close_line_names_every_round(tmp_path):
    one = fp.Gaussian(noise_multiplier=2.0, unit="client")
    facts = {"unit": "client", "adjacency": "zero_out"}
    with fp.Ledger.create(tmp_path / "run.ledger", **facts) as ledger:
        ledger.abort(ledger.intent(one, clip_norm=1.0, noise_std=2.0), "none")
        misplaced = ledger._history.misplaced
        assert "counts 0 rounds, but 1" in misplaced(CloseLine(0))
        assert "counts 2 rounds, but 1" in misplaced(CloseLine(2))
        assert misplaced(CloseLine(1)) == ""


FACTS = {"unit": "client", "adjacency": "zero_out"}
DONE = DoneLine(round=0, cohort=1, arrived=1, refused=0, noise_std=1.0)
GAUSS_TEXT = b'{"type":"Gaussian","version":1,"fields":{"noise_multiplier":1.0}}'


@pytest.mark.parametrize(
    "events",
    [
        [DONE],
        [intent(1)],
        [intent(), DONE, DONE],
        [intent(), intent()],
        [intent(), intent(2)],
        [CloseLine(rounds=1)],
        [CloseLine(rounds=0), intent()],
        [CloseLine(rounds=0), CloseLine(rounds=0)],
        [VoidLine(number=1, reason="a")],
        [VoidLine(number=0, reason="a"), VoidLine(number=0, reason="a")],
        [LiftLine(number=0)],
        [VoidLine(number=0, reason="a"), LiftLine(number=0), LiftLine(number=0)],
        [CloseLine(rounds=0), VoidLine(number=0, reason="a")],
    ],
)
def test_order_is_checked_when_reading_too(path, events):
    new(path).release()
    forge(path, *events)
    with pytest.raises(DamagedLedger, match="line "):
        Ledger.open(path)


@pytest.mark.parametrize("digest", ['"00"', "7", "null", '["a"]'])
def test_a_reference_to_what_is_not_in_the_plan_is_refused(tmp_path, digest):
    run, path = dense_run(), tmp_path / "run.ledger"
    lines = with_rows(path, run, run)
    (known,) = long_factors(run)
    swap = (f'"{known}"'.encode(), digest.encode())
    rewritten(path, lines, lambda raw: msgspec.Raw(bytes(raw).replace(*swap)))
    with pytest.raises(ForeignLedger, match="which is not in the plan"):
        Ledger.open(path)
    # A plan that refers to itself, or more than a digest, is no record either.
    extra = (b'{"digest":', b'{"more":1,"digest":')
    rewritten(path, lines, lambda raw: msgspec.Raw(bytes(raw).replace(*extra)))
    with pytest.raises(ForeignLedger, match="a reference must have only a digest, got"):
        Ledger.open(path)


@STORIES
@given(st.integers(0, 2**53), st.text(max_size=40), st.integers(0, 66))
def test_a_line_is_bound_to_all_before_it(number, reason, at):
    before = "ab" * 32
    line, check = lines.line_of(lines.AbortLine(round=number, reason=reason), before)
    assert line.endswith(b"\n") and line.count(b"\n") == 1
    body, again = lines.body_of(line, before)
    assert again == check and lines.DECODER.decode(body) == lines.AbortLine(
        round=number, reason=reason
    )
    assert lines.body_of(line, "cd" * 32) is None
    changed = bytearray(line)
    changed[-1 - at] ^= 1
    assert lines.body_of(bytes(changed), before) is None


@pytest.mark.parametrize(
    "text",
    [
        b'{"kind":"intent","round":-1,"clip_norm":1.0,"noise_std":1.0,"mechanism":null}',
        b'{"kind":"intent","round":0,"clip_norm":0.0,"noise_std":1.0,"mechanism":null}',
        b'{"kind":"intent","round":0,"clip_norm":1.0,"noise_std":-1.0,"mechanism":null}',
        b'{"kind":"intent","round":0,"clip_norm":1.0,"noise_std":1.0}',
        b'{"kind":"done","round":0,"cohort":1,"arrived":1,"refused":0,"noise_std":NaN}',
        b'{"kind":"done","round":0,"cohort":1.5,"arrived":1,"refused":0,"noise_std":1.0}',
        b'{"kind":"done","round":0,"cohort":1,"arrived":1,"refused":0,"noise_std":1,"of":"x"}',
        b'{"kind":"done","round":9007199254740993,"cohort":1,"arrived":1,"refused":0,"noise_std":1}',
        b'{"kind":"abort","round":0}',
        b'{"kind":"close","rounds":"0"}',
        b'{"kind":"open"}',
        b"{}",
    ],
    ids=range(12),
)
def test_a_line_out_of_its_ranges_is_no_line(text):
    import msgspec

    with pytest.raises(msgspec.MsgspecError):
        lines.DECODER.decode(text)


def test_a_line_that_nobody_could_read_is_not_written(tmp_path):
    path = tmp_path / "a"
    with pytest.raises(LedgerError) as caught:
        fp.Ledger.create(path, **FACTS, description="x" * lines.MAX_LINE)
    assert f"at most {lines.MAX_LINE} bytes" in str(caught.value)
    assert "a line must have at most" in str(caught.value)
    assert list(tmp_path.iterdir()) == [], "neither the file nor its hidden name is left"


def test_every_row_is_of_something_and_nothing_has_two(tmp_path):
    kinds = {
        "header": lines.HeaderLine,
        "intent": lines.IntentLine,
        "done": lines.DoneLine,
        "abort": lines.AbortLine,
        "repair": lines.RepairLine,
        "void": lines.VoidLine,
        "lift": lines.LiftLine,
        "resume": lines.ResumeLine,
        "close": lines.CloseLine,
    }
    there = {f"{name}.{field}" for name, kind in kinds.items() for field in kind.__struct_fields__}
    there |= {f"round.{field.name}" for field in fields(RoundInfo)}
    there |= {f"record.{field.name}" for field in fields(TrainedRun)}
    listed = covered()
    assert len(listed) == len(set(listed))
    assert there <= set(listed)
    places = ("json", "audit", "not_covered", "notes", "checkpoint", "output", "noise", "row")
    assert {name for name in listed if name.split(".")[0] not in places} == there
