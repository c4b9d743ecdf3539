"""Moments of a privacy loss on a vertical line of the complex plane, with error bounds.

For a pair (P, Q) with loss L write ``A(s) = E_P e^{s L}``, the moment at order ``1 + s``. On the
line ``s = tilt + i height`` it is the Fourier transform of the tilted law of the loss. The moment
of a composition is the product of the moments of its parts. ``inversion`` turns it into privacy
profiles.

A leaf that is an integral gives a ``Rule``: nodes, weights, and a bound on the error of their sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ...rounding import FEW, TENS, THOUSANDS, UNIT
from .contour import Array, Complex, Contour, NoMoments, PerRow, summing, transform, turned

if TYPE_CHECKING:
    from .gaussian_rules import GaussianPair
    from .truncated_moments import Piece


def log_total(logs: Array) -> Array:
    """Return log of the sum of exponentials over the first axis; -inf contributes 0."""
    top = np.maximum(np.max(logs, axis=0), -1e300)
    with np.errstate(divide="ignore"):
        return np.asarray(top + np.log(np.sum(np.exp(logs - top), axis=0)))


class Near(NamedTuple):
    """A(s) - 1 on a line and a bound on its error: both are small where A is near 1."""

    values: Complex
    error: Array


@dataclass(frozen=True, eq=False)
class Spectrum:
    """``A(s) = e^{log_size} (values +- error)`` on a line; ``atom`` is the part at loss 0.

    Several laws may be batched. Then all arrays have rows, shape ``(rows, size)``, and a number per
    law is a column.

    Args:
        tilt: tilt of the line.
        log_size: approximate log A(tilt).
        values: shape ``(size,)``.
        error: bound on the error of the values, shape ``(size,)``.
        atom: mass at loss 0 within the values. Without it, ``error`` bounds their error too.
        near: ``A(s) - 1``, more accurate; None if not known.
        excess: if given, the values and ``error`` are those of a law that dominates. It bounds the
            further distance to A, in units of the values.
    """

    tilt: float
    log_size: PerRow
    values: Complex
    error: Array
    atom: float = 0.0
    near: Near | None = None
    excess: Array | None = None

    def logs(self) -> tuple[Complex, Array]:
        """Return the logs of the values, and a bound on their rounding."""
        # A value of 0 has no log. Its error, relative to the substitute, is huge in any case.
        logs = np.log(np.where(self.values == 0, 1e-300, self.values))
        off = np.full(logs.shape, 4e-16)
        if self.near is None:
            return logs, off
        x, y = self.near.values.real, self.near.values.imag
        small = self._small(self.near.values)
        with np.errstate(over="ignore"):  # of values that are not small and not looked at here
            squared = np.where(small, x * (2.0 + x) + y * y, 0.0)
        # log |1 + z| by log1p, which keeps all digits of a small z.
        real = 0.5 * np.log1p(squared) - self.log_size
        turn = np.arctan2(y, 1.0 + x)
        slip = 5e-15 * (np.abs(x) + np.abs(y)) + 4 * UNIT * np.abs(self.log_size)
        return np.where(small, real + 1j * turn, logs), np.where(small, slip, off)

    def growth(self) -> Array:
        """Return log(1 + error / size) of each value, for the logs that ``logs`` returns."""
        growth = np.log1p(self.error / np.maximum(np.abs(self.values), 1e-300))
        if self.near is None:
            return np.asarray(growth)
        small, off = self._small(self.near.values), self.near.error
        sharper = np.log1p(1.001 * off / np.where(small, np.abs(1.0 + self.near.values), 1.0))
        return np.asarray(np.where(small, sharper, growth))

    @staticmethod
    def _small(near: Complex) -> NDArray[np.bool_]:
        """Return where the value is 1 plus a small number."""
        return np.asarray(np.abs(near.real) + np.abs(near.imag) < 0.5)

    @property
    def log_atom(self) -> float:
        """Return the log of the mass at loss 0, -inf if there is no such mass."""
        return float(self.log_size) + math.log(self.atom) if self.atom > 0 else -math.inf

    @property
    def log_moment(self) -> PerRow:
        """Return an upper bound on log A(tilt)."""
        size = np.abs(self.values[..., :1]) + self.error[..., :1]
        return _per_row(self.log_size + np.log(size))

    def level(self, heights: Array) -> Decay:
        """Return the bound without evaluation: |E_P e^{s L}| is at most E_P e^{tilt L}."""
        size = np.abs(self.values[..., :1]) + self.error[..., :1]
        rest = self.log_size + np.log(np.maximum(size - self.atom, 1e-300)) + THOUSANDS
        return Decay(self.log_atom, rest + np.zeros_like(heights))


class Cumulants(NamedTuple):
    """log A(tilt) and its first two derivatives, to a few digits; not certified."""

    value: PerRow
    mean: PerRow
    variance: PerRow


class Leaf(Protocol):
    """A pair of laws within a label, whose moments make up the moments of a round."""

    def swap(self) -> Leaf:
        """Return the pair (Q, P)."""

    def sampled(self, q: float) -> Leaf:
        """Return ((1 - q) Q + q P, Q)."""

    def rule(self, tilt: float, height: float, weight: float = 1.0) -> Rule:
        """Return nodes and weights that serve heights up to the given one."""

    def cumulants(self, tilt: float) -> Cumulants:
        """Return the log-moment at a tilt and two derivatives, to a few digits."""

    def lost(self, at: Spectrum, heights: Array) -> Array:
        """Return how far moments at and above each height lie below the moment at height 0."""

    @property
    def gaussian(self) -> GaussianPair | None:
        """The pair itself if both laws are Gaussian mixtures, else None."""

    @property
    def halved(self) -> Halved | None:
        """The pair itself if it states its outcomes with a loss above 0, else None."""

    @property
    def finite(self) -> Finite | None:
        """All losses and their masses if these are finitely many, else None."""

    @property
    def jumps_alike(self) -> bool:
        """Whether all outcomes with a large loss have the same loss."""


class Halved(Protocol):
    """A leaf whose outcomes with a loss above 0 are known."""

    def above(self, weight: float) -> HalfLine:
        """Return these outcomes, with the weight of the label."""


class HalfLine(Protocol):
    """Some outcomes of a leaf's pair, with the weight of its label."""

    @property
    def weight(self) -> float:
        """The weight of the label."""

    @property
    def mass(self) -> float:
        """P's mass, with the weight."""

    @property
    def divisible(self) -> Piece | None:
        """The half line itself if it can be divided at any outcome, else None."""

    @property
    def finite(self) -> Finite | None:
        """All losses and their masses if these are finitely many, else None."""

    def swap(self) -> HalfLine:
        """Return the same outcomes of (Q, P)."""

    def rule(self, tilt: float, height: float, near: bool, whole: bool, log_size: float) -> Rule:
        """Return nodes and weights, without the weight of the label; see ``Piece.rule``."""

    def cumulants(self, tilt: float) -> Cumulants:
        """Return the log of the integral and two derivatives, without the weight."""

    def lost(self, at: Spectrum, heights: Array) -> Array:
        """Return how far the integral falls at and above each height, with the weight."""


class Finite(NamedTuple):
    """Finitely many losses.

    Args:
        loss: shape ``(n,)``, in any order; several may be equal.
        mass: P's mass of each loss, without the weight of the label.
        off: bound on the difference of either law's total mass from 1.
    """

    loss: Array
    mass: Array
    off: float


@dataclass(frozen=True, eq=False)
class Rule:
    """A(tilt + i v) = sum of e^{log_weight + i v loss} (1 +- wobble) +- e^log_error, v in a range.

    Several laws may be batched, one row each: see ``Spectrum``.

    Args:
        log_weight: logs of the tilted weights, shape ``(nodes,)``.
        loss: loss at each node.
        wobble: relative error of each weight through rounding.
        slip: absolute error of each loss through rounding.
        log_error: log of the error of the rule itself.
        atom: mass at loss 0 that is not in the nodes.
        log_plain: logs of the weights without the tilt, if the rule also integrates P's mass. Then
            all errors hold for ``e^{(tilt + i v) loss} - 1``, too.
        missing: P's mass of outcomes that are not integrated, with a relative error of 1e-13.
    """

    log_weight: Array
    loss: Array
    wobble: Array
    slip: Array
    log_error: PerRow = -math.inf
    atom: float = 0.0
    log_plain: Array | None = None
    missing: float = 0.0

    def weighted(self, log_weight: PerRow) -> Rule:
        """Return the rule times the weight of a label, whose log has an error of four units."""
        return replace(
            self,
            log_weight=self.log_weight + log_weight,
            wobble=self.wobble + 4.0 * UNIT * np.abs(log_weight),
            log_error=self.log_error + log_weight,
            log_plain=None if self.log_plain is None else self.log_plain + log_weight,
        )

    def flat(self) -> Rule:
        """Return the sum of all rows, which have no masses at loss 0, as one rule."""
        return Rule(
            self.log_weight.ravel(),
            self.loss.ravel(),
            self.wobble.ravel(),
            self.slip.ravel(),
            float(log_total(np.ravel(self.log_error))),
            log_plain=None if self.log_plain is None else self.log_plain.ravel(),
        )

    def spectrum(self, line: Contour) -> Spectrum:
        """Return the sum over the nodes at every point of the line."""
        if self.log_plain is not None:
            return self._spectrum_near_one(np.exp(self.log_plain), line)
        top = self.log_weight.max(axis=-1, keepdims=True, initial=-700.0)
        weights = np.exp(self.log_weight - top)
        total = weights.sum(axis=-1, keepdims=True) + self.atom * np.exp(-top)
        log_size, weights = top + np.log(total), weights / total
        values, units = transform(weights, self.loss, line)
        wobble, slip = _mean(weights, self.wobble) + units, self._slip(weights)
        rule = np.exp(np.minimum(self.log_error - log_size, 700.0))
        fixed = wobble + rule + 2 * UNIT * np.abs(log_size)
        # A thousandth is far more than the products of the errors.
        error = 1.001 * (fixed + slip * line.heights())
        atom = self.atom * math.exp(-log_size[0]) if self.atom else 0.0
        return Spectrum(line.tilt, _per_row(log_size), values + atom, error, atom)

    def _slip(self, weights: Array) -> Array:
        """Return the phase error of the sum per unit of height: 6 units for v times the loss."""
        return _mean(weights, self.slip + 6 * UNIT * np.abs(self.loss))

    def _spectrum_near_one(self, plain: Array, line: Contour) -> Spectrum:
        """Return 1 - missing + sum plain expm1(tilt loss) + sum weight (e^{i v loss} - 1)."""
        weights, loss, heights = np.exp(self.log_weight), self.loss, line.heights()
        rise = line.tilt * loss
        # Beyond e^30 the weight itself is as accurate, and expm1 times the plain one may overflow.
        risen = np.where(rise < 30.0, plain * np.expm1(np.minimum(rise, 30.0)), weights - plain)
        turns, turned_off = turned(weights, loss, line)
        wobble, reached = _mean(weights, self.wobble), _mean(weights, self.wobble * np.abs(loss))
        slip = self._slip(weights)
        fixed = _mean(np.abs(risen), self.wobble + summing(loss.shape[-1])) + line.tilt * slip
        fixed = fixed + 2e-13 * self.missing
        # The error of a turn is at most 2, or the error of the weight times the angle.
        moved = turned_off + np.minimum(2.0 * wobble, reached * heights) + slip * heights
        error = 1.001 * (fixed + moved + np.exp(np.minimum(self.log_error, 700.0)))
        near = risen.sum(axis=-1, keepdims=True) - self.missing + turns
        off_atom = 8 * UNIT + (1.1e-15 if self.atom else 0.0)
        share = 1.0 / (1.0 + near[..., :1].real)
        return Spectrum(
            line.tilt,
            _per_row(np.log1p(near[..., :1].real)),
            (1.0 + near) * share,
            (error + off_atom) * share,
            self.atom * float(share[0]) if self.atom else 0.0,
            Near(near, error),
        )


def _mean(weights: Array, values: Array) -> Array:
    """Return the weighted sum of each row, as a column."""
    return np.asarray(np.einsum("...n,...n->...", weights, values))[..., None]


def _per_row(column: Array) -> PerRow:
    """Return a float for a single law, else the column."""
    return float(column[0]) if column.ndim == 1 else column


def _over_rows(values: Array) -> Array:
    """Return the sum of the values of all laws, of shape ``(size,)``."""
    return values if values.ndim == 1 else np.sum(values, axis=0)


def power(parts: Sequence[tuple[Spectrum, PerRow]]) -> Spectrum:
    """Return the product of spectra, each to the power of its count, with error bounds.

    ``|prod (F + e)^c - prod F^c| <= prod (|F| + |e|)^c - prod |F|^c`` by expanding the product.
    """
    log_size, log_atom = 0.0, 0.0
    shape = parts[0][0].values.shape[-1]
    factors = sum(len(np.atleast_2d(part.values)) for part, _ in parts)
    log_power = np.zeros(shape, dtype=np.complex128)
    log_most, phase, off = np.zeros(shape), np.full(shape, FEW), 0.0
    grown, beyond = np.zeros(shape), np.zeros(shape)
    for part, count in parts:
        log_value, off_log = part.logs()
        log_size += float(np.sum(count * part.log_size))
        off += (3.0 + factors) * UNIT * float(np.sum(count * np.abs(part.log_size)))
        log_power = log_power + _over_rows(count * log_value)
        log_most = log_most + _over_rows(count * np.log(np.abs(part.values) + part.error))
        grown = grown + _over_rows(count * part.growth())
        if part.excess is not None:
            size = np.maximum(np.abs(part.values), 1e-300)
            beyond = beyond + _over_rows(count * np.log1p(part.excess / size))
        turn = off_log + (2.0 + factors) * FEW * np.abs(log_value)
        phase = phase + _over_rows(count * turn)
        log_atom += count * math.log(part.atom) if part.atom > 0 else -math.inf
    # In units of its size A is at most 1. A value that may be e times that has no known digit.
    if not np.max(log_most) < 1.0:
        raise NoMoments
    atom = math.exp(log_atom)
    if atom > 0:
        off += atom * sum(count * 2.0 * float(part.error[0]) / part.atom for part, count in parts)

    # prod (|F| + |e|)^c - prod |F|^c = most (1 - e^-grown), without a difference of large numbers.
    def within(log_most: Array, grown: Array) -> Array:
        most = np.exp(np.minimum(log_most, 600.0))
        error = -1.001 * most * np.expm1(-grown) + most * np.minimum(2.0 * phase, 3.0) + off
        return np.asarray(error)

    error, excess = within(log_most, grown), None
    if beyond.any():
        excess = np.maximum(within(log_most + beyond, grown + beyond) - error, 0.0)
    return Spectrum(parts[0][0].tilt, log_size, np.exp(log_power), error, atom, excess=excess)


def mix(parts: Sequence[tuple[float, Spectrum]]) -> Spectrum:
    """Return the weighted sum of spectra on one line."""
    assert all(part.excess is None for _, part in parts), "no rounds of a family in a mixture"
    # Relative to the largest part, no part overflows.
    top = max(part.log_size for _, part in parts)
    shares = [weight * math.exp(part.log_size - top) for weight, part in parts]
    size = sum(s * abs(part.values[0]) for s, (_, part) in zip(shares, parts, strict=True))
    values: Complex | float = 0.0
    error: Array | float = 2 * UNIT * (1.0 + abs(top))
    atom = 0.0
    for share, (_, part) in zip(shares, parts, strict=True):
        values = values + share / size * part.values
        slip = 2 * UNIT * (10.0 + len(parts) + abs(part.log_size) + abs(top))
        error = error + share / size * (part.error + slip)
        atom += share / size * part.atom
    log_size = top + math.log(size)
    near = _mix_near(parts)
    return Spectrum(parts[0][1].tilt, log_size, np.asarray(values), np.asarray(error), atom, near)


def _mix_near(parts: Sequence[tuple[float, Spectrum]]) -> Near | None:
    """Return sum of weight (A - 1), the weights adding up to 1; None if it is not small."""
    total: Complex | float = 0.0
    error: Array | float = 0.0
    units = UNIT * (6.0 + len(parts))
    for weight, part in parts:
        if part.near is not None:
            values, off = weight * part.near.values, weight * part.near.error
            size: Array | float = np.abs(values)
        else:
            log_share = part.log_size + math.log(weight)
            # One part is larger than 1, so the sum is not near 1.
            if log_share > 0.0:
                return None
            share = math.exp(log_share)
            values, off = share * part.values - weight, share * part.error
            size = (1.0 + abs(part.log_size)) * share * np.abs(part.values) + 2.0 * weight
        total, error = total + values, error + off + units * size
    return Near(np.asarray(total), np.asarray(1.001 * error))


def mix_cumulants(parts: Sequence[tuple[float, Cumulants]]) -> Cumulants:
    """Return the cumulants of a labelled mixture from those of its parts.

    Raises:
        NoMoments: the weight of the largest part underflows, so no line is usable.
    """
    if len(parts) == 1 and parts[0][0] == 1.0:
        return parts[0][1]
    top = max(part.value for _, part in parts)
    # Relative to the largest, so that no exponential overflows.
    shares = [weight * math.exp(part.value - top) for weight, part in parts]
    total = sum(shares)
    if not 0.0 < total < math.inf:
        raise NoMoments
    mean = sum(s * part.mean for s, (_, part) in zip(shares, parts, strict=True)) / total
    square = sum(
        s * (part.variance + part.mean**2) for s, (_, part) in zip(shares, parts, strict=True)
    )
    return Cumulants(top + math.log(total), mean, square / total - mean * mean)


def mixed_cumulants(parts: Array, log_atom: Array) -> Cumulants:
    """Return the cumulants of many labelled mixtures, to a few digits.

    Args:
        parts: log-moments with the labels' weights, means and variances, shape ``(labels, 3, n)``.
        log_atom: logs of the masses at loss 0, shape ``(n,)``.
    """
    values, means, variances = parts.swapaxes(0, 1)
    total = log_total(np.concatenate([values, log_atom[None]]))
    shares = np.exp(values - total)
    mean = (shares * means).sum(axis=0)
    square = (shares * (variances + means**2)).sum(axis=0)
    return Cumulants(total, mean, square - mean * mean)


def power_cumulants(parts: Sequence[tuple[Cumulants, PerRow]]) -> Cumulants:
    """Return the cumulants of a composition, the sums over its parts; parts may have rows."""
    sums = [0.0, 0.0, 0.0]
    for part, count in parts:
        for k, column in enumerate(part):
            # A product of numbers overflows to infinity, without a warning.
            product = count * column
            sums[k] += float(product if np.ndim(product) == 0 else np.sum(product))
    return Cumulants(*sums)


class Decay(NamedTuple):
    """``|A(tilt + i v) - e^log_atom| <= e^log_rest`` for every v at or above each height.

    The atom is a mass at loss 0, a constant of A. Values are logs, because shares of a mixture can
    be tiny.
    """

    log_atom: float
    log_rest: Array

    def of_all(self) -> Decay:
        """Return a bound on the whole moment, for moments that do not report their atom."""
        return Decay(-math.inf, np.logaddexp(self.log_atom, self.log_rest) + FEW)


def power_decay(parts: Sequence[tuple[Decay, PerRow]]) -> Decay:
    """Return the bound for a composition, prod (atom + rest)^c - prod atom^c."""
    # If one part has no atom, the product has none, and the sizes multiply.
    if any(decay.log_atom == -math.inf for decay, _ in parts):
        logs = [_slack(d, c) + c * np.logaddexp(d.log_atom, d.log_rest) for d, c in parts]
        return Decay(-math.inf, np.sum([_over_rows(one) for one in logs], axis=0))
    log_atom = sum(count * decay.log_atom for decay, count in parts)
    # Bounded below, so that the logarithms of vanishing shares stay finite.
    shares = [np.maximum(d.log_rest - d.log_atom, -690.0) for d, _ in parts]
    growth = sum(c * np.logaddexp(0.0, share) for share, (_, c) in zip(shares, parts, strict=True))
    slack = sum(_slack(d, c) for d, c in parts)
    return Decay(log_atom, log_atom + growth + np.log(-np.expm1(-growth)) + slack)


def _slack(decay: Decay, count: PerRow) -> Array:
    """Return the rounding of ``count`` times a bound, and of an atom right to 1e-14 of all."""
    off_atom = math.exp(min(-decay.log_atom, 30.0)) if decay.log_atom > -math.inf else 0.0
    return np.asarray(
        count * TENS * (1.0 + 0.1 * np.abs(np.maximum(decay.log_rest, -1e9)) + off_atom)
    )


def mix_decay(parts: Sequence[tuple[float, Decay]]) -> Decay:
    """Return the bound for a labelled mixture."""
    log_atom = log_total(np.array([math.log(weight) + part.log_atom for weight, part in parts]))
    log_rest = log_total(np.array([math.log(weight) + part.log_rest for weight, part in parts]))
    return Decay(float(log_atom), log_rest + THOUSANDS)


def slab_decay(
    spectrum: Callable[[Contour], Spectrum],
    tilt: float,
    heights: Array,
    fine: bool,
    lost: Callable[[Spectrum], Array],
) -> Decay:
    """Return the bound that ``lost`` gives at each height, tightened if ``fine``.

    ``lost`` takes the moment at height 0 and returns a lower bound on the fall at other heights.
    """
    at = spectrum(Contour(tilt, 0.0, 1))
    kept = np.maximum(1.0 + at.error[0] - at.atom - lost(at), 1e-300)
    decay = Decay(at.log_atom, at.log_size + np.log(kept))
    return sampled_decay(spectrum, tilt, heights, decay) if fine else decay


def sampled_decay(
    spectrum: Callable[[Contour], Spectrum], tilt: float, heights: Array, decay: Decay
) -> Decay:
    """Return a tighter bound from the moments at 512 heights up to the last of ``heights``.

    Between two of these heights the size changes by at most the distance times ``E |L - m|`` under
    the tilted law, for any m. From the last height on ``decay`` holds.
    """
    top = float(heights[-1])
    line = Contour(tilt, top / 511, 512)
    here = spectrum(line)
    size = np.abs(here.values - here.atom) + here.error
    slack = 0.5 * line.spacing * _root_second_moment(spectrum, here, line.spacing)
    between = here.log_size + np.log(np.maximum(size[:-1], size[1:]) + slack)
    # The bound must hold for all greater heights: a running maximum from the top down.
    rising = np.maximum.accumulate(np.append(between, decay.log_rest[-1])[::-1])[::-1]
    # A height between two samples may have the larger value of both, so one cell earlier counts.
    first = np.clip(np.floor(heights / line.spacing).astype(int) - 1, 0, 511)
    found = np.minimum(decay.log_rest, np.where(heights < top, rising[first], np.inf))
    return Decay(decay.log_atom, found)


def _root_second_moment(
    spectrum: Callable[[Contour], Spectrum], here: Spectrum, spacing: float
) -> float:
    """Return a bound on the root of E (L - m)^2 under the tilted law, for some m.

    Use x^2 <= e^x + e^-x - 2. Then h^2 E (L - m)^2 is at most the sum of the moments at tilt +- h,
    each times e^{-+ h m}, minus twice the moment between. Here m is chosen so that the two are
    equal.
    """
    # Every h is valid. A third of 1 / deviation costs 1 % of the bound and is far from the range of
    # rounding errors; the deviation is estimated from the fall to the second height. A twentieth of
    # the tilt is small even if rare jumps make moments rise.
    fall = 1.0 - min(abs(here.values[1]) / abs(here.values[0]), 1.0)
    h = min(0.3 * spacing / math.sqrt(2.0 * fall + 1e-12), 0.05 * here.tilt)
    ends = [spectrum(Contour(here.tilt + sign * h, 0.0, 1)).log_moment for sign in (-1, 1)]
    log_growth = 0.5 * sum(ends) - here.log_size + 2.0 * float(here.error[0]) + FEW
    if not log_growth < 600.0:
        return math.inf
    return math.sqrt(2.0 * math.expm1(max(log_growth, 0.0))) / h


def uniform_envelope(x: Array) -> Array:
    """Return sup over y >= x of |sin(y) / y|, rounded up: the first side lobe is below 0.2173.

    Rounding is added, because for tiny x it exceeds the distance from 1.
    """
    safe = np.maximum(x, 1e-9)
    first = np.where(safe < math.pi, np.sin(np.minimum(safe, math.pi)) / safe, 0.0)
    return np.minimum(np.maximum(first, np.minimum(0.2173, 1.0 / safe)) + FEW, 1.0)


def panel_factor(radius: float, rho: float) -> float:
    """Return the log of the error factor of a Gauss-Legendre panel, without rho^-2n.

    The integrand is at most 1 on the ellipse with foci at the panel's ends and half axes that add
    up to rho times its radius (Trefethen 2008, Theorem 4.5).
    """
    return math.log(64.0 / 15.0 * radius / (1.0 - rho**-2))


def node_count(at_least: float) -> int:
    """Return one of few node counts of a panel, so that rules can be cached.

    Raises:
        NoMoments: too many nodes are needed.
    """
    for count in (12, 16, 24, 32, 48, 64, 96, 128, 192):
        if at_least <= count:
            return count
    raise NoMoments
