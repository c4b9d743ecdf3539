"""A forked child can neither write its parent's ledger nor spend its budget."""

import os
import pickle
import signal
import threading
import traceback

import numpy as np
import pytest

import fedprivacy as fp
from fedprivacy.errors import LedgerError

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")

ROUND = fp.Gaussian(noise_multiplier=10.0, unit="client")


def created(path):
    return fp.Ledger.create(path, unit="client", adjacency="zero_out", claim=(8.0, 1e-5))


def intent(ledger):
    return ledger.intent(ROUND, clip_norm=1.0, noise_std=10.0)


def done(ledger, number):
    ledger.done(number, cohort=1, arrived=1, refused=0, noise_std=10.0)


def budget():
    return fp.Budget(1.0, 1e-5, adjacency="zero_out")


def in_child(work, seconds=20):
    """Return what ``work`` returns in a forked child, as bytes; an error's type and text else."""
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        # The child must never continue as a test.
        try:
            signal.alarm(seconds)
            try:
                told = work() or b""
            except BaseException as error:
                told = f"{type(error).__name__}: {error}".encode()
                if not isinstance(error, fp.errors.FedPrivacyError):
                    traceback.print_exc()
            os.write(theirs, told)
        finally:
            os._exit(0)
    os.close(theirs)
    with os.fdopen(ours, "rb") as file:
        told = file.read()
    assert os.waitpid(child, 0)[1] == 0, "the child was stopped: it waited for ever"
    return told


WRITES = {
    "intent": intent,
    "done": lambda ledger: done(ledger, 0),
    "abort": lambda ledger: ledger.abort(0, "too few"),
    "close": lambda ledger: ledger.close(),
}


@pytest.mark.parametrize("what", WRITES)
def test_a_child_cannot_write(tmp_path, what):
    with created(tmp_path / "run") as ledger:
        number = intent(ledger)
        before = (tmp_path / "run").read_bytes()
        told = in_child(lambda: WRITES[what](ledger))
        assert told.startswith(b"LedgerError: ") and b"forked from it" in told
        assert b"Write in the process" in told and b"\n" not in told
        assert (tmp_path / "run").read_bytes() == before
        # The parent continues unharmed.
        done(ledger, number)
        intent(ledger)
        ledger.close()
    assert fp.Ledger.open(tmp_path / "run").spent_rounds == 2


def test_a_child_of_a_child_cannot_write(tmp_path):
    with created(tmp_path / "run") as ledger:
        assert b"forked from it" in in_child(lambda: in_child(lambda: intent(ledger)))


def test_a_child_may_read(tmp_path):
    with created(tmp_path / "run") as ledger:
        intent(ledger)
        assert in_child(lambda: str(ledger.spent_rounds).encode()) == b"1"
        read = lambda: str(fp.Ledger.open(tmp_path / "run").spent_rounds).encode()  # noqa: E731
        assert in_child(read) == b"1"


@pytest.mark.parametrize("how", ["release", "with", "collected"])
def test_a_child_that_lets_go_does_not_unlock(tmp_path, how):
    kept = [created(tmp_path / "run")]

    def let_go():
        if how == "release":
            kept[0].release()
        elif how == "with":
            with kept[0]:
                pass
        else:
            kept.clear()

    assert in_child(let_go) == b""
    with pytest.raises(LedgerError, match="is being written by another"):
        fp.Ledger.open(tmp_path / "run", resume=True)
    intent(kept[0])
    kept[0].close()


def test_a_child_that_lives_on_does_not_keep_the_lock_of_a_parent_that_let_go(tmp_path):
    ledger = created(tmp_path / "run")
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        os.close(theirs)
        os.read(ours, 1)  # until the parent closes its end
        os._exit(0)
    try:
        intent(ledger)
        ledger.release()
        with fp.Ledger.open(tmp_path / "run", resume=True) as again:
            intent(again)
    finally:
        os.close(theirs)
        os.close(ours)
        os.waitpid(child, 0)
    assert fp.Ledger.open(tmp_path / "run").spent_rounds == 2


def test_a_killed_writer_s_child_is_named_where_the_lock_is_held(tmp_path):
    ours, theirs = os.pipe()
    writer = os.fork()
    if not writer:
        os.close(ours)
        ledger = created(tmp_path / "run")
        intent(ledger)
        child = os.fork()
        if not child:
            signal.alarm(60)
            signal.pause()
        os.write(theirs, str(child).encode())
        os.kill(os.getpid(), signal.SIGKILL)
    os.close(theirs)
    with os.fdopen(ours, "rb") as file:
        # The child holds the pipe's other end as well.
        child = int(os.read(file.fileno(), 20))
    os.waitpid(writer, 0)
    try:
        with pytest.raises(LedgerError, match="a child process that it forked may still hold"):
            fp.Ledger.open(tmp_path / "run", resume=True)
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_ledger_that_another_thread_writes_as_the_child_is_forked(tmp_path):
    """The child has the lock of a thread that it has not: it was to wait for it for ever."""
    with created(tmp_path / "run") as ledger, ledger._one_writer:
        assert b"forked from it" in in_child(lambda: intent(ledger))


ASKS = {
    "allows": lambda account, ledger: account.allows(ROUND),
    "spend": lambda account, ledger: account.spend(ROUND),
    "spent": lambda account, ledger: account.spent(),
    "keeps": lambda account, ledger: account.keeps([(ROUND, 2)]),
    "charge": lambda account, ledger: account.charge(ledger),
    "confirm": lambda account, ledger: account.confirm(ledger),
    "ended": lambda account, ledger: account.ended(ledger, 0),
    "seeded": lambda account, ledger: account.seeded(),
    "released": lambda account, ledger: account.released(
        ROUND, clip_norm=1.0, planned_std=10.0, used_std=5.0
    ),
    "copied": lambda account, ledger: __import__("copy").copy(account).allows(ROUND),
    "raised": lambda account, ledger: (
        __import__("dataclasses").replace(account, epsilon=2.0).allows(ROUND)
    ),
    "pickled": lambda account, ledger: pickle.loads(pickle.dumps(account)).spend(ROUND),
}


@pytest.mark.parametrize("what", ASKS)
def test_a_child_cannot_spend(tmp_path, what):
    """Four workers spent 2.123 of a budget of 1.0, without the parent's knowledge."""
    account = budget()
    account.spend(ROUND)
    created(tmp_path / "run").close()
    ledger = fp.Ledger.open(tmp_path / "run")
    told = in_child(lambda: ASKS[what](account, ledger))
    assert told.startswith(b"LedgerError: the budget belongs to process ") and b"\n" not in told
    # The parent continues unharmed; a separate copy spends its own budget.
    before = account.spent().upper
    ASKS[what](account, ledger)
    account.spend(ROUND)
    assert account.spent().upper > before > 0.0


def test_a_budget_that_another_thread_asks_as_the_child_is_forked():
    from fedprivacy.questions import budget as module

    account, held, go = budget(), threading.Event(), threading.Event()

    def hold():
        with module._ONE_AT_A_TIME:
            held.set()
            go.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        assert held.wait(60)
        assert b"belongs to process" in in_child(lambda: account.spend(ROUND))
    finally:
        go.set()
        thread.join()


def test_a_new_budget_in_a_child_is_its_own():
    assert in_child(lambda: str(budget().allows(ROUND)).encode()) == b"True"


def test_a_child_draws_noise_of_its_own():
    """Neither numbers that were drawn ahead nor a generator's state are used twice.

    There are 128 numbers of a standard deviation of at least 2^20 spacings. Two arrays share their
    first eight numbers with a probability below 2^-160.
    """
    value = np.zeros(128)
    sum_of = fp.Gaussian(noise_multiplier=1.0)

    def draw():
        return np.asarray(sum_of.release(value)).tobytes()

    draw()
    found = [draw(), *(in_child(draw) for _ in range(4)), draw()]
    assert all(len(one) == len(found[0]) for one in found)
    assert len({one[:64] for one in found}) == len(found)
