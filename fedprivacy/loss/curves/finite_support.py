"""Finitely many losses, placed exactly on a lattice that contains them all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...rounding import TENS
from ..moments.points import Points
from . import lattice as lattices
from .lattice import Array, Lattice, Side


class Few(NamedTuple):
    """Losses and P's masses there.

    Args:
        loss: in any order; several may be equal.
        mass: of each loss.
        atom: separate mass at loss 0.
        off: bound on the error of the atom.
    """

    loss: Array
    mass: Array
    atom: float
    off: float

    @property
    def sizes(self) -> list[float]:
        """Distances of the losses from 0, without zeros."""
        size = np.abs(self.loss)
        return list(size[size > 0.0].tolist())

    def lattice(self, step: float, side: Side) -> Lattice | None:
        """Return the law if all losses are multiples of the step, else None."""
        index = lattices.multiples(self.loss, step)
        if index is None or not len(index):
            return None
        first = min(int(index.min()), 0)
        mass = np.zeros(max(int(index.max()), 0) - first + 1)
        np.add.at(mass, index - first, self.mass)
        # No loss is moved: only masses are rounded, and the atom is a difference of masses.
        sign = 1.0 if side is Side.UP else -1.0
        mass *= 1.0 + sign * TENS
        mass[-first] += max(self.atom + sign * self.off, 0.0) if self.atom > 0.0 else 0.0
        return Lattice(step, first, mass, 0.0)


def few_of(labelled: Sequence[tuple[float, object]], atom: float) -> Few | None:
    """Return the losses of labelled pairs and a mass at loss 0; None if not finitely many."""
    found = [(weight, one) for weight, one in labelled if isinstance(one, Points)]
    if not found or len(found) < len(labelled):
        return None
    columns = [one.columns for _, one in found]
    loss = np.concatenate([loss for loss, _ in columns])
    weighed = zip(found, columns, strict=True)
    mass = np.concatenate([weight * mass for (weight, _), (_, mass) in weighed])
    # An atom is 1 minus all masses, so it has the error of their total.
    off = sum(weight * one.off for weight, one in found) + TENS
    return Few(loss, mass, atom, off)
