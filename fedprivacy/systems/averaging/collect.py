"""The server's side of a round: the running sum of the clients' contributions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import torch
from torch import Tensor

from ...errors import ParameterError, refuse
from ...mechanisms import Sparsification, SparsifiedPerturbation
from ...mechanisms.noise import is_finite
from ...training.rounds import RoundInfo
from .upload import upload_size

MOST = 40_000
"""Contributions whose private sum rounds by less than clipping leaves free."""


class Collected:
    """The running sum of a round's contributions; memory O(model).

    A private sum is kept in double precision. Its rounding, at most n^2 2^-52 of the clip norm for
    n contributions in single precision, is within what clipping leaves free (``noise.clipped``) up
    to ``MOST`` of them: one client moves the sum by no more than its clip norm, or twice it.

    A refused update counts as zero and its client still sends its share of the noise: neither the
    noise nor the decision to abort may depend on anyone's data. A client that was drawn several
    times is trained once and its contribution counts that often.

    Args:
        cohort: the clients drawn, one entry for each draw.
        sparsification: which coordinates travel; all d of them where ``kept`` is d.
        mask: their indices, shape (kept,); None where all travel.
        secure: clips, and says how much noise the sum carries; None without privacy.
        device: where the sum is.
    """

    def __init__(
        self,
        cohort: Iterable[int],
        sparsification: Sparsification,
        mask: Tensor | None = None,
        secure: SparsifiedPerturbation | None = None,
        device: str = "cpu",
    ) -> None:
        self.turns = Counter(map(int, cohort))
        self.sparsification, self.mask, self.secure = sparsification, mask, secure
        self.drawn = self.turns.total()
        kind = torch.float32 if secure is None else torch.float64
        self.total = torch.zeros(sparsification.kept, device=device, dtype=kind)
        if mask is not None:
            sparsification.check_mask(mask)
        if self.drawn > MOST and secure is not None:
            refuse("cohort", self.drawn, f"be at most {MOST}", "sums of more would round too much")
        self.arrived = self.refused = self.out_of_turn = self.uploads = 0

    def add(self, client: int, update: object) -> bool:
        """Add a client's update, or count it as refused.

        Args:
            client: who sends it. A client that was not drawn, or that reported before, is refused;
                what it sent before stays in the sum once.
            update: a flat tensor of real numbers; refused if it is anything else, None included, or
                unless its shape is (d,) and every entry is finite.

        Returns:
            Whether it is in the sum.
        """
        times = self.turns.pop(int(client), 0)
        if not times:
            self.out_of_turn += 1
            return False
        self.uploads += 1
        part = self._part(update)
        if part is None:
            self.refused += times
            return False
        self.total.add_(part, alpha=times)
        self.arrived += times
        return True

    def _part(self, update: object) -> Tensor | None:
        """Return what the client adds to the sum, shape (kept,), None if it is to be refused."""
        if not isinstance(update, Tensor) or not update.is_floating_point():
            return None
        choose = self.sparsification.select if self.secure is None else self.secure.contribution
        try:
            part: Tensor = choose(update.detach().float(), self.mask)
        except ParameterError:
            return None
        return part if is_finite(part) else None

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
        secure = self.secure
        if secure is None or secure.topped_up:
            return False
        return self.shares < secure.cohort - secure.missing

    @property
    def noise_std(self) -> float:
        """Std of the noise that the secure sum carries."""
        return 0.0 if self.secure is None else self.secure.sum_noise_std(self.shares)

    def info(self, number: int, *, aborted: bool) -> RoundInfo:
        """Return the round's record."""
        return RoundInfo(
            round=number,
            cohort=self.drawn,
            arrived=self.arrived,
            refused=min(self.refused + self.out_of_turn, self.drawn),
            aborted=aborted,
            upload_bytes=self.uploads * upload_size(self.sparsification.kept),
            payload_bytes=self.uploads * 4 * self.sparsification.kept,
            noise_std=0.0 if aborted else self.noise_std,
        )
