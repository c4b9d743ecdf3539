"""``truth`` importable from every folder of tests, and how long a test may take.

A test that is not slow should take no more than ``LONG`` seconds of processor time. Which ones do
is told at the end of a run and fails nobody, since a busy machine is slower; CONTRIBUTING.md says
what to do about it.
"""

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

LONG = 2.0
"""Seconds of processor time, of the process and of those that it started and waited for."""

TAKEN = "processor time"
BEGUN = pytest.StashKey[float]()


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
