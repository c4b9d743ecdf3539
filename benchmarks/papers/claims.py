"""What the pages of the simulations, of averaging and of Fed-PLT say, by their results.

Each function yields pieces of a page's text with the numbers put in; ``prose.py`` looks for them.
"""

import itertools
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
Said = Iterator[str]


def of(name: str) -> Any:
    """Return a file of results."""
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def only(cells: list[dict[str, Any]], **facts: Any) -> Any:
    """Return the one cell with these facts."""
    (found,) = (cell for cell in cells if facts.items() <= cell.items())
    return found


def up(value: float, digits: int = 2) -> str:
    """Return an upper end, rounded up."""
    return f"{math.ceil(value * 10**digits) / 10**digits:.{digits}f}"


def down(value: float, digits: int = 2) -> str:
    """Return a lower end, rounded down."""
    return f"{math.floor(value * 10**digits) / 10**digits:.{digits}f}"


def spread(values: list[float], digits: int = 1) -> str:
    """Return the least and the largest."""
    return f"{min(values):.{digits}f} to {max(values):.{digits}f}"


def power(value: float) -> str:
    """Return a number in two digits and a power of ten, as 1.4e-5."""
    digits, exponent = f"{value:.1e}".split("e")
    return f"{digits}e{int(exponent)}"


SCORES = ("accuracy", "brier", "ece", "nll")


def last(cell: dict[str, Any]) -> Any:
    """Return a chain's last scores, None where it diverged."""
    return cell["curve"][-1].get("all")


def best_of(cells: list[dict[str, Any]], score: str, **facts: Any) -> float:
    """Return a setting's best score; ECE is that of the best Brier score."""
    own = [last(cell) for cell in cells if facts.items() <= cell.items() and last(cell)]
    by = "brier" if score == "ece" else score
    chosen = (max if score == "accuracy" else min)(own, key=lambda scores: scores[by])
    return float(chosen[score])


def fa_hmc() -> Said:
    """Yield what fa_hmc.md says of Figure 1 and of the network."""
    yield from by_step_size()
    yield from by_local_iterations()
    yield from on_the_posterior()
    yield from network()


def by_step_size() -> Said:
    """Yield what is said of step sizes and leapfrog steps."""
    kept = of("fa_hmc")
    figures = {10: kept["figure 1d, d = 10"], 1000: kept["figure 1a and 1b, d = 1000"]}
    cells = figures[1000]["exact gradients"]["step size, K, rounds"]
    few, ten = (cells["0.001"][steps]["10000"] for steps in ("1", "10"))
    yield f"ME {few:.2f} after 10 000 rounds"
    yield f"FA-HMC at $K = 10$: ${ten * 1e4:.0f} \\cdot 10^{{-4}}$"
    # The largest K of a step size is the rule's.
    last = [[*row.values()][-1]["2000000"] for step, row in cells.items() if float(step) <= 0.1]
    ends = f"{min(last):.3f} and {max(last):.3f}"
    yield f"lies between {ends} for every exact-gradient step up to 0.1"
    ways = ("FA-LD", "FA-HMC, K tuned")
    best = figures[10]["exact gradients"]["best"]
    plain, tuned = (best[way]["100"][0] for way in ways)
    yield f"wins by a factor of {plain / tuned:.1f} at 100 rounds"
    apart = {
        (gradients, rounds): own["best"][ways[1]][rounds][0] / own["best"][ways[0]][rounds][0]
        for gradients, own in figures[1000].items()
        for rounds in ("10", "100", "10000", "2000000")
    }
    far = [abs(ratio - 1.0) for (_, rounds), ratio in apart.items() if rounds != "2000000"]
    yield f"to within {math.ceil(100 * max(far))} per cent up to 10 000 rounds"
    assert all(ratio > 2.0 for (_, rounds), ratio in apart.items() if rounds == "2000000")
    yield "After 2 000 000 rounds FA-LD is ahead, with less than half of the error in $d = 1000$"


def by_local_iterations() -> Said:
    """Yield what is said of Figure 1(c)."""
    kept = of("fa_hmc")["figure 1c, d = 1000"]
    laws = {steps: one["law"]["2000000"] for steps, one in kept.items()}
    yield f"ME {laws['1']:.3f} at $T = 1$ for ever"
    first = next(rounds for rounds, error in kept["1"]["law"].items() if error < 0.1012)
    yield f"(below 0.1012 from round {first} on)"
    yield f"{laws['2']:.3f} at $T = 2$, {laws['10']:.3f} at 10 and {laws['70']:.3f} at 70 and 100"
    assert f"{laws['100']:.3f}" == f"{laws['70']:.3f}"
    later = [min(one["law"].values()) for steps, one in kept.items() if steps != "1"]
    assert min(later) > 0.11
    yield "only $T = 1$ gets to 0.11 or 0.1012 at all"
    drawn = {steps: one["one chain's draws"]["3000"] for steps, one in kept.items()}
    yield f"have {drawn['1']:.3f} at $T = 1$ and {drawn['70']:.3f} at $T = 70$"


def on_the_posterior() -> Said:
    """Yield what is said of the logistic posterior itself, and of epsilon."""
    kept = of("fa_hmc")
    posterior, away = kept["figure 1d, logistic posterior"], kept["figure 1d, clients' modes"]
    yield f"a good picture of the target (ME {posterior['expansion']:.3f})"
    found = [one for one in posterior.values() if isinstance(one, dict)]
    chains, laws = ([f"{one[key]:.3f}" for one in found] for key in ("chains", "exact law"))
    yield f"ME is {chains[0]} for $\\eta = 0.1$, $K = 1$ after 30 rounds, {chains[1]} for"
    yield f"$K = 3$ and {chains[2]} for"
    yield f"law has {laws[0]}, {laws[1]} and {laws[2]}"
    apart, together, wide = away.values()
    yield f"are {apart:.1f} away from the common one on average"
    yield f"their mean is {together:.2f} a coordinate away from it"
    yield f"a posterior with a standard deviation of {wide:.1f}"
    first, second = (one["epsilon"] for one in kept["figure 1d, privacy"][:2])
    yield f"epsilon of {down(first[0], 0)} to {up(first[1], 0)},"
    thousands = [math.floor(second[0] / 1e3), math.ceil(second[1] / 1e3)]
    yield f"100 rounds {thousands[0]},000 to {thousands[1]},000"


def network() -> Said:
    """Yield what is said of the network."""
    cells, private = of("network_fashion")["cells"], of("private_network_fashion")
    pairs = {(steps, count): dict(leapfrog_steps=steps, iterations=count)
             for steps, count in ((1, 5), (5, 5), (10, 5), (5, 1))}  # fmt: skip
    for score in SCORES:
        best = {pair: best_of(cells, score, **facts) for pair, facts in pairs.items()}
        order = sorted(best, key=best.__getitem__, reverse=score == "accuracy")
        assert order[0] == (10, 5) and best[order[-1]] == best[1, 5], score
    yield "$K = 10$ is the best by every score and FA-LD ($K = 1$) the worst"
    yield "one local iteration is worse than five"
    shape = (784, *private["setting"]["hidden"], 10)
    size = sum((wide + 1) * deep for wide, deep in itertools.pairwise(shape))
    yield f"every record's own, {size:,} numbers each"
    ends = [last(cell)["accuracy"] for cell in private["cells"]]
    assert ends == sorted(ends)
    yield "more leapfrog steps and more local iterations buy accuracy"


def correlated() -> Said:
    """Yield what correlated_noise.md says of its runs."""
    runs = of("correlated")["runs"]
    means = {
        epsilon: {name: one["mean"] for name, one in rows.items()} for epsilon, rows in runs.items()
    }
    gain = 100 * (means["2"]["banded"] - means["2"]["independent, separated"])
    assert 0.5 <= gain < 1.5
    yield "Correlating the noise adds about one point at $\\varepsilon = 2$"
    assert all(min(rows, key=rows.get) == "tree" for rows in means.values())
    yield "A tree is worse than independent noise"


def two_sided() -> Said:
    """Yield what fedavg_two_sided.md says of Table 2, Figure 1 and the speed-up."""
    settings = {"model": "logistic", "workers": 10, "classes": 2, "strategy": 2, "seed": 1}
    settings |= {"server_rate": 1.0, "local_rate": 0.1, "epochs": 5, "batch": 64}
    settings |= {"method": "fedavg"}
    # Table 3's runs are of 40 rounds.
    cells = [cell for cell in of("fedavg_two_sided")["cells"] if cell["rounds_planned"] > 40]

    def rounds(**facts: Any) -> Any:
        return only(cells, **settings | facts)["rounds_to_target"]

    def ended(**facts: Any) -> Any:
        cell = only(cells, **settings | {"method": "scaffold"} | facts)
        assert cell["diverged"]
        return cell["rounds_run"]

    ten, every = (
        [rounds(method=way, workers=n) for way in ("scaffold", "fedavg")] for n in (10, 100)
    )
    yield f"({ten[0]} against {ten[1]} with ten workers, {every[0]} against {every[1]} with all)"
    yield f"({2 * ten[0] / ten[1]:.2f} and {2 * every[0] / every[1]:.2f} times)"
    first, second = ([rounds(model=m, workers=n) for n in (10, 100)] for m in ("2nn", "cnn"))
    yield f"reaches 80 % after {first[0]} rounds with ten workers and after {first[1]} with all"
    yield f"after {second[0]} and {second[1]} (CNN)"
    last = [ended(model=m, workers=n) for m in ("2nn", "cnn") for n in (10, 100)]
    yield "rounds {} and {} (2NN) and {} and {} (CNN)".format(*last)
    yield "in rounds {} and {}.".format(*(ended(model="2nn", batch=size) for size in (200, 600)))
    by_class = [rounds(classes=count) for count in (10, 5, 2, 1)]
    yield "{}, {}, {} and {} rounds for 10, 5, 2 and 1".format(*by_class)
    yield f"{every[1]} against {ten[1]} (logistic), {first[1]} against {first[0]} (2NN)"
    epochs = [
        [rounds(model=m, classes=5, epochs=e) for e in (1, 5, 10)] for m in ("logistic", "2nn")
    ]
    yield "{}, {} and {} rounds with one, five and ten".format(*epochs[0])
    yield "{}, {} and {} for the 2NN (five classes)".format(*epochs[1])
    drawn = [rounds(model=m, strategy=s) for m in ("logistic", "2nn") for s in (1, 2)]
    yield "({} and {}, logistic; {} and {}, 2NN;".format(*drawn)
    sped = [cell["theorem"] / cell["rounds"] for cell in of("linear_speedup")["cells"]]
    yield f"bound's rounds are {min(sped):.0f} to {max(sped):.0f} times"


def fed_plt() -> Said:
    """Yield what fed_plt.md says of Tables II, IV and VII."""
    kept = of("fed_plt")
    ours, theirs = kept["II"]["nonconvex"], kept["paper"]["II"]
    told = f"{ours['FedLin']['time']:.1f} against {ours['Fed-PLT']['time']:.1f}, in the paper "
    yield f"({told}{theirs['FedLin'][1]:g} against {theirs['Fed-PLT'][1]:g})"
    last = [kept["IV"][name]["accelerated, partial"]["time"] for name in ("5GCS", "Fed-PLT")]
    yield "({:.1f} against {:.1f})".format(*last)
    accounts = [row["accounts"] for row in kept["VII"].values()]
    far = [[row[at]["sound"] / row[at]["published"] for row in accounts] for at in range(3)]
    yield f"number is {min(1 / one for one in far[0]):.1f} to {max(1 / one for one in far[0]):.0f}"
    yield f"After 100 it is {spread(far[1])} times too small"
    yield f"after 1000 it is {min(far[2]):.1f} to {max(far[2]):.0f} times"
    row = kept["VII"]["0.1"]
    ends = [up(one["sound"]) for one in row["accounts"]]
    yield (
        f"within {row['mean_model']:.2f} of the optimum, at epsilon {ends[0]} after 10 rounds "
        f"and {ends[1]} after 100"
    )


def tradeoff() -> Said:
    """Yield what tradeoff.md says of Fed-PLT."""
    table = of("tradeoff")["table VII"]
    one = table["feature norm 2"]["1e-06"]["rounds"]["10"]
    yield f"{up(one['server'], 0)} against {down(one['published'], 0)} printed"
    one = table["feature norm 10"]["0.01"]["rounds"]["100"]
    yield f"{one['server']:.1f} where {one['published']:.2f} is printed"
    rows = table["feature norm 2"].values()
    measured = table["feature norm 2"]["0.01"]["measured"]
    yield f"error of {measured['all_models']:.2f} is {measured['all_models'] / math.sqrt(500):.2f}"
    yield f"to the optimum ({measured['mean_model']:.3f})"
    far = [row["predicted"] / row["measured"]["all_models"] for row in rows]
    yield f"is {spread(far)} times the measured one"
    ends = [end for row in rows for end in row["rounds"].values()]
    most = max(end["final models"] / end["final models at least"] for end in ends)
    yield f"within {math.ceil(100 * (most - 1))} % of it"
