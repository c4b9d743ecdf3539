"""The server's side of a round: the running sum of the clients' contributions."""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from ...errors import ParameterError, refuse
from ...mechanisms import Perturbation, Sparsification
from ...mechanisms.rounded import at_most
from ...mechanisms.sparsification import fingerprint
from ...training.rounds import RoundInfo
from .upload import upload_size

_PRECISIONS = torch.float16, torch.bfloat16, torch.float32, torch.float64
"""What clients may send; others torch cannot always turn into single precision."""


_EXACT = 2.0**24
"""Whole numbers up to here are exact in single precision."""


class Total:
    """A sum of vectors that are whole multiples of a spacing, exact as long as doubles are.

    What single precision adds up exactly is added up in it, and only now and then to the doubles:
    that takes a third of the time.

    Args:
        zero: what the sum begins with, whose precision is the sum's.
        spacing: a power of two; None where nothing is known of the vectors.
    """

    def __init__(self, zero: Tensor, spacing: float | None) -> None:
        self._sum, self._spacing = zero, spacing
        self._single: Tensor | None = None
        self._reach = 0.0

    def add(self, part: Tensor, times: int, largest: float) -> None:
        """Add a vector so many times, none of whose entries is larger in size than ``largest``."""
        reach = math.inf
        if self._spacing is not None and part.dtype == torch.float32:
            reach = times * largest / self._spacing
        if self._reach + reach > _EXACT:
            self._settle()
        if reach > _EXACT:
            self._sum.add_(part, alpha=times)
            return
        if self._single is None:
            self._single = torch.zeros_like(part)
        # No partial sum is above 2^24 spacings: none is rounded.
        self._single.add_(part, alpha=times)
        self._reach += reach

    def value(self) -> Tensor:
        """Return the sum; what is written to it is in the sum."""
        self._settle()
        return self._sum

    def _settle(self) -> None:
        if self._single is not None and self._reach:
            self._sum.add_(self._single)
            self._single.zero_()
        self._reach = 0.0


class Collected:
    """The running sum of a round's contributions; memory O(model).

    Private contributions lie on their perturbation's grid and are summed in double precision,
    without rounding up to its ``room``: one client moves the sum by no more than its clip norm, or
    twice it, and the sum plus noise on the grid is the correct rounding of the two.

    A refused update counts as zero and its client still sends its share of the noise: neither the
    noise nor the decision to abort may depend on anyone's data. A client that was drawn several
    times is trained once and its contribution counts that often.

    Args:
        cohort: the clients drawn, one entry for each draw.
        sparsification: which coordinates travel; all d of them where ``kept`` is d.
        mask: their indices, shape (kept,); None where all travel.
        perturbation: clips, and draws the sum's noise; None without privacy.
        device: where the sum is.
        parts: gets what each client adds, where clients go on from it; None where nobody does.
    """

    def __init__(
        self,
        cohort: Iterable[int],
        sparsification: Sparsification,
        mask: Tensor | None = None,
        perturbation: Perturbation | None = None,
        device: str = "cpu",
        parts: dict[int, Tensor] | None = None,
    ) -> None:
        self.turns = Counter(map(int, cohort))
        self.sparsification, self.mask, self.perturbation = sparsification, mask, perturbation
        self.drawn = self.turns.total()
        kind = torch.float32 if perturbation is None else torch.float64
        kept = sparsification.kept
        width, spacing, self._choose = kept, None, sparsification.select
        if perturbation is not None:
            width, spacing = perturbation.travelling(kept), perturbation.spacing
            self._choose = perturbation.contribution
        self._total = Total(torch.zeros(width, device=device, dtype=kind), spacing)
        self._width, self._device, self.parts = width, device, parts
        if mask is not None:
            sparsification.check_mask(mask)
        check_room(self.drawn, perturbation)
        self.arrived = self.refused = self.out_of_turn = self.uploads = 0

    @property
    def total(self) -> Tensor:
        """The sum, shape (kept,)."""
        return self._total.value()

    def add(self, client: object, update: object) -> bool:
        """Add a client's update, or count it as refused.

        Args:
            client: who sends it: a whole number. A client that was not drawn, or that reported
                before, and whoever says no number, is refused; what was sent before stays in the
                sum once.
            update: a flat dense tensor of real numbers; refused if it is anything else (None,
                sparse, on the meta device, of a class of its own), or unless its shape is (d,) and
                every entry is finite.

        Returns:
            Whether it is in the sum.
        """
        # Taken out, so that a second report finds no turn.
        times = self.turns.pop(_number(client), 0)
        if not times:
            self.out_of_turn += 1
            return False
        # What is refused was sent all the same.
        self.uploads += 1
        part = self._part(update)
        largest = math.nan if part is None else _largest(part)
        if part is None or not math.isfinite(largest):
            self.refused += times
            return False
        self._total.add(part, times, largest)
        self.arrived += times
        if self.parts is not None:
            self.parts[_number(client)] = part
        return True

    def empty(self, clients: Iterable[int]) -> Collected:
        """Return a sum of nothing yet for some of the clients, to be added up elsewhere."""
        cohort = [client for client in clients for _ in range(self.turns[client])]
        device = str(self.total.device)
        return Collected(cohort, self.sparsification, self.mask, self.perturbation, device)

    def merge(self, clients: Iterable[int], part: Collected) -> None:
        """Add what was added up elsewhere for some of the clients, by a private perturbation.

        Exact, so that it is as if their updates had come here.

        Args:
            clients: all of those that ``part`` was made for and that reported to it.
            part: from ``empty``.
        """
        for client in clients:
            del self.turns[client]
        self.total.add_(part.total)
        self.arrived += part.arrived
        self.refused += part.refused
        self.uploads += part.uploads

    def _part(self, update: object) -> Tensor | None:
        """Return what the client adds to the sum, shape (kept,), None if it is to be refused."""
        plain = _plain(update, self.sparsification.dimension)
        if plain is None:
            return None
        try:
            here = plain if self._device == "cpu" and plain.is_cpu else plain.to(self._device)
            part: Tensor = self._choose(here, self.mask)
        # Whatever is wrong with one update must not stop the round.
        except ParameterError:
            return None
        # A shorter one would be added to every coordinate.
        if part.shape != (self._width,):
            rule = f"have shape {(self._width,)}, what a round sums"
            name = f"{type(self.perturbation).__name__}.contribution"
            refuse(name, tuple(part.shape), rule)
        return part

    @property
    def _payload(self) -> int:
        """How many bytes the numbers of an upload take."""
        kept, own = self.sparsification.kept, self.perturbation
        return 4 * kept if own is None else -(-own.upload_bits(kept) // 8)

    @property
    def shares(self) -> int:
        """How many shares of the noise are in the sum.

        A client whose update is refused sends zeros and its share: noise that shrank with a
        refusal, which depends on the client's data, would itself tell about them.
        """
        return self.arrived + self.refused

    @property
    def short(self) -> bool:
        """Whether fewer shares of the noise came than the privacy loss counts on."""
        return self.perturbation is not None and not self.perturbation.carries(self.shares)

    @property
    def answered(self) -> str:
        """How many answered, in words."""
        return f"{self.shares} of {self.drawn} clients answered"

    def noisy(self, generator: np.random.Generator | None) -> tuple[Tensor, float]:
        """Return the noisy sum, and the std of the noise that the perturbation drew.

        Args:
            generator: None for the operating system's randomness, as privacy needs.
        """
        if self.perturbation is None:
            return self.total, 0.0
        noise, std = self.perturbation.noise(self.total, generator, shares=self.shares)
        return self.total + noise, std

    def decoded(self, noisy: Tensor) -> Tensor:
        """Return the noisy sum of updates that a noisy sum stands for."""
        return noisy if self.perturbation is None else self.perturbation.decoded(noisy)

    def info(
        self, number: int, *, noise_std: float = 0.0, denominator: float | None = None
    ) -> RoundInfo:
        """Return the round's record; without a denominator it was aborted."""
        mask = None if self.mask is None else self.mask.cpu().numpy()
        return RoundInfo(
            round=number,
            cohort=self.drawn,
            arrived=self.arrived,
            # At most the cohort, as ledgers ask: strangers may have reported as well.
            refused=min(self.refused + self.out_of_turn, self.drawn),
            aborted=denominator is None,
            upload_bytes=self.uploads * (upload_size(0) + self._payload),
            payload_bytes=self.uploads * self._payload,
            noise_std=noise_std,
            denominator=denominator,
            mask=fingerprint(mask),
        )


def check_room(contributions: int, perturbation: Perturbation | None, mean: int = 0) -> None:
    """Raise ParameterError where a perturbation's sums have no room for so many contributions."""
    if perturbation is None:
        return
    for count, most in ((contributions, perturbation.room), (mean, perturbation.most_on_average)):
        if count > most:
            way_out = "make the perturbation for as many: sums of more would round, or wrap"
            refuse("cohort", count, f"be at most {most}", way_out)


def _largest(part: Tensor) -> float:
    """Return what no size of an entry is above; NaN or infinity where an entry is."""
    # Doubles are never added up in single precision: a norm, which is quicker, tells enough.
    if part.dtype is torch.float64 and part.is_cpu:
        return at_most(part.detach().numpy())
    return max(abs(float(end)) for end in part.aminmax())


def _number(client: object) -> int:
    """Return a client's number, -1, which nobody has, for what is none."""
    try:
        return operator.index(client)  # type: ignore[arg-type]
    # A name from the network may be an object whose methods raise anything.
    except Exception:
        return -1


def _plain(update: object, dimension: int) -> Tensor | None:
    """Return a client's vector in single precision, None for anything else than ``dimension``.

    Whatever else a client sends must not stop the round, nor run code of its own: a subclass of
    Tensor may do anything when it is asked for its shape, and so may one with attributes of its
    own, which hide those of its class.
    """
    if type(update) not in (Tensor, torch.nn.Parameter) or vars(update):
        return None
    assert isinstance(update, Tensor)
    # Before anything is copied: one number in memory may claim to be any count of them.
    if not _is_dense(update) or update.shape != (dimension,):
        return None
    return update.detach().float() if _is_readable(update) else None


def _is_dense(update: Tensor) -> bool:
    unlike = update.is_nested or update.is_quantized or torch._is_functional_tensor(update)
    return update.layout is torch.strided and not (unlike or update.is_meta)


def _is_readable(vector: Tensor) -> bool:
    """Return whether a vector's numbers are there: not a transform's, nor of a storage cut off."""
    if vector.dtype not in _PRECISIONS:
        return False
    try:
        held = vector.untyped_storage().nbytes()
    except RuntimeError:
        return False
    end = vector.storage_offset() + (vector.shape[0] - 1) * vector.stride(0) + 1
    return end * vector.element_size() <= held
