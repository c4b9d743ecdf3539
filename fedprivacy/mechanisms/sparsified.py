"""Fed-SMP: sparsify, clip, perturb (Hu, Guo and Gong, Algorithm 2)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from ..errors import UnsupportedCombination, integer, natural, positive, refuse, validate_fields
from ..privacy_loss import PrivacyLoss
from ..registry import plain_fields, registered
from ..relations import Adjacency, Facts, Unit
from ..sampling import Everyone, FixedSize, Scheme, Shuffled, WithReplacement, priced_as
from ..sampling.traits import Traits
from .base import ROUNDING
from .gaussian import Gaussian, gaussian_sum_loss
from .noise_shares import Shared
from .perturbation import Perturbation
from .rounded import noise_like, noisy_like
from .sparsification import Indices, Sparsification, Sparsifier
from .tensors import is_tensor

_STEADY = (Everyone, FixedSize, WithReplacement, Shuffled)
"""Schemes with a known cohort size. Other schemes need topped-up noise, and so do subclasses with a
price of their own, because the worst scheme is known only for these."""


_ASSUMED = (
    "secure aggregation hides single uploads; all clients of a round use the same mask, which "
    "is public and independent of their data",
    "dropouts depend neither on data nor on the other participants; a client whose update is "
    "refused still sends its share of the noise",
)

_SHARES = (
    "a cohort has {} shares of the noise, each drawn independently (a client drawn twice sends "
    "two); a round with fewer than {} shares in the secure sum is aborted"
)

_AS_DRAWN = (
    "given the number of answers and the known shares, no client takes part with a larger "
    "probability than if cohorts were drawn from all but absent = {} clients"
)

_TOPPED_UP = (
    "the noise is topped up inside the secure sum (shares of std C z / sqrt(realised size)), so "
    "that the observer cannot subtract it"
)


@registered
@dataclass(frozen=True, kw_only=True)
class SparsifiedPerturbation(Perturbation, Shared):
    """One round of Fed-SMP, seen through secure aggregation; the unit is a client.

    Each of ``cohort`` clients keeps ``kept`` of ``dimension`` coordinates of its update, clips them
    to ``clip_norm`` and adds noise of std ``clip_norm * noise_multiplier / sqrt(cohort)``. The
    secure sum then carries std ``clip_norm * noise_multiplier``, minus missing shares. Shares are
    missing if clients drop out, or if colluders can subtract them. ``kept = dimension`` with rand_k
    is DP-FedAvg.

    Args:
        noise_multiplier: std of the full sum's noise over the clip norm, above 0.
        clip_norm: norm that a sparsified update is clipped to, above 0.
        kept: k, from 1 to ``dimension``.
        dimension: d, number of coordinates.
        cohort: r, number of clients whose shares make up the full noise.
        sparsifier: "rand_k" or "top_k" (the mask must come from public data).
        missing: largest number of missing shares of a cohort. With more, the round releases
            nothing.
        colluding: largest number of shares of a cohort that the observer may know. Clients that
            collude for the whole run also know which of them were drawn: count them in ``absent``
            too.
        topped_up: whether the secure sum carries exactly the full noise for every realised cohort,
            including the empty one, whatever shares are missing. Needed if the cohort size varies
            (Poisson, TruncatedPoisson, RandomAllocation). Also needed for ``add_remove`` if no
            client takes an absent client's place (``Everyone``, no scheme).
        absent: number of clients of the population that may be away, whoever is drawn. Rounds that
            release an output then have only present clients in the cohort. FixedSize and
            WithReplacement are accounted with the population less ``absent``.

    Raises:
        ParameterError: a value out of its range.
    """

    noise_multiplier: float
    clip_norm: float
    kept: int
    dimension: int
    cohort: int
    sparsifier: Sparsifier | str = Sparsifier.RAND_K
    missing: int = 0
    colluding: int = 0
    topped_up: bool = False
    absent: int = 0

    def __post_init__(self) -> None:
        validate_fields(self, positive, "noise_multiplier", "clip_norm")
        validate_fields(self, natural, "cohort")
        validate_fields(self, partial(integer, 0), "missing", "colluding", "absent")
        for name in ("kept", "dimension", "sparsifier"):
            object.__setattr__(self, name, getattr(self.sparsification, name))
        if self.missing + self.colluding >= self.cohort:
            refuse(
                "missing + colluding",
                self.missing + self.colluding,
                f"be below cohort = {self.cohort}",
                "without an honest share there is no noise",
            )
        if self.topped_up and self.colluding:
            refuse(
                "colluding",
                self.colluding,
                "be 0 if the noise is topped up",
                "the colluders' part of the noise grows if fewer clients answer; use FixedSize "
                "without topped_up",
            )

    protects = Unit.CLIENT

    def public(self, adjacency: Adjacency) -> dict[str, object]:
        """Return the fields, and the inputs of the model, the average and a top_k mask."""
        # Only a mask that omits coordinates is made of public records.
        mask = self.sparsifier is Sparsifier.TOP_K and self.kept < self.dimension
        more = ("public records that masks are made of",) if mask else ()
        words = ("number of classes of the model", "denominator of the sum", *more)
        return plain_fields(self) | dict.fromkeys(words)

    @cached_property
    def sparsification(self) -> Sparsification:
        """Choice and scaling of the coordinates sent."""
        return Sparsification(kept=self.kept, dimension=self.dimension, sparsifier=self.sparsifier)

    @property
    def traits(self) -> Traits:
        """The traits of one Gaussian sum.

        Zeroed clients send a share of the noise. Absent clients send none, unless it is topped up.
        """
        return Traits.of_sum(self.counted_multiplier)._replace(
            one_coordinate=self.kept == 1, zeroed_is_absent=self.topped_up
        )

    @property
    def counted_multiplier(self) -> float:
        """Std of the counted noise in the secure sum, over the clip norm."""
        # Topped-up noise is complete. Otherwise the fewest honest shares count.
        lost = 0 if self.topped_up else self.colluding + self.missing
        return self.noise_multiplier * math.sqrt((self.cohort - lost) / self.cohort)

    @property
    def share_std(self) -> float:
        """Std of one client's noise on each kept coordinate."""
        return self.clip_norm * self.noise_multiplier / math.sqrt(self.cohort)

    @property
    def full_noise_std(self) -> float:
        """``clip_norm * noise_multiplier``: with colluders' shares and without missing shares."""
        return self.clip_norm * self.noise_multiplier

    @property
    def full_cohort(self) -> int:
        """Number of clients whose shares make up the full noise."""
        return self.cohort

    def carries(self, shares: int) -> bool:
        """Return whether at most ``missing`` shares of the noise are missing."""
        return self.topped_up or shares >= self.cohort - self.missing

    def noise(
        self, like: Any, generator: Any = None, *, shares: int | None = None
    ) -> tuple[Any, float]:
        """Draw the noise of a secure sum of ``shares`` clients in one call.

        The sum of independent normal shares is one normal variable of the summed variance. So a
        loop that sees only the sum need not draw a share for each client.
        """
        std = self.sum_noise_std(self.cohort if shares is None else shares)
        return noise_like(like, std=std, grid=self.grid, generator=generator), std

    def sum_noise_std(self, shares: int) -> float:
        """Return the std of the secure sum's noise with the shares of ``shares`` clients.

        With ``topped_up`` it is the full noise for every number of shares, also above ``cohort``
        (clients then send smaller shares). A variance that depended on the realised size would show
        who took part.
        """
        return self.full_noise_std if self.topped_up else self.share_std * math.sqrt(shares)

    @property
    def _total(self) -> float:
        """Std of the sum's noise over the clip norm, colluders' shares included."""
        return replace(self, colluding=0).counted_multiplier

    def noise_ratios(self, clip_norm: float) -> frozenset[float]:
        """Return the ratio of the sum's noise, colluders' shares included."""
        return frozenset({self._total})

    def rescaled(self, fraction: float) -> SparsifiedPerturbation | None:
        """Return the sum with the fraction of its noise; colluders know their full shares.

        If an integer number of missing clients explains the fraction, that many are missing.
        Otherwise every share has less noise.
        """
        total = fraction * self._total
        return self._with_missing(total) or self._scaled(total)

    def _with_missing(self, total: float) -> SparsifiedPerturbation | None:
        if self.topped_up:
            return None
        # Variances add up: find the number of shares with this variance.
        arrived = round(self.cohort * (total / self.noise_multiplier) ** 2)
        if not self.colluding < arrived <= self.cohort:
            return None
        found = replace(self, missing=self.cohort - arrived)
        return found if abs(found._total - total) <= ROUNDING * total else None

    def _scaled(self, total: float) -> SparsifiedPerturbation | None:
        # Colluders know their full shares, so only the rest of the noise counts. Use shares of all
        # the noise, because squares of the noise itself may overflow.
        counts = (total / self.noise_multiplier) ** 2 - self.colluding / self.cohort
        if counts <= 0.0:
            return None
        share = self.counted_multiplier / self.noise_multiplier
        multiplier = self.noise_multiplier * (math.sqrt(counts) / share)
        return replace(self, noise_multiplier=multiplier)

    def noise_mismatch(self, *, shares: int, noise_multiplier: float) -> str:
        """Return an error text if there is more noise than the received shares have."""
        most = self.noise_multiplier * math.sqrt(shares / self.cohort)
        if self.topped_up or noise_multiplier <= most * (1.0 + ROUNDING):
            return ""
        return (
            f"noise of {noise_multiplier:.6g} clip norms, but {shares} of {self.cohort} shares "
            f"give {most:.6g}"
        )

    def single_uploads(self) -> Gaussian:
        """Return one client's upload, which carries its own share: std C z / sqrt(cohort).

        Raises:
            UnsupportedCombination: shares depend on the realised cohort, or clients may be away.
        """
        if self.topped_up:
            raise UnsupportedCombination(
                "the noise is topped up to the realised cohort (topped_up = "
                f"{self.topped_up}), so the share of a single upload has no fixed size; "
                "without secure aggregation every client must add the full noise"
            )
        if self.absent:
            raise UnsupportedCombination(
                f"clients may be always absent (absent = {self.absent}), so the others are "
                "drawn more often than the scheme states; no theorem covers this, so use "
                "absent=0"
            )
        return Gaussian(
            noise_multiplier=self.noise_multiplier / math.sqrt(self.cohort),
            clip_norm=self.clip_norm,
            unit=self.protects,
        )

    def _check_scheme(self, scheme: Scheme) -> None:
        """Refuse cohorts in which the clients' shares do not add up to the stated noise."""
        if isinstance(scheme, FixedSize) and scheme.size != self.cohort:
            refuse("cohort", self.cohort, f"equal the scheme's size = {scheme.size}")
        if isinstance(scheme, WithReplacement) and scheme.draws != self.cohort:
            refuse("cohort", self.cohort, f"equal the scheme's draws = {scheme.draws}")
        steady = any(priced_as(scheme, kind) for kind in _STEADY)
        if not steady and not self.topped_up:
            raise UnsupportedCombination(
                f"the size of a {type(scheme).__name__} cohort varies, so the clients' shares do "
                "not add up to noise_multiplier; pass topped_up=True (and top the secure sum up to "
                "the full noise for every realised size, 0 included) or sample with FixedSize"
            )
        if isinstance(scheme, Shuffled) and not self.topped_up:
            self._check_rounds(scheme)
        if isinstance(scheme, WithReplacement) and self.colluding:
            raise UnsupportedCombination(
                "a colluder that WithReplacement draws several times knows several shares of "
                f"the noise, up to all of them (colluding = {self.colluding}); sample with "
                "FixedSize, or use colluding=0"
            )

    def _check_rounds(self, scheme: Shuffled) -> None:
        """Refuse an epoch whose rounds may lack the counted shares.

        A round of fewer clients has less noise, and the observer knows which round it is.
        """
        if scheme.population is None:
            raise UnsupportedCombination(
                "the rounds of a shuffled epoch differ in size unless their number divides "
                f"that of the clients, and smaller rounds have less noise, got {scheme}; state "
                "the number of clients, Shuffled(rounds_per_epoch=..., population=...), or "
                "pass topped_up=True"
            )
        # Rounds of a shuffled epoch differ by at most one client.
        shortest = scheme.population // scheme.rounds_per_epoch
        longest = -(-scheme.population // scheme.rounds_per_epoch)
        if longest != self.cohort:
            refuse("cohort", self.cohort, f"equal the size of the longest round = {longest}")
        if shortest < self.cohort - self.missing:
            rule = f"be at least 1, since some rounds have {shortest} clients"
            way_out = "or let rounds_per_epoch divide the population, or pass topped_up=True"
            refuse("missing", self.missing, rule, way_out)

    def worst_scheme(self, scheme: Scheme) -> Scheme:
        """Return the scheme as seen by an observer who knows which clients cannot take part.

        Draw r of n without replacement. Let j of the drawn clients be among a clients who are known
        to be away or to collude. The others are r - j drawn from n - a, each with probability (r -
        j) / (n - a) <= r / (n - a). The accounted loss increases with this probability.

        Raises:
            ParameterError: ``absent`` for draws by a probability, whose population is not known, or
                a cohort of another size.
            UnsupportedCombination: the shares of a cohort do not add up to the stated noise.
        """
        self._check_scheme(scheme)
        away = 0 if self.topped_up else self.absent
        if isinstance(scheme, WithReplacement) and away:
            if scheme.population is None:
                refuse("absent", away, "be 0 if WithReplacement has no population")
            return replace(scheme, population=max(1, scheme.population - away))
        if isinstance(scheme, FixedSize) and away:
            left = max(1, scheme.population - away)
            return FixedSize(min(scheme.size, left), population=left)
        return scheme

    def loss_under(self, facts: Facts) -> PrivacyLoss:
        """Return the loss of one Gaussian sum with the counted shares of the noise."""
        assumed = self._assumed(facts)
        loss = gaussian_sum_loss(self.counted_multiplier, facts)
        return replace(loss, assumptions=(*loss.assumptions, *assumed))

    def _assumed(self, facts: Facts) -> tuple[str, ...]:
        """Return the assumptions; refuse an adjacency that shares do not support."""
        if facts.adjacency is Adjacency.ADD_REMOVE and not self.topped_up:
            raise UnsupportedCombination(
                "an absent client without a replacement also leaves out its share of the "
                "noise, so the variance of the noise reveals it, got topped_up = "
                f"{self.topped_up}; account for zero_out or replace_one, sample with FixedSize "
                "below the population, or pass topped_up=True (and top the secure sum up to "
                "the full noise for every realised size)"
            )
        shares = _SHARES.format(self.cohort, self.cohort - self.missing)
        last = (_TOPPED_UP,) if self.topped_up else (shares, _AS_DRAWN.format(self.absent))
        return (*_ASSUMED, *last)

    def draw_mask(self, generator: np.random.Generator | None = None) -> Indices:
        """Return ``kept`` of ``dimension`` indices, sorted, uniformly at random (public)."""
        return self.sparsification.draw_mask(generator)

    def contribution(self, update: Any, mask: Any = None) -> Any:
        """Return the clipped kept coordinates of a client's flat update, shape (kept,).

        Args:
            update: flat array or tensor of shape (dimension,).
            mask: the round's indices, shape (kept,); None if every coordinate is kept.

        Returns:
            Shape (kept,), on the grid, norm at most ``clip_norm``.

        Raises:
            ParameterError: a wrong shape, or an entry that is not finite, possibly after scaling by
                d/k.
        """
        return self.gridded(self.sparsification.select(update, mask))

    def release(
        self, value: Any, generator: Any = None, *, mask: Any = None, shares: int | None = None
    ) -> Any:
        """Return one client's noisy share: shape of ``value``, zero outside the mask.

        The result is the grid point nearest to contribution plus ideal noise. A sum of shares in
        double precision is a correct rounding of the sum plus the whole noise and more, within a
        total variation below 1e-100 (docs/theory/rounding.md). Single-precision shares are rounded
        again, one by one. The account does not cover what that shows about their sum.

        Args:
            value: the client's flat update, shape (dimension,); numpy array or torch tensor.
            generator: see ``rounded.bits_of``; None is the only private choice.
            mask: the round's kept indices, shape (kept,), the same for all clients of a round,
                because noise on different coordinates does not add up. Required for top_k, whose
                mask comes from public data. For rand_k a mask is drawn if a numpy ``generator`` is
                given, for experiments, and for a cohort of one.
            shares: number of shares in the sum; None for ``cohort``. Required if the noise is
                topped up: each share then has 1 / ``shares`` of the variance.

        Raises:
            ParameterError: a wrong shape, an entry that is not finite, no mask, or no ``shares``.
        """
        if mask is None:
            mask = self._own_mask(generator)
        kept, std = self.contribution(value, mask), self._std_of_one(shares)
        noisy = noisy_like(kept, std=std, grid=self.grid, generator=generator)
        # Zeros of the update's type, on its device. abs removes -0, which would reveal a sign.
        share = abs((value.detach() if is_tensor(value) else value) * 0.0)
        share[mask] = noisy if isinstance(share, np.ndarray) else noisy.to(share.dtype)
        return share

    def _own_mask(self, generator: Any) -> Indices:
        """Return a mask that no other client needs to know."""
        if self.kept == self.dimension:
            return self.draw_mask()
        if self.sparsifier is Sparsifier.TOP_K:
            refuse("mask", None, "be given for top_k", "compute it from public data")
        if isinstance(generator, np.random.Generator):
            return self.draw_mask(generator)
        if self.cohort > 1:
            way_out = "call draw_mask() once per round, for all its clients"
            refuse("mask", None, "be given, equal for the whole cohort", way_out)
        return self.draw_mask()

    def _std_of_one(self, shares: int | None) -> float:
        if not self.topped_up:
            if shares not in (None, self.cohort):
                refuse("shares", shares, f"be cohort = {self.cohort}", "or declare topped_up=True")
            return self.share_std
        if shares is None:
            refuse("shares", None, "be given if the noise is topped up")
        return self.clip_norm * self.noise_multiplier / math.sqrt(integer(1, shares=shares))
