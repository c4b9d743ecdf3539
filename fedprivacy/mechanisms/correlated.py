"""Gaussian noise that is correlated from round to round: one mechanism for a whole run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache, partial
from hashlib import sha256
from typing import Any, NoReturn

import numpy as np

from ..errors import MODERATE, UnsupportedCombination, integer, natural, refuse, settle
from ..factors import (
    Factor,
    FixedEpochs,
    Interval,
    MinimumSeparation,
    Participation,
    SingleParticipation,
    ToeplitzFactor,
)
from ..loss import Curve, Gdp
from ..privacy_loss import PrivacyLoss, Witness
from ..registry import alike, own_parts, registered
from ..relations import Adjacency, Facts, Observer, Unit
from ..sampling import Poisson, RandomAllocation, Scheme, priced_as
from ..sampling.scheme import check_kind
from . import unknown_position
from .base import Mechanism
from .gaussian import Gaussian, NoisySum
from .sparsification import Indices, Sparsification
from .streams import NoiseMemory, NoiseStream

_THEOREMS = (
    "correlated noise: C^-1 z is a function of C x + z, whose loss is one Gaussian's, adaptive "
    "rounds included (Denisov et al. 2022)",
    "sensitivity of the factor over all patterns of participation (correlated_noise.md)",
)
_CLIPPED = "every unit's contribution to every round is clipped to the clip norm before the sum"
_SPACED = "no unit takes part more often, or sooner again, than its participation says"
_SECRET = "the memory of the noise is kept secret, and no row of it is released twice"
_WITNESS = "a unit sends C u or -C u in the rounds of its largest pattern, every other sends 0"


MOST_ROUNDS = 10**6
"""Rounds of a run whose columns are held in memory."""


@registered
@dataclass(frozen=True, kw_only=True)
class CorrelatedNoise(NoisySum):
    """The sums of ``rounds`` rounds plus the rows of C^-1 z: DP-FTRL, matrix factorisation.

    A later round takes away part of an earlier one's noise, so prefix sums, which a model is, have
    much less of it. The loss is that of one Gaussian with multiplier ``noise_multiplier /
    sensitivity``, for observers ``aggregate``, ``server`` and ``final`` alike: nothing rests on who
    was drawn in secret. ``sampled`` adds what secret sampling gives, where a theorem knows.

    Args:
        factor: C, of ``fedprivacy.factors``.
        noise_multiplier: std of z over the clip norm, above 0.
        rounds: n, of the whole run.
        participation: in which rounds a unit may take part.
        clip_norm: norm of a unit's contribution to one round.
        unit: "client" or "record"; may be left out.
        kept: k, coordinates that travel, scaled by d/k as in Fed-SMP; None for all. Rows of one
            block keep the same ones (``mask``): a row takes an earlier one's noise away only in
            coordinates that both have. Blocks are the factor's (``factors.Restarted``), or the
            whole run.
        dimension: d, given if ``kept`` is.

    Raises:
        ParameterError: a value out of its range, or a factor that cannot serve the run.
    """

    factor: Factor
    rounds: int
    participation: Participation
    kept: int | None = None
    dimension: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        settle(self, natural, "rounds")
        if self.rounds > MOST_ROUNDS:
            rule = f"be at most {MOST_ROUNDS}: a column of C takes {8e-9 * self.rounds:.3g} GB"
            refuse("rounds", self.rounds, rule, "split the run; runs add up")
        if not isinstance(self.factor, Factor):
            way_out = "such as fp.factors.BufferedToeplitz(4)"
            refuse("factor", self.factor, "be one of fedprivacy.factors", way_out)
        if not isinstance(self.participation, Participation):
            way_out = "such as fp.MinimumSeparation(100)"
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
        """Certified (lower, upper) of what a unit moves C x by, at clip norm 1 (not replaced)."""
        return _sensitivity(self.factor, self.rounds, self.participation)

    def leading(self, rows: int) -> CorrelatedNoise:
        """Return the run of the first ``rows`` rounds, with the same noise in them."""
        return replace(self, factor=self.factor.leading(rows, self.rounds), rounds=rows)

    def with_gaps(self, separation: int, at_most: int) -> CorrelatedNoise:
        """Return the run for units that come again sooner, or more often.

        Raises:
            ParameterError: the factor cannot serve them.
        """
        apart = self.participation.apart
        rule = MinimumSeparation(separation, at_most=at_most, apart=apart)
        return replace(self, participation=rule)

    @property
    def sparsification(self) -> Sparsification | None:
        """Which coordinates travel, chosen at random; None for all of them."""
        if self.kept is None or self.dimension is None:
            return None
        return Sparsification(kept=self.kept, dimension=self.dimension)

    def block_of(self, row: int) -> int:
        """Return the number of a row's block."""
        return row // self.factor.block(self.rounds)

    def mask(self, row: int, nonce: str) -> Indices | None:
        """Return the coordinates of a row's block, shape (kept,); None where all travel.

        Anybody can draw them again, so that nobody can have chosen them by data.

        Args:
            row: which row, from 0.
            nonce: of the run's ledger, which was fixed before the first row.
        """
        if self.kept is None or self.dimension is None or self.kept == self.dimension:
            return None
        return _mask(self.kept, self.dimension, f"mask {self.block_of(row)} {nonce}")

    # A unit may send 0.
    zeroing_replaces = True

    # Rounds are not apart, so no scheme's row for one round holds.
    samples_its_unit = True

    @property
    def stream(self) -> NoiseStream:
        """What draws the noise, row after row."""
        return NoiseStream(
            self.factor,
            self.rounds,
            self.full_noise_std,
            self.grid,
            # The lower end: roundings may use a share of what a unit surely moves.
            self.sensitivity.lower * self.clip_norm,
        )

    def contribution(self, update: Any, mask: Any = None) -> Any:
        """Return an update's kept coordinates, clipped to ``clip_norm``, on the grid.

        Args:
            update: flat array or tensor, shape (d,).
            mask: the block's, shape (kept,); None where all are kept.

        Raises:
            ParameterError: a mask that does not fit, or an entry that is not finite.
        """
        sparse = self.sparsification
        if sparse is not None:
            return self.gridded(sparse.select(update, mask))
        if mask is not None:
            rule = "be None: rows of noise are about the same coordinates"
            refuse("mask", "given", rule, "say kept and dimension")
        return self.gridded(update)

    def noise(self, like: Any, generator: Any = None, *, shares: int | None = None) -> NoReturn:
        """Refuse: a round's noise depends on the rounds before; use ``stream``.

        Raises:
            UnsupportedCombination: always.
        """
        raise UnsupportedCombination(
            "the noise of one round depends on that of the rounds before: draw it by "
            "stream.begin(like), then stream.draw(memory) once a round"
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
            ParameterError: ``held`` is no whole number of at least 1.
            UnsupportedCombination: no theorem amplifies the two together, or ``held`` is above 1.
        """
        if integer(1, held=held) > 1:
            raise UnsupportedCombination(
                f"no theorem covers held={held} records of one client in correlated noise; sample "
                "Gaussian(noise_multiplier=...) round by round"
            )
        return SampledNoise(self, scheme)

    def row(
        self, number: int, *, separation: int | None = None, participations: int | None = None
    ) -> CorrelatedRow:
        """Return one round of the run, for a ledger; see ``CorrelatedRow``."""
        return CorrelatedRow(
            run=self, row=number, separation=separation, participations=participations
        )

    def _loss(self, facts: Facts) -> PrivacyLoss:
        if facts.adjacency is Adjacency.ADD_REMOVE and not self.participation.apart:
            raise UnsupportedCombination(
                "CorrelatedNoise has no theorem for add_remove: when a unit leaves, others move to "
                "other rounds, as under Shuffled; account for zero_out or replace_one, or say that "
                f"nobody moves: participation with apart=True, got {self.participation}"
            )
        moves = facts.adjacency.moves
        lower, upper = (moves * end / self.noise_multiplier for end in self.sensitivity)
        assumptions = [_CLIPPED, _SPACED, _SECRET]
        if facts.adjacency is Adjacency.ADD_REMOVE:
            assumptions.append("in which rounds a unit takes part does not depend on who else does")
        witness = Witness(Gdp(lower), _WITNESS)
        return PrivacyLoss(Gdp(upper), facts, witness, _THEOREMS, tuple(assumptions))


# All rows of a block ask for the same one.
@lru_cache(maxsize=2)
def _mask(kept: int, dimension: int, name: str) -> Indices:
    """Return the places of the smallest of ``dimension`` random words: any set is as likely."""
    # Raw words, which no release of numpy changes: an audit may have another one than the run.
    words = np.random.PCG64DXSM(list(sha256(name.encode()).digest())).random_raw(dimension)
    found: Indices = np.sort(np.argpartition(words, kept)[:kept])
    found.flags.writeable = False
    return found


def _sensitivity(factor: Factor, rounds: int, participation: Participation) -> Interval:
    # What equals a factor of a user's own need not be like it.
    known = alike((factor, participation))
    ask = _sensitivity_once if known else _sensitivity_once.__wrapped__
    return ask(factor, rounds, participation)


# An audit asks the same run again and again, and a large factor takes long.
@lru_cache(maxsize=64)
def _sensitivity_once(factor: Factor, rounds: int, participation: Participation) -> Interval:
    return factor.sensitivity(rounds, participation)


@registered
@dataclass(frozen=True, kw_only=True)
class CorrelatedRow(Mechanism):
    """One round of a run with correlated noise, as a ledger names it.

    Rows have no loss of their own that adds up: whichever is asked about is priced as the whole
    run, and none is put in sequence with another, drawn for or chosen by itself. A ``Budget``
    charges a run once, at its row 0 or the first that it meets. An audit prices whatever rows there
    are as the whole run, for the participation that they record, and looks that none comes twice.

    Args:
        run: the whole run.
        row: which row of its factor, from 0.
        separation: the fewest rounds since anybody who is drawn was drawn before; None where
            nobody was, or where it is not known.
        participations: how often anybody who is drawn was drawn so far, this round included; None
            where it is not known.

    Raises:
        ParameterError: no such row.
    """

    run: CorrelatedNoise
    row: int
    separation: int | None = None
    participations: int | None = None

    def __post_init__(self) -> None:
        settle(self, partial(integer, 0), "row")
        for name in ("separation", "participations"):
            if getattr(self, name) is not None:
                integer(int(name == "separation"), **{name: getattr(self, name)})
        if not isinstance(self.run, CorrelatedNoise):
            refuse("run", type(self.run).__name__, "be a CorrelatedNoise")
        if self.row >= self.run.rounds:
            rule = f"be below rounds = {self.run.rounds}: the factor has no more rows"
            refuse("row", self.row, rule, "begin another run, which is accounted beside this one")

    @property
    def kept(self) -> bool:
        """Whether what is recorded of who was drawn keeps the run's rule of participation."""
        rule, rounds = self.run.participation, self.run.rounds
        gap, apart = rule.gap(rounds), self.separation
        soon = apart is not None and (apart < gap or (rule.together and apart % gap > 0))
        return not soon and (self.participations or 0) <= rule.most(rounds)

    @property
    def protects(self) -> Unit | None:
        """The run's unit."""
        return self.run.protects

    # As of the run.
    samples_its_unit = True

    def check_beside(self) -> NoReturn:
        """Refuse: inside another mechanism nobody tells which rows were released, and how often.

        Raises:
            UnsupportedCombination: always.
        """
        raise UnsupportedCombination(
            "one row of a run with correlated noise stands for itself alone: rows have no price "
            f"that adds up, and the whole run is paid for at once, got row {self.row}; account for "
            "the whole run, CorrelatedNoise, sampled or in_cohort; a ledger takes rows one by one"
        )

    def noise_ratios(self, clip_norm: float) -> frozenset[float]:
        """Return the run's."""
        return self.run.noise_ratios(clip_norm)

    def rescaled(self, fraction: float) -> CorrelatedRow | None:
        """Return a first row of a run with a fraction of the noise: it pays for all of that."""
        run = self.run.rescaled(fraction)
        return None if run is None else replace(self, run=run, row=0)

    def _loss(self, facts: Facts) -> PrivacyLoss:
        if not self.kept:
            told = f"a unit came after {self.separation} rounds, or {self.participations} times"
            raise UnsupportedCombination(f"{told}: more than {self.run.participation} lets it")
        whole = self.run.privacy_loss(facts.adjacency, facts.observer)
        return replace(whole, witness=None)  # of a whole run, of which this may be all


_SERVES = (
    "these work: RandomAllocation(b) with FixedEpochs(b) (bins kept in every epoch) or, for "
    "b = rounds, SingleParticipation, any factor; RandomAllocation(rounds) with "
    "MinimumSeparation(1, at_most=k) (k of all rounds); any scheme that draws round by round with "
    "FixedEpochs(b) and at most b bands (cyclic sampling); Poisson with FixedEpochs(1), any factor"
)
_BINS = "bins: places of a tree dominate (Theorems A, D and E of correlated_noise.md)"
_SOME = "k of n rounds: a common part and k allocations dominate (Theorem A of correlated_noise.md)"
_LINE = "Poisson, any factor: one dimension dominates (Theorem F of correlated_noise.md)"
_ROWS = (
    "Poisson, any factor: rows compose but for pasts of probability 1e-13 (conditional "
    "composition: Choquette-Choo et al. 2024; Theorem H of correlated_noise.md)"
)
_CYCLE = "cyclic sampling, bands <= groups: blocks share no row (Theorem C of correlated_noise.md)"
_UNHIDDEN = "no amplification: joint convexity over the unit's rounds"
_POISSON = {"known": _UNHIDDEN, "line": _LINE, "rows": _ROWS}
_SENT = "a unit sends C u in its rounds, every other sends 0; "


@registered
@dataclass(frozen=True)
class SampledNoise(Mechanism):
    """A whole run of correlated noise whose rounds a unit is drawn for in secret.

    Made by ``CorrelatedNoise.sampled``. The participation says how rounds belong together, the
    scheme how a unit is drawn:

    - ``RandomAllocation(b)``, ``FixedEpochs(b)``: every unit draws one of b places, and keeps it in
      every epoch ("balls in bins"); any factor.
    - ``RandomAllocation(rounds)``, ``MinimumSeparation(1, at_most=k)``: k rounds of all, at random.
    - any scheme that draws round by round, ``FixedEpochs(b)``, at most b bands: units are in b
      groups, independently of data, and round i samples group i modulo b, afresh.
    - ``Poisson(q)``, ``FixedEpochs(1)``: every unit in every round with probability q; any factor.

    Args:
        noise: the run.
        scheme: how units are drawn.

    Raises:
        UnsupportedCombination: no theorem covers it; the message names what works.
    """

    noise: CorrelatedNoise
    scheme: Scheme

    def __post_init__(self) -> None:
        check_kind(self.scheme)
        # The theorems read the run's numbers, not what a subclass may say in their place.
        own = own_parts(type(self.noise), CorrelatedNoise)
        if own:
            raise UnsupportedCombination(
                f"{type(self.noise).__name__} has parts of its own ({', '.join(sorted(own))}), and "
                "draws are amplified by what CorrelatedNoise loses; account the run without "
                ".sampled"
            )
        _ = self._kind

    @property
    def _kind(self) -> str:
        """Which theorem is about the run: bins, some, cycle or line."""
        rule = self.noise.participation
        epochs = isinstance(rule, FixedEpochs) and rule.at_most is None
        found = ""
        if isinstance(self.scheme, RandomAllocation) and priced_as(self.scheme, RandomAllocation):
            found = self._allocated(self.scheme.rounds_per_epoch, epochs)
        # Schemes of whole epochs draw their rounds together: nothing is drawn afresh.
        elif hasattr(self.scheme, "draw") and not hasattr(self.scheme, "epoch") and epochs:
            found = self._in_groups
        if found:
            return found
        raise UnsupportedCombination(
            f"{self.scheme} with {rule} and {type(self.noise.factor).__name__} has no theorem that "
            f"amplifies it; account the run without .sampled, or change it: {_SERVES}"
        )

    def _allocated(self, rounds_per_epoch: int, epochs: bool) -> str:
        """Return which theorem is about rounds that a unit is allocated to at random, or none."""
        rule, rounds = self.noise.participation, self.noise.rounds
        once = isinstance(rule, SingleParticipation)
        if (once or epochs) and rounds_per_epoch == rule.gap(rounds):
            return "bins"
        free = isinstance(rule, MinimumSeparation) and rule.separation == 1 and rule.at_most
        return "some" if free and rounds_per_epoch == rounds else ""

    @property
    def _in_groups(self) -> str:
        """Which theorem is about groups that take turns and are drawn in each, or none."""
        factor, rounds = self.noise.factor, self.noise.rounds
        gap = self.noise.participation.gap(rounds)
        if isinstance(factor, ToeplitzFactor) and factor.width(rounds) <= gap:
            return "cycle"
        return "line" if priced_as(self.scheme, Poisson) and gap == 1 else ""

    @property
    def protects(self) -> Unit | None:
        """The run's unit."""
        return self.noise.protects

    samples_its_unit = True

    def noise_ratios(self, clip_norm: float) -> frozenset[float]:
        """Return the run's."""
        return self.noise.noise_ratios(clip_norm)

    def rescaled(self, fraction: float) -> SampledNoise | None:
        """Return it with a fraction of the run's noise."""
        noise = self.noise.rescaled(fraction)
        return None if noise is None else replace(self, noise=noise)

    def _loss(self, facts: Facts) -> PrivacyLoss:
        if self._kind == "cycle":
            return self._cycle(facts)
        # Units are drawn independently: nobody moves when another leaves.
        apart = replace(self.noise.participation, apart=True)  # type: ignore[type-var]
        whole = replace(self.noise, participation=apart)
        if facts.adjacency is Adjacency.REPLACE_ONE or facts.observer is Observer.SERVER:
            loss = whole.privacy_loss(facts.adjacency, facts.observer)
            theorems = (*loss.theorems, _UNHIDDEN)
            return replace(loss, witness=None, theorems=theorems)
        base = whole.privacy_loss(facts.adjacency, facts.observer)
        curve, witness, theorem = self._amplified(base.curve)
        return replace(
            base,
            curve=curve,
            witness=witness,
            theorems=(theorem, *base.theorems[:1]),
            assumptions=(*base.assumptions, getattr(self.scheme, "assumption", "")),
        )

    def _amplified(self, known: Curve) -> tuple[Curve, Witness | None, str]:
        """Return what dominates, what is attained, and why.

        Args:
            known: what dominates where the unit's rounds are known.
        """
        noise = self.noise
        matrix = noise.factor.magnitudes(noise.rounds)
        if self._kind == "line":
            assert isinstance(self.scheme, Poisson)
            curve, why = unknown_position.poisson(
                matrix, self.scheme.rate, noise.noise_multiplier, known
            )
            return curve, None, _POISSON[why]
        count = noise.rounds if self._kind == "some" else noise.participation.gap(noise.rounds)
        gram = unknown_position.kernel(matrix, count, noise.noise_multiplier)
        if self._kind == "some":
            curve = unknown_position.several_of(gram, noise.participation.most(noise.rounds), known)
            return curve, None, _UNHIDDEN if curve == known else _SOME
        if (noise.factor.matrix(noise.rounds) < 0.0).any():
            return unknown_position.best_tree(gram), None, _BINS
        shown, how = unknown_position.attained(gram)
        return unknown_position.best_tree(gram), Witness(shown, _SENT + how), _BINS

    def _cycle(self, facts: Facts) -> PrivacyLoss:
        """Return the composition of a group's rounds, each with a whole column's noise."""
        noise, gap = self.noise, self.noise.participation.gap(self.noise.rounds)
        moves = isinstance(self.scheme, Poisson) and noise.participation.apart
        if facts.adjacency is Adjacency.ADD_REMOVE and not moves and gap > 1:
            raise UnsupportedCombination(
                "cyclic sampling has no theorem for add_remove unless a unit's group does not "
                "depend on who else is there: say FixedEpochs(b, apart=True) and draw by Poisson, "
                f"got {noise.participation} drawn by {self.scheme}"
            )
        # Blocks of a group share no row: each time is one Gaussian, of a single column.
        single = noise.factor.sensitivity(noise.rounds, SingleParticipation()).upper
        one = Gaussian(
            noise_multiplier=noise.noise_multiplier / single,
            clip_norm=noise.clip_norm,
            unit=noise.unit,
        )
        # Of the first groups; later ones may come once less.
        count = -(-noise.rounds // gap)
        loss = (one.sampled(self.scheme) * count).privacy_loss(facts.adjacency, facts.observer)
        # A group whose last column is cut off has more noise; the first group of n - p is whole.
        assert isinstance(noise.factor, ToeplitzFactor)
        fits = (count - 1) * gap + noise.factor.width(noise.rounds) <= noise.rounds
        witness = loss.witness if fits else None
        return replace(loss, witness=witness, theorems=(_CYCLE, *loss.theorems))
