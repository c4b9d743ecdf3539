"""The guarantee in the form that guidelines require, as rows.

The rows follow section 5.3 of "How to DP-fy ML" (Ponomareva et al. 2023) and NIST SP 800-226:
setting, unit, neighbours, observer, release, coverage, mechanism, sampler, accountant, formal
statement, and risks that are not counted.
"""

from __future__ import annotations

from ..bound import exactly
from ..mechanisms import CorrelatedNoise, Drawn, Mechanism
from ..relations import Adjacency, Observer, Unit
from .accounting import Audit
from .judging import SINGLE
from .messages import described, participation_in_words, scheme_in_words

UNITS = {Unit.CLIENT: "client (all data of one client)", Unit.RECORD: "record"}

NEIGHBOURS = {
    Adjacency.ADD_REMOVE: "add_remove: one {unit} is present or absent",
    Adjacency.ZERO_OUT: "zero_out: one {unit} contributes or sends zero",
    Adjacency.REPLACE_ONE: "replace_one: one {unit} has other data",
}
EYES = {
    Observer.AGGREGATE: "aggregate: sees every release but not the participants",
    Observer.SERVER: "server: sees every release and the participants",
    Observer.FINAL: "final: sees only the last release",
}
RELEASED = {
    Observer.AGGREGATE: "every noisy sum, and all models computed from them",
    Observer.SERVER: "every noisy sum, all models computed from them, and the participants",
    Observer.FINAL: "the model after the last round",
}


def rows_of(found: Audit) -> list[tuple[str, str]]:
    """Return the statement's rows as (name, text)."""
    unit = str(found.facts.unit or "unit")
    # A method next to a void number would give it credibility.
    method = "none: the computed numbers are void" if found.void else found.bound.method
    return [
        ("setting", _setting(found)),
        ("unit", unit_in_words(found)),
        ("neighbours", NEIGHBOURS[found.facts.adjacency].format(unit=unit)),
        ("observer", EYES[found.facts.observer]),
        ("releases", RELEASED[found.facts.observer]),
        ("covered runs", _covered(found)),
        *[("mechanism", text) for text in parts_in_words(found)],
        ("sampler", sampler_in_words(found)),
        ("accountant", method),
        ("formal statement", formal(found)),
    ]


def unit_in_words(found: Audit) -> str:
    """Return the privacy unit, marked if only the user states it."""
    said = ", as stated but not recorded" if "unit" in found.stated else ""
    return UNITS[found.facts.unit] + said if found.facts.unit else "not stated"


def formal(found: Audit) -> str:
    """Return the certified (epsilon, delta) in words; "none" if the bounds are void."""
    if found.void:
        return "none"
    bound = found.bound
    # The guidelines require the name of the variant.
    kind = "pure" if bound.given == 0.0 else "approximate"
    pair = f"({bound.ends(4)[1]}, {exactly(bound.given)})"
    return f"{pair}-differential privacy ({kind}), {found.worth}"


def _setting(found: Audit) -> str:
    # The line of single uploads exists only if noise shares are summed, so it shows the trust
    # model.
    if SINGLE in found.bounds:
        return (
            "distributed: clients add shares of the noise; the server sees only the sum, by "
            "secure aggregation"
        )
    return "central: the server is trusted and sees contributions before noise is added"


def trials_counted(found: Audit) -> str | None:
    """Return the number of counted runs on the same data, from the user or the source."""
    return found.stated.get("trials") or found.facts_recorded.get("trials")


def _covered(found: Audit) -> str:
    rounds = f"{found.rounds:,} round{'' if found.rounds == 1 else 's'}"
    trials = trials_counted(found)
    tuned = (
        f"{trials} runs on the same data, as stated by the user"
        if trials
        else "only this run; tuning and other runs on the same data are not counted"
    )
    return f"{rounds}; {tuned}"


def parts_in_words(found: Audit, most: int = 5) -> list[str]:
    """Return the mechanisms that ran, equal ones merged, at most ``most`` of the list."""
    parts = [] if found.run is None else list(found.run.sequence())
    text = [described(mechanism, count) for mechanism, count in parts[:most]]
    return text + [f"and {len(parts) - most} other mechanisms"] * (len(parts) > most)


def sampler_in_words(found: Audit) -> str:
    """Return the sampling of the units, and the source of this statement."""
    parts = [] if found.run is None else [part for part, _ in found.run.sequence()]
    # Rounds of one run usually share a scheme, so each scheme is listed once.
    schemes = dict.fromkeys(_scheme(part) for part in parts)
    stated = "sampling" in found.stated
    said = "as stated but not recorded" if stated else f"according to the {found.origin.kind}"
    said += _expected(found)
    return f"{'; '.join(schemes)} ({said})" if schemes else "no sampling"


def _expected(found: Audit) -> str:
    """Return the expected size of a random cohort, if one population is stated; else empty."""
    parts = [] if found.run is None else [part for part, _ in found.run.sequence()]
    rates = {getattr(getattr(part, "scheme", None), "probability", None) for part in parts}
    population = found.stated.get("population", "")
    (rate,) = rates if len(rates) == 1 else (None,)
    if rate is None or not population.isdigit():
        return ""
    return f"; {rate * int(population):.6g} of {int(population):,} expected in a round"


def _scheme(part: Mechanism) -> str:
    if isinstance(part, Drawn):
        return scheme_in_words(part.scheme)
    if isinstance(part, CorrelatedNoise):
        return participation_in_words(part.participation)
    return "all units take part in every round"
