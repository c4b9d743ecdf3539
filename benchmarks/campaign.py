"""A random test campaign of the accounting, which runs until a time limit.

``python benchmarks/campaign.py [--seconds 300] [--settings N] [--seed 1] [--workers 1] [--each 5]
[--fresh]``. The progress of a seed is kept in ``benchmarks/results/campaign.json``. A later call
continues from there while the package is unchanged. Every contradiction is printed with code that
reproduces it, and the exit code is then 1. ``--page`` writes the tables of
``benchmarks/results/campaign.md``.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import campaign_checks
import campaign_settings
import campaign_tiny
from campaign_checks import Found, Report

import fedprivacy

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "campaign.json"
PAGE = HERE / "results" / "campaign.md"
CHUNK = 25
_TINY, _CLIPPED = 6, 40
"""Periods of the settings with a tiny population, and of those with a vector to clip."""
_MARK = "<!-- written by benchmarks/campaign.py -->"


def one(seed: int, index: int) -> Report:
    """Check the setting ``index`` of a seed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if index % _CLIPPED == _CLIPPED - 1:
            return campaign_tiny.clipping(seed, index)
        if index % _TINY == _TINY - 1:
            return campaign_tiny.check(seed, index)
        return campaign_checks.check(campaign_settings.setting(seed, index))


def chunk(task: tuple[int, int, float]) -> Report:
    """Check a chunk of settings."""
    seed, begin, each = task
    campaign_checks.give_up_after(each)
    report = Report()
    for index in range(begin, begin + CHUNK):
        report.add(one(seed, index))
    return report


def version() -> str:
    """Return a short fingerprint of the package's code."""
    digest = hashlib.sha256()
    for path in sorted(Path(fedprivacy.__file__).parent.rglob("*.py")):
        digest.update(path.read_bytes())
    for path in sorted(HERE.glob("campaign*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def reports(seed: int, begin: int, end: int, workers: int, each: float) -> Iterator[Report]:
    """Yield reports of chunks, in order."""
    tasks = ((seed, k, each) for k in range(begin, end, CHUNK))
    if workers == 1:
        yield from map(chunk, tasks)
        return
    with multiprocessing.get_context("spawn").Pool(workers, maxtasksperchild=40) as pool:
        yield from pool.imap(chunk, tasks)


def campaign(arguments: argparse.Namespace) -> dict[str, Any]:
    """Continue a seed until the time or the settings are used up; return its state."""
    state = _state(arguments)
    begun, before = time.monotonic(), state["seconds"]
    total = Report([Found(*one) for one in state["found"]])
    total.counts, total.refusals = Counter(state["counts"]), Counter(state["refusals"])
    print(f"seed {arguments.seed}, from setting {state['next']}, code {state['code']}", flush=True)
    span = state["next"], arguments.settings
    for report in reports(arguments.seed, *span, arguments.workers, arguments.each):
        total.add(report)
        for found in report.found:
            print(f"VIOLATION {found.setting}: {found.check}\n  {found.detail}\n  {found.snippet}")
        state["next"] += CHUNK
        state["seconds"] = round(before + time.monotonic() - begun, 1)
        state |= {"found": [list(found) for found in total.found]}
        state |= {"counts": _sorted(total.counts), "refusals": _sorted(total.refusals)}
        _write(arguments.results, arguments.seed, state)
        sys.stdout.flush()
        if time.monotonic() - begun > arguments.seconds:
            break
    return state


def _sorted(counts: Counter[str]) -> dict[str, int]:
    return dict(sorted(counts.items()))


def _state(arguments: argparse.Namespace) -> dict[str, Any]:
    fresh = {
        "code": version(),
        "next": 0,
        "seconds": 0.0,
        "found": [],
        "counts": {},
        "refusals": {},
    }
    kept = _read(arguments.results).get(str(arguments.seed))
    if arguments.fresh or kept is None:
        return fresh
    if kept["code"] != fresh["code"]:
        print("the code has changed since this seed was begun: it begins again")
        return fresh
    return kept


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.exists() else {}


def _write(path: Path, seed: int, state: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(_read(path) | {str(seed): state}, indent=1) + "\n")
    partial.replace(path)


def table(state: dict[str, Any]) -> str:
    """Return the summary of one seed as a table."""
    counts, named = state["counts"], Counter(found[1] for found in state["found"])
    rows = ["| compared | how often | contradictions |", "|---|---:|---:|"]
    checks = {
        k.removeprefix("compared: "): n for k, n in counts.items() if k.startswith("compared")
    }
    for check in sorted(checks | named):
        rows.append(f"| {check} | {checks.get(check, 0)} | {named.get(check, 0)} |")
    told = (
        f"{counts.get('settings', 0)} settings in {state['seconds'] / 60:.0f} minutes, "
        f"{counts.get('accounted', 0) + counts.get('tiny', 0)} of them accounted, "
        f"{sum(state['refusals'].values())} refused; {sum(checks.values())} comparisons, "
        f"{len(state['found'])} contradictions; {counts.get('models', 0)} numbers computed apart."
    )
    return "\n".join([told, "", *rows])


def page(results: Path) -> None:
    """Write the tables of every seed into the documentation."""
    text = PAGE.read_text().split(_MARK)[0]
    parts = [f"Seed {seed}: {table(state)}\n" for seed, state in _read(results).items()]
    PAGE.write_text(text + _MARK + "\n\n" + "\n".join(parts))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300.0, help="when to stop")
    parser.add_argument("--settings", type=int, default=10**9, help="how many at most")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--each", type=float, default=5.0, help="CPU seconds of a setting, at most")
    parser.add_argument("--fresh", action="store_true", help="forget what this seed was asked")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--page", action="store_true", help="write the documentation's table only")
    arguments = parser.parse_args()
    if arguments.page:
        page(arguments.results)
        return 0
    state = campaign(arguments)
    print(table(state))
    for kind, count in sorted(state["refusals"].items(), key=lambda item: -item[1])[:20]:
        print(f"refused {count} times: {kind}")
    return 1 if state["found"] else 0


if __name__ == "__main__":
    sys.exit(main())
