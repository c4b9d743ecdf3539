"""A pytest plugin: ``pytest -p fedprivacy.vectors.plugin --privacy-vectors mine.py``.

Every case is a test. It fails if the answer is wrong, too slow or no answer, and is skipped if the
adapter refuses it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .cases import VectorCase, cases
from .judging import VectorOutcome
from .runner import SECONDS, Adapter


def pytest_addoption(parser: Any) -> None:
    """Add the options."""
    group = parser.getgroup("privacy vectors")
    group.addoption("--privacy-vectors", metavar="ADAPTER", help="adapter of an accountant")
    group.addoption("--privacy-vectors-family", action="append", default=[])
    group.addoption("--privacy-vectors-tenth", action="store_true")
    group.addoption("--privacy-vectors-seconds", type=float, default=SECONDS)


def pytest_configure(config: Any) -> None:
    """Let pytest collect the adapter."""
    adapter = config.getoption("privacy_vectors")
    if adapter and adapter not in config.args:
        config.args.append(adapter)


def pytest_collect_file(file_path: Path, parent: Any) -> Any:
    """Return the cases for an adapter that pytest finds in a folder."""
    return None if parent.session.isinitpath(file_path) else _cases(file_path, parent)


def pytest_pycollect_makemodule(module_path: Path, parent: Any) -> Any:
    """Return the cases in the place of a module of tests, for an adapter that pytest is given."""
    return _cases(module_path, parent)


def _cases(path: Path, parent: Any) -> Any:
    adapter = parent.config.getoption("privacy_vectors")
    chosen = adapter and path == Path(adapter).resolve()
    return VectorFile.from_parent(parent, path=path) if chosen else None


class VectorFile(pytest.File):
    """The cases as tests, which share one process of the adapter."""

    def collect(self) -> Iterator[pytest.Item]:
        """Yield a test for each case."""
        option = self.config.getoption
        every = 10 if option("privacy_vectors_tenth") else 1
        for case in cases(option("privacy_vectors_family"), every):
            yield VectorItem.from_parent(self, name=case.id, case=case)

    def setup(self) -> None:
        """Start the adapter."""
        seconds = self.config.getoption("privacy_vectors_seconds")
        self.adapter = Adapter(str(self.path), seconds=seconds)

    def teardown(self) -> None:
        """End the adapter."""
        self.adapter.close()


class VectorItem(pytest.Item):
    """One case as a test."""

    parent: VectorFile

    def __init__(self, *, case: VectorCase, **rest: Any) -> None:
        super().__init__(**rest)
        self.case = case

    def runtest(self) -> None:
        """Ask and judge."""
        result = self.parent.adapter.ask(self.case)
        if result.outcome is VectorOutcome.REFUSED:
            pytest.skip(result.detail)
        if result.outcome not in (VectorOutcome.CONTAINED, VectorOutcome.LOOSE):
            words = self.case.question["words"]
            pytest.fail(f"{result.outcome}: {result.detail}\n{words}", pytrace=False)

    def reportinfo(self) -> tuple[Path, None, str]:
        """Return the place that a report names."""
        return self.path, None, self.case.id
