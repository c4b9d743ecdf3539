"""Compare integer noise with floating-point noise: privacy, accuracy, bytes, time.

    python benchmarks/papers/integers.py            runs what results/ lacks; writes the page
    python benchmarks/papers/integers.py --fresh    forgets the results first
    python benchmarks/papers/integers.py --speed    only samplers and the CNN's round
    python benchmarks/papers/integers.py --page     the page from the results there are
    python benchmarks/papers/integers.py --accounts accounts again, without training
    python benchmarks/papers/integers.py --check    the row of float noise again, and drawn ones

200 clients with 295 images of Fashion-MNIST each take part in all 20 rounds of softmax regression.
The clip norm is 1, and the noise on the sum has std 2. Times are processor times.
"""

import argparse
import json
import math
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from drawn import near, redrawn
from pages import put, table

import fedprivacy as fp
from fedprivacy.mechanisms import Perturbation
from fedprivacy.mechanisms.integers import discrete_gaussian, skellam
from fedprivacy.outputs import whole_file
from fedprivacy.training import FederatedAveraging, cnn, fashion_mnist, logistic

RESULTS = Path(__file__).parent / "results" / "integers.json"
PLOT = Path(__file__).parents[2] / "docs" / "papers" / "integers.png"
CLIENTS, ROUNDS, NOISE, DELTA, SEEDS = 200, 20, 2.0, 1e-4, (1, 2)
RUN = {"data": "fashion-mnist", "inputs": "unit", "clients": CLIENTS, "rounds": ROUNDS}
RUN |= {"noise_multiplier": NOISE, "delta": DELTA, "server_rate": 1.0, "seeds": list(SEEDS)}
"""Settings of the runs, as named in the results; every run has all its rounds."""
BITS = (8, 10, 12, 14, 16, 20)
NAMES = {"DistributedDiscreteGaussian": "discrete Gaussian", "Skellam": "Skellam"}


def perturbation_of(kind: str, bits: int | None, dimension: int, cohort: int) -> Perturbation:
    """Return floating-point noise, or integer noise with this number of bits."""
    facts = {"noise_multiplier": NOISE, "clip_norm": 1.0, "dimension": dimension, "cohort": cohort}
    if bits is None:
        return fp.SparsifiedPerturbation(**facts, kept=dimension)
    return getattr(fp, kind)(**facts, bits=bits)


def epsilon_of(perturbation: Perturbation) -> float:
    """Return the least certified epsilon of the run over the accountants."""
    run = perturbation.sampled(fp.Everyone()) * ROUNDS
    ask = {"delta": DELTA, "adjacency": "zero_out"}
    return min(fp.epsilon(run, **ask, accountant=how).upper for how in ("pld", "rdp"))


def trained(kind: str, bits: int | None, data: Any) -> dict[str, Any]:
    """Return one row of the comparison, or the reason for a missing row."""
    row: dict[str, Any] = {"kind": kind, "bits": bits}
    try:
        perturbation = perturbation_of(kind, bits, 7850, CLIENTS)
        row["epsilon"] = epsilon_of(perturbation)
    except (fp.ParameterError, fp.UnsupportedCombination) as refusal:
        return row | {"refused": str(refusal)}
    if bits is not None:
        row["clip_in_whole_numbers"] = perturbation.clip_norm / perturbation.grid
        row["norm_counted"] = perturbation.square**0.5 * perturbation.grid
    accuracies, start, sent = [], time.process_time(), 0
    for seed in SEEDS:
        loop = FederatedAveraging(
            model=logistic(784, 10),
            scheme=fp.Everyone(),
            perturbation=perturbation,
            local_steps=10,
            batch_size=12,
            learning_rate=0.1,
            seed=seed,
        )
        state = loop.init()
        for _ in range(ROUNDS):
            state, info = loop.step(state, data)
            sent = info.payload_bytes // CLIENTS
        accuracies.append(loop.evaluate(state, data)[0])
    seconds = (time.process_time() - start) / (len(SEEDS) * ROUNDS)
    spread = float(np.std(accuracies, ddof=1))
    return row | {
        "accuracy": float(np.mean(accuracies)),
        "spread": spread,
        "bytes": sent,
        "seconds_a_round": seconds,
    }


def compare(known: dict[str, Any]) -> None:
    """Add the missing rows, and keep each."""
    data = fashion_mnist(clients=CLIENTS, seed=0)
    cells = [("SparsifiedPerturbation", None)]
    cells += [(kind, bits) for kind in NAMES for bits in BITS]
    rows = known.setdefault("comparison", [])
    for kind, bits in cells[len(rows) :]:
        rows.append(trained(kind, bits, data))
        keep(known)
        print(rows[-1], flush=True)


def account_again(known: dict[str, Any]) -> None:
    """Add current accounts to every table, and keep them."""
    for row in known.get("comparison", []):
        if "epsilon" in row:
            row["epsilon"] = epsilon_of(perturbation_of(row["kind"], row["bits"], 7850, CLIENTS))
    account_beside(known)


def account_beside(known: dict[str, Any]) -> None:
    """Compare accounts with the papers and dp-accounting, and keep the result."""
    known["papers"] = [beside_the_paper(kind, bits) for kind in NAMES for bits in BITS[1:]]
    known["dp_accounting"] = [beside_dp_accounting(*printed) for printed in PRINTED]
    keep(known)


def keep(known: dict[str, Any]) -> None:
    """Write the results."""
    whole_file(RESULTS, json.dumps({"run": RUN} | known, indent=1) + "\n")


def speeds() -> dict[str, Any]:
    """Return millions of samples per second of the samplers, with tables made in advance."""
    found = {}
    for draw, stds in ((discrete_gaussian, (1, 1e2, 1e4, 1e6)), (skellam, (1, 1e2, 1e4))):
        for std in stds:
            draw(1, variance=std * std)
            start = time.process_time()
            draw(1_000_000, variance=std * std)
            found[f"{draw.__name__} {std:g}"] = 1.0 / (time.process_time() - start)
    return found


def rounds_of_the_cnn(cohort: int = 20) -> dict[str, float]:
    """Return seconds of the CNN's round with float and with integer noise, and the encoding's.

    The loop is that of ``benchmarks/training.py``: 10 steps on batches of 10 images.
    """
    data = fashion_mnist(clients=6000, seed=0)
    plain = FederatedAveraging(
        model=cnn(),
        scheme=fp.FixedSize(cohort, population=6000),
        local_steps=10,
        batch_size=10,
        learning_rate=0.125,
        momentum=0.5,
        seed=1,
    )
    dimension = plain.flat.dimension
    found = {"dimension": float(dimension)}
    kinds = {"float": (None, 0), "whole numbers": ("DistributedDiscreteGaussian", 16)}
    loops = {}
    for name, (kind, bits) in kinds.items():
        chosen = perturbation_of(str(kind), bits or None, dimension, cohort)
        loops[name] = replace(plain, perturbation=chosen)
        loops[name].step(loops[name].init(), data)
        found[name] = float("inf")
    # In turns, the least of five: other work on the machine only adds time.
    for _ in range(5):
        for name, loop in loops.items():
            state, start = loop.init(), time.process_time()
            loop.step(state, data)
            found[name] = min(found[name], time.process_time() - start)
    return found | encoding(loops["whole numbers"].perturbation, dimension, cohort)


def encoding(mechanism: Any, dimension: int, cohort: int) -> dict[str, float]:
    """Return seconds of the contributions of a round as integers and as floats."""
    update = torch.randn(dimension)
    floats = perturbation_of("", None, dimension, cohort)
    found = {}
    for name, one in (("rotation and rounding", mechanism.of_round()), ("clipping", floats)):
        times = []
        for _ in range(15):
            start = time.process_time()
            one.contribution(update)
            times.append(time.process_time() - start)
        found[name] = cohort * sorted(times)[7]
    return found


def papers_divergence(mechanism: Any, order: float) -> float:
    """Return the Renyi divergence of one round by the mechanism's own paper.

    The papers are Kairouz, Liu and Steinke 2021, Proposition 14, for sums of discrete Gaussians,
    and Agarwal, Kairouz and Liu 2021 for Skellam vectors. Norms, dimension and noise are in integer
    units, as in both papers.
    """
    square, d, std = float(mechanism.square), mechanism.width, mechanism.whole_std
    one_norm = min(math.sqrt(d * square), square)
    gaussian = 0.5 * order * square / std**2
    if isinstance(mechanism, fp.Skellam):
        near = ((2.0 * order - 1.0) * square + 6.0 * one_norm) / (4.0 * std**4)
        return gaussian + min(near, 1.5 * one_norm / std**2)
    k = np.arange(1.0, mechanism.cohort)
    tau = 10.0 * float(np.exp(-2.0 * math.pi**2 * mechanism.share_variance * k / (k + 1.0)).sum())
    crossed = gaussian + 0.5 * order * (2.0 * one_norm * tau / std + tau**2 * d)
    both = 0.5 * order * (math.sqrt(square) / std + math.sqrt(d) * tau) ** 2
    return min(gaussian + tau * d, crossed, both)


def beside_the_paper(kind: str, bits: int) -> dict[str, Any]:
    """Return epsilons of the comparison's run: by the paper's theorem, and ours."""
    mechanism = perturbation_of(kind, bits, 7850, CLIENTS)
    orders = range(2, 129) if kind == "Skellam" else np.linspace(1.1, 128.0, 600).tolist()
    points = tuple((float(a), papers_divergence(mechanism, float(a))) for a in orders)
    stated = fp.RenyiDp(divergences=points, adjacency="zero_out") * ROUNDS
    run, ask = mechanism * ROUNDS, {"delta": DELTA, "adjacency": "zero_out"}
    theirs = fp.epsilon(stated, accountant="rdp", **ask).upper
    ours = [fp.epsilon(run, accountant=how, **ask).upper for how in ("rdp", "pld")]
    return {"kind": kind, "bits": bits, "paper": theirs, "ours": ours}


PRINTED = (
    (2, 1.0, 0.12693674, 1.972),
    (3, 1.0, 0.78760074, 0.993),
    (6, 1.0, 0.78760074, 2.014),
    (1, 2.0, 0.02092364, 1.038),
    (5, 2.0, 0.02092364, 5.008),
    (1, 16.0, 1e-5, 0.306),
    (2, 16.0, 1e-5, 0.703),
)
"""Sensitivity, epsilon, delta, sigma: discrete Gaussians in dp-accounting's own tests (0.6)."""


def beside_dp_accounting(
    moves: int, epsilon: float, delta: float, sigma: float
) -> dict[str, float]:
    """Return the delta of one number at a printed sigma, and slightly above and below it."""
    # Printed to three digits: their sigma is the least that meets delta.
    ends = [
        fp.delta(
            fp.DistributedDiscreteGaussian(
                noise_multiplier=(sigma + add) / moves,
                clip_norm=float(moves),
                granularity=1.0,
                dimension=1,
                cohort=1,
                bits=12,
                rotated=False,
            ),
            epsilon=epsilon,
            adjacency="zero_out",
        )
        for add in (0.001, -0.001)
    ]
    known = {"sensitivity": moves, "epsilon": epsilon, "delta": delta, "sigma": sigma}
    return known | {"above": ends[0].upper, "below": ends[1].lower}


def check() -> int:
    """Repeat the row of float noise and one drawn from every table; return the exit status."""
    known, data = json.loads(RESULTS.read_text()), fashion_mnist(clients=CLIENTS, seed=0)
    assert known["run"] == RUN, "the results are of another run"
    first, *others = known["comparison"]
    same = trained_again(first, data)
    print(f"{'same' if same else 'DIFFERENT'}: the row of float noise")
    cells = {
        "comparison": {
            f"{one['kind']}, {one['bits']} bits": partial(trained_again, one, data)
            for one in others
        },
        "papers": {
            f"{one['kind']}, {one['bits']} bits": partial(
                agrees, beside_the_paper, (one["kind"], one["bits"]), one
            )
            for one in known["papers"]
        },
        "dp-accounting": {
            str(printed): partial(agrees, beside_dp_accounting, printed, one)
            for printed, one in zip(PRINTED, known["dp_accounting"], strict=True)
        },
    }
    return 0 if redrawn(cells) and same else 1


def trained_again(row: dict[str, Any], data: Any) -> bool:
    """Return whether a row of the comparison reproduces, except for its time."""
    fresh = trained(row["kind"], row["bits"], data)
    kept = {name: value for name, value in row.items() if name != "seconds_a_round"}
    return near({name: fresh.get(name) for name in kept}, kept, 1e-6, 5e-4)


def agrees(compute: Any, facts: tuple[Any, ...], row: dict[str, Any]) -> bool:
    """Return whether a row reproduces."""
    return near(compute(*facts), row, 1e-6)


def page(known: dict[str, Any]) -> None:
    """Write the page's tables."""
    head = ["noise", "bits", "C in whole numbers", "norm counted / C", "epsilon at most"]
    head += ["accuracy", "bytes a client", "CPU s a round"]
    put("integers.md", "comparison", table(head, map(line, known["comparison"])))
    rows = ([name, f"{rate:.1f}"] for name, rate in known["speeds"].items())
    put("integers.md", "samplers", table(["law, std", "million numbers a CPU s"], rows))
    put("integers.md", "rounds", words(known["cnn"]))
    head = ["noise", "bits", "by the paper's theorem", "ours, RDP", "ours, PLD"]
    rows = (
        [NAMES[r["kind"]], str(r["bits"]), *(f"{e:.4f}" for e in (r["paper"], *r["ours"]))]
        for r in known["papers"]
    )
    put("integers.md", "theorems", table(head, rows))
    head = ["sensitivity", "epsilon", "sigma printed", "delta printed"]
    head += ["ours at sigma + 0.001, at most", "ours at sigma - 0.001, at least"]
    columns = ("sensitivity", "epsilon", "sigma", "delta", "above", "below")
    rows = ([f"{r[name]:.6g}" for name in columns] for r in known["dp_accounting"])
    put("integers.md", "printed", table(head, rows))


def draw(rows: list[dict[str, Any]]) -> None:
    """Draw epsilon and accuracy by bits, and those of float noise, for the page."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 3.4))
    plain = next(row for row in rows if row["bits"] is None)
    left.axhline(plain["epsilon"], color="k", lw=0.8, ls=":", label="float (Gaussian)")
    right.axhline(plain["accuracy"], color="k", lw=0.8, ls=":")
    for mark, (kind, name) in zip("os", NAMES.items(), strict=True):
        served = [row for row in rows if row["kind"] == kind and "refused" not in row]
        bits = [row["bits"] for row in served]
        left.plot(bits, [row["epsilon"] for row in served], f"{mark}-", ms=4, label=name)
        spread = [row["spread"] for row in served]
        right.errorbar(bits, [row["accuracy"] for row in served], spread, fmt=f"{mark}-", ms=4)
    refused = [row["bits"] for row in rows if "refused" in row]
    for axis in (left, right):
        axis.axvspan(min(BITS) - 0.5, max(refused) + 1.0, color="0.9", label="refused")
        axis.set(xlabel="bits of a number", xticks=BITS, xlim=(min(BITS) - 0.5, max(BITS) + 0.5))
    left.set(ylabel="epsilon at most, delta = 1e-4", yscale="log")
    left.set_yticks([10, 15, 20, 30, 50], ["10", "15", "20", "30", "50"])
    left.minorticks_off()
    left.legend(frameon=False)
    right.set(ylabel="test accuracy")
    figure.tight_layout()
    figure.savefig(PLOT, dpi=120)


def words(cnn_round: dict[str, float]) -> str:
    """Return the sentence on the CNN's round."""
    share = cnn_round["rotation and rounding"] / cnn_round["float"]
    return (
        f"A round of the CNN ({cnn_round['dimension']:,.0f} parameters, 20 clients) takes "
        f"{cnn_round['float']:.2f} s with float noise; rotating and rounding its clients' "
        f"updates to 16 bits takes {cnn_round['rotation and rounding']:.3f} s, {share:.1%} of "
        f"that, and clipping them to the float grid {cnn_round['clipping']:.3f} s."
    )


def line(row: dict[str, Any]) -> list[str]:
    """Return a row of the table."""
    name = NAMES.get(row["kind"], "float (Gaussian)")
    bits = "32" if row["bits"] is None else str(row["bits"])
    if "refused" in row:
        return [name, bits, "", "", "refused", "", "", ""]
    whole = f"{row['clip_in_whole_numbers']:.4g}" if row["bits"] else ""
    counted = f"{row['norm_counted']:.4f}" if row["bits"] else "1"
    accuracy = f"{row['accuracy']:.2%} +- {row['spread']:.2%}"
    times = f"{row['seconds_a_round']:.2f}"
    return [
        name,
        bits,
        whole,
        counted,
        f"{row['epsilon']:.4f}",
        accuracy,
        f"{row['bytes']:,}",
        times,
    ]


def main() -> None:
    """Run the requested parts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fresh", action="store_true")
    part = parser.add_mutually_exclusive_group()
    part.add_argument("--speed", action="store_true")
    part.add_argument("--page", action="store_true")
    part.add_argument("--accounts", action="store_true", help="account again, train nothing")
    part.add_argument("--check", action="store_true")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    if chosen.check:
        sys.exit(check())
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() and not chosen.fresh else {}
    if chosen.accounts:
        account_again(known)
    whole = not (chosen.page or chosen.speed or chosen.accounts)
    if whole:
        compare(known)
    if whole and "papers" not in known:
        account_beside(known)
    if chosen.speed or (whole and "cnn" not in known):
        known |= {"speeds": speeds(), "cnn": rounds_of_the_cnn()}
        keep(known)
    if "cnn" in known:
        page(known)
        draw(known["comparison"])


if __name__ == "__main__":
    main()
