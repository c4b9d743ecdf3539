"""FA-HMC's Figure 5 at the paper's length and width: 200 rounds, two hidden layers of 512.

    python benchmarks/papers/long_network.py             works through what a chain of an hour does
    python benchmarks/papers/long_network.py --most 5    the same for chains of up to five hours
    python benchmarks/papers/long_network.py --page      only writes the tables
    python benchmarks/papers/long_network.py --check     runs the first rounds of a chain again

Fashion-MNIST, batches of 1,000 records, momentum shared by all clients, temperature 1, one chain,
as in the paper; K = 1 is FA-LD with step eta^2 / 2. Each step size is a chain of its own, halved
and doubled until the best of every score lies inside the grid. A run may be stopped and goes on, as
those of ``long_chains.py``, whose files and tables these share.
"""

import argparse
import sys
import time
from functools import partial

import fa_ld_fashion as short
import long_chains as long
import torch
from drawn import redrawn
from pages import put
from pages import table as markdown
from told import hours as hours_of

from fedprivacy.errors import Diverged

PART = "network_long"
SETTING = {"hidden": [512, 512], "rounds": 200, "batch": 1000, "every": 1, "shown": 20}
long.PARTS[PART] = SETTING
long.FIVE_SIZES[PART] = [4e-4, 8e-4, 1.6e-3, 3.2e-3]


class Chain(long.Chain):
    """One chain at one step size."""

    def loop(self, records):
        """Return the loop from the network's first parameters."""
        posterior, start = short.network(records, SETTING)
        pair = self.facts["leapfrog_steps"], self.facts["iterations"]
        options = {"correlation": 1.0, "seed": self.seed, **start}
        return short.hamiltonian_at(posterior, pair, SETTING, options, *self.sizes)

    def chances(self, model, positions, inputs):
        """Return the predictions, shape (1, records, classes)."""
        with torch.no_grad():
            return model.logits(positions, inputs).softmax(-1)[None]

    def run(self, records, rounds=None, shifted=False):
        """Run as the others do; a chain that leaves every range ends there."""
        try:
            yield from super().run(records, rounds, shifted)
        except Diverged as error:
            last = {"round": None, "diverged": str(error)}
            ((cell,), told) = self.result(self.now), {"finished": True}
            yield [{**cell, **told, "curve": [*cell["curve"], last]}]


def settings():
    """Return what is to be run, cheapest first."""
    return sorted(long.HAMILTONIAN, key=long.gradients)


def hours(facts):
    """Return the hours of a core that a chain takes; None before one was run."""
    cells = [cell for cell in long.known(PART) if cell["rounds_done"]]
    return long.gradients(facts) * long.pace(PART) / 3600.0 if cells else None


def work(records, most):
    """Work through the settings whose chains take no more hours than that."""
    for facts in settings():
        if (hours(facts) or 0.0) > most:
            continue
        while sizes := long.missing(PART, facts, 0):
            chain = Chain(PART, facts, sizes[:1], 0)
            for cells in chain.run(records):
                long.write(PART, cells)
            chain.path.unlink(missing_ok=True)
            print(facts, sizes[0], [short.last(cell) for cell in cells], flush=True)


def progress():
    """Return the table of what was run, and what a chain takes."""
    rows = []
    for facts in settings():
        name = ", ".join(f"{short.LETTERS[key]} = {value}" for key, value in facts.items())
        cells = [cell for cell in long.known(PART) if facts.items() <= cell.items()]
        done = sum(cell["finished"] for cell in cells)
        takes = "-" if hours(facts) is None else f"{hours(facts):.2f}"
        rows.append([name, str(done), str(len(long.missing(PART, facts, 0))), takes])
    return markdown(["setting", "step sizes done", "to be run, at least", "hours of each"], rows)


def pages():
    """Write the tables of the page."""
    put("fa_hmc.md", "figure 5 at length", long.compared(PART))
    put("fa_hmc.md", "figure 5 at length, what was run", progress())


def check():
    """Run the first rounds of a drawn chain again; return whether they come out again."""
    records = short.data("fashion-mnist", None)
    cells = [cell for cell in long.known(PART) if short.last(cell) and affordable(cell)]
    drawn = {str(long.own(cell)): partial(agrees, cell, records) for cell in cells}
    return redrawn({PART: drawn}, 600) if drawn else True


def affordable(cell):
    """Return whether the first shown round is there within a few minutes."""
    return cell["seconds"] / cell["rounds_done"] * cell["curve"][0]["round"] < 120.0


def agrees(cell, records):
    """Return whether a chain's first shown round comes out again."""
    facts = {name: cell[name] for name in ("leapfrog_steps", "iterations")}
    chain, shown = Chain(PART, facts, [cell["step_size"]], cell["seed"]), cell["curve"][0]
    ((found,),) = chain.run(records, shown["round"])
    return long.near(found["curve"][0], shown, 0.0, short.TOLERANCE)


def main():
    """Do what the command line asks for."""
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--check", action="store_true")
    asked.add_argument("--page", action="store_true", help="only write the tables")
    asked.add_argument("--most", type=hours_of, default=1.0, help="hours that a chain may take")
    options = asked.parse_args()
    torch.set_num_threads(1)
    if options.check:
        sys.exit(not check())
    if not options.page:
        begun = time.process_time()
        work(short.data("fashion-mnist", None), options.most)
        print(f"{time.process_time() - begun:.0f} seconds of the processor")
    pages()


if __name__ == "__main__":
    main()
