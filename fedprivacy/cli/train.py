"""The commands that train: train, demo. They import the training code when they run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from ..bound import exactly
from ..errors import refuse
from ..ledger import Ledger
from ..outputs import refuse_overwrite
from ..questions.units import allows_publishing
from ..runs.methods import METHODS, Method, names
from ..systems.settings import read, single
from .group import cli
from .ledgers import audit_data, show_audit
from .options import (
    ADJACENCIES,
    BUDGET,
    METHOD,
    OBSERVERS,
    MethodCommand,
    as_json,
    file_option,
    named_texts,
    option,
    options,
    say,
    set_option,
    setting_option,
    show,
)

if TYPE_CHECKING:
    from ..runs.experiment import Experiment, TrainedRun
    from ..runs.jobs import Job
    from ..runs.sweep import Sweep

DATA = "The data"
"""A group of options."""

SOURCE = (
    *("data", "data_dir", "clients", "classes_per_client", "public_records"),
    *("model", "rounds"),
)
"""Options for the data, the model, and the number of rounds."""

NAMED = ("clip_norm", "missing", "absent", "colluding")
"""Settings of the methods with separate options; --set gives the others."""

seed_option = option("--seed", int, METHOD, "Make runs reproducible. They are then not private.")
data_options = options(
    option(
        "--data",
        None,
        DATA,
        "digits (part of the package), fashion-mnist (read from disk), or your own .npz file "
        "with the arrays features, labels (classes from 0), clients (the client of each record; or "
        "use --clients), test_features and test_labels (for a score) and, for top-k, "
        "public_features and public_labels.",
        default="digits",
    ),
    file_option(
        "--data-dir",
        "Folder with Fashion-MNIST's IDX files.  [default: the folder of Debian's package "
        "dataset-fashion-mnist]",
        panel=DATA,
    ),
    option(
        "--clients",
        int,
        DATA,
        "Number of clients.  [default: 400 or 6000; 10 if the unit is a record]",
    ),
    option(
        "--classes-per-client",
        int,
        DATA,
        "Number of classes in a client's records.  [default: all]",
    ),
    option(
        "--public-records",
        int,
        DATA,
        "Training records set aside as public, for top-k's mask.  [default: 100 or 1000]",
    ),
    option(
        "--model --posterior model",
        None,
        DATA,
        "logistic, mlp, cnn, or FILE.py:NAME of a function that builds a torch module. For "
        "fa-ld and fa-hmc: FILE.py:NAME of a Posterior, which contains its data. For fed-plt, "
        "gradients of a module are clipped for each record.  [default: depends on the data]",
    ),
    option("--rounds", int, METHOD, "Number of rounds.  [default: depends on the data]"),
    option("--epsilon", float, BUDGET, "The budget.", default=8.0),
    option(
        "--delta",
        float,
        BUDGET,
        "Delta of the budget.  [default: n^-1.1 for n units, rounded down to two digits; "
        "required for add_remove]",
    ),
    option(
        "--adjacency",
        ADJACENCIES,
        BUDGET,
        "How neighbouring data sets differ.  [default: zero_out if the unit is a client, "
        "replace_one if it is a record]",
    ),
    option(
        "--dropout-rate",
        float,
        METHOD,
        "Simulate that each client of a cohort fails to answer with this probability; the "
        "account uses --missing.  [default: 0]",
        default=0.0,
        show_default=False,
    ),
    option("--threads", int, METHOD, "Threads of the processor.  [default: 1 for small models]"),
    option(
        "--observer",
        OBSERVERS,
        BUDGET,
        "What the attacker sees: every release, the participants as well, or only the last "
        "release.",
        default="aggregate",
    ),
)


@cli.command(cls=MethodCommand)
@option(
    "--method",
    click.Choice(names(private=False)),
    METHOD,
    f"The method: {', '.join(names(private=False))}. The privacy unit is a record for fa-ld, "
    "fa-hmc and fed-plt, and a client for the others.",
    metavar="NAME",
    default="fed-smp-top-k",
)
@data_options
@option(
    "--level --noise-multiplier level",
    float,
    METHOD,
    "The calibrated setting: the noise multiplier; the step size of fa-ld; the gradient noise "
    "of fa-hmc; the noise scale of fed-plt.  [default: calibrated to the budget]",
)
@options(
    *(
        setting_option(METHODS["fed-smp-rand-k"].settings.known()[name], panel=METHOD)
        for name in NAMED
    )
)
@option(
    "--kept",
    float,
    METHOD,
    "Share of the coordinates that Fed-SMP keeps, in (0, 1].  [default: 0.4]",
)
@set_option(
    "Another setting of the method, for example local_steps=20 or strategy=fixed; the names "
    "are listed above. add_remove needs sampling_probability and expected_cohort. Repeat it "
    "for more settings.",
    several=False,
)
@file_option("--ledger", "Ledger of a private run.  [default: METHOD.ledger]")
@file_option(
    "--checkpoint",
    "Checkpoint file. The run resumes from it if it exists. It is private, like the file "
    "LEDGER.private.",
)
@file_option(
    "--output",
    "File for the trained model, which may be published: a state dict, the draws of fa-ld and "
    "fa-hmc, or the models of fed-plt. torch.load reads it.",
)
@seed_option
@as_json
def train(
    method: str,
    kept: float | None,
    chosen: tuple[str, ...],
    ledger: Path | None,
    checkpoint: Path | None,
    output: Path | None,
    as_json: bool,
    **budget: Any,
) -> None:
    """Train within a privacy budget, leave a ledger, and audit it.

    The file of --output and the verdict may be handed over. The ledger is for an auditor.

    \b
    Examples:
      fedprivacy train --method fed-smp-top-k --epsilon 8 --delta 1e-3 \\
          --ledger run.ledger
      fedprivacy train --method fa-ld --epsilon 8 --delta 1e-5 \\
          --set local_steps=20
      fedprivacy train --method dp-fedavg --data mine.npz --model mine.py:network
    """  # noqa: D301
    needs_torch()
    from ..runs.experiment import Experiment, check_free
    from ..runs.jobs import job
    from ..runs.progress import Steps

    given = {"kept_fraction": kept} | {name: budget.pop(name) for name in (*SOURCE, *NAMED)}
    data = given.pop("data")
    if output is not None:
        source = (given["model"] or "").rpartition(":")[0]
        refuse_overwrite(output, besides=filter(None, [data, source]))
    settings = _settings(METHODS[method], given, chosen)
    path = ledger or Path(f"{method}.ledger")
    if METHODS[method].private:
        # Before data are read, which may be slow.
        check_free(path, checkpoint)
    # A run without privacy leaves no ledger, so the option would be misleading.
    elif ledger is not None:
        refuse("--ledger", str(ledger), f"be left out, since {method} is not private")
    else:
        _check_no_budget(method, budget)
    with Steps() as steps, steps.share("choosing the noise's factor") as tick:
        task = job(method, data, progress=tick, **settings)
    if task.knob is not None:
        experiment = _begun(task, budget, path)
    else:
        experiment = Experiment(job=task, **budget)
    record = _trained(experiment, method, path, checkpoint, output)
    files = {"ledger": path, "checkpoint": checkpoint}
    result = _result(method, experiment, record, path)
    show(result, as_json, lambda: _tell(result, experiment, record, files))


def _check_no_budget(method: str, given: Mapping[str, Any]) -> None:
    """Refuse a budget for a method without noise: no budget can hold for it."""
    context = click.get_current_context()
    assert context is not None
    for name in ("epsilon", "delta", "adjacency", "observer"):
        if context.get_parameter_source(name) is not ParameterSource.DEFAULT:
            rule = f"be left out, since {method} adds no noise and so keeps no budget"
            other = METHODS[method].with_noise
            refuse(f"--{name}", given[name], rule, f"use --method {other} for a budget")


def needs_torch() -> None:
    """Raise ParameterError if torch is missing; called before the training code is imported."""
    from .. import training  # noqa: F401


def _begun(task: Job, budget: dict[str, Any], path: Path) -> Experiment:
    """Return a private experiment after printing its budget."""
    from ..runs.experiment import Experiment

    chosen = _as_begun(budget, path)
    experiment = Experiment(job=task, **budget)
    # On standard error, before any loss is spent: with --json, standard output holds only data.
    say(begins(experiment, chosen), err=True)
    return experiment


def _settings(method: Method, given: dict[str, Any], chosen: tuple[str, ...]) -> dict[str, Any]:
    """Return the given options and the settings of --set. A name in both is refused."""
    options = {name: value for name, value in given.items() if value is not None}
    texts = named_texts(chosen)
    for name in texts:
        # If given twice, one of the two values would be lost.
        if name in (*options, "method", "data", "data_dir", "model"):
            refuse(
                "--set", name, "not be a setting with its own option", "leave out one of the two"
            )
    method.check_names(texts)
    return options | single(read(method.known, texts))


def _trained(
    experiment: Experiment,
    method: str,
    ledger: Path,
    checkpoint: Path | None,
    output: Path | None,
) -> TrainedRun:
    """Calibrate if necessary, and train, with a progress bar over the rounds."""
    from ..runs.progress import Steps

    task = experiment.job
    with Steps() as steps:
        # An existing ledger gives the level of the run.
        if task.knob is not None and experiment.level is None and not ledger.exists():
            # Before calibrating, which may take minutes: the paths of the files are checked.
            experiment.check_places(ledger, checkpoint, output)
            with steps.step(f"calibrating {task.knob}"):
                _ = experiment.calibration
        with steps.rounds(f"training {METHODS[method].title}", task.rounds) as tick:
            try:
                return experiment.run(
                    ledger_path=ledger, checkpoint=checkpoint, output=output, on_round=tick
                )
            except KeyboardInterrupt:
                say(f"fedprivacy: {_way_on(checkpoint)}", err=True)
                raise


def _way_on(checkpoint: Path | None) -> str:
    """Return how a stopped run continues."""
    if checkpoint is not None and checkpoint.exists():
        return f"the same command continues from {checkpoint}"
    return "without --checkpoint a stopped run cannot continue"


def _result(
    method: str, experiment: Experiment, record: TrainedRun, ledger: Path
) -> dict[str, Any]:
    """Return the result of a run as plain JSON values."""
    data = {
        "method": method,
        "settings": experiment.settings,
        # JSON has no NaN: an undefined score is null.
        "scores": {n: v if math.isfinite(v) else None for n, v in record.scores.items()},
        "upload_bytes": record.upload_bytes,
        "upload_mb_a_client": experiment.job.upload_per_client,
        "ledger": None,
        "output": None if record.output is None else str(record.output),
        "knob": experiment.job.knob,
        "level": None,
        "budget": None,
        "notes": [*record.notes, *_cautions(experiment)],
        "public": dict(record.public),
        "not_covered": {},
        "audit": None,
    }
    if record.audit is not None:
        budget = {name: getattr(experiment, name) for name in ("epsilon", "delta")}
        budget |= {name: str(getattr(experiment, name)) for name in ("adjacency", "observer")}
        data |= {
            "ledger": str(ledger),
            "level": experiment.recorded_level(ledger),
            "budget": budget,
            "not_covered": dict(record.not_covered),
            "audit": audit_data(record.audit),
        }
    return data


def _tell(
    result: dict[str, Any],
    experiment: Experiment,
    record: TrainedRun,
    files: dict[str, Path | None],
) -> None:
    """Print the same for a person."""
    task = experiment.job
    text = ", ".join(f"{name} {value:.4g}" for name, value in record.scores.items())
    sent = _sent(record, task.upload_per_client)
    say(f"{METHODS[result['method']].title}: {text or 'not scored'}; {sent}")
    say("  " + ", ".join(f"{name} {value}" for name, value in experiment.settings.items()))
    for note in filter(None, (*result["notes"], record.rests_on)):
        say(f"  {note}")
    if record.audit is not None:
        say(f"{task.knob} = {exactly(result['level'])}, recorded in {files['ledger']}")
        show_audit(record.audit)
        for line in _private_lines(record, **files):
            say(line)


def _sent(record: TrainedRun, each: float | None) -> str:
    """Return the upload in words; ``each``: MB for each client."""
    text = f"{(record.upload_bytes or 0) / 1e6:.2f} MB uploaded by all"
    if each is None:
        return text
    return f"{text}, {each:.4g} MB per client on average, without headers"


def missing_parts(budget: Mapping[str, Any]) -> list[str]:
    """Return the names of the budget's missing parts, which are then chosen."""
    return [name for name in ("delta", "adjacency") if budget[name] is None]


def _as_begun(budget: dict[str, Any], path: Path) -> list[str]:
    """Take missing values from an existing ledger; return the names of the chosen ones."""
    left_out = missing_parts(budget)
    if left_out and path.exists():
        known = Ledger.open(path)
        begun = {"delta": known.claim and known.claim[1], "adjacency": str(known.facts.adjacency)}
        budget |= {name: begun[name] for name in left_out}
        return []
    return left_out


def begins(experiment: Experiment | Sweep, chosen: list[str]) -> str:
    """Return the first printed line: the budget, and its chosen parts."""
    unit = str(experiment.job.unit)
    # The commands require one.
    assert experiment.epsilon is not None
    text = f"budget: epsilon = {exactly(experiment.epsilon)}, delta = {exactly(experiment.delta)}"
    if "delta" in chosen:
        text += f" (chosen: n^-1.1 for {experiment.job.units} {unit}s)"
    text += f", {unit} level, {experiment.adjacency or experiment.job.adjacency}"
    if "adjacency" in chosen:
        text += f" (chosen: what {unit}-level methods are accounted for)"
    return f"{text}, observer {experiment.observer}"


def _private_lines(record: TrainedRun, ledger: Path | None, checkpoint: Path | None) -> list[str]:
    """Return the lines about numbers that no epsilon covers, and about the files."""
    sent, refused = record.not_covered["upload_bytes"], record.not_covered["refused"]
    uploaded = "uploaded bytes unknown" if sent is None else f"{sent} bytes uploaded"
    lines = [
        f"not covered by epsilon, not for publication: {uploaded}, {refused} updates refused, "
        f"the time it took; the cohort sizes in {ledger} are for an auditor, not for the public"
    ]
    noise = [f"{ledger}.noise"] if Path(f"{ledger}.noise").exists() else []
    kept = [str(checkpoint), f"{ledger}.private", *noise] if checkpoint is not None else noise
    if kept:
        text = f"private, not for publication: {' and '.join(kept)}"
        lines.append(f"{text}; --output writes a model for publication")
    if noise:
        lines.append(f"anyone who has {noise[0]} can subtract the noise")
    if record.output is not None:
        lines.append(f"for publication: {record.output}, which contains only the model")
    return lines


def _cautions(experiment: Experiment) -> list[str]:
    """Return the warnings about the budget for a reader of the result."""
    task = experiment.job
    if task.knob is None:
        return ["not private: no noise, no ledger, no epsilon"]
    large = allows_publishing(experiment.delta, experiment.units, task.unit)
    return [large] if large else []


@cli.command()
@data_options
@file_option("--output", "Path of the page.", default=Path("demo-report.html"))
@file_option("--ledgers", "Folder for the ledgers.  [default: a new folder next to the page]")
@seed_option
@as_json
def demo(
    output: Path,
    ledgers: Path | None,
    as_json: bool,
    **budget: Any,
) -> None:
    """Run everything on real data: calibrate, train, audit, report.

    Trains FedAvg, DP-FedAvg and Fed-SMP (top-k and rand-k) within one privacy budget at client
    level, audits every ledger with every accountant, prints a table and writes one page.
    """
    needs_torch()
    from ..runs.demo import run_demo, table
    from ..runs.experiment import Experiment
    from ..runs.jobs import job
    from ..runs.sources import load_data

    source = {name: budget.pop(name) for name in SOURCE}
    trained = {name: source.pop(name) for name in ("model", "rounds")}
    records = load_data(source.pop("data"), **source)
    experiments = {
        name: Experiment(job=job(name, records, **trained), **budget)
        for name, method in METHODS.items()
        if method.compared
    }
    private = next(e for e in experiments.values() if e.job.knob is not None)
    say(begins(private, missing_parts(budget)), err=True)
    outcome = run_demo(experiments, output, ledgers)
    show(outcome.to_dict(), as_json, lambda: table(outcome))
