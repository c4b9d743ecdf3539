"""Fed-SMP on Fashion-MNIST, Tables I, IV and V of Hu, Guo and Gong, with the paper's values.

    python benchmarks/papers/fed_smp.py --run top_k-0.005 --seed 1   runs or resumes one run
    python benchmarks/papers/fed_smp.py --plan                       works through the paper's cells
    python benchmarks/papers/fed_smp.py --plan --model 2nn           Figure 3 on a small network
    python benchmarks/papers/fed_smp.py --collect                    writes results/fed_smp.json
    python benchmarks/papers/fed_smp.py --measure                    times a round of each kind
    python benchmarks/papers/fed_smp.py --check                      reruns a cell of every table

The labels of runs are explained in ``fedprivacy.reproductions.fed_smp.settings``, and a run's end
in ``runs`` there. ``--inputs standardised`` subtracts the mean of ``INPUTS`` from images
and divides by its standard deviation, instead of using [0, 1]. With g++ and without a GPU the
paper's network is trained by ``network.cpp``, about twice as fast as by torch and the same up to
rounding. ``--model 2nn`` uses a faster network of 199,210 parameters that is not the paper's; all
else is equal. ``--dataset mnist | kmnist | svhn | cifar10 | shakespeare --data-dir FOLDER`` runs
the paper's settings for other data from the files in FOLDER (for CIFAR-10, which is not in the
paper, SVHN's settings). --collect with the same options writes ``results/fed_smp_DATASET.json``.

A run with ``--guard`` or with other ``--rounds`` than the paper's is a different run, and no table
of the page has either.

A run keeps its checkpoint, ledger and accuracies in ``progress/``, which is not committed, and
resumes from there. ``results/fed_smp.json`` has the number of finished rounds of every run. The
compressed ledgers of the paper's network are in the same folder, and --check accounts them again.
Runs that are not ``repeatable`` are older than the noise by correct rounding of ideal normal
numbers: their seeds now draw different noise.
"""

import argparse
import gzip
import json
import platform
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from drawn import Parted, near, redrawn
from fed_smp_page import pages, tables_of
from fed_smp_paper import PLAN, key, like_the_papers, told_whole
from fed_smp_settings import HERE, MODELS, Setting, prefix, setting_of
from told import at_least, told

import fedprivacy as fp
from fedprivacy.errors import require
from fedprivacy.outputs import whole_file
from fedprivacy.reproductions.fed_smp import runs
from fedprivacy.reproductions.fed_smp.settings import EVERY, INPUTS, TASKS, Unguarded
from fedprivacy.reproductions.fed_smp.tables import ROUNDS
from fedprivacy.systems.averaging.upload import upload_size
from fedprivacy.training import FederatedData


def run(setting: Setting) -> None:
    """Run or continue one run in its folder; see ``runs.run``."""
    runs.run(setting, setting.folder)


PLANNED = {"cnn": "standardised", "2nn": "unit"}
"""Inputs of the runs in ``PLAN``, by network."""


def work(rounds: int, model: str, data_dir: str | None) -> None:
    """Work through ``PLAN`` except for finished runs; report a failed run and continue."""
    there = json.loads((HERE / "results" / "fed_smp.json").read_text())["runs"]
    inputs = PLANNED[model]
    own = (rounds, False, model, inputs)
    done = {
        (one["run"], one["seed"])
        for one in there
        if one["finished"] and (*key(one)[4:], *key(one)[:2]) == own
        if told_whole(one)
    }
    for label, seed in PLAN[model]:
        if (label, seed) in done:
            continue
        try:
            run(setting_of(label, seed, rounds, model, inputs, data_dir=data_dir))
        except fp.ParameterError:
            # A fault of the data: every other run would fail in the same way.
            raise
        except Exception:
            traceback.print_exc()
        print(label, seed, "done", flush=True)


def measure(data_dir: str | None) -> None:
    """Time a round of each kind and an evaluation in seconds of a core, for the results."""
    target = HERE / "results" / "fed_smp.json"
    content = json.loads(target.read_text())
    found = dict(content["seconds"])
    for model, by_torch in (("cnn", False), ("cnn", True), ("2nn", False)):
        own: dict[str, float] = {}
        for label in ("rand_k-0.4", "top_k-0.005"):
            setting = setting_of(label, 1, ROUNDS, model, "standardised", data_dir=data_dir)
            loop = setting.loop()
            times = timed(plain_of(loop) if by_torch else loop, setting.data())
            own[setting.method], own["evaluation"] = (round(one, 2) for one in times)
        found[f"{model} by torch" if by_torch else model] = own
    write(target, content["runs"], found)


def timed(loop: Unguarded, data: FederatedData) -> tuple[float, float]:
    """Return the processor time of a loop's second round and of an evaluation."""
    state, _ = loop.step(loop.init(), data)
    begun = time.process_time()
    state, _ = loop.step(state, data)
    stepped = time.process_time()
    loop.evaluate(state, data)
    return stepped - begun, time.process_time() - stepped


def plain_of(loop: Unguarded) -> Unguarded:
    """Return the same loop with torch training its network."""
    return Unguarded(**{one.name: getattr(loop, one.name) for one in fields(loop) if one.init})


def epsilons(path: Path, delta: float) -> dict[str, dict[str, float]]:
    """Return the certified epsilon of a ledger, by observer and adjacency."""
    cells = {"aggregate": ("zero_out", "add_remove", "replace_one"), "server": ("zero_out",)}
    return {
        observer: {
            kind: fp.account(path, delta=delta, adjacency=kind, observer=observer).upper
            for kind in kinds
        }
        for observer, kinds in cells.items()
    }


def arbitrary_masks(rounds: dict[int, dict[str, Any]]) -> list[int] | None:
    """Return the rounds with a mask from an update that is not finite, or None if unknown."""
    said = {number: line.get("public_update_finite") for number, line in rounds.items()}
    return None if None in said.values() else [number for number, fine in said.items() if not fine]


def record(setting: Setting) -> dict[str, Any]:
    """Return the current result of one run."""
    rounds = runs.lines(setting.folder / runs.NOTES)
    accuracy, overflow = runs.accuracies(rounds), runs.end_of(rounds)
    end = None if setting.guard else overflow
    before = runs.accuracies(rounds, end)
    path, last = setting.folder / runs.LEDGER, max(rounds, default=0)
    answered = sum(line["arrived"] + line["refused"] for line in rounds.values())
    mean, std = INPUTS[setting.inputs]
    trained_by = sorted({line.get("trained_by", "not said") for line in rounds.values()})
    return {
        "run": setting.label,
        "model": setting.model,
        "inputs": setting.inputs,
        "input_mean": mean,
        "input_std": std,
        "server_rate": setting.loop().server_learning_rate,
        "seed": setting.seed,
        "guard": setting.guard,
        "rounds_done": last,
        "rounds_planned": setting.rounds,
        "first_non_finite_round": overflow,
        # The last round is always evaluated.
        "finished": (last == setting.rounds and last in accuracy) or end is not None,
        "best_accuracy": max(before.values(), default=None),
        "accuracy_by_round": accuracy,
        "training_loss": rounds[last].get("training_loss") if rounds else None,
        "kept": setting.kept,
        "paper_mb_of_a_client": runs.megabytes(setting, len(rounds)),
        "upload_mb_of_a_client": answered * upload_size(setting.kept) / setting.population / 1e6,
        "refused": sum(line["refused"] for line in rounds.values()),
        "arbitrary_masks": arbitrary_masks(rounds),
        "epsilon": epsilons(path, setting.delta) if path.exists() else None,
        "ledger_rounds": fp.Ledger.open(path).spent_rounds if path.exists() else None,
        "delta": setting.delta if path.exists() else None,
        "trained_by": " and ".join(trained_by),
        "repeatable": True,
    }


def kept_ledger(setting: Setting) -> Path:
    """Return the path of a run's committed ledger."""
    network = "" if setting.model == "cnn" else f"{setting.model}-"
    inputs = setting.inputs.replace(" ", "_")
    label = "-".join((setting.label, *setting.unlike))
    name = f"fed_smp-{network}{inputs}-{label}-seed{setting.seed}.ledger.gz"
    return HERE / "results" / "ledgers" / name


def keep_ledger(setting: Setting) -> None:
    """Compress the ledger of a finished run of the paper's network."""
    path, target = setting.folder / runs.LEDGER, kept_ledger(setting)
    if setting.dataset == "fashion-mnist" and setting.model != "2nn" and path.exists():
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(gzip.compress(path.read_bytes(), mtime=0))


def recounted(one: dict[str, Any]) -> float:
    """Return the difference between a committed ledger's epsilon and the recorded one."""
    model, inputs, label, seed, rounds, guard = key(one)
    setting = setting_of(label, seed, rounds, model, inputs, guard=guard)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.ledger"
        path.write_bytes(gzip.decompress(kept_ledger(setting).read_bytes()))
        again = epsilons(path, setting.delta)
    said = [value for kinds in one["epsilon"].values() for value in kinds.values()]
    found = [value for kinds in again.values() for value in kinds.values()]
    return max(abs(a - b) for a, b in zip(said, found, strict=True))


def begun(dataset: str, data_dir: str | None) -> Iterator[Setting]:
    """Yield every run with progress."""
    for folder in sorted((HERE / "progress").glob(f"{prefix(dataset)}*:*-seed*")):
        name, _, seed = folder.name.removeprefix(prefix(dataset)).rpartition("-seed")
        model, inputs, label, *unlike = name.split(":")
        told = [part.removesuffix("_rounds") for part in unlike if part != "guard"]
        rounds = int(told[0]) if told else TASKS[dataset].rounds
        facts = (label, int(seed), rounds, model, inputs.replace("_", " "))
        guard = "guard" in unlike
        yield setting_of(*facts, dataset=dataset, data_dir=data_dir, guard=guard)


def collect(dataset: str, data_dir: str | None) -> None:
    """Add the runs with progress, finished or not, to the results."""
    target = HERE / "results" / f"{prefix(dataset).rstrip('-')}.json"
    content = json.loads(target.read_text()) if target.exists() else {"runs": []}
    known, seconds = {key(one): one for one in content["runs"]}, content.get("seconds", {})
    for setting in begun(dataset, data_dir):
        found = record(setting)
        enough = found["finished"] or found["rounds_done"] >= EVERY
        of = f"{found['rounds_done']} of {found['rounds_planned']} rounds"
        how = "collected" if enough else f"left out: what has not ended needs {EVERY}"
        print(setting.folder.name, of, how, sep=", ")
        if enough:
            known[key(found)] = found
            keep_ledger(setting)
    if not known:
        print(f"no run has progress in {HERE / 'progress'}: nothing is written")
        return
    runs = [known[name] for name in sorted(known)]
    write(target, runs, seconds)


def write(target: Path, runs: list[dict[str, Any]], seconds: dict[str, Any]) -> None:
    """Write results atomically, and the page."""
    versions = {"python": platform.python_version(), "torch": torch.__version__}
    data = target.stem.removeprefix("fed_smp").removeprefix("_") or "fashion-mnist"
    facts = {"data": data, "versions": versions, "seconds": seconds, "runs": []}
    head = json.dumps(facts)[:-2]
    lines = ",\n".join(json.dumps(one) for one in runs)
    whole_file(target, f"{head}\n{lines}\n]}}\n")
    if target.stem == "fed_smp":
        pages(runs, seconds)


def first_rounds(
    setting: Setting, wanted: dict[str, Any], shift: float = 0.0
) -> tuple[list[float], list[int]]:
    """Return a run's first accuracies, if they are known, and its first round that is not finite.

    Args:
        setting: setting of the run.
        wanted: its recorded results.
        shift: added to all parameters at the start.
    """
    data, loop = setting.data(), setting.loop()
    state = loop.init()
    state = replace(state, parameters=state.parameters + shift)
    found, ends = [], []
    for number in range(1, redone(wanted) + 1):
        state, info = loop.step(state, data)
        ends += [number] if info.refused else []
        if str(number) in wanted["accuracy_by_round"]:
            found.append(loop.evaluate(state, data)[0])
    return found, ends[:1]


def recorded(wanted: dict[str, Any]) -> tuple[list[float], list[int]]:
    """Return the recorded values of these rounds."""
    rounds, end = redone(wanted), wanted["first_non_finite_round"]
    known = wanted["accuracy_by_round"].items()
    found = [value for number, value in known if int(number) <= rounds]
    return found, [end] if end and end <= rounds else []


def redone(wanted: dict[str, Any]) -> int:
    """Return the number of a run's rounds to repeat.

    It is up to the first evaluated round, ten for the small network, or to the run's end if that is
    one of the first ten.
    """
    first = min(map(int, wanted["accuracy_by_round"]), default=1)
    rounds, end = 10 if wanted["model"] == "2nn" else first, wanted["first_non_finite_round"]
    return min(end if end and end <= 10 else rounds, wanted["rounds_done"])


TOLERANCE, ROUNDING = 0.005, 1e-7
"""Tolerance of accuracies, and the approximate rounding of single precision."""


def agrees(wanted: dict[str, Any], data_dir: str | None) -> bool:
    """Return whether a run's first rounds reproduce."""
    model, inputs, label, seed, planned, guard = key(wanted)
    facts = (label, seed, planned, model, inputs)
    return comes_out(setting_of(*facts, data_dir=data_dir, guard=guard), wanted)


def comes_out(setting: Setting, wanted: dict[str, Any]) -> bool:
    """Return whether a setting's first rounds agree with the recorded ones.

    If they do not, and a start moved by the size of rounding also ends elsewhere, no comparison is
    made. (Another index is then in top-k's mask, and the noise goes to other coordinates.)
    """
    again = first_rounds(setting, wanted)
    if near(again, recorded(wanted), 0.0, TOLERANCE):
        return True
    if not near(again, first_rounds(setting, wanted, ROUNDING), 0.0, TOLERANCE):
        raise Parted
    return False


AFFORDABLE, LIMIT = 60, 240
"""Measured seconds of a drawn cell's rounds at most, and seconds after which it is stopped."""


def cells_of_tables(
    runs: list[dict[str, Any]], seconds: dict[str, Any], data_dir: str | None
) -> dict[str, dict[str, Callable[[], bool]]]:
    """Return for every table of the page the runs that can be repeated quickly."""
    tables: dict[str, dict[str, Callable[[], bool]]] = {}
    for one in runs:
        pace = seconds[one["model"] if one["model"] in seconds else "cnn"]
        cost = redone(one) * (pace["top_k" if "top_k" in one["run"] else "rand_k"])
        for name in tables_of(one) if cost <= AFFORDABLE else ():
            told = " ".join(map(str, key(one)[:4]))
            tables.setdefault(name, {})[told] = partial(agrees, one, data_dir)
    return tables


def check(data_dir: str | None) -> int:
    """Rerun the smallest run and one of every table; return the exit status."""
    content = json.loads((HERE / "results" / "fed_smp.json").read_text())
    again = [one for one in content["runs"] if one["repeatable"]]
    smallest = ("2nn", "unit", "top_k_steps-0.005", 1, ROUNDS, False)
    wanted = next((one for one in again if key(one) == smallest), None)
    if wanted is None:
        print("results/fed_smp.json lacks the smallest run; run it and --collect first")
        return 1
    private = [one for one in content["runs"] if one["model"] != "2nn" and one["epsilon"]]
    off = max(map(recounted, private))
    print(f"{len(private)} ledgers accounted again: epsilons differ by at most {off:.1e}")
    earlier = len(content["runs"]) - len(again)
    print(f"{earlier} runs are from before noise was rounded and cannot be repeated")
    others = [one for one in again if one is not wanted and like_the_papers(one)]
    tables = cells_of_tables(others, content["seconds"], data_dir)
    tables = {"The smallest": {wanted["run"]: partial(agrees, wanted, data_dir)}, **tables}
    return 0 if redrawn(tables, seconds=LIMIT) and off <= 2e-3 else 1


def asked() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--run", help="fedavg, dp-fedavg, top_k-P or rand_k-P, and @S")
    parser.add_argument("--seed", type=at_least(0), default=1)
    parser.add_argument("--rounds", type=int, help="the paper's, unless said otherwise")
    parser.add_argument("--threads", type=at_least(1), default=1)
    parser.add_argument("--model", choices=list(MODELS), default="cnn")
    parser.add_argument("--inputs", choices=list(INPUTS), help="unit, unless said otherwise")
    parser.add_argument("--guard", action="store_true", help="go on past a non-finite update")
    parser.add_argument("--plan", action="store_true", help="work through what is planned")
    parser.add_argument("--measure", action="store_true", help="time the rounds")
    parser.add_argument("--dataset", choices=list(TASKS), default="fashion-mnist")
    parser.add_argument("--data-dir", help="where its files are")
    parser.add_argument("--collect", action="store_true")
    parser.add_argument("--check", action="store_true")
    return parser


def agree(options: argparse.Namespace) -> None:
    """Refuse options that would be ignored."""
    own = options.plan or options.measure or options.check
    rule = "be fashion-mnist for --plan, --measure and --check"
    way_out = "--run and --collect take other data"
    require(
        not own or options.dataset == "fashion-mnist", "--dataset", options.dataset, rule, way_out
    )
    require(options.run or not options.guard, "--guard", True, "be given with --run")
    if options.plan:
        way_out, rule = "--run takes any", f"be {' or '.join(PLAN)} for --plan"
        require(options.model in PLAN, "--model", options.model, rule, way_out)
        inputs = PLANNED[options.model]
        fits = options.inputs in (None, inputs)
        rule = f"be {inputs} for --plan --model {options.model}"
        require(fits, "--inputs", options.inputs, rule, way_out)


def act(options: argparse.Namespace) -> int:
    """Run the command line; return the exit status."""
    agree(options)
    if options.check:
        return check(options.data_dir)
    own = {"dataset": options.dataset, "data_dir": options.data_dir}
    rounds = TASKS[options.dataset].rounds if options.rounds is None else options.rounds
    if options.run:
        facts = (options.run, options.seed, rounds, options.model, options.inputs or "unit")
        run(setting_of(*facts, **own, guard=options.guard))
    if options.plan:
        work(rounds, options.model, options.data_dir)
    if options.measure:
        measure(options.data_dir)
    if options.collect:
        collect(**own)
    return 0


def main() -> None:
    """Parse the command line and run it."""
    reader = asked()
    options = reader.parse_args()
    work = ("run", "plan", "collect", "measure", "check")
    if not any(getattr(options, name) for name in work):
        reader.error("one of " + ", ".join(f"--{name}" for name in work) + " is needed")
    torch.set_num_threads(options.threads)
    with told():
        sys.exit(act(options))


if __name__ == "__main__":
    main()
