"""Randomness and time that every run of the tests repeats.

Everything that Python code draws from the operating system comes from one seeded stream instead:
noise, cohorts, nonces and keys. The stream begins anew with every test, with every fixture of a
module, and with every module that is imported, each seeded by its name. A generator that
a module keeps begins anew with every test as well. So a test draws the same numbers in every order
and on every worker. A forked child and a new process draw from the operating system.

Deadlines are measured by a clock that advances by ``LOOK`` each time it is read. So an answer does
not depend on the load.
"""

import os
import random
import ssl
import sys
import zlib
from contextlib import contextmanager

import numpy as np

LOOK = 1e-3
"""Seconds that pass on the tests' clock with each look at it."""

CHOSEN = 2**40
"""Opacus's books take a seed of torch's below 2^32 to be chosen by a person."""


class Stream:
    """Bytes in the place of the operating system's.

    Attributes:
        source: what draws the bytes; None for the operating system.
    """

    def __init__(self):
        self.source = None
        self.system, self.openssl = os.urandom, ssl.RAND_bytes

    def begin(self, seed, name):
        """Seed the stream, and the generators that are shared by a process."""
        key = f"{seed} {name}"
        self.source = random.Random(key)
        number = zlib.crc32(key.encode())
        random.seed(number)
        np.random.seed(number)
        if "torch" in sys.modules:
            torch = sys.modules["torch"]
            # ``torch.manual_seed`` keeps the stack of every call until CUDA starts.
            torch.default_generator.manual_seed(CHOSEN + number)
            if torch.cuda.is_initialized():
                torch.cuda.manual_seed_all(CHOSEN + number)

    def urandom(self, count):
        """Return bytes as ``os.urandom`` does."""
        return self.system(count) if self.source is None else self.source.randbytes(count)

    def rand_bytes(self, count):
        """Return bytes as ``ssl.RAND_bytes`` does."""
        return self.openssl(count) if self.source is None else self.source.randbytes(count)

    def torch_seed(self):
        """Seed torch from the stream, as ``torch.seed`` does from the operating system."""
        number = CHOSEN + int.from_bytes(self.urandom(5))
        sys.modules["torch"].manual_seed(number)
        return number

    def install(self):
        """Take the place of the operating system, in this process and not in its children."""
        os.urandom = self.urandom
        # ``secrets`` and numpy's unseeded generators draw by this name.
        random._urandom = self.urandom
        ssl.RAND_bytes = self.rand_bytes
        os.register_at_fork(after_in_child=self.leave)
        if "torch" in sys.modules:
            torch = sys.modules["torch"]
            self.torch = torch.seed
            torch.seed = lambda: self.torch() if self.source is None else self.torch_seed()

    def leave(self):
        """Draw from the operating system again."""
        self.source = None

    @contextmanager
    def scope(self, seed, name):
        """Draw from a stream of this name inside, and from the one before again after it."""
        before = self.source, random.getstate(), np.random.get_state()
        torch = sys.modules.get("torch")
        state = torch and torch.get_rng_state()
        self.begin(seed, name)
        try:
            yield
        finally:
            self.source = before[0]
            random.setstate(before[1])
            np.random.set_state(before[2])
            if torch:
                torch.set_rng_state(state)


def generators(module):
    """Return (read the state, set the state) of each generator that a module keeps."""
    torch, found = sys.modules.get("torch"), []
    for one in list(vars(module).values()):
        if isinstance(one, np.random.Generator):
            bits = one.bit_generator
            found.append((lambda b=bits: b.state, lambda state, b=bits: setattr(b, "state", state)))
        elif isinstance(one, random.Random):
            found.append((one.getstate, one.setstate))
        elif torch and isinstance(one, torch.Generator):
            found.append((one.get_state, one.set_state))
    return found


class Kept:
    """The generators that modules keep, as they were when the module was imported."""

    def __init__(self):
        self.begun = {}

    def note(self, module):
        """Read the states of a module's generators."""
        self.begun[module.__name__] = [(set_, get()) for get, set_ in generators(module)]

    def again(self, module):
        """Set them back."""
        for set_, state in self.begun.get(module.__name__, ()):
            set_(state)


class Looks:
    """A clock that advances by ``LOOK`` each time it is read."""

    def __init__(self, look=LOOK):
        self.look, self.count = look, 0

    def __call__(self):
        """Return seconds."""
        self.count += 1
        return self.count * self.look
