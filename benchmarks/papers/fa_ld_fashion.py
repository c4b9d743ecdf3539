"""Figures 3 and 4 of FA-LD and 3 to 5 of FA-HMC on Fashion-MNIST, shorter; then with epsilon.

Usage: fa_ld_fashion.py [--part PART] [--check] [--page] [--dataset NAME --data-dir FOLDER]; PART is
fa_ld, fa_hmc, network, private, private_hmc, private_network or all. NAME is mnist, kmnist, or
cifar2 (airplanes against automobiles of CIFAR-10), with the files in FOLDER; results go to other
files.

The model is multinomial logistic regression, or a small network with two hidden layers for Figure 5
of FA-HMC. The prior is flat, and ten clients have 6,000 images each. Runs have fixed seeds and are
therefore not private; the epsilons of the private parts are those of the same runs with the
system's randomness. Step sizes are tuned on the test set, as in the papers, for each score. They
are halved and doubled until the best lies inside the grid, and a best value at the grid's edge is
refused. The calibration error is that of the best Brier score, because the least calibration error
belongs to uninformed predictions. Results go to benchmarks/papers/results/ after every cell, and
finished cells are not run again. --page only writes their tables; --check repeats the smallest cell
of each part and compares.
"""

import argparse
import json
import math
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from drawn import Parted, affordable, near, redrawn
from pages import put
from pages import table as markdown
from told import told as in_a_line

import fedprivacy as fp
from fedprivacy.errors import require
from fedprivacy.outputs import whole_file
from fedprivacy.reproductions.chains import (
    SCORES,
    curve,
    hamiltonian,
    images,
    langevin,
    network,
    regression,
)

RESULTS = Path(__file__).parent / "results"
DATASETS = ("fashion-mnist", "mnist", "kmnist", "cifar2")
EVERY = 10
TOLERANCE = 2e-3
DELTA = 1e-5
SUFFIX = ["fashion"]
"""Suffix of result files, from the command line."""
BEYOND = {("fa_ld", 1): [4.8e-5, 9.6e-5, 1.92e-4, 3.84e-4]}
"""Additional step sizes for one local step, which costs little: its accuracy has two maxima."""
MOST_SIZES = 12
"""Largest number of step sizes of a setting; then a best value at the edge is refused."""

FA_LD = {
    "rounds": 50,
    "warmup": 20,
    "every": 5,
    "batch": 200,
    "temperature": 0.05,
    "local_steps": [1, 10, 20, 50, 100],
    "step_sizes": [3e-6, 6e-6],
}
FA_HMC = {
    "rounds": 6,
    "batch": 1000,
    "leapfrog": {"iterations": 5, "leapfrog_steps": [1, 5, 10]},
    "local": {"leapfrog_steps": 5, "iterations": [1, 5]},
    "step_sizes": [8e-4, 1.6e-3],
    "every": 1,
}
PRIVATE = {
    "rounds": 120,
    "batch": 200,
    "clip_norm": 1.0,
    "temperature": 0.05,
    "correlation": 0.0,
    "cells": [[1, 3e-6], [10, 3e-7], [10, 1e-6], [10, 3e-6], [50, 1e-7], [50, 3e-7], [50, 1e-6]],
}
PRIVATE_HMC = {
    "rounds": 20,
    "every": 2,
    "batch": 1000,
    "clip_norm": 1.0,
    "correlation": 0.0,
    "step_size": 1.6e-3,
    "cells": [[1, 5, 0.0], [5, 1, 4.0], [5, 1, 8.0], [5, 5, 8.0]],
}
NETWORK = {
    "hidden": [32, 32],
    "rounds": 10,
    "batch": 500,
    "pairs": [[1, 5], [5, 5], [10, 5], [5, 1]],
    "step_sizes": [1.6e-3],
    "every": 1,
}
PRIVATE_NETWORK = {
    "hidden": [32, 32],
    "rounds": 8,
    "every": 1,
    "batch": 100,
    "clip_norm": 1.0,
    "correlation": 0.0,
    "cells": [[1, 5, 0.0, 3.2e-3], [5, 1, 2.0, 3.2e-3], [5, 5, 2.0, 1.6e-3]],
}


def last(cell, kind="all"):
    """Return a cell's final scores; None if it diverged."""
    return cell["curve"][-1].get(kind) if cell["curve"] else None


def tuned(group, score, kind="all"):
    """Return (best score, its step size, the edge of the grid at that step size or None).

    A step size with a diverged chain belongs to the grid, as the worst.
    """
    by = "brier" if score == "ece" else score
    sign = -1.0 if score == "accuracy" else 1.0
    sizes = sorted(cell["step_size"] for cell in group)
    alive = [cell for cell in group if last(cell, kind)]
    if not alive:
        return None, sizes[0], "low"
    best = min(alive, key=lambda cell: sign * last(cell, kind)[by])
    value, size = last(best, kind)[score], best["step_size"]
    edge = {sizes[-1]: "high", sizes[0]: "low"}.get(size)
    return value, size, edge


def wanted(group):
    """Return the step sizes to try next: beyond the edges with a best value."""
    sizes = sorted(cell["step_size"] for cell in group)
    kinds = [kind for kind in ("all", "warm") if any(last(cell, kind) for cell in group)]
    at = {tuned(group, score, kind)[2] for score in SCORES for kind in kinds or ["all"]}
    beyond = {"low": sizes[0] / 2.0, "high": sizes[-1] * 2.0}
    return [size for edge, size in beyond.items() if edge in at and len(sizes) < MOST_SIZES]


def langevin_loop(posterior, local_steps, step_size, setting, **options):
    """Return the loop of a cell of FA-LD."""
    own = {"batch": setting["batch"], "temperature": setting["temperature"]}
    return langevin(posterior, local_steps=local_steps, step_size=step_size, **own, **options)


def fa_ld_groups(records):
    """Yield the settings of FA-LD's figures: facts, and the loop by step size; smallest first."""
    posterior = regression(records)
    for steps in FA_LD["local_steps"]:
        yield {"local_steps": steps}, partial(langevin_at, posterior, steps, FA_LD)


def langevin_at(posterior, local_steps, setting, step_size):
    """Return the loop with a step size."""
    return langevin_loop(posterior, local_steps, step_size, setting)


def fa_hmc_groups(records):
    """Yield FA-HMC's figures: leapfrog steps at fixed iterations, then the reverse."""
    posterior = regression(records)
    first, second = FA_HMC["leapfrog"], FA_HMC["local"]
    pairs = [(k, first["iterations"]) for k in first["leapfrog_steps"]]
    pairs += [(second["leapfrog_steps"], t) for t in second["iterations"]]
    for pair in dict.fromkeys(pairs):
        facts = {"leapfrog_steps": pair[0], "iterations": pair[1]}
        yield facts, partial(hamiltonian_at, posterior, pair, FA_HMC, {"correlation": 1.0})


def hamiltonian_at(posterior, pair, setting, options, step_size):
    """Return the loop with a step size."""
    return hamiltonian_loop(posterior, pair, step_size, setting, **options)[1]


def hamiltonian_loop(posterior, pair, step_size, setting, **options):
    """Return the facts and the loop of a cell of FA-HMC, of (K, T)."""
    shape = {"leapfrog_steps": pair[0], "iterations": pair[1], "step_size": step_size}
    return shape, hamiltonian(posterior, batch=setting["batch"], **shape, **options)


def network_groups(records):
    """Yield Figure 5's settings; one leapfrog step is run as FA-LD with step eta^2 / 2."""
    posterior, start = network(records, NETWORK["hidden"])
    for pair in NETWORK["pairs"]:
        facts = {"leapfrog_steps": pair[0], "iterations": pair[1]}
        yield facts, partial(network_at, posterior, pair, {"correlation": 1.0, **start})


def network_at(posterior, pair, options, step_size):
    """Return the loop with a step size."""
    if pair[0] > 1:
        return hamiltonian_at(posterior, pair, NETWORK, options, step_size)
    setting = {"temperature": 1.0, "batch": NETWORK["batch"]}
    return langevin_loop(posterior, pair[1], step_size**2 / 2.0, setting, **options)


def private_network_cells(records):
    """Yield a network's private cells: records' gradients clipped, all momentum private."""
    setting = PRIVATE_NETWORK
    posterior, start = network(records, setting["hidden"], setting["clip_norm"])
    for *pair, noise, step_size in setting["cells"]:
        options = {"correlation": setting["correlation"], "gradient_noise_multiplier": noise}
        facts, loop = hamiltonian_loop(posterior, pair, step_size, setting, **options, **start)
        yield {**facts, "noise_multiplier": noise}, loop


def private_cells(records):
    """Yield private cells: clipped gradients, all noise private, every round accounted."""
    posterior = regression(records, PRIVATE["clip_norm"])
    for steps, step_size in PRIVATE["cells"]:
        loop = langevin_loop(
            posterior, steps, step_size, PRIVATE, correlation=PRIVATE["correlation"]
        )
        yield {"local_steps": steps, "step_size": step_size}, loop


def private_hmc_cells(records):
    """Yield private cells of FA-HMC: by momentum for one leapfrog step, else by gradient noise."""
    setting = PRIVATE_HMC
    posterior = regression(records, setting["clip_norm"])
    for leapfrog, iterations, noise in setting["cells"]:
        shape = {"leapfrog_steps": leapfrog, "iterations": iterations}
        loop = hamiltonian(
            posterior,
            **shape,
            step_size=setting["step_size"],
            batch=setting["batch"],
            correlation=setting["correlation"],
            gradient_noise_multiplier=noise,
        )
        yield (
            {"leapfrog_steps": leapfrog, "iterations": iterations, "noise_multiplier": noise},
            loop,
        )


def with_epsilon(loop, rows):
    """Add both certified ends of epsilon, rounded outwards, to each row, for its rounds."""
    for row in rows:
        if row["round"]:
            bound = fp.epsilon(loop.run(row["round"]), delta=DELTA, adjacency="replace_one")
            row["epsilon"] = [
                math.floor(1e4 * bound.lower) / 1e4,
                math.ceil(1e4 * bound.upper) / 1e4,
            ]


TUNED = {
    "fa_ld": (fa_ld_groups, FA_LD),
    "fa_hmc": (fa_hmc_groups, FA_HMC),
    "network": (network_groups, NETWORK),
}
PRIVATE_PARTS = {
    "private": (private_cells, PRIVATE),
    "private_hmc": (private_hmc_cells, PRIVATE_HMC),
    "private_network": (private_network_cells, PRIVATE_NETWORK),
}
PARTS = TUNED | PRIVATE_PARTS


def run_cell(part, facts, loop, rounds=None):
    """Run one cell, or its first rounds, and return its result."""
    setting = PARTS[part][1]
    begun = time.process_time()
    every = setting.get("every", EVERY)
    rows, done = curve(loop, rounds or setting["rounds"], every, setting.get("warmup", 0))
    if part.startswith("private"):
        with_epsilon(loop, rows)
    rounds = {"rounds_done": done, "rounds_planned": setting["rounds"]}
    seconds = round(time.process_time() - begun, 1)
    return {**facts, **rounds, "seconds": seconds, "curve": rows}


def known_cells(part):
    """Return the recorded cells, if they are of this setting."""
    path = RESULTS / f"{part}_{SUFFIX[0]}.json"
    content = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return content["cells"] if content.get("setting") == PARTS[part][1] else []


def write(part, cells):
    """Write a part's results atomically."""
    path = RESULTS / f"{part}_{SUFFIX[0]}.json"
    run = {"data": SUFFIX[0], "inputs": "unit", "seed": 0}
    content = {"setting": PARTS[part][1], **run, "cells": cells}
    whole_file(path, json.dumps(content, indent=1) + "\n")


def run(part, records):
    """Run the missing cells of a private part, and write the part after every cell."""
    for facts, loop in PRIVATE_PARTS[part][0](records):
        cells = known_cells(part)
        if of_group(cells, facts):
            continue
        write(part, [*cells, run_cell(part, facts, loop)])
        print(part, facts, last(known_cells(part)[-1]), flush=True)


def tune(part, records):
    """Run the missing cells of a part until every best step size lies inside its grid."""
    cells = known_cells(part)
    groups, setting = TUNED[part]
    for facts, make in groups(records):
        sizes = [*setting["step_sizes"], *BEYOND.get((part, *facts.values()), [])]
        todo = [size for size in sizes if not found(cells, facts, size)]
        while todo or (todo := wanted(of_group(cells, facts))):
            size = todo.pop(0)
            cells.append(run_cell(part, {**facts, "step_size": size}, make(size)))
            write(part, cells)
            print(part, facts, size, last(cells[-1]), flush=True)


def of_group(cells, facts):
    """Return the cells of one setting, at all its step sizes."""
    return [cell for cell in cells if facts.items() <= cell.items()]


def found(cells, facts, size):
    """Return whether a cell was run."""
    return any(math.isclose(cell["step_size"], size) for cell in of_group(cells, facts))


def compared(part, kind="all"):
    """Return the table of every setting's best scores; a best at the grid's edge is refused."""
    groups, rows = {}, []
    for cell in known_cells(part):
        facts = {k: cell[k] for k in ("local_steps", "leapfrog_steps", "iterations") if k in cell}
        groups.setdefault(tuple(facts.items()), []).append(cell)
    for facts, group in groups.items():
        sizes = sorted(cell["step_size"] for cell in group)
        row = [*(str(value) for _, value in facts), f"{sizes[0]:.3g} to {sizes[-1]:.3g}"]
        for score in SCORES:
            value, size, edge = tuned(group, score, kind)
            row.append(f"refused: {edge} edge" if edge else f"{value:.4f} ({size:.3g})")
        rows.append(row)
    names = [LETTERS[name] for name, _ in next(iter(groups))]
    return markdown([*names, "step sizes", "accuracy", "Brier", "ECE", "NLL"], rows)


def every_cell(part):
    """Return the table of every step size's scores, settings in the order of their first cells."""
    groups = {}
    for cell in known_cells(part):
        facts = tuple(str(cell[name]) for name in LETTERS if name in cell)
        groups.setdefault(facts, []).append(cell)
    rows = []
    for facts, group in groups.items():
        for cell in sorted(group, key=lambda cell: cell["step_size"]):
            scores = last(cell)
            told = [f"{scores[s]:.4f}" if scores else "diverged" for s in SCORES]
            rows.append([*facts, f"{cell['step_size']:.3g}", *told])
    names = [LETTERS[name] for name in LETTERS if name in known_cells(part)[0]]
    return markdown([*names, "step size", "accuracy", "Brier", "ECE", "NLL"], rows)


LETTERS = {"local_steps": "$K$", "leapfrog_steps": "$K$", "iterations": "$T$"}
PRIVATE_LETTERS = {**LETTERS, "step_size": "step size", "noise_multiplier": "$z$"}


def with_privacy(part, rounds):
    """Return the table of a private part after some rounds, epsilon rounded outwards."""
    cells = known_cells(part)
    names = [name for name in PRIVATE_LETTERS if name in cells[0]]
    table = []
    for cell in sorted(cells, key=lambda cell: [cell[name] for name in names]):
        for row in cell["curve"]:
            if row["round"] in rounds:
                told = [f"{cell[name]:g}" for name in names]
                scores = [f"{row['all'][score]:.4f}" for score in SCORES]
                both = f"[{', '.join(ends(row))}]"
                table.append([*told, str(row["round"]), both, *scores])
    head = [PRIVATE_LETTERS[name] for name in names]
    return markdown([*head, "rounds", "epsilon", "accuracy", "Brier", "ECE", "NLL"], table)


def bargains():
    """Return the claims on the private parts: a comparison, and the cost of more noise."""
    cells = known_cells("private_hmc")
    asked = [
        {"leapfrog_steps": 5, "iterations": steps, "noise_multiplier": noise}
        for steps, noise in ((1, 4.0), (1, 8.0), (5, 8.0))
    ]
    one, two, best = (of_group(cells, facts)[0]["curve"][-1] for facts in asked)
    steps, size = PRIVATE["cells"][5]
    (slow,) = of_group(known_cells("private"), {"local_steps": steps, "step_size": size})
    long = slow["curve"][-1]
    (low, high), (lower, upper) = map(ends, (one, two))
    return (
        f"In {best['round']} rounds with larger batches FA-HMC reaches "
        f"{best['all']['accuracy']:.2f} at a certified epsilon of {ends(best)[1]}; FA-LD needs "
        f"{long['round']} rounds and {ends(long)[1]} for {long['all']['accuracy']:.2f}. "
        "Twice the noise on gradients ($z = 8$ for 4; $K = 5$, $T = 1$) takes accuracy from "
        f"{one['all']['accuracy']:.3f} to {two['all']['accuracy']:.3f}, epsilon's upper end from "
        f"{high} to {upper} and its lower end from {low} to {lower}."
    )


def ends(row):
    """Return both ends of a row's epsilon, rounded outwards."""
    low, high = row["epsilon"]
    return f"{math.floor(100 * low) / 100:.2f}", f"{math.ceil(100 * high) / 100:.2f}"


def pages():
    """Write the tables of the pages; return the parts with a refused best value."""
    tables = {
        ("fa_ld.md", "FA-LD"): compared("fa_ld"),
        ("fa_ld.md", "FA-LD with warm-up"): compared("fa_ld", "warm"),
        ("fa_ld.md", "FA-LD, every step size"): every_cell("fa_ld"),
        ("fa_ld.md", "FA-HMC"): compared("fa_hmc"),
        ("fa_ld.md", "FA-HMC, every step size"): every_cell("fa_hmc"),
        ("fa_hmc.md", "figure 5"): compared("network"),
        ("fa_hmc.md", "figure 5, every step size"): every_cell("network"),
        ("fa_ld.md", "FA-LD with epsilon"): with_privacy("private", (30, 120)),
        ("fa_ld.md", "FA-HMC with epsilon"): with_privacy("private_hmc", (20,)),
        ("fa_ld.md", "what came out with epsilon"): bargains(),
        ("fa_hmc.md", "figure 5 with epsilon"): with_privacy("private_network", (1, 8)),
    }
    for (page, name), text in tables.items():
        put(page, name, text)
    return [f"{page}: {name}" for (page, name), text in tables.items() if "refused" in text]


def check(part, records):
    """Run the smallest cell again and a drawn one; return whether both agree."""
    cells = sorted(known_cells(part), key=lambda cell: cell["seconds"])
    if not cells:
        print(f"{part}_{SUFFIX[0]}.json lacks cells of this setting; run without --check first")
        return False
    same = redrawn(
        {f"{part}, the smallest": {"cell": partial(agrees, part, records, cells[0])}}, 600
    )
    others = {str(facts_of(cell)): cell for cell in cells[1:]}
    again = {name: partial(agrees, part, records, cell) for name, cell in others.items()}
    took = {name: cell["seconds"] for name, cell in others.items()}
    return redrawn({part: affordable(part, again, took)}) and same


def facts_of(cell):
    """Return the settings of a cell, without its results."""
    came_out = ("curve", "seconds", "rounds_done", "rounds_planned")
    return {name: value for name, value in cell.items() if name not in came_out}


def agrees(part, records, recorded):
    """Run a cell again; return whether it gives the recorded scores.

    Chains with large steps, and a network's, diverge from each other by rounding, which differs
    between machines. For these only the first recorded round is run. If a start moved by the size
    of rounding also ends elsewhere, no comparison is made.
    """
    for facts, loop in PARTS[part][0](records):
        if facts.items() <= recorded.items():
            made = loop(recorded["step_size"]) if part in TUNED else loop
            first = recorded["curve"][0]["round"] if part != "private" else None
            again = run_cell(part, facts, made, first)["curve"]
            old = recorded["curve"][: len(again)]
            if near(again[-1:], old[-1:], 0.0, TOLERANCE):
                return True
            beside = run_cell(part, facts, shifted(made), first)["curve"]
            if not near(beside[-1:], again[-1:], 0.0, TOLERANCE):
                raise Parted
            return False
    return False


def shifted(loop):
    """Return the loop with its start moved by about the rounding of single precision."""
    return replace(loop, start=loop.init().positions[0] + 1e-7)


def main():
    """Run the command line."""
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--part", choices=[*PARTS, "all"], default="all")
    asked.add_argument("--check", action="store_true")
    asked.add_argument("--page", action="store_true", help="only write the tables")
    asked.add_argument("--dataset", choices=DATASETS, default="fashion-mnist")
    asked.add_argument("--data-dir")
    options = asked.parse_args()
    torch.set_num_threads(1)
    if options.page:
        usual = options.dataset == "fashion-mnist"
        require(usual, "--dataset", options.dataset, "be fashion-mnist for --page")
        sys.exit(told(pages()))
    records = images(options.dataset, options.data_dir)
    SUFFIX[0] = "fashion" if options.dataset == "fashion-mnist" else options.dataset
    parts = PARTS if options.part == "all" else [options.part]
    if options.check:
        sys.exit(not all([check(part, records) for part in parts]))
    for part in parts:
        (tune if part in TUNED else run)(part, records)
    if SUFFIX[0] == "fashion":
        sys.exit(told(pages()))


def told(refused):
    """Print the tables with a best value at the grid's edge; return the exit status."""
    for name in refused:
        print(f"{name}: a best step size lies at the edge of its grid and is refused; run on")
    return int(bool(refused))


if __name__ == "__main__":
    with in_a_line():
        main()
