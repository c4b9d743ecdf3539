"""Pictures of answers. Drawing a picture imports matplotlib."""

from __future__ import annotations

import io
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from ..audit.plots import between_rates, from_the_right, needs_matplotlib
from ..errors import listed, refuse
from ..outputs import in_folder, whole_file
from ..questions.risk import TradeoffCurve

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def check_picture(path: str | PathLike[str]) -> None:
    """Check the path of a picture before long work.

    Raises:
        ParameterError: an unknown format, a folder that does not exist, or no matplotlib.
    """
    needs_matplotlib()
    from matplotlib.backend_bases import FigureCanvasBase

    kinds = FigureCanvasBase.get_supported_filetypes()
    if Path(path).suffix.removeprefix(".") not in kinds:
        refuse("path", str(path), f"end in one of {listed(kinds)}")
    in_folder(path=path)


def draw_tradeoff(curve: TradeoffCurve, path: str | PathLike[str]) -> Path:
    """Write a trade-off curve as a picture. The ending of the file name sets the format.

    No attacker gets below the lower line. The upper line is attained on two known data sets. The
    values between the requested rates come from ``between_rates``.

    Raises:
        ParameterError: see ``check_picture``.
    """
    from matplotlib.figure import Figure

    check_picture(path)
    figure = Figure(figsize=(5.2, 4.6), layout="constrained")
    axes = figure.subplots()
    axes.plot([0, 1], [1, 0], ":", color="0.6", label="guessing")
    found = between_rates(curve, "attained")
    assert found.lower is not None
    axes.plot(found.x, found.upper, "--", color="C1", label="attained")
    axes.plot(*from_the_right(found.x, found.lower), "-", color="C0", label="certified")
    # The requested rates are also drawn as dots, because a single rate makes no line.
    for color, ends in (("C1", curve.worst.attained), ("C0", curve.worst.lower)):
        axes.plot(curve.fpr, ends, "o", color=color, markersize=3, clip_on=False)
    axes.set(xlabel="false-positive rate", ylabel="false-negative rate")
    axes.set(xlim=(0, curve.fpr.max() or 1), ylim=(curve.worst.lower.min(), 1))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return write_picture(figure, path)


def write_picture(figure: Figure, path: str | PathLike[str]) -> Path:
    """Write a figure atomically. The ending of the file name sets the format."""
    # Rendered in memory first, so a full disk leaves no partial picture.
    buffer = io.BytesIO()
    figure.savefig(buffer, format=Path(path).suffix.removeprefix("."), dpi=150)
    whole_file(path, buffer.getvalue())
    return Path(path)
