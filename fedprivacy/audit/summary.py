"""The first page of a report: the claim, whether it is true, and its meaning for one person.

The questions of guidelines are those of NIST SP 800-226 (2025), of EDPB Opinion 28/2024 on the
anonymity of models, and of OWASP AISVS 12.3 on safeguards by differential privacy.
"""

from __future__ import annotations

import math
from decimal import ROUND_CEILING
from typing import Any

from ..bound import Verdict, exactly, shown
from ..ledger.lines import FORMAT
from ..relations import Adjacency
from .accounting import Audit
from .judging import SINGLE
from .messages import RATES, AttackLimits, attack_limits
from .statement import EYES, trials_counted

_DIFFERS = {
    Adjacency.ADD_REMOVE: "whose data are in the training or not",
    Adjacency.ZERO_OUT: "whose contribution is used or set to zero",
    Adjacency.REPLACE_ONE: "whose data are replaced by any others",
}
BEFORE = (
    "Epsilon and delta limit how much the outputs of a training reveal about one unit, which is "
    "one client or one record. Its data change the probability of every outcome at most by the "
    "factor e^epsilon, plus delta. Smaller numbers are more private."
)
"""What a reader must know before the first number."""
_EYES = {str(observer): words for observer, words in EYES.items()}
_SINGLE = "a server that sees each upload separately"


def summary_of(found: Audit, limits: AttackLimits | None = None) -> dict[str, Any]:
    """Return the first page as plain values.

    Args:
        found: the audit.
        limits: of attacks; computed if they are not given.
    """
    known = attack_limits(found) if limits is None else limits
    return {
        "claimed": claimed(found),
        "proved": proved(found),
        "meaning": meaning(found, known),
        "observers": observers(found),
        "attack": success(known),
        "confirm": to_confirm(found),
        "guidelines": guidelines(found, known),
    }


def claimed(found: Audit) -> str:
    """Return the claim as a sentence."""
    epsilon, delta = map(exactly, found.claim)
    unit, adjacency, observer = found.facts
    sees = EYES[observer].partition(": ")[2]
    return (
        f"It was claimed that the run is private with epsilon = {epsilon} at delta = {delta}, for "
        f"one {unit or 'unit'} {_DIFFERS[adjacency]}, against an attacker who {sees}."
    )


def proved(found: Audit) -> str:
    """Return whether the claim is true, as a sentence."""
    under = found.statement.removeprefix(str(found.verdict))
    if found.verdict is Verdict.CANNOT_BE_CERTIFIED:
        # The reason may be a defect of the record, so the sentence does not name the numbers.
        return f"The claim can be neither proved nor refuted{under}: see the reasons below."
    if found.void:
        return f"The claim is false{under}: see the reasons below."
    lower, upper = found.bound.ends()
    if found.verdict is Verdict.HOLDS:
        return f"The claim is true{under}: epsilon is proved to be at most {upper}."
    if math.isinf(found.bound.lower):
        return f"The claim is false{under}: no finite epsilon holds."
    return f"The claim is false{under}: epsilon is proved to be at least {lower}."


def meaning(found: Audit, limits: AttackLimits | None) -> str:
    """Return the meaning for one unit, as a sentence."""
    unit = found.facts.unit or "unit"
    if limits is None:
        return f"For one {unit} this means that no limit of what can be learnt is known."
    fpr, tpr = exactly(100 * RATES[0]), _percent(limits.rates[0])
    condition = f", {found.worth}" if found.conditions else ""
    if found.facts.adjacency is Adjacency.REPLACE_ONE:
        return (
            f"For one {unit} this means{condition}: an attack that decides between two possible "
            f"data sets, and is wrong for {fpr} % of those who have the one, recognises at most "
            f"{tpr} % of those who have the other; guessing recognises {fpr} %."
        )
    return (
        f"For one {unit} this means{condition}: an attack that is wrong for {fpr} % of those whose "
        f"data were not used recognises at most {tpr} % of those whose data were used; guessing "
        f"recognises {fpr} %."
    )


def observers(found: Audit) -> list[tuple[str, str]]:
    """Return what each observer sees, and the epsilon that is certified for it."""
    if found.void:
        return []
    rows = []
    for name, bounds in found.bounds.items():
        best = min(bounds.values(), key=lambda bound: bound.upper)
        epsilon = "none" if math.isinf(best.upper) else f"at most {best.ends()[1]}"
        if name == SINGLE:
            rows.append((_SINGLE, epsilon))
        # An accountant's own line is no observer.
        elif name in _EYES:
            rows.append((_EYES[name], epsilon))
    return rows + [(_EYES[name], "none") for name in found.unsupported if name in _EYES]


def success(limits: AttackLimits | None) -> list[tuple[str, str]]:
    """Return (false-positive rate, largest true-positive rate), in percent."""
    if limits is None:
        return []
    pairs = zip(RATES, limits.rates, strict=True)
    return [(f"{exactly(100 * fpr)} %", f"at most {_percent(tpr)} %") for fpr, tpr in pairs]


def to_confirm(found: Audit) -> list[str]:
    """Return the sentences that a responsible person must confirm: no arithmetic can check them."""
    stated = [
        f"{name.replace('_', ' ')} = {value}"
        for name, value in found.stated.items()
        if name != "claim"
    ]
    facts = [f"these stated facts are true: {', '.join(stated)}"] if stated else []
    every = [*facts, *found.bound.assumptions, *found.granted.values()]
    return [f"{text[:1].upper()}{text[1:]}".rstrip(".") + "." for text in dict.fromkeys(every)]


def guidelines(found: Audit, limits: AttackLimits | None) -> list[tuple[str, str, str]]:
    """Return (document, question, answer) of the questions that guidelines ask."""
    unit = f"one {found.facts.unit}" if found.facts.unit else "not stated"
    upper = "none" if found.void or math.isinf(found.bound.upper) else found.bound.ends()[1]
    shares = "a secure sum of shares" if SINGLE in found.bounds else "a trusted server"
    tracked = found.origin.kind == FORMAT
    trials = trials_counted(found)
    return [
        ("NIST SP 800-226", "Which unit is protected?", f"{unit}, {found.facts.adjacency}"),
        (
            "NIST SP 800-226",
            "Which epsilon and delta are certified?",
            f"epsilon {upper}, delta {exactly(found.bound.given)}",
        ),
        ("NIST SP 800-226", "Who is trusted to add the noise?", shares),
        (
            "NIST SP 800-226",
            "Are the data protected where they are collected and stored?",
            "not in this report, like side channels; epsilon concerns the released numbers",
        ),
        (
            "EDPB Opinion 28/2024",
            "How likely is it to extract data of one person from the model, or to obtain them by "
            "queries?",
            f"{meaning(found, limits)} The controller decides whether this is insignificant; the "
            "opinion asks for more than this number.",
        ),
        (
            "OWASP AISVS 12.3.1",
            "Are epsilon and delta recorded for each round?",
            "yes, each round is in the ledger" if tracked else "no ledger of rounds was given",
        ),
        (
            "OWASP AISVS 12.3.2",
            "Was epsilon estimated by attacks?",
            "not in this report; fp.attack gives a lower end at a stated confidence level",
        ),
        (
            "OWASP AISVS 12.3.3",
            "Are other uses of the same data covered?",
            f"{trials} runs on the same data are counted" if trials else "no, only this run",
        ),
    ]


def _percent(rate: float) -> str:
    return shown(100.0 * rate, 3, ROUND_CEILING)
