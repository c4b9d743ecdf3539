"""FA-HMC's Figure 5 at the paper's length and width: 200 rounds, two hidden layers of 512.

    python benchmarks/papers/long_network.py             works through what a chain of an hour does
    python benchmarks/papers/long_network.py --most 5    the same for chains of up to five hours
    python benchmarks/papers/long_network.py --page      only writes the tables
    python benchmarks/papers/long_network.py --check     runs the first rounds of two chains again

The settings are those of the paper: Fashion-MNIST, batches of 1,000 records, momentum shared by all
clients, temperature 1, one chain. K = 1 is FA-LD with step eta^2 / 2. Each step size is a separate
chain; step sizes are halved and doubled until the best of every score lies inside the grid. A
stopped run can be resumed, as in ``long_chains.py``, whose files and tables are used.

With AVX-512 instructions and without tiles, oneDNN multiplies matrices of single precision nearly
as exactly as MKL, and took half the time in our trials (``multiply_by_onednn``). K = 50 computes
its gradients with products of 16 bits (``HALF``), in a separate part.
"""

import argparse
import math
import sys
import time
from dataclasses import replace
from functools import partial

import fa_ld_fashion as short
import long_chains as long
import torch
from drawn import redrawn
from pages import put
from pages import table as markdown
from told import hours as hours_of

from fedprivacy.errors import Diverged
from fedprivacy.reproductions.chains import images, network

PART = "network_long"
SETTING = {"hidden": [512, 512], "rounds": 200, "batch": 1000, "every": 1, "shown": 20}
long.PARTS[PART] = SETTING
long.FIVE_SIZES[PART] = [4e-4, 8e-4, 1.6e-3, 3.2e-3]

HALF = "network_long_bf16"
"""Part that would otherwise take too long: gradients by bfloat16, and two chains for comparison."""
long.PARTS[HALF] = {**SETTING, "products": "bfloat16"}
long.FIVE_SIZES[HALF] = [4e-4, 8e-4, 1.6e-3]
IN_HALF = {"leapfrog_steps": 50, "iterations": 1}
BESIDE = [
    ({"leapfrog_steps": 1, "iterations": 10}, 3.2e-3),
    ({"leapfrog_steps": 10, "iterations": 1}, 1.6e-3),
]


class InHalf:
    """A model with gradients from products of 16 bits: sums in single precision, then rounded.

    Args:
        model: a model of single precision.
    """

    def __init__(self, model):
        self.model, self.dimension, self.logits = model, model.dimension, model.logits

    def gradient_sums(self, *asked):
        """See ``training.likelihoods.Model``."""
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.model.gradient_sums(*asked).float()


class Chain(long.Chain):
    """One chain at one step size."""

    def loop(self, records):
        """Return the loop from the network's first parameters."""
        posterior, start = network(records, self.setting["hidden"])
        if self.part == HALF:
            posterior = replace(posterior, model=InHalf(posterior.model))
        pair = self.facts["leapfrog_steps"], self.facts["iterations"]
        options = {"correlation": 1.0, "seed": self.seed, **start}
        return short.hamiltonian_at(posterior, pair, SETTING, options, *self.sizes)

    def chances(self, model, positions, inputs):
        """Return the predictions, shape (1, records, classes)."""
        with torch.no_grad():
            return model.logits(positions, inputs).softmax(-1)[None]

    def run(self, records, rounds=None, shifted=False):
        """Run as the others do; a chain that leaves every finite range ends there."""
        try:
            yield from super().run(records, rounds, shifted)
        except Diverged as error:
            last = {"round": None, "diverged": str(error)}
            ((cell,), told) = self.result(self.now), {"finished": True}
            yield [{**cell, **told, "curve": [*cell["curve"], last]}]


TIMES = 4.0
"""Largest factor on the usual error for products that count as single precision."""


def multiply_by_onednn():
    """Let oneDNN multiply matrices, if its products have single precision.

    The setting permits products of 16 bits, and with Intel's tiles these are used, so it is tested.
    """
    torch.set_float32_matmul_precision("highest")
    usual = product_error()
    torch.set_float32_matmul_precision("medium")
    if product_error() > TIMES * usual:
        torch.set_float32_matmul_precision("highest")


def product_error():
    """Return the relative error of products of the network's size."""
    generator = torch.Generator().manual_seed(0)
    left, right = (
        torch.randn(shape, generator=generator) for shape in ((2, 1000, 784), (2, 784, 512))
    )
    exact = left.double() @ right.double()
    return float((left @ right - exact).norm() / exact.norm())


def settings():
    """Return the settings of the plan, cheapest first."""
    return sorted(long.HAMILTONIAN, key=long.gradients)


def hours(facts, part=PART):
    """Return the hours of a core for a chain; None before the first run."""
    cells = [cell for cell in long.known(part) if cell["rounds_done"]]
    return long.gradients(facts) * long.pace(part) / 3600.0 if cells else None


def planned(most):
    """Yield (part, facts, step size) of the next run, until no run within the hours is left."""
    for facts in settings():
        if (hours(facts) or 0.0) > most:
            continue
        while sizes := long.missing(PART, facts, 0):
            yield PART, facts, sizes[0]
    for facts, size in BESIDE:
        if (hours(facts, HALF) or 0.0) <= most and not of_size(HALF, facts, size):
            yield HALF, facts, size
    # Their time is known only after the chains for comparison.
    while (hours(IN_HALF, HALF) or 0.0) <= most and (sizes := long.missing(HALF, IN_HALF, 0)):
        yield HALF, IN_HALF, sizes[0]


def of_size(part, facts, size):
    """Return the finished chains of a setting and step size, one or none."""
    return [cell for cell in long.of(part, facts) if math.isclose(cell["step_size"], size)]


def work(records, most):
    """Work through the plan."""
    for part, facts, size in planned(most):
        chain = Chain(part, facts, [size], 0)
        for cells in chain.run(records):
            long.write(part, cells)
        chain.path.unlink(missing_ok=True)
        print(part, facts, size, [short.last(cell) for cell in cells], flush=True)


def progress():
    """Return the table of finished runs, with the time of a chain."""
    rows = []
    for part, facts in [*((PART, each) for each in settings()), (HALF, IN_HALF)]:
        name = ", ".join(f"{short.LETTERS[key]} = {value}" for key, value in facts.items())
        name += ", products of 16 bits" if part == HALF else ""
        cells = [cell for cell in long.known(part) if facts.items() <= cell.items()]
        done = sum(cell["finished"] for cell in cells)
        takes = "-" if hours(facts, part) is None else f"{hours(facts, part):.2f}"
        rows.append([name, str(done), str(len(long.missing(part, facts, 0))), takes])
    return markdown(["setting", "step sizes done", "to be run, at least", "hours of each"], rows)


def in_half():
    """Return the table of results with gradients of 16 bits, and with 32 bits if available."""
    rows = []
    for facts, size in BESIDE:
        for part, bits in ((PART, "32"), (HALF, "16")):
            for cell in of_size(part, facts, size):
                found = short.last(cell) or {}
                told = [found.get(score) for score in short.SCORES]
                scores = ["diverged" if one is None else f"{one:.4f}" for one in told]
                rows.append([*map(str, facts.values()), bits, f"{size:.3g}", *scores])
    if long.of(HALF, IN_HALF):
        rows.append([*map(str, IN_HALF.values()), "16", *long.bests(HALF, IN_HALF, "all")])
    head = [short.LETTERS[name] for name in IN_HALF]
    return markdown(
        [*head, "bits of a product", "step sizes", "accuracy", "Brier", "ECE", "NLL"], rows
    )


def pages():
    """Write the tables of the page."""
    put("fa_hmc.md", "figure 5 at length", long.compared(PART))
    put("fa_hmc.md", "figure 5 at length, products of 16 bits", in_half())
    put("fa_hmc.md", "figure 5 at length, what was run", progress())


def check():
    """Repeat the first rounds of a drawn chain of each part; return whether they reproduce."""
    records = images("fashion-mnist", None)
    tables = {
        part: {
            str(long.own(cell)): partial(long.agrees, part, cell, records, Chain)
            for cell in long.known(part)
            if short.last(cell) and affordable(cell)
        }
        for part in (PART, HALF)
    }
    return redrawn(tables, 600)


def affordable(cell):
    """Return whether the first recorded round takes at most a few minutes."""
    return cell["seconds"] / cell["rounds_done"] * cell["curve"][0]["round"] < 120.0


def main():
    """Run the command line."""
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--check", action="store_true")
    asked.add_argument("--page", action="store_true", help="only write the tables")
    asked.add_argument("--most", type=hours_of, default=1.0, help="hours that a chain may take")
    options = asked.parse_args()
    torch.set_num_threads(1)
    multiply_by_onednn()
    if options.check:
        sys.exit(not check())
    if not options.page:
        begun = time.process_time()
        work(images("fashion-mnist", None), options.most)
        print(f"{time.process_time() - begun:.0f} seconds of the processor")
    pages()


if __name__ == "__main__":
    main()
