"""The output of every command with ``--json``: dataclasses, the source of the published schemas.

A field may be added in a later version. No field changes its meaning or disappears within schema 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Number = float | str
"""A number; "inf" if it is infinite, because JSON has no infinity."""


@dataclass(frozen=True)
class Certified:
    """Epsilon or delta of a run: ``upper`` may be published."""

    quantity: str
    given: Number
    upper: Number
    lower: Number
    resolution: tuple[Number, Number]
    witness: str | None
    method: str
    theorems: list[str]
    assumptions: list[str]
    unit: str | None
    adjacency: str
    observer: str
    reason: str
    qualified: list[str]


@dataclass(frozen=True)
class Calibrated:
    """The value of one parameter that meets a budget, certified there."""

    parameter: str
    value: float
    bound: Certified


@dataclass(frozen=True)
class Rates:
    """Certified ends of an error rate at each false-positive rate."""

    lower: list[float]
    upper: list[float]
    attained: list[float]


@dataclass(frozen=True)
class NumberRange:
    """Certified ends of one number."""

    lower: Number
    upper: Number
    attained: Number


@dataclass(frozen=True)
class CurveAnswer:
    """The shared fields of whole-curve answers."""

    witness: str | None
    theorems: list[str]
    assumptions: list[str]
    unit: str | None
    adjacency: str
    observer: str
    reason: str


@dataclass(frozen=True)
class TradeoffAnswer(CurveAnswer):
    """A trade-off curve: false-negative rates at each false-positive rate."""

    fpr: list[float]
    present_to_absent: Rates
    absent_to_present: Rates
    worst: Rates
    f_dp: list[float]
    plot: str | None = None


@dataclass(frozen=True)
class Risk(CurveAnswer):
    """The power of an attacker."""

    fpr: list[float]
    present_to_absent: Rates
    absent_to_present: Rates
    tpr: Rates
    worse: list[str]
    advantage: NumberRange
    mu: NumberRange
    mu_within: NumberRange
    slack: float


@dataclass(frozen=True)
class TableRow:
    """A row of the reference table."""

    scheme: str
    pair: str
    theorem: str
    attained: str


@dataclass(frozen=True)
class ExplainedPart:
    """One kind of rounds of a run: epsilon of only these, of all others, and its share."""

    mechanism: str
    rounds: int
    alone: Number
    without: Number
    share: float


@dataclass(frozen=True)
class Explained:
    """The protection of a run, and its strength."""

    delta: float
    row: TableRow | None
    theorems: list[str]
    assumptions: list[str]
    qualified: list[str]
    attained_by: str | None
    epsilon: dict[str, dict[str, Certified]]
    unsupported: dict[str, str]
    parts: list[ExplainedPart]
    halved_by: dict[str, float | None]
    risk: Risk | None


@dataclass(frozen=True)
class Compared:
    """One setting of a comparison; a cost that is not finite is null."""

    setting: str
    epsilon: Certified | None
    costs: dict[str, float | None]
    spreads: dict[str, float]
    refused: str
    on_front: bool


@dataclass(frozen=True)
class Comparison:
    """A comparison of settings."""

    delta: float
    adjacency: str
    observer: str
    budget: float | None
    costs: list[str]
    maximise: list[str]
    settings: list[Compared]
    front: list[str]
    best: dict[str, str | None]
    plot: str | None = None


@dataclass(frozen=True)
class Swept(Comparison):
    """A comparison of trained settings; ``together``: epsilon of all runs in the folder."""

    together: tuple[float, float] = (0.0, 0.0)
    runs: str = ""


@dataclass(frozen=True)
class Selected:
    """The best of a secret number of trials; null if the law drew none."""

    setting: dict[str, Any] | None
    accuracy: float | None
    model: str | None
    ledger: str
    verdict: str
    epsilon: tuple[float, float] | None


@dataclass(frozen=True)
class ClaimAnswer:
    """A claim."""

    epsilon: float
    delta: float


@dataclass(frozen=True)
class Judged:
    """An audit, with either ``bounds`` or ``void_bounds``; the latter certify no guarantee."""

    verdict: str
    statement: str
    claim: ClaimAnswer
    unit: str | None
    adjacency: str
    observer: str
    reasons: list[str]
    rounds: int
    numbers: str
    unsupported: dict[str, str]
    recorded: dict[str, str]
    stated: dict[str, str]
    granted: dict[str, str]
    auditor_only: list[str]
    defects: list[str]
    source: dict[str, Any]
    auditor: str
    audited: str
    version: str
    bounds: dict[str, dict[str, Certified]] | None = None
    void_bounds: dict[str, dict[str, Certified]] | None = None


@dataclass(frozen=True)
class RunJudged:
    """One of several runs: its audit, or the reason why it could not be judged."""

    name: str
    audit: Judged | None
    refused: str


@dataclass(frozen=True)
class AllJudged:
    """The audits of several runs; ``judged`` counts those with a verdict."""

    rows: list[RunJudged]
    judged: int


@dataclass(frozen=True)
class Reported(Judged):
    """An audit that was written as a page."""

    report: str = ""


@dataclass(frozen=True)
class Budgeted(ClaimAnswer):
    """A budget with its adjacency and observer."""

    adjacency: str
    observer: str


@dataclass(frozen=True)
class Trained:
    """A training run. The ``not_covered`` numbers are only for the operator."""

    method: str
    settings: dict[str, Any]
    scores: dict[str, float | None]
    upload_bytes: int | None
    upload_mb_a_client: float | None
    ledger: str | None
    output: str | None
    knob: str | None
    level: float | None
    budget: Budgeted | None
    notes: list[str]
    public: dict[str, Any]
    not_covered: dict[str, int | None]
    audit: Judged | None


@dataclass(frozen=True)
class DemonstratedRun:
    """One run of the demonstration."""

    accuracy: float
    upload_bytes: int | None
    not_covered: dict[str, int | None]
    epsilon: tuple[float, float] | None
    verdict: str | None


@dataclass(frozen=True)
class Demonstrated:
    """The demonstration's runs, by method."""

    data: str
    budget: Budgeted
    noise_multiplier: float
    rounds: int
    runs: dict[str, DemonstratedRun]
    report: str
    ledgers: str


@dataclass(frozen=True)
class Proved:
    """The result of one certificate; the code is 0 if every end was proved."""

    file: str
    exit_code: int
    said: str


@dataclass(frozen=True)
class Verified:
    """Results of proving certificates again."""

    certificates: list[Proved]


@dataclass(frozen=True)
class ChosenSetting:
    """The best setting found for one budget; ``cost`` is its error."""

    budget: float
    settings: dict[str, float]
    epsilon: float
    cost: float


@dataclass(frozen=True)
class ChosenWithin:
    """The best setting found within a budget, and the best ones for other budgets."""

    system: str
    settings: dict[str, float]
    bound: Certified
    cost_name: str
    cost: float
    curve: list[ChosenSetting]
    edges: list[str]
    tried: int


@dataclass(frozen=True)
class ListedCell:
    """A cell of a figure or table: processor seconds of a run, and the paper's numbers."""

    name: str
    seconds: float
    quick_seconds: float
    printed: dict[str, float]


@dataclass(frozen=True)
class ListedFigure:
    """A figure or table that can be run again; without ``data`` its data are made up."""

    name: str
    shows: str
    cells: list[ListedCell]
    megabytes: int
    quick: str
    data: list[str]
    remark: str


@dataclass(frozen=True)
class ListedFigures:
    """Figures and tables that can be run again."""

    figures: list[ListedFigure]


@dataclass(frozen=True)
class RerunCell:
    """The numbers of a cell: of this run, null if it has none, and those that the paper prints."""

    cell: str
    values: dict[str, float | None]
    printed: dict[str, float]
    seconds: float
    recorded: bool


@dataclass(frozen=True)
class Rerun:
    """Cells that were run; with --dry-run the cells that are not finished, and the estimate."""

    figure: str
    seed: int
    quick: bool
    data: str
    folder: str
    seconds_left: float
    megabytes: int
    cells_left: list[str]
    cells: list[RerunCell]


ANSWERS: dict[str, type] = {
    "epsilon": Certified,
    "delta": Certified,
    "calibrate": Calibrated,
    "explain": Explained,
    "tradeoff": TradeoffAnswer,
    "pareto": Comparison,
    "choose": ChosenWithin,
    "papers list": ListedFigures,
    "papers run": Rerun,
    "sweep": Swept,
    "sweep --private": Selected,
    "train": Trained,
    "demo": Demonstrated,
    "audit": Judged,
    "audit --each": AllJudged,
    "report": Reported,
    "verify": Verified,
}
"""Command -> its output with ``--json``."""


def schema(command: str) -> dict[str, Any]:
    """Return the JSON Schema (2020-12) of a command's output with ``--json``."""
    import msgspec

    found = msgspec.json.schema(ANSWERS[command])
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"fedprivacy {command} --json",
        **found,
    }
