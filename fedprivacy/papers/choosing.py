"""The best setting of a system within a privacy budget: FA-LD, FA-HMC and Fed-PLT.

Each system has a problem whose error is known in closed form: the W2 distance of the last iterate
to a Gaussian posterior, or the bound on Fed-PLT's error. So a setting is judged without a run and
without data. The search tries points that are spread over all parameters, and improves the best of
them step by step. It does not prove that no other setting is better. What it reports is certified:
epsilon by ``fp.epsilon``, the error by its law.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Protocol

from ..bound import Bound
from ..errors import (
    FedPrivacyError,
    ImpossibleBudget,
    listed,
    member,
    non_negative,
    open_unit,
    positive,
    refuse,
)
from ..loss.clock import now
from ..mechanisms import FederatedHamiltonian, Mechanism, SplittingRun
from ..questions.epsilon import epsilon as bounded
from ..relations import Adjacency, Observer
from ..systems.fa_hmc.law import HamiltonianChain
from ..systems.settings import CLOSED_SHARE, COUNT, NON_NEGATIVE, POSITIVE, Settings, setting
from ..theory.gaussian import point, w2
from ..theory.targets import GaussianTarget
from .fa_ld.grid import LangevinSetting, MeanProblem, langevin_settings
from .fed_plt.grid import Regression
from .fed_plt.tradeoff import SplittingSetting, trade_off

DIGITS = 4
"""Digits of a chosen value. Bound and error belong to the rounded value."""

POINTS, BEGINNINGS = 500, 5
"""Number of points that are spread over the parameters, and of the best ones to begin from."""

FIRST_STEP, COARSE_STEP, LAST_STEP = 2.0, 0.25, 0.02
"""First and last step from every beginning, and last step from the best result.

Steps are powers of 2; a share moves by an eighth of a step.
"""

BUDGETS = (0.25, 0.5, 1.0, 2.0, 4.0)
"""Budgets of the curve, as multiples of epsilon."""

Values = dict[str, Any]


class QuadraticProblem(Protocol):
    """A Gaussian posterior, split over clients, and the effect of a record."""

    @property
    def target(self) -> GaussianTarget:
        """The posterior."""

    @property
    def gradient_sensitivity(self) -> float:
        """Largest distance of two possible records' gradients."""


class Range(NamedTuple):
    """Admissible values of a parameter of the search.

    Args:
        low: smallest value.
        high: largest value.
        kind: "whole" for integers, "positive" for numbers that are scaled, "share" for numbers that
            are shifted.
        natural: ends that are limits of the system, not of the search.
        exact: a value that steps would miss, and at which the error may be much smaller.
    """

    low: float
    high: float
    kind: str = "positive"
    natural: tuple[float, ...] = ()
    exact: float | None = None

    def at(self, share: float) -> float:
        """Return the value at a share of the range, on the scale of its kind."""
        if self.kind == "share":
            return self.rounded(self.low + share * (self.high - self.low))
        return self.rounded(self.low * (self.high / self.low) ** share)

    def moved(self, value: float, step: float) -> float:
        """Return the value after a step, up if it is above 0."""
        found = value + step / 8.0 if self.kind == "share" else value * 2.0**step
        if self.kind == "whole":
            # At least to the next integer.
            found = max(found, value + 1) if step > 0 else min(found, value - 1)
        return self.rounded(found)

    def rounded(self, value: float) -> float:
        """Return the nearest admissible value of a few digits."""
        value = min(max(value, self.low), self.high)
        return round(value) if self.kind == "whole" else float(f"{value:.{DIGITS}g}")


class System(NamedTuple):
    """A system that can be searched.

    Args:
        name: its name.
        cost: name of its error.
        ranges: parameter -> admissible values.
        priced: values -> run and error; the error is infinite if the system diverges.
    """

    name: str
    cost: str
    ranges: Mapping[str, Range]
    priced: Callable[[Values], tuple[Mechanism, float]]


@dataclass(frozen=True)
class ChosenPoint:
    """The best setting found for one budget.

    Args:
        budget: largest allowed epsilon.
        settings: the parameters by name.
        epsilon: certified upper end of the setting's epsilon.
        cost: the setting's error.
    """

    budget: float
    settings: Values
    epsilon: float
    cost: float


@dataclass(frozen=True)
class Choice:
    """The best setting found within a budget.

    Args:
        system: name of the system.
        settings: the parameters by name.
        bound: the setting's epsilon.
        cost_name: "w2" for samplers, "error" for Fed-PLT.
        cost: the setting's error.
        curve: the best settings for a quarter to four times the budget; a budget that no setting
            keeps is left out.
        edges: parameters whose value is at an end of the search.
        tried: number of settings that were priced.
        remark: what the error is about, if the problem states it.
    """

    system: str
    settings: Values
    bound: Bound
    cost_name: str
    cost: float
    curve: tuple[ChosenPoint, ...]
    edges: tuple[str, ...]
    tried: int
    remark: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the choice as JSON values."""
        return {
            "system": self.system,
            "settings": self.settings,
            "bound": self.bound.to_dict(),
            "cost_name": self.cost_name,
            "cost": self.cost,
            "curve": [asdict(one) for one in self.curve],
            "edges": list(self.edges),
            "tried": self.tried,
            **({"remark": self.remark} if self.remark else {}),
        }

    def __str__(self) -> str:
        chosen = ", ".join(f"{name} {value:g}" for name, value in self.settings.items())
        lines = [f"{self.system}: {chosen}", f"{self.bound}", f"{self.cost_name} {self.cost:.4g}"]
        lines += [f"within epsilon {one.budget:g}: {one.cost:.4g}" for one in self.curve]
        if self.remark:
            lines.append(self.remark)
        if self.edges:
            lines.append(
                f"at an end of the search, so a better one may exist: {listed(self.edges)}"
            )
        return "\n".join(lines)


def langevin(problem: QuadraticProblem) -> System:
    """Return FA-LD with all clients and whole gradients; ``w2`` is exact."""
    smoothness = problem.target.smoothness

    def priced(values: Values) -> tuple[Mechanism, float]:
        ((_, (run, costs)),) = langevin_settings(
            problem.target, gradient_sensitivity=problem.gradient_sensitivity, **values
        )
        return run, costs["w2"]

    ranges = {
        "step_size": Range(1e-6 / smoothness, 1.9 / smoothness),
        "local_steps": Range(1, 1000, "whole", (1,)),
        "rounds": Range(1, 1000, "whole", (1,)),
        # At 1 the stationary law has the posterior's width.
        "temperature": Range(0.1, 20.0, exact=1.0),
        "correlation": Range(0.0, 0.99, "share", (0.0,)),
    }
    return System("fa-ld", "w2", ranges, priced)


def hamiltonian(problem: QuadraticProblem) -> System:
    """Return FA-HMC with all clients and whole gradients; ``w2`` is exact."""
    target, spread = problem.target, problem.target.smoothness**-0.5
    weight = float(target.shares[0])
    if any(share != weight for share in target.shares):
        way_out = "choose for fa-ld, or make the weights equal"
        refuse("weights", target.shares.tolist(), "be equal for fa-hmc", way_out)
    start = point([0.0] * target.dimension)

    def priced(values: Values) -> tuple[Mechanism, float]:
        shape = {name: values[name] for name in ("step_size", "leapfrog_steps", "iterations")}
        client = FederatedHamiltonian(
            **shape,
            correlation=values["correlation"],
            weight=weight,
            batch_fraction=1.0,
            gradient_sensitivity=problem.gradient_sensitivity,
            gradient_noise_multiplier=values["gradient_noise_multiplier"],
        )
        chain = HamiltonianChain(
            **shape,
            target=target,
            correlation=values["correlation"],
            gradient_std=client.gradient_noise_std,
        )
        return client * values["rounds"], float(
            w2(chain.law(start, values["rounds"]), target.law())
        )

    ranges = {
        "step_size": Range(1e-3 * spread, 1.9 * spread),
        "leapfrog_steps": Range(1, 100, "whole", (1,)),
        "iterations": Range(1, 1000, "whole", (1,)),
        "rounds": Range(1, 1000, "whole", (1,)),
        "gradient_noise_multiplier": Range(1e-3, 1e3, natural=(1e-3,)),
        "correlation": Range(0.0, 0.99, "share", (0.0,)),
    }
    return System("fa-hmc", "w2", ranges, priced)


def splitting(problem: Regression) -> System:
    """Return Fed-PLT with all agents; ``error`` is the bound of Corollary 1 with squares."""

    def priced(values: Values) -> tuple[Mechanism, float]:
        (found,) = trade_off(problem.splitting, [SplittingSetting(**values)])
        return SplittingRun(**asdict(found.run)), found.error

    ranges = {
        "penalty": Range(1e-3, 1e3),
        "step_share": Range(0.01, 0.99, "share"),
        "local_steps": Range(1, 1000, "whole", (1,)),
        "noise_scale": Range(1e-6, 1e3),
    }
    return System("fed-plt", "error", ranges, priced)


@dataclass(frozen=True, kw_only=True)
class HamiltonianSetting(Settings):
    """One setting of FA-HMC.

    Raises:
        ParameterError: a value out of its range.
    """

    step_size: float = setting(POSITIVE, "eta")
    leapfrog_steps: int = setting(COUNT, "K", default=1)
    iterations: int = setting(COUNT, "T", default=1)
    rounds: int = setting(COUNT, "R")
    gradient_noise_multiplier: float = setting(
        NON_NEGATIVE, "std of a gradient's noise over its sensitivity", default=0.0
    )
    correlation: float = setting(CLOSED_SHARE, "rho; 1 has no finite epsilon", default=0.0)


class Searched(NamedTuple):
    """A system that ``choose`` knows.

    Args:
        on: the system on a problem.
        problem: class of its default problem.
        fixed: class of the parameters that may be fixed.
    """

    on: Callable[[Any], System]
    problem: type[Settings]
    fixed: type[Settings]


SYSTEMS: dict[str, Searched] = {
    "fa-ld": Searched(langevin, MeanProblem, LangevinSetting),
    "fa-hmc": Searched(hamiltonian, MeanProblem, HamiltonianSetting),
    "fed-plt": Searched(splitting, Regression, SplittingSetting),
}
"""The systems by name."""


TRAINED = (
    "its error has no formula: train a grid on public data with fedprivacy sweep, or choose on the "
    "protected data with fedprivacy sweep --private, which prices the choice"
)


def choose(
    system: str,
    *,
    epsilon: float,
    delta: float,
    problem: Any = None,
    fixed: Mapping[str, Any] | None = None,
    observer: Observer | str = Observer.AGGREGATE,
    deadline: float = 60.0,
) -> Choice:
    """Return the setting with the smallest error that the search finds within a budget.

    Args:
        system: "fa-ld", "fa-hmc" or "fed-plt".
        epsilon: the budget, above 0.
        delta: the budget, strictly between 0 and 1.
        problem: for the samplers, an object with a ``target``, a ``GaussianTarget``, and a
            ``gradient_sensitivity``, such as ``papers.fa_ld.grid.MeanProblem`` or the result of
            ``training.fitted_quadratic`` for a posterior of your own; for Fed-PLT a
            ``papers.fed_plt.grid.Regression``. None for their defaults. A problem that was made
            from private records makes the choice private: use public numbers.
        fixed: parameters that are not searched, with their values.
        observer: who sees the outputs.
        deadline: seconds after which no other setting is tried; the best one so far is returned.

    The unit is a record, and a neighbour has one record replaced.

    Raises:
        ParameterError: an unknown system or parameter, or a value out of its range.
        ImpossibleBudget: no tried setting keeps the budget and has a finite error.
    """
    if system not in SYSTEMS:
        trained = system in ("fed-smp", "dp-fedavg")
        refuse("system", system, f"be one of {listed(SYSTEMS)}", TRAINED if trained else "")
    known = SYSTEMS[system]
    found = known.on(known.problem() if problem is None else problem)
    facts: Values = {"delta": open_unit(delta=delta), "adjacency": Adjacency.REPLACE_ONE}
    facts["observer"] = member(Observer, observer=observer)
    kept = _kept(known, found, fixed or {})
    search = _Search(found, facts, kept, now() + non_negative(deadline=deadline))
    search.explore(positive(epsilon=epsilon))
    best = search.best(epsilon)
    if best is None:
        raise ImpossibleBudget(
            f"no setting of {system} was found within epsilon = {epsilon:g} at delta = {delta:g}; "
            "raise the budget, or give more records"
        )
    curve = [best if each == 1.0 else search.best(each * epsilon, 1.0) for each in BUDGETS]
    run, cost = found.priced(best)
    return Choice(
        system=system,
        settings=best,
        bound=bounded(run, **facts),
        cost_name=found.cost,
        cost=cost,
        curve=tuple(
            ChosenPoint(each * epsilon, values, *search.numbers(values))
            for each, values in zip(BUDGETS, curve, strict=True)
            if values is not None
        ),
        edges=tuple(search.edges(best)),
        tried=len(search.known),
        remark=str(getattr(problem, "remark", "")),
    )


def _kept(known: Searched, system: System, fixed: Mapping[str, Any]) -> Values:
    """Return the fixed parameters, checked."""
    for name, value in fixed.items():
        if name not in system.ranges:
            refuse("fixed", name, f"be one of {listed(system.ranges)}")
        if value is None:
            refuse(name, value, "be a number", "leave it out to have it searched")
    return {name: known.fixed.known()[name].checked(value) for name, value in fixed.items()}


class _Search:
    """A pattern search over the free parameters of a system."""

    def __init__(self, system: System, facts: Values, kept: Values, ends: float) -> None:
        self.system, self.facts, self.kept, self.ends = system, facts, kept, ends
        self.free = {name: each for name, each in system.ranges.items() if name not in kept}
        self.known: dict[tuple[Any, ...], tuple[float, float]] = {}

    def numbers(self, values: Values) -> tuple[float, float]:
        """Return certified epsilon and error of a setting; infinite if it has none."""
        key = tuple(values.values())
        if key not in self.known:
            try:
                run, cost = self.system.priced(values)
                upper = (
                    bounded(run, **self.facts, tolerance=0.01).upper if cost < math.inf else cost
                )
            except (FedPrivacyError, OverflowError):
                upper = cost = math.inf
            self.known[key] = (upper, cost if math.isfinite(cost) else math.inf)
        return self.known[key]

    def rank(self, values: Values, budget: float, weight: float = 0.0) -> tuple[float, float]:
        """Return what the search makes small: the excess over the budget first, then the error.

        With a weight, a smaller epsilon counts as a smaller error, since it leaves room for one.
        Without it the search would end where many settings have the same error, for example those
        with the same number of steps in all.
        """
        upper, cost = self.numbers(values)
        if math.inf in (upper, cost):
            return math.inf, math.inf
        # Below half of the budget the room is enough.
        room = max(upper / budget, 0.5)
        return max(0.0, upper / budget - 1.0), cost * room**weight

    def spread(self) -> Iterator[Values]:
        """Yield points that are spread evenly over the free parameters (a Kronecker sequence)."""
        ratio = 2.0
        # The root of x^(k + 1) = x + 1, by which the shares of one point differ.
        for _ in range(60):
            ratio = (1.0 + ratio) ** (1.0 / (len(self.free) + 1))
        for number in range(POINTS):
            values = dict(self.kept)
            for place, (name, each) in enumerate(self.free.items(), start=1):
                values[name] = each.at(math.modf(0.5 + number * ratio**-place)[0])
            yield {name: values[name] for name in self.system.ranges}

    def explore(self, budget: float) -> None:
        """Try the spread points, and improve the best of them for a budget."""
        for values in self.spread():
            if not self.known or now() < self.ends:
                self.numbers(values)
        for values in self.begin(budget):
            self.improved(values, budget, FIRST_STEP, COARSE_STEP)
        # Once more with a view to epsilon, see ``rank``.
        self.improved(self.begin(budget)[0], budget, FIRST_STEP, COARSE_STEP, 1.0)

    def begin(self, budget: float) -> list[Values]:
        """Return the best known settings for a budget."""
        names = list(self.system.ranges)
        known = (dict(zip(names, key, strict=True)) for key in self.known)
        return heapq.nsmallest(BEGINNINGS, known, key=lambda one: self.rank(one, budget))

    def improved(
        self, values: Values, budget: float, step: float, last: float, weight: float = 0.0
    ) -> Values:
        """Return a setting at which no step is an improvement."""
        rank = self.rank(values, budget, weight)
        while step > last:
            better = self._better(values, rank, budget, step, weight)
            if better is None:
                step /= 2.0
                continue
            values, rank = better
        return values

    def best(self, budget: float, step: float = COARSE_STEP) -> Values | None:
        """Return the best known setting within a budget, improved; None if there is none."""
        values = self.improved(self.begin(budget)[0], budget, step, LAST_STEP)
        excess, cost = self.rank(values, budget)
        return values if excess == 0.0 and cost < math.inf else None

    def _better(
        self,
        values: Values,
        rank: tuple[float, float],
        budget: float,
        step: float,
        weight: float,
    ) -> tuple[Values, tuple[float, float]] | None:
        """Return the best neighbour of a setting if it is better: of one move, or else of two."""
        for count in (1, 2):
            found = [
                (self.rank(each, budget, weight), each)
                for each in self._neighbours(values, step, count)
            ]
            if found and (least := min(found, key=lambda one: one[0]))[0] < rank:
                return least[1], least[0]
        return None

    def _neighbours(self, values: Values, step: float, count: int) -> Iterator[Values]:
        """Yield the settings in which some parameters are one step up or down, or exact."""
        ways = {
            name: [each.moved(values[name], step) for step in (-step, step)]
            + ([] if each.exact is None else [each.exact])
            for name, each in self.free.items()
        }
        for names in itertools.combinations(self.free, count):
            for chosen in itertools.product(*(ways[name] for name in names)):
                if now() > self.ends:
                    return
                moved = dict(zip(names, chosen, strict=True))
                if any(moved[name] != values[name] for name in names):
                    yield values | moved

    def edges(self, values: Values) -> Iterator[str]:
        """Yield the parameters at an end of their range that is no limit of the system."""
        for name, each in self.free.items():
            ends = {each.rounded(each.low), each.rounded(each.high)} - set(each.natural)
            if values[name] in ends:
                yield name
