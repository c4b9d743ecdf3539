"""The tables of the pages on Fed-SMP and the long ones, from results/fed_smp.json and the paper.

python benchmarks/papers/fed_smp_page.py
"""

import json
import math
from collections.abc import Callable, Iterable
from statistics import mean as mean_of
from statistics import median, stdev
from typing import Any

from fed_smp_paper import PLAN, RESULTS, key, like_the_papers, told_whole
from pages import put, table

from fedprivacy.reproductions.fed_smp.tables import (
    NOISE,
    NOISES,
    PAPER,
    PAPER_BY_NOISE,
    SAID,
    SHARES,
    TARGETS,
    bare,
)

TARGET = TARGETS["fashion-mnist"]
"""Target accuracy of Figure 2's count of uploads."""
NAMED = {"standardised": "standardised", "symmetric": "in [-1, 1]", "unit": "in [0, 1]"}
"""Names of the inputs on the page."""
MUCH = 0.75
"""Share kept times the multiplier's square; above it, runs that did not end are shown too."""
LOOKS = 40 + (180 - 40) // 5
"""Evaluations in a run of the paper's network."""
SMALL = ", small network"
FACTS = ("model", "inputs", "seed")


def pages(runs: list[dict[str, Any]], seconds: dict[str, dict[str, float]]) -> None:
    """Write the tables of the page, all except one only of runs like the paper's."""
    put(DIFFERENCES, "with a guard", guarded(runs))
    runs = list(filter(like_the_papers, runs))
    put("fed_smp.md", "the paper against itself", contradictions())
    put(CAME_OUT, "table I, means", table_1_means(runs))
    put(CAME_OUT, "figure 2, savings", savings(runs))
    put(CAME_OUT, "cost of noise", noise_costs(runs, last=False))
    put(DIFFERENCES, "levels", levels(runs))
    put(DIFFERENCES, "softmax, means", softmax_means(runs))
    put("fed_smp.md", "softmax", softmax(runs))
    for method, number in (("rand_k", "IV"), ("top_k", "V")):
        put(CAME_OUT, f"table {number}, seed 1", by_noise(runs, method, small=False))
        put("fed_smp.md", f"table {number}", by_noise(runs, method))
    for name, (model, inputs) in SECTIONS.items():
        put("fed_smp.md", name, shown(runs, model, inputs))
    put("fed_smp.md", "plan", plan(runs, seconds))
    put("fed_smp.md", "figure 3", figure_3(runs))
    put("fed_smp.md", "losses", losses(runs))
    put("fed_smp.md", "what noise costs", noise_costs(runs))
    put("fed_smp.md", "table I", table_1(runs))
    put("fed_smp.md", "what came out", came_out(runs))
    put("fed_smp.md", "where runs end", where_runs_end(runs))
    put("fed_smp.md", "masks", masks(runs))
    put("fed_smp.md", "looks", looks(runs))
    put("fed_smp.md", "rand-k with and without its factor", factor(runs))
    put("fed_smp.md", "figure 2", figure_2(runs))
    put("fed_smp.md", "best shares", best_shares(runs))
    put("fed_smp.md", "what Tables IV and V lack", lacking(runs))


CAME_OUT, DIFFERENCES = "fed_smp_results.md", "fed_smp_differences.md"
"""Pages on the runs here, and on what explains their differences from the paper's."""
SECTIONS = {
    "standardised": ("cnn", ("standardised", "standardised as MNIST", "symmetric")),
    "cnn": ("cnn", ("unit",)),
    "2nn": ("2nn", ("unit",)),
}
"""Tables of the page: their network and inputs."""


def before_overflow(one: dict[str, Any]) -> list[float]:
    """Return the accuracies of the rounds before the first update that is not finite."""
    last = one["first_non_finite_round"] or math.inf
    return [value for n, value in one["accuracy_by_round"].items() if int(n) < last]


def length(one: dict[str, Any]) -> str:
    """Return the length of a run as text."""
    done = f"{one['rounds_done']} of {one['rounds_planned']}"
    if one["first_non_finite_round"] is not None:
        return f"ended in {one['first_non_finite_round']}"
    return done if one["finished"] else f"{done}, **not finished**"


def shown(runs: list[dict[str, Any]], model: str, inputs: tuple[str, ...]) -> str:
    """Return the table of one network's runs for the page."""
    head = ["run", "inputs", "seed", "rounds", "best accuracy", "last", "paper"]
    head += ["MB, paper's count", "MB sent", "epsilon, sums seen", "epsilon, server"]
    rows = []
    for one in runs:
        at_risk = inputs != ("unit",) and model == "cnn"
        if one["model"] != model or one["inputs"] not in inputs:
            continue
        if "@" in one["run"] and not at_risk:
            continue
        known, epsilon = before_overflow(one) or [math.nan], one["epsilon"]
        paper = printed(one["run"]) if model == "cnn" else None
        sizes = (one["paper_mb_of_a_client"], one["upload_mb_of_a_client"])
        rows.append(
            [
                one["run"] + ("" if one["repeatable"] else "*"),
                one["inputs"],
                str(one["seed"]),
                length(one),
                f"{100 * max(known):.2f} %",
                f"{100 * known[-1]:.2f} %",
                "" if paper is None else f"{paper:.2f} %",
                *(f"{size:.3f}" for size in sizes),
                "none" if epsilon is None else certified(epsilon["aggregate"]["zero_out"]),
                "none" if epsilon is None else certified(epsilon["server"]["zero_out"]),
            ]
        )
    return table(head, rows)


def printed(label: str) -> float | None:
    """Return the paper's accuracy of a run, per cent, from Tables I, IV or V."""
    if label in PAPER:
        return PAPER[label][0]
    name, _, noise = label.partition("@")
    method, _, ratio = name.rpartition("-")
    method = method.removesuffix("_unscaled")
    if f"{method}-{ratio}" in PAPER and not noise:
        return PAPER[f"{method}-{ratio}"][0]
    if not noise or method not in PAPER_BY_NOISE:
        return None
    cells = PAPER_BY_NOISE[method].get(float(ratio), ())
    return dict(zip(NOISES, cells, strict=False)).get(float(noise))


def table_1(runs: list[dict[str, Any]]) -> str:
    """Return Table I: the paper's means, and every seed's best accuracy here."""
    rows = []
    for label, (mean, std) in PAPER.items():
        cells = [outcome(runs, label, inputs) for inputs in ("standardised", "symmetric", "unit")]
        rows.append([label, f"{mean:.2f} ± {std:.2f}", *cells])
    return table(["run", "paper", "standardised", "in [-1, 1]", "in [0, 1]"], rows)


def table_1_means(runs: list[dict[str, Any]]) -> str:
    """Return Table I with a summary of the seeds of every run, rand-k with and without d/k."""
    rows = []
    for label, (mean, std) in PAPER.items():
        for name in dict.fromkeys((label, bare(label))):
            cells = [
                summary(runs, name, inputs) for inputs in ("standardised", "symmetric", "unit")
            ]
            theirs = f"{mean:.2f} ± {std:.2f}" if name == label else ""
            rows.append([name, theirs, *cells])
    return table(["run", "paper", "standardised", "in [-1, 1]", "in [0, 1]"], rows)


def summary(runs: list[dict[str, Any]], label: str, inputs: str, model: str = "cnn") -> str:
    """Return the mean and spread of the best accuracies of the seeds, and how many ended."""
    own = list(of_seeds(runs, label, inputs, model).values())
    if not own:
        return "-"
    best = [best_accuracy(one) for one in own]
    text = f"{mean_of(best):.1f} ± {stdev(best):.1f}" if len(best) > 2 else f"{mean_of(best):.1f}"
    ended = sum(one["first_non_finite_round"] is not None for one in own)
    return text if not ended else f"{text}, {ended} of {len(own)} ended"


def factor(runs: list[dict[str, Any]]) -> str:
    """Return rand-k's rows of Table I with and without the factor d/k, and the paper's."""
    rows = []
    for share in SHARES:
        label = f"rand_k-{share:g}"
        mean, std = PAPER[label]
        cells = [outcome(runs, name, "standardised") for name in (label, bare(label))]
        rows.append([f"{share:g}", *cells, f"{mean:.2f} ± {std:.2f}"])
    head = ["share kept", "with d/k, Algorithm 2", "without, Definition 4", "the paper"]
    return table(head, rows)


def outcome(runs: list[dict[str, Any]], label: str, inputs: str, model: str = "cnn") -> str:
    """Return the best accuracies of a run's seeds, per cent; mean and spread of three or more."""
    wanted = (model, inputs, label)
    own = [one for one in runs if key(one)[:3] == wanted and one["best_accuracy"] is not None]
    found = [f"{100 * one['best_accuracy']:.2f} ({length(one)})" for one in own]
    best = [100 * one["best_accuracy"] for one in own if one["finished"]]
    whole = f"**{mean_of(best):.2f} ± {stdev(best):.2f}**: " if len(best) > 2 else ""
    return whole + ("; ".join(found) or "-")


def guarded(runs: list[dict[str, Any]]) -> str:
    """Return the results of runs with a guard, and of runs of the same seed that ended."""
    rows, known = [], {key(one): one for one in runs}
    for one in runs:
        end = known.get((*key(one)[:-1], False))
        if not one.get("guard") or end is None:
            continue
        row = [one["run"], NAMED[one["inputs"]], str(one["seed"])]
        # Not its end, although an update was not finite.
        seen = list(one["accuracy_by_round"].values())
        accuracy = f"{100 * max(seen):.1f}; {100 * seen[-1]:.1f}"
        done = f"{one['rounds_done']} of {one['rounds_planned']}"
        ended = f"{100 * end['best_accuracy']:.1f} ({length(end)})"
        left_out = [str(one["first_non_finite_round"]), f"{one['refused']:,}"]
        rows.append([*row, ended, accuracy, done, *left_out])
    head = ["run", "inputs", "seed", "without: best (rounds)", "with: best; last", "rounds"]
    return table([*head, "first update left out in", "updates left out"], rows)


def levels(runs: list[dict[str, Any]]) -> str:
    """Return FedAvg's best accuracy by the scaling of images."""
    names = {**NAMED, "standardised as MNIST": "standardised as MNIST"}
    order = ("unit", "symmetric", "standardised", "standardised as MNIST")
    rows = [[names[inputs], outcome(runs, "fedavg", inputs)] for inputs in order]
    mean, std = PAPER["fedavg"]
    rows.append(["the paper", f"{mean:.2f} ± {std:.2f} in Table I, {SAID['fedavg']} in 6.3"])
    return table(["inputs", "FedAvg, best accuracy, per cent"], rows)


def looks(runs: list[dict[str, Any]]) -> str:
    """Return the excess of the best of every round over that of every fifth, if known."""
    window, gaps = range(21, 41), []
    for one in runs:
        known = {int(number): value for number, value in one["accuracy_by_round"].items()}
        if one["model"] != "cnn" or not known.keys() >= set(window):
            continue
        fifths = [max(known[at] for at in window[first::5]) for first in range(5)]
        gaps.append(100 * (max(known[at] for at in window) - mean_of(fifths)))
    return (
        f"Of {len(gaps)} runs every round from 21 to 40 was looked at: the best of the twenty is "
        f"{min(gaps):.1f} to {max(gaps):.1f} points above that of every fifth, "
        f"{median(gaps):.1f} in the median."
    )


LOSSES = {"cnn": "scores", "label-cnn": "the label's logarithm", "softmax-cnn": "every logarithm"}
"""Input of the loss, by network."""


def softmax(runs: list[dict[str, Any]]) -> str:
    """Return the runs in [-1, 1] with the softmax as a layer, and the runs without it."""
    layered = [one for one in runs if one["model"] in LOSSES and one["model"] != "cnn"]
    labels = sorted({one["run"] for one in layered}, key=lambda label: (strength(label), label))
    rows = []
    for label in labels:
        cells = [outcome(runs, label, "symmetric", model) for model in LOSSES]
        if cells[0] == "-" and (scaled := outcome(runs, bare_of(label), "symmetric")) != "-":
            cells[0] = f"{scaled}†"
        paper, bare = printed(label), bare_of(label)
        spread = f" ± {PAPER[bare][1]:.2f}" if bare in PAPER else ""
        told = "" if paper is None else f"{paper:.2f}{spread}"
        rows.append([label, f"{strength(label):.2f}", *cells, told])
    return table(["run", "$p z^2$", *LOSSES.values(), "paper"], rows)


def softmax_means(runs: list[dict[str, Any]]) -> str:
    """Return a summary of the seeds with the softmax as a layer, and without it."""
    layered = {one["run"] for one in runs if one["model"] == "label-cnn"}
    rows = []
    for label in sorted(layered, key=lambda label: (strength(label), label)):
        cells = [summary(runs, label, "symmetric", model) for model in LOSSES]
        rows.append([label, *cells, f"{printed(label) or math.nan:.1f}"])
    return table(["run", *LOSSES.values(), "paper"], rows)


def bare_of(label: str) -> str:
    """Return the name of the paper's cell that a run without rand-k's factor belongs to."""
    return label.replace("_unscaled", "")


def strength(label: str) -> float:
    """Return a run's noise on the whole model: the share kept times the multiplier's square."""
    share, noise = facts_of(label)
    return share * noise**2


def span(values: Iterable[float]) -> str:
    """Return one number, or the least and the largest, of shares in per cent."""
    low, high = (f"{100 * end(values):.1f}" for end in (min, max))
    return low if low == high else f"{low} to {high}"


def came_out(runs: list[dict[str, Any]]) -> str:
    """Return a summary of the runs on the paper's network, for each method."""
    begun = [one for one in runs if one["model"] == "cnn" and one["best_accuracy"] is not None]
    told = []
    for label in dict.fromkeys(one["run"] for one in begun):
        said = []
        for inputs, name in NAMED.items():
            own = [one for one in begun if (one["inputs"], one["run"]) == (inputs, label)]
            said += [f"{name} {part}" for part in outcomes(own)]
        paper = printed(label.replace("_steps", ""))
        said += [] if paper is None else [f"paper {paper:.1f}"]
        told.append(f"- {label}: {'; '.join(said)}.")
    return "\n".join(told)


def outcomes(own: list[dict[str, Any]]) -> list[str]:
    """Return the results of runs of one kind, of several seeds: ended, lasted or not yet done."""
    ended = [one for one in own if one["first_non_finite_round"] is not None]
    lasted = [one for one in own if one not in ended and one["finished"]]
    going = [one for one in own if one not in ended and not one["finished"]]
    found = []
    if ended:
        rounds = joined([one["first_non_finite_round"] for one in ended])
        found.append(f"ended in {rounds} at best {best_of(ended)}")
    if lasted:
        found.append(f"never overflowed ({seeds(lasted)}), best {best_of(lasted)}")
    for one in going:
        done = f"has not overflowed in {one['rounds_done']} rounds so far (seed {one['seed']})"
        found.append(f"{done}, best {best_of([one])}")
    return found


def masks(runs: list[dict[str, Any]]) -> str:
    """Return the runs where the update of top-k's mask was not finite."""
    rows = []
    for one in runs:
        if not (odd := one.get("arbitrary_masks")):
            continue
        accuracy = one["accuracy_by_round"].items()
        before = max((value for n, value in accuracy if int(n) < odd[0]), default=None)
        until = "-" if before is None else f"{100 * before:.1f}"
        row = [one["run"], one["model"], one["inputs"], str(one["seed"]), length(one)]
        row += [str(len(odd)), str(odd[0]), until, f"{100 * one['best_accuracy']:.1f}"]
        paper = printed(one["run"])
        rows.append([*row, "" if paper is None else f"{paper:.1f}"])
    head = ["run", "network", "inputs", "seed", "rounds", "such masks", "first", "best until then"]
    return table([*head, "best", "paper"], rows)


def where_runs_end(runs: list[dict[str, Any]]) -> str:
    """Return the runs with much noise on the whole model, and their ends."""
    rows = []
    for one in runs:
        noise = strength(one["run"])
        # A run that ended in its first round has no best accuracy.
        known = one["model"] == "cnn" and one["epsilon"] and one["best_accuracy"] is not None
        last, paper = one["first_non_finite_round"], printed(one["run"])
        if not known or (noise < MUCH and last is None):
            continue
        row = [one["run"], one["inputs"], str(one["seed"]), f"{noise:.2f}", length(one)]
        row.append("" if last is None else f"{noise * last:.0f}")
        told = "" if paper is None else f"{paper:.1f}"
        rows.append([*row, f"{100 * one['best_accuracy']:.1f}", told])
    head = ["run", "inputs", "seed", "$p z^2$", "rounds $t$", "$p z^2 t$", "best", "paper"]
    return table(head, sorted(rows, key=lambda row: (row[1], float(row[3]))))


def facts_of(label: str) -> tuple[float, float]:
    """Return the share kept and the noise multiplier of a label."""
    name, _, noise = label.partition("@")
    _, _, share = name.rpartition("-")
    return float(share) if share[:1] == "0" else 1.0, float(noise or NOISE)


def best_of(own: list[dict[str, Any]]) -> str:
    """Return the best accuracies, per cent."""
    return span([one["best_accuracy"] for one in own])


def seeds(own: list[dict[str, Any]]) -> str:
    """Return the number of seeds as text."""
    return "one seed" if len(own) == 1 else f"{len(own)} seeds"


def joined(rounds: list[int]) -> str:
    """Return rounds as text."""
    if len(rounds) == 1:
        return f"round {rounds[0]}"
    return f"rounds {', '.join(map(str, rounds[:-1]))} and {rounds[-1]}"


def reaching(one: dict[str, Any]) -> int | None:
    """Return the first evaluated round that met ``TARGET``."""
    rounds = one["accuracy_by_round"].items()
    return next((int(n) for n, value in rounds if value >= TARGET), None)


def figure_2(runs: list[dict[str, Any]]) -> str:
    """Return rounds and upload to the target of Figure 2, and the savings against DP-FedAvg."""
    rows = []
    for inputs in ("unit", "standardised"):
        own = [one for one in runs if (one["model"], one["inputs"]) == ("cnn", inputs)]
        own = [one for one in own if "@" not in one["run"] and reaching(one) is not None]
        a_round = [one["paper_mb_of_a_client"] / one["rounds_done"] for one in own]
        sent = [mb * (reaching(one) or 0) for one, mb in zip(own, a_round, strict=True)]
        dense = [mb for one, mb in zip(own, sent, strict=True) if one["run"] == "dp-fedavg"]
        for one, mb in zip(own, sent, strict=True):
            saved = [100 * (1 - mb / other) for other in dense]
            told = "" if one["run"] == "dp-fedavg" or not saved else f"{min(saved):.1f} %"
            if told and f"{max(saved):.1f} %" != told:
                told = f"{min(saved):.1f} to {max(saved):.1f} %"
            row = [one["run"], inputs, str(one["seed"]), str(reaching(one)), f"{mb:.3f}"]
            rows.append([*row, told])
    head = ["run", "inputs", "seed", "first round at 72 %", "MB, paper's count"]
    return table([*head, "less than DP-FedAvg"], rows)


def savings(runs: list[dict[str, Any]]) -> str:
    """Return Figure 2's rounds, upload and savings over the seeds, standardised inputs."""
    kinds: dict[str, list[dict[str, Any]]] = {}
    for one in runs:
        facts = (one["model"], one["inputs"])
        if facts == ("cnn", "standardised") and "@" not in one["run"] and reaching(one):
            kinds.setdefault(one["run"], []).append(one)
    dense = [sent(one) for one in kinds["dp-fedavg"]]
    rows = []
    for label, own in kinds.items():
        if label.startswith("fedavg-"):
            continue
        saved = [100 * (1 - sent(one) / other) for one in own for other in dense]
        less = "" if label == "dp-fedavg" else between(saved, ".1f")
        rounds = [reaching(one) or 0 for one in own]
        sizes = [sent(one) for one in own]
        rows.append([label, between(rounds, "d"), between(sizes, ".3f"), less])
    head = ["run", "first round at 72 %", "MB, paper's count", "less than DP-FedAvg, per cent"]
    return table(head, rows)


def sent(one: dict[str, Any]) -> float:
    """Return the megabytes of a client until the target, by the paper's count."""
    return float(one["paper_mb_of_a_client"] / one["rounds_done"] * (reaching(one) or 0))


def between(values: list[Any], form: str) -> str:
    """Return one value, or the least and the largest."""
    low, high = format(min(values), form), format(max(values), form)
    return low if low == high else f"{low} to {high}"


def contradictions() -> str:
    """Return the paper's numbers that contradict each other."""
    dense, plain = PAPER["dp-fedavg"][0], PAPER["fedavg"][0]
    rows = [
        ["FedAvg", f"{SAID['fedavg']} in 6.3", f"{plain} in Table I"],
        ["DP-FedAvg", f"{SAID['dp-fedavg']} in 6.3", f"{dense} in Table I"],
    ]
    for label, gain in (("top_k-0.005", 11), ("rand_k-0.4", 10)):
        best = PAPER[label][0]
        ratio = [100 * (best / other - 1) for other in (dense, SAID["dp-fedavg"])]
        told = f"{best - dense:.2f} points over Table I's DP-FedAvg ({ratio[0]:.1f} % of it)"
        told += f", {best - SAID['dp-fedavg']:.2f} over the text's ({ratio[1]:.1f} %)"
        rows.append([f"{label} over DP-FedAvg", f"{gain} % in 6.3", told])
    rows.append(
        [
            "top_k-0.8 at 1.4",
            f"{PAPER_BY_NOISE['top_k'][0.8][1]} in Table V",
            f"{PAPER['top_k-0.8'][0]} in Table I, whose p = 0.2 has {PAPER['top_k-0.2'][0]}",
        ]
    )
    rows.append(
        [
            "rand_k-0.4 saves uploads, to 72 %",
            "70 %, Figure 2",
            f"at most {100 * (1 - 0.4):.0f} % if it is no faster than DP-FedAvg, "
            "and 6.3.1 says that it is slower",
        ]
    )
    return table(["of what", "one place", "another"], rows)


def by_noise(runs: list[dict[str, Any]], method: str, small: bool = True) -> str:
    """Return Table IV or V: best accuracies of both networks (or one) and the paper's."""
    known = {
        key(one)[:3]: f"{100 * one['best_accuracy']:.1f}"
        for one in runs
        if one["finished"] and one["seed"] == 1 and one["best_accuracy"] is not None
    }
    paper, steps = PAPER_BY_NOISE[method], "top_k_steps" if method == "top_k" else method
    rows = []
    for at, (noise, epsilon) in enumerate(NOISES.items()):
        row = [f"{noise:g} ({epsilon})"]
        for ratio in paper:
            level = f"-{ratio:g}" + ("" if noise == NOISE else f"@{noise:g}")
            inputs = list(NAMED) if small else ["standardised", "symmetric"]
            cells = [without_factor(known, method + level, one) for one in inputs]
            cells += [known.get(("2nn", "unit", steps + level), "-")] if small else []
            cells.append(f"{paper[ratio][at]:.1f}")
            row.append(" / ".join(cells))
        rows.append(row)
    return table(["noise multiplier (epsilon as printed)", *map("{:g}".format, paper)], rows)


def finished_bests(runs: list[dict[str, Any]], kind: str, method: str) -> dict[str, float]:
    """Return the best accuracies of Table IV's or V's cells on a network, of seed 1.

    Those of the paper's network are with standardised inputs and without rand-k's factor; those of
    the small one in [0, 1], with the factor and with top-k's mask by ten steps.
    """
    model, inputs = ("2nn", "unit") if kind == SMALL else ("cnn", "standardised")
    name = method if kind == SMALL else bare(method)
    name = "top_k_steps" if kind == SMALL and method == "top_k" else name
    own = [one for one in runs if tuple(map(one.get, FACTS)) == (model, inputs, 1)]
    done = {one["run"]: one["best_accuracy"] for one in own if one["finished"]}
    return {
        f"{share:g}@{noise:g}": done[label]
        for share in PAPER_BY_NOISE[method]
        for noise in NOISES
        if (label := f"{name}-{share:g}" + ("" if noise == NOISE else f"@{noise:g}")) in done
    }


def best_shares(runs: list[dict[str, Any]]) -> str:
    """Return the best share of Tables IV and V by the noise, of the small network and the paper."""
    rows = []
    for at, noise in enumerate(NOISES):
        row = [f"{noise:g}"]
        for method, paper in PAPER_BY_NOISE.items():
            done = finished_bests(runs, SMALL, method)
            here = {share: done.get(f"{share:g}@{noise:g}") for share in paper}
            known = {share: value for share, value in here.items() if value is not None}
            missing = [f"{share:g}" for share in here if share not in known]
            told = f" (not done: {', '.join(missing)})" if missing else ""
            theirs = {share: values[at] for share, values in paper.items()}
            row += [f"{best_share(known)}{told}", best_share(theirs)]
        rows.append(row)
    head = ["noise multiplier", "rand-k, small network", "the paper", "top-k, small network"]
    return table([*head, "the paper"], rows)


def best_share(values: dict[float, float]) -> str:
    """Return the share with the largest value, or all such shares."""
    most = max(values.values(), default=None)
    return " and ".join(f"{share:g}" for share, value in values.items() if value == most) or "-"


def lacking(runs: list[dict[str, Any]]) -> str:
    """Return the missing cells of Tables IV and V."""
    told = []
    for name, kind in (("the paper's network, standardised inputs", ""), ("the small one", SMALL)):
        gaps = []
        for method, paper in PAPER_BY_NOISE.items():
            done = finished_bests(runs, kind, method)
            for noise in NOISES:
                shares = [f"{share:g}" for share in paper if f"{share:g}@{noise:g}" not in done]
                whole = "all" if len(shares) == len(paper) else ", ".join(shares)
                gaps += [f"{method} at {noise:g}: {whole}"] if shares else []
        told.append(f"- {name}: {'; '.join(gaps) or 'none'}.")
    return "\n".join(told)


def without_factor(known: dict[tuple[str, str, str], str], label: str, inputs: str) -> str:
    """Return a run's accuracy on the paper's network; rand-k's without d/k, or marked with it."""
    plain = ("cnn", inputs, bare(label))
    if plain in known:
        return known[plain]
    found = known.get(("cnn", inputs, label), "-")
    return f"{found}†" if found != "-" and "rand_k" in label else found


def certified(epsilon: float) -> str:
    """Return an epsilon rounded up."""
    return f"{math.ceil(epsilon * 1e4) / 1e4:.4f}"


def plan(runs: list[dict[str, Any]], seconds: dict[str, dict[str, float]]) -> str:
    """Return the table of planned, finished and remaining runs, by kind of run."""
    # For the small network only runs with Figure 3's loss.
    done = {key(one)[:4]: one for one in runs if told_whole(one) or not one["finished"]}
    kinds: dict[str, list[tuple[tuple[str, str, str, int], float]]] = {}
    for (model, inputs), looks in {("cnn", "standardised"): LOOKS, ("2nn", "unit"): 36}.items():
        pace = seconds[model]
        for label, seed in PLAN[model]:
            a_round = pace["top_k" if "top_k" in label else "rand_k"]
            hours = (180 * a_round + looks * pace["evaluation"]) / 3600
            kinds.setdefault(kind(model, label, seed), []).append(
                ((model, inputs, label, seed), hours)
            )
    rows, total = [], 0.0
    for name, wanted in kinds.items():
        own = [(done.get(one), hours) for one, hours in wanted]
        ended = sum(one is not None and one["finished"] for one, _ in own)
        left = sum(
            hours * (1 - (one["rounds_done"] / one["rounds_planned"] if one else 0.0))
            for one, hours in own
            if one is None or not one["finished"]
        )
        total += left
        begun = sum(one is not None and not one["finished"] for one, _ in own)
        rows.append([name, str(len(own)), str(ended), str(begun), f"{left:.1f}"])
    rows.append(["all", "", "", "", f"{total:.1f}"])
    head = ["runs", "planned", "done", "begun", "core hours left, at most"]
    return table(head, rows)


def kind(model: str, label: str, seed: int) -> str:
    """Return the purpose of a planned run."""
    if model == "2nn":
        return "Figure 3, small network"
    if "@" in label:
        return f"Tables IV and V, {label.partition('-')[0]}"
    if label.startswith("fedavg-"):
        return f"Figure 3 without noise, {'seed 1' if seed == 1 else 'seeds 2 and 3'}"
    return f"Table I, {label if 'fedavg' in label else label.partition('-')[0]}"


def tables_of(one: dict[str, Any]) -> list[str]:
    """Return the tables of the page with a run, except those of all runs."""
    label, model = one["run"], one["model"]
    if model not in ("cnn", "2nn"):
        return ["softmax"]
    small = SMALL if model == "2nn" else ""
    plain = label.replace("_unscaled", "").replace("_steps", "")
    share, noise = facts_of(plain)
    found = ["FedAvg by inputs"] if label == "fedavg" and not small else []
    found += ["Table I"] if label in PAPER and not small else []
    two = plain in PAPER and "rand_k" in plain and (model, one["inputs"]) == ("cnn", "standardised")
    found += ["Rand-k with and without its factor"] if two else []
    for method, number in (("rand_k", "IV"), ("top_k", "V")):
        cells = noise in NOISES and share in PAPER_BY_NOISE[method]
        found += [f"Table {number}{small}"] if plain.startswith(method) and cells else []
    figure = plain.removeprefix("fedavg-") != plain or (small and "@" not in plain)
    found += [f"Figure 3{small or ' without noise'}"] if figure and "_k" in plain else []
    return found or ["No table"]


def figure_3(runs: list[dict[str, Any]]) -> str:
    """Return best accuracy and training loss at the end by the share kept, with noise / without."""
    rows, methods = [], ("rand_k", "rand_k_unscaled", "top_k")
    networks = (("cnn", "standardised"), ("cnn", "unit"), ("2nn", "unit"))
    for model, inputs in networks:
        facts = (model, inputs, 1)
        known = {one["run"]: one for one in runs if tuple(map(one.get, FACTS)) == facts}
        for share in SHARES:
            row = [model, inputs, f"{share:g}"]
            for method in methods:
                pair = [known.get(f"{noise}{method}-{share:g}") for noise in ("", "fedavg-")]
                accuracy, loss = (map(told, pair) for told in (accuracy_of, loss_of))
                row.append(f"{' / '.join(accuracy)}; {' / '.join(loss)}")
            if set("".join(row[3:])) - set("- /;"):
                rows.append(row)
    return table(["network", "inputs", "share kept", "rand-k", "rand-k without d/k", "top-k"], rows)


def noise_costs(runs: list[dict[str, Any]], last: bool = True) -> str:
    """Return the cost of noise and clipping for every seed, by the share kept."""
    ways = (best_accuracy, last_accuracy)[: 1 + last]
    rows = []
    for share in SHARES:
        row = [f"{share:g}"]
        for method in ("rand_k_unscaled", "top_k"):
            noisy, plain = (
                of_seeds(runs, f"{noise}{method}-{share:g}") for noise in ("", "fedavg-")
            )
            row += [spread(map(best_accuracy, part.values())) for part in (noisy, plain)]
            row += [spread(costs(noisy, plain, by)) for by in ways]
        rows.append(row)
    each = ("with noise", "without", "cost", "cost after the last round")[: 3 + last]
    head = ["share kept", *(f"{name}, {one}" for name in ("rand-k", "top-k") for one in each)]
    return table(head, rows)


def of_seeds(
    runs: list[dict[str, Any]], label: str, inputs: str = "standardised", model: str = "cnn"
) -> dict[int, dict[str, Any]]:
    """Return the finished runs of one kind, by their seeds."""
    wanted = (model, inputs, label)
    return {one["seed"]: one for one in runs if key(one)[:3] == wanted and one["finished"]}


def costs(
    noisy: dict[int, dict[str, Any]],
    plain: dict[int, dict[str, Any]],
    accuracy: Callable[[dict[str, Any]], float | None],
) -> list[float]:
    """Return every seed's loss of an accuracy that both of its runs have."""
    pairs = [(accuracy(plain[seed]), accuracy(noisy[seed])) for seed in noisy if seed in plain]
    return [more - less for more, less in pairs if more is not None and less is not None]


def best_accuracy(one: dict[str, Any]) -> float:
    """Return the best accuracy, per cent."""
    return 100 * one["best_accuracy"]


def last_accuracy(one: dict[str, Any]) -> float | None:
    """Return the accuracy after all rounds, per cent; None for a run that ended earlier."""
    known = {int(number): 100 * value for number, value in one["accuracy_by_round"].items()}
    return known.get(one["rounds_planned"])


def spread(values: Iterable[float]) -> str:
    """Return a mean with the standard deviation; for fewer than three values, their number."""
    found = list(values)
    if len(found) < 3:
        return f"{mean_of(found):.1f} ({len(found)})" if found else "-"
    return f"{mean_of(found):.1f} ± {stdev(found):.1f}"


def losses(runs: list[dict[str, Any]]) -> str:
    """Return the number of seeds in the plotted means of the training loss, if some are missing."""
    told = []
    for method in ("rand_k", "rand_k_unscaled", "top_k"):
        for share in SHARES:
            wanted = ("cnn", "standardised", f"{method}-{share:g}")
            own = [one for one in runs if key(one)[:3] == wanted and one["finished"]]
            have = sum(one["training_loss"] is not None for one in own)
            told += [f"{method}-{share:g} {have} of {len(own)}"] if have < len(own) else []
    return (
        "A run that ended early has no loss after the last round, and the mean is of the seeds "
        f"that lasted. Where these are not all: {', '.join(told) or 'nowhere'}."
    )


def accuracy_of(one: dict[str, Any] | None) -> str:
    """Return the best accuracy of a finished run, per cent."""
    return f"{100 * one['best_accuracy']:.1f}" if one is not None and one["finished"] else "-"


def loss_of(one: dict[str, Any] | None) -> str:
    """Return the training loss after a run's last round."""
    loss = None if one is None else one["training_loss"]
    return "-" if loss is None else f"{loss:.3f}"


if __name__ == "__main__":
    content = json.loads(RESULTS.read_text())
    pages(content["runs"], content["seconds"])
