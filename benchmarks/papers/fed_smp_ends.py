"""Compare the last rounds of runs of Fed-SMP's whole model, by torch and ``network.cpp``.

    python benchmarks/papers/fed_smp_ends.py           goes through them, each as far as ``MOST``
    python benchmarks/papers/fed_smp_ends.py --page    only writes the table
    python benchmarks/papers/fed_smp_ends.py --check   reruns the first round of a drawn one

A run ends with an overflow. Before it, values grow until rounding decides the round of the end.
Here torch, the paper's software, trains the same seeds. Progress is kept as in ``fed_smp.py``, and
runs resume from it.
"""

import argparse
import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch
from drawn import redrawn
from fed_smp import LIMIT, comes_out, record, run
from fed_smp_paper import known_runs
from fed_smp_settings import HERE, Setting, setting_of
from pages import put, table

from fedprivacy.outputs import whole_file

MOST = 60
"""Rounds after which a run without an end is stopped."""
CELLS = [
    ("dp-fedavg", "standardised", 1),
    ("rand_k_unscaled-0.8@2.5", "standardised", 1),
    ("rand_k_unscaled-0.8", "standardised", 1),
    ("rand_k_unscaled-0.8@2", "standardised", 1),
    ("rand_k_unscaled-0.4@2.5", "standardised", 1),
    ("dp-fedavg", "symmetric", 1),
    ("rand_k_unscaled-0.8@2.5", "symmetric", 1),
    ("rand_k_unscaled-0.4@2", "standardised", 1),
    ("dp-fedavg", "standardised", 2),
    ("dp-fedavg", "standardised", 3),
    ("rand_k_unscaled-0.8", "standardised", 2),
    ("rand_k_unscaled-0.8", "standardised", 3),
]
"""Run, inputs and seed, the most informative first."""
TARGET = HERE / "results" / "fed_smp_ends.json"


class ByTorch(Setting):
    """A run whose network is trained by torch."""

    @property
    def compiled(self) -> bool:
        """Always False."""
        return False

    @property
    def folder(self) -> Path:
        """Folder of its progress, separate from the compiled one's."""
        return super().folder.with_name(f"torch-{super().folder.name}")


def by_torch(label: str, inputs: str, seed: int) -> ByTorch:
    """Return the setting of a cell."""
    return ByTorch(**vars(setting_of(label, seed, MOST, inputs=inputs)))


def known() -> list[dict[str, Any]]:
    """Return the results."""
    return json.loads(TARGET.read_text())["runs"] if TARGET.exists() else []


def cell(one: dict[str, Any]) -> tuple[str, str, int]:
    """Return the cell of a result."""
    return one["run"], one["inputs"], one["seed"]


def collect() -> None:
    """Add the finished and unfinished runs to the results."""
    found = {cell(one): one for one in known()}
    for facts in CELLS:
        setting = by_torch(*facts)
        if setting.folder.exists():
            found[facts] = record(setting)
    runs = [found[facts] for facts in CELLS if facts in found]
    whole_file(TARGET, json.dumps({"runs": runs}, indent=1) + "\n")


def page() -> None:
    """Write the table."""
    compiled = {cell(one): one for one in known_runs() if one["model"] == "cnn"}
    rows = []
    for one in known():
        label, inputs, seed = cell(one)
        both = (told(each) for each in (compiled[cell(one)], one))
        rows.append([label, inputs, str(seed), *both])
    text = table(("run", "inputs", "seed", "by `network.cpp`", "by torch"), rows)
    put("fed_smp.md", "ends by torch", text)


def told(one: dict[str, Any]) -> str:
    """Return the end of a run, and its best accuracy until then, as text."""
    end, best = one["first_non_finite_round"], one["best_accuracy"]
    best = "-" if best is None else f"{100.0 * best:.1f}"
    if end is not None:
        return f"ended in {end}, {best}"
    left = "" if one["finished"] else ", **not finished**"
    return f"not in {one['rounds_done']}, {best}{left}"


def check() -> int:
    """Repeat the first round of a drawn run; return the exit status."""
    cells = {str(cell(one)): partial(comes_out, by_torch(*cell(one)), one) for one in known()}
    return 0 if redrawn({"ends by torch": cells}, LIMIT) else 1


def main() -> None:
    """Parse the command line and run it."""
    reader = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    reader.add_argument("--page", action="store_true", help="only write the table")
    reader.add_argument("--check", action="store_true", help="rerun a drawn run's first round")
    options = reader.parse_args()
    torch.set_num_threads(1)
    if options.check:
        sys.exit(check())
    if not options.page:
        done = {cell(one) for one in known() if one["finished"]}
        for facts in CELLS:
            if facts not in done:
                run(by_torch(*facts))
                collect()
                print(*facts, flush=True)
    page()


if __name__ == "__main__":
    main()
