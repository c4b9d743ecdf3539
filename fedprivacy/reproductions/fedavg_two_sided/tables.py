"""Two-sided FedAvg's tables and figures, their cells, and the paper's numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import product

from ..base import Figure, FigureCell

WORKERS, BATCH, EPOCHS, LOCAL_RATE, SERVER_RATE = 100, 64, 5, 0.1, 1.0
MODELS = ("logistic", "2nn", "cnn")
TARGETS = {"logistic": 0.78, "2nn": 0.80, "cnn": 0.80}
"""Accuracy that ends a run on Fashion-MNIST; on MNIST it is the paper's 95 per cent."""
PAPER_TARGET = 0.95
MOST_ROUNDS = {"logistic": 200, "2nn": 200, "cnn": 60}
QUICK_ROUNDS = 2
GRID_ROUNDS, GRID_SEEDS = 40, (1, 2, 3)
"""Rounds of a cell of Table 3's grid, and its seeds in the documentation."""
SEEDS = (1, 2, 3, 4, 5)
"""Seeds of partition and start for which SCAFFOLD's divergence is looked at."""
SERVER_RATES, LOCAL_RATES, COHORTS = (1.0, 10.0), (0.001, 0.01, 0.1), (10, 50, 100)
"""Table 3's grid."""
NEXT = ((0.3, 0.1), (1.0, 0.3), (0.3, 0.3), (3.0, 0.3), (1.0, 1.0))
BEYOND = {10: (*NEXT, (3.0, 0.1), (3.0, 0.03)), 50: NEXT, 100: NEXT}
"""Pairs around it, by n, to check whether the grid's best lies inside the tried range."""
PAPER = {
    ("logistic", 10, 10): (3, 3),
    ("logistic", 10, 100): (5, 5),
    ("logistic", 2, 10): (14, 14),
    ("logistic", 2, 100): (11, 7),
    ("2nn", 10, 10): (3, 3),
    ("2nn", 10, 100): (8, 5),
    ("2nn", 2, 10): (14, 14),
    ("2nn", 2, 100): (17, 7),
    ("cnn", 10, 10): (3, 3),
    ("cnn", 10, 100): (1, 1),
    ("cnn", 2, 10): (10, 14),
    ("cnn", 2, 100): (7, 17),
}
"""Rounds of FedAvg and SCAFFOLD to 95 % in the paper's Table 2."""


SECONDS = {
    ("fedavg", "logistic", 10): 0.09,
    ("scaffold", "logistic", 10): 0.17,
    ("fedavg", "logistic", 50): 0.43,
    ("fedavg", "logistic", 100): 0.79,
    ("scaffold", "logistic", 100): 1.7,
    ("fedavg", "2nn", 10): 0.56,
    ("scaffold", "2nn", 10): 1.0,
    ("fedavg", "2nn", 100): 4.2,
    ("scaffold", "2nn", 100): 6.0,
    ("fedavg", "cnn", 10): 12.0,
    ("scaffold", "cnn", 10): 12.0,
    ("fedavg", "cnn", 100): 100.0,
    ("scaffold", "cnn", 100): 100.0,
}
"""(method, model, n) -> processor seconds of a round with five epochs."""


@dataclass(frozen=True, kw_only=True)
class TwoSidedRun:
    """One run.

    Args:
        method: "fedavg" or "scaffold".
        model: a key of ``MODELS``.
        workers: n, the number of the 100 workers in a round.
        classes: number of classes of a worker; 10 is an even split.
        strategy: 1 draws with replacement, 2 without.
        seed: seed of partition, start, cohorts and batches.
        server_rate: the server's learning rate.
        local_rate: the workers'.
        epochs: K, passes over a worker's images in a round.
        batch: images in a local step; not specified in the paper.
    """

    method: str
    model: str
    workers: int
    classes: int
    strategy: int = 2
    seed: int = 1
    server_rate: float = SERVER_RATE
    local_rate: float = LOCAL_RATE
    epochs: int = EPOCHS
    batch: int = BATCH

    @property
    def rounds(self) -> int:
        """Planned number of rounds; a run ends earlier at its target."""
        apart = (self.server_rate, self.local_rate, self.seed) != (SERVER_RATE, LOCAL_RATE, 1)
        alike = (self.method, self.model, self.classes) == ("fedavg", "logistic", 2)
        in_grid = alike and (apart or self.workers == 50)
        return GRID_ROUNDS if in_grid else MOST_ROUNDS[self.model]


def table_2() -> Iterator[TwoSidedRun]:
    """Yield the cells of Table 2: both methods, even and two classes, 10 and 100 workers."""
    methods = ("fedavg", "scaffold")
    for model, classes, workers, method in product(MODELS, (10, 2), (10, 100), methods):
        yield TwoSidedRun(method=method, model=model, workers=workers, classes=classes)


def figure_1() -> Iterator[TwoSidedRun]:
    """Yield the cells of Figures 1 to 4 for the 2NN and logistic, and both strategies."""
    for model in ("logistic", "2nn"):
        for classes in (1, 5):
            yield TwoSidedRun(method="fedavg", model=model, workers=10, classes=classes)
        for epochs in (1, 10):
            yield TwoSidedRun(method="fedavg", model=model, workers=10, classes=5, epochs=epochs)
        for classes in (10, 2):
            yield TwoSidedRun(method="fedavg", model=model, workers=10, classes=classes, strategy=1)
    for model in ("logistic", "2nn"):
        for classes in (1, 5):
            yield TwoSidedRun(method="fedavg", model=model, workers=100, classes=classes)
        for epochs in (1, 10):
            yield TwoSidedRun(method="fedavg", model=model, workers=100, classes=5, epochs=epochs)


def by_batch() -> Iterator[TwoSidedRun]:
    """Yield both methods by the size of a batch, where SCAFFOLD diverges with batches of 64."""
    for batch in (BATCH, 200, 600):
        for method in ("fedavg", "scaffold"):
            yield TwoSidedRun(method=method, model="2nn", workers=10, classes=2, batch=batch)


def by_seed() -> Iterator[TwoSidedRun]:
    """Yield SCAFFOLD by the seed of partition and start, for ten workers and two classes."""
    for seed in SEEDS:
        yield TwoSidedRun(method="scaffold", model="2nn", workers=10, classes=2, seed=seed)


def table_3(seeds: Iterable[int] = GRID_SEEDS) -> Iterator[TwoSidedRun]:
    """Yield Table 3's grid of both learning rates, two classes, logistic; a seed at a time."""
    pairs = [(server, local) for server in SERVER_RATES for local in LOCAL_RATES]
    for seed in seeds:
        for workers in COHORTS:
            usual = TwoSidedRun(
                method="fedavg", model="logistic", workers=workers, classes=2, seed=seed
            )
            for server, local in (*pairs, *BEYOND[workers]):
                yield replace(usual, server_rate=server, local_rate=local)


def label(run: TwoSidedRun) -> str:
    """Return the name of a run: the settings that differ from Table 2's are added."""
    words = [f"{run.method}-{run.model}-{run.classes}-classes-{run.workers}-workers"]
    words += [f"{run.epochs}-epochs"] if run.epochs != EPOCHS else []
    words += ["with-replacement"] if run.strategy == 1 else []
    words += [f"batch-{run.batch}"] if run.batch != BATCH else []
    own = (run.server_rate, run.local_rate)
    words += [f"rates-{own[0]:g}-{own[1]:g}"] if own != (SERVER_RATE, LOCAL_RATE) else []
    return "-".join(words)


def _cell(run: TwoSidedRun, rounds: int | None = None) -> FigureCell:
    pace = SECONDS[run.method, run.model, run.workers] * run.epochs / EPOCHS
    planned = run.rounds if rounds is None else rounds
    settings = {**asdict(run), "rounds": planned}
    # The seed is the command line's.
    del settings["seed"]
    theirs = PAPER.get((run.model, run.classes, run.workers))
    usual = TwoSidedRun(
        method=run.method, model=run.model, workers=run.workers, classes=run.classes
    )
    printed = {}
    if theirs is not None and run == usual:
        printed = {ROUNDS: float(theirs[run.method == "scaffold"])}
    return FigureCell(
        name=label(run),
        seconds=10.0 + planned * pace,
        quick_seconds=10.0 + QUICK_ROUNDS * pace,
        settings=settings,
        printed=printed,
    )


ROUNDS = "rounds to the target"
DATA = ("fashion-mnist", "mnist", "kmnist")
REMARK = (
    "The paper's runs are on MNIST with a target of 95 per cent. On Fashion-MNIST the target is 78 "
    "per cent for logistic regression and 80 for the other models, so only ratios of rounds can be "
    "compared. Times are those of a run that does not reach its target."
)


def _figure(name: str, shows: str, cells: Iterable[FigureCell], size: int) -> Figure:
    return Figure(
        name=f"fedavg-two-sided/{name}",
        shows=shows,
        work="fedavg_two_sided.runs:rounds_to_target",
        cells=tuple(cells),
        megabytes=size,
        quick=f"{QUICK_ROUNDS} rounds, too few for the target",
        data=DATA,
        remark=REMARK,
    )


def _figure_1() -> Iterator[TwoSidedRun]:
    """Yield FedAvg's runs of Figures 1 to 4, Table 2's among them."""
    yield from (run for run in table_2() if run.method == "fedavg" and run.model != "cnn")
    yield from figure_1()


FIGURES = (
    _figure(
        "figure-1",
        "FedAvg's rounds by classes, workers, epochs and strategy, also of Figures 2 to 4",
        map(_cell, _figure_1()),
        1500,
    ),
    _figure("table-2", "rounds of FedAvg and SCAFFOLD", map(_cell, table_2()), 1500),
    _figure(
        "table-3",
        "FedAvg's rounds by both learning rates, and pairs around the grid",
        (_cell(run, GRID_ROUNDS) for run in table_3(seeds=(1,))),
        1500,
    ),
)
