"""``truth`` importable from every folder of tests, which cells are slow, how long a test may take.

Of a test with three or more parameters the cells that show no pair of values for the first time
are slow, and so are two of three seeds where there are many: ``make test-slow`` runs them.

A test that is not slow should take no more than ``LONG`` seconds of processor time. Which ones do
is told at the end of a run and fails nobody, since a busy machine is slower; CONTRIBUTING.md says
what to do about it.
"""

import os
import sys
from itertools import combinations
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

LONG = 2.0
"""Seconds of processor time, of the process and of those that it started and waited for."""

TAKEN = "processor time"
BEGUN = pytest.StashKey[float]()


SEEDS = "seed"
"""The parameter whose values are of one kind."""
MANY = 9
"""From so many seeds on, every third is taken."""


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
def one_thread():
    """Keep torch to one thread, so that sums round alike on every machine."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
