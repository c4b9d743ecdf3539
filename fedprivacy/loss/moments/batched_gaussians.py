"""Moments of many folds at once: half lines of Gaussian pairs, one row for each fold.

See ``half_lines``. The masses at loss 0 become nodes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ..clock import check_deadline
from . import spectrum as spectra
from .contour import Array, Contour, NoMoments
from .half_lines import MOST_PANELS, HalfLines, Rows, Shape, shape_of
from .spectrum import Cumulants, Rule, Spectrum
from .truncated_moments import LOG_OFF_ATOM, Part

_HELD = 1 << 15
"""Largest number of (row, node) pairs in memory."""
_FALL = 100.0
"""The masses at loss 0 stay within the moments, so their product must be below e^-100."""


def stackable(part: Part) -> tuple[Shape, ...] | None:
    """Return the shape of a part that may share arrays with others; None for any other part."""
    shapes = [shape_of(piece) for piece in part.pieces]
    known = [shape for shape in shapes if shape is not None]
    return tuple(known) if part.ordinary and len(known) == len(shapes) else None


def enough(parts: Sequence[tuple[Part, float]]) -> bool:
    """Return whether the product of all masses at loss 0 is negligible."""
    return sum(-n * math.log(part.atom) if part.atom else math.inf for part, n in parts) > _FALL


@dataclass(frozen=True, eq=False)
class Folds:
    """Folds of one shape: see ``stackable``."""

    parts: tuple[Part, ...]
    halves: tuple[HalfLines, ...]
    log_atom: Array

    keeps_atoms = True

    @classmethod
    def of(cls, parts: Sequence[Part]) -> Folds:
        """Return the folds as rows."""
        halves = tuple(map(HalfLines.of, zip(*(part.pieces for part in parts), strict=True)))
        with np.errstate(divide="ignore"):
            log_atom = np.log(np.array([part.atom for part in parts]))[:, None]
        return cls(tuple(parts), halves, log_atom)

    def spectra(self, line: Contour) -> Iterator[tuple[Rows, Spectrum]]:
        """Yield rows and their moments on a line, which include the masses at loss 0.

        Raises:
            NoMoments: some fold would need too many nodes.
        """
        for rows in self._blocks(line):
            check_deadline()
            found = [half.rows(rows).rule(line) for half in self.halves]
            yield rows, self._joined(found, self.log_atom[rows]).spectrum(line)

    def cumulants(self, tilt: float) -> Cumulants:
        """Return every fold's cumulants, to a few digits, shape ``(rows,)``."""
        found = np.array([half.cumulants(tilt) for half in self.halves])
        return spectra.mixed_cumulants(found, self.log_atom[:, 0])

    def slabs(self, rows: Rows, here: Spectrum) -> tuple[Array, Array]:
        """Return slabs below the densities of the chosen rows; ``here`` are their moments."""
        found = [half.rows(rows).slabs(here) for half in self.halves]
        mass, width = (np.concatenate(column, axis=1) for column in zip(*found, strict=True))
        return mass, width

    def _blocks(self, line: Contour) -> Iterator[Rows]:
        """Yield the indices of rows, grouped by similar numbers of panels."""
        with np.errstate(over="ignore", invalid="ignore"):
            most = [half.panels(line, half.stop(line.tilt)) for half in self.halves]
            panels = 2.0 * np.max(most, axis=0)
        if not np.max(panels) < MOST_PANELS:
            raise NoMoments
        rows = np.argsort(-panels, kind="stable")
        while len(rows):
            block = max(int(_HELD // (24.0 * panels[rows[0]])), 1)
            yield rows[:block]
            rows = rows[block:]

    @staticmethod
    def _joined(rules: list[Rule], log_atom: Array) -> Rule:
        """Return one rule for the halves and the masses at loss 0.

        If P's own mass is served, the rule computes the moment minus 1, and loss 0 does not
        contribute.
        """
        near = all(rule.log_plain is not None for rule in rules)
        log_error = rules[0].log_error
        for rule in rules[1:]:
            log_error = np.logaddexp(log_error, rule.log_error)
        names = ("log_weight", "loss", "wobble", "slip")
        fields = [[getattr(rule, name) for rule in rules] for name in names]
        if not near:
            nothing = np.zeros_like(log_atom)
            for column, last in zip(fields, (log_atom, *3 * (nothing,)), strict=True):
                column.append(last)
            log_error = np.logaddexp(log_error, LOG_OFF_ATOM)
        plain = [rule.log_plain for rule in rules if near and rule.log_plain is not None]
        weight, loss, wobble, slip = (np.concatenate(column, axis=-1) for column in fields)
        served = np.concatenate(plain, axis=-1) if near else None
        return Rule(weight, loss, wobble, slip, log_error, 0.0, served)
