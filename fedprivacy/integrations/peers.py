"""Other libraries' own accountants, asked about a run: their numbers, as they give them.

dp-accounting is always there; Opacus and prv-accountant only where they are installed. Nothing that
they say is believed here: ``fedprivacy.crosscheck`` holds it against certified ends.
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
from .dp_accounting import relation_of, to_event

Asked = tuple[Mechanism, float, Adjacency, Observer]
"""Run, delta, adjacency and observer."""

Ask = Callable[[Mechanism, float, Adjacency, Observer, float], float]
"""Gets the question and a lattice's spacing, returns an epsilon or raises."""

_SPACING = 1e-4
"""What dp-accounting's lattices have unless told otherwise."""
_POINTS = 200_000
"""About how many of them it gets before the lattice is made coarser: it takes minutes beyond."""


def answers(asked: Asked, near: float) -> Iterator[tuple[str, float | None, str]]:
    """Yield (who, epsilon or None, why not) of every accountant of another library.

    Args:
        asked: the question.
        near: about how large the answer is.
    """
    # No library has a lattice that reaches so far.
    if math.isinf(near):
        yield from ((who, None, "not asked: epsilon is infinite") for who in ACCOUNTANTS)
        return
    spacing = max(_SPACING, near / _POINTS)
    for who, ask in ACCOUNTANTS.items():
        try:
            with _quiet():
                found, why = float(ask(*asked, spacing)), ""
        # Only what is installed is asked: none of these is a dependency but dp-accounting.
        except ImportError:
            found, why = None, "not installed"
        except Exception as refusal:  # whatever another library raises is its answer
            found, why = None, _first_line(refusal)
        yield who, found, why


def _first_line(refusal: Exception) -> str:
    text = str(refusal).split("\n", maxsplit=1)[0]
    # Our refusals are sentences; other libraries' errors need their kind to be understood.
    ours = isinstance(refusal, FedPrivacyError)
    return text if ours else f"{type(refusal).__name__}: {text}"[:200]


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep what other libraries warn and log from the user, who asked for a table."""
    # Logging has one switch for all: what it was before is put back.
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
        # Composing an event that is not supported raises, in words that name a class only.
        if not account.supports(event):
            raise dpa.UnsupportedEventError(f"not for this event under {adjacency}")
        return float(account.compose(event).get_epsilon(delta))

    return ask


def sampled_gaussians(
    run: Mechanism, adjacency: Adjacency, observer: Observer
) -> list[tuple[float, float, int]]:
    """Return (noise multiplier, sampling rate, rounds) of Poisson-sampled Gaussian rounds.

    Raises:
        ConversionError: the run is something else, or is seen under other facts.
    """
    # Those accountants add or remove a unit, and see no list of participants.
    if adjacency is Adjacency.REPLACE_ONE or observer is Observer.SERVER:
        raise ConversionError(f"it knows no {adjacency} for the observer {observer}")
    found = []
    for part, count in run.sequence():
        inner, rate = _unsampled(part)
        if not isinstance(inner, Gaussian):
            raise ConversionError(
                f"it knows Gaussian rounds with Poisson sampling only, got {part}"
            )
        found.append((inner.noise_multiplier, rate, count))
    return found


def _unsampled(part: Mechanism) -> tuple[Mechanism, float]:
    """Return a round without its Poisson sampling, and the rate: 1 where there is none."""
    if isinstance(part, SampledMechanism) and isinstance(part.scheme, Poisson):
        return part.inner, part.scheme.probability
    return part, 1.0


def _opacus(kind: str) -> Ask:
    def ask(
        run: Mechanism, delta: float, adjacency: Adjacency, observer: Observer, spacing: float
    ) -> float:
        del spacing
        from opacus.accountants import create_accountant

        # What it would have recorded itself, step by step.
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
    # Of (lower, estimate, upper) the last, as an upper bound is what it is asked for.
    return float(account.compute_epsilon(delta, counts)[2])


ACCOUNTANTS: dict[str, Ask] = {
    "dp-accounting pld": _dp_accounting("pld"),
    "dp-accounting rdp": _dp_accounting("rdp"),
    "opacus rdp": _opacus("rdp"),
    "opacus prv": _opacus("prv"),
    "opacus gdp": _opacus("gdp"),
    "prv-accountant": _prv,
}
"""Who is asked, and how."""
