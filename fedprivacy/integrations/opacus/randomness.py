"""The randomness of Opacus's noise and draws: generators, their first seeds, their states."""

from __future__ import annotations

import os
from collections.abc import Callable
from hashlib import sha256
from typing import Any, TypeVar

import torch
from torch.utils.data import DataLoader

from ...errors import refuse
from ...sampling import Shuffled
from .draws import Draws
from .loaders import scheme_of

T = TypeVar("T")

_CHOSEN = 2**32
"""Smaller seeds count as chosen: torch's own have 53 bits and more."""

_UNSEEDED = torch.Generator().initial_seed()
"""The initial seed of every new generator that is not seeded."""

_STATE_BYTES, _FIRST_WORD, _WORDS = 5056, 24, 624
"""State of a generator of the processor: its length, and the place of its 32-bit words."""


def keyed(device: torch.device) -> torch.Generator:
    """Return a generator that the operating system keys.

    A seed gives the processor's Mersenne Twister only 32 bits, which can be searched. So the
    whole state is drawn. On a graphics processor the key has 62 bits.
    """
    found = torch.Generator(device=device)
    # Above every seed that counts as chosen.
    found.manual_seed(int.from_bytes(os.urandom(8), "little") >> 2 | 1 << 62)
    state = found.get_state()
    if device.type == "cpu" and len(state) == _STATE_BYTES:
        words = torch.frombuffer(bytearray(os.urandom(4 * _WORDS)), dtype=torch.uint8)
        held = state[_FIRST_WORD : _FIRST_WORD + 8 * _WORDS].view(_WORDS, 8)
        held[:, :4] = words.view(_WORDS, 4)
        # One word is left before the next block is made, so no word of the seed is used.
        state[8:12] = torch.tensor([1, 0, 0, 0], dtype=torch.uint8)
        state[16:24] = 0
        found.set_state(state)
    return found


def generator_of(device: torch.device) -> torch.Generator:
    """Return torch's own generator of a device."""
    if device.type != "cuda":
        return torch.default_generator
    found: torch.Generator = torch.cuda.default_generators[device.index]
    return found


def _digest(generator: torch.Generator) -> int:
    """Return a short digest of a generator's state."""
    state = generator.get_state().numpy().tobytes()
    # Includes the device: generators of two devices have separate states.
    return int.from_bytes(sha256(str(generator.device).encode() + state).digest()[:12], "little")


_SEEN: set[int] = set()
"""Digests of the states that this process drew private noise or batches from."""


class Randomness:
    """The generators of an optimizer's noise and a loader's draws, and their first seeds.

    An order in passes does not amplify, so its draws need no secret.

    Args:
        optimizer: Opacus's.
        loader: the source of its batches.
    """

    def __init__(self, optimizer: Any, loader: DataLoader[Any]) -> None:
        self.optimizer = optimizer
        self.sampler: Any = None
        if not isinstance(scheme_of(loader), Shuffled):
            batches: Any = loader.batch_sampler
            self.sampler = batches if hasattr(batches, "generator") else batches.sampler
        # Digests of their last states: no other code draws from these generators.
        self._owned: dict[torch.Generator, int] = {}
        self._noise: torch.Generator | None = None
        self._process = os.getpid()
        self._private = False
        self._watched = False
        self.begun = self._now()

    def _devices(self) -> list[torch.device]:
        # In the order of the parameters, each device once.
        return list(dict.fromkeys(parameter.device for parameter in self.optimizer.params))

    def _of_noise(self) -> list[torch.Generator]:
        if self.optimizer.generator is not None:
            return [self.optimizer.generator]
        return [generator_of(device) for device in self._devices()]

    def _of_draws(self) -> list[torch.Generator]:
        return [] if self.sampler is None else [self.sampler.generator or torch.default_generator]

    def _now(self) -> list[tuple[Any, int | None]]:
        # Includes torch's own generators, so that a seed chosen later is detected.
        of_torch = [torch.default_generator, *map(generator_of, self._devices())]
        found = dict.fromkeys([*self._of_draws(), *self._of_noise(), *of_torch])
        # Secure generators take no seed.
        secure = self.optimizer.secure_mode
        return [(one, None if secure else one.initial_seed()) for one in found]

    @property
    def chosen(self) -> bool:
        """Whether a seed seems to be chosen, or a generator is unseeded."""
        # The initial generators. Torch's own are unused if there are others.
        used = [] if self.optimizer.secure_mode else [*self._of_draws(), *self._of_noise()]
        seeds = [one.initial_seed() for one in used]
        return any(seed < _CHOSEN or seed == _UNSEEDED for seed in seeds)

    @property
    def suspect(self) -> bool:
        """Whether a seed seems to be chosen, or was changed since."""
        return self.chosen or self._now() != self.begun

    def check(self) -> None:
        """Refuse a generator, or a seed, that was not there at the beginning.

        Raises:
            ParameterError: there is one.
        """
        if self._now() != self.begun:
            rule = (
                "stay unchanged after keep_books, since the ledger states that no seed was chosen"
            )
            way_out = "seed before keep_books with a ledger of seed_policy='fixed', or do not seed"
            refuse("torch's generators and seeds", "others", rule, way_out)

    def make_private(self, draws: Draws) -> None:
        """Give noise and draws separate generators if the caller gave none.

        Training checkpoints restore the state of torch's own generator. After a restore, it would
        give the same noise again. The states of generators from the caller are checked.
        """
        if self.optimizer.secure_mode:
            return
        self._private = True
        if self.optimizer.generator is None and len(self._devices()) == 1:
            self._own_noise()
        if self.sampler is not None and self.sampler.generator is None:
            self.sampler.generator = keyed(torch.device("cpu"))
            self._own(self.sampler.generator)
        if self.sampler is not None:
            draws.checked = self._drawn
        self.begun = self._now()

    def watch(self, draws: Draws) -> None:
        """Look at the states of the generators that are there, and leave them as they are.

        Books that make noise or draws private later do so for this one, too. A run whose seed was
        chosen is to come again, and says so.
        """
        if self.optimizer.secure_mode or self.chosen:
            return
        self._watched = True
        if self.sampler is not None and draws.checked is None:
            draws.checked = self._drawn

    def _own(self, generator: torch.Generator) -> None:
        self._owned[generator] = _digest(generator)

    def _own_noise(self) -> None:
        self._noise = self.optimizer.generator = keyed(self._devices()[0])
        self._own(self._noise)

    def _drawn(self, draw: Callable[[], T]) -> T:
        self._follow()
        return self._fresh(self._of_draws(), draw)

    def noise(self, add_noise: Callable[[], None]) -> None:
        """Let noise be added that was never drawn before.

        Raises:
            ParameterError: it comes from a state that was already used.
        """
        if self._private or self._watched:
            self._follow()
            self._fresh(self._of_noise(), add_noise)
        else:
            add_noise()

    def _follow(self) -> None:
        """Key our own generators again if the process forked or the model moved."""
        if self._process != os.getpid():
            self._process = os.getpid()
            for one in list(self._owned):
                self._key(one)
        same, noise = self._now() == self.begun, self.optimizer.generator
        if self._noise is not None and noise is self._noise and self._devices() != [noise.device]:
            self._own_noise()
        if same:
            self.begun = self._now()

    def _key(self, generator: torch.Generator) -> None:
        same = self._now() == self.begun
        generator.set_state(keyed(generator.device).get_state())
        self._own(generator)
        if same:
            self.begun = self._now()

    def _fresh(self, generators: list[torch.Generator], draw: Callable[[], T]) -> T:
        """Draw, and refuse the result if it comes from a state that was already used."""
        before = [(digest := _digest(one), digest in _SEEN) for one in generators]
        made, repeated = draw(), False
        for one, (digest, seen) in zip(generators, before, strict=True):
            # A draw that uses no randomness, for example within an ordered pass, repeats no state.
            if _digest(one) == digest:
                continue
            if one not in self._owned:
                repeated = repeated or seen
                _SEEN.add(digest)
                continue
            moved = digest != self._owned[one]
            repeated = repeated or moved
            self._own(one)
            if moved:
                self._key(one)
        if repeated:
            rule = "be unused, since its noise or batches would repeat"
            way_out = (
                "do not restore the state of a generator in a private run; torch.seed() gives "
                "torch a new state, and fedprivacy makes its own generator without "
                "noise_generator and generator"
            )
            refuse("the state of a generator of torch", "an earlier state", rule, way_out)
        return made
