"""The fields of the page's three forms: labels, one sentence of help each, and choices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..audit.imports import Denominator, Sampling
from ..audit.registry import OPTIONAL, REQUIRED


@dataclass(frozen=True)
class FormChoice:
    """One of several values of a field, with its meaning in a few words."""

    value: str
    label: str
    meaning: str = ""


@dataclass(frozen=True)
class FormField:
    """A field of a form.

    Attributes:
        name: of the value that it sends.
        label: in words.
        help: one sentence.
        choices: its values; empty for a field to type in.
        only: sampling schemes that need it, separated by blanks; empty if all need it.
        kind: "number", "text" or "date".
    """

    name: str
    label: str
    help: str
    choices: tuple[FormChoice, ...] = ()
    only: str = ""
    kind: str = "number"


def _by_name(*fields: FormField) -> dict[str, FormField]:
    return {field.name: field for field in fields}


UNITS = (
    FormChoice("client", "One client", "all data of one client, such as a phone or a hospital"),
    FormChoice("record", "One record", "one example in the data of a client"),
)
ADJACENCIES = (
    FormChoice("add_remove", "Present or absent", "the unit's data are in the training, or not"),
    FormChoice("zero_out", "Counted or zeroed", "the unit takes part, or its contribution is zero"),
    FormChoice("replace_one", "These data or others", "the unit has its data, or any other data"),
)
OBSERVERS = (
    FormChoice("aggregate", "Outsider", "sees every released model, but not who took part"),
    FormChoice("server", "Server", "sees every released sum and who took part"),
    FormChoice("final", "User of the model", "sees only the last model"),
)
SCHEMES = (
    FormChoice("poisson", "Each by chance", "each unit joins a round with the same probability"),
    FormChoice("fixed", "A fixed number", "exactly this many are drawn anew in every round"),
    FormChoice("truncated", "By chance, at most", "by chance, but at most so many in a round"),
    FormChoice("everyone", "Everybody", "all take part in every round"),
    FormChoice("with-replacement", "With replacement", "a unit may be drawn twice for a round"),
    FormChoice("shuffled", "A shuffled pass", "each unit joins one round of an epoch, shuffled"),
    FormChoice("allocation", "One round by chance", "each unit draws its round of an epoch"),
)
PLAN = _by_name(
    FormField("unit", "Protected unit", "Whose data are protected as one.", UNITS),
    FormField(
        "adjacency",
        "Neighbours",
        "The two cases that an attacker must not be able to tell apart.",
        ADJACENCIES,
    ),
    FormField("observer", "Attacker", "What the attacker gets to see.", OBSERVERS),
    FormField("sampling", "Who joins a round", "How the code draws them.", SCHEMES),
    FormField(
        "population",
        "Population",
        "The number of all units that may be drawn.",
        only="poisson fixed truncated with-replacement",
    ),
    FormField(
        "cohort",
        "Cohort",
        "The number of units in a round; on average, if they join by chance.",
        only="poisson fixed truncated with-replacement",
    ),
    FormField(
        "largest_cohort",
        "Largest cohort",
        "If more join by chance, a random subset of this size remains.",
        only="truncated",
    ),
    FormField(
        "rounds_per_epoch",
        "Rounds per epoch",
        "An epoch has this many rounds; each unit joins one.",
        only="shuffled allocation",
    ),
    FormField("rounds", "Rounds", "The number of noisy sums that are released."),
    FormField(
        "knows",
        "Given",
        "Enter the noise to get epsilon, or a budget to get the noise.",
        (FormChoice("noise", "The noise"), FormChoice("budget", "A budget")),
    ),
    FormField(
        "noise_multiplier",
        "Noise multiplier",
        "Standard deviation of the noise on the sum, divided by the clip norm.",
    ),
    FormField("epsilon", "Epsilon", "The largest privacy loss that is allowed."),
    FormField(
        "delta",
        "Delta",
        "The probability that epsilon may miss; choose it far below 1 / population.",
    ),
)

EXAMPLE = {
    "unit": "client",
    "adjacency": "add_remove",
    "observer": "aggregate",
    "sampling": "poisson",
    "population": "6000",
    "cohort": "100",
    "largest_cohort": "150",
    "rounds_per_epoch": "60",
    "rounds": "180",
    "knows": "noise",
    "noise_multiplier": "1.4",
    "epsilon": "1",
    "delta": "1e-5",
}
"""The question that the page begins with."""


def _named(names: Any) -> tuple[FormChoice, ...]:
    return tuple(FormChoice(str(each), str(each).replace("-", " ")) for each in names)


CLAIM = _by_name(
    FormField("epsilon", "Claimed epsilon", "Leave it empty to judge the claim of the file."),
    FormField("delta", "Claimed delta", "Leave it empty to judge the claim of the file."),
)
FACTS = _by_name(
    FormField("adjacency", "Neighbours", "The cases to tell apart.", ADJACENCIES),
    FormField("observer", "Attacker", "What the attacker gets to see.", OBSERVERS),
    FormField("unit", "Protected unit", "Whose data are protected as one.", UNITS),
    FormField("sampling", "Sampling", "How the units of a round were drawn.", _named(Sampling)),
    FormField(
        "sampling_probability",
        "Sampling probability",
        "Probability of a unit to be in a round.",
        only="poisson",
    ),
    FormField("cohort", "Cohort", "Number of units in a round.", only="fixed with-replacement"),
    FormField("population", "Population", "Number of units; a fixed cohort needs it."),
    FormField(
        "rounds_per_epoch",
        "Rounds per epoch",
        "Number of rounds in a pass over the units.",
        only="shuffled allocation",
    ),
    FormField("rounds", "Rounds", "Number of noisy sums that were released."),
    FormField(
        "noise_multiplier",
        "Noise multiplier",
        "Standard deviation of the noise on the sum, divided by the clip norm of one unit.",
    ),
    FormField("steps_per_round", "Sums per round", "Noisy sums in each recorded round."),
    FormField("missing_shares", "Missing shares", "Noise shares of a cohort that were lost."),
    FormField(
        "denominator",
        "Denominator",
        "Were sums divided by a public number, or by one that depends on the data?",
        _named(Denominator),
    ),
    FormField("trials", "Runs on these data", "Number of runs, this one included."),
    FormField(
        "reviewed",
        "Reviewed entries",
        "The code of entries that you looked at and that change none of these facts.",
        kind="text",
    ),
)
WHOLE_NUMBERS = {
    *("cohort", "population", "rounds", "rounds_per_epoch", "steps_per_round"),
    *("missing_shares", "trials"),
}
"""Facts that are integers."""
ABOUT = _by_name(
    FormField("auditor", "Auditor", "Your name, as the report shows it.", kind="text"),
    FormField("subject", "Subject", "What the report is about.", kind="text"),
)


def _deployment(name: str, meaning: str | None, choices: tuple[str, ...] | None) -> FormField:
    label = name.replace("_", " ").capitalize()
    text = f"{(meaning or 'optional')[:1].upper()}{(meaning or 'optional')[1:]}."
    kind = "date" if name == "publication_date" else "text"
    return FormField(name, label, text, _named(choices or ()), kind=kind)


DEPLOYMENT = {name: _deployment(name, meaning, None) for name, meaning in REQUIRED.items()} | {
    name: _deployment(name, None, choices) for name, choices in OPTIONAL.items() if choices
}
"""Fields of the registry of deployments that no audit knows."""
LISTS = {"data_curators", "registry_authors"}
"""Fields of a deployment that are lists; commas separate the entries."""

COMPARED = _by_name(
    PLAN["delta"],
    FormField("epsilon", "Budget", "The largest epsilon that is allowed; it may be empty."),
    PLAN["adjacency"],
    PLAN["observer"],
    PLAN["unit"],
)
COSTS = {
    "accuracy": "Accuracy",
    "w2": "W2 distance",
    "bytes": "Bytes sent",
}
"""Costs of a comparison; only accuracy should be large."""
SETTING = (
    *("noise_multiplier", "sampling", "population", "cohort", "largest_cohort"),
    *("rounds_per_epoch", "rounds"),
)
"""Fields of a compared setting, as in a plan."""
