"""Tests of ``fedprivacy.ledger.files``."""

import builtins
import errno
import os
from contextlib import suppress
from pathlib import Path

import portalocker
import pytest

import fedprivacy as fp
from fedprivacy import outputs
from fedprivacy.errors import DamagedLedger, LedgerError
from fedprivacy.ledger import Ledger, files
from fedprivacy.ledger.files import stamp
from tests.ledger.test_ledger import new

GAUSS = fp.Gaussian(noise_multiplier=1.0, unit="client")
FACTS = {"unit": "client", "adjacency": "zero_out"}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_stops_the_round(path):
    with new(path) as ledger:
        full = os.open("/dev/full", os.O_WRONLY)
        aside = path.rename(path.with_name("aside"))
        path.symlink_to("/dev/full")
        keep, ledger._fd = ledger._fd, full
        ledger._stamp = stamp(full)
        with pytest.raises(LedgerError, match="No space left"):
            ledger.intent(GAUSS, clip_norm=1.0, noise_std=1.0)
        ledger._fd = keep
        path.unlink()
        aside.rename(path)
        with pytest.raises(LedgerError, match="an earlier write failed"):
            ledger.intent(GAUSS, clip_norm=1.0, noise_std=1.0)
        os.close(full)
    assert Ledger.open(path).spent_rounds == 0


# ---- the rules of other systems, kept by this one


def identity(file):
    found = os.stat(file)
    return found.st_dev, found.st_ino


def opened():
    """Return the identity of every file that this process has open."""
    found = set()
    for fd in range(256):
        with suppress(OSError):
            found.add(identity(fd))
    return found


@pytest.fixture
def rules(monkeypatch):
    """Windows: locks keep readers out, an open file keeps its names, no folder is opened."""
    locked = set()

    def refused(path):
        return PermissionError(errno.EACCES, "Permission denied", str(path))

    def guarded(module, name, forbidden):
        real = getattr(module, name)

        def call(path, *rest, **more):
            if forbidden(path):
                raise refused(path)
            return real(path, *rest, **more)

        monkeypatch.setattr(module, name, call)

    def is_open(path):
        return os.path.exists(path) and identity(path) in opened()

    def is_locked(path):
        return os.path.exists(path) and identity(path) in locked

    def take(fd, flags, real=portalocker.lock):
        real(fd, flags)
        locked.add(identity(fd))

    def free(fd, real=portalocker.unlock):
        real(fd)
        locked.discard(identity(fd))

    for name in ("rename", "replace", "unlink"):
        guarded(os, name, is_open)
    guarded(os, "open", os.path.isdir)
    guarded(builtins, "open", is_locked)
    monkeypatch.setattr(portalocker, "lock", take)
    monkeypatch.setattr(portalocker, "unlock", free)


@pytest.fixture
def windows(rules, monkeypatch):
    for module in (files, outputs):
        monkeypatch.setattr(module, "WINDOWS", True)


def one_round(ledger):
    number = ledger.intent(GAUSS, clip_norm=1.0, noise_std=1.0)
    ledger.done(number, cohort=1, arrived=1, refused=0, noise_std=1.0, denominator=1.0)


def test_the_ways_of_posix_break_the_rules_of_windows(rules, path):
    with pytest.raises(LedgerError, match="Permission denied"):
        new(path)


def test_a_ledger_lives_by_the_rules_of_windows(windows, path):
    with new(path) as ledger:
        one_round(ledger)
        assert Ledger.open(path).spent_rounds == 1, "a reader comes in while it is written"
        assert ledger.passes(ledger.place) and ledger.passes((1, "0" * 64)) is False
        with pytest.raises(LedgerError, match="is being written by another ledger object"):
            Ledger.open(path, resume=True)
        with pytest.raises(LedgerError, match="exists and is never overwritten"):
            new(path)
        one_round(ledger)
    torn = path.read_bytes() + b'{"kind":"int'
    path.write_bytes(torn)
    with Ledger.open(path, resume=True) as again:
        one_round(again)
        again.close()
    assert Ledger.open(path).spent_rounds == 3 and Ledger.open(path).closed
    beside = {f"{path.name}{suffix}" for suffix in ("", ".lock", ".torn")}
    assert {each.name for each in path.parent.iterdir()} == beside
    assert not files._LOCK_FILES, "every lock is given back"


def test_a_name_that_is_taken_meanwhile_is_not_overwritten(windows, path, monkeypatch):
    real = files.publish

    def late(fd, temporary, target):
        target.write_bytes(b"mine")
        real(fd, temporary, target)

    monkeypatch.setattr(files, "publish", late)
    with pytest.raises(LedgerError, match="never overwritten"):
        new(path)
    assert path.read_bytes() == b"mine"
    assert sorted(each.name for each in path.parent.iterdir()) == [path.name, f"{path.name}.lock"]


def test_names_that_differ_only_in_case_are_one_name_where_the_system_says_so(path, monkeypatch):
    """As on macOS and Windows. Neither the check nor the link overwrites the other ledger."""
    new(path).release()
    there = {each.name.lower() for each in path.parent.iterdir()}
    other = path.with_name(path.name.upper())
    assert other != path
    real_link = os.link

    def link(one, two):
        if Path(two).name.lower() in there:
            raise FileExistsError(errno.EEXIST, "File exists", str(two))
        real_link(one, two)

    monkeypatch.setattr(os, "link", link)
    before = path.read_bytes()
    with pytest.raises(LedgerError, match="never overwritten"):
        new(other)
    assert path.read_bytes() == before
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_other_line_ends_damage_a_ledger_and_are_seen(path):
    """Such as those of a copy in text mode."""
    with new(path) as ledger:
        one_round(ledger)
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    with pytest.raises(DamagedLedger):
        Ledger.open(path)
