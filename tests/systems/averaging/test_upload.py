"""Tests of ``fedprivacy.systems.averaging.upload``."""

import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedprivacy.errors import ParameterError
from fedprivacy.sampling import WithReplacement
from fedprivacy.systems.averaging.collect import Collected
from tests.contract.test_leaks import command
from tests.systems.averaging.test_loop import Journal, Purse, explicit_sum, fed_smp, loop, small

pytest.importorskip("torch")

import torch

import fedprivacy as fp
from fedprivacy.runs.experiment import Experiment
from fedprivacy.runs.jobs import job
from fedprivacy.systems.averaging.upload import pack, unpack, upload_size

TINY = 1e-9
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("sparsifier", ["rand_k", "top_k"])
@pytest.mark.parametrize("clip_norm", [0.05, 50.0])
def test_the_streamed_sum_is_the_sum_of_contributions(sparsifier, clip_norm):
    secure = fed_smp(noise_multiplier=TINY, clip_norm=clip_norm, sparsifier=sparsifier)
    averaging = loop(secure, batch_size=99, momentum=0.5, local_steps=3)
    data, state = small(), averaging.init()
    state = replace(state, parameters=state.parameters + 0.1)
    after, info = averaging.step(state, data)
    moved = (state.parameters - after.parameters).numpy() * 6
    mask = torch.from_numpy(np.flatnonzero(moved))
    assert len(mask) == 5
    expected = explicit_sum(averaging, data, state, mask, secure)
    np.testing.assert_allclose(moved[mask], expected, rtol=1e-4, atol=1e-6)
    assert info.arrived == info.cohort == 6 and info.payload_bytes == 6 * 5 * 4
    assert info.upload_bytes == 6 * len(pack(torch.zeros(5), round=0, mask=mask))


def test_a_second_report_is_refused_counted_in_the_ledger_and_not_summed(monkeypatch):
    """A loop whose clients all answer twice releases what one whose clients answer once does."""
    averaging, data = loop(fed_smp(kept=8), batch_size=99), small()
    state = averaging.init()
    wanted, _ = averaging.step(state, data)
    real, journal, purse = Collected.add, Journal(), Purse(2)

    def stutter(self, client, update):
        real(self, client, update)
        return real(self, client, update * 5)

    monkeypatch.setattr(Collected, "add", stutter)
    after, info = averaging.step(state, data, ledger=journal, budget=purse)
    assert torch.equal(after.parameters, wanted.parameters)
    assert (info.arrived, info.refused, info.upload_bytes) == (6, 6, 6 * upload_size(8))
    assert journal.lines[1][2]["refused"] == 6 and purse.left == 1


@pytest.mark.parametrize("private", [False, True])
def test_a_client_drawn_s_times_counts_s_times(private):
    """Strategy 1 of two-sided FedAvg, against draws repeated by hand."""
    secure = fed_smp(noise_multiplier=TINY, kept=8, cohort=9) if private else None
    averaging = loop(secure, WithReplacement(9, population=6), batch_size=99, seed=5)
    data, state = small(), averaging.init()
    after, info = averaging.step(state, data)
    drawn = averaging.scheme.draw(6, averaging._generator("cohort", 0))
    assert len(set(drawn)) < len(drawn) == info.cohort == info.arrived
    total = torch.zeros(8)
    for client in map(int, drawn):
        alone = replace(data, clients=(data.clients[client],))
        update = state.parameters - loop(batch_size=99).step(state, alone)[0].parameters
        total += secure.contribution(update) if private else update
    assert torch.allclose(state.parameters - after.parameters, total / 9, atol=1e-6)
    assert info.upload_bytes == len(set(drawn)) * upload_size(8)


def test_an_upload_says_what_it_is_and_nothing_else_is_taken_for_it():
    mask, values = torch.tensor([1, 4, 6]), torch.tensor([0.5, -2.0, 3.0])
    upload = pack(values, round=7, mask=mask)
    assert len(upload) == upload_size(3) == 24 + 4 * 3
    assert torch.equal(unpack(upload, round=7, kept=3, mask=mask), values)
    assert torch.equal(unpack(pack(values, round=0), round=0, kept=3), values)
    spoilt = pack(values * math.inf, round=7, mask=mask)
    wrong = [
        (upload[:-1], {}, "36 bytes long"),
        (upload + b"x", {}, "36 bytes long"),
        (b"", {}, "36 bytes long"),
        (b"x" + upload[1:], {}, "start with"),
        (upload, {"round": 8}, "be 8, the current round"),
        (upload, {"mask": torch.tensor([1, 4, 7])}, "match the mask of the round"),
        (upload, {"mask": None}, "match the mask of the round"),
        (upload, {"kept": 4}, "40 bytes long"),
        (spoilt, {}, "be finite"),
    ]
    for content, change, message in wrong:
        with pytest.raises(ParameterError, match=message):
            unpack(content, **{"round": 7, "kept": 3, "mask": mask} | change)
    with pytest.raises(ParameterError, match="have one number per kept coordinate"):
        pack(values, round=0, mask=mask[:2])


@pytest.mark.usefixtures("no_plots")
def test_what_is_not_covered_is_marked_and_not_in_the_report(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    own = ["train", "--method", "dp-fedavg", "--rounds", "2", "--checkpoint", "run.pt"]
    printed = command(capsys, *own, "--output", "model.pt", "--ledger", "a.ledger")
    (marked,) = [
        line
        for line in printed.out.splitlines()
        if line.startswith("not covered by epsilon, not for publication")
    ]
    sent = int(re.search(r"(\d+) bytes uploaded", marked)[1])
    planned = 2 * 100 * upload_size(650)
    assert f"{planned / 1e6:.2f} MB uploaded by all" in printed.out
    assert "private, not for publication: run.pt and a.ledger.private" in printed.out
    assert "for publication: model.pt, which contains only the model" in printed.out
    task = job("dp-fedavg", rounds=2)
    record = Experiment(job=task, epsilon=8.0).run(ledger_path=tmp_path / "b.ledger")
    assert record.upload_bytes == planned
    kept = [one for one in (tmp_path / "a.ledger.private").read_text().splitlines() if one]
    assert sent == json.loads(kept[-1])["sent"]
    refused = replace(record, not_covered={"upload_bytes": 123457, "refused": 123459})
    fp.report({"run": refused}, tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "123457" not in page and "123459" not in page and "0.12 MB" not in page


SETTINGS = settings(derandomize=True, deadline=None, max_examples=25)


# ---- uploads


@given(
    numbers=st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), max_size=6),
    number=st.integers(0, 2**31),
    masked=st.booleans(),
)
@SETTINGS
def test_an_upload_is_read_as_it_was_packed(numbers, number, masked):
    values = torch.tensor(numbers, dtype=torch.float32)
    mask = torch.arange(len(numbers)) * 3 if masked else None
    sent = pack(values, round=number, mask=mask)
    assert len(sent) == upload_size(len(numbers)) == 24 + 4 * len(numbers)
    assert torch.equal(unpack(sent, round=number, kept=len(numbers), mask=mask), values)


def test_every_changed_bit_of_an_upload_s_head_is_seen():
    mask = torch.tensor([0, 4])
    sent = pack(torch.ones(2), round=7, mask=mask)
    for bit in range(8 * (len(sent) - 8)):
        broken = bytearray(sent)
        broken[bit // 8] ^= 1 << bit % 8
        with pytest.raises(fp.ParameterError):
            unpack(bytes(broken), round=7, kept=2, mask=mask)
    for other in (None, torch.tensor([4, 0]), torch.tensor([0, 5])):
        with pytest.raises(fp.ParameterError, match=r"upload\.mask must match"):
            unpack(sent, round=7, kept=2, mask=other)
