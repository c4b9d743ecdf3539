"""FA-LD's Figures 3 and 4 and FA-HMC's 3 and 4 at the papers' length, on Fashion-MNIST.

    python benchmarks/papers/long_chains.py          works through PLAN; may be stopped any time
    python benchmarks/papers/long_chains.py --page   only writes the tables
    python benchmarks/papers/long_chains.py --check  runs the smallest cell of each again

FA-LD: 1,000 rounds, a draw every ten, with a warm-up of 500 for Figure 4. FA-HMC: 200 rounds, a
draw every round. Batches, temperature, clients and prior are those of ``fa_ld_fashion.py``, whose
runs are shorter and cover more settings. Step sizes are tuned on the first chain: halved and
doubled until the best of every score lies inside the grid; the sizes that are best for a score are
then run with two more chains. A cell keeps its progress in ``progress/``, which is not committed,
and goes on from there; what is begun stands in the results with the rounds that are done and those
that are planned, and only cells that are done are compared.
"""

import argparse
import json
import math
import os
import statistics
import sys
import time
from pathlib import Path

import fa_ld_fashion as short
import torch
from drawn import near
from pages import put
from pages import table as markdown

from fedprivacy import training
from fedprivacy.errors import Diverged
from fedprivacy.training.chains import ChainState

RESULTS, PROGRESS = (Path(__file__).parent / name for name in ("results", "progress"))
SEEDS = (0, 1, 2)
PARTS = {
    "fa_ld_long": {**short.FA_LD, "rounds": 1000, "warmup": 500, "every": 10, "shown": 50},
    "fa_hmc_long": {"rounds": 200, "batch": 1000, "every": 1, "shown": 20},
}
FIRST_SIZES = {"fa_ld_long": [6e-6, 3e-6], "fa_hmc_long": [1.6e-3, 8e-4]}
SAVED = 60.0
"""Seconds of work between two saves."""

LANGEVIN = [{"local_steps": steps} for steps in (1, 10, 20, 50, 100)]
HAMILTONIAN = [
    {"leapfrog_steps": steps, "iterations": iterations}
    for steps, iterations in ((1, 1), (1, 10), (10, 1), (1, 20), (10, 10), (50, 1), (10, 20))
]
PLAN = (
    *(("fa_ld_long", facts, (0,)) for facts in LANGEVIN[:2]),
    *(("fa_hmc_long", facts, (0,)) for facts in HAMILTONIAN[:2]),
    ("fa_ld_long", LANGEVIN[0], SEEDS),
    ("fa_hmc_long", HAMILTONIAN[0], SEEDS),
    ("fa_ld_long", LANGEVIN[1], SEEDS),
    *(("fa_hmc_long", facts, SEEDS) for facts in HAMILTONIAN[1:4]),
    *(("fa_ld_long", facts, SEEDS) for facts in LANGEVIN[2:]),
    *(("fa_hmc_long", facts, SEEDS) for facts in HAMILTONIAN[4:]),
)
"""What is run, cheapest first: a part, a setting, and the seeds."""


def loop_of(part, facts, size, seed, posterior):
    """Return the loop of a cell."""
    setting = PARTS[part]
    if part == "fa_ld_long":
        return short.langevin(posterior, facts["local_steps"], size, setting, seed=seed)
    pair = facts["leapfrog_steps"], facts["iterations"]
    return short.hamiltonian(posterior, pair, size, setting, correlation=1.0, seed=seed)[1]


class Cell:
    """One chain, which may be gone on with."""

    def __init__(self, part, facts, size, seed):
        self.part, self.setting = part, PARTS[part]
        self.facts = {**facts, "step_size": size, "seed": seed}
        name = "-".join(f"{value:g}" for value in self.facts.values())
        self.path = PROGRESS / f"{part}-{name}.pt"

    def run(self, posterior, rounds=None):
        """Run the chain to its end, or the rounds asked for; yield what is known at each save."""
        *_, size, seed = self.facts.values()
        loop = loop_of(self.part, self.facts, size, seed, posterior)
        now = self.begun(loop)
        state = ChainState(now["round"], now["positions"], loop.init().draws)
        last, begun = rounds or self.setting["rounds"], time.process_time()
        while state.round < last and not now["diverged"]:
            try:
                state, _ = loop.step(state)
            except Diverged as error:
                now["diverged"] = str(error)
            else:
                now.update(round=state.round, positions=state.positions)
                self.look(now, loop)
            if (spent := time.process_time() - begun) > SAVED and rounds is None:
                now["seconds"], begun = now["seconds"] + spent, time.process_time()
                self.save(now)
                yield self.result(now)
        now["seconds"] += time.process_time() - begun
        yield self.result(now)

    def begun(self, loop):
        """Return what was saved, or the start."""
        if self.path.exists():
            return torch.load(self.path)
        start = {"round": 0, "positions": loop.init().positions, "rows": [], "seconds": 0.0}
        return {**start, "diverged": None, "sums": {}, "counts": {"all": 0, "warm": 0}}

    def save(self, now):
        """Write down what is known, all or nothing."""
        self.path.parent.mkdir(exist_ok=True)
        temporary = self.path.with_suffix(".tmp")
        torch.save(now, temporary)
        os.replace(temporary, self.path)

    def look(self, now, loop):
        """Add a draw's predictions, and note the scores of their means."""
        number, records = now["round"], loop.target.data
        if number % self.setting["every"]:
            return
        with torch.no_grad():
            inputs = records.test_features.flatten(1)
            found = loop.target.model.logits(now["positions"][0], inputs).softmax(-1)
        kinds = ["all", "warm"] if number > self.setting.get("warmup", math.inf) else ["all"]
        for kind in kinds:
            now["sums"][kind] = now["sums"].get(kind, 0.0) + found
            now["counts"][kind] += 1
        if number % self.setting["shown"] == 0:
            means = {kind: now["sums"][kind] / now["counts"][kind] for kind in kinds}
            told = {kind: short.scores(mean, records.test_labels) for kind, mean in means.items()}
            now["rows"].append({"round": number, **told})

    def result(self, now):
        """Return what the cell has come to."""
        rows = now["rows"]
        if now["diverged"]:
            rows = [*rows, {"round": None, "diverged": now["diverged"]}]
        done = {"rounds_done": now["round"], "rounds_planned": self.setting["rounds"]}
        finished = now["round"] == self.setting["rounds"] or bool(now["diverged"])
        seconds = round(now["seconds"], 1)
        return {**self.facts, **done, "finished": finished, "seconds": seconds, "curve": rows}


def known(part):
    """Return the cells that are written down, if they are of this setting."""
    path = RESULTS / f"{part}.json"
    content = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return content["cells"] if content.get("setting") == PARTS[part] else []


def write(part, cell):
    """Put a cell among a part's results."""
    names = ("local_steps", "leapfrog_steps", "iterations", "step_size", "seed")
    own = [cell.get(name) for name in names]
    cells = [one for one in known(part) if [one.get(name) for name in names] != own] + [cell]
    head = {"setting": PARTS[part], "data": "fashion-mnist", "inputs": "unit"}
    lines = ",\n".join(json.dumps(one) for one in cells)
    temporary = (RESULTS / f"{part}.json").with_suffix(".tmp")
    text = f'{json.dumps(head)[:-1]}, "cells": [\n{lines}\n]}}\n'
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, RESULTS / f"{part}.json")


def of(part, facts, seed=0):
    """Return the finished cells of one setting and seed."""
    own = {**facts, "seed": seed}
    return [cell for cell in known(part) if cell["finished"] and own.items() <= cell.items()]


def missing(part, facts, seed):
    """Return the step sizes to run next."""
    first = of(part, facts)
    if seed == 0:
        sizes = FIRST_SIZES[part] if len(first) < 2 else short.wanted(first)
    else:
        sizes = sorted({size for _, _, size, edge in best(part, facts) if edge is None})
    there = [cell["step_size"] for cell in of(part, facts, seed)]
    return [size for size in sizes if not any(math.isclose(size, one) for one in there)]


def best(part, facts):
    """Return (kind, score, step size, edge) of the first chain's best in every score."""
    first = of(part, facts)
    kinds = [kind for kind in ("all", "warm") if any(short.last(cell, kind) for cell in first)]
    return [(kind, score, *short.tuned(first, score, kind)[1:]) for kind in kinds
            for score in short.SCORES]  # fmt: skip


def work():
    """Work through the plan."""
    records = short.data("fashion-mnist", None)
    model = short.softmax(records)
    posterior = training.Posterior(model=model, data=records, prior_precision=0.0)
    for part, facts, seeds in PLAN:
        for seed in seeds:
            while sizes := missing(part, facts, seed):
                cell = Cell(part, facts, sizes[0], seed)
                for found in cell.run(posterior):
                    write(part, found)
                cell.path.unlink(missing_ok=True)
                print(part, cell.facts, found["rounds_done"], short.last(found), flush=True)


def compared(part, kind="all"):
    """Return the table of every setting's best scores; a best at the grid's edge is refused."""
    rows, names = [], []
    for facts in LANGEVIN if part == "fa_ld_long" else HAMILTONIAN:
        first = of(part, facts)
        if not first:
            continue
        names = [short.LETTERS[name] for name in facts]
        sizes = sorted(cell["step_size"] for cell in first)
        row = [*map(str, facts.values()), f"{sizes[0]:.3g} to {sizes[-1]:.3g}"]
        for score in short.SCORES:
            _, size, edge = short.tuned(first, score, kind)
            row.append(f"refused: {edge} edge" if edge else told(part, facts, kind, score, size))
        rows.append(row)
    return markdown([*names, "step sizes", "accuracy", "Brier", "ECE", "NLL"], rows)


def told(part, facts, kind, score, size):
    """Return a score at a step size: of one chain, or the mean and the spread of three."""
    cells = [cell for seed in SEEDS for cell in of(part, facts, seed)]
    here = [cell for cell in cells if math.isclose(cell["step_size"], size)]
    values = [short.last(cell, kind)[score] for cell in here if short.last(cell, kind)]
    if len(values) == 1:
        return f"{values[0]:.4f} ({size:.3g})"
    spread = f"{statistics.mean(values):.4f} ± {statistics.stdev(values):.4f}"
    return f"{spread} ({size:.3g}, {len(values)} chains)"


def progress(part):
    """Return the table of what is begun or missing."""
    rows = []
    for facts in LANGEVIN if part == "fa_ld_long" else HAMILTONIAN:
        name = ", ".join(f"{short.LETTERS[key]} = {value}" for key, value in facts.items())
        own = [cell for cell in known(part) if facts.items() <= cell.items()]
        done = sum(cell["finished"] for cell in own)
        begun = [cell for cell in own if not cell["finished"]]
        going = [f"{c['rounds_done']} of {c['rounds_planned']} rounds" for c in begun]
        seconds = sum(cell["seconds"] for cell in own)
        rows.append([name, str(done), ", ".join(going) or "-", f"{seconds / 60:.0f}"])
    return markdown(["setting", "chains done", "begun", "minutes of a core"], rows)


def pages():
    """Write the tables of the page."""
    put("fa_ld.md", "FA-LD at length", compared("fa_ld_long"))
    put("fa_ld.md", "FA-LD at length with warm-up", compared("fa_ld_long", "warm"))
    put("fa_ld.md", "FA-LD at length, what was run", progress("fa_ld_long"))
    put("fa_ld.md", "FA-HMC at length", compared("fa_hmc_long"))
    put("fa_ld.md", "FA-HMC at length, what was run", progress("fa_hmc_long"))


def check():
    """Run the cheapest cell of each part again, to its first shown round, and compare."""
    records = short.data("fashion-mnist", None)
    posterior = training.Posterior(model=short.softmax(records), data=records, prior_precision=0.0)
    held = True
    for part in PARTS:
        cells = [cell for cell in known(part) if cell["finished"] and cell["curve"][0]["round"]]
        cell = min(cells, key=lambda one: one["seconds"] / one["rounds_done"])
        shown = cell["curve"][0]
        *facts, size, seed = (cell[n] for n in (*short.LETTERS, "step_size", "seed") if n in cell)
        keys = [name for name in short.LETTERS if name in cell]
        again = Cell(part, dict(zip(keys, facts, strict=True)), size, seed)
        (found,) = again.run(posterior, shown["round"])
        same = near(found["curve"][0], shown, 0.0, short.TOLERANCE)
        print(part, again.facts, "agrees" if same else "DIFFERENT")
        held = held and same
    return held


def main():
    """Do what the command line asks for."""
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--check", action="store_true")
    asked.add_argument("--page", action="store_true", help="only write the tables")
    options = asked.parse_args()
    torch.set_num_threads(1)
    if options.check:
        sys.exit(not check())
    if not options.page:
        work()
    pages()


if __name__ == "__main__":
    main()
