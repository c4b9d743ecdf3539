"""Canaries in a training loop: clients or records that a fair coin includes or leaves out.

This module takes loops and states as arguments. It imports no training code.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from importlib import import_module
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
"""Gets the included canaries, shape (m,), and a generator; returns scores or releases."""


class AttackSettings(NamedTuple):
    """The settings of an attack on a loop that has a name."""

    canaries: int
    rounds: int
    delta: float
    observer: Observer
    generator: np.random.Generator
    data: Any
    settings: Mapping[str, Any]


class Planted(NamedTuple):
    """A loop with canaries: its run, the vector of each canary, and the certified mechanism."""

    train: Train
    directions: Array
    claim: Mechanism
    adjacency: Adjacency


BY_NAME: dict[str, Callable[[AttackSettings], Planted]] = {}
"""Loops that can be attacked by name; ``runs.attack_targets`` registers those of this package."""


def plant_named(name: str, settings: AttackSettings) -> Planted:
    """Return the loop of this name, with canaries in it.

    Raises:
        ParameterError: if the name is unknown, or the settings do not fit the loop.
    """
    # An audit knows no loop, so the import is by name.
    import_module("fedprivacy.runs.attack_targets")
    if name not in BY_NAME:
        way_out = "pass a function of (included, generator) for any other method"
        refuse("train", name, f"be one of {listed(BY_NAME)}", way_out)
    return BY_NAME[name](settings)


def is_loop(train: object) -> bool:
    """Return whether an object is a training loop, private or explicitly not private."""
    return hasattr(train, "round_mechanism") and hasattr(train, "step")


def loop_mechanism(loop: Any, rounds: int) -> Mechanism:
    """Return the whole run as a mechanism.

    Raises:
        ParameterError: if the loop is not private.
    """
    # A loop without privacy has no certified number to compare with.
    if loop.round_mechanism is None:
        refuse("train", type(loop).__name__, "be a private loop", "pass claim= for any other train")
    run: Mechanism = loop.round_mechanism * rounds
    return run


def client_canaries(
    loop: Any, data: Any, canaries: int, rounds: int
) -> tuple[Callable[[Coins, np.random.Generator], Array], Array]:
    """Return a ``train`` for ``fp.attack`` of federated averaging, and its directions.

    The first clients of the data are the canaries. A canary whose coin is 0 is drawn but does not
    answer. This is zero_out, for a sum whose noise does not depend on the number of contributions.
    The direction of a canary is its own update of the first model, by the loop's own local
    training.

    Args:
        loop: a ``FederatedAveraging`` with a perturbation that is no sum of shares.
        data: data of the loop. The canaries' updates should be long and differ from each other.
        canaries: number of clients that are canaries.
        rounds: number of rounds.

    Raises:
        ParameterError: if the loop is of another type, or the data are missing or have fewer
            clients than canaries.
    """
    # A client that does not answer would also remove its share of the noise.
    if _checked(loop, data, canaries).full_cohort is not None:
        way_out = "pass directions='random': crafted clients send their shares of the noise"
        refuse("train", type(loop).__name__, "have all shares of the noise", way_out)
    times, start = integer(1, rounds=rounds), loop.init()
    # A fixed seed gives the same directions in every run.
    seeded = replace(loop, seed=0)
    # Without noise and other clients, the step is the canary's own update.
    plain = replace(seeded, perturbation=None, scheme=Everyone())

    def direction(canary: int) -> Array:
        after, _ = plain.step(start, data, dropout=lambda cohort: set(cohort) - {canary})
        return _moved(start, after)

    def train(included: Coins, generator: np.random.Generator) -> Array:
        out = set(np.flatnonzero(~included).tolist())
        # Each run needs fresh noise. Its seed comes from the generator of the audit.
        now = replace(loop, seed=int(generator.integers(2**62)))
        return _rounds(now, data, times, lambda cohort: out & set(map(int, cohort)))

    return train, np.stack([direction(canary) for canary in range(canaries)])


def crafted_canaries(
    loop: Any, data: Any, directions: Array, rounds: int
) -> Callable[[Coins, np.random.Generator], Array]:
    """Return a ``train`` for ``fp.attack`` whose canaries send crafted updates.

    The first clients of the data are the canaries. A canary whose coin is 1 sends its direction,
    far above the clip norm, whatever its data are. A canary whose coin is 0 sends zeros and its
    share of the noise. This is zero_out, in any cohort and with any perturbation.

    Args:
        loop: a ``FederatedAveraging``.
        data: data of the loop.
        directions: shape (canaries, d), with d the dimension of the loop.
        rounds: number of rounds.

    Raises:
        ParameterError: if the loop is of another type, the data are missing or have fewer clients
            than canaries, or the dimension differs.
    """
    # Far above the clip norm, so that missing or wrong clipping is detected.
    clip_norm = float(_checked(loop, data, len(directions)).clip_norm)
    times, dimension = integer(1, rounds=rounds), int(loop.flat.dimension)
    if directions.shape[1] != dimension:
        refuse("directions", directions.shape, f"have {dimension} columns, one per parameter")
    lengths = np.linalg.norm(directions, axis=1, keepdims=True)
    sent = directions / lengths * (_FAR * clip_norm)

    class Crafted(type(loop)):  # type: ignore[misc]
        """The same loop, except that the canaries send crafted updates."""

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
        # One process, because other processes do not know the crafted updates.
        own = {"seed": int(generator.integers(2**62)), "processes": 1}
        now = Crafted(**{**given, **own})
        # The loop is frozen, and the coins are not one of its fields.
        object.__setattr__(now, "coins", included)
        return _rounds(now, data, times, None)

    return train


_FAR = 1e3
"""Length of a crafted update, in clip norms. It makes missing clipping visible."""


def random_directions(canaries: int, dimension: int, generator: np.random.Generator) -> Array:
    """Return random unit vectors that are independent of the data, shape (canaries, dimension)."""
    found = generator.normal(size=(canaries, dimension))
    return np.asarray(found / np.linalg.norm(found, axis=1, keepdims=True))


def planted(
    make: Callable[[Coins], tuple[Any, Any]], rounds: int
) -> Callable[[Coins, np.random.Generator], Array]:
    """Return a ``train`` for ``fp.attack`` of any loop, with canaries that ``make`` plants.

    For records, flipping one coin must change the data as the adjacency defines. For
    ``replace_one`` it replaces one record by another. Also pass ``directions`` to the attack, and
    the certified mechanism as ``claim``, for example ``loop.round_mechanism * rounds``.

    Args:
        make: gets ``included``, shape (canaries,); returns a loop and the data for its ``step``.
            The data are None if they belong to the loop.
        rounds: number of rounds.

    Returns:
        A function that returns one row per round: the released state before it minus that after it,
        flat. The direction of a canary is therefore its gradient of the minimised function.
    """
    times = integer(1, rounds=rounds)

    def train(included: Coins, generator: np.random.Generator) -> Array:
        loop, data = make(included)
        return _rounds(replace(loop, seed=int(generator.integers(2**62))), data, times, None)

    return train


def _checked(loop: Any, data: Any, canaries: int) -> Any:
    """Return the perturbation of a loop, if its clients can be canaries."""
    noise = getattr(loop, "perturbation", None)
    if noise is None or not hasattr(loop, "_trained"):
        way_out = "pass a function of (included, generator), or planted(make, rounds)"
        refuse("train", type(loop).__name__, "be FederatedAveraging with noise", way_out)
    # Each canary is a client of the data.
    if data is None or data.population < canaries:
        held = None if data is None else data.population
        refuse("data", held, f"contain at least {canaries} clients, one per canary")
    return noise


def _rounds(loop: Any, data: Any, rounds: int, dropout: Any) -> Array:
    """Return the change of the released state in each round, shape (rounds, d)."""
    state, released = loop.init(), []
    options = {} if dropout is None else {"dropout": dropout}
    for _ in range(rounds):
        after, _ = loop.step(state, data, **options)
        # The released value is the step, which is the difference of consecutive states.
        released.append(_moved(state, after))
        state = after
    return np.stack(released)


_RELEASED = ("parameters", "positions", "auxiliary")
"""Fields of a loop's state that may hold the released values."""


def _moved(before: Any, after: Any) -> Array:
    name = next((name for name in _RELEASED if hasattr(after, name)), None)
    if name is None:
        refuse("state", type(after).__name__, f"contain one of {', '.join(_RELEASED)}")
    moved = getattr(before, name) - getattr(after, name)
    # Flat and in double precision, like the directions.
    return np.asarray(moved.cpu().numpy(), dtype=np.float64).reshape(-1)
