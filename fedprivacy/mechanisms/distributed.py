"""Secure aggregation of integers: clients round, add integer noise, and sum modulo 2^bits.

A client clips its update, optionally rotates it and divides it by the granularity. It rounds it at
random to integers and checks their norm. It adds its share of the noise and sends the result modulo
2^bits. The observer sees only the sum modulo 2^bits. The account uses integers, their norm and an
exact law. Floating-point rounding does not enter (docs/theory/integers.md).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np

from ..errors import UnsupportedCombination, integer, positive, refuse, validate_fields
from ..loss import Curve
from ..privacy_loss import PrivacyLoss, Witness
from ..registry import registered
from ..relations import Facts
from ..sampling.traits import Traits
from . import integer_laws, integers
from .arrays import doubles, floored, jittered, squared_norm, truncated
from .gaussian import Gaussian
from .noise import is_finite, norm, private_generator
from .perturbation import Encoding
from .rotation import padded, rotated, rotated_back, signs_of
from .rounded import LARGEST, PART, bits_of
from .sparsified import SparsifiedPerturbation
from .tensors import is_tensor, placed_like

MOST_BITS = 40
"""Largest number of bits of a summed number."""

_TRIES = 16

_SINGLE = float(1 << 22)
"""Below this size, single precision holds integers and most of the fractions to be rounded."""

_ODD = np.uint64(0x0001_0001_0001_0001)
"""Makes each 16 bits of a word an odd number, which is symmetric about 0."""

_FARTHEST = 1e100

_HELD = (
    "a secure sum contains at most {} shares of the noise; if more clients arrive, the others "
    "add no share"
)

_MOST_APART = 1e-6
"""Largest accepted total variation between rounds with different numbers of shares."""

_LONGEST = float(1 << 25)
"""Largest clip norm in integer units. Squares of norms are then exact in doubles."""


@dataclass(frozen=True, kw_only=True)
class IntegerPerturbation(SparsifiedPerturbation, Encoding):
    """Common base of the integer mechanisms; see ``DistributedDiscreteGaussian``."""

    kept: int = 0
    bits: int
    granularity: float | None = None
    rotated: bool = True
    overflow: float = 1e-6
    seed: int | None = field(default=None, compare=False, repr=False)

    draws: ClassVar[bool] = True
    widest: ClassVar[float]
    """Largest std of the noise, in integer units."""
    divisible: ClassVar[bool]
    """Whether any number of equal shares adds up to the same law."""

    def __post_init__(self) -> None:
        validate_fields(self, partial(integer, 0), "kept")
        # All coordinates are sent unless ``kept`` says fewer.
        object.__setattr__(self, "kept", self.kept or self.dimension)
        super().__post_init__()
        validate_fields(self, partial(integer, 2), "bits")
        if self.bits > MOST_BITS:
            refuse("bits", self.bits, f"be at most {MOST_BITS}")
        # Products and quotients within these bounds are far from overflow and underflow.
        for name, size in (("clip_norm", self.clip_norm), ("noise's std", self.full_noise_std)):
            if not 1.0 / _FARTHEST <= size <= _FARTHEST:
                refuse(name, size, f"be from {1.0 / _FARTHEST:g} to {_FARTHEST:g}")
        if not isinstance(self.rotated, bool):
            refuse("rotated", self.rotated, "be True or False")
        chance = positive(overflow=self.overflow)
        if chance > 0.1:
            refuse("overflow", chance, "be at most 0.1", "a sum that wraps around is lost")
        if self.granularity is None:
            object.__setattr__(self, "granularity", self._finest())
        validate_fields(self, positive, "granularity")
        if self.seed is not None:
            integer(0, seed=self.seed)
        self._check_room()
        self._check_shares()

    @property
    def width(self) -> int:
        """Number of integers sent: ``kept``, padded to a power of two if rotated."""
        return self.travelling(self.kept)

    def travelling(self, kept: int) -> int:
        """Return ``kept``, padded to a power of two if rotated."""
        return padded(kept) if self.rotated else kept

    @property
    def grid(self) -> float:
        """The granularity: size of one integer step, in the unit of the update."""
        assert self.granularity is not None
        return self.granularity

    @property
    def encoding(self) -> Encoding:
        """Integers: this mechanism itself encodes and decodes them."""
        return self

    # Contributions are integers.
    spacing = 1.0

    @property
    def room(self) -> int:
        """Number of contributions that a sum holds: ``cohort``, for which ``bits`` were checked.

        For varying cohorts, the number that doubles add exactly, far above ``most_on_average``.
        """
        most = math.floor(LARGEST / math.sqrt(self.square))
        return most if self.topped_up else min(self.cohort, most)

    @property
    def most_on_average(self) -> int:
        """``cohort``: sums of more clients would wrap more often than ``overflow`` allows."""
        return self.cohort

    @property
    def square(self) -> int:
        """Largest squared norm of a contribution, in integer units.

        Let c = clip_norm / granularity. A random rounding of a vector of norm c exceeds this value
        with probability at most ``REJECTED``. It is then drawn again (Kairouz, Liu and Steinke
        2021, Proposition on conditional rounding).
        """
        return integer_laws.inflated_square(self.clip_norm / self.grid, self.width)

    @property
    def whole_std(self) -> float:
        """Std parameter of the full sum's noise, in integer units."""
        return self.full_noise_std / self.grid

    @property
    def share_variance(self) -> float:
        """Variance of the smallest share of the noise, in integer units."""
        if self.topped_up:
            return self.whole_std**2 / self.most_shares
        return (self.share_std / self.grid) ** 2

    def smallest_bits(self, granularity: float) -> int:
        """Return the fewest bits whose sums wrap with a chance of at most ``overflow`` a round."""
        reach = self._reach(positive(granularity=granularity))
        return math.ceil(math.log2(2.0 * reach + 2.0))

    def _reach(self, granularity: float) -> float:
        """Return a bound that any entry of a sum exceeds with a chance of at most ``overflow``.

        Without rotation every client may have its whole norm in one coordinate. With rotation a
        coordinate is a sum of independent signs (Hoeffding). So are the roundings: their law is at
        most 1 / (1 - REJECTED) times that of unconditional roundings.
        """
        # Data, rounding and noise share the chance equally, with the cohort's size if it varies.
        parts, cohort = 4.0 if self.topped_up else 3.0, self.most_shares
        length, part = self.clip_norm / granularity, parts * self.width / self.overflow
        log_part = math.log(2.0 * part)
        if self.rotated:
            sums = cohort * length * math.sqrt(2.0 * log_part / self.width)
            accepted = -cohort * math.log1p(-integer_laws.REJECTED)
            rounding = math.sqrt(0.5 * cohort * (log_part + accepted))
            data = min(sums, cohort * length) + min(rounding, cohort)
        else:
            data = cohort * math.ceil(length)
        return data + self._noise_reach(self.full_noise_std / granularity, log_part)

    @property
    def most_shares(self) -> int:
        """Largest number of clients in a sum: ``cohort``, or a bound if the cohort size is random.

        A sum of independent coins with mean r is at least r (1 + x) with a chance of at most e^(-r
        h(x)), h(x) = (1 + x) log(1 + x) - x >= x^2 / (2 + 2 x / 3) (Bennett, Bernstein).
        """
        if not self.topped_up:
            return self.cohort
        depth = math.log(4.0 / self.overflow)
        third = depth / 3.0
        return math.ceil(self.cohort + third + math.sqrt(third**2 + 2.0 * depth * self.cohort))

    def _noise_reach(self, std: float, log_part: float) -> float:
        """Return a bound that noise exceeds on either side with a chance of at most e^-log_part."""
        return std * math.sqrt(2.0 * log_part)

    def _finest(self) -> float:
        """Return the finest granularity whose sums fit, within 0.1 %."""
        room = 2.0 ** (self.bits - 1) - 1.0
        coarse = self.full_noise_std / self._narrowest()
        if self._reach(coarse) > room:
            self._too_few(coarse)
        fine = self.full_noise_std / min(self.widest, 2.0**self.bits)
        while coarse > 1.001 * fine:
            middle = math.sqrt(coarse) * math.sqrt(fine)
            fine, coarse = (fine, middle) if self._reach(middle) <= room else (middle, coarse)
        return coarse

    def _narrowest(self) -> float:
        return integers.NARROWEST * math.sqrt(self.most_shares)

    def _too_few(self, granularity: float) -> None:
        needed = self.smallest_bits(granularity)
        rule = f"be at least {needed} at granularity = {granularity:.4g}"
        way_out = "or use a coarser granularity, fewer clients, rotated=True or more overflow"
        refuse("bits", self.bits, rule, way_out)

    def _check_room(self) -> None:
        """Refuse ``bits`` if a round's sum would wrap more often than ``overflow``."""
        if self._reach(self.grid) > 2.0 ** (self.bits - 1) - 1.0:
            self._too_few(self.grid)

    def _check_shares(self) -> None:
        """Refuse noise that the samplers cannot draw, and norms that doubles cannot hold."""
        if self.clip_norm / self.grid > _LONGEST:
            refuse("granularity", self.grid, f"be at least clip_norm / {_LONGEST:g}", "increase it")
        share, whole = math.sqrt(self.share_variance), self.whole_std
        if share < integers.NARROWEST * (1.0 - 1e-9):
            narrow = integers.NARROWEST
            least = f"give each share a std of at least {narrow:g} granularities, not {share:g}"
            needed = self.smallest_bits(self.full_noise_std / self._narrowest())
            refuse("granularity", self.grid, least, f"use a finer one, which takes {needed} bits")
        if whole > self.widest:
            most = f"give the noise a std of at most {self.widest:g} granularities, not {whole:g}"
            refuse("granularity", self.grid, most, "use a coarser one, which takes fewer bits")

    def of_round(self, generator: np.random.Generator | None = None) -> IntegerPerturbation:
        """Return the mechanism with a round's own public signs, the same for all its clients.

        A loop that simulates all clients also uses ``generator`` for rounding. A real client makes
        the mechanism with the ``seed`` that the server sends, and rounds with its own randomness.

        Args:
            generator: draws the seed of the signs; None for one from the operating system.
        """
        source = private_generator() if generator is None else generator
        found = replace(self, seed=int(source.integers(2**62)))
        object.__setattr__(found, "_rounding", source)
        return found

    @cached_property
    def _rounding(self) -> np.random.Generator:
        """Generator for roundings. Privacy does not depend on them."""
        return private_generator()

    @cached_property
    def _signs(self) -> np.ndarray:
        """The round's public signs, shape (width,)."""
        if self.seed is None:
            way_out = "call of_round() once per round, for all its clients and the server"
            refuse("seed", None, "be given if sums are rotated", way_out)
        return signs_of(self.seed, self.width)

    def contribution(self, update: Any, mask: Any = None) -> Any:
        """Return a client's clipped, rotated and rounded update: integers, shape (width,).

        Args:
            update: flat array or tensor of shape (dimension,).
            mask: the round's indices, shape (kept,); None if every coordinate is kept.

        Returns:
            Integers as doubles, or in single precision if that holds them. Their squared norm,
            checked after rounding, is at most ``square``.

        Raises:
            ParameterError: a wrong shape, an entry that is not finite, or no signs of the round.
        """
        kept = self.sparsification.select(update, mask)
        size = norm(kept)
        # Norms that overflow become finite only after scaling down.
        if not math.isfinite(size):
            refuse("update", f"norm {size}", "have a finite norm", "leave out this update")
        factor = min(1.0, self.clip_norm / size) if size else 1.0
        precise, scale = self._precise(kept), factor / self.grid

        def scaled() -> Any:
            if self.rotated:
                return rotated(precise, self._signs, self.width, scale)
            return precise * scale

        return self._whole(scaled)

    def _precise(self, kept: Any) -> Any:
        """Return numbers in single precision if they came in it and it holds the sent values.

        Without rotation, use doubles. They send integers unchanged.
        """
        single = is_tensor(kept) and kept.element_size() == 4 and self.rotated
        low, high = self.grid > 1e-30, max(self.clip_norm / self.grid, self.clip_norm) < _SINGLE
        return kept.detach() if single and low and high else doubles(kept)

    def _whole(self, scaled: Callable[[], Any]) -> Any:
        """Return a random rounding within ``square``; after 16 failures, round towards 0.

        Args:
            scaled: makes a fresh copy of the values, because rounding overwrites them.
        """
        limit = float(self.square)
        for _ in range(_TRIES):
            points = scaled()
            if self._rounded(points) <= limit:
                return points
        points = truncated(scaled())
        # Earlier rounding may have put it outside the ball. The sent vector must be inside.
        while squared_norm(points) > limit:
            points = truncated(points * (1.0 - 2.0**-20))
        return points

    def _rounded(self, points: Any) -> float:
        """Round at random in place, part by part to fit a core's cache; return the squared norm.

        An odd k / 2^16 with |k| < 2^15 is added and the result is rounded to the nearest integer.
        The mean is within 2^-16 of the input, and integers are unchanged.
        """
        flat, total = points.reshape(-1), 0.0
        for start in range(0, len(flat), PART):
            part = flat[start : start + PART]
            words = self._rounding.integers(0, 1 << 64, -(-len(part) // 4), dtype=np.uint64)
            words |= _ODD
            jittered(part, words.view(np.int16)[: len(part)])
            total += squared_norm(part)
        return total

    def noise(
        self, like: Any, generator: Any = None, *, shares: int | None = None
    ) -> tuple[Any, float]:
        """Draw the noise of a sum of ``shares`` clients in one call, integers as doubles.

        The account of that many shares holds for it. By I1 one number replaces a sum of discrete
        Gaussian shares. A Skellam number of the summed variance has the law of the sum.

        Returns:
            The noise, to be added to a sum of contributions before ``decoded``; and its std per
            coordinate, in the unit of the update.
        """
        std = self.sum_noise_std(self.cohort if shares is None else shares)
        count = int(np.prod(np.shape(like)))
        drawn = self._numbers(count, (std / self.grid) ** 2, generator)
        noise = drawn.astype(np.float64).reshape(np.shape(like))
        return placed_like(noise, like), std

    @abstractmethod
    def _numbers(self, count: int, variance: Fraction | float, generator: Any) -> integers.Integers:
        """Draw ``count`` numbers of the noise's law."""

    def release(
        self, value: Any, generator: Any = None, *, mask: Any = None, shares: int | None = None
    ) -> integers.Integers:
        """Return one client's message: its contribution plus its share, modulo 2^bits.

        Args:
            value: the client's flat update, shape (dimension,); numpy array or torch tensor.
            generator: see ``rounded.bits_of``; None is the only private choice.
            mask: the round's kept indices; None if every coordinate is kept.
            shares: number of shares in the sum; see ``SparsifiedPerturbation.release``.

        Returns:
            int64, shape (width,), from 0 to 2^bits - 1. Pass sums of them modulo 2^bits to
            ``decoded``.

        Raises:
            ParameterError: as in ``contribution``; send a share of zeros then.
        """
        variance = Fraction((self._std_of_one(shares) / self.grid) ** 2)
        if self.topped_up and shares is not None:
            # Exact arithmetic: sums of different numbers of shares have the same variance.
            variance = Fraction(self.whole_std**2) / integer(1, shares=shares)
            if not self.divisible and shares > self.most_shares:
                way_out = "let the other clients send contribution() without a share"
                refuse("shares", shares, f"be at most {self.most_shares}", way_out)
        if math.sqrt(variance) < integers.NARROWEST:
            rule = f"give each share a std of at least {integers.NARROWEST:g}"
            refuse("shares", shares, rule, "use a finer granularity")
        own = np.asarray(doubles(self.contribution(value, mask)))
        drawn = self._numbers(self.width, variance, generator)
        return np.asarray((own.astype(np.int64) + drawn) % (1 << self.bits))

    def decoded(self, total: Any) -> Any:
        """Return the sum of updates that a sum of integers, wrapped or not, represents.

        Args:
            total: shape (width,), array or tensor, equal modulo 2^bits to the clients' sum.

        Raises:
            ParameterError: another shape, or an entry that is not an integer.

        Returns:
            Doubles, shape (kept,). Entries are taken from -2^(bits-1) to 2^(bits-1) - 1, multiplied
            by the granularity and rotated back.
        """
        half = float(1 << self.bits - 1)
        values = doubles(total)
        if tuple(values.shape) != (self.width,):
            refuse("total", tuple(values.shape), f"have shape ({self.width},)")
        # Beyond 2^53 doubles have no last bits to wrap.
        whole = (
            bool((values == floored(values)).all()) and float(abs(values).max()) <= LARGEST * 2.0
        )
        if not (is_finite(values) and whole):
            way_out = "pass the sum of the clients' messages"
            refuse("total", "other entries", "contain integers", way_out)
        wrapped = (values + half) % (2.0 * half) - half
        if self.rotated:
            wrapped = rotated_back(wrapped, self._signs, self.kept)
        return wrapped * self.grid

    def upload_bits(self, kept: int) -> int:
        """Return the number of bits of one client's message."""
        del kept
        return self.bits * self.width

    @property
    def traits(self) -> Traits:
        """Zeros are a valid contribution. Theorems about one Gaussian sum do not apply."""
        return super().traits._replace(sum_multiplier=None)

    @property
    def _summed(self) -> tuple[int, float]:
        """Number of counted shares and their variance. Topped-up noise counts as one share."""
        if self.topped_up:
            return 1, self.whole_std**2
        return self.cohort - self.missing - self.colluding, self.share_variance

    def single_uploads(self) -> Gaussian:
        """Refuse: a single upload is integers modulo 2^bits with one share of the noise."""
        raise UnsupportedCombination(
            "without secure aggregation, a client's upload has only its own share of the "
            f"noise; account {type(self).__name__} with cohort=1 and "
            f"noise_multiplier={self.noise_multiplier / math.sqrt(self.cohort):.6g}"
        )

    @abstractmethod
    def _curve(self, shift: integer_laws.Shift) -> tuple[Curve, str] | None:
        """Return the curve that dominates a shift, and its theorem; None if noise is too small."""

    def _law(self) -> tuple[tuple[int, ...], float] | None:
        """Return weights of one number of the counted noise; see ``scalar_law``."""
        return integer_laws.scalar_law(*self._summed, skellam=self.divisible)

    def loss_under(self, facts: Facts) -> PrivacyLoss:
        """Return the loss of the sum of integers, modulo 2^bits."""
        # This refuses add_remove for noise that is not topped up, and returns the assumptions.
        assumed = self._assumed(facts)
        times = facts.adjacency.moves
        shift = integer_laws.shift_of(self.square, self.width, times)
        found, law = self._curve(shift), self._law() if self.width == 1 else None
        if law is not None:
            known = found and found[0]
            moves = math.isqrt(shift.square)
            found = integer_laws.scalar_curve(law[0], moves, law[1], known) or found
        if found is None:
            raise self._too_small()
        curve, theorem = found
        # A topped-up sum has any number of shares. A loop adds at most ``room`` shares.
        off = integers.TOTAL_VARIATION * self.width * (self.room if self.topped_up else self.cohort)
        off += self.width * self._apart()
        if self.topped_up and not self.divisible:
            assumed = (*assumed, _HELD.format(self.most_shares))
        drawn = (
            f"the drawn numbers are within a total variation distance of {off:.1g} of the "
            "ideal law, which every bound includes"
        )
        attained = self._attained(times)
        return PrivacyLoss(curve, facts, attained, (theorem,), (*assumed, drawn), tv_error=off)

    def _apart(self) -> float:
        """Return the distance of a sum of up to ``most_shares`` shares from one single share.

        The total variation per number is eta / (1 - eta), eta of I1, and increases with the shares.
        The relative error of each mass is at most twice this. It is 0 unless shares vary in number.
        """
        if self.divisible or not self.topped_up:
            return 0.0
        eta = integer_laws.sum_error(self.most_shares, self.share_variance)
        # A larger distance leaves no room for a usual delta.
        if not eta * self.width < _MOST_APART:
            raise self._too_small()
        return eta / (1.0 - eta) * (1.0 + 1e-9)

    def _too_small(self) -> UnsupportedCombination:
        share = math.sqrt(self.share_variance)
        return UnsupportedCombination(
            f"shares of std {share:.4g} are too small for every theorem here "
            f"({self.most_shares if self.topped_up else self._summed[0]} shares count); use a "
            f"finer granularity than {self.grid:.4g} (more bits) or a larger noise_multiplier"
        )

    def _attained(self, times: int) -> Witness | None:
        """Return the witness of one coordinate, if updates of integers are sent unchanged."""
        moves = self._sendable()
        if self.rotated or not moves:
            return None
        law, apart = self._law(), self._apart()
        if law is None or apart > integer_laws.MOST_WITNESS_ERROR:
            return None
        atoms = integer_laws.scalar_witness(
            law[0], times * moves, 1 << self.bits, error=law[1] + 4.0 * apart
        )
        names = (
            f"one unit sends {moves} granularities on one coordinate, every other sends 0 "
            "(replace_one: it sends that or its negative)"
        )
        return None if atoms is None else Witness(atoms, names, free=True)

    def _sendable(self) -> int:
        """Return a k for which an update of length k granularities is sent as the integer k."""
        most = math.floor(Fraction(self.clip_norm) / Fraction(self.grid))
        # Same arithmetic as in ``contribution``.
        for k in range(most, max(most - 8, 0), -1):
            sent = k * self.grid
            if sent <= self.clip_norm and sent * (1.0 / self.grid) == k:
                return k
        return 0


@registered
@dataclass(frozen=True, kw_only=True)
class DistributedDiscreteGaussian(IntegerPerturbation):
    """One round of the distributed discrete Gaussian mechanism (Kairouz, Liu and Steinke 2021).

    Other fields are those of ``SparsifiedPerturbation``; the unit is a client. The noise of a sum
    of r clients is the sum of r discrete Gaussian numbers, with r times the variance of a share.

    Args:
        noise_multiplier: std of the full sum's noise over the clip norm, above 0.
        clip_norm: norm that an update is clipped to.
        dimension: d, number of coordinates.
        cohort: r, number of clients whose shares make up the full noise.
        kept: number of coordinates sent; 0 for all.
        bits: b from 2 to 40: sums are taken modulo 2^b.
        granularity: size of one integer step, in the unit of the update; None for the finest one
            whose sums fit, within 0.1 %.
        rotated: whether updates are first rotated by public random signs and a Hadamard matrix.
            This spreads their norm over all coordinates. They are padded with zeros to a power of
            two. The account of a rotated sum has no lower end.
        overflow: largest chance that some entry of a round's sum wraps. Wrapping costs accuracy,
            never privacy. For topped-up noise it holds for cohorts of independent draws with a mean
            of at most ``cohort``.

    Raises:
        ParameterError: a value out of its range, or too few bits; the message says how many are
            enough.

    With topped-up noise, sums of different numbers of shares, at most ``most_shares``, differ by a
    total variation, which delta includes (I6). A finer granularity (more bits) makes it vanish.
    """

    widest: ClassVar[float] = integers.WIDEST_GAUSSIAN
    divisible: ClassVar[bool] = False

    def _numbers(self, count: int, variance: Fraction | float, generator: Any) -> integers.Integers:
        return integers.discrete_gaussian(count, variance=variance, bits=bits_of(generator))

    def _curve(self, shift: integer_laws.Shift) -> tuple[Curve, str] | None:
        return integer_laws.gaussian_curve(shift, *self._summed)


@registered
@dataclass(frozen=True, kw_only=True)
class Skellam(IntegerPerturbation):
    """One round of the distributed Skellam mechanism (Agarwal, Kairouz and Liu 2021).

    Fields are those of ``DistributedDiscreteGaussian``. A share is a difference of two Poisson
    numbers. A sum of any number of shares has a law of the same kind. From a std of 24 integers on,
    one Gaussian pair dominates it. The account of narrower noise is of Renyi divergences.

    Raises:
        ParameterError: as in ``DistributedDiscreteGaussian``.
    """

    widest: ClassVar[float] = integers.WIDEST_SKELLAM / 2.0
    divisible: ClassVar[bool] = True

    def _noise_reach(self, std: float, log_part: float) -> float:
        """Return a bound that noise exceeds on either side with a chance of at most e^-log_part."""
        return integers.skellam_reach(std * std, log_part)

    def _numbers(self, count: int, variance: Fraction | float, generator: Any) -> integers.Integers:
        return integers.skellam(count, variance=variance, bits=bits_of(generator))

    def _curve(self, shift: integer_laws.Shift) -> tuple[Curve, str] | None:
        return integer_laws.skellam_curve(shift, math.prod(self._summed))
