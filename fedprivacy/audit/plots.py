"""The plots of a report, as SVG with a sentence that says the same; the numbers that they show."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..bound import Verdict
from ..errors import FedPrivacyError
from ..mechanisms import Mechanism
from ..questions.epsilon import epsilon, profile
from ..questions.risk import tradeoff_curve
from .account import Audit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = NDArray[np.float64]


class Plot(NamedTuple):
    """A plot on the page.

    Attributes:
        caption: what it shows.
        alt: the same for whoever does not see it, with its numbers.
        svg: the drawing.
    """

    caption: str
    alt: str
    svg: str


class Line(NamedTuple):
    """One certified curve; ``lower`` is None where only the upper end is drawn."""

    x: Array
    upper: Array
    lower: Array | None = None

    def same_as(self, other: Line) -> bool:
        """Return whether two lines lie on each other in print."""
        # Lines of other rounds or rates cannot be compared point by point.
        if self.x.shape != other.x.shape:
            return False
        pairs = zip((self.x, self.upper), (other.x, other.upper), strict=True)
        return all(np.allclose(one, another, rtol=2e-3, atol=0.0) for one, another in pairs)


def composes(found: Audit) -> bool:
    """Return whether there are numbers to draw: of some rounds, fixed beforehand, and not void."""
    # A filter's bound belongs to no run that could be cut short.
    composed = found.run is not None and "pld" in found.bounds[str(found.facts.observer)]
    return composed and not found.void


def plots_of(
    accuracies: Mapping[str, tuple[Array, Array]],
    audits: Mapping[str, Audit],
    by_round: Mapping[str, tuple[list[int], list[float]]],
) -> list[Plot]:
    """Return the plots that runs have data for.

    Args:
        accuracies: rounds and accuracies after them, by name.
        audits: what can be drawn, by name; see ``composes``.
        by_round: of the same audits; see ``epsilon_by_round``.
    """
    found = []
    if accuracies:
        lines = {name: Line(*pair) for name, pair in accuracies.items()}
        found.append(_plot("Accuracy by round", lines, _with_accuracy))
    if audits:
        found += _certified(audits, by_round)
    return found


def _certified(
    audits: Mapping[str, Audit], by_round: Mapping[str, tuple[list[int], list[float]]]
) -> Iterator[Plot]:
    """Yield the plots of what is certified."""
    # One moment is no course: a release of all rounds at once has no other.
    course = {name: pair for name, pair in by_round.items() if len(pair[0]) > 1}
    if course:
        yield _epsilons(audits, course)
    profiles = _drawn(audits, _profile)
    yield _plot("Privacy profile: delta at each epsilon", profiles, _with_delta)
    tradeoffs = _drawn(audits, _tradeoff)
    if tradeoffs:
        caption = "Trade-off: what the best attacker misses at each rate of false alarms"
        yield _plot(caption, tradeoffs, _with_rates)


def _drawn(audits: Mapping[str, Audit], line: Callable[[Audit], Line]) -> dict[str, Line]:
    lines = {}
    for name, found in audits.items():
        try:
            lines[name] = line(found)
        except (FedPrivacyError, OverflowError):
            continue  # no theorem, or a value that this curve cannot have
    return lines


# ---- the numbers


def epsilon_by_round(found: Audit, points: int = 12) -> tuple[list[int], list[float]]:
    """Return (rounds, certified epsilons after them) at about ``points`` moments of a run.

    Rounds are those that were accounted: an epoch that is drawn as a whole is one, a round that
    released several noisy sums is several. Of several kinds of rounds, which are kept without
    their order, the last moment alone.
    """
    assert found.run is not None
    steps = found.run.sequence()
    total = sum(count for _, count in steps)
    if len(steps) > 1:
        return [total], [found.bound.upper]
    # The last epsilon is the audit's own: it need not be asked again.
    *moments, last = sorted({round(r) for r in np.linspace(1, total, points)})
    values = [
        epsilon(
            steps[0][0] * count,
            delta=found.claim[1],
            adjacency=found.facts.adjacency,
            observer=found.facts.observer,
            # Half a per cent of the plot's height: nobody sees less.
            tolerance=0.005 * min(max(found.bound.upper, 0.1), 10.0),
        ).upper
        for count in moments
    ]
    return [*moments, last], [*values, found.bound.upper]


MOST = 10
"""Times as many rounds as were run, beyond which nobody asks how many more there may be."""


def further_rounds(found: Audit) -> int | None:
    """Return how many more rounds like those run the claim allows for certain.

    At least that many: their number is looked for to 2 %, and up to ``MOST`` times those run. None
    where the run does not compose of the rounds that were counted, as a correlated noise's one
    release of them all, where they are of several kinds, or where the claim does not hold.
    """
    run = found.run
    assert run is not None
    steps = run.sequence()
    total = sum(count for _, count in steps)
    if found.verdict is not Verdict.HOLDS or total != found.rounds or len(steps) > 1:
        return None
    return _most(partial(_fits, found, steps[0][0]), MOST * total)


def _fits(found: Audit, step: Mechanism, count: int) -> bool:
    """Return whether so many rounds more keep the claim, by the upper end."""
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
    """Return the largest number up to a limit that fits, to 2 %; the smaller ones fit as well."""
    good, bad = 0, 1
    while bad <= limit and fits(bad):
        good, bad = bad, 2 * bad
    bad = min(bad, limit + 1)
    while bad - good > max(1, bad // 50):
        middle = (good + bad) // 2
        good, bad = (middle, bad) if fits(middle) else (good, middle)
    return good


def _profile(found: Audit) -> Line:
    assert found.run is not None
    # Half as far again as the answer; without one, as far as anybody looks.
    reach = max(1.5 * found.bound.upper, 0.5) if math.isfinite(found.bound.upper) else 10.0
    curve = profile(
        found.run,
        epsilons=np.linspace(0.0, reach, 15),
        adjacency=found.facts.adjacency,
        observer=found.facts.observer,
        tolerance=0.1,
    )
    return Line(np.asarray(curve.epsilons), np.asarray(curve.upper), np.asarray(curve.lower))


def _tradeoff(found: Audit) -> Line:
    assert found.run is not None
    curve = tradeoff_curve(
        found.run,
        adjacency=found.facts.adjacency,
        observer=found.facts.observer,
        fpr=np.linspace(0.0, 1.0, 21),
        tolerance=0.05,
    )
    return Line(np.asarray(curve.fpr), np.asarray(curve.worst.upper), np.asarray(curve.worst.lower))


# ---- drawing


def _epsilons(
    audits: Mapping[str, Audit], by_round: Mapping[str, tuple[list[int], list[float]]]
) -> Plot:
    lines = {
        name: Line(np.asarray(rounds, float), np.asarray(values))
        for name, (rounds, values) in by_round.items()
    }
    claims = sorted({found.claim[0] for found in audits.values()})

    def finish(axes: Axes) -> None:
        from matplotlib.ticker import MaxNLocator

        across = axes.get_yaxis_transform()
        for claim in claims:
            told = f"claimed: {claim:g}"
            axes.axhline(claim, color="0.4", linewidth=0.8)
            axes.annotate(
                told, (0.02, claim), xycoords=across, fontsize=10, va="bottom", color="0.3"
            )
        axes.set(xlabel="round", ylabel="epsilon", ylim=(0, 1.08 * axes.get_ylim()[1]))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))

    return _plot("Epsilon by round, certified upper end", lines, finish)


def _with_accuracy(axes: Axes) -> None:
    axes.set(xlabel="round", ylabel="test accuracy", ylim=(0, 1))


def _with_delta(axes: Axes) -> None:
    axes.set(xlabel="epsilon", ylabel="delta", yscale="log")


def _with_rates(axes: Axes) -> None:
    axes.plot([0, 1], [1, 0], color="0.6", linewidth=0.8)
    axes.annotate("guessing", (0.5, 0.51), fontsize=10, color="0.3")
    axes.set(xlabel="false alarms", ylabel="missed", xlim=(0, 1), ylim=(0, 1))


_NO_METADATA = ("Date", "Creator", "Format", "Type")
_STYLES = ("-", "--", "-.", ":")


def _plot(caption: str, lines: Mapping[str, Line], finish: Callable[[Axes], None]) -> Plot:
    import matplotlib
    from matplotlib.figure import Figure

    together = _labelled_once(lines)
    with matplotlib.rc_context(
        {"svg.fonttype": "none", "font.size": 10, "svg.hashsalt": "fedprivacy"}
    ):
        figure = Figure(figsize=(5.2, 3.4), layout="constrained")
        axes = figure.add_subplot()
        for index, (name, line) in enumerate(together.items()):
            _draw(axes, name, line, _STYLES[index % 4])
        finish(axes)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
        if len(together) > 1:
            axes.legend(frameon=False, fontsize=10)
        buffer = io.StringIO()
        # Without dates, so that equal reports are equal files.
        figure.savefig(buffer, format="svg", metadata=dict.fromkeys(_NO_METADATA))
    svg = buffer.getvalue()
    # Several plots share a page, and so their ids must differ.
    own = f"plot-{re.sub('[^a-z]+', '-', caption.lower())}-"
    unique = re.sub(r'(\bid="|href="#|url\(#)', lambda found: found[1] + own, svg)
    hidden = unique[unique.index("<svg") :].replace("<svg", '<svg aria-hidden="true"', 1)
    return Plot(caption, f"{caption}. {_told(together)}", hidden)


def _draw(axes: Axes, name: str, line: Line, style: str) -> None:
    drawn: Any = axes.plot(line.x, line.upper, style, label=literal(name))[0]
    if line.lower is not None:
        color = drawn.get_color()
        axes.plot(line.x, line.lower, style, color=color, linewidth=0.6)
        axes.fill_between(line.x, line.lower, line.upper, alpha=0.2, color=color)


def _labelled_once(lines: Mapping[str, Line]) -> dict[str, Line]:
    """Return lines by name, those that lie on each other under all their names."""
    found: list[tuple[list[str], Line]] = []
    for name, line in lines.items():
        names = next((names for names, other in found if other.same_as(line)), None)
        # The first of equal lines is drawn, under all their names.
        if names is None:
            found.append(([name], line))
        else:
            names.append(name)
    return {", ".join(names): line for names, line in found}


def _told(lines: Mapping[str, Line]) -> str:
    """Return the ends and the middle of every line in words."""
    told = []
    for name, line in lines.items():
        places = dict.fromkeys([0, len(line.x) // 2, len(line.x) - 1])
        points = ", ".join(f"{line.upper[i]:.3g} at {line.x[i]:.4g}" for i in places)
        told.append(f"{name}: {points}")
    return "; ".join(told) + "."


def literal(name: str) -> str:
    """Return a name as matplotlib prints it to the letter: a dollar begins no formula."""
    return name.replace("$", r"\$")
