"""Gaussian noise that is correlated between rounds: one mechanism for a whole run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache, partial
from hashlib import sha256
from typing import Any, NoReturn, Self

import numpy as np

from ..errors import MODERATE, UnsupportedCombination, integer, natural, refuse, validate_fields
from ..factors import (
    Factor,
    FixedEpochs,
    Interval,
    MinimumSeparation,
    Participation,
    SingleParticipation,
    ToeplitzFactor,
)
from ..factors.base import DENSE_ROUNDS
from ..loss import Curve, Gdp
from ..privacy_loss import PrivacyLoss, Witness
from ..registry import alike, own_parts, registered
from ..relations import Adjacency, Facts, Observer, Unit
from ..sampling import FixedSize, Poisson, RandomAllocation, Scheme, priced_as
from ..sampling.scheme import check_kind, round_rate
from ..sampling.traits import Traits
from . import split_noise, unknown_position
from .base import Combined, Mechanism, public_of
from .draws import Array, Draw, OnceAnEpoch, Repeated, is_once
from .gaussian import Gaussian, NoisySum
from .sparsification import Indices, Sparsification
from .streams import NoiseMemory, NoiseStream

_THEOREMS = (
    "correlated noise: C^-1 z is a function of C x + z, whose loss is that of one Gaussian, "
    "also for adaptive rounds (Denisov et al. 2022)",
    "sensitivity of the factor over all patterns of participation (correlated_noise.md)",
)
_CLIPPED = "every unit's contribution to every round is clipped to the clip norm before the sum"
_SPACED = "no unit takes part more often or sooner than its participation allows"
_SECRET = "the memory of the noise is kept secret, and no row of it is released twice"
_WITNESS = "a unit sends C u or -C u in the rounds of its largest pattern, every other sends 0"


MOST_ROUNDS = 10**6
"""Largest number of rounds of a run, because its columns are held in memory."""


@registered
@dataclass(frozen=True, kw_only=True)
class CorrelatedNoise(NoisySum):
    """The sums of ``rounds`` rounds plus the rows of C^-1 z: DP-FTRL, matrix factorisation.

    A later round subtracts part of an earlier round's noise. So prefix sums, and hence the model,
    have much less noise. The loss is that of one Gaussian with multiplier ``noise_multiplier /
    sensitivity``. It is the same for observers ``aggregate``, ``server`` and ``final``, because it
    does not rely on secret sampling. ``sampled`` adds amplification by secret sampling, if a
    theorem covers it.

    Args:
        factor: C, from ``fedprivacy.factors``.
        noise_multiplier: std of z over the clip norm, above 0.
        rounds: n, of the whole run.
        participation: rounds that a unit may take part in.
        clip_norm: norm of a unit's contribution to one round.
        unit: "client" or "record"; optional.
        kept: k, number of coordinates sent, scaled by d/k as in Fed-SMP; None for all. Rows of one
            block keep the same coordinates (``mask``), because a row cancels an earlier row's noise
            only in common coordinates. A block is the factor's (``factors.Restarted``), or the
            whole run.
        dimension: d, required with ``kept``.

    Raises:
        ParameterError: a value out of its range, or a factor that does not fit the run.
    """

    factor: Factor
    rounds: int
    participation: Participation
    kept: int | None = None
    dimension: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        validate_fields(self, natural, "rounds")
        if self.rounds > MOST_ROUNDS:
            rule = (
                f"be at most {MOST_ROUNDS}, since a column of C takes {8e-9 * self.rounds:.3g} GB"
            )
            refuse("rounds", self.rounds, rule, "split the run; runs compose")
        if not isinstance(self.factor, Factor):
            way_out = "pass fp.factors.BufferedToeplitz(4), for example"
            refuse("factor", self.factor, "be a factor of fedprivacy.factors", way_out)
        if not isinstance(self.participation, Participation):
            way_out = "pass fp.MinimumSeparation(100), for example"
            refuse("participation", self.participation, "be a rule of participation", way_out)
        if (self.kept is None) is not (self.dimension is None):
            refuse("kept, dimension", (self.kept, self.dimension), "be given together")
        _ = self.sparsification
        self.factor.check(self.rounds, self.participation)
        low, high = MODERATE
        if not low <= self.sensitivity.lower <= self.sensitivity.upper <= high:
            rule = f"be from {low:g} to {high:g}"
            refuse(
                "sensitivity", tuple(self.sensitivity), rule, "divide the factor by its diagonal"
            )

    @property
    def sensitivity(self) -> Interval:
        """Certified bounds on the change of C x by a unit at clip norm 1 (not replaced)."""
        return _sensitivity(self.factor, self.rounds, self.participation)

    def leading(self, rows: int) -> CorrelatedNoise:
        """Return the run of the first ``rows`` rounds, with the same noise in them."""
        return replace(self, factor=self.factor.leading(rows, self.rounds), rounds=rows)

    def with_gaps(self, separation: int, at_most: int) -> CorrelatedNoise:
        """Return the run for units that return sooner, or more often.

        Raises:
            ParameterError: the factor does not fit this participation.
        """
        apart = self.participation.apart
        rule = MinimumSeparation(separation, at_most=at_most, apart=apart)
        return replace(self, participation=rule)

    @property
    def sparsification(self) -> Sparsification | None:
        """The random choice of the coordinates sent; None if all are sent."""
        if self.kept is None or self.dimension is None:
            return None
        return Sparsification(kept=self.kept, dimension=self.dimension)

    def block_of(self, row: int) -> int:
        """Return the number of a row's block."""
        return row // self.factor.block(self.rounds)

    def mask(self, row: int, nonce: str) -> Indices | None:
        """Return the coordinates of a row's block, shape (kept,); None if all are sent.

        Anyone can draw the mask again. So a check shows that it was not chosen by data.

        Args:
            row: index of the row, from 0.
            nonce: of the run's ledger, fixed before the first row.
        """
        if self.kept is None or self.dimension is None or self.kept == self.dimension:
            return None
        return _mask(self.kept, self.dimension, f"mask {self.block_of(row)} {nonce}")

    # A unit may send 0. Rounds are dependent, so no scheme's theorem for one round applies.
    traits = Traits(zeroing_replaces=True, samples_its_unit=True)

    @property
    def stream(self) -> NoiseStream:
        """The generator of the noise, row after row."""
        return NoiseStream(
            self.factor,
            self.rounds,
            self.full_noise_std,
            self.grid,
            # The certified lower end, because rounding must be a small share of the true value.
            self.sensitivity.lower * self.clip_norm,
        )

    def contribution(self, update: Any, mask: Any = None) -> Any:
        """Return an update's kept coordinates, clipped to ``clip_norm``, on the grid.

        Args:
            update: flat array or tensor, shape (d,).
            mask: the block's, shape (kept,); None if all are kept.

        Raises:
            ParameterError: a mask that does not fit, or an entry that is not finite.
        """
        sparse = self.sparsification
        if sparse is not None:
            return self.gridded(sparse.select(update, mask))
        if mask is not None:
            rule = "be None, since rows of noise need the same coordinates"
            refuse("mask", "given", rule, "pass kept and dimension")
        return self.gridded(update)

    def noise(self, like: Any, generator: Any = None, *, shares: int | None = None) -> NoReturn:
        """Refuse: a round's noise depends on the rounds before; use ``stream``.

        Raises:
            UnsupportedCombination: always.
        """
        raise UnsupportedCombination(
            "the noise of one round depends on the rounds before; draw it with "
            "stream.begin(like), then stream.draw(memory) once per round"
        )

    def begin(self, like: Any) -> NoiseMemory:
        """Return the noise's memory before the first row; see ``NoiseStream``.

        Args:
            like: an array or tensor of shape (d,).
        """
        return self.stream.begin(like[: self.kept])

    def sampled(self, scheme: Scheme, held: int = 1) -> SampledNoise:  # type: ignore[override]
        """Return the run with units that ``scheme`` draws in secret; see ``SampledNoise``.

        Raises:
            ParameterError: ``held`` is not an integer of at least 1.
            UnsupportedCombination: no theorem amplifies this combination, or ``held`` is above 1.
        """
        if integer(1, held=held) > 1:
            raise UnsupportedCombination(
                f"no theorem covers held={held} records of one client in correlated noise; "
                "sample Gaussian(noise_multiplier=...) in every round"
            )
        return SampledNoise(self, scheme)

    def row(
        self, number: int, *, separation: int | None = None, participations: int | None = None
    ) -> CorrelatedRow:
        """Return one round of the run, for a ledger; see ``CorrelatedRow``."""
        return CorrelatedRow(
            run=self, row=number, separation=separation, participations=participations
        )

    def loss_under(self, facts: Facts) -> PrivacyLoss:
        """Return the loss of one Gaussian of the whole run."""
        if facts.adjacency is Adjacency.ADD_REMOVE and not self.participation.apart:
            raise UnsupportedCombination(
                "CorrelatedNoise has no theorem for add_remove, since the removal of a unit "
                "moves others to other rounds, as under Shuffled. Account for zero_out or "
                "replace_one, or state that no unit moves (participation with apart=True), got "
                f"{self.participation}"
            )
        moves = facts.adjacency.moves
        lower, upper = (moves * end / self.noise_multiplier for end in self.sensitivity)
        assumptions = [_CLIPPED, _SPACED, _SECRET]
        if facts.adjacency is Adjacency.ADD_REMOVE:
            assumptions.append("the rounds of a unit do not depend on other units")
        witness = Witness(Gdp(lower), _WITNESS, free=True)
        return PrivacyLoss(Gdp(upper), facts, witness, _THEOREMS, tuple(assumptions))


# All rows of a block use the same mask.
@lru_cache(maxsize=2)
def _mask(kept: int, dimension: int, name: str) -> Indices:
    """Return the positions of the smallest of ``dimension`` random words: a uniform subset."""
    # Raw words do not change with numpy releases: an audit may use another release than the run.
    words = np.random.PCG64DXSM(list(sha256(name.encode()).digest())).random_raw(dimension)
    found: Indices = np.sort(np.argpartition(words, kept)[:kept])
    found.flags.writeable = False
    return found


def _sensitivity(factor: Factor, rounds: int, participation: Participation) -> Interval:
    # Equal user-defined factors may differ in behaviour.
    known = alike((factor, participation))
    ask = _sensitivity_once if known else _sensitivity_once.__wrapped__
    return ask(factor, rounds, participation)


# Cached: an audit needs the same run repeatedly, and a large factor takes long.
@lru_cache(maxsize=64)
def _sensitivity_once(factor: Factor, rounds: int, participation: Participation) -> Interval:
    return factor.sensitivity(rounds, participation)


@registered
@dataclass(frozen=True, kw_only=True)
class CorrelatedRow(Combined):
    """One round of a run with correlated noise, as a ledger names it.

    The losses of single rows do not add up. Every row is priced as the whole run. A row cannot be
    put in sequence with another mechanism, sampled or selected. A ``Budget`` charges a run once, at
    its row 0 or at the first row that it meets. An audit prices any set of rows as the whole run,
    for the recorded participation. It also checks that no row occurs twice.

    Args:
        run: the whole run.
        row: row of its factor, from 0.
        separation: the fewest rounds since any drawn unit was last drawn; None if no unit was drawn
            before, or if it is not known.
        participations: largest number of draws of any drawn unit, this round included; None if it
            is not known.

    Raises:
        ParameterError: the factor has no such row.
    """

    run: CorrelatedNoise
    row: int
    separation: int | None = None
    participations: int | None = None

    def __post_init__(self) -> None:
        validate_fields(self, partial(integer, 0), "row")
        for name in ("separation", "participations"):
            if getattr(self, name) is not None:
                integer(int(name == "separation"), **{name: getattr(self, name)})
        if not isinstance(self.run, CorrelatedNoise):
            refuse("run", type(self.run).__name__, "be a CorrelatedNoise")
        if self.row >= self.run.rounds:
            rule = f"be below rounds = {self.run.rounds}, the number of rows of the factor"
            refuse(
                "row", self.row, rule, "start a new run, which is accounted in addition to this one"
            )

    @property
    def kept(self) -> bool:
        """Whether the recorded draws keep the run's rule of participation."""
        rule, rounds = self.run.participation, self.run.rounds
        gap, apart = rule.gap(rounds), self.separation
        soon = apart is not None and (apart < gap or (rule.together and apart % gap > 0))
        return not soon and (self.participations or 0) <= rule.most(rounds)

    @property
    def protects(self) -> Unit | None:
        """The run's unit."""
        return self.run.protects

    @property
    def traits(self) -> Traits:
        """Inside another mechanism the released rows and their number are unknown."""
        alone = (
            "one row of a run with correlated noise cannot be composed, since rows have no "
            f"separate loss, got row {self.row}. Account for the whole run: CorrelatedNoise, "
            "sampled or in_cohort; only a ledger records single rows"
        )
        return Traits(samples_its_unit=True, alone=alone)

    def rescaled(self, fraction: float) -> Self | None:
        """Return row 0 of a run with a fraction of the noise; it pays for the whole run."""
        run = self.run.rescaled(fraction)
        return None if run is None else replace(self, run=run, row=0)

    def loss_under(self, facts: Facts) -> PrivacyLoss:
        """Return the loss of the whole run."""
        if not self.kept:
            found = (
                f"a unit took part again after {self.separation} rounds, or "
                f"{self.participations} times"
            )
            raise UnsupportedCombination(f"{found}, more than {self.run.participation} allows")
        whole = self.run.privacy_loss(facts.adjacency, facts.observer)
        return replace(whole, witness=None)  # it needs the whole run


def whole_run(mechanism: Mechanism) -> Mechanism:
    """Return the run that a row of correlated noise belongs to; any other mechanism itself."""
    return mechanism.run if isinstance(mechanism, CorrelatedRow) else mechanism


_FORGETFUL = "contributions depend on data and released rows, not on who was drawn before"
_AWAY = "after a participation a unit stays away until its rule allows the next, whatever the data"
_SENT = "a unit sends C u in its rounds, every other sends 0; "


@registered
@dataclass(frozen=True)
class SampledNoise(Combined):
    """A whole run of correlated noise with secret sampling of units.

    Made by ``CorrelatedNoise.sampled``. The participation describes how rounds belong together. The
    scheme describes how a unit is drawn:

    - ``RandomAllocation(b)``, ``FixedEpochs(b)``: every unit draws one of b positions and keeps it
      in every epoch ("balls in bins"); any factor.
    - ``RandomAllocation(rounds)``, ``MinimumSeparation(1, at_most=k)``: k of all rounds, at random.
    - any scheme that draws round by round, ``FixedEpochs(b)``: units are in b groups,
      independently of data. Round i samples group i modulo b, with a new draw; any factor.
    - ``RandomAllocation(b)``, ``MinimumSeparation(1, at_most=rounds / b)``: every unit draws one
      round of every epoch of b rounds, anew in each; any factor.
    - ``Poisson(q)``, ``MinimumSeparation(b)``: a unit that took part stays away for b - 1 rounds.
      In every other round it takes part with probability q; any factor. ``FixedEpochs(1)`` is b =
      1.

    Args:
        noise: the run.
        scheme: how units are drawn.

    Raises:
        UnsupportedCombination: no theorem covers the combination. The message names supported ones.
    """

    noise: CorrelatedNoise
    scheme: Scheme

    def __post_init__(self) -> None:
        check_kind(self.scheme)
        # The theorems use the numbers of CorrelatedNoise, which a subclass may override.
        own = own_parts(type(self.noise), CorrelatedNoise)
        if own:
            raise UnsupportedCombination(
                f"{type(self.noise).__name__} has its own fields ({', '.join(sorted(own))}), "
                "but amplification uses the loss of CorrelatedNoise; account the run without "
                ".sampled"
            )
        _ = self._kind

    @property
    def _kind(self) -> str:
        """Kind of theorem that covers the run: bins, some, cycle or rows."""
        rule = self.noise.participation
        epochs = isinstance(rule, FixedEpochs) and rule.at_most is None
        found = ""
        if isinstance(self.scheme, RandomAllocation) and priced_as(self.scheme, RandomAllocation):
            found = self._allocated(self.scheme, epochs)
        # Schemes of whole epochs draw their rounds jointly, not independently.
        elif hasattr(self.scheme, "draw") and not hasattr(self.scheme, "epoch") and epochs:
            found = self._in_groups
        elif isinstance(rule, MinimumSeparation) and rule.at_most is None:
            found = "rows" if priced_as(self.scheme, Poisson) else ""
        if found:
            return found
        raise UnsupportedCombination(
            f"{self.scheme} with {rule} and {type(self.noise.factor).__name__} has no "
            "amplification theorem; account the run without .sampled, or change it: "
            f"{unknown_position.SERVES}"
        )

    def _allocated(self, scheme: RandomAllocation, epochs: bool) -> str:
        """Return the kind of theorem for rounds allocated at random; empty if none applies."""
        rule, rounds, epoch = self.noise.participation, self.noise.rounds, scheme.rounds_per_epoch
        if isinstance(rule, SingleParticipation) or epochs:
            return "bins" if scheme.take == 1 and epoch == rule.gap(rounds) else ""
        if not isinstance(rule, MinimumSeparation) or rule.separation > 1 or not rule.at_most:
            return ""
        # The rule gives the number of rounds; a scheme that states it must state the same.
        if scheme.take == 1 and epoch * rule.at_most == rounds > rule.at_most > 1:
            return "rows"
        return "some" if scheme.take in (1, rule.at_most) and epoch == rounds else ""

    @property
    def _in_groups(self) -> str:
        """Kind of theorem for sampled groups that take turns; empty if none applies."""
        return "rows" if priced_as(self.scheme, Poisson) and not self._apart else "cycle"

    @property
    def _apart(self) -> bool:
        """Whether columns of a group share no row, since the factor has at most b bands."""
        factor, rounds = self.noise.factor, self.noise.rounds
        gap = self.noise.participation.gap(rounds)
        return isinstance(factor, ToeplitzFactor) and factor.width(rounds) <= gap

    @property
    def _is_small(self) -> bool:
        """Whether the noise can be split among the rounds of a group."""
        return self.noise.rounds <= DENSE_ROUNDS and split_noise.is_small(self._of_any_group)

    @property
    def _of_any_group(self) -> Array:
        gap = self.noise.participation.gap(self.noise.rounds)
        return unknown_position.of_any_group(self.noise.factor.magnitudes(self.noise.rounds), gap)

    def public(self, adjacency: Adjacency) -> dict[str, object]:
        """Return the public numbers of the run and of the scheme."""
        return {**self.noise.public(adjacency), **public_of(self.scheme, adjacency)}

    @property
    def protects(self) -> Unit | None:
        """The run's unit."""
        return self.noise.protects

    traits = Traits(samples_its_unit=True)

    def loss_under(self, facts: Facts) -> PrivacyLoss:
        """Return the amplified loss of the whole run."""
        self._check_groups(facts)
        leaves = facts.adjacency is Adjacency.ADD_REMOVE
        if self._kind == "cycle" and (self._apart or leaves or not is_once(self.scheme)):
            return self._cycle(facts)
        # No unit moves: units are drawn independently, or the population stays the same.
        apart = replace(self.noise.participation, apart=True)  # type: ignore[type-var]
        whole = replace(self.noise, participation=apart)
        base = whole.privacy_loss(facts.adjacency, facts.observer)
        seen = facts.adjacency is Adjacency.REPLACE_ONE or facts.observer is Observer.SERVER
        if seen or self._kind == "cycle":
            why = (*base.theorems, unknown_position.UNHIDDEN)
            return self._seen(replace(base, witness=None, theorems=why), facts)
        curve, witness, theorem = self._amplified(base.curve)
        return replace(
            base,
            curve=curve,
            witness=witness,
            theorems=(theorem, *base.theorems[:1]),
            assumptions=(*base.assumptions, *self._assumptions),
        )

    def _seen(self, known: PrivacyLoss, facts: Facts) -> PrivacyLoss:
        """Return the loss of known rounds, or that of groups in turns if it may be less."""
        in_turns = self.noise.participation.together and self._kind in ("rows", "cycle")
        if not in_turns or facts.adjacency is Adjacency.ADD_REMOVE:
            return known
        if self._is_small:
            return unknown_position.least(known, self._cycle(facts))
        return replace(known, witness=self._shown(facts))

    @property
    def _assumptions(self) -> tuple[str, ...]:
        stated, gap = getattr(self.scheme, "assumption", ""), self.noise.participation.gap
        rests = isinstance(self.scheme, Poisson) and gap(self.noise.rounds) > 1
        return (stated, _AWAY) if rests else (stated,)

    def _check_groups(self, facts: Facts) -> None:
        """Refuse add_remove if the group of a unit may depend on other units."""
        rule, gap = self.noise.participation, self.noise.participation.gap(self.noise.rounds)
        grouped = isinstance(rule, FixedEpochs) and hasattr(self.scheme, "draw") and gap > 1
        moves = isinstance(self.scheme, Poisson) and rule.apart
        if facts.adjacency is Adjacency.ADD_REMOVE and grouped and not moves:
            raise UnsupportedCombination(
                "cyclic sampling has no theorem for add_remove unless the group of a unit does "
                "not depend on other units; use FixedEpochs(b, apart=True) and Poisson, got "
                f"{rule} drawn by {self.scheme}"
            )

    def _amplified(self, known: Curve) -> tuple[Curve, Witness | None, str]:
        """Return the dominating curve, the witness, and the theorem.

        Args:
            known: curve that dominates if the unit's rounds are known.
        """
        noise = self.noise
        matrix = noise.factor.magnitudes(noise.rounds)
        signs = bool((noise.factor.matrix(noise.rounds) < 0.0).any())
        if self._kind == "rows":
            return self._drawn_rounds(matrix, signs, known)
        count = noise.rounds if self._kind == "some" else noise.participation.gap(noise.rounds)
        gram = unknown_position.kernel(matrix, count, noise.noise_multiplier)
        if self._kind == "some":
            curve = unknown_position.several_of(gram, noise.participation.most(noise.rounds), known)
            hidden = curve != known
            return curve, None, unknown_position.SOME if hidden else unknown_position.UNHIDDEN
        witness = None
        if not signs:
            shown, how = unknown_position.attained(gram)
            witness = Witness(shown, _SENT + how, free=True)
        return unknown_position.best_tree(gram), witness, unknown_position.BINS

    def _drawn_rounds(
        self, matrix: Array, signs: bool, known: Curve
    ) -> tuple[Curve, Witness | None, str]:
        """Return the same for rounds that are drawn independently, or anew in every epoch."""
        z, rule = self.noise.noise_multiplier, self.noise.participation
        gap, first = rule.gap(self.noise.rounds), matrix
        draw: Draw
        if isinstance(self.scheme, RandomAllocation):
            draw = OnceAnEpoch(self.scheme.rounds_per_epoch)
            known = unknown_position.one_each(matrix, draw.places, z)
        elif rule.together:
            draw, first = Repeated(self.scheme.rate), matrix[:, ::gap]
            matrix = unknown_position.of_any_group(matrix, gap)
        else:
            draw = Repeated(self.scheme.rate, gap)
        curve, reasons = unknown_position.drawn_rounds(matrix, draw, z, known)
        witness = None
        if not signs:
            shown = unknown_position.shown_sum(first, draw, z)
            witness = Witness(shown, _SENT + unknown_position.ALONG, free=True)
        return curve, witness, "; or ".join(reasons)

    def _cycle(self, facts: Facts) -> PrivacyLoss:
        """Return the composition of a group's rounds, each with a column of noise."""
        noise, gap = self.noise, self.noise.participation.gap(self.noise.rounds)
        if self._apart:
            # Columns of a group share no row: each round is one Gaussian of a single column.
            length = noise.factor.sensitivity(noise.rounds, SingleParticipation()).upper
        else:
            length = split_noise.longest(self._of_any_group)
        less = noise.noise_multiplier / length
        one = Gaussian(noise_multiplier=less, clip_norm=noise.clip_norm, unit=noise.unit)
        count = -(-noise.rounds // gap)  # later groups may have one round less
        loss = (one.sampled(self.scheme) * count).privacy_loss(facts.adjacency, facts.observer)
        stated = (_CLIPPED, _SPACED, _SECRET, _FORGETFUL, *loss.assumptions)
        loss = replace(loss, public=(), assumptions=tuple(dict.fromkeys(stated)))
        if not self._apart:
            why = (unknown_position.SPLIT, *loss.theorems)
            return replace(loss, witness=self._shown(facts), theorems=why)
        assert isinstance(noise.factor, ToeplitzFactor)
        # A truncated last column has more noise: the witness needs a group that fits fully.
        fits = (count - 1) * gap + noise.factor.width(noise.rounds) <= noise.rounds
        theorems = (unknown_position.CYCLE, *loss.theorems)
        return replace(loss, witness=loss.witness if fits else None, theorems=theorems)

    def _shown(self, facts: Facts) -> Witness | None:
        """Return what cohorts of a fixed size show of a unit that sends C u, or is zeroed."""
        noise, rate = self.noise, round_rate(self.scheme)
        small = isinstance(self.scheme, FixedSize) and noise.rounds <= DENSE_ROUNDS
        zeroed = facts.adjacency is Adjacency.ZERO_OUT and facts.observer is not Observer.SERVER
        if not (small and zeroed and rate < 1.0) or (noise.factor.matrix(noise.rounds) < 0.0).any():
            return None
        first = noise.factor.magnitudes(noise.rounds)[:, :: noise.participation.gap(noise.rounds)]
        curve = unknown_position.shown_sum(first, Repeated(rate), noise.noise_multiplier)
        return Witness(curve, _SENT + unknown_position.ALONG, free=True)
