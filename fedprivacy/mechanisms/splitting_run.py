"""A whole run of Fed-PLT, whose end shows less than its rounds do."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, fields, replace
from functools import cached_property

from ..errors import UnsupportedCombination
from ..loss import Gdp
from ..privacy_loss import PrivacyLoss, Witness
from ..registry import registered
from ..relations import Adjacency, Facts, Observer, Unit
from ..sampling import Everyone, Scheme
from ..sampling.traits import Traits
from ..theory.splitting_privacy import (
    Attained,
    PrivateSplitting,
    attained,
    final_models_mu,
    rounds_mu,
)
from .base import Mechanism
from .gradient_descent import DEPENDS_ON, NoisyGradientDescent
from .upload import OWN_SENSITIVITY, QUADRATIC, SENSITIVE, replacing_only

ONLY_MODELS = (
    "only the agents' models after the last round are released, without z, y and earlier models"
)
EVERY_AGENT = "every agent takes part in every round; the start does not depend on the data"
START = "; the start is known, or N(0, 2 tau^2 / l) and secret"


@registered
@dataclass(frozen=True, kw_only=True)
class SplittingRun(Mechanism):
    """``rounds`` rounds of private Fed-PLT with full participation; the unit is a record.

    ``aggregate`` and ``server`` see every upload: ``NoisyGradientDescent`` composed over the
    rounds. ``final`` sees only every agent's model after the last round. Its loss need not grow
    with the number of rounds (docs/theory/splitting.md). The smaller bound counts.

    Args:
        step_size: gamma, above 0 and below 2 / (smoothness + 1 / penalty).
        noise_scale: tau; a step's noise has std sqrt(2 gamma) tau.
        sensitivity: g, the largest change of an agent's gradient by replacing a record. It must be
            the loss's own: clipping would break the assumptions of the proofs.
        strong_convexity: of every f_i, for all data.
        smoothness: of every f_i, for all data.
        penalty: rho.
        local_steps: N_e.
        rounds: K.

    Raises:
        ParameterError: a value out of its range.
    """

    step_size: float
    noise_scale: float
    sensitivity: float
    strong_convexity: float
    smoothness: float
    penalty: float
    local_steps: int
    rounds: int

    def __post_init__(self) -> None:
        # PrivateSplitting checks and converts the values. Copy them back.
        for field in fields(PrivateSplitting):
            object.__setattr__(self, field.name, getattr(self._setting, field.name))

    @cached_property
    def _setting(self) -> PrivateSplitting:
        return PrivateSplitting(**{f.name: getattr(self, f.name) for f in fields(self)})

    protects = Unit.RECORD

    # A whole run is not sampled from outside. The final models have a loss of their own.
    traits = Traits(samples_its_unit=True, states_final=True)

    def worst_scheme(self, scheme: Scheme) -> Scheme:
        """Refuse every scheme but Everyone: every agent takes part in every round."""
        if type(scheme) is not Everyone:
            raise UnsupportedCombination(
                f"SplittingRun is a whole run with every agent in every round, got {scheme}; "
                "for sampled agents, account for the rounds: run.round.in_cohort(scheme) * "
                "run.rounds"
            )
        return scheme

    def public(self, adjacency: Adjacency) -> dict[str, object]:
        """Return the fields, and what they follow from."""
        return super().public(adjacency) | dict.fromkeys(DEPENDS_ON)

    @cached_property
    def round(self) -> NoisyGradientDescent:
        """One local solve."""
        return NoisyGradientDescent(
            step_size=self.step_size,
            noise_std=self._setting.noise_std,
            sensitivity=self.sensitivity,
            strong_convexity=self.strong_convexity + 1.0 / self.penalty,
            smoothness=self.smoothness + 1.0 / self.penalty,
            steps=self.local_steps,
        )

    def noise_ratios(self, clip_norm: float) -> frozenset[float]:
        """Return those of a local solve."""
        return self.round.noise_ratios(clip_norm)

    def rescaled(self, fraction: float) -> SplittingRun | None:
        """Return the run with the fraction of every step's noise."""
        scale = fraction * self.noise_scale
        return replace(self, noise_scale=scale) if scale > 0.0 else None

    def loss_under(self, facts: Facts) -> PrivacyLoss:
        """Return the loss of all uploads, or of the models after the last round."""
        whole = self._every_upload(facts)
        if facts.observer is not Observer.FINAL:
            return whole
        shown = self._shown(Observer.FINAL)
        mu = final_models_mu(self._setting)
        # If the end shows no less than the rounds, use the account of the rounds.
        if mu >= rounds_mu(self._setting):
            return replace(whole.seen_at_the_end(), witness=shown)
        theorem = "Fed-PLT's final models: shifted interpolation over agents and rounds"
        assumptions = (OWN_SENSITIVITY, SENSITIVE, EVERY_AGENT, ONLY_MODELS)
        return PrivacyLoss(Gdp(mu), facts, shown, (theorem,), assumptions)

    def _every_upload(self, facts: Facts) -> PrivacyLoss:
        replacing_only(self, facts)
        seen = Observer.AGGREGATE if facts.observer is Observer.FINAL else facts.observer
        loss = (self.round * self.rounds).privacy_loss(facts.adjacency, seen)
        return replace(
            loss,
            facts=facts,
            witness=self._shown(Observer.SERVER),
            assumptions=(*loss.assumptions, EVERY_AGENT),
        )

    def _shown(self, observer: Observer) -> Witness | None:
        """Return the pair known to be attained by these dynamics, including the start.

        Data may be arbitrarily far away. The loss from iterates in the wrong place is then
        arbitrarily small. The value is therefore a supremum.
        """
        found = _attained(self._setting, observer)
        known = Gdp(math.sqrt(self.rounds) * self.round.quadratic.mu)
        # Both are attained. Take the larger one.
        if observer is Observer.SERVER and known.mu >= found.mu:
            return Witness(known, QUADRATIC, free=True)
        shown = Witness(Gdp(found.mu), found.witness + START, free=True)
        return shown if found.mu > 0.0 else None


# Cached: one account needs it several times, and it is a search.
@functools.lru_cache(maxsize=64)
def _attained(setting: PrivateSplitting, observer: Observer) -> Attained:
    return attained(setting, observer, 1e-15)
