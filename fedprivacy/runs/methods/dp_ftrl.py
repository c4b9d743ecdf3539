"""DP-FTRL: averaging with noise that is correlated between rounds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from ... import factors
from ...errors import positive, refuse
from ...factors import (
    Banded,
    BufferedToeplitz,
    Factor,
    MinimumSeparation,
    Restarted,
    Tree,
    Workload,
)
from ...mechanisms import CorrelatedNoise
from ...relations import Adjacency, Unit
from ...sampling import Everyone, FixedSize, Poisson, Scheme
from ...systems.settings import CLOSED_SHARE, COUNT, SHARE, WHOLE, setting
from .averaging import NOISE_KNOB, STRATEGY, AveragingJob, AveragingSettings, Clipped
from .base import Method, register

if TYPE_CHECKING:
    from ...systems.averaging.loop import FederatedAveraging

_DIGITS = 6
"""Digits of a factor's numbers. The searches of two machines may differ in later digits."""

_OWN = ("clip_norm", "separation", "at_most", "block", "server_momentum", "cooldown")


@dataclass(frozen=True, kw_only=True)
class Correlated(Clipped):
    """Settings of averaging with noise that is correlated between rounds."""

    strategy: str = setting(
        STRATEGY, "sampling of a round's clients from those that may take part", default="fixed"
    )
    buffers: int = setting(WHOLE, "of the noise's factor (BLT); 0: a binary tree", default=4)
    bands: int | None = setting(
        COUNT, "of a banded factor, at most the separation; instead of buffers", default=None
    )
    block: int | None = setting(
        COUNT,
        "rounds after which noise and mask restart; default: never",
        default=None,
    )
    kept_fraction: float = setting(
        SHARE, "share of the coordinates that are sent, constant within a block", default=1.0
    )
    separation: int | None = setting(
        COUNT,
        "rounds between two participations of a client; default: the largest possible number",
        default=None,
    )
    at_most: int | None = setting(
        COUNT, "largest number of participations of a client", default=None
    )
    server_momentum: float = setting(
        CLOSED_SHARE, "momentum of the server (heavy ball)", default=0.0
    )
    cooldown: int = setting(
        WHOLE, "number of last rounds with a decreasing learning rate of the server", default=0
    )


@dataclass(frozen=True, kw_only=True)
class DpFtrl(Correlated, AveragingSettings):
    """DP-FTRL."""


@dataclass(frozen=True, kw_only=True)
class CorrelatedJob(AveragingJob):
    """Federated averaging with correlated noise; the unit is a client.

    The guarantee does not depend on secret sampling: participation may be public. The factor is the
    best of its kind for the run's momentum and schedule.
    """

    @property
    def own(self) -> DpFtrl:
        """The settings."""
        assert isinstance(self.chosen, DpFtrl)
        return self.chosen

    @cached_property
    def scheme(self) -> Scheme:
        """How clients are drawn from the eligible ones."""
        chosen = self.own
        if chosen.sampling_probability is not None:
            return Poisson(chosen.sampling_probability)
        if chosen.strategy == "everyone":
            return Everyone()
        if chosen.strategy != "fixed":
            rule = "be 'fixed' or 'everyone', since clients are drawn once per round"
            refuse("strategy", chosen.strategy, rule, "or pass sampling_probability for Poisson")
        assert chosen.cohort is not None
        if chosen.cohort > self.units:
            refuse("cohort", chosen.cohort, f"be at most the number of clients, {self.units}")
        return FixedSize(chosen.cohort, population=self.units)

    @cached_property
    def participation(self) -> MinimumSeparation:
        """The rule of participation; by default clients return as late as cohorts allow."""
        most = 1
        if isinstance(self.scheme, FixedSize):
            most = max(1, self.units // self.scheme.size)
        elif isinstance(self.scheme, Poisson) and self.own.separation is None:
            rule = "be given with sampling_probability"
            refuse(
                "separation",
                None,
                rule,
                "state the number of rounds between two participations of a client",
            )
        separation = self.own.separation or most
        # Poisson cohorts need not be full.
        if not isinstance(self.scheme, Poisson) and separation > most:
            rule = f"be at most {most}, since otherwise too few clients remain for a cohort"
            refuse("separation", separation, rule, "use a smaller cohort or separation")
        return MinimumSeparation(separation, at_most=self.own.at_most)

    @cached_property
    def factor(self) -> Factor:
        """The factor, of blocks if the noise restarts."""
        block = self.own.block
        if block is None or block == self.rounds:
            return self._searched(self.rounds)
        if block > self.rounds:
            refuse("block", block, f"be at most rounds = {self.rounds}", "or leave it out")
        return Restarted(self._searched(block), block)

    def _searched(self, rounds: int) -> Factor:
        """Return a tree, or the best banded or buffered factor for the workload."""
        chosen = self.own
        if chosen.bands is None and not chosen.buffers:
            return Tree()
        # Without buffers, bands are given, and this shape is replaced below.
        shape: Banded | BufferedToeplitz = BufferedToeplitz(max(chosen.buffers, 1))
        if chosen.bands is not None:
            shape = Banded(chosen.bands)
        found = factors.optimised(
            shape,
            rounds=rounds,
            participation=self.participation,
            # The rates of the last block, which fall. A search can only change the amount of noise.
            workload=Workload(
                momentum=chosen.server_momentum, rates=self.schedule[self.rounds - rounds :]
            ),
            progress=self.progress,
        )
        return _short(found)

    @property
    def schedule(self) -> tuple[float, ...]:
        """The server's learning rates, divided by the first one; () if they are constant."""
        cooldown = self.own.cooldown
        return factors.rates(self.rounds, cooldown=cooldown) if cooldown else ()

    def noise(self, level: float | None) -> CorrelatedNoise:
        """Return the run's noise."""
        assert self.own.clip_norm is not None
        dimension = self._plain.flat.dimension
        kept = self._kept(dimension)
        sparse = {} if kept == dimension else {"kept": kept, "dimension": dimension}
        return CorrelatedNoise(
            factor=self.factor,
            noise_multiplier=positive(noise_multiplier=level),
            rounds=self.rounds,
            participation=self.participation,
            clip_norm=self.own.clip_norm,
            unit=Unit.CLIENT,
            **sparse,
        )

    def loop(self, level: float | None, seed: int | None) -> FederatedAveraging:
        """Return the loop with a noise multiplier."""
        return replace(
            self._plain,
            perturbation=self.noise(level),
            seed=seed,
            server_momentum=self.own.server_momentum,
            server_rates=self.schedule,
        )

    def run(self, level: float) -> CorrelatedNoise:
        """Return the whole run: one Gaussian."""
        return self.noise(level)

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The settings of averaging and of the noise."""
        found = {**self.averaging_settings, "factor": str(self.factor)}
        own = {name: getattr(self.own, name) for name in _OWN}
        own["separation"] = self.participation.separation
        return found | {name: value for name, value in own.items() if value is not None}

    # The size of a cohort is fixed, or counted.
    expected_bytes: ClassVar[int | None] = None

    def declared_units(self, adjacency: Adjacency | str) -> float:
        """Return the number of clients. It is public, because add_remove is refused."""
        del adjacency
        return self.units

    def public(self, adjacency: Adjacency | str) -> dict[str, Any]:
        """Return the numbers behind the noisy sums; see ``Job``."""
        if adjacency == Adjacency.ADD_REMOVE:
            rule = (
                "be zero_out or replace_one, since the removal of a client moves others to "
                "other rounds"
            )
            refuse("adjacency", str(adjacency), rule)
        names = ("clients", "cohorts", "rounds", "parameters", *_OWN)
        known = {name: self.settings[name] for name in names if name in self.settings}
        return known | {"factor": self.settings["factor"], "classes": self.source.classes}


def _short(factor: Banded | BufferedToeplitz) -> Factor:
    """Return a factor with numbers of a few digits."""
    if isinstance(factor, Banded):
        return replace(factor, weights=_cut(factor.weights))
    return replace(factor, scales=_cut(factor.scales), decays=_cut(factor.decays))


def _cut(numbers: tuple[float, ...] | None) -> tuple[float, ...] | None:
    return None if numbers is None else tuple(float(f"{x:.{_DIGITS}g}") for x in numbers)


register(
    Method("dp-ftrl", "DP-FTRL", DpFtrl, NOISE_KNOB, Unit.CLIENT, CorrelatedJob),
    declares=(Correlated,),
)
