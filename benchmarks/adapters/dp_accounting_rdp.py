"""dp-accounting, RdpAccountant."""

from importlib.metadata import version

import dp_accounting
from common import from_dp_accounting
from dp_accounting.rdp import RdpAccountant

NAME, VERSION, ANSWERS = "dp-accounting RDP", version("dp-accounting"), "upper"
REFUSES = (dp_accounting.UnsupportedEventError,)
epsilon, delta, resumed, noise_multiplier = from_dp_accounting(
    lambda relation: RdpAccountant(neighboring_relation=relation)
)
