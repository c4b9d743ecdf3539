"""Ledgers that lose their name while a run writes, outputs that would overwrite one, escapes."""

import shutil

import pytest

import fedprivacy as fp
from fedprivacy.cli import main
from fedprivacy.cli.options import printable
from fedprivacy.errors import LedgerError, ParameterError
from fedprivacy.ledger import free

ONE = fp.Gaussian(noise_multiplier=1.0, unit="client")


def begun(path, **more):
    ledger = fp.Ledger.create(path, unit="client", adjacency="zero_out", **more)
    number = ledger.intent(ONE, clip_norm=1.0, noise_std=1.0)
    ledger.done(number, cohort=5, arrived=5, refused=0, noise_std=1.0)
    return ledger


def removed(path):
    path.unlink()


def replaced(path):
    other = path.with_name("copy")
    shutil.copyfile(path, other)
    other.replace(path)


def rotated(path):
    path.rename(path.with_name("old"))


def truncated(path):
    path.write_bytes(path.read_bytes()[:-10])


@pytest.mark.parametrize("resumed", [False, True])
@pytest.mark.parametrize("harm", [removed, replaced, rotated, truncated])
def test_a_ledger_that_is_not_where_it_was_stops_the_run(tmp_path, harm, resumed, monkeypatch):
    path = tmp_path / "run.ledger"
    ledger = begun(path)
    if resumed:
        ledger.release()
        monkeypatch.chdir(tmp_path)
        ledger = fp.Ledger.open("run.ledger", resume=True)
        monkeypatch.chdir("/")
        ledger.abort(ledger.intent(ONE, clip_norm=1.0, noise_std=1.0), "a change of folders")
    harm(path)
    for _ in range(2):
        with pytest.raises(LedgerError, match="cannot be written to"):
            ledger.intent(ONE, clip_norm=1.0, noise_std=1.0)
    ledger.release()


def test_no_output_overwrites_a_ledger(tmp_path, capsys):
    path = tmp_path / "run.html"
    with begun(path, claim=(50.0, 1e-5)) as ledger:
        ledger.close()
    before = path.read_bytes()
    found = fp.audit(path)
    with pytest.raises(ParameterError, match="be no ledger"):
        fp.report(found, path)
    linked = tmp_path / "b.html"
    linked.symlink_to(path)
    with pytest.raises(ParameterError, match="be no ledger"):
        fp.report(found, linked)
    shutil.copyfile(path, tmp_path / "c.html.part")
    with pytest.raises(ParameterError, match="be no ledger"):
        fp.report(found, tmp_path / "c.html")
    with pytest.raises(SystemExit) as stop:
        main(["report", str(path)])
    assert stop.value.code == 2 and "output" in capsys.readouterr().err
    assert path.read_bytes() == before == (tmp_path / "c.html.part").read_bytes()
    read = tmp_path / "state.html"
    read.write_text("{}")
    with pytest.raises(ParameterError, match="than what is read"):
        free(read, besides=[read])
    free(read, tmp_path / "new.html")


def test_a_checkpoint_overwrites_no_ledger(tmp_path):
    from dataclasses import dataclass

    from fedprivacy.training.checkpoint import save

    @dataclass(frozen=True)
    class State:
        round: int

    with begun(tmp_path / "a.pt.tmp"):
        pass
    before = (tmp_path / "a.pt.tmp").read_bytes()
    with pytest.raises(ParameterError, match="be no ledger"):
        save(tmp_path / "a.pt", State(1))
    assert (tmp_path / "a.pt.tmp").read_bytes() == before


def test_strings_of_a_ledger_cannot_write_a_verdict(tmp_path, capsys):
    path = tmp_path / "a"
    with begun(path, claim=(0.1, 1e-5), budget_rule="\x1b[2J\x1b[HHOLDS\x9b1m\u202e") as ledger:
        ledger.close()
    with pytest.raises(SystemExit):
        main(["audit", str(path)])
    told = capsys.readouterr().out
    assert told.startswith("FAILS") and "\\x1b[2J" in told
    assert not set(told) & {"\x1b", "\x9b", "\u202e"}
    assert printable("a\tb\n\rc") == "a\\tb\n\\rc"


@pytest.mark.parametrize(
    "mechanism",
    [
        lambda: fp.FederatedLangevin(
            step_size=0.1, temperature=1.0, correlation=0.0, weight=1.0, batch_fraction=0.1,
            gradient_sensitivity=1.0, steps=10**8,
        ),
        lambda: fp.FederatedHamiltonian(
            step_size=0.1, leapfrog_steps=10**8, correlation=0.0, weight=1.0, batch_fraction=0.1,
            gradient_sensitivity=1.0,
        ),
        lambda: fp.RenyiDp(
            divergences=tuple((1.0 + 0.01 * k, 0.1) for k in range(1, 20_001)),
            adjacency="zero_out",
        ),
    ],
    ids=["steps", "leapfrog steps", "orders"],
)  # fmt: skip
def test_what_would_take_all_memory_is_refused(mechanism):
    with pytest.raises(ParameterError, match="be at most"):
        mechanism()


@pytest.mark.timeout(30)
def test_a_filter_takes_any_number_of_rounds_at_once():
    budget = fp.Budget(8.0, 1e-5, adjacency="zero_out", adaptive=True)
    assert budget.keeps((fp.Gaussian(noise_multiplier=1e9) * 10**12).sequence())
    assert not budget.keeps((fp.Gaussian(noise_multiplier=1.0) * 10**12).sequence())
