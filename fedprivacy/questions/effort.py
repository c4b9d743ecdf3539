"""How to compute an answer: accountant, precision and time limit.

``accountant``, ``tolerance`` and ``deadline`` mean the same in every question: ``epsilon``,
``delta``, ``profile``, ``calibrate``, ``tradeoff_curve``, ``attack_risk``, ``pareto``, ``account``
and ``audit``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..accountants import BY_NAME, Accountant
from ..accountants.pld import delta_interval
from ..errors import listed, positive, refuse, validate_fields
from ..loss import Curve, clock
from ..privacy_loss import PrivacyLoss
from ..relations import Adjacency, Facts, Observer

_LEAST = 1e-9
"""Seconds left after the deadline: at least one attempt is always made."""

_ANY = Facts(None, Adjacency.REPLACE_ONE, Observer.AGGREGATE)
"""Placeholder facts for a curve without a run. No arithmetic reads them."""


@dataclass(frozen=True)
class Effort:
    """Settings for computing an answer. The clock starts when the object is made.

    Args:
        accountant: "pld" (an interval); "game" (the same, but sharper and slower for rounds of
            ``FixedSize`` under replace_one); "rdp" or "advanced" (only upper ends).
        tolerance: wanted width of an interval, above 0. It is absolute for an epsilon and relative
            for a probability. "pld" refines until the width is met, or the answer gives the reason.
        deadline: seconds, above 0, for the whole answer. After that no finer computation starts.
            The answer is then the best one known, certified but wider, and it says so. None: no
            limit.

    Raises:
        ParameterError: an unknown name, or a number out of its range.
    """

    accountant: str = "pld"
    tolerance: float = 1e-3
    deadline: float | None = None
    begun: float = field(default_factory=lambda: clock.now(), init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.accountant, str) or self.accountant not in BY_NAME:
            refuse("accountant", self.accountant, f"be one of {listed(BY_NAME)}")
        validate_fields(self, positive, "tolerance")
        validate_fields(self, positive, "deadline", or_none=True)

    @property
    def left(self) -> float | None:
        """Seconds left, always above 0; None without a deadline."""
        if self.deadline is None:
            return None
        # Never 0, because accountants accept only deadlines above 0.
        return max(self.begun + self.deadline - clock.now(), _LEAST)

    @property
    def late(self) -> bool:
        """Whether the deadline has passed."""
        # ``left`` is clipped, so the smallest value means that no time is left.
        return self.left == _LEAST

    def account(
        self,
        loss: PrivacyLoss,
        *,
        accountant: str | None = None,
        tolerance: float | None = None,
    ) -> Accountant:
        """Return a fresh accountant with the loss composed and the time that is left.

        Args:
            loss: the privacy loss to account.
            accountant: overrides the accountant.
            tolerance: overrides the tolerance.
        """
        return BY_NAME[accountant or self.accountant](
            tolerance=self.tolerance if tolerance is None else tolerance,
            deadline=self.left,
        ).compose(loss)

    def delta_ends(self, curve: Curve, epsilon: float, tolerance: float) -> tuple[float, float]:
        """Return certified ends of delta at an epsilon for one orientation of a curve.

        An accountant with only upper ends takes the worse orientation.
        """
        # "pld" gives an interval for a single orientation. Other accountants compose both.
        if self.accountant == "pld":
            with clock.time_limit(self.left):
                return delta_interval(curve, epsilon, tolerance)
        bound = self.account(PrivacyLoss(curve, _ANY)).delta(epsilon)
        # Without lower ends, 0 is the certified lower end.
        return 0.0, bound.upper
