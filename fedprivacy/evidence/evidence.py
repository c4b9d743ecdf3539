"""The known facts of a run: the priced part, the certain part, and contradictions."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Self

from ..errors import LedgerError, UnsupportedCombination
from ..ledger import Joint, Ledger, LedgerRound
from ..loss import IDENTITY
from ..mechanisms import Mechanism
from ..mechanisms.base import ROUNDING
from ..mechanisms.correlated import whole_run
from ..mechanisms.noise_shares import single_uploads
from ..privacy_loss import PrivacyLoss, Witness
from ..relations import Adjacency, Facts, Observer
from .defects import Defect, qualifiers
from .doubts import doubts, odd_masks
from .noiseless import Noiseless, drawn_apart, least_chance, noiseless, without_noise
from .planned import record_as_planned
from .repricing import in_sequence, share_of_noise, spent
from .revealed import (
    PUBLIC_DENOMINATOR,
    VOIDED,
    Revealed,
    draws_of,
    rate_of,
    revealed_numbers,
    secret_sizes,
)


@dataclass(frozen=True)
class RunEvidence:
    """The known facts of a run, ready for pricing.

    Attributes:
        run: the priced mechanism; None if no round was spent.
        certain: the part that certainly ran, for lower ends.
        rounds: number of counted rounds.
        aborted: number of rounds that began and released no sum.
        doubts: signs that another mechanism ran than the priced one; empty if there are none.
        revealed: values that may reveal the cohort sizes, for each scheme; empty if rounds are
            unknown.
        size_doubts: doubts that apply if the number of units is secret.
        follows: whether sums were divided by numbers that are stated to depend on the data.
        planned: the run with rounds of the plan in place of those that the plan does not name; None
            if the plan names all.
        less: rounds with less noise than priced, in words.
        noiseless: rounds whose sums had no noise; None if all sums had noise. Otherwise ``run``
            only describes the rounds, and no account is made.
    """

    run: Mechanism | None
    certain: Mechanism | None
    rounds: int
    aborted: int = 0
    doubts: tuple[str, ...] = ()
    revealed: tuple[Revealed, ...] = ()
    size_doubts: tuple[str, ...] = ()
    follows: bool = False
    planned: Mechanism | None = None
    less: tuple[str, ...] = ()
    noiseless: Noiseless | None = None

    @classmethod
    def of(cls, ledger: Ledger | Joint) -> Self:
        """Return the evidence in one ledger, or in several together.

        Raises:
            UnsupportedCombination: see ``repricing.spent``.
        """
        rounds = ledger.alike
        found = spent(rounds)
        noiseless_rounds = [
            (without_noise(mechanism), count) for mechanism, count, _ in found.noiseless_rounds
        ]
        others = () if found.others is None else found.others.sequence()
        return cls(
            run=in_sequence([*others, *noiseless_rounds]),
            certain=found.certain,
            rounds=sum(r.times for r in rounds if r.spent),
            aborted=sum(r.times for r in rounds if not r.spent),
            doubts=_against(ledger, rounds),
            revealed=revealed(rounds),
            # Outputs may lead an adaptive schedule away from any plan, so only its filter decides.
            planned=None if ledger.schedule == "adaptive" else record_as_planned(ledger),
            less=found.notes,
            noiseless=noiseless(
                (least_chance(mechanism) if bare else 0.0, count, drawn_apart(mechanism))
                for mechanism, count, bare in found.noiseless_rounds
            ),
        )

    def under(self, facts: Facts) -> tuple[RunEvidence, tuple[Defect, ...]]:
        """Return the evidence under these facts, and its defects.

        Under add_remove, neighbours differ in the number of clients, and so in every value that
        depends on it. With cohorts of random size, the cohort size is a secret that the account
        relies on, under every adjacency. This does not apply to the server, which sees the
        participants.
        """
        hides, secret = _hidden(facts)
        own = self._revealing(hides, secret)
        # For records of other programs, only the run states how units were drawn.
        follows = self.follows and (hides or (secret and secret_sizes(self.run)))
        size_doubts = self.size_doubts if hides else ()
        doubts = (*self.doubts, *size_doubts, *revealed_numbers(own, follows))
        # Defects that void the numbers come first.
        applies = {
            Defect.OTHER_COHORTS: bool(doubts),
            Defect.ABORTED_DRAWS: secret and any(one.aborted_draws for one in self.revealed),
            Defect.NO_DENOMINATOR: hides and any(None in one.divisors for one in own),
        }
        found = tuple(defect for defect, is_so in applies.items() if is_so)
        return replace(self, doubts=doubts), found

    def _revealing(self, hides: bool, secret: bool) -> list[Revealed]:
        """Return the values that may reveal a secret number: of units, or of drawn units."""
        own = [one for one in self.revealed if hides or (secret and one.secret)]
        if self.noiseless is None:
            return own
        # Rounds without noise are judged separately, whatever their zero noise reveals.
        return [replace(one, noises=one.noises - {0.0}) for one in own]

    def priced(self, facts: Facts) -> tuple[RunEvidence, tuple[Defect, ...]]:
        """Return the evidence under these facts if it can be priced, and its defects.

        Raises:
            UnsupportedCombination: if another mechanism ran than the priced one.
        """
        evidence, wrong = self.under(facts)
        # A bound for a mechanism that did not run would have no meaning.
        if evidence.doubts:
            text = "; ".join(evidence.doubts)
            raise UnsupportedCombination(f"the recorded run differs from the accounted one: {text}")
        return evidence, wrong

    def granted(self, facts: Facts) -> dict[str, str]:
        """Return the default assumptions about the rounds, by name; these are no defects."""
        hides, secret = _hidden(facts)
        silent = any(one.secret and None in one.divisors for one in self.revealed)
        return {"denominator": PUBLIC_DENOMINATOR} if silent and secret and not hides else {}

    def loss(self, facts: Facts) -> PrivacyLoss:
        """Return the loss of the run, with a witness from the certain part.

        Raises:
            UnsupportedCombination: if no theorem covers the run, or rounds had no noise.
        """
        if self.noiseless is not None:
            raise UnsupportedCombination(f"{self.noiseless.description}, so no accountant applies")
        if self.run is None:
            return PrivacyLoss(IDENTITY, facts, theorems=("no release",))
        loss = self.run.privacy_loss(facts.adjacency, facts.observer).under(facts)
        return replace(loss, witness=_witness(self.certain, self.run, loss))

    def single_uploads(self, facts: Facts) -> PrivacyLoss | None:
        """Return the loss for a server that sees each upload; None if uploads are not summed.

        Raises:
            UnsupportedCombination: if no theorem covers it.
        """
        alone = None if self.run is None else single_uploads(self.run)
        if alone is None:
            return None
        # An aborted round released no sum, but the server saw its uploads.
        if self.aborted:
            raise UnsupportedCombination(
                f"the server also saw the uploads of {self.aborted} aborted round(s)"
            )
        loss = alone.privacy_loss(facts.adjacency, Observer.SERVER)
        certain = None if self.certain is None else single_uploads(self.certain)
        return replace(loss, witness=_witness(certain, alone, loss))


def _against(ledger: Ledger | Joint, rounds: Sequence[LedgerRound]) -> tuple[str, ...]:
    """Return contradictions in a record; for several ledgers, in each one and in all together."""
    if isinstance(ledger, Ledger):
        # This doubt comes first, because it is the run's own statement.
        return ((VOIDED,) * bool(ledger.voids)) + doubts(rounds) + odd_masks(ledger, rounds)
    apart = (text for one in ledger.ledgers for text in _against(one, one.alike))
    return tuple(dict.fromkeys([*apart, *doubts(rounds)]))


def priced_evidence(ledger: Ledger, facts: Facts) -> tuple[RunEvidence, tuple[str, ...]]:
    """Return the priced evidence of a ledger, and the conditions of its numbers.

    Raises:
        LedgerError: if a round was released with so little noise that no epsilon holds.
        UnsupportedCombination: see ``RunEvidence.of`` and ``priced``.
    """
    evidence, wrong = RunEvidence.of(ledger).priced(facts)
    # One round without noise voids the rest, so no epsilon exists.
    if evidence.noiseless is not None:
        raise LedgerError(f"{ledger.path} has no epsilon: {spent(ledger.alike).noiseless}")
    seed = (Defect.FIXED_SEED,) if ledger.reproducible else ()
    return evidence, qualifiers([*wrong, *seed])


def _hidden(facts: Facts) -> tuple[bool, bool]:
    """Return whether the number of units is secret, and whether the cohort sizes are."""
    return facts.adjacency is Adjacency.ADD_REMOVE, facts.observer is not Observer.SERVER


def _witness(certain: Mechanism | None, run: Mechanism, loss: PrivacyLoss) -> Witness | None:
    """Return the witness of the certain part."""
    if certain is None:
        return None
    # For an equal run, the witness exists already and needs no second account.
    if certain == run:
        return loss.witness
    return certain.privacy_loss(loss.facts.adjacency, loss.facts.observer).witness


def revealed(rounds: Iterable[LedgerRound]) -> tuple[Revealed, ...]:
    """Return the values of rounds that may reveal the cohort sizes, for each scheme."""
    by_draw: dict[Hashable, list[LedgerRound]] = {}
    for r in rounds:
        # All rows belong to one run, as other rounds belong to one kind of draw.
        by_draw.setdefault(draws_of(whole_run(r.mechanism)), []).append(r)
    return tuple(_revealed_by(held) for held in by_draw.values())


def _revealed_by(held: Sequence[LedgerRound]) -> Revealed:
    # Only released sums have a divisor.
    released = [(r, r.done) for r in held if r.done is not None and r.spent]
    return Revealed(
        secret=secret_sizes(held[0].mechanism),
        rate=rate_of(held[0].mechanism),
        divisors=frozenset(done.denominator for _, done in released),
        noises=frozenset(_share_of_noise(r, done.noise_std) for r, done in released),
        aborted=sum(r.times for r in held if not r.spent),
    )


def _share_of_noise(r: LedgerRound, used_std: float) -> float:
    share = share_of_noise(r.mechanism, r.clip_norm, r.noise_std, used_std)
    return 1.0 if abs(share - 1.0) <= ROUNDING else share
