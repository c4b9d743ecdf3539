"""Tests of ``fedprivacy.runs.progress``."""

import io
import re
import sys
from types import SimpleNamespace

import pytest

from fedprivacy.runs import progress


class Terminal(io.StringIO):
    """Standard error that is a terminal."""

    def isatty(self):
        return True


def worked():
    """Take one step of each kind."""
    with progress.Steps() as steps:
        with steps.share("not begun"):
            pass
        with steps.share("searching") as tick:
            tick(0.5)
            tick(1.0)
        with steps.count("runs", 2) as one:
            one()
        with steps.rounds("rounds", 5) as tick:
            tick(SimpleNamespace(round=3), None)
        with steps.step("writing"):
            pass


def test_each_step_that_began_leaves_one_line_on_standard_error(capsys):
    worked()
    out, err = capsys.readouterr()
    told = [re.sub(r" 0:00:\d\d$", "", line) for line in err.splitlines()]
    assert out == "" and told == [
        f"searching{' ' * 20}[{'#' * 30}] 100/100",
        f"runs{' ' * 25}[{'#' * 15}{'.' * 15}] 1/2",
        f"rounds{' ' * 23}[{'#' * 30}] 5/5",
        f"writing{' ' * 21}",
    ]


def test_a_terminal_sees_the_line_at_once_and_again(monkeypatch):
    screen, now = Terminal(), [0.0]
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(progress, "monotonic", lambda: now[0])
    with progress.Steps() as steps, steps.count("runs", 100) as one:
        assert screen.getvalue().startswith("\rruns ") and "0/100" in screen.getvalue()
        one()
        assert "1/100" not in screen.getvalue()
        now[0] = 3723.0
        one()
        assert screen.getvalue().endswith("2/100 1:02:03")
    assert screen.getvalue().count("\n") == 1 and screen.getvalue().endswith("\n")


def test_a_step_that_fails_says_how_far_it_came(capsys):
    with (
        pytest.raises(RuntimeError),
        progress.Steps() as steps,
        steps.rounds("rounds", 4) as tick,
    ):
        tick(SimpleNamespace(round=2), None)
        raise RuntimeError
    assert "] 2/4 " in capsys.readouterr().err
