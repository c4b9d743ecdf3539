"""Turn a trace into the run that is priced, completed by the user's statements."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from ...errors import count, integer, member, probability, refuse
from ...evidence import Noiseless, in_sequence
from ...evidence.noiseless import drawn_apart, least_chance, noiseless, noiseless_rounds
from ...mechanisms import Gaussian, Mechanism, SparsifiedPerturbation
from ...mechanisms.clear import WithoutNoise
from ...relations import Unit
from ...sampling import (
    Everyone,
    FixedSize,
    Poisson,
    RandomAllocation,
    Scheme,
    Shuffled,
    TableScheme,
    TruncatedPoisson,
    WithReplacement,
)
from .passes import ImportedRounds, Kind, round_share
from .trace import Denominator, Rounds, Sampling, Stated, Trace, Unseen


@dataclass(frozen=True)
class Assembled:
    """A trace as a mechanism.

    Attributes:
        run: the priced run, for upper ends.
        certain: the part that certainly ran, for lower ends; None if there is none.
        contradictions: sentences about statements that contradict the record.
        doubts: sentences about cohorts that their sampling does not draw.
        size_doubts: doubts that apply if the number of units is secret.
        follows: whether sums were divided by numbers that depend on the data.
        run_without: the run without one stated fact of ``Unseen``, by the name of that fact.
        granted: facts of ``Unseen`` that neither the record nor the user states, by name.
        noiseless: rounds whose sums had no noise; None if all sums had noise.
    """

    run: Mechanism
    certain: Mechanism | None
    contradictions: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    size_doubts: tuple[str, ...] = ()
    follows: bool = False
    run_without: dict[str, Mechanism] = field(default_factory=dict)
    granted: dict[str, str] = field(default_factory=dict)
    noiseless: Noiseless | None = None


def assemble(trace: Trace, stated: Stated) -> Assembled:
    """Return the run of a trace, completed by the user's statements.

    Raises:
        ParameterError: if a fact is neither recorded nor stated, or breaks its rule.
    """
    # Facts that no trace shows come first, so that every assumption is listed.
    known_facts = {one.name: _fact(trace, stated, one.name) for one in Unseen}
    build = _described if trace.run is not None else _of_rounds
    run, certain, denied, odd, size_doubts, clear = build(trace, stated, frozenset())
    granted = {name: str(Unseen[name]) for name, value in known_facts.items() if value is None}
    # Each statement is left out once, because a claim may have been computed without it.
    left_out = known_facts.keys() - granted.keys() - {"denominator"}
    run_without = {
        one: build(trace, stated, frozenset({one}))[0] for one in known_facts if one in left_out
    }
    return Assembled(
        run,
        certain,
        (*denied, *trace.contradictions, *_against(trace, stated)),
        odd,
        size_doubts,
        follows=known_facts["denominator"] is Denominator.REALISED,
        run_without={name: other for name, other in run_without.items() if other != run},
        granted=granted,
        noiseless=clear,
    )


_Built = tuple[
    Mechanism,
    Mechanism | None,
    list[str],
    tuple[str, ...],
    tuple[str, ...],
    Noiseless | None,
]
"""The priced run, the certain part, contradictions, doubts, doubts about sizes, and rounds
without noise.
"""


def _against(trace: Trace, stated: Stated) -> list[str]:
    """Return the statements about the whole run that differ from the record."""
    differences = []
    for name in ("denominator", "trials"):
        known, given = getattr(trace, name), getattr(stated, name)
        if None not in (known, given) and known != given:
            differences.append(_differs(name, known, given))
    return differences


def _differs(name: str, known: object, given: object) -> str:
    return f"{name} is {known} in the record; {given} was stated and counts"


def _fact(trace: Trace, stated: Stated, name: str) -> object:
    """Return the value of an unseen fact: from the user, else from the record, else None."""
    # The user's statement takes precedence. A difference is reported elsewhere.
    given = getattr(stated, name)
    if given is not None:
        return member(Denominator, denominator=given) if name == "denominator" else given
    if hasattr(trace, name):
        return getattr(trace, name)
    found = [getattr(rounds, name) for rounds, _ in trace.rounds]
    # A record counts as silent if any of its rounds lacks the fact.
    return None if None in found else next(iter(found), None)


def _times(trace: Trace, stated: Stated, name: str, without: frozenset[str]) -> int:
    found = None if name in without else _fact(trace, stated, name)
    return 1 if found is None else integer(1, **{name: found})


def _described(trace: Trace, stated: Stated, without: frozenset[str]) -> _Built:
    """Return the run of a trace that describes a whole run."""
    # A described run already fixes these facts, and a statement would silently contradict it.
    for name in ("sampling", "population", "steps_per_round", "missing_shares"):
        if getattr(stated, name) is not None:
            way_out = (
                f"the {trace.origin.kind} states the sampling, the released sums and the noise"
            )
            refuse(name, str(getattr(stated, name)), "be left out", way_out)
    assert trace.run is not None
    # Its guarantees refer to its own adjacency, whatever adjacency the question has.
    adjacency = stated.adjacency if trace.adjacency is None else trace.adjacency
    run = trace.run(adjacency)
    if not isinstance(run, Mechanism):
        refuse("run", type(run).__name__, "return a mechanism", "see docs/extending.md")
    # Other trials add to the upper end, but only this run certainly ran.
    whole = run * _times(trace, stated, "trials", without)
    return whole, run, [], (), (), noiseless(noiseless_rounds(run.sequence()))


def _of_rounds(trace: Trace, stated: Stated, without: frozenset[str]) -> _Built:
    kinds, denied = _kinds(trace, stated, without)
    norms: dict[Kind, Counter[float]] = {}
    for rounds, values in trace.norms.items():
        norms.setdefault(kinds[rounds], Counter()).update(values)
    groups = tuple((kinds[rounds], times) for rounds, times in trace.rounds)
    recorded = ImportedRounds(groups, trace.by_round, trace.ordered, bool(trace.missing), norms)
    parts = list(recorded.counted())
    whole = in_sequence((kind.mechanism, most) for kind, most, _ in parts if most)
    certain = whole
    if any(most != least for _, most, least in parts):
        certain = in_sequence((kind.mechanism, least) for kind, _, least in parts if least)
    if any(map(recorded.fewer, kinds.values())):
        certain = None
    assert whole is not None
    times = _times(trace, stated, "trials", without)
    run = whole if times == 1 else whole * times
    # A stated denominator also states that the sizes were planned.
    planned = _fact(trace, stated, "denominator") is Denominator.PUBLIC
    size_doubts = recorded.size_doubts(planned=planned)
    clear = noiseless(_noiseless_round(kind, times) for kind, times in groups if kind.noise == 0.0)
    return run, certain, denied, recorded.odd_cohorts(), size_doubts, clear


def _kinds(
    trace: Trace, stated: Stated, without: frozenset[str]
) -> tuple[dict[Rounds, Kind], list[str]]:
    """Return the priced form of all rounds of a trace, and sentences on contradicted statements."""
    denied: dict[str, None] = {}
    kinds: dict[Rounds, Kind] = {}
    given = _given(stated)
    for rounds in dict.fromkeys(rounds for rounds, _ in trace.rounds):
        completed, contradictions = _completed(rounds, given, stated.sampling)
        # Removed after completion, so that the other statements still count.
        if removed := without & _BY_ROUND:
            completed = replace(completed, **dict.fromkeys(removed))  # type: ignore[arg-type]
        denied |= dict.fromkeys(contradictions)
        kinds[rounds] = _kind(completed, stated, trace.unit)
    return kinds, list(denied)


def _noiseless_round(kind: Kind, times: int) -> tuple[float, int, bool]:
    """Return (least chance to be in a noiseless round, rounds, whether drawn anew in each)."""
    chance = least_chance(kind.mechanism)
    if kind.share is not None:
        chance = min(chance, kind.share)
    # A round without participants reveals no unit.
    if kind.cohort is not None:
        chance = min(chance, kind.cohort / (kind.population or 1))
    return chance, times, drawn_apart(kind.mechanism)


_BY_ROUND = {"steps_per_round", "missing_shares"}


def _given(stated: Stated) -> dict[str, Sampling | int]:
    """Return the stated facts of rounds, checked."""
    least = {"population": 1, "steps_per_round": 1, "missing_shares": 0}
    numbers = {name: getattr(stated, name) for name in least}
    given: dict[str, Sampling | int] = {
        name: integer(least[name], **{name: value})
        for name, value in numbers.items()
        if value is not None
    }
    return given | _how_drawn(stated.sampling)


def _completed(
    rounds: Rounds, given: Mapping[str, Sampling | int], scheme: object
) -> tuple[Rounds, list[str]]:
    """Return the rounds with the stated facts, and sentences on any difference."""
    known = {name: getattr(rounds, name) for name in given}
    differences = [
        _differs(name, known[name], value)
        for name, value in given.items()
        if known[name] not in (None, value)
    ]
    changed = any(known[name] != value for name, value in given.items())
    completed = replace(rounds, **given) if changed else rounds  # type: ignore[arg-type]
    return completed, [*differences, *_smaller(rounds.rate, scheme)]


def _smaller(rate: float | None, scheme: object) -> Iterator[str]:
    """Yield a sentence if a stated scheme draws a smaller share than recorded."""
    if rate is None or not isinstance(scheme, TableScheme):
        return
    share = round_share(scheme)
    # A smaller share gives more amplification, so a difference from the record must be reported.
    # With a larger share, no lower end is certified (``ImportedRounds.fewer``).
    if share < rate * (1.0 - 1e-9):
        which = f"{rate:g} in the record, {share:g} as was stated"
        yield f"a round has a share of {which}, which counts"


def _how_drawn(stated: object) -> dict[str, Sampling | int]:
    """Return the stated facts of the sampling, from a scheme or from its name."""
    if stated is None:
        return {}
    if isinstance(stated, TableScheme):
        return _facts_of(stated)
    if not isinstance(stated, str):
        way_out = "pass 'poisson', for example, or a scheme such as fp.Poisson(0.01)"
        refuse("sampling", stated, "be a name or a sampling scheme", way_out)
    # The command line writes names with hyphens, Python often with underscores.
    return {"sampling": member(Sampling, sampling=stated.replace("_", "-"))}


def _facts_of(scheme: TableScheme) -> dict[str, Sampling | int]:
    """Return the facts of a scheme under the names that a record uses."""
    if type(scheme) not in SCHEMES:
        refuse("sampling", scheme, f"be one of {', '.join(each.__name__ for each in SCHEMES)}")
    names = {
        "size": "cohort",
        "draws": "cohort",
        "population": "population",
        "rounds_per_epoch": "per_epoch",
        "take": "take",
    }
    # Schemes use different names for the same facts.
    given = ((to, getattr(scheme, name, None)) for name, to in names.items())
    known = {to: value for to, value in given if value is not None}
    return {"sampling": SCHEMES[type(scheme)], **known}


def options_of(scheme: object) -> str:
    """Return the options that state a scheme; empty for a name, which may need numbers."""
    if not isinstance(scheme, TableScheme) or type(scheme) not in SCHEMES:
        return ""
    facts = _facts_of(scheme)
    rate = f" --sampling-probability {scheme.rate:g}" if isinstance(scheme, Poisson) else ""
    names = {"population": "population", "cohort": "cohort", "per_epoch": "rounds-per-epoch"}
    names |= {"take": "take"}
    numbers = "".join(f" --{to} {facts[name]}" for name, to in names.items() if name in facts)
    return f"--sampling {facts['sampling']}{rate}{numbers}"


SCHEMES: dict[type, Sampling] = {
    Poisson: Sampling.POISSON,
    TruncatedPoisson: Sampling.POISSON,
    FixedSize: Sampling.FIXED,
    Shuffled: Sampling.SHUFFLED,
    WithReplacement: Sampling.WITH_REPLACEMENT,
    RandomAllocation: Sampling.ALLOCATION,
    Everyone: Sampling.EVERYONE,
}


def _kind(rounds: Rounds, stated: Stated, unit: Unit | None) -> Kind:
    """Return the release and the sampling of one round of a group."""
    noise = rounds.noise_multiplier
    scheme = stated.sampling if isinstance(stated.sampling, TableScheme) else scheme_of(rounds)
    one = _sum(rounds, noise, unit)
    if rounds.missing_shares and isinstance(scheme, Shuffled) and scheme.population is None:
        # Rounds of different length have different numbers of shares.
        scheme = replace(scheme, population=rounds.population)
    # The recorded noise is the full noise, so missing shares are subtracted first.
    arrived = one.traits.sum_multiplier or noise
    sums = rounds.steps_per_round or 1
    # One cohort is drawn for all sums of a round, so they are sampled together.
    drawn = (one if sums == 1 else one * sums).sampled(scheme)
    cohort, population = rounds.cohort, rounds.population
    return Kind(drawn, scheme, arrived / math.sqrt(sums), cohort, population, rounds.rate)


def _sum(rounds: Rounds, noise: float, unit: Unit | None) -> Mechanism:
    """Return the mechanism of one sum. Missing shares need a mechanism with further conditions."""
    if noise == 0.0:
        return WithoutNoise(unit=unit)
    if not rounds.missing_shares:
        return Gaussian(noise_multiplier=noise, unit=unit)
    if unit is Unit.RECORD:
        rule = "be left out if the unit is a record, since only clients add shares of the noise"
        refuse("missing_shares", rounds.missing_shares, rule)
    if rounds.cohort is None:
        way_out = "pass sampling=fp.FixedSize(cohort, population=...) (--cohort), or record cohort"
        refuse("cohort", None, "be known with missing_shares", way_out)
    if rounds.missing_shares >= rounds.cohort:
        rule = f"be less than the cohort of {rounds.cohort}"
        refuse("missing_shares", rounds.missing_shares, rule, "no noise is left otherwise")
    return SparsifiedPerturbation(
        noise_multiplier=noise,
        clip_norm=1.0,
        kept=1,
        dimension=1,
        cohort=rounds.cohort,
        missing=rounds.missing_shares,
    )


def scheme_of(rounds: Rounds) -> Scheme:
    """Return the sampling of rounds.

    Raises:
        ParameterError: if a number is missing, or breaks its rule.
    """
    if rounds.sampling is None:
        way_out = f"the record does not say how units were drawn; one of {', '.join(Sampling)}"
        if rounds.population is None:
            way_out += "; fixed and with-replacement need a population besides"
        refuse("sampling", None, "be stated", way_out)
    return _BUILDERS[rounds.sampling](rounds)


def _poisson(rounds: Rounds) -> Scheme:
    if rounds.rate is None:
        refuse(
            "sampling_probability",
            None,
            "be known for Poisson sampling",
            "the size of a drawn cohort is not a probability; pass "
            "sampling=fp.Poisson(...) (--sampling-probability), or record sampling_probability",
        )
    return Poisson(rounds.rate)


def _fixed(rounds: Rounds) -> Scheme:
    population = _population(rounds)
    return FixedSize(_cohort(rounds, population), population=population)


def _replacement(rounds: Rounds) -> Scheme:
    population = _population(rounds)
    return WithReplacement(_cohort(rounds, population), population=population)


def _population(rounds: Rounds) -> int:
    if rounds.population is None:
        rule = f"be stated for sampling={str(rounds.sampling)!r}"
        refuse("population", None, rule, "the record does not say how many units there are")
    return integer(1, population=rounds.population)


def _cohort(rounds: Rounds, population: int) -> int:
    if rounds.cohort is not None:
        return integer(1, cohort=rounds.cohort)
    size = None if rounds.rate is None else rounds.rate * population
    # A share times the population is an integer, up to decimal rounding.
    if size is None or abs(size - round(size)) > 1e-6 * max(size, 1.0) or round(size) < 1:
        way_out = "pass sampling=fp.FixedSize(size, population=...) (--cohort), or record cohort"
        refuse("cohort", size, "be an integer of at least 1", f"state the size: {way_out}")
    return round(size)


def _share(rounds: Rounds) -> float | None:
    """Return the recorded share of a batch, or the share computed from the cohort."""
    if rounds.rate is not None or rounds.cohort is None or rounds.population is None:
        return rounds.rate
    return rounds.cohort / rounds.population


def _per_epoch(rounds: Rounds) -> int:
    """Return the recorded number of rounds in an epoch, or the inverse of the batch share."""
    if rounds.per_epoch is not None:
        return count(rounds_per_epoch=rounds.per_epoch)
    share = _share(rounds)
    length = None if share is None else 1.0 / probability(sampling_probability=share)
    # The inverse of a subnormal share is infinite.
    if length is None or math.isinf(length) or abs(length - round(length)) > 1e-6 * length:
        # An epoch has no fraction of a round, so the error asks for the length.
        way_out = (
            "pass sampling=fp.Shuffled(rounds_per_epoch=...) (--rounds-per-epoch), for example"
        )
        refuse("rounds_per_epoch", length, "be an integer", way_out)
    return round(length)


_BUILDERS: dict[Sampling, Callable[[Rounds], Scheme]] = {
    Sampling.POISSON: _poisson,
    Sampling.FIXED: _fixed,
    Sampling.WITH_REPLACEMENT: _replacement,
    Sampling.SHUFFLED: lambda rounds: Shuffled(_per_epoch(rounds), partial=rounds.partial),
    Sampling.ALLOCATION: lambda rounds: RandomAllocation(_per_epoch(rounds), rounds.take or 1),
    Sampling.EVERYONE: lambda rounds: Everyone(),
}
