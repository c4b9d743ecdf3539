"""Tests of ``fedprivacy.runs.pictures``."""

import numpy as np

import fedprivacy as fp
from fedprivacy.audit.plots import between_rates
from fedprivacy.runs.pictures import draw_tradeoff
from tests.audit.test_reporting import LONG

PLAIN = {"adjacency": "zero_out"}


def test_a_picture_of_a_curve_takes_rates_in_any_order(tmp_path):
    asked = fp.tradeoff_curve(LONG, fpr=[0.5, 0.01, 0.1], **PLAIN)
    drawn = between_rates(asked, "attained")
    assert (np.diff(drawn.x) > 0).all() and (np.diff(drawn.lower) <= 0).all()
    assert drawn.lower[drawn.x == 0.1][0] == asked.worst.lower[2]
    one = fp.tradeoff_curve(LONG, fpr=[0.1], **PLAIN)
    # A single requested rate is a marker.
    assert draw_tradeoff(one, tmp_path / "a.svg").read_text().count("<use ") >= 2
