"""The plan: one run as a form, its epsilon first, then what takes longer."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass
from decimal import ROUND_CEILING
from pathlib import Path
from typing import Any

from markupsafe import escape

from ..audit.messages import RATES, in_words, largest_rate
from ..audit.statement import EYES, RELEASED
from ..bound import Bound, exactly, shown
from ..errors import FedPrivacyError, ParameterError, UnsupportedCombination
from ..mechanisms import Mechanism
from ..questions.calibrate import calibrate
from ..questions.epsilon import epsilon as epsilon_of
from ..questions.risk import tradeoff_curve
from ..relations import Observer
from ..runs.run_specs import EPOCHS, SampledRun
from ..systems.settings import CLOSED_SHARE, NON_NEGATIVE, POSITIVE, Setting
from .drawing import line
from .forms import ADJACENCIES, OBSERVERS, PLAN
from .messages import Message, put

DEADLINE = 5.0
"""Seconds after which no refinement of a slower answer starts."""
POINTS = 12
"""Number of rounds at which epsilon is drawn."""
_NUMBERS = {
    **SampledRun.known(),
    "cohort": Setting("cohort", POSITIVE, "", "", MISSING),
    "epsilon": Setting("epsilon", NON_NEGATIVE, "", "", MISSING),
    "delta": Setting("delta", CLOSED_SHARE, "", "", MISSING),
}
"""Number of the form -> how its text is read."""
_PLACES = {
    "sampling_probability": "cohort",
    "probability": "cohort",
    "cohort and population": "cohort",
    "size": "cohort",
    "largest": "largest_cohort",
    "count": "rounds",
}
"""Parameter of a message -> the field of the form that it is about."""


class WrongFields(Exception):
    """Some fields of a form are wrong: a sentence for each."""

    def __init__(self, problems: dict[str, str]) -> None:
        super().__init__(", ".join(problems.values()))
        self.problems = problems


@dataclass(frozen=True)
class PlannedRun:
    """One question of the form.

    Attributes:
        run: the described run; its noise multiplier is 1 if a budget is given.
        unit: "client" or "record".
        adjacency: how neighbours differ.
        observer: what the attacker sees.
        delta: of the question.
        epsilon: the budget; None if the noise is given.
    """

    run: SampledRun
    unit: str
    adjacency: str
    observer: str
    delta: float
    epsilon: float | None

    @classmethod
    def read(cls, fields: Mapping[str, str]) -> PlannedRun:
        """Return the plan that a form describes.

        Raises:
            WrongFields: a field is empty, or breaks its rule.
        """
        problems: dict[str, str] = {}
        said = {name: _chosen(fields, name, problems) for name in PLAN if PLAN[name].choices}
        budget = said["knows"] == "budget"
        wanted = ["rounds", "epsilon" if budget else "noise_multiplier", "delta"]
        wanted += [n for n, field in PLAN.items() if said["sampling"] in field.only.split()]
        values = {name: number(fields, name, problems) for name in wanted}
        if not problems:
            facts = _sampling(said["sampling"], values, problems)
        if problems:
            raise WrongFields(problems)
        noise = 1.0 if budget else values["noise_multiplier"]
        described = {"noise_multiplier": noise, "rounds": values["rounds"], **facts}
        return cls(
            SampledRun.of(described),
            said["unit"],
            said["adjacency"],
            said["observer"],
            values["delta"],
            values["epsilon"] if budget else None,
        )

    @property
    def question(self) -> dict[str, Any]:
        """Adjacency and observer, as arguments."""
        return {"adjacency": self.adjacency, "observer": self.observer}

    def mechanism(self, noise_multiplier: float) -> Mechanism:
        """Return the run with this noise."""
        return self.run.changed({"noise_multiplier": noise_multiplier}).run(self.unit)

    def answered(self) -> tuple[float, Bound]:
        """Return the noise multiplier and the epsilon of the plan, as the command line does.

        Raises:
            FedPrivacyError: the question has no answer.
        """
        if self.epsilon is None:
            noise = self.run.noise_multiplier
            bound = epsilon_of(self.mechanism(noise), delta=self.delta, **self.question)
        else:
            found = calibrate(
                self.mechanism, epsilon=self.epsilon, delta=self.delta, **self.question
            )
            noise, bound = found.value, found.bound
        return noise, self.run.remarked(bound, self.unit)

    def command(self) -> str:
        """Return the command line of the same question."""
        said: dict[str, Any] = self.run.values()
        said = {name: value for name, value in said.items() if value is not None}
        if self.epsilon is not None:
            said = {"epsilon": self.epsilon, **said}
            del said["noise_multiplier"]
        said |= {"delta": self.delta, **self.question, "unit": self.unit}
        words = [f"--{name.replace('_', '-')} {_text(value)}" for name, value in said.items()]
        return f"fedprivacy {'epsilon' if self.epsilon is None else 'calibrate'} {' '.join(words)}"

    def python(self) -> str:
        """Return a Python program of the same question."""
        return _python(self)


def _python(plan: PlannedRun) -> str:
    run, facts = plan.run, f'adjacency="{plan.adjacency}", observer="{plan.observer}"'
    scheme = {
        "Poisson": f"fp.Poisson({run.sampling_probability!r})",
        "FixedSize": f"fp.FixedSize({run.cohort}, population={run.population})",
        "Everyone": "fp.Everyone()",
        "WithReplacement": f"fp.WithReplacement({run.cohort}, population={run.population})",
        "Shuffled": f"fp.Shuffled(rounds_per_epoch={run.rounds_per_epoch})",
        "RandomAllocation": f"fp.RandomAllocation(rounds_per_epoch={run.rounds_per_epoch})",
        "TruncatedPoisson": (
            f"fp.TruncatedPoisson(\n        {run.sampling_probability!r}, "
            f"population={run.population}, largest={run.largest_cohort}\n    )"
        ),
    }[type(run.scheme).__name__]
    noise = repr(run.noise_multiplier) if plan.epsilon is None else "noise_multiplier"
    lines = [
        "import fedprivacy as fp",
        "",
        "",
        "def run(noise_multiplier):",
        f'    step = fp.Gaussian(noise_multiplier=noise_multiplier, unit="{plan.unit}")',
        f"    return step.sampled({scheme}) * {run.rounds // (run.rounds_per_epoch or 1)}",
        "",
        "",
    ]
    if plan.epsilon is None:
        lines += [f"print(fp.epsilon(run({noise}), delta={plan.delta!r}, {facts}))"]
    else:
        lines += [
            f"found = fp.calibrate(run, epsilon={plan.epsilon!r}, delta={plan.delta!r}, {facts})",
            "print(found.value, found.bound)",
        ]
    return "\n".join(lines)


def _text(value: Any) -> str:
    return repr(value) if isinstance(value, float) else str(value)


def _chosen(fields: Mapping[str, str], name: str, problems: dict[str, str]) -> str:
    value = fields.get(name, "")
    if value not in [each.value for each in PLAN[name].choices]:
        problems[name] = "Choose one."
    return value


def number(fields: Mapping[str, str], name: str, problems: dict[str, str]) -> Any:
    """Return a number of a form; None with a problem if it is missing or breaks its rule."""
    text = fields.get(name, "").strip()
    setting = _NUMBERS[name]
    if not text:
        problems[name] = f"Enter a number; it must be {setting.rule.text}."
        return None
    if re.fullmatch(r"\d+,\d+", text):
        problems[name] = f"Write it with a point: {text.replace(',', '.')}."
        return None
    try:
        return setting.read(text)
    except ParameterError as problem:
        problems[name] = sentence(problem)
        return None


def _sampling(scheme: str, values: dict[str, Any], problems: dict[str, str]) -> dict[str, Any]:
    """Return the numbers of the sampling, as ``SampledRun`` takes them."""
    if scheme == "everyone":
        return {}
    if scheme in EPOCHS:
        length, rounds = values["rounds_per_epoch"], values["rounds"]
        if rounds % length:
            problems["rounds"] = f"Rounds must be a multiple of the {length} rounds of an epoch."
        return {"sampling": scheme, "rounds_per_epoch": length}
    cohort, population = values["cohort"], values["population"]
    if cohort > population:
        problems["cohort"] = f"The cohort must be at most the population of {population}."
        return {}
    if scheme in ("fixed", "with-replacement"):
        if cohort != math.floor(cohort):
            problems["cohort"] = "A fixed cohort must be an integer."
            return {}
        drawn = {} if scheme == "fixed" else {"sampling": scheme}
        return {"cohort": int(cohort), "population": population, **drawn}
    found = {"sampling_probability": cohort / population, "population": population}
    return found | ({"largest_cohort": values["largest_cohort"]} if scheme == "truncated" else {})


def sentence(problem: Exception | str) -> str:
    """Return a message as a sentence: its parameter in words, and an end."""
    # A value of thousands of digits would hide the rule. A domain is an argument of Python only.
    text = re.sub(r"(\d{20})\d{20,}", r"\1...", " ".join(str(problem).split()))
    text = text.partition("; pass a finite domain")[0]
    found = re.match(r"[a-z_]+(?= must )", text)
    if found:
        text = found[0].replace("_", " ") + text[found.end() :]
    # The name of a file keeps its letters.
    if re.match(r"[a-z]+(?![\w.-])", text):
        text = text[:1].upper() + text[1:]
    return text.rstrip(".") + "."


_LABELS = {each.value: each.label for each in (*OBSERVERS, *ADJACENCIES)}
"""Value of an observer or an adjacency -> its words in the form."""
_COVERED = re.compile(r"\b([a-z]+_[a-z]+)/(aggregate|server)\b")


def unsupported(problem: UnsupportedCombination, adjacency: str, observer: str) -> str:
    """Return why no theorem covers a run, and the covered cases, in the words of the form."""
    reason = re.search(r"\(([^()]*)\)", str(problem))
    covered = _COVERED.findall(str(problem))
    # Any other refusal has its own words.
    if not covered or reason is None:
        return sentence(problem)
    near = [f'"{_LABELS[name]}"' for name, view in covered if view == observer]
    choose = f" Choose the neighbours {' or '.join(near)}." if near else ""
    return (
        f'With the neighbours "{_LABELS[adjacency]}", no theorem bounds what the attacker '
        f'"{_LABELS[observer]}" learns: {reason[1]}.{choose}'
    )


def place_of(problem: Exception, plan: PlannedRun) -> str:
    """Return the field that an error is about; empty if it is about none."""
    if isinstance(problem, UnsupportedCombination):
        return "observer" if plan.observer != Observer.AGGREGATE else "adjacency"
    name = str(problem).partition(" must ")[0]
    place = _PLACES.get(name, name)
    if place not in PLAN:
        return "epsilon" if plan.epsilon is not None else ""
    return place


def answer(fields: dict[str, str], _: list[Path]) -> Iterator[Message]:
    """Yield the messages that answer the form; the fastest first."""
    try:
        plan = PlannedRun.read(fields)
    except WrongFields as problem:
        yield {"problems": problem.problems, "say": " ".join(problem.problems.values())}
        yield from _none("Correct the marked fields to get an answer.")
        return
    try:
        noise, bound = plan.answered()
    except FedPrivacyError as problem:
        why = sentence(problem)
        if isinstance(problem, UnsupportedCombination):
            why = unsupported(problem, plan.adjacency, plan.observer)
        place = place_of(problem, plan)
        yield {"problems": {place: why} if place else {}, "say": why}
        yield from _none(why)
        return
    yield {"problems": {}}
    yield put("plan-answer", "answered", **_headline(plan, noise, bound))
    asked = plan.epsilon is None
    value = _up(bound.upper) if asked else exactly(noise)
    yield put("plan-brief", "brief", text="epsilon at most" if asked else "noise", value=value)
    if math.isinf(bound.upper):
        yield {"say": "No finite epsilon is certified."}
        yield _seen(plan, noise, bound)
        return
    yield {"say": f"Epsilon is at most {_up(bound.upper)}, with noise multiplier {exactly(noise)}."}
    yield from _slower(plan, noise, bound)


def _none(why: str) -> Iterator[Message]:
    yield put("plan-answer", "unanswered", why=why)
    yield put("plan-brief", "brief", text="no answer", value="")


def _headline(plan: PlannedRun, noise: float, bound: Bound) -> dict[str, Any]:
    lower, upper = bound.ends(6)
    return {
        "upper": _up(bound.upper),
        "interval": f"[{lower}, {upper}]" if bound.closed else f"at least {lower}",
        "delta": exactly(plan.delta),
        "noise": repr(noise) if plan.epsilon is not None else None,
        "finite": math.isfinite(bound.upper),
        "meaning": in_words(bound),
        "bound": bound,
        "released": RELEASED[Observer(plan.observer)],
        "rates": _rates_of(bound),
        "command": plan.command(),
        # Our own lines.
        "python": escape(plan.python()),
    }


def _observers(plan: PlannedRun, noise: float, bound: Bound) -> list[dict[str, str]]:
    """Return what each attacker sees, and its epsilon."""
    rows = []
    for one in Observer:
        try:
            found = bound
            if one != plan.observer:
                found = epsilon_of(
                    plan.mechanism(noise),
                    delta=plan.delta,
                    adjacency=plan.adjacency,
                    observer=one,
                    deadline=DEADLINE / 10,
                )
            text, why = f"at most {_up(found.upper)}", ""
            if math.isinf(found.upper):
                text, why = "no bound", "no finite epsilon is certified"
        except UnsupportedCombination as problem:
            text, why = "no bound", unsupported(problem, plan.adjacency, str(one))
        name = _LABELS[str(one)]
        sees = EYES[one].partition(": sees ")[2]
        rows.append({"name": name, "sees": sees, "epsilon": text, "why": why})
    return rows


def _rates_of(bound: Bound, exact: list[float] | None = None) -> list[dict[str, Any]]:
    """Return the largest true-positive rate at each false-positive rate, in percent."""
    if math.isinf(bound.upper):
        return []
    known = [largest_rate(bound.upper, bound.given, rate) for rate in RATES]
    best = known if exact is None else [min(pair) for pair in zip(known, exact, strict=True)]
    return [
        {"fpr": exactly(100 * fpr), "tpr": shown(100 * tpr, 3, ROUND_CEILING), "share": tpr}
        for fpr, tpr in zip(RATES, best, strict=True)
    ]


def _slower(plan: PlannedRun, noise: float, bound: Bound) -> Iterator[Message]:
    """Yield what takes longer than epsilon: each part once it is known."""
    steps: list[tuple[str, Callable[[], Message]]] = [
        ("answer-seen", lambda: _seen(plan, noise, bound)),
        ("answer-half", lambda: _half(plan, noise, bound)),
        ("answer-rounds", lambda: _by_round(plan, noise, bound)),
        ("answer-attack", lambda: _attack(plan, noise, bound)),
    ]
    for place, step in steps:
        try:
            yield step()
        except FedPrivacyError as problem:
            yield put(place, "no_part", why=sentence(problem))


def _seen(plan: PlannedRun, noise: float, bound: Bound) -> Message:
    return put("answer-seen", "seen", observers=_observers(plan, noise, bound))


def _half(plan: PlannedRun, noise: float, bound: Bound) -> Message:
    half = 0.5 * bound.upper
    if not half:
        return put("answer-half", "no_part", why="Epsilon is 0 already.")
    found = calibrate(
        plan.mechanism, epsilon=half, delta=plan.delta, deadline=DEADLINE, **plan.question
    )
    factor = found.value / noise
    return put(
        "answer-half",
        "half",
        half=_up(found.bound.upper),
        noise=_up(found.value),
        before=exactly(noise),
        factor=shown(factor, 3, ROUND_CEILING),
    )


def _by_round(plan: PlannedRun, noise: float, bound: Bound) -> Message:
    """Return the drawing of certified upper ends after some of the rounds."""
    rounds, epoch = plan.run.rounds, plan.run.rounds_per_epoch or 1
    chosen = sorted({max(1, rounds // epoch * i // POINTS) * epoch for i in range(1, POINTS + 1)})
    ends = [
        bound.upper
        if count == rounds
        else epsilon_of(
            plan.run.changed({"noise_multiplier": noise, "rounds": count}).run(plan.unit),
            delta=plan.delta,
            tolerance=0.01,
            deadline=DEADLINE / len(chosen),
            **plan.question,
        ).upper
        for count in chosen
    ]
    # The epsilon of fewer rounds is at most that of more rounds.
    ends = [min(ends[place:]) for place in range(len(ends))]
    picture = line(
        [float(count) for count in chosen], ends, across="rounds", up="epsilon, upper end"
    )
    table = [(f"{count:,}", _up(end)) for count, end in zip(chosen, ends, strict=True)]
    return put("answer-rounds", "by_round", picture=picture, table=table)


def _attack(plan: PlannedRun, noise: float, bound: Bound) -> Message:
    curve = tradeoff_curve(
        plan.mechanism(noise), fpr=RATES, tolerance=0.05, deadline=DEADLINE, **plan.question
    )
    exact = [min(1.0, math.nextafter(1.0 - float(rate), 2.0)) for rate in curve.worst.lower]
    return put("answer-attack", "attack", rates=_rates_of(bound, exact), ready=True)


def _up(value: float) -> str:
    return shown(value, 4, ROUND_CEILING)
