"""Canaries inside a training loop: clients or records, by a fair coin each.

A loop and its state are taken as they come: nothing here imports the room that trains.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import integer, listed, refuse
from ..mechanisms import Mechanism
from ..relations import Adjacency, Observer
from ..sampling import Everyone

Array = NDArray[np.float64]
Coins = NDArray[np.bool_]
Train = Callable[[Coins, np.random.Generator], Any]
"""Gets which canaries are in the data, shape (m,), and a generator; returns scores or releases."""


class Asked(NamedTuple):
    """What an attack asks of a loop that it knows by name."""

    canaries: int
    rounds: int
    delta: float
    observer: Observer
    generator: np.random.Generator
    data: Any
    settings: Mapping[str, Any]


class Planted(NamedTuple):
    """A loop with canaries in it: how it is run, what each adds, and what is certified of it."""

    train: Train
    directions: Array
    claim: Mechanism
    adjacency: Adjacency


BY_NAME: dict[str, Callable[[Asked], Planted]] = {}
"""Loops that are attacked by name, put here by whoever defines them: no name is imported."""


def plant_named(name: str, asked: Asked) -> Planted:
    """Return the loop of a name, with canaries in it.

    Raises:
        ParameterError: an unknown name, or what is asked does not fit the loop.
    """
    if name not in BY_NAME:
        way_out = "pass a function of (included, generator) for any other"
        refuse("train", name, f"be one of {listed(BY_NAME)}", way_out)
    return BY_NAME[name](asked)


def is_loop(train: object) -> bool:
    """Return whether something is a training loop with privacy, or says that it has none."""
    return hasattr(train, "round_mechanism") and hasattr(train, "step")


def loop_mechanism(loop: Any, rounds: int) -> Mechanism:
    """Return the whole run as a mechanism.

    Raises:
        ParameterError: a loop without privacy.
    """
    # Without privacy there is no number that the attack could beat.
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
    # A client that does not answer would take its share of the noise away as well.
    if _checked(loop, data, canaries).full_cohort is not None:
        way_out = "pass directions='random': crafted clients send their shares of the noise"
        refuse("train", type(loop).__name__, "have whole noise", way_out)
    times, start = integer(1, rounds=rounds), loop.init()
    # A fixed seed, so that directions are the same in every run.
    seeded = replace(loop, seed=0)
    # Alone, without noise: what is left of the step is the canary's own update.
    plain = replace(seeded, perturbation=None, scheme=Everyone())

    def direction(canary: int) -> Array:
        after, _ = plain.step(start, data, dropout=lambda cohort: set(cohort) - {canary})
        return _moved(start, after)

    def train(included: Coins, generator: np.random.Generator) -> Array:
        out = set(np.flatnonzero(~included).tolist())
        # Each run needs fresh noise, and the seed comes from the audit's own generator.
        now = replace(loop, seed=int(generator.integers(2**62)))
        return _rounds(now, data, times, lambda cohort: out & set(map(int, cohort)))

    return train, np.stack([direction(canary) for canary in range(canaries)])


def crafted_canaries(
    loop: Any, data: Any, directions: Array, rounds: int
) -> Callable[[Coins, np.random.Generator], Array]:
    """Return a ``train`` for ``fp.attack`` in which canaries send what was made up for them.

    The first clients of the data are the canaries. One whose coin is 1 sends its direction, far
    above the clip norm, whatever its data are; one whose coin is 0 sends zeros and its share of
    the noise. That is zero_out, in any cohort and with any perturbation.

    Args:
        loop: a ``FederatedAveraging``.
        data: its data.
        directions: shape (canaries, d), d the loop's dimension.
        rounds: how many rounds are run.

    Raises:
        ParameterError: another loop, no data, fewer clients than canaries, or another dimension.
    """
    # Far above the clip norm, so that missing or wrong clipping is seen.
    clip_norm = float(_checked(loop, data, len(directions)).clip_norm)
    times, dimension = integer(1, rounds=rounds), int(loop.flat.dimension)
    if directions.shape[1] != dimension:
        refuse("directions", directions.shape, f"have {dimension} columns, one a parameter")
    lengths = np.linalg.norm(directions, axis=1, keepdims=True)
    sent = directions / lengths * (_FAR * clip_norm)

    class Crafted(type(loop)):  # type: ignore[misc]
        """The same loop, but for what canaries send."""

        coins: Coins = np.zeros(len(sent), np.bool_)

        def _trained(self, work: Any, job: Any) -> Any:
            found = super()._trained(work, job)
            for row, client in enumerate(job.clients):
                if client < len(sent):
                    # Zeros, not silence: the client still sends its share of the noise.
                    found[row] = found.new_tensor(sent[client] * bool(self.coins[client]))
            return found

    def train(included: Coins, generator: np.random.Generator) -> Array:
        given = {each.name: getattr(loop, each.name) for each in fields(loop)}
        # In one process: what is crafted is known here.
        own = {"seed": int(generator.integers(2**62)), "processes": 1}
        now = Crafted(**{**given, **own})
        # The loop is frozen; the coins are no part of what it is.
        object.__setattr__(now, "coins", included)
        return _rounds(now, data, times, None)

    return train


_FAR = 1e3
"""Clip norms that a crafted update is long: what is not clipped is seen."""


def random_directions(canaries: int, dimension: int, generator: np.random.Generator) -> Array:
    """Return vectors of length 1 that do not depend on anything, shape (canaries, dimension)."""
    found = generator.normal(size=(canaries, dimension))
    return np.asarray(found / np.linalg.norm(found, axis=1, keepdims=True))


def planted(
    make: Callable[[Coins], tuple[Any, Any]], rounds: int
) -> Callable[[Coins, np.random.Generator], Array]:
    """Return a ``train`` for ``fp.attack`` of any loop here: canaries are what ``make`` plants.

    For records: flipping one coin must change the data as the adjacency says, such as one record
    for another (``replace_one``). Pass ``directions``, and as ``claim`` what is certified of the
    loop, such as ``loop.round_mechanism * rounds``.

    Args:
        make: gets ``included``, shape (canaries,); returns a loop and the data of its ``step``,
            None where they belong to the loop.
        rounds: how many rounds are run.

    Returns:
        A function whose result has a row a round: the released state before it minus the one
        after, flat. So a canary's direction is its gradient, of what is minimised.
    """
    times = integer(1, rounds=rounds)

    def train(included: Coins, generator: np.random.Generator) -> Array:
        loop, data = make(included)
        return _rounds(replace(loop, seed=int(generator.integers(2**62))), data, times, None)

    return train


def _checked(loop: Any, data: Any, canaries: int) -> Any:
    """Return a loop's perturbation, if clients of it can be canaries."""
    noise = getattr(loop, "perturbation", None)
    if noise is None or not hasattr(loop, "_trained"):
        way_out = "pass a function of (included, generator), or planted(make, rounds)"
        refuse("train", type(loop).__name__, "be FederatedAveraging with noise", way_out)
    # Each canary is a client of the data.
    if data is None or data.population < canaries:
        held = None if data is None else data.population
        refuse("data", held, f"hold at least {canaries} clients, the canaries")
    return noise


def _rounds(loop: Any, data: Any, rounds: int, dropout: Any) -> Array:
    """Return how far each of the rounds moved what is released, shape (rounds, d)."""
    state, released = loop.init(), []
    options = {} if dropout is None else {"dropout": dropout}
    for _ in range(rounds):
        after, _ = loop.step(state, data, **options)
        # The step is what is released: two states in a row show it.
        released.append(_moved(state, after))
        state = after
    return np.stack(released)


_RELEASED = ("parameters", "positions", "auxiliary")
"""Where a loop's state holds what was released."""


def _moved(before: Any, after: Any) -> Array:
    name = next((name for name in _RELEASED if hasattr(after, name)), None)
    if name is None:
        refuse("state", type(after).__name__, f"hold one of {', '.join(_RELEASED)}")
    moved = getattr(before, name) - getattr(after, name)
    # In doubles and flat, as directions are.
    return np.asarray(moved.cpu().numpy(), dtype=np.float64).reshape(-1)
