"""The pictures of the site, drawn when it is built, as SVG that takes the page's own colours."""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch, Rectangle

import fedprivacy as fp

INK = "#123456"
"""Stands for the text's colour until the picture is in the page; the others, for site.css's."""
US, OTHERS, BAD, PALE = "#2a9d8f", "#6c7a89", "#d1495b", "#9aa5b1"

Draw = Callable[[Axes], None]
PICTURES: dict[str, tuple[str, tuple[float, float], Draw]] = {}
"""Name -> (what it shows, inches, how it is drawn)."""


def picture(told: str, width: float = 6.4, height: float = 2.2) -> Callable[[Draw], Draw]:
    """Register a picture under its function's name."""

    def register(draw: Draw) -> Draw:
        PICTURES[draw.__name__] = (told, (width, height), draw)
        return draw

    return register


def write(folder: Path) -> None:
    """Write every picture as NAME.html, an inline SVG; those that are there and newer stay."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, (told, size, draw) in PICTURES.items():
        target = folder / f"{name}.html"
        if not target.exists() or target.stat().st_mtime < Path(__file__).stat().st_mtime:
            target.write_text(svg(name, told, size, draw), encoding="utf-8")


def svg(name: str, told: str, size: tuple[float, float], draw: Draw) -> str:
    """Return one picture, with ids of its own and its description for those who cannot see it."""
    colours = dict.fromkeys(
        ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), INK
    )
    with matplotlib.rc_context(
        {"svg.fonttype": "none", "svg.hashsalt": name, "font.size": 10, **colours}
    ):
        figure = Figure(figsize=size, layout="constrained", facecolor="none")
        axes = figure.add_subplot(facecolor="none")
        draw(axes)
        buffer = io.StringIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    text = buffer.getvalue()
    text = text[text.index("<svg") :].replace(INK, "currentColor")
    for kind, colour in (("us", US), ("others", OTHERS), ("bad", BAD)):
        text = text.replace(colour, f"var(--picture-{kind})")
    used = set(re.findall(r"url\(#([^)]+)\)|href=\"#([^\"]+)\"", text))
    wanted = {one or other for one, other in used}
    text = re.sub(
        r' id="([^"]+)"', lambda m: f' id="{name}-{m[1]}"' if m[1] in wanted else "", text
    )
    text = re.sub(r'(url\(#|href="#)', rf"\1{name}-", text)
    text = re.sub(r'width="[\d.]+pt" height="[\d.]+pt"', "", text, count=1)
    # Narrower, its words would be too small to read.
    narrow = f'style="min-width:{size[0] * 75:.0f}px"'
    text = text.replace("<svg", f'<svg role="img" aria-label="{told}" {narrow}', 1)
    return f'<div class="picture" style="max-width:{size[0] * 100:.0f}px">{text}</div>\n'


def _bare(axes: Axes, width: float, height: float) -> None:
    axes.set(xlim=(0, width), ylim=(0, height), aspect="equal")
    axes.axis("off")


def _person(axes: Axes, x: float, y: float, colour: str = OTHERS, size: float = 0.22) -> None:
    axes.add_patch(Circle((x, y), size, color=colour, linewidth=0))


def _arrow(axes: Axes, start: tuple[float, float], end: tuple[float, float], **look: Any) -> None:
    look = {"color": INK, "arrowstyle": "-|>", "mutation_scale": 11, "linewidth": 1, **look}
    axes.add_patch(FancyArrowPatch(start, end, **look))


@picture(
    "Certified intervals of two runs beside the numbers that other accountants give: most are a "
    "little larger, two are below what an attack attains",
    4.6,
    3.9,
)
def front(axes: Axes) -> None:
    """Our interval and everybody's points, of two runs that differ in how cohorts are drawn."""
    step, rows = fp.Gaussian(noise_multiplier=1.4), []
    runs = {
        "cohorts by chance (Poisson), add_remove": (fp.Poisson(1 / 60), "add_remove"),
        "exactly 100 of 6,000, replace_one": (fp.FixedSize(100, population=6000), "replace_one"),
    }
    for told, (scheme, adjacency) in runs.items():
        found = fp.crosscheck(step.sampled(scheme) * 180, delta=7e-5, adjacency=adjacency)
        bound = next(iter(found.bounds.values()))
        rows.append((told, None, INK))
        rows.append((f"certified  [{bound.lower:.3f}, {bound.upper:.3f}]", bound, US))
        others = [row for row in found.rows if row.epsilon is not None and "ours" not in row.who]
        for row in sorted(others, key=lambda row: row.epsilon):
            wrong = row.standing == "wrong"
            word = "  too small" if wrong else ""
            rows.append((f"{row.who}  {row.epsilon:.3f}{word}", row, BAD if wrong else OTHERS))
    for place, (told, shown, colour) in enumerate(rows):
        _row(axes, -place, told, shown, colour)
    axes.set(yticks=[], xlim=(0, 4.0), ylim=(-len(rows), 0.6))
    axes.set_xlabel("epsilon at delta = 7e-5: 180 rounds, noise multiplier 1.4")
    axes.spines[["top", "right", "left"]].set_visible(False)


def _row(axes: Axes, y: int, told: str, shown: Any, colour: str) -> None:
    """Draw a heading, a certified interval or somebody's point."""
    if shown is None:
        axes.text(0.0, y, told, va="center", fontweight="bold", color=colour)
        return
    if hasattr(shown, "who"):
        end = shown.epsilon
        axes.plot(end, y, "o", color=colour, markersize=5)
    else:
        end = shown.upper
        axes.plot([shown.lower - 0.012, end + 0.012], [y] * 2, color=colour, linewidth=9)
    right = end < 2.0
    x = end + 0.09 if right else shown.lower - 0.09
    axes.text(x, y, told, va="center", ha="left" if right else "right", color=colour, fontsize=9)


@picture("A record is one dot of a client; a client is the whole circle of its dots")
def unit(axes: Axes) -> None:
    """Three clients with records; one record and one client are marked."""
    _bare(axes, 12, 4)
    for number, x in enumerate((2.0, 6.0, 10.0)):
        whole = number == 2
        axes.add_patch(Circle((x, 2.2), 1.5, fill=whole, color=US if whole else PALE, alpha=0.35))
        for turn in range(7):
            angle = 2 * math.pi * turn / 7
            marked = number == 0 and turn == 1
            colour = US if marked or whole else OTHERS
            _person(axes, x + 0.9 * math.cos(angle), 2.2 + 0.9 * math.sin(angle), colour)
    axes.text(2.0, 0.2, "unit: record", ha="center", color=US)
    axes.text(10.0, 0.2, "unit: client", ha="center", color=US)


@picture(
    "Neighbouring data sets: one unit is missing, sends nothing in its place, or sends other data",
    height=2.4,
)
def adjacency(axes: Axes) -> None:
    """One data set and its neighbour under each adjacency."""
    _bare(axes, 12, 4.4)
    rows = {"add_remove": None, "zero_out": "none", "replace_one": US}
    for number, (name, other) in enumerate(rows.items()):
        y = 3.6 - 1.5 * number
        for side, start in enumerate((3.2, 8.2)):
            for place in range(5):
                x = start + 0.7 * place
                if place != 2 or side == 0:
                    _person(axes, x, y, BAD if place == 2 else OTHERS)
                elif other == "none":
                    axes.add_patch(Circle((x, y), 0.22, fill=False, color=BAD, linestyle=":"))
                elif other is not None:
                    _person(axes, x, y, other)
        axes.text(0, y, name, va="center", family="monospace")
        axes.text(7.1, y, "~", va="center", ha="center", fontsize=14)


@picture("Four rounds of Poisson, fixed-size and shuffled sampling of twelve clients", height=2.6)
def sampling(axes: Axes) -> None:
    """Who is drawn in four rounds, by three schemes."""
    _bare(axes, 14, 5)
    draw = np.random.default_rng(3)
    order = draw.permutation(12)
    for column, name in enumerate(("Poisson(1/4)", "FixedSize(3 of 12)", "Shuffled(4 rounds)")):
        for round_ in range(4):
            drawn = {
                0: np.flatnonzero(draw.random(12) < 0.25),
                1: draw.choice(12, 3, replace=False),
                2: order[3 * round_ : 3 * round_ + 3],
            }[column]
            for place in range(12):
                x, y = 0.6 + 4.8 * column + 0.33 * place, 4.0 - 0.85 * round_
                _person(axes, x, y, US if place in drawn else PALE, 0.13)
        axes.text(2.4 + 4.8 * column, 0.4, name, ha="center", family="monospace", fontsize=9)


@picture(
    "Clients send to a sum; an aggregate observer sees each noisy sum, a server also who took "
    "part, a final observer the last one only",
    height=2.6,
)
def observer(axes: Axes) -> None:
    """Three rounds, and what each observer sees of them."""
    _bare(axes, 14, 5.2)
    for number in range(3):
        x = 1.6 + 2.6 * number
        for place in range(4):
            drawn = (place + number) % 3 != 0
            _person(axes, x - 0.75 + 0.5 * place, 4.6, US if drawn else PALE, 0.16)
            if drawn:
                _arrow(axes, (x - 0.75 + 0.5 * place, 4.4), (x, 3.5), linewidth=0.6)
        axes.add_patch(Rectangle((x - 0.7, 2.9), 1.4, 0.6, fill=False, edgecolor=INK))
        axes.text(x, 3.2, "sum + noise", ha="center", va="center", fontsize=7)
    seen = {"server": (True, True), "aggregate": (True, False), "final": (False, False)}
    for row, (name, (every, who)) in enumerate(seen.items()):
        y = 2.2 - 0.85 * row
        for number in range(3):
            x = 1.6 + 2.6 * number
            told = ("sum, who" if who else "sum") if every or number == 2 else "-"
            axes.text(x, y, told, ha="center", va="center", fontsize=9)
        axes.text(8.6, y, name, va="center", family="monospace", color=US)


@picture(
    "On a line of epsilons: the lower end is attained by two data sets, the upper end is proved; "
    "claims left of the interval fail, right of it hold",
    height=1.9,
)
def interval(axes: Axes) -> None:
    """Where the truth can lie, and what the ends are."""
    _bare(axes, 14, 4)
    axes.plot([0.5, 13.5], [2, 2], color=INK, linewidth=1)
    axes.plot([5.0, 8.2], [2, 2], color=US, linewidth=8, solid_capstyle="butt")
    axes.text(5.0, 2.6, "lower\nattained by two data sets", ha="right", fontsize=9, color=US)
    axes.text(8.2, 2.6, "upper\nproved: publish this", ha="left", fontsize=9, color=US)
    axes.text(6.6, 1.0, "the truth is here", ha="center", fontsize=9)
    axes.text(13.5, 1.2, "epsilon", ha="right", fontsize=9)


@picture(
    "A claim above the interval holds, below it fails, and inside it cannot be certified",
    height=2.2,
)
def verdict(axes: Axes) -> None:
    """Three claims against one interval."""
    _bare(axes, 14, 4.6)
    words = {2.6: ("FAILS", BAD), 6.6: ("CANNOT BE\nCERTIFIED", OTHERS), 11.0: ("HOLDS", US)}
    axes.plot([0.5, 13.5], [1.4, 1.4], color=INK, linewidth=1)
    axes.plot([5.0, 8.2], [1.4, 1.4], color=US, linewidth=8, solid_capstyle="butt", alpha=0.5)
    for x, (word, colour) in words.items():
        _arrow(axes, (x, 2.6), (x, 1.5), color=colour)
        axes.text(x, 2.8, word, ha="center", color=colour, fontsize=10)
    axes.text(6.6, 0.4, "certified interval", ha="center", fontsize=9)
    axes.text(2.6, 0.4, "claimed epsilon", ha="center", fontsize=9)


GROWTH = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "growth.json"
_STYLES = {
    "fedprivacy": {"color": US, "marker": "o"},
    "dp-accounting, PLD": {"color": OTHERS, "marker": "s", "linestyle": "--"},
    "Opacus, RDP": {"color": OTHERS, "marker": "^", "linestyle": ":"},
}


@picture(
    "Processor seconds on logarithmic axes: against rounds of one kind, against kinds of rounds, "
    "and against rounds of a ledger",
    width=7.6,
    height=2.6,
)
def growth(axes: Axes) -> None:
    """Draw the times of ``benchmarks/growth.py``, one panel for each kind of size."""
    axes.axis("off")
    found = json.loads(GROWTH.read_text(encoding="utf-8"))
    titles = {"rounds": "rounds, one kind", "kinds": "kinds of rounds", "ledger": "ledger, audited"}
    for k, (name, title) in enumerate(titles.items()):
        panel = axes.inset_axes((0.345 * k, 0.1, 0.29, 0.78), facecolor="none")
        for library, points in found[name].items():
            sizes, seconds = zip(*points, strict=True)
            panel.loglog(sizes, seconds, label=library, markersize=3, **_STYLES[library])
        panel.set_title(title, fontsize=9, color=INK)
        panel.tick_params(labelsize=7)
        panel.set_ylim(1e-3, 200.0)
        if k == 0:
            panel.set_ylabel("seconds", fontsize=8)
            panel.legend(fontsize=7, frameon=False, labelcolor=INK, loc="upper left")
