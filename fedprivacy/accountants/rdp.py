"""Renyi differential privacy: moments added up, converted at the best order."""

from __future__ import annotations

import math
from typing import ClassVar

from ..loss import orientations
from ..loss.strategies import renyi
from ..privacy_loss import PrivacyLoss
from .base import Accountant, Answer


class RdpAccountant(Accountant):
    """Adds Renyi divergences and converts them by Canonne, Kamath and Steinke (2020), Prop. 12.

    See ``fedprivacy.loss.strategies.renyi``. The worse orientation counts.
    """

    name: ClassVar[str] = "rdp"

    def _epsilon(self, loss: PrivacyLoss, delta: float) -> Answer:
        value, order = max(renyi.epsilon(one, delta) for one in orientations(loss.curve))
        return Answer(value, method=_method(order))

    def _delta(self, loss: PrivacyLoss, epsilon: float) -> Answer:
        value, order = max(renyi.delta(one, epsilon) for one in orientations(loss.curve))
        return Answer(value, method=_method(order))


def _method(order: float) -> str:
    # Without a finite divergence there is no order.
    return "RDP" if math.isnan(order) else f"RDP, order {order:.5g}"
