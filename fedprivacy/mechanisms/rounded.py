"""Noise without floating-point leaks: the correct rounding of a sum plus ideal noise to a grid.

Floating-point noise added to a floating-point sum gives outputs that another sum cannot give. Here
a release is the grid point nearest to total + std Z. Z is a true standard normal number, with as
many digits as that rounding needs. The release is a function of the ideal mechanism's release. So
every account of the ideal mechanism holds for it exactly.

Contributions are first put on the grid with a norm of at most C (``on_grid``). A sum of them is
then exact in any order (``room`` gives their largest number), and one contribution changes it by at
most C. Example::

    grid = grid_for(std, clip_norm)
    total = sum(on_grid(update, clip_norm=clip_norm, grid=grid) for update in updates)
    released = noisy_sum(total, std=std, grid=grid)

Mechanisms use ``on_grid``, ``noise_like`` and ``noisy_like``, which also take torch tensors.
Samplers use ``noisy_scaled``. A later rounding to single precision is post-processing and costs no
privacy. Proofs and assumptions about the machine are in docs/theory/rounding.md.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from ..errors import moderate, refuse
from .exact_normals import StoredDraws
from .exact_tails import Bits, ExponentialTail, NormalTail, Tail
from .noise import is_finite, norm, readable
from .tensors import is_tensor, loaded_torch, placed_like

LARGEST = float(1 << 52)
"""Largest total and largest sum of contributions, in spacings: half of what doubles add exactly."""

FINEST = float(1 << 32)
"""Largest std / grid. Above it, doubles leave too many roundings undecided."""

WIDEST = 31
"""Most powers of two from the grid to the larger of std and clip norm.

It keeps rounding cheap and sums exact."""

_HUGE = 2.0**500
"""Vectors with a larger norm are divided by it first, so that the clipping factor keeps its digits.
"""

_SINGLE = 1e-30, 1e30
"""Factors, grids and clip norms between these keep all digits in single precision."""

STEP_GRID = 1.0 / (1 << 20)
"""Spacing of a sampler's step in its stds: the finest that doubles decide at full speed."""

HIDDEN_GRID = 1.0 / (1 << 22)
"""The same for steps that are accounted together. Extra noise pays for their rounding."""

_TINY = 1e-150
"""Squares of larger numbers do not underflow."""

SHORT = 1 << 13
"""Below this length, a scalar product is faster than a maximum and stays in one thread."""

PART = 1 << 17
"""Number of entries of a contribution that are put on the grid at a time."""

ROW = 128
"""Number of single-precision entries whose squares are added in single; longer sums use double."""

ROW_ERROR = 2.0**-15
"""Largest relative error of such a sum of squares. The proved bound, for any order, is smaller."""

_QUICK = 2.0**-50, 2.0**50
"""Squares of grids and clip norms between these neither underflow nor overflow in single."""

NORMAL, EXPONENTIAL = NormalTail(), ExponentialTail()


def reproducible_bits(generator: np.random.Generator) -> Bits:
    """Return a source of reproducible bits: for tests and replays, never for a private release.

    Anyone who knows the seed can subtract the noise, and numpy's generators do not protect their
    seed.
    """
    if not isinstance(generator, np.random.Generator):
        refuse("generator", generator, "be a numpy.random.Generator")
    return generator.bytes


def bits_of(generator: Any) -> Bits | None:
    """Return the source of bits for a mechanism's generator.

    Args:
        generator: None for the operating system, the only private choice. A
            ``numpy.random.Generator`` or a ``torch.Generator`` gives reproducible bits.
    """
    if generator is None:
        return None
    if hasattr(generator, "initial_seed"):
        return lambda count: _torch_bytes(generator, count)
    return reproducible_bits(generator)


def _torch_bytes(generator: Any, count: int) -> bytes:
    torch = loaded_torch()
    words = torch.empty(count, dtype=torch.uint8, device=generator.device)
    return bytes(words.random_(0, 256, generator=generator).cpu().numpy().tobytes())


def grid_for(std: float, clip_norm: float, places: int = 20) -> float:
    """Return a power-of-two spacing of about 2^-places times the smaller of std and clip norm.

    Rounding to the grid adds at most spacing^2 / 4 to a coordinate's mean square: 2^-42 of the
    smaller one. If std and clip norm differ by many orders, the grid is coarser, so that the larger
    is below 2^32 spacings.

    Args:
        std: standard deviation (or scale) of the noise, unit of the sum.
        clip_norm: C, the largest norm of a contribution, unit of the sum.
        places: from 1 to 30. With a finer grid, more roundings need exact arithmetic.
    """
    ends = moderate(std=std), moderate(clip_norm=clip_norm)
    if places not in range(1, 31):
        refuse("places", places, "be an integer from 1 to 30")
    # frexp's exponent less 1 is the power of two at or below the number.
    low, high = (math.frexp(end)[1] - 1 for end in (min(ends), max(ends)))
    return math.ldexp(1.0, max(low - int(places), high - WIDEST))


def room(clip_norm: float, grid: float) -> int:
    """Return how many contributions of norm at most ``clip_norm`` can be added without rounding."""
    grid = _spacing(grid)
    return math.floor(LARGEST / (moderate(clip_norm=clip_norm) / grid))


def on_grid(value: Any, *, clip_norm: float, grid: float) -> Any:
    """Return ``value`` clipped to a norm of at most C and rounded to the grid, still at most C.

    Entries are rounded to the nearest grid point if that keeps the norm. Otherwise they are first
    shrunk slightly, or rounded towards 0. The check is on the norm of the returned value, with all
    rounding counted against it.

    Args:
        value: numbers of any shape: an array, or a torch tensor, which stays on its device.
        clip_norm: C, from 1e-50 to 1e50, at most 2^52 spacings.
        grid: the spacing, a power of two.

    Returns:
        double precision, every entry a multiple of ``grid``. A long single-precision tensor keeps
        its type if single precision holds the result. Sum those tensors in double precision.

    Raises:
        ParameterError: an entry is not finite, or a parameter breaks its rule.
    """
    plain = type(clip_norm) is type(grid) is float
    clip_norm, grid, reach = (_limits if plain else _limits.__wrapped__)(clip_norm, grid)
    value = readable("value", value)
    if not value.shape:
        # Array functions turn an array without shape into a plain number.
        return on_grid(value.reshape(1), clip_norm=clip_norm, grid=grid).reshape(())
    quick = _quick(value, clip_norm, grid)
    if quick is not None:
        return quick
    array, size = _measured(value)
    count = math.prod(array.shape)
    # Only shrink: a short update keeps its length.
    factor = min(1.0, clip_norm / size) if size else 1.0
    tries = ((_rint, 0.0), (_rint, 2.0**-20), (_trunc, (count + 8) * 2.0**-50))
    # If the value was clipped, rounding adds count / 12 to the square, so the first try fails.
    hopeless = factor < 1.0 and count / 12.0 > reach * reach * 2.0**-48
    array = _single_or_double(array, factor / grid, clip_norm, grid)
    for round_, shrunk in tries[hopeless:]:
        points, fits = _rounded(array, factor * (1.0 - shrunk) / grid, round_, grid, reach)
        if fits:
            if not isinstance(points, np.ndarray):
                return points
            # Adding 0 turns -0, which would reveal a sign, into 0.
            points += 0.0
            return placed_like(points, value)
    raise ArithmeticError(
        f"rounding towards 0 raised a norm above {reach}, so the arithmetic is broken"
    )


@functools.lru_cache(maxsize=64)
def _limits(clip_norm: float, grid: float) -> tuple[float, float, float]:
    """Return clip norm, grid and their quotient; cached because every contribution needs them."""
    grid, clip_norm = _spacing(grid), moderate(clip_norm=clip_norm)
    if clip_norm / grid > LARGEST:
        refuse("grid", grid, f"be at least clip_norm / 2^52 = {clip_norm / LARGEST:g}")
    return clip_norm, grid, clip_norm / grid


def _quick(value: Any, clip_norm: float, grid: float) -> Any:
    """Return a long single-precision tensor on the grid in two passes; None if that may fail.

    The tensor is shrunk by an extra ``ROW_ERROR``, so that sums in single precision can verify the
    norm. The check uses the norm and the largest entry of the returned points, so the way they were
    made does not matter. Subtracting the bias from numbers of 2^23 to 2^24 spacings leaves an
    integer number of spacings.
    """
    low, high = _QUICK
    if not _is_long_single(value) or not (low < grid and clip_norm < high):
        return None
    flat = value.detach().reshape(-1)
    rows = _row_norms(flat)
    size = math.sqrt(rows.dot(rows))
    # This also excludes NaN.
    if not 1e-15 < size < 1e15:
        return None
    factor = min(1.0, clip_norm * (1.0 - ROW_ERROR) / size)
    out, bias = flat.new_empty(flat.shape), flat.new_tensor(1.5 * 2.0**23 * grid)
    squares = largest = 0.0
    for part, points in zip(flat.split(2 * PART), out.split(2 * PART), strict=True):
        loaded_torch().add(bias, part, alpha=factor, out=points)
        points -= bias
        rows = _row_norms(points)
        squares += float(rows.dot(rows))
        largest = max(largest, float(rows.max()))
    fits = squares * (1.0 + ROW_ERROR) < clip_norm * clip_norm
    return out.view(value.shape) if fits and largest <= 2.0**21 * grid else None


def _is_long_single(value: Any) -> bool:
    if not is_tensor(value) or _is_short(value):
        return False
    return bool(value.dtype == loaded_torch().float32 and value.device.type == "cpu")


def _row_norms(flat: Any) -> np.ndarray:
    """Return the norms of rows of ``ROW`` single-precision numbers, as doubles."""
    norms_of, whole = loaded_torch().linalg.vector_norm, len(flat) // ROW * ROW
    norms = norms_of(flat[:whole].view(-1, ROW), dim=1).numpy()
    if whole < len(flat):
        norms = np.append(norms, norms_of(flat[whole:]).numpy())
    return np.asarray(norms, dtype=np.float64)


def _measured(value: Any) -> tuple[Any, float]:
    """Return numbers as doubles and their norm, both scaled down if the norm is huge."""
    if not is_tensor(value):
        array = _doubles("value", value)
        size = norm(array)
    else:
        array = value.detach()
        if array.element_size() < 8 and _is_short(array) and array.device.type == "cpu":
            # Doubles hold these squares, and numpy has less overhead per call.
            array = array.double().numpy()
            size = math.sqrt(_square(array))
        else:
            size = norm(array)
    if not math.isfinite(size) and not is_finite(array):
        refuse("value", "a non-finite entry", "be finite", "leave out the update of this client")
    if size > _HUGE:
        array = array / _HUGE
        size = norm(array)
    return array, size


def _single_or_double(array: Any, factor: float, clip_norm: float, grid: float) -> Any:
    """Return a tensor in double precision, unless single precision is equally good.

    The rounded values are integers and their norm is checked. So the precision before does not
    matter, unless a value overflows or loses digits when scaled back.
    """
    if isinstance(array, np.ndarray):
        return array
    low, high = _SINGLE
    fits = low < factor < high and low < grid and clip_norm < high
    return array if array.element_size() == 4 and fits else array.double()


def _rounded(
    array: Any, factor: float, round_: Callable[[Any], Any], grid: float, reach: float
) -> tuple[Any, bool]:
    """Return integers times ``grid``, and whether their norm is at most ``reach``.

    A large tensor is processed in parts that fit a core's cache.
    """
    if isinstance(array, np.ndarray) or _is_short(array) or array.device.type != "cpu":
        points = round_(array * factor)
        fits = _within(math.prod(points.shape), _square(points), reach)
        # Exact, because the grid is a power of two.
        points *= grid
        return points, fits
    out, squares = loaded_torch().empty(array.shape, dtype=array.dtype), []
    flat, written = array.reshape(-1), out.view(-1)
    for part, points in zip(flat.split(PART), written.split(PART), strict=True):
        round_(loaded_torch().mul(part, factor, out=points))
        squares.append(_square(points))
        points *= grid
    return out, _within(flat.numel(), math.fsum(squares), reach)


def _is_short(tensor: Any) -> bool:
    return bool(tensor.numel() <= PART)


def _rint(points: Any) -> Any:
    return np.rint(points, out=points) if isinstance(points, np.ndarray) else points.round_()


def _trunc(points: Any) -> Any:
    return np.trunc(points, out=points) if isinstance(points, np.ndarray) else points.trunc_()


def noisy_sum(total: Any, *, std: float, grid: float, bits: Bits | None = None) -> np.ndarray:
    """Return the grid points nearest to ``total`` + std Z, Z independent standard normal numbers.

    ``total`` need not lie on the grid. It is used exactly, and only the result is rounded, once. If
    ``total`` lies on the grid, rounding only the noise is enough (``noise_on_grid``).

    Args:
        total: the exact sum, any shape, at most 2^52 spacings in size.
        std: standard deviation of the noise, from 1e-50 to 1e50, at most 2^32 spacings.
        grid: the spacing, a power of two.
        bits: source of randomness; None, the operating system, is the only private choice.

    Returns:
        double precision, the shape of ``total``; every entry a multiple of ``grid``, no -0.

    Raises:
        ParameterError: a parameter breaks its rule, or an entry is not finite or too large.
    """
    return _noisy(NORMAL, total, moderate(std=std), grid, bits)


def noisy_laplace_sum(
    total: Any, *, scale: float, grid: float, bits: Bits | None = None
) -> np.ndarray:
    """Return the grid points nearest to ``total`` + scale L, L of density e^-|x| / 2.

    Arguments, result and errors are those of ``noisy_sum``. The noise has std sqrt(2) scale.
    """
    return _noisy(EXPONENTIAL, total, moderate(scale=scale), grid, bits)


def noise_on_grid(
    shape: tuple[int, ...] | int, *, std: float, grid: float, bits: Bits | None = None
) -> np.ndarray:
    """Return std Z rounded to the grid: the noise of ``noisy_sum`` for a total on the grid.

    If t is on the grid, the grid point nearest to t + y is t plus the grid point nearest to y.
    """
    sizes = shape if isinstance(shape, tuple) else (shape,)
    spread, spacing = _checked(moderate(std=std), grid)
    noise = StoredDraws(NORMAL, bits).rounded(None, math.prod(sizes), spread / spacing)
    noise *= spacing
    return noise.reshape(sizes)


def noise_like(value: Any, *, std: float, grid: float, generator: Any = None) -> Any:
    """Return ``noise_on_grid`` with the shape and device of an array or tensor, in doubles.

    Args:
        value: gives shape and device.
        std: see ``noisy_sum``.
        grid: see ``noisy_sum``.
        generator: see ``bits_of``.
    """
    shape = tuple(np.shape(value))
    return placed_like(noise_on_grid(shape, std=std, grid=grid, bits=bits_of(generator)), value)


def noisy_like(value: Any, *, std: float, grid: float, generator: Any = None) -> Any:
    """Return ``noisy_sum`` of an array or tensor: a tensor's type and device, an array's doubles.

    Arguments are those of ``noise_like``.
    """
    return same_kind(noisy_sum(numbers(value), std=std, grid=grid, bits=bits_of(generator)), value)


def drawn_ahead(generator: Any, numbers: int) -> StoredDraws:
    """Return the normal numbers of one round's steps, for ``noisy_scaled``.

    Args:
        generator: see ``bits_of``.
        numbers: expected number of values of the round.
    """
    return StoredDraws(NORMAL, bits_of(generator), numbers)


def noisy_scaled(total: Any, *, stds: Any, deviates: StoredDraws, grid: float = STEP_GRID) -> Any:
    """Return total + stds Z for differing stds: stds times the rounding of total / stds + Z.

    Multiplying by public stds is post-processing of a release. The division rounds an entry by
    2^-53 of itself. This rounding counts as part of the total.

    Args:
        total: numpy array or torch tensor.
        stds: above 0; an array that broadcasts to the total's shape.
        deviates: from ``drawn_ahead``.
        grid: spacing in each std, a power of two.

    Returns:
        doubles, shape and device of ``total``. An entry that is not finite or above 2^52 spacings
        becomes NaN, and the chain must stop.
    """
    spacings = stds * grid
    points, largest, kept = _in_spacings(total, spacings, deviates)
    flat, lost = points.reshape(-1), None
    # Not `>`: NaN also counts as lost.
    if not largest <= LARGEST:
        lost = ~(np.abs(flat) <= LARGEST)
        # Use 0 while the others are rounded: only entries up to 2^52 spacings fit.
        flat[lost] = 0.0
    out = None if kept else flat
    noisy = deviates.rounded(flat, flat.size, 1.0 / grid, 1.0, largest, out)
    if lost is not None:
        noisy[lost] = np.nan
    noisy = noisy.reshape(points.shape)
    noisy *= spacings
    return placed_like(noisy, total)


def _in_spacings(
    total: Any, spacings: Any, deviates: StoredDraws
) -> tuple[np.ndarray, float, bool]:
    """Return a total in spacings, an upper bound of its entries, and whether it is constant.

    An array that is read-only and not a view of another array is the same in every step.
    """
    constant = isinstance(total, np.ndarray) and isinstance(spacings, float)
    constant = constant and not total.flags.writeable and total.base is None
    if constant:
        if deviates.constant is not total:
            deviates.constant, deviates.quotients = total, {}
        if spacings in deviates.quotients:
            return *deviates.quotients[spacings], True
    # Single precision would round the total by far more than its sensitivity allows.
    points = np.divide(numbers(total), spacings, dtype=np.float64)
    largest = at_most(points.reshape(-1))
    kept = constant and largest <= LARGEST
    if kept:
        deviates.quotients[spacings] = points, largest
    return points, largest, kept


def _largest(flat: np.ndarray) -> float:
    """Return the largest absolute value of some doubles; NaN if one is NaN."""
    if not flat.size:
        return 0.0
    # This avoids an array of absolute values, and NaN passes through.
    return float(np.maximum(np.maximum.reduce(flat), -np.minimum.reduce(flat)))


def at_most(flat: np.ndarray) -> float:
    """Return an upper bound of absolute values, the largest or the norm; NaN if one is NaN."""
    if flat.size >= SHORT:
        return _largest(flat)
    # Twice the norm: squares round, and tiny ones underflow.
    size = 2.0 * math.sqrt(flat.dot(flat)) + _TINY
    return size if size <= LARGEST else _largest(flat)


def numbers(value: Any) -> np.ndarray:
    """Return a tensor (in doubles), an array or other numbers as an array."""
    value = readable("value", value)
    if isinstance(value, np.ndarray):
        return value
    return np.asarray(value.to("cpu", loaded_torch().float64).numpy())


def same_kind(array: np.ndarray, value: Any) -> Any:
    """Return doubles in the kind of ``value``: a tensor of its type, an array or a number."""
    if isinstance(value, np.ndarray):
        return array
    if is_tensor(value):
        return placed_like(array, value, value.dtype if value.is_floating_point() else None)
    return float(array) if array.ndim == 0 else array


def _spacing(grid: object) -> float:
    spacing = moderate(grid=grid)
    # Exactly the powers of two have the mantissa 1/2.
    if math.frexp(spacing)[0] != 0.5:
        refuse("grid", grid, "be a power of two", "use grid_for")
    return spacing


def _doubles(name: str, value: Any) -> np.ndarray:
    """Return numbers as a contiguous array of equal doubles."""
    array = readable(name, value)
    doubles = np.ascontiguousarray(array, dtype=np.float64).reshape(array.shape)
    # Beyond 2^53 an integer may change when it becomes a double.
    if array.dtype.kind != "f" and doubles.size and max(abs(doubles.min()), doubles.max()) > 2**53:
        refuse(name, doubles.max(), "be at most 2^53 in absolute value if they are integers")
    if not is_finite(doubles):
        refuse(name, "a non-finite entry", "be finite", "refuse its update")
    return doubles


def _square(points: Any) -> float:
    """Return the squared norm approximately; for integers see ``_within``."""
    flat = points.reshape(-1)
    if isinstance(flat, np.ndarray) or flat.element_size() == 8:
        return float(flat.dot(flat))
    # Single precision is squared in doubles, which hold squares of integers.
    return norm(flat) ** 2


def _within(count: int, squares: float, reach: float) -> bool:
    """Return whether the norm of integers is at most ``reach``; True is certain.

    In double precision, a sum of n products has a relative error below n 2^-52, in any order and
    any parts. The norm of single-precision numbers, taken in double, adds the error of a root and a
    square.
    """
    if squares * (1.0 + (count + 32) * 2.0**-50) < reach * reach:  # clear, including rounding here
        return True
    # Near the limit the comparison itself must not round.
    return Fraction(squares) * (1 + Fraction(count + 16, 2**51)) <= Fraction(reach) ** 2


def _noisy(tail: Tail, total: Any, spread: float, grid: object, bits: Bits | None) -> np.ndarray:
    spread, spacing = _checked(spread, grid)
    drawn, totals = StoredDraws(tail, bits), _doubles("total", total)
    flat = totals.reshape(-1)
    largest = _largest(flat)
    if largest > LARGEST * spacing:
        refuse("total", largest, f"be at most 2^52 grids of {spacing:g}")
    noisy = drawn.rounded(flat, flat.size, spread / spacing, spacing, largest)
    noisy *= spacing
    return noisy.reshape(totals.shape)


def _checked(spread: float, grid: object) -> tuple[float, float]:
    """Return the spread of the noise and the spacing, if the grid is not too fine for the noise."""
    spacing = _spacing(grid)
    if spread / spacing > FINEST:
        refuse("grid", grid, f"be at least 2^-32 of the noise, {spread / FINEST:g}")
    return spread, spacing
