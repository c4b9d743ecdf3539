"""Every method that can be trained: its name, its privacy parameter, and its settings.

This module needs no torch, so the command line lists the methods without importing it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

from ..errors import listed, refuse
from ..relations import Unit
from ..systems.settings import (
    CLOSED_SHARE,
    COUNT,
    NON_NEGATIVE,
    OPEN_SHARE,
    POSITIVE,
    SHARE,
    WHOLE,
    Rule,
    Setting,
    Settings,
    check_names,
    setting,
    table,
)

STRATEGIES = ("poisson", "fixed", "with-replacement", "everyone")
"""How the clients of a round are drawn, with the names of ``fedprivacy audit --sampling``."""

_NUMBERED = {"1": "with-replacement", "2": "fixed"}
"""The numbers of two of them in the paper on two-sided FedAvg."""


def _strategy(*, strategy: object) -> str:
    # Tables and command lines may also give 1 as 1.0.
    name = str(strategy).strip().removesuffix(".0")
    if _NUMBERED.get(name, name) not in STRATEGIES:
        refuse("strategy", strategy, f"be one of {listed(STRATEGIES)}")
    return _NUMBERED.get(name, name)


NOISES = ("gaussian", "discrete-gaussian", "skellam")
"""Laws of the noise on a sum: floating-point for the first, integers for the others."""


def _noise(*, noise: object) -> str:
    if noise not in NOISES:
        refuse("noise", noise, f"be one of {listed(NOISES)}")
    return str(noise)


NOISE = Rule(f"one of {', '.join(NOISES)}", _noise, str)
STRATEGY = Rule(f"one of {', '.join(STRATEGIES)}", _strategy, str)


@dataclass(frozen=True, kw_only=True)
class Averaging(Settings):
    """Settings of every averaging method. None means the default of the data set."""

    rounds: int | None = setting(COUNT, "number of rounds", default=None)
    cohort: int | None = setting(
        COUNT, "clients of a round; their mean if the number varies", default=None
    )
    strategy: str = setting(STRATEGY, "sampling of a round's clients", default="poisson")
    sampling_probability: float | None = setting(
        SHARE,
        "of Poisson sampling; a public number that does not depend on the number of clients, "
        "which add_remove needs; instead of cohort",
        default=None,
    )
    local_steps: int | None = setting(
        COUNT, "mini-batch steps of a client in a round; instead of local_epochs", default=None
    )
    local_epochs: int | None = setting(
        COUNT, "passes over a client's records in a round", default=None
    )
    batch_size: int = setting(COUNT, "records of a mini-batch", default=32)
    learning_rate: float | None = setting(POSITIVE, "of a client, in round 1", default=None)
    learning_rate_decay: float = setting(
        SHARE, "factor on the learning rate after every round", default=1.0
    )
    momentum: float = setting(NON_NEGATIVE, "of a client, from rest in every round", default=0.0)
    proximal: float = setting(
        NON_NEGATIVE, "mu of FedProx, which pulls a client towards the round's start", default=0.0
    )
    server_learning_rate: float | None = setting(
        POSITIVE, "factor on the averaged update", default=None
    )


@dataclass(frozen=True, kw_only=True)
class Clipped(Settings):
    """Settings of averaging with clipped and noised contributions."""

    clip_norm: float | None = setting(
        POSITIVE, "clip norm of a client's contribution", default=None
    )
    expected_cohort: int | None = setting(
        COUNT, "public denominator of the noisy sum, which add_remove needs", default=None
    )


@dataclass(frozen=True, kw_only=True)
class Noisy(Clipped):
    """Additional settings of averaging with noise."""

    missing: int = setting(WHOLE, "clients of a cohort that may fail to answer", default=0)
    absent: int = setting(WHOLE, "clients that may be always absent", default=0)
    colluding: int = setting(WHOLE, "clients whose noise shares the observer may know", default=0)


@dataclass(frozen=True, kw_only=True)
class Adaptive(Settings):
    """Settings of averaging with a clip norm that follows a quantile of the updates' norms."""

    clip_quantile: float | None = setting(
        OPEN_SHARE,
        "target share of updates within the clip norm, which adapts to it from clip_norm on",
        default=None,
    )
    clip_bits_share: float = setting(
        OPEN_SHARE, "of the budget, for the bits that adapt the clip norm", default=0.01
    )
    clip_learning_rate: float = setting(
        POSITIVE, "step size of the logarithm of the clip norm", default=0.2
    )


@dataclass(frozen=True, kw_only=True)
class Sparse(Settings):
    """Additional settings of sparsified averaging."""

    kept_fraction: float = setting(SHARE, "share of the coordinates that are sent", default=0.4)


@dataclass(frozen=True, kw_only=True)
class SparseAveraging(Sparse, Averaging):
    """FedAvg top-k and rand-k."""


@dataclass(frozen=True, kw_only=True)
class WholeNumbers(Settings):
    """Settings of averaging with sums over integers."""

    noise: str = setting(
        NOISE, "distribution of the noise; all but gaussian draw integers", default="gaussian"
    )
    bits: int | None = setting(
        COUNT, "integers are summed modulo 2^bits; default: 16", default=None
    )


@dataclass(frozen=True, kw_only=True)
class NoisyAveraging(Adaptive, WholeNumbers, Noisy, Averaging):
    """DP-FedAvg."""


@dataclass(frozen=True, kw_only=True)
class FedSmp(Sparse, Noisy, Averaging):
    """Fed-SMP."""


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
class DpFtrl(Correlated, Averaging):
    """DP-FTRL."""


CLIP = "clip norm of a record's gradient"


@dataclass(frozen=True, kw_only=True)
class Langevin(Settings):
    """FA-LD. Its knob is the step size."""

    rounds: int = setting(COUNT, "number of rounds; draws of the second half are kept", default=50)
    clip_norm: float = setting(POSITIVE, CLIP, default=0.5)
    local_steps: int = setting(COUNT, "steps between two uploads", default=10)
    correlation: float = setting(CLOSED_SHARE, "share of the noise that is common", default=0.0)


@dataclass(frozen=True, kw_only=True)
class Hamiltonian(Settings):
    """FA-HMC. Its knob is the noise on gradients."""

    rounds: int = setting(COUNT, "number of rounds; draws of the second half are kept", default=40)
    clip_norm: float = setting(POSITIVE, CLIP, default=1.0)
    local_steps: int = setting(COUNT, "leapfrog steps between two uploads", default=2)
    step_size: float = setting(POSITIVE, "of a leapfrog step", default=0.05)
    correlation: float = setting(
        CLOSED_SHARE, "share of the momentum's variance that is common", default=0.0
    )


@dataclass(frozen=True, kw_only=True)
class Splitting(Settings):
    """Fed-PLT. Its knob is the noise scale tau."""

    rounds: int = setting(COUNT, "number of rounds", default=40)
    local_steps: int = setting(COUNT, "N_e, steps of an agent in a round", default=5)
    penalty: float = setting(POSITIVE, "rho", default=3.0)
    regularisation: float = setting(
        NON_NEGATIVE, "strong convexity of every agent's loss", default=0.003
    )
    feature_bound: float = setting(
        POSITIVE, "radius of the ball that inputs are scaled into", default=2.0
    )
    step_size: float | None = setting(
        POSITIVE,
        "of a local step; default: the fastest contraction, or 0.1 for a module",
        default=None,
    )
    clip_norm: float | None = setting(
        POSITIVE, f"{CLIP}; default: the bound of the loss, or 1.0 for a module", default=None
    )


@dataclass(frozen=True)
class Method:
    """A training method.

    Args:
        name: the value of ``--method``.
        title: the name for people.
        settings: the class of its settings.
        knob: the parameter that a budget sets; None if the method is not private.
        unit: the protected unit.
    """

    name: str
    title: str
    settings: type[Settings]
    knob: Setting | None
    unit: Unit

    @property
    def knob_name(self) -> str | None:
        """The name of the knob."""
        return None if self.knob is None else self.knob.name

    @property
    def private(self) -> bool:
        """Whether the method has a privacy budget."""
        return self.knob is not None

    @property
    def known(self) -> dict[str, Setting]:
        """Every setting by its name, the knob first."""
        knob = {} if self.knob is None else {self.knob.name: self.knob}
        return knob | self.settings.known()

    def of(self, given: Mapping[str, Any]) -> Settings:
        """Return the method's settings, some of them given.

        Raises:
            ParameterError: the knob, a setting of other methods only, an unknown name, or a value
                that breaks its rule.
        """
        if self.knob_name in given:
            knob = str(self.knob_name)
            refuse(
                knob,
                given[knob],
                "be left out",
                f"it is the calibrated setting of {self.title}; pass level",
            )
        self.check_names(given)
        return self.settings.of(given)

    def check_names(self, given: Mapping[str, Any]) -> None:
        """Refuse names that are not settings of the method.

        Raises:
            ParameterError: a name is not a setting of the method.
        """
        for name, value in given.items():
            # A setting of another method gets its own message, not the one for unknown names.
            if name not in self.known and name in ALL_SETTINGS:
                way_out = f"its settings are {listed(self.settings.known())}"
                refuse(name, value, f"be left out, since {self.name} does not use it", way_out)
        check_names(self.known, given)


def _knob(name: str, told: str) -> Setting:
    return Setting(name, POSITIVE, told, "", None)


_NOISE = _knob("noise_multiplier", "std of the noise on the sum, divided by the clip norm")
_CLIENTS, _RECORDS = Unit.CLIENT, Unit.RECORD

METHODS = {
    each.name: each
    for each in (
        Method("fedavg", "FedAvg", Averaging, None, _CLIENTS),
        Method("fedavg-top-k", "FedAvg top-k", SparseAveraging, None, _CLIENTS),
        Method("fedavg-rand-k", "FedAvg rand-k", SparseAveraging, None, _CLIENTS),
        Method("dp-fedavg", "DP-FedAvg", NoisyAveraging, _NOISE, _CLIENTS),
        Method("dp-ftrl", "DP-FTRL", DpFtrl, _NOISE, _CLIENTS),
        Method("fed-smp-top-k", "Fed-SMP top-k", FedSmp, _NOISE, _CLIENTS),
        Method("fed-smp-rand-k", "Fed-SMP rand-k", FedSmp, _NOISE, _CLIENTS),
        Method("fa-ld", "FA-LD", Langevin, _knob("step_size", "step size"), _RECORDS),
        Method(
            "fa-hmc",
            "FA-HMC",
            Hamiltonian,
            _knob(
                "gradient_noise_multiplier",
                "std of the noise of a gradient, divided by its clip norm",
            ),
            _RECORDS,
        ),
        Method(
            "fed-plt",
            "Fed-PLT",
            Splitting,
            _knob("noise_scale", "tau of the noise of a step"),
            _RECORDS,
        ),
    )
}
"""The only list of methods, by name."""

COMPARED = ("fedavg", "dp-fedavg", "fed-smp-top-k", "fed-smp-rand-k")
"""The methods that the demo compares."""

ALL_SETTINGS = {name for each in METHODS.values() for name in each.settings.known()}
"""The names of all methods' settings."""


DECLARED = (
    *(Averaging, Noisy, Adaptive, WholeNumbers, Correlated, Sparse),
    *(Langevin, Hamiltonian, Splitting),
)
"""The classes that declare settings. The other classes combine these."""


def users(kind: type[Settings]) -> list[str]:
    """Return the methods that have the settings of a class."""
    return [name for name, each in METHODS.items() if issubclass(each.settings, kind)]


def settings_in_words(width: int = 78) -> str:
    """Return every method's settings with help and rule, as lines of a terminal."""
    lines = ["Settings of the methods (--set NAME=VALUE):"]
    for kind in DECLARED:
        lines += ["", *wrap(", ".join(users(kind)) + ":", width)]
        for name, each in kind.known().items():
            lines += wrap(f"{name}: {each}", width, initial_indent="  ", subsequent_indent="      ")
    return "\n".join(lines)


def tables() -> str:
    """Return every method's settings as Markdown tables, for docs/command_line.md."""
    told = [f"{', '.join(f'`{u}`' for u in users(kind))}\n\n{table(kind)}" for kind in DECLARED]
    knobs = ["| method | calibrated setting | |", "|---|---|---|"]
    knobs += [
        f"| `{each.name}` | `{each.knob.name}` | {each.knob.help} |"
        for each in METHODS.values()
        if each.knob is not None
    ]
    return "\n\n".join([*told, "\n".join(knobs)])


def names(*, private: bool) -> list[str]:
    """Return the methods' names, all of them or only the private ones."""
    return [name for name, each in METHODS.items() if each.private or not private]


def method_named(name: str, known: Iterable[str] = METHODS) -> Method:
    """Return a method.

    Raises:
        ParameterError: the name is not a known method.
    """
    if name not in known:
        refuse("method", name, f"be one of {listed(known)}")
    return METHODS[name]
