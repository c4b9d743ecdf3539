"""Compare settings: certified epsilon against accuracy, bytes, time or error.

A setting *dominates* another under two conditions: its certified epsilon, rounded up as it is
shown, and all its costs are at least as good, and one of them is better. The settings that no other
setting dominates are the **front**. Any other setting is worse than one on the front.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING
from itertools import accumulate
from os import PathLike
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from ..audit.accounting import account
from ..audit.plots import literal
from ..bound import Bound, exactly, shown
from ..errors import (
    UnsupportedCombination,
    integer,
    listed,
    member,
    non_negative,
    open_unit,
    refuse,
)
from ..ledger import Ledger
from ..outputs import printable
from ..questions.effort import Effort
from ..questions.epsilon import Accountable
from ..questions.epsilon import epsilon as epsilon_of
from ..relations import Adjacency, Observer
from .pictures import check_picture, write_picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Source = Accountable | Ledger | str | PathLike[str]
"""A source of an epsilon: a mechanism, an open ledger, or the path of a ledger."""

Value = float | Sequence[float]
"""One number, or one for each repeat of a run. The mean is compared, the spread is shown."""

Cost = Value | Mapping[str, Value]
"""One cost, called "cost", or several by name."""

Runs = Mapping[Any, Any] | Iterable[tuple[Any, Any]]
"""Label -> source, or label -> (source, cost)."""

DIGITS = 5
"""Default number of digits of an epsilon that are compared and shown."""

_NO_COST = "cost"
_MOST_NAMES = 12
"""A larger front is drawn without numbers and names."""
_WIDE = 30.0
"""A larger ratio between epsilons or costs gives a logarithmic axis."""


@dataclass(frozen=True, kw_only=True)
class ComparedSetting:
    """One setting of a comparison.

    Attributes:
        label: the label of the setting: any value, or a mapping of parameters.
        bound: its certified epsilon; None if no theorem gives one.
        costs: (name, value) pairs, in the order of ``Pareto.costs``; means over repeated runs.
        spreads: (name, standard deviation) of costs that were measured more than once.
        refused: why the setting is excluded; empty if it is included.
        on_front: whether no other setting dominates it.
    """

    label: Any
    bound: Bound | None
    costs: tuple[tuple[str, float], ...]
    spreads: tuple[tuple[str, float], ...] = ()
    refused: str = ""
    on_front: bool = False

    @property
    def epsilon(self) -> float:
        """The certified epsilon that may be published; inf if there is none."""
        return math.inf if self.bound is None else self.bound.upper

    @property
    def depends(self) -> str:
        """Conditions on the epsilon outside the run, for example that the seed stays secret."""
        return "" if self.bound is None else ", ".join(self.bound.qualified)

    @property
    def name(self) -> str:
        """The label in words."""
        return in_words(self.label)

    def cost(self, name: str) -> float:
        """Return the cost with this name."""
        return dict(self.costs)[name]

    def spread(self, name: str) -> float:
        """Return the standard deviation of this cost over repeated runs; 0 for one run."""
        return dict(self.spreads).get(name, 0.0)

    def to_dict(self) -> dict[str, Any]:
        """Return the setting as plain JSON values."""
        return {
            "setting": self.name,
            "epsilon": None if self.bound is None else self.bound.to_dict(),
            "costs": {key: value if math.isfinite(value) else None for key, value in self.costs},
            "spreads": dict(self.spreads),
            "refused": self.refused,
            "on_front": self.on_front,
        }


@dataclass(frozen=True, kw_only=True)
class Pareto:
    """The result of a comparison.

    Attributes:
        settings: every setting, in the given order.
        costs: the names of the costs.
        maximise: the costs for which more is better.
        delta: the delta of all epsilons.
        adjacency: how neighbouring data sets differ.
        observer: who sees the outputs.
        budget: the largest epsilon for ``best``; None for any.
        digits: number of digits of an epsilon that are compared and shown.
    """

    settings: tuple[ComparedSetting, ...]
    costs: tuple[str, ...]
    maximise: frozenset[str]
    delta: float
    adjacency: Adjacency
    observer: Observer
    budget: float | None = None
    digits: int = DIGITS

    @property
    def front(self) -> tuple[ComparedSetting, ...]:
        """The settings that no other setting dominates, by rising epsilon."""
        return tuple(sorted((s for s in self.settings if s.on_front), key=lambda s: s.epsilon))

    @property
    def _taking(self) -> tuple[ComparedSetting, ...]:
        """The settings that are not refused."""
        return tuple(setting for setting in self.settings if not setting.refused)

    @property
    def refused(self) -> tuple[ComparedSetting, ...]:
        """The refused settings; each has its reason."""
        return tuple(setting for setting in self.settings if setting.refused)

    def best(
        self, cost: str | None = None, *, epsilon: float | None = None
    ) -> ComparedSetting | None:
        """Return the setting with the best cost within a budget.

        Args:
            cost: name of the cost; None for the first.
            epsilon: the budget; None for ``self.budget``. Without either, any epsilon is allowed.

        Returns:
            The setting. Among equal costs, a setting of the front comes first, then the most
            private one. None if no setting is within the budget.

        Raises:
            ParameterError: an unknown cost, or a budget that is not a finite number from 0.
        """
        name = self.costs[0] if cost is None else cost
        if name not in self.costs:
            refuse("cost", name, f"be one of {listed(self.costs)}")
        limit = self.budget if epsilon is None else non_negative(epsilon=epsilon)
        sign = -1.0 if name in self.maximise else 1.0
        within = [s for s in self._taking if limit is None or s.epsilon <= limit]
        return min(
            within, key=lambda s: (sign * s.cost(name), not s.on_front, s.epsilon), default=None
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as plain JSON values."""
        best = {name: self.best(name) for name in self.costs}
        return {
            "delta": self.delta,
            "adjacency": str(self.adjacency),
            "observer": str(self.observer),
            "budget": self.budget,
            "costs": list(self.costs),
            "maximise": sorted(self.maximise),
            "settings": [setting.to_dict() for setting in self.settings],
            "front": [setting.name for setting in self.front],
            "best": {name: None if s is None else s.name for name, s in best.items()},
        }

    @property
    def _question(self) -> str:
        """The meaning of epsilon, in words."""
        return f"epsilon at delta = {exactly(self.delta)} ({self.adjacency}, {self.observer})"

    def table(self) -> str:
        """Return the comparison as text: the front first, then dominated and refused settings."""
        costs = (f"{name} (more)" if name in self.maximise else name for name in self.costs)
        ordered = sorted(self._taking, key=lambda s: (not s.on_front, s.epsilon))
        rows = [[*_cells(setting, self.digits), setting.name] for setting in ordered]
        lines = _aligned([["", "epsilon", *costs, "setting"], *rows])
        lines += _grouped("refused", ((s.refused, s.name) for s in self.refused))
        lines += _grouped("not comparable", ((s.depends, s.name) for s in self._taking))
        whole = [f"{self._question}, rounded up; * marks the front", *lines, *self._budget_lines()]
        return "\n".join(map(printable, whole))

    def _budget_lines(self) -> list[str]:
        if self.budget is None:
            return []
        lines = []
        for name in self.costs:
            best = self.best(name)
            found = "none" if best is None else f"{best.name} ({name} = {best.cost(name):g})"
            lines.append(f"best {name} within epsilon = {exactly(self.budget)}: {found}")
        return lines

    def plot(self, path: str | PathLike[str]) -> Path:
        """Write a picture. The ending of the file name sets the format.

        There is one panel for each cost that differs between settings. If a few settings have one
        epsilon, to the digits shown, each gets a line instead of a position at its epsilon.

        Raises:
            ParameterError: every setting was refused, or see ``check_picture``.
            OSError: the file cannot be written.
        """
        taking = self._taking
        if not taking:
            refuse(
                "settings", [s.name for s in self.refused], "contain a setting that was not refused"
            )
        # A cost that is equal for all settings gets no panel, unless there is no other cost.
        costs = [name for name in self.costs if len(set(self._drawn(name))) > 1] or self.costs
        check_picture(path)
        at = {shown(setting.epsilon, self.digits, ROUND_CEILING) for setting in taking}
        if len(at) == 1 < len(taking) <= _MOST_NAMES:
            return write_picture(_side_by_side(self, taking, costs, at.pop()), path)
        return write_picture(_panels(self, costs), path)

    def _drawn(self, name: str) -> list[float]:
        """Return a cost of every setting that is not refused."""
        return [setting.cost(name) for setting in self._taking]


def pareto(
    runs: Runs,
    *,
    delta: float,
    adjacency: Adjacency | str,
    observer: Observer | str = Observer.AGGREGATE,
    cost: Callable[[Any], Cost] | None = None,
    maximise: Collection[str] | str = (),
    epsilon: float | None = None,
    accountant: str = "pld",
    tolerance: float = 1e-3,
    deadline: float | None = None,
    digits: int = DIGITS,
) -> Pareto:
    """Compare settings by certified epsilon and by cost.

    Args:
        runs: label -> source, or label -> (source, cost). It is a mapping, or pairs if a label is a
            plain dict of parameters. A source is a mechanism, a ledger or a ledger's path.
        delta: in (0, 1).
        adjacency: how neighbouring data sets differ; the same for all settings.
        observer: who sees the outputs; the same for all settings.
        cost: label -> cost, for sources given without one. A cost is a number (its name is then
            "cost") or numbers by name: loss, a W2 distance, seconds, bytes. Instead of a number, a
            list is allowed, with one number for each repeat under another seed. The mean is
            compared, so the best setting is never only the luckiest seed. The standard deviation is
            shown.
        maximise: the costs for which more is better, for example accuracy.
        epsilon: a budget for ``best`` and the table.
        accountant: "pld", "rdp" or "advanced".
        tolerance: wanted width of each interval.
        deadline: seconds for the whole comparison; see ``epsilon``. Settings after the deadline
            have wider intervals.
        digits: epsilons are rounded up to this many digits before the comparison. Settings that
            differ by less are equally private.

    Returns:
        A Pareto. Epsilons are certified upper ends, so the front compares publishable numbers. If
        two settings are closer than the widths of their intervals, their true order may be
        reversed. A setting is kept but refused if no theorem covers it, if its epsilon is infinite,
        or if one of its costs is not finite.

    Raises:
        ParameterError: a value that breaks its rule, or settings with different costs or units.
        LedgerError: a ledger that cannot be read.

    >>> import fedprivacy as fp
    >>> found = fp.pareto(
    ...     {z: fp.Gaussian(noise_multiplier=z) * 100 for z in (5.0, 10.0, 20.0)},
    ...     cost=lambda z: z, delta=1e-5, adjacency="add_remove", epsilon=5.0,
    ... )
    >>> found.best().label, [setting.label for setting in found.front]
    (10.0, [20.0, 10.0, 5.0])
    """
    effort = Effort(accountant, tolerance, deadline)
    facts = member(Adjacency, adjacency=adjacency), member(Observer, observer=observer)
    at = open_unit(delta=delta)
    budget = None if epsilon is None else non_negative(epsilon=epsilon)
    rounded = integer(1, digits=digits)
    given = _split(runs, cost)
    names = _cost_names(given)
    more = frozenset([maximise] if isinstance(maximise, str) else maximise)
    if not more <= set(names):
        refuse("maximise", sorted(more - set(names)), f"name costs out of {listed(names)}")
    settings = []
    for label, source, costs in given:
        setting = _without_epsilon(label, {name: costs[name] for name in names})
        settings.append(_judged(setting, source, at, *facts, effort))
    _check_units(settings)
    return Pareto(
        settings=tuple(_with_front(settings, more, rounded)),
        costs=names,
        maximise=more,
        delta=at,
        adjacency=facts[0],
        observer=facts[1],
        budget=budget,
        digits=rounded,
    )


def _without_epsilon(label: Any, costs: dict[str, list[float]]) -> ComparedSetting:
    means = tuple((name, fmean(values)) for name, values in costs.items())
    spreads = tuple((name, stdev(values)) for name, values in costs.items() if len(values) > 1)
    return ComparedSetting(label=label, bound=None, costs=means, spreads=spreads)


def _judged(setting: ComparedSetting, source: Source, *question: Any) -> ComparedSetting:
    """Return a setting with its epsilon, or with the reason for its refusal."""
    try:
        bound = _epsilon(source, *question)
    except UnsupportedCombination as problem:
        return dataclasses.replace(setting, refused=str(problem))
    endless = (name for name, value in setting.costs if not math.isfinite(value))
    reason = next((f"its {name} is not finite" for name in endless), "")
    if math.isinf(bound.upper):
        reason = "it has no finite certified epsilon"
    return dataclasses.replace(setting, bound=bound, refused=reason)


def _split(
    runs: Runs, cost: Callable[[Any], Cost] | None
) -> list[tuple[Any, Source, dict[str, list[float]]]]:
    """Return (label, source, costs by name) of every setting."""
    if not isinstance(runs, Iterable) or isinstance(runs, str):
        way_out = "pass {label: mechanism, ...}, for example"
        refuse("runs", type(runs).__name__, "be a mapping or pairs", way_out)
    pairs = list(runs.items()) if isinstance(runs, Mapping) else list(runs)
    if not pairs:
        refuse("runs", runs, "contain at least one setting")
    found = [_priced(pair, cost) for pair in pairs]
    words = [in_words(label) for label, _, _ in found]
    # Tables name settings by their labels.
    twice = {name for name in words if words.count(name) > 1}
    if twice:
        refuse("runs", sorted(twice)[0], "have different labels")
    return found


def _priced(
    pair: Any, cost: Callable[[Any], Cost] | None
) -> tuple[Any, Source, dict[str, list[float]]]:
    if not (isinstance(pair, tuple) and len(pair) == 2):
        refuse("runs", pair, "be a mapping, or (label, source) pairs")
    label, source = pair
    if isinstance(source, tuple) and len(source) == 2:
        source, price = source
    elif cost is not None:
        price = cost(label)
    else:
        refuse("cost", cost, f"be given for {in_words(label)!r}", "or give (source, cost)")
    return label, source, _named(label, price)


def _named(label: Any, price: Any) -> dict[str, list[float]]:
    """Return the values of every cost by name, one for each repeat."""
    named = dict(price) if isinstance(price, Mapping) else {_NO_COST: price}
    if not named:
        refuse("cost", price, f"contain at least one number for {in_words(label)!r}")
    return {name: _values(f"{name} of {in_words(label)!r}", each) for name, each in named.items()}


def _values(name: str, given: Any) -> list[float]:
    repeats = list(given) if isinstance(given, list | tuple) else [given]
    try:
        found = [float(value) for value in repeats]
    except (TypeError, ValueError, OverflowError):
        refuse(name, given, "be a number, or one per repeat")
    if not found:
        refuse(name, given, "contain at least one number")
    return found


def _cost_names(given: list[tuple[Any, Source, dict[str, list[float]]]]) -> tuple[str, ...]:
    names = tuple(given[0][2])
    for label, _, costs in given:
        if set(costs) != set(names):
            refuse(f"cost of {in_words(label)!r}", sorted(costs), f"have the names {sorted(names)}")
    return names


def _epsilon(
    source: Source,
    delta: float,
    adjacency: Adjacency,
    observer: Observer,
    effort: Effort,
) -> Bound:
    question: dict[str, Any] = {"adjacency": adjacency, "observer": observer}
    question |= {"accountant": effort.accountant, "tolerance": effort.tolerance}
    question["deadline"] = effort.left
    if isinstance(source, Ledger | str | PathLike):
        return account(source, delta=delta, **question)
    return epsilon_of(source, delta=delta, **question)


def _check_units(settings: list[ComparedSetting]) -> None:
    """Refuse settings that protect different units: their epsilons are not comparable."""
    stated: dict[Any, ComparedSetting] = {}
    for setting in settings:
        if setting.bound is not None and setting.bound.unit is not None:
            stated.setdefault(setting.bound.unit, setting)
    if len(stated) > 1:
        words = " and ".join(f"{s.name!r} ({unit})" for unit, s in stated.items())
        refuse("unit", words, "be the same for all settings", "compare the two units separately")


def _with_front(
    settings: list[ComparedSetting], maximise: frozenset[str], digits: int
) -> list[ComparedSetting]:
    """Return the settings, with the settings of the front marked."""
    pairs = [(setting, _point(setting, maximise, digits)) for setting in settings]
    taking = [point for setting, point in pairs if not setting.refused]

    def leads(setting: ComparedSetting, point: tuple[float, ...]) -> bool:
        return not setting.refused and not any(_dominates(other, point) for other in taking)

    return [dataclasses.replace(one, on_front=leads(one, point)) for one, point in pairs]


def _point(setting: ComparedSetting, maximise: frozenset[str], digits: int) -> tuple[float, ...]:
    """Return epsilon and costs with signs so that smaller is better."""
    costs = (-value if name in maximise else value for name, value in setting.costs)
    # Rounded as shown: settings that print the same epsilon are equally private.
    return float(shown(setting.epsilon, digits, ROUND_CEILING)), *costs


def _dominates(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    # Equal points do not dominate each other: both are on the front.
    return one != other and all(a <= b for a, b in zip(one, other, strict=True))


def in_words(label: Any) -> str:
    """Return a label as text; a mapping, a named tuple or a dataclass as ``name = value``."""
    if dataclasses.is_dataclass(label) and not isinstance(label, type):
        label = {f.name: getattr(label, f.name) for f in dataclasses.fields(label)}
    elif hasattr(label, "_asdict"):
        label = label._asdict()
    if isinstance(label, Mapping):
        return ", ".join(f"{name} = {value}" for name, value in label.items())
    return str(label)


def _cells(setting: ComparedSetting, digits: int) -> list[str]:
    mark = "*" if setting.on_front else ""
    spreads = dict(setting.spreads)
    costs = [
        f"{value:.6g}" + (f" ± {spreads[name]:.2g}" if name in spreads else "")
        for name, value in setting.costs
    ]
    return [mark, shown(setting.epsilon, digits, ROUND_CEILING), *costs]


def _grouped(what: str, pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Return a line for each reason, with the names of the settings that have it."""
    found: dict[str, list[str]] = {}
    for reason, name in pairs:
        found.setdefault(reason, []).append(name)
    # Settings without a reason get no line.
    return [f"{what}: {'; '.join(names)}: {reason}" for reason, names in found.items() if reason]


def _aligned(rows: list[list[str]]) -> list[str]:
    """Return rows as lines: columns aligned to the right, the last one to the left."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)]
    return [
        "  ".join([*(cell.rjust(w) for cell, w in zip(row, widths, strict=False)), row[-1]])
        for row in rows
    ]


def _panels(found: Pareto, costs: Sequence[str]) -> Figure:
    """Draw every cost against epsilon, with a legend that names the front."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    named = found.front if len(found.front) <= _MOST_NAMES else ()
    size = 5.6 * len(costs), 3.6 + 0.17 * len(named)
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(1, len(costs), squeeze=False)[0]
    for name, axes in zip(costs, panels, strict=True):
        _draw(axes, found, name, named)
    handles, words = panels[0].get_legend_handles_labels()
    for number, setting in enumerate(named, start=1):
        handles.append(Line2D([], [], linestyle="none"))
        words.append(literal(f"{number}: {setting.name}"))
    figure.legend(handles, words, loc="outside lower left", frameon=False, fontsize=8)
    return figure


def _side_by_side(
    found: Pareto, taking: Sequence[ComparedSetting], costs: Sequence[str], at: str
) -> Figure:
    """Draw settings with one epsilon below each other, their costs along the axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.2 + 3.2 * len(costs), 1.4 + 0.3 * len(taking)), layout="constrained")
    panels = figure.subplots(1, len(costs), squeeze=False, sharey=True)[0]
    for name, axes in zip(costs, panels, strict=True):
        for place, setting in enumerate(taking):
            colour = "C0" if setting.on_front else "0.65"
            bar = setting.spread(name) if setting.spreads else None
            axes.errorbar(
                setting.cost(name), place, xerr=bar, fmt="o", markersize=5, capsize=2, color=colour
            )
        axes.set(xlabel=literal(name))
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        axes.margins(0.12)
    panels[0].set_yticks(range(len(taking)), [literal(s.name) for s in taking], fontsize=8)
    panels[0].invert_yaxis()
    title = f"{found._question}: {at}; the front is blue"
    figure.suptitle(title, fontsize=9)
    return figure


def _draw(axes: Axes, found: Pareto, name: str, named: tuple[ComparedSetting, ...]) -> None:
    """Draw one cost against epsilon. The line is the best cost within each budget."""
    off = [setting for setting in found._taking if not setting.on_front]
    _dots(axes, off, name, color="0.65", label="dominated")
    _dots(axes, found.front, name, color="C0", label="front")
    better = max if name in found.maximise else min
    reached = list(accumulate((s.cost(name) for s in found.front), better))
    # Between two settings, a budget allows the one with the smaller epsilon.
    axes.plot([s.epsilon for s in found.front], reached, "-", drawstyle="steps-post", color="C0")
    if found.budget is not None:
        axes.axvline(found.budget, color="0.3", linewidth=0.8, linestyle="--", label="budget")
    for number, setting in enumerate(named, start=1):
        at_dot = setting.epsilon, setting.cost(name)
        offset = {"xytext": (5, 5), "textcoords": "offset points"}
        axes.annotate(str(number), at_dot, fontsize=8, color="0.3", **offset)  # type: ignore[arg-type]
    _dress(axes, found, name)


def _dots(axes: Axes, settings: Sequence[ComparedSetting], name: str, **how: str) -> None:
    """Draw settings as dots, with bars if runs were repeated."""
    at = [s.epsilon for s in settings], [s.cost(name) for s in settings]
    bars = [s.spread(name) for s in settings] if any(s.spreads for s in settings) else None
    axes.errorbar(*at, bars, fmt="o", markersize=5, capsize=2, **how)  # type: ignore[arg-type]


def _dress(axes: Axes, found: Pareto, name: str) -> None:
    """Scale and label a panel. Values with a large ratio get a logarithmic axis."""
    if _wide([setting.epsilon for setting in found._taking]):
        axes.set_xscale("log")
    if _wide(found._drawn(name)):
        axes.set_yscale("log")
    axes.margins(0.12)
    axes.set(
        xlabel=found._question,
        ylabel=literal(name),
    )
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def _wide(values: list[float]) -> bool:
    # Logarithms need values above 0.
    return min(values) > 0.0 and max(values) > _WIDE * min(values)
