"""Tests of ``fedprivacy.audit.options``."""

import pytest

import fedprivacy as fp
from fedprivacy.audit.options import facts_of, judge_files, several_of
from fedprivacy.errors import ParameterError
from tests.common import ROOT

pytestmark = pytest.mark.usefixtures("narrowest")

NOTHING = dict.fromkeys(
    (
        *("claim", "epsilon", "delta", "adjacency", "observer", "sampling", "population", "cohort"),
        *("sampling_probability", "rounds_per_epoch", "noise_multiplier", "rounds", "unit"),
        *("steps_per_round", "missing_shares", "denominator", "trials", "auditor"),
    )
)
"""Every option, none of them given."""
RUN = NOTHING | {"noise_multiplier": 1.4, "rounds": 180, "adjacency": "add_remove", "auditor": ""}


def test_parameters_are_judged_as_the_mechanism_that_they_describe():
    said = RUN | {"sampling": "poisson", "sampling_probability": 0.01, "claim": "1,1e-5"}
    run = fp.Gaussian(noise_multiplier=1.4).sampled(fp.Poisson(0.01)) * 180
    found, same = judge_files((), said), fp.audit(run, claim=(1, 1e-5), adjacency="add_remove")
    assert (found.bound.upper, found.verdict) == (same.bound.upper, same.verdict)


def test_a_cohort_brings_its_population():
    facts = facts_of(RUN | {"sampling": "fixed", "cohort": 10, "population": 100})
    assert facts["sampling"] == fp.FixedSize(10, population=100) and facts["population"] is None


@pytest.mark.parametrize(
    ("said", "rule"),
    [
        ({"claim": "1,1e-5", "epsilon": 1.0}, "--claim must be given without"),
        ({"claim": "one"}, "--claim must be two numbers"),
        ({"sampling": "poisson", "cohort": 3}, "--cohort must be given with --sampling fixed"),
        ({"sampling": "fixed", "cohort": 3}, "--population must be given with --cohort"),
    ],
)
def test_options_that_contradict_each_other_are_refused(said, rule):
    with pytest.raises(ParameterError, match=rule):
        facts_of(RUN | said)


def test_a_file_of_several_runs_has_an_audit_for_each():
    path = ROOT / "tests/corpus/settings.csv"
    rows = several_of((path,), NOTHING | {"auditor": ""}, apart=True)
    assert [row.name for row in rows] == ["row 1 (low)", "row 2 (high)"]
