"""dp-accounting, PLDAccountant."""

from importlib.metadata import version

import dp_accounting
from common import built, event_of, from_dp_accounting
from dp_accounting.pld import PLDAccountant

NAME, VERSION, ANSWERS = "dp-accounting PLD", version("dp-accounting"), "upper"
REFUSES = (dp_accounting.UnsupportedEventError,)
epsilon, delta, resumed, noise_multiplier = from_dp_accounting(PLDAccountant)


def advantage(case):
    relation = dp_accounting.NeighboringRelation[case["relation"]]
    return PLDAccountant(relation).compose(built(event_of(case))).get_delta(0.0)
