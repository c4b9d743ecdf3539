"""Accountants of other libraries: their unchanged answers for a run.

dp-accounting is always installed; Opacus and prv-accountant are optional. Their answers are not
trusted: ``fedprivacy.crosscheck`` compares them with certified ends.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import dp_accounting as dpa
from dp_accounting import pld, rdp

from ..errors import ConversionError, FedPrivacyError
from ..mechanisms import Gaussian, Mechanism, SampledMechanism
from ..relations import Adjacency, Observer
from ..sampling import Poisson
from .dp_answers import uncertified
from .dp_runs import relation_of, to_event

Asked = tuple[Mechanism, float, Adjacency, Observer]
"""Run, delta, adjacency and observer."""

Ask = Callable[[Mechanism, float, Adjacency, Observer, float], float]
"""Takes the question and the spacing of a lattice; returns an epsilon or raises."""

_SPACING = 1e-4
"""Default spacing of dp-accounting's lattices."""
_POINTS = 200_000
"""Approximate limit on its lattice points. Beyond it the lattice gets coarser to save minutes."""


def answers(question: Asked, near: float) -> Iterator[tuple[str, float | None, str]]:
    """Yield (name, epsilon or None, reason) of every accountant of another library.

    Args:
        question: the question.
        near: the approximate size of the answer.
    """
    # No library has a lattice of that size.
    if math.isinf(near):
        yield from ((who, None, "skipped, since epsilon is infinite") for who in ACCOUNTANTS)
        return
    spacing = max(_SPACING, near / _POINTS)
    for who, ask in ACCOUNTANTS.items():
        try:
            with _quiet(), uncertified():
                found, why = float(ask(*question, spacing)), ""
        # Only installed libraries answer: of these, only dp-accounting is a dependency.
        except ImportError:
            found, why = None, "not installed"
        except Exception as refusal:  # any exception of another library is its answer
            found, why = None, _first_line(refusal)
        yield who, found, why


def _first_line(refusal: Exception) -> str:
    text = str(refusal).split("\n", maxsplit=1)[0]
    # Our messages are sentences. Errors of other libraries need their type to be clear.
    ours = isinstance(refusal, FedPrivacyError)
    return text if ours else f"{type(refusal).__name__}: {text}"[:200]


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide the warnings and logs of other libraries: the user wants a table."""
    # Logging has a single switch. Its earlier value is restored.
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _dp_accounting(kind: str) -> Ask:
    def ask(
        run: Mechanism, delta: float, adjacency: Adjacency, observer: Observer, spacing: float
    ) -> float:
        event = to_event(run, adjacency=adjacency, observer=observer)
        relation = relation_of(adjacency)
        if kind == "pld":
            account: Any = pld.PLDAccountant(relation, value_discretization_interval=spacing)
        else:
            account = rdp.RdpAccountant(neighboring_relation=relation)
        # Composing an unsupported event raises an error that names only a class.
        if not account.supports(event):
            raise dpa.UnsupportedEventError(f"not for this event under {adjacency}")
        return float(account.compose(event).get_epsilon(delta))

    return ask


def sampled_gaussians(
    run: Mechanism, adjacency: Adjacency, observer: Observer
) -> list[tuple[float, float, int]]:
    """Return (noise multiplier, sampling rate, rounds) of Poisson-sampled Gaussian rounds.

    Raises:
        ConversionError: the run is something else, or has other facts.
    """
    # Those accountants add or remove a unit, and see no list of participants.
    if adjacency is Adjacency.REPLACE_ONE or observer is Observer.SERVER:
        raise ConversionError(f"it has no {adjacency} for the observer {observer}")
    found = []
    for part, count in run.sequence():
        inner, rate = _unsampled(part)
        if not isinstance(inner, Gaussian):
            raise ConversionError(
                f"it supports only Gaussian rounds with Poisson sampling, got {part}"
            )
        found.append((inner.noise_multiplier, rate, count))
    return found


def _unsampled(part: Mechanism) -> tuple[Mechanism, float]:
    """Return a round without its Poisson sampling, and the rate; 1 without sampling."""
    if isinstance(part, SampledMechanism) and isinstance(part.scheme, Poisson):
        return part.inner, part.scheme.probability
    return part, 1.0


def _opacus(kind: str) -> Ask:
    def ask(
        run: Mechanism, delta: float, adjacency: Adjacency, observer: Observer, spacing: float
    ) -> float:
        del spacing
        from opacus.accountants import create_accountant

        # The history that it would have recorded itself, step by step.
        account = create_accountant(kind)
        account.history = sampled_gaussians(run, adjacency, observer)
        return float(account.get_epsilon(delta))

    return ask


def _prv(
    run: Mechanism, delta: float, adjacency: Adjacency, observer: Observer, spacing: float
) -> float:
    del spacing
    from prv_accountant import PoissonSubsampledGaussianMechanism, PRVAccountant

    parts = sampled_gaussians(run, adjacency, observer)
    counts = [count for _, _, count in parts]
    account = PRVAccountant(
        [PoissonSubsampledGaussianMechanism(q, z) for z, q, _ in parts],
        eps_error=0.05,
        delta_error=delta / 1000.0,
        max_self_compositions=counts,
    )
    # The last of (lower, estimate, upper), as an upper bound is wanted.
    return float(account.compute_epsilon(delta, counts)[2])


ACCOUNTANTS: dict[str, Ask] = {
    "dp-accounting pld": _dp_accounting("pld"),
    "dp-accounting rdp": _dp_accounting("rdp"),
    "opacus rdp": _opacus("rdp"),
    "opacus prv": _opacus("prv"),
    "opacus gdp": _opacus("gdp"),
    "prv-accountant": _prv,
}
"""The accountants, by name."""
