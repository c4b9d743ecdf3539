"""Factors with the least noise in a workload, for a rule of participation; stored in a file."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ParameterError, integer, refuse
from ..outputs import whole_file
from ..registry import Registry, decode, encode
from .base import Factor, ToeplitzFactor, check_dense
from .dense import Matrix
from .interval import Array, comb
from .participation import Participation
from .toeplitz import Banded, BufferedToeplitz
from .workload import Workload, errors

FORMAT = "fedprivacy factor 1"
_FACTORS = Registry(lambda kind: issubclass(kind, Factor))
_ITERATIONS = 200

Progress = Callable[[float], None]
"""Callback that receives the completed share of the steps."""


def optimised(
    factor: Banded | BufferedToeplitz,
    *,
    rounds: int,
    participation: Participation,
    workload: Workload | None = None,
    progress: Progress | None = None,
) -> Banded | BufferedToeplitz:
    """Return a factor of the same shape with the least mean square noise in the workload.

    The search is L-BFGS from the closed form, which is returned if no result is better. Every
    result is certified by its own ``sensitivity``. A search that ends early costs noise, never
    privacy.

    Args:
        factor: a ``Banded`` or a ``BufferedToeplitz``; the search starts at its own numbers.
        rounds: n.
        participation: rule for the sensitivity.
        workload: default: prefix sums.
        progress: called after every step.

    Raises:
        ParameterError: another factor, or one that does not fit the run.
    """
    wanted = workload or Workload()
    integer(1, rounds=rounds)
    if isinstance(factor, Banded):
        start, build = _banded(factor)
    elif isinstance(factor, BufferedToeplitz):
        start, build = _buffered(factor, rounds)
    else:
        way_out = (
            "optimised_matrix optimises a matrix for a workload; the other factors have no "
            "free coefficients"
        )
        refuse("factor", factor, "be Banded or BufferedToeplitz", way_out)
    factor.check(rounds, participation)
    best = _least(start, build, rounds, participation, wanted, progress)

    def noise(one: Factor) -> float:
        return errors(one, rounds, participation, wanted).root_mean_square

    # Compare by certified sensitivities, not by the values of the search.
    return best if noise(best) < noise(factor) else factor


_Build = Callable[[Array], Any]


def _banded(factor: Banded) -> tuple[Array, _Build]:
    """Return the start of the search and a builder: the weights after the first, which is 1."""
    column = factor.column()

    def build(numbers: Array) -> Banded:
        return Banded(factor.bands, weights=(1.0, *numbers.tolist()))

    # A common factor cancels between sensitivity and noise, so the first weight is fixed at 1.
    return column[1:] / column[0], build


def _buffered(factor: BufferedToeplitz, rounds: int) -> tuple[Array, _Build]:
    """Return start and builder for BLT: logarithms of scales, and log-odds of decays."""
    scales, decays = factor.parameters(rounds)

    def build(numbers: Array) -> BufferedToeplitz:
        # Clipped, because a line search may try exponents that overflow.
        first, second = np.split(np.clip(numbers, -30.0, 30.0), 2)
        # At the largest log-odds a decay would round to 1.
        decays = np.minimum(1.0 / (1.0 + np.exp(-second)), 1.0 - 1e-12)
        return BufferedToeplitz(
            factor.buffers, scales=tuple(np.exp(first).tolist()), decays=tuple(decays.tolist())
        )

    return np.concatenate([np.log(scales), np.log(decays / (1.0 - decays))]), build


def _least(
    start: Array,
    build: _Build,
    rounds: int,
    participation: Participation,
    workload: Workload,
    progress: Progress | None,
) -> Any:
    # A single band has no free number.
    if not len(start):
        return build(start)
    gap, most = participation.gap(rounds), participation.most(rounds)

    def value(numbers: Array) -> float:
        return _log_noise(build(numbers), rounds, gap, most, workload)

    def value_and_slope(numbers: Array) -> tuple[float, Array]:
        return _banded_slope(numbers, rounds, gap, most, workload)

    # The gradient is for Toeplitz products. With rates the search uses differences.
    with_slope = isinstance(build(start), Banded) and not workload.rates
    from scipy.optimize import minimize  # slow to import

    found = minimize(
        value_and_slope if with_slope else value,
        start,
        jac=with_slope or None,
        method="L-BFGS-B",
        callback=_counted(progress),
        options={"maxiter": _ITERATIONS, "maxfun": 10_000},
    )
    if progress is not None:
        progress(1.0)
    return build(np.asarray(found.x, dtype=np.float64))


def _counted(progress: Progress | None) -> Callable[[Array], None]:
    taken = 0

    def step(_: Array) -> None:
        nonlocal taken
        taken += 1
        if progress is not None:
            progress(min(taken / _ITERATIONS, 1.0))

    return step


def _log_noise(
    factor: ToeplitzFactor, rounds: int, gap: int, most: int, workload: Workload
) -> float:
    """Return log(mean square times squared sensitivity); a large value if it overflows."""
    with np.errstate(over="ignore", invalid="ignore"):
        if workload.rates:
            product = workload.matrix(rounds) @ factor.noise_matrix(rounds)
            mean = float(np.sum(product**2)) / rounds
        else:
            series = workload.of_series(factor.inverse(rounds))
            # Coefficient k occurs in n - k rows.
            mean = float(np.arange(rounds, 0.0, -1.0) @ series**2) / rounds
        column = factor.coefficients(rounds)
        if factor.width(rounds) > gap:
            column = np.maximum.accumulate(column[::-1])[::-1]  # as in ``interval.toeplitz``
        square = float(np.sum(comb(column, gap, most) ** 2))
    whole = mean * square
    # A large finite value, not infinity, because line searches subtract values.
    return math.log(whole) if 0.0 < whole < math.inf else 1e6


def _banded_slope(
    numbers: Array, rounds: int, gap: int, most: int, workload: Workload
) -> tuple[float, Array]:
    """Return ``_log_noise`` of banded weights and its gradient.

    With d = 1 / c and r = w d, dr/dc_m = -(r d) shifted by m. A unit's columns share no row, so
    their squares add up to sum_k count_k c_k^2.
    """
    column = np.concatenate([[1.0], numbers])
    inverse = Banded(len(column), weights=tuple(column.tolist())).inverse(rounds)
    weights = np.arange(rounds, 0.0, -1.0)
    with np.errstate(over="ignore", invalid="ignore"):
        series = workload.of_series(inverse)
        mean = float(weights @ series**2)
        moved = np.convolve(series, inverse)[:rounds]
    kept = min(len(column), rounds)
    starts = np.arange(most) * gap
    counts = np.array([np.sum(starts + k < rounds) for k in range(kept)], dtype=np.float64)
    square = float(counts @ column[:kept] ** 2)
    # The same large value, with a zero gradient.
    if not (0.0 < mean < math.inf and np.all(np.isfinite(moved))):
        return 1e6, np.zeros(len(numbers))
    slope = np.zeros(len(column))
    for k in range(kept):
        slope[k] = -2.0 * float((weights * series)[k:] @ moved[: rounds - k]) / mean
    slope[:kept] += 2.0 * counts * column[:kept] / square
    return math.log(mean / rounds) + math.log(square), slope[1:]


def optimised_matrix(
    *,
    rounds: int,
    bands: int,
    workload: Workload | None = None,
    progress: Progress | None = None,
) -> Matrix:
    """Return the banded matrix of unit columns with the least mean square error.

    It solves min tr(A'A X^-1) over positive definite X = C'C with a diagonal of ones and ``bands``
    diagonals, a convex problem (Choquette-Choo et al. 2023, BandMF). A is the workload. Every
    column has norm 1, so the sensitivity is sqrt(k) for separations of at least ``bands``.

    Args:
        rounds: n, at most 4096; time grows with its cube.
        bands: p; n for a dense matrix, which is the best for one participation.
        workload: default: prefix sums.
        progress: called after every step.
    """
    check_dense(integer(1, rounds=rounds), "Matrix")
    width = min(integer(1, bands=bands), rounds)
    made = (workload or Workload()).matrix(rounds)
    gram = made.T @ made
    # Free entries: below the diagonal, within the bands.
    rows, columns = np.nonzero(np.tril(np.ones((rounds, rounds)), -1))
    inside = rows - columns < width
    rows, columns = rows[inside], columns[inside]

    def whole(numbers: Array) -> Array:
        found = np.eye(rounds)
        found[rows, columns] = found[columns, rows] = numbers
        return found

    def value_and_slope(numbers: Array) -> tuple[float, Array]:
        try:
            root = np.linalg.inv(np.linalg.cholesky(whole(numbers)))
        except np.linalg.LinAlgError:
            # Not positive definite, so outside the domain: a large value with zero gradient.
            return 1e3, np.zeros(len(numbers))
        inverse = root.T @ root
        slope, value = -inverse @ gram @ inverse, float(np.sum(gram * inverse))
        # Every free entry occurs twice in X.
        return math.log(value), 2.0 * slope[rows, columns] / value

    closed = Banded(width).matrix(rounds)
    # Columns of norm 1, as the problem requires.
    closed /= np.linalg.norm(closed, axis=0)
    start = (closed.T @ closed)[rows, columns]
    options = {"maxiter": _ITERATIONS, "maxfun": 10_000}
    from scipy.optimize import minimize  # slow to import

    found = minimize(
        value_and_slope,
        start,
        jac=True,
        method="L-BFGS-B",
        callback=_counted(progress),
        options=options,
    )
    if progress is not None:
        progress(1.0)
    return Matrix(tuple(map(tuple, _rows(_backward_cholesky(whole(found.x))))))


def _backward_cholesky(square: Array) -> Array:
    """Return the lower-triangular C with C'C = X: the flipped factor of the flipped matrix."""
    flipped = np.linalg.cholesky(square[::-1, ::-1])
    return np.asarray(flipped[::-1, ::-1].T, dtype=np.float64)


def _rows(matrix: Array) -> list[list[float]]:
    return [row[: i + 1].tolist() for i, row in enumerate(matrix)]


def save(factor: Factor, path: str | Path) -> None:
    """Write a factor to a small JSON file, replacing the whole file.

    Raises:
        LedgerError: a matrix of more than about 440 rounds: records hold 100,000 values.
        OSError: it cannot be written.
    """
    text = json.dumps({"format": FORMAT, "factor": encode(factor, _FACTORS)}) + "\n"
    whole_file(path, text)


def load(path: str | Path) -> Factor:
    """Read a factor. The file is untrusted; its content is never executed.

    Raises:
        ParameterError: the file holds no factor, or one that breaks its rules.
        OSError: it cannot be read.
    """
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as problem:
        raise ParameterError(f"factor must be a JSON file, got {str(path)!r} ({problem})") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        refuse("factor", str(path), f"have format {FORMAT!r}", "write it with fp.factors.save")
    found = decode(data.get("factor"), _FACTORS)
    if not isinstance(found, Factor):
        refuse("factor", str(path), "contain a factor")
    return found
