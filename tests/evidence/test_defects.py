"""Tests of ``fedprivacy.evidence.defects``."""

import pytest

import fedprivacy as fp
from fedprivacy.evidence.defects import EFFECTS, Defect, judged_with, table, worth


@pytest.mark.parametrize("defect", Defect)
@pytest.mark.parametrize("verdict", fp.Verdict)
def test_defects_never_make_a_verdict_surer(defect, verdict):
    surer = {"CANNOT BE CERTIFIED": 0, "HOLDS": 1, "FAILS": 1}
    after, changed = judged_with(verdict, [defect])
    assert after == verdict or (surer[after] < surer[verdict] and changed)
    assert str(defect) in table() and EFFECTS[defect].why in table()


def test_the_worst_of_several_defects_counts():
    both = [Defect.IMPORTED, Defect.OPEN, Defect.OTHER_COHORTS]
    assert judged_with(fp.Verdict.FAILS, both)[0] == "CANNOT BE CERTIFIED"
    assert judged_with(fp.Verdict.FAILS, reversed(both))[0] == "CANNOT BE CERTIFIED"
    assert worth(both) == worth(both[::-1]) == "void"
