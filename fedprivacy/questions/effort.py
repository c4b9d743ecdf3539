"""How an answer is sought: by which accountant, how closely, for how long.

``accountant``, ``tolerance`` and ``deadline`` mean the same in every question: ``epsilon``,
``delta``, ``profile``, ``calibrate``, ``tradeoff_curve``, ``attack_risk``, ``pareto``, ``account``
and ``audit``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..accountants import BY_NAME, Accountant
from ..accountants.pld import delta_interval
from ..errors import listed, positive, refuse, settle
from ..loss import Curve, clock
from ..privacy_loss import PrivacyLoss
from ..relations import Adjacency, Facts, Observer

_LEAST = 1e-9
"""Seconds that are left after the deadline: a first attempt is always made."""

_ANY = Facts(None, Adjacency.REPLACE_ONE, Observer.AGGREGATE)
"""Facts of a curve that is asked about by itself; no arithmetic reads them."""


@dataclass(frozen=True)
class Effort:
    """What a question is told of how to answer; the clock starts when it is made.

    Args:
        accountant: "pld" (an interval); "game", the same but sharper and slower for rounds of
            ``FixedSize`` under replace_one; "rdp" or "advanced" (upper ends only).
        tolerance: wanted width of an interval, above 0: absolute for an epsilon, relative for a
            probability. "pld" refines until it is met, or the answer says why not.
        deadline: seconds, above 0, after which nothing finer is begun, for the whole answer; what
            is known by then is the answer, certified but wider, and it says so. None: no limit.

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
        settle(self, positive, "tolerance")
        settle(self, positive, "deadline", or_none=True)

    @property
    def left(self) -> float | None:
        """Seconds that are left, never quite 0; None without a deadline."""
        if self.deadline is None:
            return None
        # Never 0, since accountants take only deadlines above it.
        return max(self.begun + self.deadline - clock.now(), _LEAST)

    @property
    def late(self) -> bool:
        """Whether the deadline has passed."""
        # ``left`` is clipped, so that the least value means that nothing is left.
        return self.left == _LEAST

    def account(
        self,
        loss: PrivacyLoss,
        *,
        accountant: str | None = None,
        tolerance: float | None = None,
    ) -> Accountant:
        """Return a fresh accountant with the loss composed, and with the time that is left.

        Args:
            loss: what is asked about.
            accountant: another one.
            tolerance: another one.
        """
        return BY_NAME[accountant or self.accountant](
            tolerance=self.tolerance if tolerance is None else tolerance,
            deadline=self.left,
        ).compose(loss)

    def delta_ends(self, curve: Curve, epsilon: float, tolerance: float) -> tuple[float, float]:
        """Return certified ends of delta at an epsilon for one orientation of a curve.

        An accountant that has upper ends only takes the worse orientation.
        """
        # One orientation alone has an interval; other accountants compose both.
        if self.accountant == "pld":
            with clock.time_limit(self.left):
                return delta_interval(curve, epsilon, tolerance)
        bound = self.account(PrivacyLoss(curve, _ANY)).delta(epsilon)
        # Without lower ends 0 is the certified one.
        return 0.0, bound.upper
