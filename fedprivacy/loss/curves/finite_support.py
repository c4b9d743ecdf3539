"""Finitely many losses, placed exactly on a lattice that contains them all."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...rounding import TENS
from ..moments.contour import NoMoments
from ..moments.moments import Moments
from ..moments.spectrum import HalfLine, Leaf
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


def few_of(moments: Moments) -> Few | None:
    """Return the losses of a law with P's masses; None if not finitely many."""
    labelled: list[tuple[float, Leaf | HalfLine]]
    try:
        if (part := moments.part()) is not None:
            labelled, atom = [(piece.weight, piece) for piece in part.pieces], part.atom
        else:
            labelled, atom = list(moments.pairs()), 0.0
    except NoMoments:
        return None
    known = [(weight, found) for weight, one in labelled if (found := one.finite) is not None]
    if not known or len(known) < len(labelled):
        return None
    loss = np.concatenate([one.loss for _, one in known])
    mass = np.concatenate([weight * one.mass for weight, one in known])
    # An atom is 1 minus all masses, so it has the error of their total.
    off = sum(weight * one.off for weight, one in known) + TENS
    return Few(loss, mass, atom, off)


def mesh_of(moments: Moments) -> float:
    """Return a step that divides all losses; 0 if there is none or the losses are not finite."""
    few = few_of(moments)
    return 0.0 if few is None else lattices.common_mesh(few.sizes)
