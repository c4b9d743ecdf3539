"""Renamed ledgers, outputs that would overwrite a ledger, and escape sequences."""

import errno
import os
import resource
import shutil
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

import fedprivacy as fp
from fedprivacy import factors, outputs
from fedprivacy.cli import main
from fedprivacy.errors import LedgerError, ParameterError
from fedprivacy.outputs import aligned, printable, refuse_overwrite, whole_file
from fedprivacy.runs import progress_logging
from fedprivacy.runs.pictures import draw_tradeoff
from fedprivacy.training.rounds import RoundInfo

A_FACTOR = factors.Matrix(tuple((1.0,) * (1 + i) for i in range(20)))
ONE = fp.Gaussian(noise_multiplier=1.0, unit="client")


def begun(path, **more):
    ledger = fp.Ledger.create(path, unit="client", adjacency="zero_out", **more)
    number = ledger.intent(ONE, clip_norm=1.0, noise_std=1.0)
    ledger.done(number, cohort=5, arrived=5, refused=0, noise_std=1.0)
    return ledger


def test_threads_break_no_chain(tmp_path):
    path, refused = tmp_path / "run.ledger", []
    ledger = begun(path)

    def write(*_):
        for _ in range(20):
            try:
                number = ledger.intent(ONE, clip_norm=1.0, noise_std=1.0)
                ledger.done(number, cohort=5, arrived=5, refused=0, noise_std=1.0)
            except LedgerError as error:
                refused.append(str(error))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    ledger.release()
    # Out of turn, and so refused before it is written; a written file is read.
    assert all("round" in told for told in refused)
    assert len(fp.Ledger.open(path).rounds) == len(ledger.rounds) >= 20


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
        with pytest.raises(LedgerError, match="cannot be written"):
            ledger.intent(ONE, clip_norm=1.0, noise_std=1.0)
    ledger.release()


def test_no_output_overwrites_a_ledger(tmp_path, capsys):
    path = tmp_path / "run.html"
    with begun(path, claim=(50.0, 1e-5)) as ledger:
        ledger.close()
    before = path.read_bytes()
    found = fp.audit(path)
    with pytest.raises(ParameterError, match="not be a ledger, since the record of"):
        fp.report(found, path)
    linked = tmp_path / "b.html"
    linked.symlink_to(path)
    with pytest.raises(ParameterError, match="not be a ledger, since the record of"):
        fp.report(found, linked)
    shutil.copyfile(path, tmp_path / "c.html.tmp")
    with pytest.raises(ParameterError, match="not be a ledger, since the record of"):
        fp.report(found, tmp_path / "c.html")
    with pytest.raises(SystemExit) as stop:
        main(["report", str(path)])
    assert stop.value.code == 2 and "output" in capsys.readouterr().err
    assert path.read_bytes() == before == (tmp_path / "c.html.tmp").read_bytes()
    read = tmp_path / "state.html"
    read.write_text("{}")
    with pytest.raises(ParameterError, match="differ from the files that are read"):
        refuse_overwrite(read, besides=[read])
    refuse_overwrite(read, tmp_path / "new.html")


def test_a_checkpoint_overwrites_no_ledger(tmp_path):
    from dataclasses import dataclass

    from fedprivacy.training.checkpoint import save

    @dataclass(frozen=True)
    class State:
        round: int

    with begun(tmp_path / "a.pt.tmp"):
        pass
    before = (tmp_path / "a.pt.tmp").read_bytes()
    with pytest.raises(ParameterError, match="not be a ledger, since the record of"):
        save(tmp_path / "a.pt", State(1))
    assert (tmp_path / "a.pt.tmp").read_bytes() == before


def test_strings_of_a_ledger_cannot_write_a_verdict(tmp_path, capsys):
    path = tmp_path / "a\nHOLDS"
    rule = "\x1b[2J\x1b[HHOLDS\x9b1m\u202e\nHOLDS: epsilon <= 0.1"
    with begun(path, claim=(0.1, 1e-5), budget_rule=rule) as ledger:
        ledger.close()
    with pytest.raises(SystemExit):
        main(["audit", str(path)])
    told = capsys.readouterr().out
    assert told.startswith("FAILS") and "\\x1b[2J" in told
    assert not set(told) & {"\x1b", "\x9b", "\u202e"} and "\nHOLDS" not in told
    assert printable("a\tb\n\rc") == "a\\tb\\n\\rc"
    for name in ("a.html", "a.md"):
        with pytest.raises(SystemExit):
            main(["report", str(path), f"--output={tmp_path / name}", "--subject=\x1b[2J"])
        page = (tmp_path / name).read_text()
        assert "HOLDS" in page and not set(page) & {"\x1b", "\x9b", "\u202e"}
        assert "\nHOLDS" not in page
    assert "\nHOLDS" not in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ["run"],
        ["verify"],
        ["audit"],
        ["pareto", "--delta=1e-5", "--adjacency=zero_out", "--maximise=x"],
    ],
)
def test_what_is_no_file_is_refused_before_it_is_opened(tmp_path, words, capsys):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    (tmp_path / "deep").write_text("[" * 10**6)
    (tmp_path / "named").write_text('{"bound": {"quantity": "\\u001b[2J"}}')
    for place in ("/dev/zero", *(str(tmp_path / name) for name in os.listdir(tmp_path))):
        with pytest.raises(SystemExit) as stop:
            main([*words, place])
        told = capsys.readouterr()
        lines = (told.err + told.out).splitlines()
        assert stop.value.code == 2 and len(lines) == 1 and "\x1b" not in lines[0], lines


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


def test_a_filter_takes_any_number_of_rounds_at_once():
    budget = fp.Budget(8.0, 1e-5, adjacency="zero_out", adaptive=True)
    assert budget.keeps((fp.Gaussian(noise_multiplier=1e9) * 10**12).sequence())
    assert not budget.keeps((fp.Gaussian(noise_multiplier=1.0) * 10**12).sequence())


def by_certificate(path):
    with pytest.raises(SystemExit) as stop:
        main(["epsilon", "--noise-multiplier=1", "--delta=1e-5", f"--certificate={path}"])
    assert stop.value.code == 2


def by_factor(path):
    with pytest.raises(ParameterError):
        factors.save(A_FACTOR, path)


def by_watching(path):
    class Loop:
        round_mechanism = ONE

    other = path.with_name("rounds.csv")
    tell = progress_logging.to_csv(other, Loop(), delta=1e-5, adjacency="zero_out")
    # A ledger that takes its place while it runs.
    other.symlink_to(path)
    with pytest.raises(ParameterError):
        tell(SimpleNamespace(round=0), RoundInfo(**dict.fromkeys(TOLD, 0)))
    with pytest.raises(ParameterError):
        progress_logging.to_csv(path, Loop(), delta=1e-5, adjacency="zero_out")


def by_report(path):
    with pytest.raises(ParameterError):
        fp.report(fp.audit(ONE, claim=(9.0, 1e-5), adjacency="zero_out"), path)


TOLD = ("round", "cohort", "arrived", "refused", "aborted", "upload_bytes", "noise_std")


@pytest.mark.parametrize("written", [by_certificate, by_factor, by_watching, by_report])
def test_nothing_that_is_written_lands_on_a_ledger(tmp_path, written):
    path = tmp_path / "run.html"
    begun(path).release()
    before = path.read_bytes()
    written(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("ending", ["", ".tmp"])
def test_an_output_goes_through_no_link_and_replaces_no_device(tmp_path, ending):
    victim, place = tmp_path / "mine", tmp_path / "a.html"
    victim.write_text("mine")
    place.with_name(place.name + ending).symlink_to(victim)
    whole_file(place, "ours")
    assert (victim.read_text(), place.read_text()) == ("mine", "ours")
    os.mkfifo(tmp_path / "pipe")
    for other in (tmp_path / "pipe", tmp_path):
        with pytest.raises(ParameterError, match="be a file or a new name"):
            whole_file(other, "ours")


def on_a_full_disk(write, folder):
    """Return what a child says whose files may have no more than 500 bytes."""
    told, tell = os.pipe()
    if (child := os.fork()) == 0:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))
        try:
            write(folder)
        except Exception as error:
            os.write(tell, str(error).encode())
        finally:
            os._exit(0)
    os.close(tell)
    os.waitpid(child, 0)
    with os.fdopen(told) as file:
        return file.read()


def a_report(folder):
    fp.report(fp.audit(ONE, claim=(9.0, 1e-5), adjacency="zero_out"), folder / "out.html")


def a_picture(folder):
    draw_tradeoff(fp.tradeoff_curve(ONE, adjacency="zero_out"), folder / "out.png")


def a_factor(folder):
    factors.save(A_FACTOR, folder / "out.json")


@pytest.mark.parametrize("write", [a_report, a_picture, a_factor])
def test_a_full_disk_is_told_with_the_file_and_leaves_nothing_half_written(tmp_path, write):
    assert f"{tmp_path}/out." in on_a_full_disk(write, tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_half_written_line_is_set_aside_through_no_link(tmp_path):
    path, victim = tmp_path / "run.ledger", tmp_path / "mine"
    begun(path).release()
    path.write_bytes(path.read_bytes() + b'{"kind')
    before = path.read_bytes()
    victim.write_text("mine")
    aside = tmp_path / "run.ledger.torn"
    for lay in (lambda: aside.symlink_to(victim), lambda: os.mkfifo(aside)):
        lay()
        with pytest.raises(LedgerError, match=r"run\.ledger\.torn"):
            fp.Ledger.open(path, resume=True)
        aside.unlink()
    assert (victim.read_text(), path.read_bytes()) == ("mine", before)
    with fp.Ledger.open(path, resume=True):
        assert aside.read_bytes() == b'{"kind'


def test_macos_empties_the_cache_of_the_drive(tmp_path, monkeypatch):
    asked, synced = [], []
    monkeypatch.setattr(outputs, "FULL_SYNC", 51)
    monkeypatch.setattr(os, "fsync", synced.append)

    def control(fd, command):
        asked.append(command)
        if error is not None:
            raise OSError(error, "no")

    monkeypatch.setattr(outputs.fcntl, "fcntl", control)
    error = None
    outputs.whole_file(tmp_path / "one", "text")
    assert asked == [51, 51] and synced == []
    error = errno.ENOTSUP
    outputs.whole_file(tmp_path / "one", "more")
    assert len(synced) == 2, "a file system without that call gets the other one"
    error = errno.EIO
    with pytest.raises(OSError, match="could not be written"):
        outputs.whole_file(tmp_path / "one", "again")
    assert len(synced) == 2 and (tmp_path / "one").read_text() == "more"


@pytest.mark.parametrize(
    "name", ["nul", "aux.ledger", "COM1.json", "folder/Lpt9.tar.gz", "con .txt"]
)
def test_the_name_of_a_device_is_refused_on_windows(name, monkeypatch):
    assert outputs.path_of(path=name).name == name.rpartition("/")[2]
    monkeypatch.setattr(outputs, "WINDOWS", True)
    with pytest.raises(ParameterError, match="not be the name of a device"):
        outputs.path_of(path=name)
    assert outputs.path_of(path="console.json") and outputs.path_of(path="com10")


def test_a_table_that_is_wider_than_the_terminal_is_a_list(monkeypatch):
    rows = [("observer", "upper", "method"), ("aggregate", "1.5", "PLD"), ("server", "-", "")]
    monkeypatch.setenv("COLUMNS", "20")
    assert aligned(rows)[1] == "aggregate  1.5    PLD"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert aligned(rows) == [
        *("observer    aggregate", "  upper     1.5", "  method    PLD"),
        *("observer    server", "  upper     -", "  method"),
    ]
    monkeypatch.setenv("COLUMNS", "24")
    assert len(aligned(rows)) == 3
