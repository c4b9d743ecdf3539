"""Questions of ``accounting.py`` for single rows, each with the ways that answer it, by name."""

from dataclasses import dataclass

import questions
from pool import Way
from questions import Question, epsilon, part

OURS = Way("fedprivacy", "pld")
OUR_RDP = Way("fedprivacy", "rdp")
DP_PLD = [Way("dp-accounting", "PLD", label="default"), Way("dp-accounting", "PLD", 1e-3)]
RDP = [Way("dp-accounting", "RDP"), Way("opacus", "RDP"), Way("autodp", "RDP")]
PRV = [Way("prv-accountant", "PRV", label="default")]
RISKCAL = Way("riskcal", "PLD", label="default")
ALL_LAWS = [OURS, *DP_PLD, *RDP, *PRV]
CALIBRATE = [*ALL_LAWS, Way("opacus", "PRV"), Way("riskcal", "PLD")]


@dataclass(frozen=True)
class Row:
    """A question and the ways that answer it, ours first."""

    question: Question
    ways: list[Way]
    limit: float = 1.0
    """Factor on the time limit of other calls."""


def _rows() -> dict[str, Row]:
    laplace = part(10.0, 100, None, "laplace")
    sampled_laplace = part(0.5, 1_000, ["poisson", 0.1], "laplace")
    pure = part(0.00316, 100_000, None, "guarantee")
    rows = {
        "profile": Row(questions.profile(0.01, 0.8, 1_000), [OURS, *DP_PLD, *PRV]),
        "profile-1000000": Row(questions.profile(0.01, 0.8, 1_000_000), [OURS, *DP_PLD]),
        "laplace": Row(epsilon([laplace]), ALL_LAWS),
        "sampled-laplace": Row(epsilon([sampled_laplace]), ALL_LAWS),
        "pure": Row(epsilon([pure]), ALL_LAWS),
        "rdp-100": Row(questions.mixed(100), [OUR_RDP, *RDP], 2.0),
        "rdp-1000": Row(questions.mixed(1_000), [OUR_RDP, *RDP], 2.0),
        "rdp-mnist": Row(questions.poisson(256 / 60_000, 1.1, 14_063), [OUR_RDP, *RDP]),
        "rdp-gaussian": Row(epsilon([part(50.0, 10_000)]), [OUR_RDP, *RDP]),
        "different-100": Row(questions.different(100), [OURS, OUR_RDP, *DP_PLD, *RDP, *PRV]),
        "different-10000": Row(questions.different(10_000), [OURS, OUR_RDP], 4.0),
    }
    for name in questions.SCHEMES:
        rows[f"calibrate-{name}"] = Row(questions.scheme_calibration(name), CALIBRATE)
    return rows


ROWS = _rows()
"""name -> row."""
