"""Fixtures: seeded randomness, slow cells, and limits on the time of a test.

No test depends on unseeded randomness or on the load: see ``randomness.py`` and ``repeatable``.

Of a test with three or more parameters the cells that show no pair of values for the first time
are slow, and so are two of three seeds where there are many. The mark ``fast_cells(3)`` makes all
cells but three slow, and ``fast_cells("a-1", "b-2")`` all but those with these ids.
``make test-slow`` runs them.

A test that is not slow should take at most ``LONG`` seconds of processor time. A list of the slower
ones ends a run. It does not fail the run, since a busy machine is slower; see CONTRIBUTING.md.
"""

import contextlib
import gc
import importlib
import os
from itertools import combinations

import hypothesis
import pytest
from hypothesis.internal.conjecture import providers

# Imported first, so that its generator is seeded for every test and not only for later ones.
with contextlib.suppress(ImportError):
    importlib.import_module("torch")

from fedprivacy import accountants
from fedprivacy.loss import clock
from tests.randomness import Kept, Looks, Stream

STREAM, KEPT = Stream(), Kept()

# The same examples in every run. A slow machine is no error.
hypothesis.settings.register_profile(
    "repeatable",
    derandomize=True,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("repeatable")
# Hypothesis draws constants that it finds in the local modules that are imported so far, which
# depends on the order of the tests. It finds none.
providers.is_local_module_file = lambda path: False

LONG = 2.0
"""Seconds of processor time, of the process and of those that it started and waited for."""

TAKEN = "processor time"
BEGUN = pytest.StashKey[float]()


SEEDS = "seed"
"""The parameter whose values are of one kind."""
MANY = 9
"""From so many seeds on, every third is taken."""


def pytest_addoption(parser):
    """Let a run choose what every test draws."""
    parser.addoption(
        "--randomness",
        type=int,
        default=0,
        metavar="SEED",
        help="what tests draw in the place of the operating system's randomness (default: 0)",
    )


def pytest_configure(config):
    """Put the stream between this process and the operating system.

    Collected tests are kept to the end, so the garbage collector leaves them out.
    """
    gc.disable()
    STREAM.install()


def pytest_collection_finish():
    """Start the garbage collector again, for objects that tests make."""
    gc.freeze()
    gc.enable()


@contextlib.contextmanager
def known(config, name, system=False):
    """Draw from the stream of a name, unless the system is wanted, and count looks at the clock."""
    stream = contextlib.nullcontext() if system else STREAM.scope(config.option.randomness, name)
    with stream, pytest.MonkeyPatch.context() as patch:
        patch.setattr(clock, "now", Looks())
        yield


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """Let a module draw the same whenever it is imported."""
    with known(collector.config, collector.nodeid):
        report = yield
    if isinstance(collector, pytest.Module) and report.passed:
        KEPT.note(collector.obj)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef, request):
    """Let what several tests share draw the same whichever test comes first."""
    if fixturedef.scope == "function":
        return (yield)
    name = f"{fixturedef.baseid}::{fixturedef.argname}[{getattr(request, 'param_index', 0)}]"
    with known(request.config, name):
        return (yield)


@pytest.fixture(autouse=True)
def repeatable(request):
    """Draw known bytes in the place of the operating system's; see ``randomness.py``.

    A test that is marked ``system_randomness`` draws from the operating system.
    """
    KEPT.again(request.module)
    system = request.node.get_closest_marker("system_randomness") is not None
    with known(request.config, request.node.nodeid, system):
        yield


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark cells as slow that add neither a pair of values nor a seed in turn."""
    tests = {}
    for item in items:
        if hasattr(item, "callspec") and item.get_closest_marker("slow") is None:
            tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for cells in tests.values():
        for item in rest_of(cells):
            item.add_marker(pytest.mark.slow)
        few = cells[0].get_closest_marker("fast_cells")
        if few is not None:
            left = [cell for cell in cells if cell.get_closest_marker("slow") is None]
            for item in set(left) - set(chosen(left, *few.args)):
                item.add_marker(pytest.mark.slow)


def rest_of(cells):
    """Yield the cells of one test that are left for a longer run."""
    seeds = list(dict.fromkeys(cell.callspec.params.get(SEEDS) for cell in cells))
    met = set()
    for cell in cells:
        axes = sorted(axes_of(cell))
        seed = seeds.index(cell.callspec.params.get(SEEDS))
        pairs = {(seed, *pair) for pair in combinations(axes, 2)}
        if (len(seeds) >= MANY and seed % 3) or (len(axes) > 2 and pairs <= met):
            yield cell
        else:
            met |= pairs


def chosen(cells, *names):
    """Return the cells with these ids; all cells if a run selects others."""
    if isinstance(names[0], int):
        return most_different(cells, *names)
    return [cell for cell in cells if cell.callspec.id in names] or cells


def most_different(cells, count):
    """Return this many cells that show as many values as possible, from far apart in the list."""
    axes = [{(name, id(it)) for name, it in cell.callspec.params.items()} for cell in cells]
    taken, met = [], set()

    def use(at):
        return len(axes[at] - met), min((abs(at - one) for one in taken), default=0), -at

    for _ in range(min(count, len(cells))):
        best = max(set(range(len(cells))) - set(taken), key=use)
        taken.append(best)
        met |= axes[best]
    return [cells[at] for at in taken]


def axes_of(cell):
    """Yield the names of each parametrize mark but the seeds', and which values these are."""
    given = cell.callspec.params
    for mark in cell.iter_markers("parametrize"):
        names = mark.args[0]
        names = names.replace(",", " ").split() if isinstance(names, str) else names
        # One value of a list is one object, whatever it is equal to.
        if names != [SEEDS]:
            yield tuple(names), tuple(id(given[name]) for name in names)


def spent() -> float:
    """Return the seconds of processor time so far."""
    return sum(os.times()[:4])


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item):
    """Note when a test begins, so that its fixtures count too."""
    item.stash[BEGUN] = spent()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Write what it took into the last report of a test, which reaches the terminal."""
    report = yield
    if call.when == "teardown" and item.get_closest_marker("slow") is None:
        report.user_properties.append((TAKEN, spent() - item.stash[BEGUN]))
    return report


def pytest_terminal_summary(terminalreporter):
    """Tell which tests took longer than they may."""
    found = []
    for reports in terminalreporter.stats.values():
        for report in reports:
            told = dict(getattr(report, "user_properties", ()))
            if getattr(report, "when", "") == "teardown" and told.get(TAKEN, 0.0) > LONG:
                found.append((told[TAKEN], report.nodeid))
    if found:
        terminalreporter.section(f"tests of more than {LONG:g} s of processor time, not slow")
        for seconds, name in sorted(found, reverse=True):
            terminalreporter.write_line(f"{seconds:6.1f} s  {name}")


@pytest.fixture
def no_plots(monkeypatch):
    """Leave the plots out of pages whose text a test reads."""
    monkeypatch.setattr("fedprivacy.audit.reporting.plots_of", lambda *given: [])


@pytest.fixture
def narrowest(request, monkeypatch):
    """Let audits ask one accountant, the narrowest, where a test is about something else."""
    if request.node.get_closest_marker("every_accountant") is None:
        one = {"pld": accountants.ACCOUNTANTS["pld"]}
        monkeypatch.setattr("fedprivacy.audit.accounting.ACCOUNTANTS", one)


@pytest.fixture
def one_thread():
    """Keep torch to one thread, so that sums round alike on every machine."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
