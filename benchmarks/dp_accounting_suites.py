"""Run the test suites of programs that use dp-accounting on certified numbers.

``python benchmarks/dp_accounting_suites.py`` installs every program of ``SUITES`` in an environment
of its own, in a temporary folder, with its newest dp-accounting. It takes the tests from the
package or its source distribution on PyPI, or from its repository. It runs them as they are, and
then with one change: ``python -m fedprivacy.integrations.dp_accounting -m pytest`` in place of
``python -m pytest``. The counts go to ``results/dp_accounting_suites.json`` and docs/comparison.md,
with the cause of every test that passes only without us. A failure without a cause in this file
gives exit status 1. It takes about half an hour, and 4 GB.

    --only NAME ...     these programs; the others keep their results
    --into DIR          a folder to keep, in place of the temporary one; runs on dp-accounting's own
                        numbers that it holds are not repeated
    --mirror DIR        bare repositories OWNER+NAME/repo, in place of github.com
    --page              write the page from the stored results
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import xml.etree.ElementTree as ET
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tables import table

ROOT = Path(__file__).parent.parent
RESULTS = Path(__file__).parent / "results" / "dp_accounting_suites.json"
TABLE = RESULTS.with_suffix(".md")
OURS = ["-m", "fedprivacy.integrations.dp_accounting"]
TESTS = ["-m", "pytest", "-q", "-c", "/dev/null", "-p", "no:cacheprovider", "--timeout=60"]
LIMIT = 1800
TREE = {**os.environ, "PYTHONPATH": str(ROOT)}
"""This tree is imported, also where an earlier one was installed."""


@dataclass(frozen=True)
class Suite:
    """One program: what to install, and where its tests are.

    Attributes:
        packages: for pip; the program itself is pinned.
        tests: files or folders below the source.
        sdist: the source distribution with the tests; empty if the package holds them.
        repository: OWNER/NAME, if only the repository has them.
        alone: packages installed without their dependencies, since others exclude them, or they
            exclude dp-accounting 0.6.
    """

    packages: tuple[str, ...]
    tests: tuple[str, ...]
    sdist: str = ""
    repository: str = ""
    alone: tuple[str, ...] = ()


_DPA = "dp_accounting"
_TF = "tensorflow_privacy/privacy/analysis"
SUITES = {
    "dp-accounting 0.6.0, contract and PLD": Suite(
        (), (f"{_DPA}/privacy_accountant_test.py", f"{_DPA}/pld/pld_privacy_accountant_test.py")
    ),
    "dp-accounting 0.6.0, RDP": Suite((), (f"{_DPA}/rdp/rdp_privacy_accountant_test.py",)),
    "dp-accounting 0.6.0, calibration": Suite((), (f"{_DPA}/mechanism_calibration_test.py",)),
    "TF-privacy 0.9.0": Suite(
        # The last TensorFlow with the estimators that TF-privacy imports.
        ("tensorflow-privacy==0.9.0", "tensorflow-cpu==2.15.1"),
        (
            f"{_TF}/compute_dp_sgd_privacy_test.py",
            f"{_TF}/compute_noise_from_budget_test.py",
            f"{_TF}/tree_aggregation_accountant_test.py",
        ),
        alone=("dp-accounting==0.6.0",),
    ),
    "jax_privacy 2.0.0": Suite(
        ("jax-privacy==2.0.0",),
        (
            "tests/accounting",
            "tests/experimental/accounting_test.py",
            "tests/experimental/execution_plan_test.py",
        ),
        sdist="jax-privacy==2.0.0",
    ),
    "pfl 0.6.0": Suite(
        ("prv-accountant", "multiprocess", "torch"),
        (
            "tests/privacy/test_privacy_accountant.py",
            "tests/privacy/test_joint_privacy_accountant.py",
        ),
        repository="apple/pfl-research",
        alone=("pfl==0.6.0",),
    ),
    "riskcal 1.5.1": Suite(
        ("riskcal==1.5.1", "opacus==1.6.0", "torch"), ("tests",), sdist="riskcal==1.5.1"
    ),
    "gdpnum 0.1.2": Suite(("gdpnum==0.1.2",), ("tests",), sdist="gdpnum==0.1.2"),
    "PLD_accounting 2.0": Suite(
        ("PLD-accounting==2.0", "pandas"), ("tests",), sdist="PLD-accounting==2.0"
    ),
}

LARGER = "theirs: a bound that is larger than need be"
SERVED = "theirs: not served"
WIDER = "ours: a bound that is larger than need be"
SLOW = "ours: slow"
NOBODY = "nobody's"
CAUSES: list[tuple[str, str, str]] = [
    (
        r"relation[123]: |laplace_not_supp|_supports: ",
        "an event refused under a relation where it has a loss here",
        SERVED,
    ),
    (r"does not match", "their words in the message of a refusal", NOBODY),
    (r"test_log_a_frac_early", "a warning of their own series", NOBODY),
    (
        r"PLD: .*test_truncated",
        "an epsilon of truncated samples at 1e-6, where less is certified",
        LARGER,
    ),
    (r"PLD: .*test_mixture", "a delta to 12 places; ours is 5e-5 larger, within its width", WIDER),
    (
        r"test_laplace_repetition",
        "100 for 100 Laplace(1) releases at 1e-10; 81.57 is certified",
        LARGER,
    ),
    (
        r"test_compute_rdp_poisson_sampled",
        "6.706e-4 at order 1.5; the integral is 6.501e-4",
        LARGER,
    ),
    (r"test_repeat_select_trivial", "1 % more for one run than the run has", LARGER),
    (
        r"test_repeat_and_select_gaussian_poisson",
        "the best of their orders; a higher one says less, and orders are monotone",
        LARGER,
    ),
    (
        r"test_repeat_and_select_pure_poisson_mean1: ",
        "the best of one pure run at one order; ours is .6 % larger",
        WIDER,
    ),
    (
        r"test_repeat_and_select_pure_poisson_mean10\^10: ",
        "the best of 1e10 pure runs at one order; ours is 2 million times larger",
        WIDER,
    ),
    (
        r"test_repeat_(select_pure|and_select_pure)",
        "the best of several pure runs by their formula; ours is smaller",
        LARGER,
    ),
    (
        r"test_repeat_select_gaussian_neg",
        "the best of several runs at their orders; chords between ours are up to 0.3 % more",
        WIDER,
    ),
    (
        r": Failed: Timeout",
        "an answer within 60 s: masses of a run with little noise take 20 s",
        SLOW,
    ),
    (
        r"TF-privacy.*_no_microbatching_with_subsampling_pld: ",
        "2.4612381 to 7 places; 2.4612377 is certified",
        LARGER,
    ),
    (
        r"TF-privacy.*_microbatching_with_subsampling_pld: ",
        "18.6977407 to 7 places; ours is 1.4e-5 larger, within its width",
        WIDER,
    ),
    (
        r"TF-privacy",
        "the number of Renyi divergences, alone or in a statement; a smaller one is certified",
        LARGER,
    ),
    (
        r"jax_privacy.*MaxBatchSize|jax_privacy.*noise_truncated|jax_privacy.*(size|updates)_trunc",
        "a number of truncated batches, or noise or size from it; a smaller one is certified",
        LARGER,
    ),
    (
        r"jax_privacy.*([uU]ser_?[lL]evel|user_level)",
        "a number on a lattice of 1e-2 (5.000; a lattice of 1e-4 has 4.605), or noise from it",
        LARGER,
    ),
    (
        r"jax_privacy.*test_compute_epsilon_via_pld",
        "2.09245 to 1e-5; 2.092385 is certified",
        LARGER,
    ),
    (
        r"jax_privacy",
        "the number of Renyi divergences, or noise or size from it; a smaller one is certified",
        LARGER,
    ),
]
"""(pattern of "suite: test: message", reason, which side is at fault); the first match counts."""

STATEMENT = """
from tensorflow_privacy.privacy.analysis import compute_dp_sgd_privacy_lib as lib
print(lib.compute_dp_sgd_privacy_statement(60_000, 250, 60, 1.1, 1e-5, used_microbatching=False))
"""


@dataclass
class Outcome:
    """The tests of one run: counts by outcome, and the failures with their messages."""

    counts: Counter[str] = field(default_factory=Counter)
    failed: dict[str, str] = field(default_factory=dict)


class Place:
    """An environment and the tests of one program."""

    def __init__(self, name: str, suite: Suite, folder: Path, mirror: Path | None) -> None:
        self.suite = suite
        # Suites of one program share its environment.
        self.folder = folder / re.sub(r"\W+", "-", name.partition(",")[0])
        self.name = re.sub(r"\W+", "-", name)
        self.python = self.folder / "bin" / "python"
        if not (self.folder / "ready").exists():
            self._install()
            self.sources = self._fetch(mirror)
            (self.folder / "ready").write_text(str(self.sources))
        self.sources = Path((self.folder / "ready").read_text())

    def _install(self) -> None:
        done([sys.executable, "-m", "venv", str(self.folder)])
        alone = {package.partition("==")[0] for package in self.suite.alone}
        # Ours too without its dependencies, which may be among those that the program excludes.
        needed = [one for one in _dependencies() if one.partition(">=")[0] not in alone]
        self._pip("install", *needed, "pytest", "pytest-timeout", "absl-py", *self.suite.packages)
        for package in (str(ROOT), *self.suite.alone):
            self._pip("install", "--no-deps", package)

    def _pip(self, *arguments: str) -> None:
        constraints = ["-c", str(ROOT / "constraints.txt")]
        done([str(self.python), "-m", "pip", *arguments, "-q", *constraints])

    def _fetch(self, mirror: Path | None) -> Path:
        """Return the folder that the tests are below."""
        if self.suite.repository:
            return self._cloned(mirror)
        if not self.suite.sdist:
            return next((self.folder / "lib").glob("python*")) / "site-packages"
        loads = self.folder / "sdist"
        self._pip(
            "download", "--no-deps", "--no-binary", ":all:", "-d", str(loads), self.suite.sdist
        )
        (archive,) = loads.glob("*.tar.gz")
        with tarfile.open(archive) as packed:
            packed.extractall(loads, filter="data")
        return next(path for path in loads.iterdir() if path.is_dir())

    def _cloned(self, mirror: Path | None) -> Path:
        target = self.folder / "repository"
        owner = self.suite.repository
        known = mirror / owner.replace("/", "+") / "repo" if mirror else None
        address = str(known) if known and known.exists() else f"https://github.com/{owner}"
        done(["git", "clone", "-q", "--depth", "1", address, str(target)])
        return target

    def run(self, ours: bool) -> Outcome:
        """Run the tests, on certified numbers or on dp-accounting's own."""
        report = self.folder / f"{self.name}-{'ours' if ours else 'theirs'}.xml"
        if not ours and report.exists():
            return read(report)
        tests = [str(self.sources / each) for each in self.suite.tests]
        command = [str(self.python), *(OURS if ours else []), *TESTS, f"--junitxml={report}"]
        # No conftest: a suite's own needs programs of other parts.
        command += ["--noconftest", "--rootdir", str(self.folder), *tests]
        log = report.with_suffix(".log")
        with log.open("w") as out:
            asked: dict[str, Any] = {"stdout": out, "stderr": out, "timeout": LIMIT, "env": TREE}
            subprocess.run(command, cwd=self.folder, check=False, **asked)
        return read(report)

    def statement(self, ours: bool) -> list[float]:
        """Return the two epsilons of TF-privacy's statement."""
        script = self.folder / "statement.py"
        script.write_text(STATEMENT)
        command = [str(self.python), *(OURS if ours else []), str(script)]
        text = subprocess.run(command, capture_output=True, text=True, check=True, env=TREE).stdout
        return [float(each) for each in re.findall(r"^    Epsilon.*?([\d.]+)$", text, re.M)]


def _dependencies() -> list[str]:
    """Return what this package needs."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    found: list[str] = declared["project"]["dependencies"]
    return found


def done(command: list[str]) -> None:
    """Run a command that must succeed."""
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def read(report: Path) -> Outcome:
    """Return the outcome in a JUnit file."""
    found = Outcome()
    for case in ET.parse(report).getroot().iter("testcase"):
        ends = [part for part in case if part.tag in ("failure", "error", "skipped")]
        kind = ends[0].tag if ends else "passed"
        found.counts["failed" if kind in ("failure", "error") else kind] += 1
        if kind in ("failure", "error"):
            name = f"{case.get('classname', '').rpartition('.')[2]}.{case.get('name')}"
            text = " ".join(f"{ends[0].get('message') or ''}".split())
            found.failed[name] = text[:300]
    return found


def cause(suite: str, test: str, message: str) -> tuple[str, str]:
    """Return the reason of a failure, and which side is at fault."""
    for pattern, why, whose in CAUSES:
        if re.search(pattern, f"{suite}: {test}: {message}"):
            return why, whose
    return f"unknown: {test}", "unknown"


def measured(name: str, suite: Suite, folder: Path, mirror: Path | None) -> dict[str, Any]:
    """Return the numbers of one program."""
    place = Place(name, suite, folder, mirror)
    theirs, ours = place.run(False), place.run(True)
    only = {test: text for test, text in ours.failed.items() if test not in theirs.failed}
    row: dict[str, Any] = {
        "theirs": dict(theirs.counts),
        "ours": dict(ours.counts),
        "failed before": sorted(theirs.failed),
        "failed with ours": only,
    }
    if name.startswith("TF-privacy"):
        row["statement"] = {"theirs": place.statement(False), "ours": place.statement(True)}
    return row


def page(results: dict[str, Any]) -> int:
    """Write the tables; return the number of failures without a cause."""
    rows, causes = [], []
    unknown = 0
    for name in SUITES:
        if name not in results:
            continue
        row = results[name]
        theirs, ours, failed = row["theirs"], row["ours"], row["failed with ours"]
        total = ours.get("passed", 0) + ours.get("failed", 0)
        own = len(row["failed before"])
        rows.append(
            [name, str(total), str(theirs.get("passed", 0)), str(ours.get("passed", 0)), str(own)]
        )
        found = Counter(cause(name, test, text) for test, text in failed.items())
        for (why, whose), count in found.most_common():
            causes.append([name, str(count), why, whose])
            unknown += whose == "unknown"
    head = ["program", "tests", "pass as they are", "pass on certified numbers", "fail anyway"]
    statement = results.get("TF-privacy 0.9.0", {}).get("statement")
    text = table(head, rows) + "\n\n"
    text += table(["program", "tests", "what the failing tests ask", "whose"], causes)
    if statement:
        once, poisson = statement["ours"]
        before = "{:.3f} and {:.3f}".format(*statement["theirs"])
        text += (
            "\n\nTF-privacy's statement for its own run (60,000 examples, batches of 250, 60 "
            f"epochs, noise\nmultiplier 1.1, delta 1e-5) prints {once:.3f} (each example once per "
            f"epoch) and {poisson:.3f} (Poisson)\nin place of {before}."
        )
    TABLE.write_text(text + "\n")
    return unknown


def main() -> int:
    """Measure, and write the results and the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", nargs="+", choices=sorted(SUITES), default=list(SUITES))
    parser.add_argument("--into", type=Path)
    parser.add_argument("--mirror", type=Path)
    parser.add_argument("--page", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="suites-") as temporary:
        folder = (given.into or Path(temporary)).resolve()
        for name in [] if given.page else given.only:
            row = measured(name, SUITES[name], folder, given.mirror)
            # Another process may have measured other programs meanwhile.
            results = stored() | {name: row}
            print(name, row["ours"], flush=True)
            RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
    return int(page(stored()) > 0)


def stored() -> dict[str, Any]:
    """Return the results of all programs so far."""
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


if __name__ == "__main__":
    sys.exit(main())
