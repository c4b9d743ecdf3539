"""Gaussian noise that is correlated from round to round: one mechanism for a whole run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NoReturn

from ..errors import UnsupportedCombination, integer, refuse
from ..factors import Factor, Interval, Participation
from ..loss import IDENTITY, Gdp
from ..privacy_loss import PrivacyLoss, Witness
from ..records import recorded
from ..relations import Adjacency, Facts, Unit
from .base import Mechanism
from .gaussian import NoisySum
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


@recorded
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

    Raises:
        ParameterError: a value out of its range, or a factor that cannot serve the run.
    """

    factor: Factor
    rounds: int
    participation: Participation

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "rounds", integer(1, rounds=self.rounds))
        if not isinstance(self.factor, Factor):
            way_out = "such as fp.factors.BufferedToeplitz(4)"
            refuse("factor", self.factor, "be one of fedprivacy.factors", way_out)
        if not isinstance(self.participation, Participation):
            way_out = "such as fp.MinimumSeparation(100)"
            refuse("participation", self.participation, "be a rule of participation", way_out)
        self.factor.check(self.rounds, self.participation)
        _ = self.sensitivity

    @cached_property
    def sensitivity(self) -> Interval:
        """Certified (lower, upper) of what a unit moves C x by, at clip norm 1 (not replaced)."""
        return self.factor.sensitivity(self.rounds, self.participation)

    @property
    def zeroing_replaces(self) -> bool:
        """True: a unit may send 0."""
        return True

    @property
    def samples_its_unit(self) -> bool:
        """True: rounds are not apart, so no scheme's row for one round holds."""
        return True

    @property
    def full_noise_std(self) -> float:
        """``noise_multiplier * clip_norm``, the std of z; a round's noise has more."""
        return self.noise_multiplier * self.clip_norm

    @property
    def stream(self) -> NoiseStream:
        """What draws the noise, row after row."""
        return NoiseStream(
            self.factor,
            self.rounds,
            self.full_noise_std,
            self.grid,
            self.sensitivity.lower * self.clip_norm,
        )

    def contribution(self, update: Any, mask: Any = None) -> Any:
        """Return an update clipped to ``clip_norm``, on the grid, same shape.

        Args:
            update: flat array or tensor.
            mask: None: every coordinate is kept; another mask a round would mix coordinates.

        Raises:
            ParameterError: a mask, or an entry that is not finite.
        """
        if mask is not None:
            refuse("mask", "given", "be None: rows of noise are about the same coordinates")
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
        """Return the noise's memory before the first row; see ``NoiseStream``."""
        return self.stream.begin(like)

    def row(self, number: int) -> CorrelatedRow:
        """Return one round of the run, for a ledger."""
        return CorrelatedRow(run=self, row=number)

    def _loss(self, facts: Facts) -> PrivacyLoss:
        if facts.adjacency is Adjacency.ADD_REMOVE and not self.participation.apart:
            raise UnsupportedCombination(
                "CorrelatedNoise has no theorem for add_remove: when a unit leaves, others move to "
                "other rounds, as under Shuffled; account for zero_out or replace_one, or say that "
                "nobody moves: participation with apart=True"
            )
        moves = 2.0 if facts.adjacency is Adjacency.REPLACE_ONE else 1.0
        lower, upper = (moves * end / self.noise_multiplier for end in self.sensitivity)
        assumptions = [_CLIPPED, _SPACED, _SECRET]
        if facts.adjacency is Adjacency.ADD_REMOVE:
            assumptions.append("in which rounds a unit takes part does not depend on who else does")
        witness = Witness(Gdp(lower), _WITNESS)
        return PrivacyLoss(Gdp(upper), facts, witness, _THEOREMS, tuple(assumptions))


@recorded
@dataclass(frozen=True, kw_only=True)
class CorrelatedRow(Mechanism):
    """One round of a run with correlated noise, as a ledger names it.

    Rows have no loss of their own that adds up, so row 0 pays for the whole run and the others for
    nothing; an audit looks that rows begin at 0 and that none comes twice.

    Args:
        run: the whole run.
        row: which row of its factor, from 0.

    Raises:
        ParameterError: no such row.
    """

    run: CorrelatedNoise
    row: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "row", integer(0, row=self.row))
        if not isinstance(self.run, CorrelatedNoise):
            refuse("run", type(self.run).__name__, "be a CorrelatedNoise")
        if self.row >= self.run.rounds:
            rule = f"be below rounds = {self.run.rounds}: the factor has no more rows"
            refuse("row", self.row, rule, "begin another run, which is accounted beside this one")

    @property
    def protects(self) -> Unit | None:
        """The run's unit."""
        return self.run.protects

    @property
    def samples_its_unit(self) -> bool:
        """True, as of the run."""
        return True

    def noise_ratios(self, clip_norm: float) -> frozenset[float]:
        """Return the run's."""
        return self.run.noise_ratios(clip_norm)

    def rescaled(self, fraction: float) -> CorrelatedRow | None:
        """Return a first row of a run with a fraction of the noise: it pays for all of that."""
        run = self.run.rescaled(fraction)
        return None if run is None else replace(self, run=run, row=0)

    def _loss(self, facts: Facts) -> PrivacyLoss:
        whole = self.run.privacy_loss(facts.adjacency, facts.observer)
        if not self.row:
            return whole
        paid = "row 0 of this run is accounted too: it pays for every row"
        return replace(whole, curve=IDENTITY, witness=None, assumptions=(*whole.assumptions, paid))
