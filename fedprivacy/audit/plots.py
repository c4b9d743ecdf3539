"""The plots of a report: SVG, a text description of each, and the plotted numbers."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Iterator, Mapping
from decimal import ROUND_CEILING, ROUND_FLOOR
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..bound import Verdict, exactly, shown
from ..errors import FedPrivacyError, needs
from ..mechanisms import Mechanism
from ..privacy_loss import without_upper
from ..questions.epsilon import epsilon, profile
from ..questions.risk import TradeoffCurve, tradeoff_curve
from .accounting import Audit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = NDArray[np.float64]


class Plot(NamedTuple):
    """A plot on the page.

    Attributes:
        caption: subject of the plot.
        alt: text for readers who cannot see the plot, with its numbers.
        svg: the drawing.
    """

    caption: str
    alt: str
    svg: str


class PlotLine(NamedTuple):
    """Points of one curve. ``lower`` is None if only the upper end is drawn."""

    x: Array
    upper: Array
    lower: Array | None = None

    def same_as(self, other: PlotLine) -> bool:
        """Return whether the two lines coincide in print."""
        # Lines at different rounds or rates cannot be compared point by point.
        same = np.array_equal(self.x, other.x)
        return same and np.allclose(self.upper, other.upper, rtol=2e-3, atol=0.0)

    def around(self, other: PlotLine) -> PlotLine:
        """Return one line whose ends hold for both of two coinciding lines."""
        lower = None
        if self.lower is not None and other.lower is not None:
            lower = np.minimum(self.lower, other.lower)
        return PlotLine(self.x, np.maximum(self.upper, other.upper), lower)


Corners = tuple[Array, Array]
"""The corners of a drawn line: x and y coordinates."""


def from_the_left(x: Array, y: Array) -> Corners:
    """Return steps that keep each value until the next point; never below a falling curve."""
    return np.repeat(x, 2)[1:], np.repeat(y, 2)[:-1]


def from_the_right(x: Array, y: Array) -> Corners:
    """Return steps that take each value from the point before.

    Between certified points the steps are never above a falling curve and never below a rising one.
    """
    return np.repeat(x, 2)[:-1], np.repeat(y, 2)[1:]


def chords_of_delta(x: Array, y: Array) -> Corners:
    """Return a line that is never below a privacy profile with these upper ends at ``x``.

    Delta is convex in e^epsilon, not in epsilon, so chords are straight in e^epsilon. The chords
    are drawn as small steps, which are never lower, on any axes.
    """
    left, right = x[:-1, None], x[1:, None]
    at = left + (right - left) * np.linspace(0.0, 1.0, 4, endpoint=False)
    # Fractions of the way in e^epsilon, by differences that cannot overflow.
    passed = (np.exp(at - right) - np.exp(left - right)) / -np.expm1(left - right)
    value = y[:-1, None] * (1.0 - passed) + y[1:, None] * passed
    return from_the_left(np.append(at, x[-1]), np.append(value, y[-1]))


def points(x: Array, y: Array) -> Corners:
    """Return straight lines between points, for measured values."""
    return x, y


class Look(NamedTuple):
    """How lines of one kind are drawn and described.

    Attributes:
        finish: sets up the axes.
        upper: line between upper ends.
        lower: line between lower ends.
        ends: the ends that the text names: "at most" for upper ends, "at least" for lower ends, ""
            for measured values.
    """

    finish: Callable[[Axes], None]
    upper: Callable[[Array, Array], Corners] = points
    lower: Callable[[Array, Array], Corners] = from_the_right
    ends: str = ""


def needs_matplotlib() -> None:
    """Raise ParameterError if matplotlib is missing; called before anything is drawn."""
    with needs("a plot", "'fedprivacy[report]'", "matplotlib"):
        import matplotlib  # noqa: F401


def composes(found: Audit) -> bool:
    """Return whether an audit has numbers to draw: rounds fixed beforehand, and not void."""
    # The bound of a filter belongs to no fixed run, so there is no epsilon by round.
    bound = found.bounds[str(found.facts.observer)].get("pld")
    if found.run is None or bound is None or found.void:
        return False
    return bound.upper < math.inf or without_upper(bound.theorems) is None


def plots_of(
    accuracies: Mapping[str, tuple[Array, Array]],
    audits: Mapping[str, Audit],
    by_round: Mapping[str, tuple[list[int], list[float]]],
) -> list[Plot]:
    """Return the plots for which the runs have data.

    Args:
        accuracies: rounds and the accuracies after them, by name.
        audits: audits that can be drawn, by name; see ``composes``.
        by_round: rounds and epsilons of the same audits; see ``epsilon_by_round``.
    """
    found = []
    if accuracies:
        lines = {name: PlotLine(*pair) for name, pair in accuracies.items()}
        found.append(_plot("Accuracy by round", lines, Look(_with_accuracy)))
    if audits:
        found += _certified(audits, by_round)
    return found


def _certified(
    audits: Mapping[str, Audit], by_round: Mapping[str, tuple[list[int], list[float]]]
) -> Iterator[Plot]:
    """Yield the plots of certified numbers."""
    # A single point gives no curve. A release of all rounds at once has only one.
    course = {name: pair for name, pair in by_round.items() if len(pair[0]) > 1}
    endless = [name for name, (_, values) in course.items() if not np.isfinite(values).any()]
    if len(course) > len(endless):
        yield _epsilons(audits, course, endless)
    caption = "Privacy profile: delta at each epsilon"
    profiles = _drawn(audits, _profile)
    look = Look(_with_delta, chords_of_delta, from_the_right, "at most")
    yield _plot(*_about(caption, audits, profiles), look)
    tradeoffs = _drawn(audits, _tradeoff)
    if tradeoffs:
        caption = "Trade-off: false-negative rate of the best attack at each false-positive rate"
        look = Look(_with_rates, from_the_left, from_the_right, "at least")
        yield _plot(*_about(caption, audits, tradeoffs), look)


def _about(
    caption: str,
    audits: Mapping[str, Audit],
    lines: Mapping[str, PlotLine],
    more: Callable[[Audit], list[str]] = lambda found: [],
) -> tuple[str, dict[str, PlotLine]]:
    """Return a caption and named lines that state their subject and conditions.

    Conditions shared by all lines go into the caption. The others go with the names of the lines.
    """
    words = {
        name: [*more(found), *map(str, (*found.facts[1:], *found.conditions))]
        for name, found in audits.items()
        if name in lines
    }
    shared = in_all(list(words.values()))
    own = {name: [word for word in each if word not in shared] for name, each in words.items()}
    named = {_with(name, own[name]): line for name, line in lines.items()}
    return _with(caption, shared), named


def in_all(lists: list[list[Any]]) -> list[Any]:
    """Return the items that are in all of several lists."""
    first, *rest = lists or [[]]
    return [item for item in first if all(item in other for other in rest)]


def _with(text: str, words: list[str]) -> str:
    return f"{text} ({', '.join(words)})" if words else text


def _drawn(audits: Mapping[str, Audit], line: Callable[[Audit], PlotLine]) -> dict[str, PlotLine]:
    lines = {}
    for name, found in audits.items():
        try:
            lines[name] = line(found)
        except (FedPrivacyError, OverflowError):
            continue  # no theorem applies, or the curve cannot have this value
    return lines


# ---- the numbers


def epsilon_by_round(found: Audit, points: int = 12) -> tuple[list[int], list[float]]:
    """Return (rounds, certified epsilons after them) at about ``points`` points of a run.

    Rounds are counted as in the account: an epoch drawn as a whole is one round. Only the last
    point is returned in two cases. Either the run has several kinds of rounds, which are stored
    without their order, or the account includes more than the rounds of this run (other runs on the
    same data).
    """
    assert found.run is not None
    steps = found.run.sequence()
    total = sum(count for _, count in steps)
    if len(steps) > 1 or total != found.rounds:
        return [found.rounds], [found.bound.upper]
    # The last epsilon is the audit's own result and needs no second computation.
    *moments, last = sorted({round(r) for r in np.linspace(1, total, points)})
    values = [
        epsilon(
            steps[0][0] * count,
            delta=found.claim[1],
            adjacency=found.facts.adjacency,
            observer=found.facts.observer,
            # Half a percent of the plot's height is not visible.
            tolerance=0.005 * min(max(found.bound.upper, 0.1), 10.0),
        ).upper
        for count in moments
    ]
    return [*moments, last], [*values, found.bound.upper]


MOST = 10
"""The search for further rounds stops at this multiple of the number of rounds that ran."""


def further_rounds(found: Audit) -> int | None:
    """Return the number of further rounds that the claim allows for certain.

    The further rounds are like those of the run. The number is a lower end: the search is accurate
    to 2 %, and stops at ``MOST`` times the rounds that ran. None if the claim does not hold, if the
    rounds are of several kinds, or if the run is not a composition of the counted rounds. An
    example is correlated noise, with one release of all rounds.
    """
    run = found.run
    assert run is not None
    steps = run.sequence()
    total = sum(count for _, count in steps)
    if found.verdict is not Verdict.HOLDS or total != found.rounds or len(steps) > 1:
        return None
    return _most(partial(_fits, found, steps[0][0]), MOST * total)


def _fits(found: Audit, step: Mechanism, count: int) -> bool:
    """Return whether the claim still holds, by the upper end, after ``count`` further rounds."""
    assert found.run is not None
    whole = epsilon(
        found.run + step * count,
        delta=found.claim[1],
        adjacency=found.facts.adjacency,
        observer=found.facts.observer,
        tolerance=0.005 * min(max(found.claim[0], 0.1), 10.0),
    )
    return whole.upper <= found.claim[0]


def _most(fits: Callable[[int], bool], limit: int) -> int:
    """Return the largest number up to a limit that fits, to 2 %. All smaller ones must fit too."""
    good, bad = 0, 1
    while bad <= limit and fits(bad):
        good, bad = bad, 2 * bad
    bad = min(bad, limit + 1)
    while bad - good > max(1, bad // 50):
        middle = (good + bad) // 2
        good, bad = (middle, bad) if fits(middle) else (good, middle)
    return good


def _profile(found: Audit) -> PlotLine:
    assert found.run is not None
    # Draw up to 1.5 times the certified epsilon, or up to 10 if epsilon is infinite.
    reach = max(1.5 * found.bound.upper, 0.5) if math.isfinite(found.bound.upper) else 10.0
    # Few digits, so that the text can state the value exactly.
    reach = float(shown(reach, 2, ROUND_CEILING))
    curve = profile(
        found.run,
        epsilons=np.linspace(0.0, reach, 29),
        adjacency=found.facts.adjacency,
        observer=found.facts.observer,
        tolerance=0.1,
    )
    return PlotLine(np.asarray(curve.epsilons), np.asarray(curve.upper), np.asarray(curve.lower))


_RATES = sorted({k / n for n, most in ((4000, 10), (400, 10), (160, 160)) for k in range(most + 1)})
"""Plotted false-positive rates: dense near 0, where curves are steep and attacks matter."""


def _tradeoff(found: Audit) -> PlotLine:
    assert found.run is not None
    curve = tradeoff_curve(
        found.run,
        adjacency=found.facts.adjacency,
        observer=found.facts.observer,
        fpr=_RATES,
        tolerance=0.05,
    )
    return between_rates(curve, "upper")


def between_rates(curve: TradeoffCurve, ends: str) -> PlotLine:
    """Return the curve at many false-positive rates, computed from the queried rates.

    The false-negative rate falls as the false-positive rate rises. A lower end at one rate
    therefore holds for every smaller rate, while a chord would lie above the certified values. For
    upper ends ("upper" or "attained"), the chords of each attacker are valid, because the attacker
    may choose between two tests at random.
    """
    order = np.argsort(curve.fpr)
    fpr = curve.fpr[order]
    rates = np.union1d(fpr, np.linspace(fpr[0], fpr[-1], 201))
    attackers = curve.present_to_absent, curve.absent_to_present
    chords = (np.interp(rates, fpr, getattr(one, ends)[order]) for one in attackers)
    lower = curve.worst.lower[order][np.searchsorted(fpr, rates)]
    return PlotLine(rates, np.minimum(*chords), lower)


# ---- drawing


def _epsilons(
    audits: Mapping[str, Audit],
    by_round: Mapping[str, tuple[list[int], list[float]]],
    endless: list[str],
) -> Plot:
    lines = {
        name: PlotLine(np.asarray(rounds, float), np.asarray(values))
        for name, (rounds, values) in by_round.items()
        if name not in endless
    }
    claims = sorted({found.claim[0] for found in audits.values()})
    caption = "Epsilon by round, certified upper end"
    if endless:
        caption += f"; no finite epsilon for {', '.join(endless)}"

    def finish(axes: Axes) -> None:
        from matplotlib.ticker import MaxNLocator

        across = axes.get_yaxis_transform()
        for claim in claims:
            text = f"claimed: {exactly(claim)}"
            axes.axhline(claim, color="0.4", linewidth=0.8)
            axes.annotate(
                text, (0.02, claim), xycoords=across, fontsize=10, va="bottom", color="0.3"
            )
        axes.set(xlabel="round", ylabel="epsilon", ylim=(0, 1.08 * axes.get_ylim()[1]))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))

    # Epsilon rises, so the value at the next point is an upper end up to that point.
    look = Look(finish, upper=from_the_right, ends="at most")
    return _plot(*_about(caption, audits, lines, _at_delta), look)


def _at_delta(found: Audit) -> list[str]:
    return [f"delta = {exactly(found.claim[1])}"]


def _with_accuracy(axes: Axes) -> None:
    axes.set(xlabel="round", ylabel="test accuracy", ylim=(0, 1))


def _with_delta(axes: Axes) -> None:
    axes.set(xlabel="epsilon", ylabel="delta", yscale="log")


def _with_rates(axes: Axes) -> None:
    axes.plot([0, 1], [1, 0], color="0.6", linewidth=0.8)
    axes.annotate("guessing", (0.5, 0.51), fontsize=10, color="0.3")
    axes.set(xlabel="false-positive rate", ylabel="false-negative rate", xlim=(0, 1), ylim=(0, 1))


_NO_METADATA = ("Date", "Creator", "Format", "Type")
_STYLES = ("-", "--", "-.", ":")


def _plot(caption: str, lines: Mapping[str, PlotLine], look: Look) -> Plot:
    import matplotlib
    from matplotlib.figure import Figure

    together = _labelled_once(lines)
    with matplotlib.rc_context(
        {"svg.fonttype": "none", "font.size": 10, "svg.hashsalt": "fedprivacy"}
    ):
        figure = Figure(figsize=(5.2, 3.4), layout="constrained")
        axes = figure.add_subplot()
        for index, (name, line) in enumerate(together.items()):
            _draw(axes, name, line, look, _STYLES[index % 4])
        look.finish(axes)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        if len(together) > 1:
            axes.legend(frameon=False, fontsize=10)
        buffer = io.StringIO()
        # Without dates, equal reports are equal files.
        figure.savefig(buffer, format="svg", metadata=dict.fromkeys(_NO_METADATA))
    svg = buffer.getvalue()
    # Several plots share a page, so their ids must differ.
    own = f"plot-{re.sub('[^a-z]+', '-', caption.lower())}-"
    unique = re.sub(r'(\bid="|href="#|url\(#)', lambda found: found[1] + own, svg)
    hidden = unique[unique.index("<svg") :].replace("<svg", '<svg aria-hidden="true"', 1)
    return Plot(caption, f"{caption}. {_described_points(together, look.ends)}", hidden)


def _draw(axes: Axes, name: str, line: PlotLine, look: Look, style: str) -> None:
    above = look.upper(line.x, line.upper)
    drawn: Any = axes.plot(*above, style, label=literal(name))[0]
    if line.lower is not None:
        color = drawn.get_color()
        below = look.lower(line.x, line.lower)
        axes.plot(*below, style, color=color, linewidth=0.6)
        around = (np.append(up, down[::-1]) for up, down in zip(above, below, strict=True))
        axes.fill(*around, alpha=0.2, color=color, linewidth=0.0)


def _labelled_once(lines: Mapping[str, PlotLine]) -> dict[str, PlotLine]:
    """Return lines by name; coinciding lines become one line with all their names."""
    found: list[tuple[str, PlotLine]] = []
    for name, line in lines.items():
        place = next((i for i, (_, one) in enumerate(found) if one.same_as(line)), None)
        if place is None:
            found.append((name, line))
        else:
            names, one = found[place]
            found[place] = f"{names}, {name}", one.around(line)
    return dict(found)


def _described_points(lines: Mapping[str, PlotLine], ends: str) -> str:
    """Return the first, middle and last point of every line in words; see ``Look.ends``."""
    text = []
    for name, line in lines.items():
        places = dict.fromkeys([0, len(line.x) // 2, len(line.x) - 1])
        said = ", ".join(f"{_value(line, i, ends)} at {exactly(line.x[i])}" for i in places)
        text.append(f"{name}: {said}")
    return "; ".join(text) + "."


def _value(line: PlotLine, place: int, ends: str) -> str:
    if ends == "at least" and line.lower is not None:
        return f"at least {shown(line.lower[place], 3, ROUND_FLOOR)}"
    upper = line.upper[place]
    return f"at most {shown(upper, 3, ROUND_CEILING)}" if ends else f"{upper:.3g}"


def literal(name: str) -> str:
    """Return a name that matplotlib prints literally: a dollar sign starts no formula.

    A name that begins with an underscore also stays in the legend.
    """
    whole = name.replace("$", r"\$")
    return f"\u200b{whole}" if whole.startswith("_") else whole
