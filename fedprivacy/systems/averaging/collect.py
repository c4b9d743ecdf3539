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
"""Precisions that clients may send; torch cannot always convert others to single precision."""


_EXACT = 2.0**24
"""Integers up to this value are exact in single precision."""


class Total:
    """A sum of vectors of integer multiples of a spacing, exact within the range of doubles.

    Parts that single precision adds exactly are added in single precision first. Their sum is added
    to the doubles only now and then, which takes a third of the time.

    Args:
        zero: start of the sum, whose precision is the sum's.
        spacing: a power of two; None if no spacing of the vectors is known.
    """

    def __init__(self, zero: Tensor, spacing: float | None) -> None:
        self._sum, self._spacing = zero, spacing
        self._single: Tensor | None = None
        self._reach = 0.0

    def add(self, part: Tensor, times: int, largest: float) -> None:
        """Add a vector ``times`` times; no entry exceeds ``largest`` in absolute value."""
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
        # No partial sum is above 2^24 spacings, so no partial sum is rounded.
        self._single.add_(part, alpha=times)
        self._reach += reach

    def value(self) -> Tensor:
        """Return the sum; writing to the result changes the sum."""
        self._settle()
        return self._sum

    def _settle(self) -> None:
        if self._single is not None and self._reach:
            self._sum.add_(self._single)
            self._single.zero_()
        self._reach = 0.0


class Collected:
    """The running sum of a round's contributions; memory O(model).

    Private contributions lie on their perturbation's grid. They are summed in double precision
    without rounding, up to the perturbation's ``room``. So one client changes the sum by at most
    its clip norm, or twice its clip norm. The sum plus noise on the grid is the correct rounding of
    the two.

    A refused update counts as zero, and its client still sends its share of the noise. Neither the
    noise nor the decision to abort may depend on a client's data. A client that was drawn several
    times is trained once, and its contribution counts once for each draw.

    Args:
        cohort: the clients drawn, one entry for each draw.
        sparsification: coordinates that are sent; all d of them if ``kept`` is d.
        mask: their indices, shape (kept,); None if all are sent.
        perturbation: clips, and draws the sum's noise; None without privacy.
        device: device of the sum.
        parts: receives each client's contribution, for clients that use it afterwards; None if it
            is not needed.
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
            encoding = perturbation.encoding
            width, spacing = encoding.travelling(kept), encoding.spacing
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
            client: number of the sender, an integer. Refused are a client that was not drawn, a
                second report of a client, and a sender without an integer. An earlier report stays
                in the sum once.
            update: a flat dense tensor of real numbers. Any other object is refused (None, sparse,
                on the meta device, a subclass), and so is another shape than (d,) or an entry that
                is not finite.

        Returns:
            Whether the update is in the sum.
        """
        # Removed, so that a second report has no draws left.
        times = self.turns.pop(_number(client), 0)
        if not times:
            self.out_of_turn += 1
            return False
        # A refused update was sent too.
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
        """Return an empty sum for some of the clients, to be added up in another process."""
        cohort = [client for client in clients for _ in range(self.turns[client])]
        device = str(self.total.device)
        return Collected(cohort, self.sparsification, self.mask, self.perturbation, device)

    def merge(self, clients: Iterable[int], part: Collected) -> None:
        """Add a sum of some of the clients from another process, with a private perturbation.

        The sums are exact, so the result is the same as adding the updates here.

        Args:
            clients: all clients of ``part`` that reported to it.
            part: a sum from ``empty``.
        """
        for client in clients:
            del self.turns[client]
        self.total.add_(part.total)
        self.arrived += part.arrived
        self.refused += part.refused
        self.uploads += part.uploads

    def _part(self, update: object) -> Tensor | None:
        """Return the client's contribution to the sum, shape (kept,); None to refuse it."""
        plain = _plain(update, self.sparsification.dimension)
        if plain is None:
            return None
        try:
            here = plain if self._device == "cpu" and plain.is_cpu else plain.to(self._device)
            part: Tensor = self._choose(here, self.mask)
        # A fault in one update must not stop the round.
        except ParameterError:
            return None
        # A shorter part would be broadcast to every coordinate.
        if part.shape != (self._width,):
            rule = f"have shape {(self._width,)}, that of the sum of a round"
            name = f"{type(self.perturbation).__name__}.contribution"
            refuse(name, tuple(part.shape), rule)
        return part

    @property
    def _payload(self) -> int:
        """Number of bytes of an upload's numbers."""
        kept, own = self.sparsification.kept, self.perturbation
        return 4 * kept if own is None else -(-own.encoding.upload_bits(kept) // 8)

    @property
    def shares(self) -> int:
        """Number of shares of the noise in the sum.

        A client whose update is refused sends zeros and its share. A refusal depends on the
        client's data, so noise that shrank with a refusal would reveal information about the data.
        """
        return self.arrived + self.refused

    @property
    def short(self) -> bool:
        """Whether fewer shares of the noise arrived than the privacy loss assumes."""
        return self.perturbation is not None and not self.perturbation.carries(self.shares)

    @property
    def answered(self) -> str:
        """Number of clients that answered, as text."""
        return f"{self.shares} of {self.drawn} clients answered"

    def noisy(self, generator: np.random.Generator | None) -> tuple[Tensor, float]:
        """Return the noisy sum, and the std of the noise that the perturbation drew.

        Args:
            generator: None for the operating system's randomness, as privacy requires.
        """
        if self.perturbation is None:
            return self.total, 0.0
        noise, std = self.perturbation.noise(self.total, generator, shares=self.shares)
        return self.total + noise, std

    def decoded(self, noisy: Tensor) -> Tensor:
        """Return the noisy sum of updates that a noisy sum of contributions encodes."""
        return noisy if self.perturbation is None else self.perturbation.encoding.decoded(noisy)

    def info(
        self, number: int, *, noise_std: float = 0.0, denominator: float | None = None
    ) -> RoundInfo:
        """Return the round's record; without a denominator it was aborted."""
        mask = None if self.mask is None else self.mask.cpu().numpy()
        return RoundInfo(
            round=number,
            cohort=self.drawn,
            arrived=self.arrived,
            # At most the cohort, as ledgers require: clients outside the cohort may have reported
            # too.
            refused=min(self.refused + self.out_of_turn, self.drawn),
            aborted=denominator is None,
            upload_bytes=self.uploads * (upload_size(0) + self._payload),
            payload_bytes=self.uploads * self._payload,
            noise_std=noise_std,
            denominator=denominator,
            mask=fingerprint(mask),
        )


def check_room(contributions: int, perturbation: Perturbation | None, mean: int = 0) -> None:
    """Raise ParameterError if a perturbation's sums have no room for so many contributions."""
    if perturbation is None:
        return
    encoding = perturbation.encoding
    for count, most in ((contributions, encoding.room), (mean, encoding.most_on_average)):
        if count > most:
            way_out = (
                "make the perturbation for this number of clients, since larger sums would be "
                "rounded or wrap around"
            )
            refuse("cohort", count, f"be at most {most}", way_out)


def _largest(part: Tensor) -> float:
    """Return a bound on the absolute values of the entries; NaN or infinity if an entry is."""
    # Doubles are never added up in single precision, so a norm suffices, which is faster.
    if part.dtype is torch.float64 and part.is_cpu:
        return at_most(part.detach().numpy())
    return max(abs(float(end)) for end in part.aminmax())


def _number(client: object) -> int:
    """Return a client's number, or -1, which no client has, for an invalid one."""
    try:
        return operator.index(client)  # type: ignore[arg-type]
    # A name from the network may be an object whose methods raise any error.
    except Exception:
        return -1


def _plain(update: object, dimension: int) -> Tensor | None:
    """Return a client's vector in single precision; None unless its length is ``dimension``.

    A client's object must not stop the round or run its own code. A subclass of Tensor may run any
    code when its shape is read. So may a tensor with instance attributes, which hide those of its
    class.
    """
    if type(update) not in (Tensor, torch.nn.Parameter) or vars(update):
        return None
    assert isinstance(update, Tensor)
    # Before any copy: one number in memory may claim to be any number of entries.
    if not _is_dense(update) or update.shape != (dimension,):
        return None
    return update.detach().float() if _is_readable(update) else None


def _is_dense(update: Tensor) -> bool:
    unlike = update.is_nested or update.is_quantized or torch._is_functional_tensor(update)
    return update.layout is torch.strided and not (unlike or update.is_meta)


def _is_readable(vector: Tensor) -> bool:
    """Return whether a vector's numbers are in memory: no functorch tensor or cut storage."""
    if vector.dtype not in _PRECISIONS:
        return False
    try:
        held = vector.untyped_storage().nbytes()
    except RuntimeError:
        return False
    end = vector.storage_offset() + (vector.shape[0] - 1) * vector.stride(0) + 1
    return end * vector.element_size() <= held
