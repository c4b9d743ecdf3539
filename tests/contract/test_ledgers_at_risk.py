"""Every loop stops if its ledger is removed or the disk is full.

No round is released before it is counted, no noise is drawn for a round that is not recorded, and
the next start resumes.
"""

import resource
import signal
from contextlib import contextmanager
from dataclasses import replace

import pytest

import fedprivacy as fp
from fedprivacy.errors import LedgerError
from fedprivacy.ledger import Ledger
from fedprivacy.mechanisms import DistributedDiscreteGaussian, Skellam
from fedprivacy.mechanisms.exact_normals import StoredDraws
from fedprivacy.runs.progress_logging import to_csv
from fedprivacy.systems.averaging.loop import FederatedAveraging
from fedprivacy.training import logistic, save_model, train
from tests.contract.test_sabotage import BENCHES, Averaging, Sampler
from tests.systems.averaging.test_loop import small
from tests.systems.averaging.test_server import START, a_budget, a_server, units
from tests.test_outputs import removed, replaced, rotated, truncated

pytestmark = pytest.mark.usefixtures("one_thread")


def whole(kind):
    """Averaging with integer noise."""
    noise = kind(noise_multiplier=4.0, clip_norm=1.0, dimension=8, cohort=3, bits=10)
    scheme = fp.FixedSize(3, 6)
    loop = FederatedAveraging(
        model=logistic(3, 2), scheme=scheme, perturbation=noise, local_steps=1
    )
    return loop, small()


def a_loop(name):
    """Return a function (state, ledger, on_release) -> state, the first state, and the unit."""
    if name == "server":
        server = a_server(fp.Gaussian(noise_multiplier=1.0, clip_norm=0.5, unit="client"))

        def served(state, ledger, on_release=None):
            running = server.collected(state, server.cohort(state.round), server.mask(state))
            books = server.books(ledger, a_budget())
            after, _ = server.step(state, running, units(), books)
            if on_release is not None:
                on_release(after)
            return after

        return served, START, "client"
    loop, data, unit = begun(name)

    def stepped(state, ledger, on_release=None):
        return loop.step(state, data, ledger=ledger, on_release=on_release)[0]

    return stepped, loop.init(), unit


def begun(name):
    """Return a loop, its data and the unit."""
    bench = BENCHES.get(name)
    if bench is None:
        kind = {"skellam": Skellam, "discrete": DistributedDiscreteGaussian}[name]
        return *whole(kind), "client"
    if isinstance(bench, Averaging):
        return bench.loop(), bench.data(), "client"
    centred = isinstance(bench, Sampler)
    return *((bench.centred(), None) if centred else bench.loop(bench.zeros())), "record"


def new(path, unit, name):
    policy = "fixed" if name == "server" else "operating system"
    # For records, some loops have theorems only for replacement.
    adjacency = "zero_out" if unit == "client" else "replace_one"
    return Ledger.create(path, unit=unit, adjacency=adjacency, seed_policy=policy)


LOOPS = [*BENCHES, "skellam", "discrete", "server"]
WRITTEN = pytest.mark.parametrize("name", LOOPS)


@WRITTEN
@pytest.mark.parametrize("harm", [removed, replaced, rotated, truncated])
def test_no_loop_draws_noise_for_a_ledger_that_is_gone(name, harm, tmp_path, monkeypatch):
    path, drawn = tmp_path / "run.ledger", []
    step, state, unit = a_loop(name)
    with new(path, unit, name) as ledger:
        state = step(state, ledger)
        assert ledger.spent_rounds == 1
        harm(path)
        noise = StoredDraws.rounded
        monkeypatch.setattr(
            StoredDraws, "rounded", lambda *a, **k: drawn.append(1) or noise(*a, **k)
        )
        for _ in range(2):
            with pytest.raises(LedgerError, match=r"run\.ledger.*cannot be written, since"):
                step(state, ledger, drawn.append)
        assert not drawn


@contextmanager
def full_beyond(size):
    """Let no file become larger than so many bytes, as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)


@WRITTEN
@pytest.mark.parametrize("when", ["intent", "done"])
def test_a_disk_that_becomes_full_loses_nothing(name, when, tmp_path):
    path, seen = tmp_path / "run.ledger", []
    step, state, unit = a_loop(name)
    ledger = new(path, unit, name)
    # The length of a line, on a separate ledger: the lines before a release, and after it.
    other, ends = new(tmp_path / "other.ledger", unit, name), []
    begun = other.path.stat().st_size
    real = Ledger.intent
    with pytest.MonkeyPatch.context() as patch:

        def measured(self, *given, **named):
            number = real(self, *given, **named)
            ends.append(self.path.stat().st_size)
            return number

        patch.setattr(Ledger, "intent", measured)
        step(state, other)
    other.release()
    room = begun + 20 if when == "intent" else ends[0] + 20
    with full_beyond(room), pytest.raises((LedgerError, OSError)) as told:
        step(state, ledger, seen.append)
    assert str(path) in str(told.value) and "could not be written" in str(told.value)
    ledger.release()
    spent = Ledger.open(path).spent_rounds
    # DP-FTRL keeps its noise in a larger file next to the ledger, written before a round.
    assert spent == (when == "done" and name != "dp-ftrl") and len(seen) <= spent
    with Ledger.open(path, resume=True) as again:
        step(state, again)
        assert again.spent_rounds == 1 + spent


# Rows of correlated noise are not charged without a ledger.
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(one, marks=[pytest.mark.slow] * (one == "skellam"))
        for one in LOOPS
        if one not in ("server", "dp-ftrl")
    ],
)
def test_a_budget_without_a_ledger_says_that_the_seed_was_fixed(name):
    for seed, told in ((None, ()), (3, ("the seed was fixed",))):
        loop, data, unit = begun(name)
        loop = replace(loop, seed=seed)
        adjacency = "zero_out" if unit == "client" else "replace_one"
        budget = fp.Budget(1e9, 1e-5, adjacency=adjacency)
        loop.step(loop.init(), data, budget=budget)
        assert budget.spent().qualified == told


GIVEN = {
    "no state": ("state", None, "state must be a "),
    "a state's class": ("state", type, "state must be a "),
    "a ledger's class": ("ledger", Ledger, "ledger must be a Ledger or None"),
    "a number for a ledger": ("ledger", 5, "ledger must be a Ledger or None"),
    "a budget's class": ("budget", fp.Budget, "budget must be a Budget or None"),
    "a number for a budget": ("budget", 5, "budget must be a Budget or None"),
    "clients that drop out": ("dropout", {1}, "dropout must be a function or None"),
    "no function": ("on_release", 5, "on_release must be a function or None"),
    "a class to drop out by": ("dropout", set, "dropout must be a function or None"),
    "a class to be told": ("on_release", list, "on_release must be a function or None"),
}


@pytest.mark.parametrize("what", GIVEN)
@pytest.mark.parametrize("name", [one for one in LOOPS if one != "server"])
def test_what_a_step_cannot_take_is_refused_before_a_round_is_begun(name, what, tmp_path):
    """A dropout that is no function was found out in the round, and had spent it."""
    loop, data, unit = begun(name)
    argument, value, told = GIVEN[what]
    with new(tmp_path / "run.ledger", unit, name) as ledger:
        named = {"ledger": ledger, "state": loop.init()} | {argument: value}
        with pytest.raises(fp.ParameterError, match=told):
            loop.step(named.pop("state"), data, **named)
        assert ledger.begun_rounds == 0


@pytest.mark.parametrize("loop", [None, FederatedAveraging, 5])
def test_what_is_no_loop_trains_nothing(loop):
    with pytest.raises(fp.ParameterError, match="loop must be a training loop, got "):
        train(loop, small(), rounds=1)


@pytest.mark.parametrize("path", [None, 5, "", "/"])
def test_what_names_no_file_is_refused(path, tmp_path):
    found = fp.audit(fp.Gaussian(noise_multiplier=2.0), claim=(9.0, 1e-5), adjacency="add_remove")
    loop, _, _ = begun("dp-fedavg")
    calls = (
        lambda: Ledger.open(path),
        lambda: Ledger.create(path, unit="client", adjacency="zero_out"),
        lambda: fp.report(found, path),
        lambda: to_csv(path, loop, delta=1e-5, adjacency="zero_out"),
        lambda: save_model(path, loop, loop.init()),
    )
    for call in calls:
        with pytest.raises(
            fp.ParameterError, match=r"must be the path of a file, got .*; name one"
        ):
            call()


@pytest.mark.parametrize("name", [one for one in LOOPS if one not in ("server", "dp-ftrl")])
def test_rounds_that_a_ledger_does_not_have_are_not_gone_on_with(name, tmp_path):
    loop, data, unit = begun(name)
    state, _ = loop.step(loop.init(), data)
    with new(tmp_path / "run.ledger", unit, name) as ledger:
        with pytest.raises(
            fp.ParameterError, match="ledger must contain all 1 rounds of the state"
        ):
            loop.step(state, data, ledger=ledger)
        assert ledger.begun_rounds == 0


def test_a_csv_file_that_cannot_be_written_is_refused_before_a_round(tmp_path):
    loop, _, unit = begun("dp-fedavg")
    with new(tmp_path / "run.ledger", unit, "dp-fedavg") as ledger:
        for path in (tmp_path, ledger.path):
            with pytest.raises(fp.ParameterError, match=r"must (be a file or|not be a ledger)"):
                to_csv(path, loop, delta=1e-5, adjacency="zero_out")


def other_kinds(state):
    """States whose tensors, or whose round, are of another type, and their messages."""
    name = next(one for one in ("parameters", "positions", "models") if hasattr(state, one))
    tensor = getattr(state, name)
    yield name, replace(state, **{name: tensor.numpy()})
    yield name, replace(state, **{name: tensor.half()})
    yield name, replace(state, **{name: tensor[..., :-1]})
    yield "round", replace(state, round=-1)


@pytest.mark.parametrize("name", [one for one in LOOPS if one != "server"])
def test_a_state_of_other_kinds_spends_no_round(name, tmp_path):
    loop, data, unit = begun(name)
    with new(tmp_path / "run.ledger", unit, name) as ledger:
        for field, state in other_kinds(loop.init()):
            with pytest.raises(fp.ParameterError, match=rf"state\.{field}"):
                loop.step(state, data, ledger=ledger)
        assert ledger.begun_rounds == 0
