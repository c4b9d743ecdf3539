"""Canaries inside a training loop: clients that take part, or send nothing, by a fair coin."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import integer, refuse
from ..mechanisms import Mechanism
from ..sampling import Everyone

Array = NDArray[np.float64]
Coins = NDArray[np.bool_]


def is_loop(train: object) -> bool:
    """Return whether something is a training loop with privacy, or says that it has none."""
    return hasattr(train, "round_mechanism") and hasattr(train, "step")


def loop_mechanism(loop: Any, rounds: int) -> Mechanism:
    """Return the whole run as a mechanism.

    Raises:
        ParameterError: a loop without privacy.
    """
    if loop.round_mechanism is None:
        refuse("train", type(loop).__name__, "be a private loop", "pass claim= for any other")
    run: Mechanism = loop.round_mechanism * rounds
    return run


def client_canaries(
    loop: Any, data: Any, canaries: int, rounds: int
) -> tuple[Callable[[Coins, np.random.Generator], Array], Array]:
    """Return a ``train`` for ``fp.attack``, and its directions, of a loop of federated averaging.

    The first clients of the data are the canaries. One whose coin is 0 is drawn but does not
    answer, which is zero_out: a sum whose noise does not depend on how many contribute. A
    canary's direction is its own update of the first model, by the loop's own local training.

    Args:
        loop: a ``FederatedAveraging`` whose perturbation is no sum of shares.
        data: its data; better if the canaries' updates are long and differ.
        canaries: how many clients of it are canaries.
        rounds: how many rounds are run.

    Raises:
        ParameterError: another loop, no data, or fewer clients than canaries.
    """
    noise = getattr(loop, "perturbation", None)
    if noise is None or noise.full_cohort is not None:
        way_out = "pass a function of (included, generator) for any other"
        refuse("train", type(loop).__name__, "be FederatedAveraging with whole noise", way_out)
    if data is None or data.population < canaries:
        held = None if data is None else data.population
        refuse("data", held, f"hold at least {canaries} clients, the canaries")
    times, start = integer(1, rounds=rounds), loop.init()
    seeded = replace(loop, seed=0)
    plain = replace(seeded, perturbation=None, scheme=Everyone())

    def direction(canary: int) -> Array:
        after, _ = plain.step(start, data, dropout=lambda cohort: set(cohort) - {canary})
        return _moved(start, after)

    def train(included: Coins, generator: np.random.Generator) -> Array:
        out = set(np.flatnonzero(~included).tolist())
        now = replace(loop, seed=int(generator.integers(2**62)))
        state, releases = start, []
        for _ in range(times):
            after, _ = now.step(state, data, dropout=lambda cohort: out & set(map(int, cohort)))
            releases.append(_moved(state, after))
            state = after
        return np.stack(releases)

    return train, np.stack([direction(canary) for canary in range(canaries)])


def _moved(before: Any, after: Any) -> Array:
    return np.asarray((before.parameters - after.parameters).cpu().numpy(), dtype=np.float64)
