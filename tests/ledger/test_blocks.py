"""Blocks of rounds: the same history as line by line, and the same errors."""

import pytest

import fedprivacy as fp
from fedprivacy.errors import LedgerError
from fedprivacy.ledger import history
from fedprivacy.ledger.blocks import take_rounds
from fedprivacy.ledger.history import History

ROUND = fp.Gaussian(noise_multiplier=50.0, unit="client").sampled(fp.Poisson(0.01))
OTHER = fp.Gaussian(noise_multiplier=40.0, unit="client").sampled(fp.Poisson(0.01))


@pytest.fixture
def path(tmp_path):
    """A ledger of 40 rounds; one is aborted, one is never confirmed, some have another noise."""
    found = tmp_path / "run.ledger"
    with fp.Ledger.create(found, unit="client", adjacency="zero_out") as ledger:
        for k in range(40):
            number = ledger.intent(OTHER if k > 30 else ROUND, clip_norm=1.0, noise_std=50.0)
            if k == 7:
                ledger.abort(number, "no client answered")
            elif k != 9:
                mask = f"{k:064x}" if k % 5 == 0 else None
                ledger.done(
                    number, cohort=90 + k % 3, arrived=90, refused=0, noise_std=50.0, mask=mask
                )
    return found


def state(found):
    """All that a history holds of its lines."""
    rounds = found.rounds
    trail = rounds.trail.begun.tolist(), rounds.trail.ended.tolist()
    place = found.check, found.size, found.lines, found.digest, found.closed, found.torn
    return list(rounds), list(rounds.alike()), rounds.open, rounds.spent, trail, place


@pytest.mark.parametrize("block", [300, 1500, 4000, 2**20])
def test_blocks_give_the_history_of_all_lines(path, block, monkeypatch):
    taken = []

    def watched(before, text):
        taken.append(take_rounds(before, text))
        return taken[-1]

    monkeypatch.setattr(history, "_BLOCK", block)
    monkeypatch.setattr(history, "take_rounds", watched)
    found = state(history.read(path))
    assert any(taken) == (block < 2**20)
    monkeypatch.setattr(history, "take_rounds", lambda before, text: False)
    assert state(history.read(path)) == found


def cut(lines):
    return [*lines[:-1], lines[-1][:-20]]


def changed(old, new):
    return lambda lines: [
        line.replace(old, new) if k == 25 else line for k, line in enumerate(lines)
    ]


CHANGES = {
    "a number": changed(b'"cohort":9', b'"cohort":8'),
    "a checksum": changed(b'"check":"', b'"check":"0'),
    "a field twice": changed(b'"round":', b'"round":1,"round":'),
    "an unknown field": changed(b'"round":', b'"rounds":1,"round":'),
    "a space": changed(b'"round":', b'"round": '),
    "a blank line": lambda lines: [*lines[:20], b"\n", *lines[20:]],
    "two lines exchanged": lambda lines: [*lines[:20], lines[21], lines[20], *lines[22:]],
    "a line lost": lambda lines: [*lines[:20], *lines[21:]],
    "a line twice": lambda lines: [*lines[:21], *lines[20:]],
    "no JSON": lambda lines: [*lines[:20], b"{[" + lines[20], *lines[21:]],
    "the end lost": cut,
}


def read(path):
    try:
        return state(history.read(path))
    except LedgerError as error:
        return type(error), str(error)


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_ledger_is_refused_as_line_by_line(name, path, monkeypatch):
    path.write_bytes(b"".join(CHANGES[name](path.read_bytes().splitlines(keepends=True))))
    monkeypatch.setattr(history, "_BLOCK", 900)
    found = read(path)
    assert isinstance(found[0], type) == (name != "the end lost")
    monkeypatch.setattr(history, "take_rounds", lambda before, text: False)
    assert read(path) == found


def test_a_block_that_is_not_taken_leaves_no_trace(path):
    lines = path.read_bytes().splitlines(keepends=True)
    before = History()
    assert not take_rounds(before, b"".join(lines[1:3])) and before.lines == 0
    whole = history.read(path)
    known = state(whole)
    # The first two rounds again: their places are taken.
    assert not take_rounds(whole, b"".join(lines[1:5]))
    assert state(whole) == known
