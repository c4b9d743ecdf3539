"""FA-LD's Figures 3 and 4 and FA-HMC's 3 and 4 at the papers' length, on Fashion-MNIST.

    python benchmarks/papers/long_chains.py          works through PLAN; may be stopped any time
    python benchmarks/papers/long_chains.py --page   only writes the tables
    python benchmarks/papers/long_chains.py --check  runs the smallest cell of each again
    python benchmarks/papers/long_chains.py --measure  times a gradient of one copy and of more
    python benchmarks/papers/long_chains.py --dataset NAME --data-dir FOLDER  other data

NAME is mnist, kmnist or cifar2, as for ``fa_ld_fashion.py``; results go to separate files and not
to the page.

FA-LD has 1,000 rounds, a draw every ten, with a warm-up of 500 for Figure 4. FA-HMC has 200 rounds,
a draw every round. Batches, temperature, clients and prior are those of ``fa_ld_fashion.py``, whose
runs are shorter and cover more settings. Step sizes are tuned on the first chain: they are halved
and doubled until the best of every score lies inside the grid. The best sizes for a score are then
run with two more chains. If results with fewer iterations are known, the grid starts around their
best. The sizes of one setting and seed run together, as scaled copies of the model in one chain
(``Ladder``), which has the same law for each and takes less time (--measure). They share batches
but not noise, and a cell names the sizes that ran ``together``. With g++, ``softmax.cpp`` computes
their gradients, or ``softmax_tiles.cpp`` if the processor multiplies tiles (Intel's AMX). The
results are the same up to rounding, in less time (--measure). A run keeps its progress in
``progress/``, which is not committed, and resumes from there. The results of an unfinished run have
its finished and planned rounds; only finished runs are compared. Chains with large steps separate
by rounding, so --check compares only the first draw. Chains that are not ``repeatable`` were run
separately and evaluated later, and are run again.
"""

import argparse
import ctypes
import itertools
import json
import math
import os
import statistics
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import fa_ld_fashion as short
import kernels
import torch
from drawn import Parted, near, redrawn
from pages import put
from pages import table as markdown
from told import told as in_a_line

from fedprivacy import training
from fedprivacy.errors import require
from fedprivacy.outputs import whole_file
from fedprivacy.reproductions.chains import images, scores, softmax
from fedprivacy.training.chains import ChainState

RESULTS, PROGRESS = (Path(__file__).parent / name for name in ("results", "progress"))
SEEDS = (0, 1, 2)
PARTS = {
    "fa_ld_long": {**short.FA_LD, "rounds": 1000, "warmup": 500, "every": 10, "shown": 50},
    "fa_hmc_long": {"rounds": 200, "batch": 1000, "every": 1, "shown": 20},
}
FIVE_SIZES = {
    "fa_ld_long": [7.5e-7, 1.5e-6, 3e-6, 6e-6, 1.2e-5],
    "fa_hmc_long": [4e-4, 8e-4, 1.6e-3, 3.2e-3, 6.4e-3],
}
SOURCES = ("softmax_tiles.cpp", "softmax.cpp")
"""Kernels for the gradients, in order of preference."""
SECONDS = RESULTS / "long_chains_seconds.json"
SUFFIX = [""]
"""Suffix of the files of results and progress; main() sets it to the data's name."""
SAVED = 60.0
"""Seconds of work between two saves."""

LANGEVIN = [{"local_steps": steps} for steps in (1, 10, 20, 50, 100)]
HAMILTONIAN = [
    {"leapfrog_steps": steps, "iterations": iterations}
    for iterations in (1, 10, 20)
    for steps in (1, 10, 50)
]
NAMES = ("local_steps", "leapfrog_steps", "iterations")


def gradients(facts):
    """Return the number of gradients of a client in a round."""
    if "local_steps" in facts:
        return facts["local_steps"]
    return facts["iterations"] * (2 * facts["leapfrog_steps"] - 1)


def cost(part, facts):
    """Return the approximate number of records that a chain processes, the order of the plan."""
    return PARTS[part]["rounds"] * gradients(facts) * PARTS[part]["batch"]


TASKS = sorted(
    [
        (part, facts, seed)
        for part, every in (("fa_ld_long", LANGEVIN), ("fa_hmc_long", HAMILTONIAN))
        for facts in every
        for seed in SEEDS
    ],
    key=lambda task: cost(*task[:2]) * (16 if task[2] else 1),
)
"""The plan, cheapest first; a setting's further seeds come after the first seeds of others."""


class Ladder:
    """Copies of a softmax regression, each with its parameters scaled: several step sizes at once.

    In s x, the chain of f(s x) with the step h is the chain of f with the step h s^2 for FA-LD and
    h s for FA-HMC. All copies use the same batches.

    Args:
        model: model of one copy.
        scales: s of each copy.
    """

    def __init__(self, model, scales):
        self.model, self.scales = model, torch.tensor(scales)
        self.dimension = len(scales) * model.dimension

    def positions(self, points):
        """Return every copy's parameters, shape (..., copies, d)."""
        return points.unflatten(-1, (len(self.scales), -1)) * self.scales[:, None]

    def gradient_sums(self, points, features, labels, mask, clip):
        """See ``training.likelihoods.Model``; gradients are not clipped."""
        assert clip is None
        inputs, own = features.flatten(2), self.positions(points)
        seats, copies = own.shape[:2]
        size, classes = self.model.features, self.model.classes
        weights = own[..., : size * classes].reshape(seats, copies * classes, size)
        intercepts = own[..., size * classes :].reshape(seats, copies * classes, 1)
        scores = torch.baddbmm(intercepts, weights, inputs.transpose(1, 2))
        # The gradient in the scores is the probabilities, less 1 at the label.
        apart = scores.unflatten(1, (copies, classes)).softmax(2)
        at = labels[:, None, None, :].expand(-1, copies, -1, -1)
        apart.scatter_add_(2, at, apart.new_full((1, 1, 1, 1), -1.0).expand(at.shape))
        apart *= mask[:, None, None, :]
        slopes = (apart.flatten(1, 2) @ inputs).view(seats, copies, -1)
        found = torch.cat([slopes, apart.sum(-1)], dim=-1) * self.scales[:, None]
        return found.flatten(1)


def kernel(images, sources=SOURCES):
    """Return the first kernel for this processor and these images, and the images in its format.

    Without a kernel or without g++ it is None and the images.

    Args:
        images: shape (images, 784).
        sources: sources of the kernels. Tiles need pixels of the form k / 255, and a processor with
            tiles.
    """
    levels = (images * 255.0).round().clamp(0.0, 255.0)
    for source in sources:
        found = kernels.compiled(source)
        if source == "softmax.cpp" or found is None:
            return found, images
        if found.ready() and torch.equal(levels / 255.0, images):
            return found, levels.to(torch.uint8)
    return None, images


class CompiledLadder(Ladder):
    """The same with a kernel, which reads images in place, by row numbers.

    Args:
        model: model of one copy.
        scales: s of each copy.
        images: shape (images, 784); features are its row numbers.
        sources: see ``kernel``.
    """

    SIZES = 784, 10
    """Numbers of pixels and classes that the kernels support."""
    AT_ONCE = 3
    """Copies in one call."""

    def __init__(self, model, scales, images, sources=SOURCES):
        super().__init__(model, scales)
        # The kernel reads raw memory, so another shape would be read incorrectly.
        assert images[0].numel() == model.features
        assert (model.features, model.classes) == self.SIZES
        assert images.dtype == torch.float32
        self.kernel, self.images = kernel(images.flatten(1).contiguous(), sources)

    def gradient_sums(self, points, features, labels, mask, clip):
        """See ``training.likelihoods.Model``; features are row numbers, (seats, records, 1)."""
        assert clip is None
        rows, own = features.squeeze(2).long(), self.positions(points)
        sums = [self.of(part, rows, labels, mask) for part in own.split(self.AT_ONCE, dim=1)]
        return (torch.cat(sums, dim=1) * self.scales[:, None]).flatten(1)

    def of(self, own, rows, labels, mask):
        """Return the sums at a few copies' parameters, shape (seats, copies, d)."""
        assert own.shape[1] <= self.AT_ONCE and own.dtype == torch.float32
        assert int(rows.min()) >= 0 and int(rows.max()) < len(self.images)
        own, found = own.contiguous(), torch.empty_like(own, memory_format=torch.contiguous_format)
        tensors = self.images, rows, labels, mask, own, found
        sizes = map(ctypes.c_int64, (*rows.shape, own.shape[1]))
        self.kernel.gradient_sums(*map(kernels.at, tensors), *sizes)
        return found


def numbered(records):
    """Return the data with row numbers instead of images."""
    # Exact, because integers in single precision are exact up to 2^24.
    rows = torch.arange(len(records.labels), dtype=torch.float32)[:, None]
    return replace(records, features=rows, test_features=rows[:0], test_labels=records.labels[:0])


def ladder(part, facts, sizes, seed, records, sources=SOURCES, **other):
    """Return the loop of one setting and seed with several step sizes; by torch without sources."""
    setting, least = PARTS[part] | other, min(sizes)
    power = 0.5 if part == "fa_ld_long" else 1.0
    scales, model = [(size / least) ** power for size in sizes], softmax(records)
    own = None
    if (model.features, model.classes) == CompiledLadder.SIZES:
        own = CompiledLadder(model, scales, records.features, sources)
    if own is None or own.kernel is None:
        model = Ladder(model, scales)
    else:
        model, records = own, numbered(records)
    posterior = training.Posterior(model=model, data=records, prior_precision=0.0)
    if part == "fa_ld_long":
        return short.langevin_loop(posterior, facts["local_steps"], least, setting, seed=seed)
    pair = facts["leapfrog_steps"], facts["iterations"]
    return short.hamiltonian_loop(posterior, pair, least, setting, correlation=1.0, seed=seed)[1]


class Chain:
    """One chain at several step sizes, which can be resumed."""

    def __init__(self, part, facts, sizes, seed):
        self.part, self.setting, self.facts = part, PARTS[part], facts
        self.sizes, self.seed = sorted(sizes), seed
        name = "-".join(f"{value:g}" for value in (*facts.values(), *self.sizes, seed))
        self.path = PROGRESS / f"{part}{SUFFIX[0]}-{name}.pt"

    def run(self, records, rounds=None, shifted=False):
        """Run the chain to its end, or the given number of rounds; yield the cells at each save."""
        loop = self.loop(records)
        loop = short.shifted(loop) if shifted else loop
        # A comparison of a few rounds starts at the beginning.
        now = self.now = self.begun(loop) if rounds is None else self.first(loop)
        state = ChainState(now["round"], now["positions"], loop.init().draws)
        last, kept = rounds or self.setting["rounds"], now["seconds"]
        while state.round < last:
            begun = time.process_time()
            state, _ = loop.step(state)
            now.update(round=state.round, positions=state.positions)
            self.look(now, loop.target.model, records)
            now["seconds"] += time.process_time() - begun
            if now["seconds"] - kept > SAVED and rounds is None:
                kept = now["seconds"]
                self.save(now)
                yield self.result(now)
        yield self.result(now)

    def loop(self, records):
        """Return the loop, all step sizes in one."""
        return ladder(self.part, self.facts, self.sizes, self.seed, records)

    def chances(self, model, positions, inputs):
        """Return every step size's predictions, shape (sizes, records, classes)."""
        return model.model.logits(model.positions(positions), inputs).softmax(-1)

    def begun(self, loop):
        """Return the saved state, or the start."""
        if not self.path.exists():
            return self.first(loop)
        saved = torch.load(self.path)
        # Older files have no setting.
        if saved.get("setting", self.setting) != self.setting:
            raise SystemExit(f"{self.path.name} is of {saved['setting']}; move it away")
        return saved

    def first(self, loop):
        """Return the start."""
        rows = [[] for _ in self.sizes]
        start = {
            "setting": self.setting,
            "round": 0,
            "positions": loop.init().positions,
            "rows": rows,
            "seconds": 0.0,
        }
        return {**start, "sums": {}, "counts": {"all": 0, "warm": 0}}

    def save(self, now):
        """Write the current state atomically."""
        self.path.parent.mkdir(exist_ok=True)
        temporary = self.path.with_suffix(".tmp")
        torch.save(now, temporary)
        os.replace(temporary, self.path)

    def look(self, now, model, records):
        """Add a draw's predictions, and record the scores of their means."""
        number = now["round"]
        if number % self.setting["every"]:
            return
        inputs = records.test_features.flatten(1)
        found = self.chances(model, now["positions"][0], inputs)
        kinds = ["all", "warm"] if number > self.setting.get("warmup", math.inf) else ["all"]
        for kind in kinds:
            now["sums"][kind] = now["sums"].get(kind, 0.0) + found
            now["counts"][kind] += 1
        if number % self.setting["shown"] == 0 or number == self.setting["every"]:
            for copy, rows in enumerate(now["rows"]):
                means = {kind: now["sums"][kind][copy] / now["counts"][kind] for kind in kinds}
                told = {k: scores(mean, records.test_labels) for k, mean in means.items()}
                rows.append({"round": number, **told})

    def result(self, now):
        """Return the current cells, one for each step size, with its share of the time."""
        done = {"rounds_done": now["round"], "rounds_planned": self.setting["rounds"]}
        done["finished"] = now["round"] == self.setting["rounds"]
        seconds = round(now["seconds"] / len(self.sizes), 1)
        together = {"seed": self.seed, "together": self.sizes, "repeatable": True}
        return [
            {**self.facts, "step_size": size, **together, **done, "seconds": seconds, "curve": rows}
            for size, rows in zip(self.sizes, now["rows"], strict=True)
        ]


def target(part):
    """Return the file of a part's results."""
    return RESULTS / f"{part}{SUFFIX[0]}.json"


def known(part):
    """Return the recorded cells, if they are of this setting."""
    path = target(part)
    content = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return content["cells"] if content.get("setting") == PARTS[part] else []


def own(cell):
    """Return the facts that identify a cell."""
    return [cell.get(name) for name in (*NAMES, "step_size", "seed")]


def write(part, cells):
    """Add cells to a part's results."""
    new = [own(cell) for cell in cells]
    cells = [one for one in known(part) if own(one) not in new] + cells
    data = SUFFIX[0].removeprefix("_") or "fashion-mnist"
    head = {"setting": PARTS[part], "data": data, "inputs": "unit"}
    lines = ",\n".join(json.dumps(one) for one in cells)
    whole_file(target(part), f'{json.dumps(head)[:-1]}, "cells": [\n{lines}\n]}}\n')


def of(part, facts, seed=0):
    """Return the finished cells of one setting and seed."""
    own = {**facts, "seed": seed}
    return [cell for cell in known(part) if cell["finished"] and own.items() <= cell.items()]


def missing(part, facts, seed, again=True):
    """Return the step sizes to run next, and on request those that are not repeatable."""
    first, here = of(part, facts), of(part, facts, seed)
    if seed == 0:
        begin = first_sizes(part, facts)
        sizes = further(first) if len(first) >= len(begin) else begin
    else:
        sizes = [size for _, _, size, edge in best(part, facts) if edge is None]
    old = [cell["step_size"] for cell in here if not cell["repeatable"]]
    # One size may be best for several scores.
    sizes = {*sizes, *old} if again else {*sizes}
    there = [cell["step_size"] for cell in here if cell["repeatable"] or not again]
    return sorted(size for size in sizes if not any(math.isclose(size, one) for one in there))


def first_sizes(part, facts):
    """Return a setting's first step sizes: around the best of fewer iterations, or five."""
    iterations = facts.get("iterations", 1)
    fewer = [{**facts, "iterations": less} for less in (10, 1) if less < iterations]
    for one in fewer:
        known_best = [size for _, _, size, edge in best(part, one) if edge is None]
        if known_best:
            sizes = [min(known_best) / 2.0]
            while sizes[-1] < 2.0 * max(known_best):
                sizes.append(2.0 * sizes[-1])
            return sizes
    return FIVE_SIZES[part]


def further(first):
    """Return two step sizes beyond every edge with a best value: together they cost little."""
    least, most = (end(cell["step_size"] for cell in first) for end in (min, max))
    low = [size for edge in short.wanted(first) if edge < least for size in (edge / 2, edge)]
    return low + [size for edge in short.wanted(first) if edge > most for size in (edge, edge * 2)]


def best(part, facts):
    """Return (kind, score, step size, edge) of the first chain's best value in every score."""
    first = of(part, facts)
    kinds = [kind for kind in ("all", "warm") if any(short.last(cell, kind) for cell in first)]
    return [(kind, score, *short.tuned(first, score, kind)[1:]) for kind in kinds
            for score in short.SCORES]  # fmt: skip


def work(records):
    """Work through the plan; finished chains that are not repeatable come last."""
    for part, facts, seed, again in [(*task, again) for again in (False, True) for task in TASKS]:
        while sizes := missing(part, facts, seed, again):
            chain = Chain(part, facts, sizes, seed)
            for cells in chain.run(records):
                write(part, cells)
            chain.path.unlink(missing_ok=True)
            print(part, facts, seed, sizes, [short.last(cell) for cell in cells], flush=True)


def compared(part, kind="all"):
    """Return the table of every setting's best scores; a best at the grid's edge is refused."""
    rows, names = [], []
    for facts in LANGEVIN if part == "fa_ld_long" else HAMILTONIAN:
        first = of(part, facts)
        if not first:
            continue
        names = [short.LETTERS[name] for name in facts]
        rows.append([*map(str, facts.values()), *bests(part, facts, kind)])
    return markdown([*names, "step sizes", "accuracy", "Brier", "ECE", "NLL"], rows)


def means(part, kind="all"):
    """Return the table of every setting's best scores, without the step sizes."""
    rows, names = [], []
    for facts in LANGEVIN if part == "fa_ld_long" else HAMILTONIAN:
        if of(part, facts):
            names = [short.LETTERS[name] for name in facts]
            _, *scores = bests(part, facts, kind)
            rows.append([*map(str, facts.values()), *(one.partition(" (")[0] for one in scores)])
    return markdown([*names, "accuracy", "Brier", "ECE", "NLL"], rows)


def bests(part, facts, kind):
    """Return a setting's step sizes and its best scores, as text."""
    first = of(part, facts)
    sizes = sorted(cell["step_size"] for cell in first)
    row = [f"{sizes[0]:.3g} to {sizes[-1]:.3g}"]
    for score in short.SCORES:
        _, size, edge = short.tuned(first, score, kind)
        row.append(f"refused: {edge} edge" if edge else told(part, facts, kind, score, size))
    return row


def told(part, facts, kind, score, size):
    """Return a score at a step size as text: of one chain, or mean and spread of three."""
    values = of_chains(part, facts, kind, score, size)
    if len(values) == 1:
        return f"{values[0]:.4f} ({size:.3g})"
    spread = f"{statistics.mean(values):.4f} ± {statistics.stdev(values):.4f}"
    return f"{spread} ({size:.3g}, {len(values)} chains)"


def of_chains(part, facts, kind, score, size):
    """Return a score at a step size for every chain with it."""
    cells = [cell for seed in SEEDS for cell in of(part, facts, seed)]
    here = [cell for cell in cells if math.isclose(cell["step_size"], size)]
    return [short.last(cell, kind)[score] for cell in here if short.last(cell, kind)]


FURTHER = 4
"""Approximate number of a setting's later chains: at an edge, and two more of the best."""


def gap():
    """Return the deficit in accuracy of one local step against ten, each at its best step size."""
    told = []
    for ask, rounds in ((of, PARTS["fa_ld_long"]["rounds"]), (shorter, short.FA_LD["rounds"])):
        (one, *_, low), (ten, *_, high) = (
            short.tuned(ask("fa_ld_long", {"local_steps": steps}), "accuracy") for steps in (1, 10)
        )
        points = "refused, at an edge," if low or high else f"{100 * (ten - one):.1f} points"
        told.append(f"{points} after {rounds:,} rounds")
    return (
        "Accuracy that one local step lacks of ten, each at its best step size, one chain: "
        f"{told[0]}, {told[1]}."
    )


PAPER = {
    "all": {"brier": 100},
    "warm": {"accuracy": 20, "brier": 10, "ece": 50},
}
"""Best local steps on Fashion-MNIST in FA-LD's text, without and with warm-up."""


def best_steps():
    """Return the table of the local steps whose chains have the best mean, and the paper's."""
    rows = []
    for kind, name in (("all", "without warm-up"), ("warm", "with warm-up")):
        row = [name]
        for score in short.SCORES:
            means, edges = {}, []
            for facts in LANGEVIN:
                if not (first := of("fa_ld_long", facts)):
                    continue
                _, size, edge = short.tuned(first, score, kind)
                edges += [edge] if edge else []
                values = of_chains("fa_ld_long", facts, kind, score, size)
                means[facts["local_steps"]] = statistics.mean(values)
            chosen = (max if score == "accuracy" else min)(means, key=means.get, default=None)
            here = "-" if chosen is None else f"{chosen}: {means[chosen]:.4f}"
            # A setting with an unknown best may be better than all others.
            here = "refused: at an edge" if edges else here
            row.append(f"{here} ({PAPER[kind].get(score, 'not said')})")
        rows.append(row)
    head = ["best $K$: its mean (the paper's $K$)", "accuracy", "Brier", "ECE", "NLL"]
    return markdown(head, rows)


def shorter(_, facts):
    """Return the cells of the shorter runs."""
    return short.of_group(short.known_cells("fa_ld"), facts)


def progress(part):
    """Return the table of finished, unfinished and missing chains, and the time left."""
    rows, left = [], 0.0
    for facts in LANGEVIN if part == "fa_ld_long" else HAMILTONIAN:
        name = ", ".join(f"{short.LETTERS[key]} = {value}" for key, value in facts.items())
        cells = [cell for cell in known(part) if facts.items() <= cell.items()]
        done = sum(cell["finished"] for cell in cells)
        begun = {(c["seed"], c["rounds_done"]) for c in cells if not c["finished"]}
        going = [f"seed {seed}: {rounds} rounds" for seed, rounds in sorted(begun)]
        share = sum(
            cell["rounds_done"] / cell["rounds_planned"] for cell in cells if cell["repeatable"]
        )
        spent, hours = sum(cell["seconds"] for cell in cells) / 3600, 0.0
        if not whole(part, facts):
            planned = len(first_sizes(part, facts)) + FURTHER
            chains = max(1.0, planned - share)
            if not missing(part, facts, 0):
                chains = sum(len(missing(part, facts, seed)) for seed in SEEDS)
            hours = chains * gradients(facts) * pace(part) / 3600
        left += hours
        at_edge = any(edge for *_, edge in best(part, facts))
        ended = "at an edge, no more sizes" if at_edge else "done"
        row = [name, str(done), ", ".join(going) or "-", f"{spent:.2f}"]
        rows.append([*row, f"{hours:.1f}" if hours else ended])
    rows.append(["all that is left", "", "", "", f"{left:.1f}"])
    head = ["setting", "chains done", "begun", "core hours spent", "core hours left, about"]
    return markdown(head, rows)


def at_an_edge():
    """Print the parts with a best value at the grid's edge; return the exit status."""
    lists = {"fa_ld_long": LANGEVIN, "fa_hmc_long": HAMILTONIAN}
    found = {
        part
        for part, every in lists.items()
        for facts in every
        if of(part, facts) and any(edge for *_, edge in best(part, facts))
    }
    return short.told(sorted(found))


def whole(part, facts):
    """Return whether a setting is complete."""
    return not any(missing(part, facts, seed) for seed in SEEDS)


def pace(part):
    """Return the seconds of a chain for all its rounds, by the gradients in one round."""
    cells = [cell for cell in known(part) if cell["repeatable"] and cell["rounds_done"]]
    cells = cells or known(part)
    rounds = sum(cell["rounds_done"] * gradients(cell) for cell in cells)
    return PARTS[part]["rounds"] * sum(cell["seconds"] for cell in cells) / rounds


def pages():
    """Write the tables of the page."""
    put("fa_ld.md", "FA-LD at length", compared("fa_ld_long"))
    put("fa_ld.md", "FA-LD at length with warm-up", compared("fa_ld_long", "warm"))
    put("fa_ld.md", "FA-LD, means", means("fa_ld_long"))
    put("fa_ld.md", "FA-LD with warm-up, means", means("fa_ld_long", "warm"))
    put("fa_ld.md", "FA-LD at length, what was run", progress("fa_ld_long"))
    put("fa_ld.md", "FA-LD at length, what came out", f"{gap()}\n\n{best_steps()}")
    put("fa_ld.md", "FA-HMC at length", compared("fa_hmc_long"))
    put("fa_ld.md", "FA-HMC, means", means("fa_hmc_long"))
    put("fa_ld.md", "FA-HMC at length, what was run", progress("fa_hmc_long"))


def check(records):
    """Repeat the cheapest cell of each part to its first recorded round, and a drawn one."""
    held = goes_alike(records)
    for part in PARTS:
        cells = [cell for cell in known(part) if cell["curve"] and cell["repeatable"]]
        if earlier := sum(not cell["repeatable"] for cell in known(part)):
            print(f"{part}: {earlier} chains were run one by one, their first draws not kept")
        if not cells:
            continue
        cells.sort(key=lambda one: one["seconds"] / one["rounds_done"])
        first, *others = ({str(own(cell)): partial(agrees, part, cell, records)} for cell in cells)
        same = redrawn({f"{part}, the cheapest": first}, 600)
        held = redrawn({part: {k: v for one in others for k, v in one.items()}}) and same and held
    return held


def goes_alike(records):
    """Return whether copies agree with separate chains, which almost no noise separates."""
    sizes, cold, paths = (3e-6, 1.2e-5), {"temperature": 1e-30}, []
    for some in (sizes, sizes[:1], sizes[1:]):
        loop = ladder("fa_ld_long", {"local_steps": 5}, some, 0, records, **cold)
        state = loop.init()
        for _ in range(2):
            state, _ = loop.step(state)
        paths.append(loop.target.model.positions(state.positions[0]))
    same = torch.allclose(paths[0], torch.cat(paths[1:]), rtol=1e-3, atol=1e-5)
    print("scaled copies and chains of their own", "agree" if same else "are DIFFERENT")
    return same


def agrees(part, cell, records, kind=Chain):
    """Return whether a cell reproduces up to its first recorded round, see ``short.agrees``."""
    facts = {name: cell[name] for name in NAMES if name in cell}
    chain, shown = kind(part, facts, cell["together"], cell["seed"]), cell["curve"][0]
    rows = []
    for shifted in (False, True):
        (found,) = chain.run(records, shown["round"], shifted)
        rows.append(next(one for one in found if own(one) == own(cell))["curve"][0])
        if near(rows[0], shown, 0.0, short.TOLERANCE):
            return True
    if not near(*rows, 0.0, short.TOLERANCE):
        raise Parted
    return False


def measure(records):
    """Record the processor time of a gradient of one copy, three and five, milliseconds."""
    settings, found = (("fa_ld_long", LANGEVIN[2]), ("fa_hmc_long", HAMILTONIAN[1])), {}
    for (part, facts), sources in itertools.product(settings, ((), SOURCES[1:], SOURCES[:1])):
        told, by = {}, "torch"
        for copies in (1, 3, 5):
            loop = ladder(part, facts, FIVE_SIZES[part][:copies], 0, records, sources)
            by = sources[0] if isinstance(loop.target.model, CompiledLadder) else "torch"
            told[copies] = round(1e3 * least(loop) / gradients(facts), 2)
        found.setdefault(part, {**facts})[by] = told
        print(part, facts, by, told, flush=True)
    whole_file(SECONDS, json.dumps(found, indent=1) + "\n")


def least(loop):
    """Return the processor time of a round, in seconds: the least of four after the first."""
    state, spent = loop.init(), []
    for _ in range(5):
        begun = time.process_time()
        state, _ = loop.step(state)
        spent.append(time.process_time() - begun)
    return min(spent[1:])


def main():
    """Parse the command line."""
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--check", action="store_true")
    asked.add_argument("--page", action="store_true", help="only write the tables")
    asked.add_argument("--measure", action="store_true", help="time one copy and more")
    asked.add_argument("--dataset", choices=short.DATASETS, default="fashion-mnist")
    asked.add_argument("--data-dir")
    options = asked.parse_args()
    torch.set_num_threads(1)
    with in_a_line():
        sys.exit(act(options))


def act(options):
    """Run the command line; return the exit status."""
    usual = options.dataset == "fashion-mnist"
    rule = "be fashion-mnist for --page and --measure"
    require(usual or not (options.page or options.measure), "--dataset", options.dataset, rule)
    SUFFIX[0] = "" if usual else f"_{options.dataset}"
    if not options.page:
        records = images(options.dataset, options.data_dir)
        if options.check:
            return not check(records)
        (measure if options.measure else work)(records)
    if usual and not options.measure:
        pages()
        return at_an_edge()
    return 0


if __name__ == "__main__":
    main()
