"""Everything that a run shows or writes, and why it may be shown: a table of the docs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Standing(StrEnum):
    """What speaks for showing something."""

    PRICED = "priced"
    """The release itself, or made of nothing but releases and public numbers."""
    PUBLIC = "declared public"
    """Does not depend on the protected data, or is stated to be public knowledge."""
    AUDITOR = "private: for an auditor"
    """The server's own view; in the ledger, and in nothing that is handed over."""
    PRIVATE = "private: keep"
    """For whoever runs it."""
    ABSENT = "not written"
    """Nowhere."""


@dataclass(frozen=True)
class Shown:
    """One row.

    Args:
        what: in words.
        where: is it shown or written.
        standing: what speaks for it.
        why: in a sentence.
        names: the fields that it covers, as ``PLACE.FIELD``; a test holds them complete.
    """

    what: str
    where: str
    standing: Standing
    why: str
    names: tuple[str, ...] = ()


def _names(place: str, *fields: str) -> tuple[str, ...]:
    return tuple(f"{place}.{field}" for field in fields)


TABLE: tuple[Shown, ...] = (
    Shown(
        "the trained model: parameters, a sampler's draws, Fed-PLT's models",
        "`--output`, `save_model`; in the checkpoint too",
        Standing.PRICED,
        "made of the recorded releases. Under `final` the last release alone is",
        (
            *_names("output", "parameters", "draws", "models"),
            *_names("checkpoint", "parameters", "positions", "draws", "models"),
        ),
    ),
    Shown(
        "Fed-PLT's auxiliary variables, the momentum of DP-FTRL's server",
        "checkpoint",
        Standing.PRIVATE,
        "made of the releases for `aggregate` and `server`; `final` does not see them",
        _names("checkpoint", "auxiliary", "velocity"),
    ),
    Shown(
        "the memory of DP-FTRL's noise, and in which round each client was drawn last, how often",
        "`LEDGER.noise`, readable by its owner alone; in the checkpoint too",
        Standing.PRIVATE,
        "whoever has the memory takes the noise of releases away: the guarantee rests on its being "
        "kept. Who was drawn is needed to go on",
        (
            *_names("noise", "format", "ledger", "place", "round"),
            *_names("noise", "memory", "errors", "drift", "last", "times"),
            *_names("checkpoint", "memory", "errors", "drift", "last", "times"),
        ),
    ),
    Shown(
        "how soon, and how often, anybody of DP-FTRL's cohorts had come before",
        "`intent` lines",
        Standing.AUDITOR,
        "made of the draws, on whose secrecy nothing rests; under `add_remove` they may follow the "
        "number of clients",
        _names("row", "separation", "participations"),
    ),
    Shown(
        "which data a checkpoint was trained on",
        "checkpoint, as BLAKE2b with a key",
        Standing.PRIVATE,
        "tells nothing without the key, which is in the private notes",
        _names("checkpoint", "data"),
    ),
    Shown(
        "the key of that digest",
        "`LEDGER.private`, readable by its owner alone",
        Standing.PRIVATE,
        "with it and a checkpoint two candidate data sets are told apart. It is not in the "
        "ledger, which an auditor gets, who may have a checkpoint too",
        _names("notes", "format", "key"),
    ),
    Shown(
        "place of a checkpoint in its ledger",
        "checkpoint",
        Standing.PRIVATE,
        "a checksum of lines with cohort sizes; the ledger's random nonce keeps it from being "
        "guessed without the ledger",
        _names("checkpoint", "ledger"),
    ),
    Shown(
        "round, learning rate, kind, format, description of a run",
        "checkpoint",
        Standing.PUBLIC,
        "settings, and how many rounds were run, which does not depend on data. No number of "
        "clients under `add_remove`",
        _names("checkpoint", "round", "learning_rate", "kind", "format", "description"),
    ),
    Shown(
        "bytes that were really uploaded",
        '`LEDGER.private`; `train` marks them (text: "not covered"; JSON: `not_covered`)',
        Standing.PRIVATE,
        "the sum of the cohorts that were really drawn, from which amplification hides who took "
        "part",
        (
            *_names("notes", "round", "sent"),
            *_names("round", "upload_bytes", "payload_bytes"),
            *_names("not_covered", "upload_bytes"),
        ),
    ),
    Shown(
        "bytes to be uploaded",
        "`train`, `demo`, `sweep`, report",
        Standing.PUBLIC,
        "as planned: expected cohort, rounds and kept numbers; what was really sent where it is "
        "the same for every data set and every draw",
        (*_names("record", "upload_bytes"), *_names("json", "upload_bytes", "upload_mb_a_client")),
    ),
    Shown(
        "updates that were refused",
        "`done` lines; `train` marks the count",
        Standing.AUDITOR,
        "depends on clients' data",
        (
            *_names("round", "refused"),
            *_names("done", "refused"),
            *_names("not_covered", "refused"),
        ),
    ),
    Shown(
        "sizes of the cohorts that were drawn, and how many arrived",
        "`done` and `abort` lines",
        Standing.AUDITOR,
        "not part of what `aggregate` sees: amplification hides them, and under `add_remove` they "
        "follow the number of clients. `server` sees them, and is accounted for that",
        (
            *_names("round", "cohort", "arrived", "aborted"),
            *_names("done", "cohort", "arrived"),
            *_names("abort", "reason"),
        ),
    ),
    Shown(
        "what an audit found in the `done` and `abort` lines: how many updates were refused, how "
        "many rounds were aborted or never confirmed, which cohorts no scheme draws",
        '`audit` marks them (text: "for the auditor alone"; JSON: `auditor_only`)',
        Standing.AUDITOR,
        "counts that no epsilon is about. No page has them; JSON that is handed on goes without "
        "that key",
        _names("audit", "auditor_only"),
    ),
    Shown(
        "an audit's reasons and what is wrong with the record",
        "`audit`, report, JSON",
        Standing.PUBLIC,
        "no counts of contributions: whether rounds were aborted or never confirmed, and noise "
        "that was less than planned, tell who answered and what crashed, which is assumed to "
        "depend on nobody's data; a refused update changes nothing in them",
        _names("audit", "reasons", "defects"),
    ),
    Shown(
        "clip norm, noise, denominator, mask of a round",
        "ledger, JSON",
        Standing.PUBLIC,
        "settings; the noise is topped up or aborted, whoever answers; a mask is random, or of "
        "public records and earlier releases. A denominator that follows the number of clients is "
        "refused under `add_remove`, and an audit certifies nothing where it may follow the size "
        "of a random cohort",
        (
            *_names("round", "round", "noise_std", "denominator", "mask"),
            *_names("intent", "round", "clip_norm", "noise_std", "mechanism"),
            *_names("done", "round", "noise_std", "denominator", "mask"),
            *_names("abort", "round"),
        ),
    ),
    Shown(
        "what is kept and how: unit, adjacency, observer, claim, plan, level, settings",
        "ledger's header, first line of `train`, JSON, report",
        Standing.PUBLIC,
        "chosen before the data are looked at. Under `add_remove` without the number of clients, "
        "and with a sampling probability, a denominator and a delta that were declared",
        (
            *_names("header", "format", "schema", "unit", "adjacency", "observer", "claim"),
            *_names("header", "schedule", "budget_rule", "description", "plan", "seed_policy"),
            *_names("json", "method", "settings", "knob", "level", "budget", "ledger", "output"),
            *_names("audit", "claim", "unit", "adjacency", "observer", "recorded", "rounds"),
        ),
    ),
    Shown(
        "numbers of clients, records, classes and public records; sizes of the cohorts as planned",
        '`train` ("taken to be public"), JSON, report of the demo',
        Standing.PUBLIC,
        "neighbours under `zero_out` and `replace_one` have them alike; the release depends on "
        "them",
        (*_names("json", "public"), *_names("record", "public")),
    ),
    Shown(
        "when, with which versions, under which random name",
        "ledger's header, the tokens of its lines",
        Standing.PUBLIC,
        "the clock at the start, and the system's randomness",
        (
            *_names("header", "versions", "created", "nonce"),
            *(f"{kind}.token" for kind in ("intent", "done", "resume")),
        ),
    ),
    Shown(
        "when the run was resumed",
        "`resume` lines; of `audit`, report and JSON how often, and the days",
        Standing.AUDITOR,
        "rounds lie between two times, and a round takes as long as its cohort is large",
        _names("resume", "when"),
    ),
    Shown(
        "how many rounds there were, and repairs",
        "ledger, JSON",
        Standing.PUBLIC,
        "the schedule is fixed; a crash is nobody's data",
        (*_names("close", "rounds"), *_names("repair", "cut")),
    ),
    Shown(
        "that the run declared its record void, and why",
        "ledger; in the audit's reasons while it is in force",
        Standing.PUBLIC,
        "words of the program, which count nothing; beside them nothing is certified",
        _names("void", "reason"),
    ),
    Shown(
        "when that was declared, and lifted",
        "ledger",
        Standing.AUDITOR,
        "a batch that was drawn and not stepped at once may have been looked at",
        (*_names("void", "number"), *_names("lift", "number")),
    ),
    Shown(
        "bounds, verdict and what is not certified",
        "`audit`, report, JSON",
        Standing.PUBLIC,
        "functions of the mechanisms, which are declared, and of noise below its plan, which the "
        "loops do not draw",
        _names("audit", "verdict", "statement", "numbers", "bounds", "unsupported"),
    ),
    Shown(
        "who audited what, when, with which version, under which statements of theirs",
        "report, JSON",
        Standing.PUBLIC,
        "words of the auditor, and SHA-256 of the ledger: what is in it cannot be guessed from "
        "that while the nonce in its header is not published",
        _names("audit", "stated", "granted", "source", "auditor", "audited", "version"),
    ),
    Shown(
        "accuracy and other scores, by round",
        "`train`, `demo`, `sweep`, report, JSON",
        Standing.PUBLIC,
        "functions of the released models and of the test records, which are taken to be nobody's "
        "whose data are protected. If they are somebody's, do not hand scores over: nothing covers "
        "them. Under `final` the last scores alone are kept",
        (*_names("record", "accuracy", "rounds", "scores"), *_names("json", "scores")),
    ),
    Shown(
        "notes: a run that was interrupted and ended early; a delta above 1/n",
        "`train`, report, JSON",
        Standing.PUBLIC,
        "crashes and settings; of the declared number of clients under `add_remove`",
        (*_names("record", "notes"), *_names("json", "notes")),
    ),
    Shown(
        "a run's audit and its files",
        "JSON, report",
        Standing.PUBLIC,
        "see the rows above; the paths are the user's own words",
        (
            *_names("record", "audit", "output", "not_covered"),
            *_names("json", "audit", "not_covered"),
        ),
    ),
    Shown(
        "progress bar and time",
        "standard error",
        Standing.PRIVATE,
        "a round takes as long as its cohort is large; no file holds a time but the ledger's first "
        "line and its `resume` lines, "
        "and when files were written the file system tells",
    ),
    Shown(
        "how many clients were drawn, answered, were refused: a Flower or NVFlare server's log",
        'the server\'s log (marked: "not covered")',
        Standing.PRIVATE,
        "the numbers of `done` lines, see there; who may read the log is the operator's to say",
    ),
    Shown(
        "error messages and warnings, `BudgetExhausted`, `Diverged` and `EmptySum` among them",
        "standard error",
        Standing.PRIVATE,
        "some quote the number of clients, or say that a chain left its range or that every update "
        "was refused; whether there is an error may itself depend on data. A budget's message "
        "names the mechanism alone",
    ),
    Shown(
        "training losses, norms of updates, clients' updates, and, but for DP-FTRL, who took part",
        "nowhere",
        Standing.ABSENT,
        "nothing prices them",
    ),
)
"""Every row."""


def table() -> str:
    """Return the table in Markdown."""
    rows = [
        f"| {row.what} | {row.where} | **{row.standing}** | {row.why} |"
        for row in sorted(TABLE, key=lambda row: list(Standing).index(row.standing))
    ]
    return "\n".join(["| what | where | standing | why |", "|---|---|---|---|", *rows])
