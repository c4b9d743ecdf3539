"""Noisy SGD that releases only its last point: batches that are drawn, or in fixed order."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache

import numpy as np

from ..errors import (
    UnsupportedCombination,
    natural,
    non_negative,
    positive,
    refuse,
    require,
    validate_fields,
)
from ..factors import FixedEpochs
from ..loss import DISJOINT, IDENTITY, Curve, GaussianMix, Gdp, LeastOf, Mix, Side, compose
from ..privacy_loss import PrivacyLoss, Witness
from ..registry import plain_fields, registered
from ..relations import Adjacency, Facts, Observer
from ..rounding import HUNDREDS, TENS, UNIT, rounded_down, rounded_up
from ..sampling import FixedSize, Poisson, TruncatedPoisson
from ..sampling.binomial import law as binomial_law
from ..sampling.binomial import log_tail
from ..sampling.traits import Traits
from ..theory.batches import BatchedRun, cyclic_factor
from ..theory.hidden_state import hidden_state_factor, std_at_the_end
from .gaussian import SUM_CLIPPED, Gaussian
from .gradient_descent import DEPENDS_ON, IN_BALL
from .rounded import HIDDEN_GRID
from .shifted import moved_down, spaced_sums
from .upload import NoisySteps, finite, known_ratio

Drawn = Poisson | TruncatedPoisson | FixedSize

_RARE = -46.1
"""Log of the chance, 1e-20, that a Poisson batch of a run exceeds the number that is counted on."""
_ALONE = (
    (Poisson, Adjacency.ADD_REMOVE),
    (Poisson, Adjacency.ZERO_OUT),
    (FixedSize, Adjacency.ZERO_OUT),
    (TruncatedPoisson, Adjacency.ZERO_OUT),
)
"""Cases in which the two data sets have the same batch, apart from the record itself."""
SMOOTH = (
    "every record's gradient, clipped, is that of a convex loss with the stated smoothness, for "
    "all data (one linear output, clipped record by record)"
)
_CURVED = (
    "every record's loss has second derivatives of at most smoothness in size everywhere on the "
    "ball, for all data; no code checks this"
)
_APART = "be given if steps may move points apart (convex=False)"
CLIPPED = "every record's gradient has a norm of at most clip_norm"
_HIDDEN = "all points before the last one stay secret"
_LARGEST = Fraction(sys.float_info.max)
DRAWS = "the draws of the batches stay secret"
ORDER = "no record changes its batch, and no batch has more than denominator records"
_LINEAR = "one record has one gradient everywhere, of norm clip_norm or none; all others have none"
_OF_THE_SUM = ("noise multiplier", "clip norm", "denominator of the sum")
"""Public numbers of one sum, which the run states in its own terms."""
_COUNTED = 2048
"""Most of the last steps whose draws a lower end counts."""
_CELLS = 1 << 16
"""Cells of the law of these moves. A move is rounded down to one; a whole move has 256 at most."""
_SPLIT = "T17: batches, released at their end; the last steps sampled, a Gaussian for the rest"
_PUSHED = "T18: Poisson batches, released at their end"
_CYCLIC = "T17: batches in a fixed order, released at their end"


def check_draws(name: str, draws: Drawn | FixedEpochs, population: int | None) -> None:
    """Refuse draws of batches that have no theorem, or Poisson draws from an unlimited number."""
    if type(draws) not in (FixedSize, Poisson, TruncatedPoisson, FixedEpochs):
        rule = "be FixedSize, Poisson, TruncatedPoisson or FixedEpochs"
        refuse(name, draws, rule, "compose the steps: Gaussian(...).sampled(...)")
    if isinstance(draws, FixedEpochs):
        rule = "state no at_most, since a unit takes part in every epoch"
        require(draws.at_most is None, name, draws, rule)
    if isinstance(draws, Poisson):
        rule = "be given with Poisson, since it limits how many units are drawn"
        require(population is not None, "population", None, rule)


def largest(
    draws: Drawn | FixedEpochs, denominator: float, population: int | None, steps: int
) -> float:
    """Return the largest size of a batch; with Poisson one that is rarely exceeded."""
    if isinstance(draws, FixedEpochs):
        return denominator
    if not isinstance(draws, Poisson):
        return float(draws.max_cohort)
    assert population is not None
    return float(_most_drawn(population, draws.probability, steps))


@registered
@dataclass(frozen=True, kw_only=True)
class NoisySGD(NoisySteps):
    """Steps x <- P(x - step_size gradient + N(0, noise_std^2)) on batches; only the end is seen.

    The gradient is that of ``regularisation`` |x|^2 / 2, plus the sum of a batch's clipped record
    gradients over ``denominator``. P is the projection on a ball, or nothing. The unit is a record,
    and the start is public.

    T17 and T18 need steps that move no two points apart, for all data: every record's clipped
    gradient is that of a convex smooth loss. One linear output, clipped record by record, has it. A
    network, softmax or a clipped sum does not. With ``convex=False`` and a ball it is enough that
    the loss is smooth. The loss is never larger than that of the composed steps.

    Args:
        step_size: at most 2 over the largest curvature: ``smoothness`` times the largest batch over
            ``denominator``, plus ``regularisation``.
        noise_std: std of the noise of each step on each coordinate, above 0.
        clip_norm: norm of a record's gradient that is not exceeded.
        denominator: public number that the sum of a batch is divided by, above 0.
        batches: ``FixedSize``, ``Poisson`` or ``TruncatedPoisson``, drawn anew in every step; or
            ``FixedEpochs(l)``: l batches in a fixed order, none of more than ``denominator``
            records.
        steps: number of steps.
        smoothness: largest second derivative of a record's loss, above 0.
        convex: False for a smooth loss that need not be convex, clipped in any way. Steps may then
            move points apart. This needs ``radius``, unless the regulariser outweighs it.
        regularisation: strong convexity of the regulariser, which is not clipped; at least 0.
        radius: of the ball that every step is projected on; None for no projection.
        population: upper limit of the number of records, needed for ``Poisson`` only.
        dimension: number of coordinates, for the rounding of a loop that runs these steps; None if
            steps are exact.

    Raises:
        ParameterError: a value out of its range, or a step size for which steps move points apart.
    """

    step_size: float
    noise_std: float
    clip_norm: float
    denominator: float
    batches: Drawn | FixedEpochs
    steps: int
    smoothness: float
    convex: bool = True
    regularisation: float = 0.0
    radius: float | None = None
    population: int | None = None
    dimension: int | None = None

    def __post_init__(self) -> None:
        above = ("step_size", "noise_std", "clip_norm", "denominator", "smoothness")
        validate_fields(self, positive, *above)
        validate_fields(self, non_negative, "regularisation")
        validate_fields(self, natural, "steps")
        validate_fields(self, positive, "radius", or_none=True)
        validate_fields(self, natural, "population", "dimension", or_none=True)
        check_draws("batches", self.batches, self.population)
        if not isinstance(self.convex, bool):
            refuse("convex", self.convex, "be True or False")
        # A step size for which steps move points apart is refused now.
        _ = self.gap, self.multiplier
        if self.gap < 0.0:
            require(self.radius is not None, "radius", None, _APART)
            fixed = isinstance(self.batches, FixedEpochs)
            require(not fixed, "batches", self.batches, "be drawn, if steps move points apart")

    def public(self, adjacency: Adjacency) -> dict[str, object]:
        """Return the fields, and what they follow from."""
        return plain_fields(self) | dict.fromkeys(DEPENDS_ON[2:3])

    # Batches are drawn inside.
    traits = Traits(samples_its_unit=True)

    @cached_property
    def step_noise_std(self) -> float:
        """``noise_std``."""
        return self.noise_std

    @property
    def _move(self) -> float:
        """Largest move of a step by one record."""
        return _within_range(self._exact_move)

    @cached_property
    def _exact_move(self) -> Fraction:
        # A product of doubles may underflow.
        return Fraction(self.step_size) * Fraction(self.clip_norm) / Fraction(self.denominator)

    @cached_property
    def multiplier(self) -> float:
        """Noise std of a step over a record's largest move of it."""
        # A smaller product has lost digits.
        fits = sys.float_info.min <= self._move < math.inf
        ratio = Fraction(self.noise_std) / self._exact_move
        found = finite(_within_range(ratio) if fits and ratio < _LARGEST else math.inf)
        fits, rule = found >= sys.float_info.min, f"be at least {sys.float_info.min:.3g}"
        require(fits, "noise over sensitivity", found, rule, "rescale both")
        return found

    @cached_property
    def largest_batch(self) -> float:
        """Most records of a batch; of Poisson, except in runs of total probability 1e-20."""
        return largest(self.batches, self.denominator, self.population, self.steps)

    @cached_property
    def gap(self) -> float:
        """1 - c: a step moves no two points farther apart than c times their distance.

        It is below 0 only for losses that are not convex.

        Raises:
            ParameterError: steps on a convex loss may move points apart.
        """
        step, own = Fraction(self.step_size), Fraction(self.regularisation)
        share = Fraction(self.largest_batch) / Fraction(self.denominator)
        if not self.convex:
            slope = abs(1 - step * own) + step * Fraction(self.smoothness) * share
            return _lower_double(1 - slope)
        curvature = Fraction(self.smoothness) * share + own
        # Exact arithmetic, as at the end of the range only rounding would decide.
        room = 2 - step * curvature
        rule = (
            f"be at most 2 / {_within_range(curvature):.6g}, so that no batch of up to "
            f"{self.largest_batch:g} records moves points apart"
        )
        require(room >= 0, "step_size", self.step_size, rule)
        return _lower_double(min(step * own, room))

    @property
    def drift(self) -> float:
        """What a loop's rounding adds to the distance of two runs in a step, in record moves.

        Raises:
            ParameterError: rounding hides a record's move.
        """
        if self.dimension is None:
            return 0.0
        drift = 2.0 * HIDDEN_GRID * math.sqrt(self.dimension) * self.multiplier
        rule = "be below 0.25 of a record's move, as rounding to a part of the noise"
        way_out = "use less noise, fewer dimensions, or Gaussian(...).sampled(...) * steps"
        require(drift <= 0.25, "rounding of a step", drift, rule, way_out)
        return rounded_up(drift, HUNDREDS)

    def noise_ratios(self, clip_norm: float) -> frozenset[float]:
        """Return the noise on the sum of a batch's gradients over the smaller clip norm.

        Clipping to a larger norm than stated needs more noise. A smaller norm leaves ``radius`` and
        the noise of a point as they are, so it is no reason for less noise.
        """
        on_sum = self.noise_std / self.step_size * self.denominator
        return known_ratio(on_sum / min(clip_norm, self.clip_norm))

    def rescaled(self, fraction: float) -> NoisySGD | None:
        """Return the run with the fraction of its noise."""
        noise = self.noise_std * fraction
        return replace(self, noise_std=noise) if noise > 0.0 else None

    def loss_under(self, facts: Facts) -> PrivacyLoss:
        """Return the smallest of the losses that theorems give."""
        if isinstance(self.batches, FixedEpochs):
            return self._in_order(self.batches, facts)
        # Rounding before the noise is part of the sum, so a record moves it by a little more.
        whole = rounded_down(self.multiplier / (1.0 + self.drift), TENS)
        plain = self._sampled(whole, facts)
        ends, theorem, first = self._at_the_end(self.batches, facts)
        once = compose([(plain.curve, self.steps)])
        # Rounded down for truncated batches.
        chance = getattr(self.batches, "surely", self.batches.rate)
        # The first of several curves represents all of them inside another mechanism.
        every = (*ends, once) if first else (once, *ends)
        return PrivacyLoss(
            LeastOf(every) if ends else once,
            facts,
            self._witness(lambda: self._drawn_sum(chance)),
            theorems=(*plain.theorems, *theorem),
            assumptions=(
                *self._assumed(facts.observer),
                *(each for each in plain.assumptions if each != SUM_CLIPPED),
            ),
            public=tuple(one for one in plain.public if one[0] not in _OF_THE_SUM),
        )

    def _witness(self, shown: Callable[[], Curve]) -> Witness | None:
        """Return a lower end of linear losses; None with a ball, or if the regulariser overshoots.

        Where data sets differ by 2 clip norms, one of them is left out.
        """
        known = self.radius is None and self.step_size * self.regularisation <= 1.0
        return Witness(shown(), _LINEAR, free=True) if known else None

    @property
    def _own_gap(self) -> float:
        """1 - c of the regulariser alone, which the linear losses have."""
        return self.step_size * self.regularisation

    def _drawn_sum(self, chance: float) -> Curve:
        """Return the law of the end of linear losses: a sum of the moves of drawn steps."""
        gap = self._own_gap
        move = (1.0 - 1e-9) / (self.multiplier * std_at_the_end(gap, self.steps))
        if gap == 0.0:
            drawn = binomial_law(self.steps, chance, Side.DOWN)
            ends = tuple((w, rounded_down(s * move, TENS)) for w, s in drawn)
            return GaussianMix(1.0, ends, ((1.0, 0.0),)) if len(ends) > 1 else Gdp(ends[0][1])
        last = min(self.steps, _COUNTED)
        left = np.exp(np.arange(last) * math.log1p(-gap)) if gap < 1.0 else np.ones(1)
        fine = max(8.0, min(256.0, float(np.floor(_CELLS / left.sum()))))
        steps = np.floor(left * (1.0 - HUNDREDS) * fine).astype(np.int64)
        return moved_down(spaced_sums(steps, chance, 1), move / fine)

    def _assumed(self, observer: Observer) -> tuple[str, ...]:
        """Return the conditions that no code checks, the one about the loss first."""
        found = [SMOOTH if self.convex else _CURVED, CLIPPED, _HIDDEN]
        # The server sees the draws, and a fixed order has none.
        if observer is not Observer.SERVER and not isinstance(self.batches, FixedEpochs):
            found.append(DRAWS)
        return (*found, *((IN_BALL,) if self.radius is not None else ()))

    def _sampled(self, multiplier: float, facts: Facts) -> PrivacyLoss:
        """Return the loss of one sampled step with this noise multiplier."""
        assert not isinstance(self.batches, FixedEpochs)
        once = Gaussian(noise_multiplier=multiplier, unit=facts.unit).sampled(self.batches)
        return once.privacy_loss(facts.adjacency, facts.observer)

    def _reach(self, moves: float = 1.0) -> float:
        """Diameter of the ball in moves of a step, rounded up; infinity without a ball."""
        if self.radius is None:
            return math.inf
        reach = 2.0 * self.radius / (self._move * moves)
        return max(rounded_up(reach, TENS), sys.float_info.min)

    def _at_the_end(
        self, batches: Drawn, facts: Facts
    ) -> tuple[list[Curve], tuple[str, ...], bool]:
        """Return curves of T17 or T18, the theorem, and whether the first is likely to be least.

        There are none for a single step.
        """
        if self.steps == 1:
            return [], (), False
        alone = (type(batches), facts.adjacency) in _ALONE
        run = BatchedRun(
            gap=self.gap,
            steps=self.steps,
            multiplier=self.multiplier,
            moved=1.0 if alone else 2.0,
            reach=self._reach(),
            drift=self.drift,
        )
        chance, moved = batches.rate, 1.0 + self.drift
        composed = run.plain(chance)
        # T18's pair needs other records that are hidden, and the same in both data sets. Its
        # payment does not fall, which is dear if steps move points apart.
        hidden = isinstance(batches, Poisson) and facts.observer is not Observer.SERVER
        if hidden and alone and self.gap >= 0.0:
            j, paid, square = run.best_push(chance)
            pair = self._pushed(chance, paid, rounded_up(paid + moved, TENS))
            return [compose([(pair, j), *self._excess])], (_PUSHED,), square < composed
        # With a fixed size another record sends the opposite if this one is not drawn.
        jumps = (2.0, 1.7, 1.4) if isinstance(batches, FixedSize) else (1.2, 1.0, 1.4)
        best = [run.best_split(chance, jump) for jump in jumps]
        curves = []
        for split in dict.fromkeys(split for split, _ in best):
            left = math.sqrt(1.0 - split.share) * self.multiplier / moved
            once = self._sampled(rounded_down(left, TENS), facts)
            rounds = [(once.curve, split.steps), (Gdp(split.mu), 1), *self._excess]
            curves.append(compose(rounds))
        return curves, (_SPLIT,), best[0][1] < composed

    @property
    def _excess(self) -> list[tuple[Curve, int]]:
        """The event that a Poisson batch is larger than assumed: it reveals everything."""
        if not isinstance(self.batches, Poisson):
            return []
        assert self.population is not None
        drawn = self.population, self.batches.probability, self.steps
        rare = rounded_up(math.exp(_log_excess(*drawn, int(self.largest_batch))), HUNDREDS)
        return [(Mix(((1.0 - rare, IDENTITY), (rare, DISJOINT))), 1)] if rare else []

    def _pushed(self, chance: float, paid: float, away: float) -> Curve:
        """Return T18's pair of one step: shifts of ``paid`` or, if drawn, ``away``."""
        if chance == 1.0:
            return Gdp(rounded_up(away / self.multiplier, TENS))
        ends = ((1.0 - chance, paid), (chance, away))
        return GaussianMix(self.multiplier, ends, ((1.0, 0.0),))

    def _in_order(self, batches: FixedEpochs, facts: Facts) -> PrivacyLoss:
        """Return the loss of batches in a fixed order: one Gaussian."""
        if facts.adjacency is Adjacency.ADD_REMOVE and not batches.apart:
            raise UnsupportedCombination(
                "NoisySGD has no theorem for add_remove in a fixed order, since the removal of a "
                "record moves others to other batches. Account for zero_out or replace_one, or "
                f"state that no record moves (apart=True), got {batches}"
            )
        moves, gap = facts.adjacency.moves, self.gap
        epochs = -(-self.steps // batches.separation)
        factor = moves * cyclic_factor(gap, epochs, batches.separation, self._reach(moves))
        # What rounding adds is closed on its own: shifts add up, and so do their norms.
        every = math.sqrt(self.steps) if gap == 0.0 else hidden_state_factor(gap, self.steps)
        mu = (factor + self.drift * every) / self.multiplier
        assumptions = (*self._assumed(facts.observer), ORDER)
        curve = Gdp(rounded_up(mu, HUNDREDS))
        witness = self._witness(lambda: self._ordered_sum(batches.separation, epochs, moves))
        return PrivacyLoss(curve, facts, witness, (_CYCLIC,), assumptions)

    def _ordered_sum(self, length: int, epochs: int, moves: float) -> Gdp:
        """Return what linear losses show of a record in the last batch of every epoch."""
        gap = self._own_gap
        # The log of the factor by which a distance shrinks in an epoch.
        kept = length * math.log1p(-gap) if gap < 1.0 else -math.inf
        total = math.expm1(epochs * kept) / math.expm1(kept) if kept else float(epochs)
        mu = moves * total / std_at_the_end(gap, self.steps) / self.multiplier
        return Gdp(rounded_down(mu, 1e-9))


def _log_excess(records: int, probability: float, steps: int, most: int) -> float:
    """Return log of the chance, rounded up, that others fill a Poisson batch in any step."""
    others = records - 1
    tail = log_tail(others, probability, most)[1] if others else -math.inf
    mean = others * probability
    if 0.0 < mean < most:
        # Chernoff's bound cancels less if the population is huge.
        terms = (float(most), -mean, most * math.log(mean / most))
        tail = min(tail, math.fsum(terms) + 16.0 * UNIT * math.fsum(map(abs, terms)))
    return tail + math.log(steps) * (1.0 + TENS)


@lru_cache(maxsize=256)
def _most_drawn(records: int, probability: float, steps: int) -> int:
    """Return the number of records that Poisson batches of a run rarely exceed.

    It is the least one, or larger by a part of 2^-20.
    """

    def rarely_exceeded(most: int) -> bool:
        # With others at least this many, the record makes the batch larger.
        return _log_excess(records, probability, steps, most) <= _RARE

    low, high = 1, max(1, math.ceil(records * probability))
    while high < records and not rarely_exceeded(high):
        low, high = high + 1, 2 * high
    high = min(high, records)
    while high - low > low >> 20:
        middle = (low + high) // 2
        if rarely_exceeded(middle):
            high = middle
        else:
            low = middle + 1
    return high


def _within_range(number: Fraction) -> float:
    """Return the nearest double; numbers beyond all doubles become the last one."""
    last = Fraction(sys.float_info.max)
    return float(max(-last, min(number, last)))


def _lower_double(number: Fraction) -> float:
    """Return a double that is at most the number, from -1 on; else the nearest one.

    A gap near 1 that was rounded up would lose all of c.
    """
    found = _within_range(number)
    return math.nextafter(found, -math.inf) if Fraction(found) > number > -1 else found
