"""A run that a file describes in part: known facts, inferences, and questions to the user.

A reader of another program's configuration fills in a draft. The user answers its questions by
options. Every fact is either in the file, inferred by a stated rule, or stated by the user.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn

from ...errors import ConversionError, ParameterError, claimed, refuse
from ...outputs import printable
from ...relations import Adjacency, Observer, Unit
from ...sampling.scheme import TableScheme
from .assembling import SCHEMES
from .fields import Field, Fields, like_thousands, numbers_in, plain_name
from .passes import round_share
from .questions import (
    MEANINGS,
    MissingFacts,
    Question,
    how_drawn,
    is_value,
    missing_in_sampling,
    review,
)
from .trace import Denominator, Origin, Rounds, Sampling, Stated, Trace
from .vocabulary import words_of

Claim = tuple[float | None, float | None] | None
"""(epsilon, delta) as the user gives them; None for a part that the source gives."""

_FACTS: dict[str, Any] = {
    "sampling_probability": "rate",
    "cohort": "cohort",
    "population": "population",
    "rounds_per_epoch": "per_epoch",
    "steps_per_round": "steps_per_round",
}
"""Fact -> its field in ``Rounds``."""

_PLACES = words_of(
    """
    train trainer training dp privacy private run args config cfg experiment params parameters
    settings hparams dpsgd opacus hyperparameters arguments sgd differential setting engine data
    metrics result results summary final command user attrs sampling noise clipping target
    budget default defaults x hp hparam metric stages yaml configuration property properties
    said meta init updates update options environment env services accountant compute get make
    epsilon spent rdp prv pld kwargs template templates common shared base
    """
)
"""Words of the parts of a file that hold settings of a run."""


def _noisy(field: Field) -> bool:
    return field.name in _NOISES


_NOISES = {"noise_multiplier", "noise_mult", "dp_noise_multiplier", "noise_std", "noise_stddev"}
_NOISES |= {"sigma", "dp_sigma", "noise_sigma", "noise_scale"}
"""Names of a noise whose neighbours are settings of the same run."""


_AND = "; also "
"""Between the reasons for one question."""
_ELSEWHERE = {"optimizer", "optim", "optimiser", "adam", "adamw", "rmsprop", "norm", "layernorm"}
_ELSEWHERE |= {"batchnorm", "scheduler", "loss", "huber", "stopping", "exploration", "model"}
"""Words of parts whose epsilon or delta is no claim."""


@dataclass
class Draft:
    """A run that a file describes in part.

    Attributes:
        fields: the fields of the file.
        tool: the program, its versions, and the reason for taking the file for it.
        facts: known facts by name, with the words of ``Statement``.
        inferred: sentences on facts that follow from the program's behaviour.
        questions: what the file does not settle.
        other_facts: other statements of the file, by name.
        several: the numbers of a file that has several for one fact, by the fact's name.
        worst: the smallest noise of the file, and its largest other numbers, for facts that are
            asked for although the file has numbers.
        suggested: numbers of the file for the options of the sampling, which the user confirms.
        least_rate: lower end of a share that the file prints rounded, or gives by its sizes.
        least_rounds: lower end of the rounds that epochs and sizes of the file give.
        by_answers: sentence of a program that divides by the number of answers; empty for others.
        shuffles: the field that shuffles the records of every pass, or None.
        unclipped: the field that turns the clip off, or None.
        enlarged: the field that may enlarge a batch and the least share that it makes, or None.
        lasting: sentences on fields that put every stated noise in doubt.
        texts: sentences of the file outside its fields, and the texts of its fields.
        lines: lines of a script that are not known.
        unclear: entries of the file that are not understood, in words.
        anywhere: whether a name has its meaning in every part of the file. In a file of an unknown
            program ``steps`` may belong to a scheduler, and ``epsilon`` to an optimizer.
    """

    fields: Fields
    tool: str
    facts: dict[str, Any] = field(default_factory=dict)
    inferred: list[str] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)
    other_facts: dict[str, str] = field(default_factory=dict)
    several: dict[str, list[float]] = field(default_factory=dict)
    worst: dict[str, float] = field(default_factory=dict)
    anywhere: bool = True
    suggested: dict[str, Any] = field(default_factory=dict)
    least_rate: float = 0.0
    least_rounds: int = 0
    by_answers: str = ""
    shuffles: Field | None = None
    unclipped: Field | None = None
    enlarged: tuple[Field, float] | None = None
    lasting: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    unclear: list[str] = field(default_factory=list)

    @property
    def of_clients(self) -> bool:
        """Whether the unit is known to be a client."""
        return self.facts.get("unit") is Unit.CLIENT

    @property
    def noise(self) -> Any:
        """The known noise multiplier, or None."""
        return self.facts.get("noise_multiplier")

    @property
    def rounds(self) -> Any:
        """The known number of noisy sums, or None."""
        return self.facts.get("rounds")

    @property
    def rate(self) -> Any:
        """The known sampling probability, or None."""
        return self.facts.get("sampling_probability")

    @property
    def sampling(self) -> Sampling | None:
        """The known sampling, or None."""
        return self.facts.get("sampling")

    @property
    def asked(self) -> set[str]:
        """The facts in question."""
        return {question.name for question in self.questions}

    def about_the_run(self, one: Field) -> bool:
        """Return whether a field's place in the file is that of a setting of the run."""
        if self.anywhere:
            return True
        noises = [each.parent for each in self.fields.every if _noisy(each)]
        parent = one.parent
        words = {one.rstrip("0123456789") for one in plain_name(parent).split("_")} - {""}
        return words <= _PLACES or parent in noises

    def take(self, name: str, *names: str, whole: bool = False) -> Any:
        """Take a number of the file as a fact; ask if the file has several.

        Args:
            name: the fact.
            names: its names in the file, the best one first.
            whole: whether the fact is an integer.

        Returns:
            The number, or None.
        """
        found: dict[float | int, Field] = {}
        strange: list[Field] = []
        for one in self.fields.all(*names):
            value = one.number if self.about_the_run(one) else None
            if _is_no_cap(one, value):
                continue
            if value is None or not _is_usable(one, value, whole):
                strange.append(one)
            else:
                found.setdefault(value, one)
        if len(found) == 1 and not strange:
            self.facts[name] = next(iter(found))
            return self.facts[name]
        if found or strange:
            self._unsettled(name, found, strange)
        elif name == "noise_multiplier":
            # The parts of a schedule, such as its start and its end.
            inside = [one.value for one in self.fields.every if _within(one, names)]
            self._limit(name, numbers_in(inside))
        return None

    def _unsettled(self, name: str, found: dict[float | int, Field], strange: list[Field]) -> None:
        """Ask for a fact if the file has several numbers for it, or other values."""
        self.several[name] = list(found)
        several = ", ".join(str(one) for one in [*found.values(), *strange][:4])
        limit = _limit(name, list(found)) if len(found) > 1 else ""
        near = [one.value for one in strange if self.about_the_run(one)]
        why = f"not settled by {several}" + (limit and f"; an answer must {limit}")
        self.ask(name, why, *found, *numbers_in(near))

    def know(self, name: str, value: Any, because: str) -> None:
        """Add a fact that follows from the program's behaviour, and the reason."""
        self.facts[name] = value
        self.inferred.append(because)

    def ask(self, name: str, why: str = "", *numbers: float, limits: bool = True) -> None:
        """Ask for a fact; a value of the file does not count any more.

        Args:
            name: the fact.
            why: why the file does not settle it.
            numbers: further numbers of the file for it.
            limits: whether an answer better than the file's numbers contradicts the file. Fewer
                steps than a cap do not.
        """
        value = self.facts.pop(name, None)
        if limits:
            self._limit(name, [*numbers, value] if isinstance(value, int | float) else numbers)
        at = next((i for i, one in enumerate(self.questions) if one.name == name), None)
        if at is None:
            self.questions.append(Question(name, why))
        elif why not in self.questions[at].why and self.questions[at].why.count(_AND) < 2:
            # Every reason is named, because an answer must hold for all of them.
            before = self.questions[at].why
            self.questions[at] = Question(name, f"{before}{_AND}{why}" if before else why)

    def _limit(self, name: str, numbers: Iterable[float]) -> None:
        """Keep the worst of the file's numbers for a fact."""
        known = [*numbers, *([self.worst[name]] if name in self.worst else [])]
        if known:
            self.worst[name] = min(known) if name == "noise_multiplier" else max(known)

    def ask_claim(self, why: str) -> None:
        """Ask for the epsilon; that of the file does not count any more."""
        self.facts.pop("epsilon", None)
        self.ask("claim_epsilon", why)

    def claims(self, epsilon: tuple[str, ...], delta: tuple[str, ...]) -> None:
        """Take the claim of the file: one epsilon and one delta, by their names in the file."""
        for name, names in (("epsilon", epsilon), ("delta", delta)):
            given = [one for one in self.fields.all(*names) if self._claimed(one)]
            found = {one.number for one in given} - {None}
            # Several epsilons are several claims. The user says which one is judged.
            if name not in self.facts and len(found) == 1 and _may_be(name, value := found.pop()):
                self.facts[name] = value

    def _claimed(self, one: Field) -> bool:
        """Return whether an epsilon or a delta is one of privacy, and not of an optimizer."""
        part = one.parent
        parent = {*plain_name(part).split("_")}
        beside = any(_noisy(each) and each.parent == part for each in self.fields.every)
        # The privacy part of a model_card is about the run.
        other = parent & _ELSEWHERE and not (
            parent & {"dp", "privacy", "private", "dpsgd"} or beside
        )
        elsewhere = one.name in ("epsilon", "eps", "delta") and other
        return self.about_the_run(one) and not elsewhere and not tiny(one)

    def found(self) -> str:
        """Return the fields that were read, with their values, in words."""
        known = [str(one) for one in self.fields.used.values() if is_value(one.value)]
        return ", ".join(known[:14]) + (", ..." if len(known) > 14 else "")


def _is_no_cap(one: Field, value: float | None) -> bool:
    """Return whether a field states no cap of the steps: trainers write -1 or null."""
    return one.name.startswith("max_") and (one.value is None or value == -1)


def _is_usable(one: Field, value: float, whole: bool) -> bool:
    """Return whether a number can be the fact: not below 0, and a clear integer if ``whole``."""
    unclear = whole and (not isinstance(value, int) or like_thousands(one.value))
    return not (value < 0 or unclear)


def _within(one: Field, names: tuple[str, ...]) -> bool:
    """Return whether a field is a part of one with one of these names."""
    return not {*map(plain_name, one.place.split(".")[:-1])}.isdisjoint(names)


def tiny(one: Field) -> bool:
    """Return whether an epsilon is one that an optimizer adds to a divisor."""
    named = one.words & {"epsilon", "eps"}
    return bool(named) and 0 < (one.number or 0) < 1e-4


def _may_be(name: str, value: Any) -> bool:
    """Return whether a number may be claimed. Some programs write -1 for no epsilon."""
    return bool(value >= 0 if name == "epsilon" else 0 < value < 1)


def _check_worst(name: str, value: float, several: list[float]) -> None:
    """Refuse an answer that is better than some number of the file: it may be another run's."""
    least = name == "noise_multiplier"
    if several and (value > min(several) if least else value < max(several)):
        refuse(name, value, _limit(name, several), "write one file per run if it has several")


def _limit(name: str, several: list[float]) -> str:
    """Return the rule for an answer if a file has several numbers; empty for other facts."""
    if name == "noise_multiplier":
        return f"be at most {min(several)}, the smallest in the file"
    return f"be at least {max(several)}, the largest in the file" if name == "rounds" else ""


def complete(draft: Draft, origin: Origin, stated: Stated, claim: Claim) -> Trace:
    """Return the trace of a draft, completed by the user's statements.

    Raises:
        ParameterError: if facts are missing: all of them in one message, with their options; or
            if a fact is stated that the file has.
        ConversionError: if a value of the file breaks its rule.
    """
    scheme = name_of(stated.sampling) or draft.sampling
    if draft.by_answers and scheme is Sampling.POISSON:
        draft.know("denominator", Denominator.REALISED, draft.by_answers)
    elif draft.by_answers:
        draft.ask(
            "denominator",
            f"{draft.by_answers}: realised with Poisson sampling; otherwise public if all answered",
        )
    facts = _with_answers(draft, stated)
    seen_by = facts.get("observer")
    # The noise of one client's message is not that of the sum, which others see.
    if seen_by is not None and stated.observer not in (None, seen_by):
        refuse("observer", str(stated.observer), f"be {seen_by}, which sees single messages here")
    rounds = _rounds(draft, facts, origin)
    needed, name = _needed(draft, facts, rounds, stated, claim), origin.name or "the values"
    if needed and facts.get("noise_multiplier") == 0 and stated.noise_multiplier is None:
        private = "its noise multiplier is 0: the run is not private, and no finite epsilon holds"
        refuse_unauditable(name, draft.tool, private)
    if needed:
        how = how_drawn(rounds, stated, draft.suggested, denominator=bool(draft.by_answers))
        ask(name, draft, needed, how)
    return Trace(
        origin,
        ((rounds, facts["rounds"]),),
        unit=facts.get("unit"),
        adjacency=facts.get("adjacency"),
        observer=seen_by,
        claim=_whole_claim(facts),
        half=_half_claim(facts),
        other_facts=draft.other_facts | _other_facts(draft),
        denominator=facts.get("denominator"),
        contradictions=_contradictions(draft, stated),
    )


_STATED = ("noise_multiplier", "rounds")
"""Facts that the user states only if the file does not have them."""


def _with_answers(draft: Draft, stated: Stated) -> dict[str, Any]:
    """Return the facts of the file, and the stated ones that it lacks."""
    given = {name: value for name in _STATED if (value := getattr(stated, name)) is not None}
    for name, value in given.items():
        if name in draft.facts:
            has = f"it has {draft.facts[name]}"
            refuse(name, value, "be left out with a file that has it", has)
        _check_worst(name, value, draft.several.get(name, []))
    return draft.facts | given


def _needed(
    draft: Draft, facts: Mapping[str, Any], rounds: Rounds, stated: Stated, claim: Claim
) -> list[Question]:
    """Return the questions that neither the file nor the user answers."""
    own = {question.name: question for question in draft.questions}
    for name in _STATED:
        if getattr(stated, name) is not None:
            own.pop(name, None)
        elif name not in facts:
            own.setdefault(name, Question(name))
    asked = _questions(rounds, facts.get("adjacency"), _claim_of(facts), stated, claim)
    open_ = {name: one for name, one in own.items() if name not in asked and _open(name, stated)}
    open_ |= asked | {name: own[name] for name in asked if name in own}
    if "adjacency" in open_ and Observer.SERVER in (facts.get("observer"), stated.observer):
        open_["adjacency"] = Question("adjacency", _SEEN)
    every = draft.fields.every
    return [
        one if one.why else _quoted(one.name, draft.suggested, every)
        for one in (*open_.values(), *review(draft.unclear, stated.reviewed))
    ]


def name_of(sampling: Any) -> Sampling | None:
    """Return the name of a stated sampling; None if none is stated, or one that is unknown."""
    if isinstance(sampling, TableScheme):
        return SCHEMES.get(type(sampling))
    return next((one for one in Sampling if one == str(sampling).replace("_", "-")), None)


def _contradictions(draft: Draft, stated: Stated) -> tuple[str, ...]:
    """Return sentences on stated facts that a field of the file contradicts."""
    said = name_of(stated.sampling)
    found = []
    if draft.shuffles and said not in (None, Sampling.SHUFFLED, Sampling.EVERYONE):
        found.append(f"{draft.shuffles} is another sampling than {said}, which was stated")
    if draft.unclipped and stated.noise_multiplier is not None:
        found.append(f"{draft.unclipped}: no noise multiplier holds without a clip")
    if stated.noise_multiplier is not None:
        found += draft.lasting
    share = round_share(stated.sampling) if isinstance(stated.sampling, TableScheme) else 1.0
    if draft.enlarged is not None and share < draft.enlarged[1]:
        one, least = draft.enlarged
        found.append(f"{one} may make the share of a round {least:.4g} or more")
    elif share < draft.least_rate:
        found.append(f"a round has a share of {draft.least_rate:.4g} or more in the file")
    if stated.rounds is not None and stated.rounds < draft.least_rounds:
        found.append(f"the epochs in the file make {draft.least_rounds} rounds or more")
    return (*found, *_better(draft.worst, stated, share))


def _better(worst: Mapping[str, float], stated: Stated, share: float) -> Iterable[str]:
    """Yield sentences on answers that are better than the file's own numbers."""
    noise, least = stated.noise_multiplier, worst.get("noise_multiplier", math.inf)
    if noise is not None and noise > least:
        yield f"a noise multiplier of {noise:.6g} was stated, and the file has {least:.6g}"
    given = {"rounds": stated.rounds, "trials": stated.trials, "sampling_probability": share}
    for name, value in given.items():
        if value is not None and value < (1.0 - 1e-6) * worst.get(name, 0.0):
            what = name.replace("_", " ")
            yield f"{what} of {value:.6g} was stated, and the file has {worst[name]:.6g}"


def _quoted(name: str, suggested: Mapping[str, Any], fields: Iterable[Field]) -> Question:
    """Return the question for a fact with its number in the file, which the user confirms."""
    if name in suggested:
        return Question(name, f"{MEANINGS[name]}; perhaps {suggested[name]}")
    return Question.about(name, fields)


_SEEN = "how neighbours differ: zero_out, replace_one, since the server sees who takes part"


def _open(name: str, stated: Stated) -> bool:
    """Return whether a question of a draft is unanswered by an option."""
    if name in ("noise_multiplier", "rounds"):
        return True
    if name in ("sampling_probability", "cohort", "population", "rounds_per_epoch"):
        # A stated sampling has its own questions.
        return stated.sampling is None
    # ``_questions`` knows a stated claim.
    if name.startswith("claim"):
        return False
    return getattr(stated, name, None) is None


def _rounds(draft: Draft, facts: Mapping[str, Any], origin: Origin) -> Rounds:
    values = {to: facts[name] for name, to in _FACTS.items() if name in facts}
    noise = facts.get("noise_multiplier", 1.0)
    try:
        return Rounds(noise, facts.get("sampling"), **values)
    except ParameterError as error:
        raise ConversionError(
            printable(f"{origin.name or 'the values'} ({draft.tool[:80]}): {error}")
        ) from error


def _claim_of(facts: Mapping[str, Any]) -> tuple[float | None, float | None]:
    return facts.get("epsilon"), facts.get("delta")


def _whole_claim(facts: Mapping[str, Any]) -> tuple[float, float] | None:
    epsilon, delta = _claim_of(facts)
    return None if epsilon is None or delta is None else claimed(epsilon, delta)


def _half_claim(facts: Mapping[str, Any]) -> dict[str, float]:
    known = {name: facts[name] for name in ("epsilon", "delta") if name in facts}
    return known if len(known) == 1 else {}


def _other_facts(draft: Draft) -> dict[str, str]:
    """Return the reading of the file in words, for the result."""
    facts = {"read as": draft.tool, "fields": draft.found()}
    unread = [one.place for one in draft.fields.unread() if is_value(one.value)]
    if unread:
        facts["fields that are not read"] = ", ".join(unread)[:300]
    if draft.inferred:
        facts["inferred"] = "; ".join(draft.inferred)
    return {name: printable(text)[:1500] for name, text in facts.items() if text}


def _questions(
    rounds: Rounds,
    adjacency: Adjacency | None,
    known: tuple[float | None, float | None],
    stated: Stated,
    claim: Claim,
) -> dict[str, Question]:
    """Return the facts that neither the record nor the user gives, by name."""
    asked = [*missing_in_sampling(rounds, stated)]
    if adjacency is None and stated.adjacency is None:
        asked.append("adjacency")
    given = claim or (None, None)
    half = [first is None and second is None for first, second in zip(given, known, strict=True)]
    if any(half):
        asked.append("claim" if all(half) else "claim_epsilon" if half[0] else "claim_delta")
    return {name: Question(name) for name in asked}


def check_asked(trace: Trace, stated: Stated, claim: Claim) -> None:
    """Refuse a trace that lacks two or more facts, naming all of them.

    A single missing fact is refused where it is used, with the details of that place.
    """
    known = trace.claim or (trace.half.get("epsilon"), trace.half.get("delta"))
    asked: dict[str, Question] = {}
    for rounds in dict.fromkeys(rounds for rounds, _ in trace.rounds):
        asked |= _questions(rounds, trace.adjacency, known, stated, claim)
    open_ = review(trace.unclear, stated.reviewed)
    if open_ or len(asked) > 1:
        name = trace.origin.name or "the source"
        how = how_drawn(trace.rounds[0][0], stated, {}) if trace.rounds else ""
        _raise(name, trace.origin.kind, "", [*asked.values(), *open_], how)


def ask(name: str, draft: Draft, questions: list[Question], how: str) -> NoReturn:
    """Raise an error that lists the missing facts and the options that give them."""
    found = f"found {draft.found()}" if draft.found() else "found no number that is known here"
    if draft.inferred:
        found += f" (inferred: {'; '.join(draft.inferred)})"
    _raise(name, draft.tool, found, questions, how)


def _raise(name: str, kind: str, found: str, questions: list[Question], how: str) -> NoReturn:
    begin = f"{name}: read as {kind}; "
    options = " ".join(_options(questions, how))
    end = f"{'; '.join(_missing(questions))}. State it: {options}"
    # The questions stay whole; the found fields take the room that is left.
    room = max(MAX_MESSAGE - len(begin) - len(end), 100)
    shown = found if len(found) < room else f"{found[: room - 6]} ..."
    whole = printable(f"{begin}{shown and f'{shown}; '}{end}")
    raise MissingFacts(whole, kind, found, questions)


def _missing(questions: list[Question]) -> list[str]:
    """Return the parts of a message that name the missing facts, by why they are missing."""
    absent = "; ".join(str(one) for one in questions if not one.why)
    unsettled = "; ".join(str(one) for one in questions if one.why and not one.code)
    missing = [f"not found: {absent}"] if absent else []
    missing += [f"not settled: {unsettled}"] if unsettled else []
    return missing + [f"not understood: {one.why}" for one in questions if one.code]


def _options(questions: list[Question], how: str) -> list[str]:
    """Return the options that state the missing facts; ``how`` has those of the sampling."""
    drawn = {"sampling", *_NUMBERS} & {question.name for question in questions}
    # A name of a sampling needs its own numbers, so they are pasted together.
    each = [one.option for one in questions if one.name not in drawn]
    options = [option for option in each if option not in how]
    if drawn:
        options.append(f"{'and ' * bool(options)}one of: {how}" if ", or " in how else how)
    return options


MAX_MESSAGE = 980
"""Usual length of a question to the user, in characters."""
_NUMBERS = {"sampling_probability", "cohort", "population", "rounds_per_epoch"}


def refuse_unauditable(name: str, tool: str, why: str) -> NoReturn:
    """Raise an error for a file that no statement of the user can complete."""
    raise ConversionError(printable(f"{name}: read as {tool}; no audit is possible, because {why}"))
