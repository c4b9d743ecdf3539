"""Tests of ``fedprivacy.audit.misreadings``."""

from fedprivacy.audit.diagnose import failing_assumptions
from fedprivacy.audit.misreadings import Audited, divided, readings
from fedprivacy.relations import Adjacency, Facts, Observer
from tests.audit.test_diagnose import poisson, question

DELTA = 1e-5
NAMES = ("pld", "rdp", "advanced")


def test_a_claim_of_many_digits_is_not_matched_from_afar():
    run = poisson(1.1, 0.02, 240)
    limit = next(
        one
        for one in readings(Audited(run, Facts(None, *FACTS), DELTA, 1.0))
        if "limit" in one.what
    )
    (value, by) = limit.finite()[0]
    assert by == "mu-GDP"
    near, far = value * (1 + 1e-8), value * (1 + 1e-4)
    assert "central limit theorem" in str(failing_assumptions(question(run, near)))
    assert "central limit theorem" not in str(failing_assumptions(question(run, far)))


FACTS = (Adjacency.ADD_REMOVE, Observer.AGGREGATE)


def test_divisors_divide():
    audited = Audited(poisson(1.0, 0.1, 60), Facts(None, *FACTS), DELTA, 1.0)
    found = [one.what for one in divided(audited)]
    assert len(found) == len({2, 3, 4, 5, 6, 10, 12, 15, 20})
    assert all("counted as one" in what for what in found)
