"""The plots of the Fed-SMP pages, from results/fed_smp.json: the paper's Figures 2 and 3.

python benchmarks/papers/fed_smp_figures.py
"""

from statistics import mean, stdev
from typing import Any

import matplotlib
from fed_smp_page import TARGET, before_overflow
from fed_smp_paper import known_runs
from pages import DOCS

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.axes import Axes

from fedprivacy.reproductions.fed_smp.tables import PAPER, SHARES

SHOWN = {
    "fedavg": ("FedAvg", "k"),
    "dp-fedavg": ("DP-FedAvg", "C3"),
    "rand_k-0.4": ("rand-k with d/k, .4", "C0"),
    "rand_k_unscaled-0.4": ("rand-k without d/k, .4", "C1"),
    "top_k-0.005": ("top-k, .005", "C2"),
}
"""Runs of Figure 2 that the paper's text discusses: their names and colours."""
METHODS = {
    "rand_k": ("rand-k", "C0"),
    "rand_k_unscaled": ("rand-k without d/k", "C1"),
    "top_k": ("top-k", "C2"),
}

NAMED = ("model", "inputs", "run", "finished")
"""Facts that distinguish runs whose seeds are shown together."""


def of_kind(runs: list[dict[str, Any]], inputs: str, label: str) -> list[dict[str, Any]]:
    """Return a run's seeds on the paper's network, the first seed first."""
    facts = ("cnn", inputs, label)
    own = [one for one in runs if (one["model"], one["inputs"], one["run"]) == facts]
    return sorted(own, key=lambda one: one["seed"])


def rounds_and_megabytes(runs: list[dict[str, Any]]) -> None:
    """Draw accuracy against rounds and against megabytes, Figure 2."""
    figure, axes = pyplot.subplots(2, 2, figsize=(9, 6), sharey=True)
    for (left, right), inputs in zip(axes, ("standardised", "unit"), strict=True):
        for label, (name, colour) in SHOWN.items():
            for at, one in enumerate(of_kind(runs, inputs, label)):
                curve(left, right, one, "" if at else name, colour)
        for axis in (left, right):
            axis.axhline(100 * TARGET, color="0.6", lw=0.8, ls=":")
            axis.set(ylim=(50, 90))
        left.set(xlabel="round", ylabel=f"accuracy, %, {inputs} inputs", xlim=(0, 180))
        right.set(xlabel="MB a client, paper's count", xscale="log")
        left.legend(frameon=False, loc="lower right")
    save(figure, "fed_smp_rounds.png")


def curve(left: Axes, right: Axes, one: dict[str, Any], name: str, colour: str) -> None:
    """Draw one run, thick if it has a name; a cross marks where an update was not finite."""
    values = [100 * value for value in before_overflow(one)]
    rounds = [int(n) for n in one["accuracy_by_round"]][: len(values)]
    a_round = one["paper_mb_of_a_client"] / one["rounds_done"]
    for axis, scale in ((left, 1.0), (right, a_round)):
        at = [scale * n for n in rounds]
        axis.plot(at, values, color=colour, lw=1.3 if name else 0.5, label=name or None)
        if one["first_non_finite_round"] is not None:
            axis.plot(at[-1:], values[-1:], "x", color=colour)


def shares_kept(runs: list[dict[str, Any]]) -> None:
    """Draw best accuracy and training loss against the share kept, Figure 3.

    A marker of accuracy is hollow if a seed ended with an overflow.
    """
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.6))
    for method, (name, colour) in METHODS.items():
        if f"{method}-{SHARES[0]:g}" in PAPER:
            paper = [PAPER[f"{method}-{share:g}"][0] for share in SHARES]
            left.plot(SHARES, paper, ":", color=colour, label=f"{name}, the paper")
        for noise, style, how in (("", "o-", "with noise"), ("fedavg-", "s--", "without")):
            for axis, fact, unit in ((left, "best_accuracy", 100), (right, "training_loss", 1)):
                found = of_seeds(runs, noise + method, fact)
                middles = [unit * mean(values) for values in found.values()]
                bars = [unit * stdev(values) if values[1:] else 0.0 for values in found.values()]
                look = {"ms": 4, "capsize": 2, "color": colour}
                label = f"{name}, {how}" if found else None
                axis.errorbar([*found], middles, bars, fmt=style, label=label, **look)
            # Hollow if a seed ended with an overflow.
            ends = of_seeds(runs, noise + method, "first_non_finite_round")
            found = of_seeds(runs, noise + method, "best_accuracy")
            at = [100 * mean(found[share]) for share in ends]
            left.plot([*ends], at, style[0], ms=4, color=colour, mfc="white", zorder=3)
    left.set(xlabel="share kept", xscale="log", ylabel="best accuracy, %")
    right.set(xlabel="share kept", xscale="log", ylabel="training loss after the last round")
    left.legend(frameon=False)
    save(figure, "fed_smp_shares.png")


def of_seeds(runs: list[dict[str, Any]], method: str, fact: str) -> dict[float, list[float]]:
    """Return a fact of the seeds with standardised inputs, by the share kept."""
    found: dict[float, list[float]] = {}
    for share in SHARES:
        facts = ("cnn", "standardised", f"{method}-{share:g}", True)
        own = [one for one in runs if tuple(map(one.get, NAMED)) == facts]
        if values := [one[fact] for one in own if one[fact] is not None]:
            found[share] = values
    return found


def save(figure: Any, name: str) -> None:
    """Write a plot next to the page."""
    figure.tight_layout()
    figure.savefig(DOCS / name, dpi=120)
    pyplot.close(figure)


if __name__ == "__main__":
    known = known_runs()
    rounds_and_megabytes(known)
    shares_kept(known)
