"""Trade-off curves and attack risk: refusals, and the form of the answers."""

import dataclasses
import json
import math

import numpy as np
import pytest

import fedprivacy as fp
from fedprivacy.cli import main

RUN = fp.Gaussian(noise_multiplier=1.0).sampled(fp.Poisson(0.1))
ASK = {"adjacency": "add_remove"}
QUESTIONS = [fp.tradeoff_curve, fp.attack_risk]


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize(
    "value", [-0.1, 1.1, math.nan, math.inf, "0.1", b"1", True, [[0.1]], [], [0.1, 2.0], [None]]
)
def test_a_false_positive_rate_lies_between_0_and_1(question, value):
    with pytest.raises(fp.ParameterError, match="fpr must"):
        question(RUN, fpr=value, **ASK)


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("value", [0, -1.0, math.nan, math.inf, "1", None, True])
def test_a_tolerance_is_above_0(question, value):
    with pytest.raises(fp.ParameterError, match="tolerance must"):
        question(RUN, tolerance=value, **ASK)


@pytest.mark.parametrize("value", [0, 1, -1e-9, math.nan, "1", None, True])
def test_slack_and_prior_lie_between_0_and_1(value):
    with pytest.raises(fp.ParameterError, match="slack must"):
        fp.attack_risk(RUN, slack=value, **ASK)
    risk = fp.attack_risk(fp.Gaussian(noise_multiplier=1.0), **ASK)
    with pytest.raises(fp.ParameterError, match="prior must"):
        risk.positive_predictive_value(value)


@pytest.mark.parametrize("question", QUESTIONS)
def test_what_has_no_privacy_loss_or_no_theorem(question):
    with pytest.raises(fp.ParameterError, match="run must"):
        question(3.0, **ASK)
    with pytest.raises(TypeError, match="adjacency"):
        question(RUN)
    with pytest.raises(fp.ParameterError, match="adjacency must"):
        question(RUN, adjacency="sideways")
    with pytest.raises(fp.UnsupportedCombination, match="these are covered"):
        question(RUN, observer="server", **ASK)


@pytest.mark.parametrize("question", QUESTIONS)
def test_answers_keep_the_rates_order_and_cannot_be_changed(question):
    found = question(RUN, fpr=np.array([0.5, 0.0, 0.1]), **ASK)
    assert found.fpr.tolist() == [0.5, 0.0, 0.1]
    assert found.present_to_absent.upper.shape == (3,)
    with pytest.raises(ValueError, match="read-only"):
        found.present_to_absent.upper[0] = 0.0
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.fpr = 0.0


def test_the_default_rates_and_one_rate():
    curve = fp.tradeoff_curve(fp.Gaussian(noise_multiplier=1.0), **ASK)
    assert curve.fpr[0] == 0.0 and curve.fpr[-1] == 1.0 and len(curve.fpr) == 38
    assert np.all(np.diff(curve.fpr) > 0)
    assert curve.worst.lower[-1] == 0.0 == curve.worst.upper[-1]
    risk = fp.attack_risk(fp.Gaussian(noise_multiplier=1.0), fpr=0.001, **ASK)
    assert risk.fpr.tolist() == [0.001] and len(risk.worse) == 1


@pytest.mark.parametrize("question", QUESTIONS)
def test_answers_are_plain_json_and_carry_their_facts(question):
    step = fp.Gaussian(noise_multiplier=1.0, unit="client").sampled(fp.Poisson(0.1))
    found = question(step, fpr=[0.0, 0.1], adjacency="zero_out")
    data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert data["unit"] == "client" and data["adjacency"] == "zero_out"
    assert data["theorems"] and data["assumptions"] and data["witness"]
    assert data["fpr"] == [0.0, 0.1]
    assert set(data["present_to_absent"]) == {"lower", "upper", "attained"}


def test_where_nothing_is_attained_it_is_guessing():
    run = fp.Gaussian(noise_multiplier=1.0).sampled(fp.Poisson(0.1))
    curve = fp.tradeoff_curve(run, fpr=[0.1, 0.4], observer="final", **ASK)
    assert curve.witness is None
    assert curve.worst.attained.tolist() == pytest.approx([0.9, 0.6])
    assert np.all(curve.worst.upper < curve.worst.attained)
    risk = fp.attack_risk(run, fpr=[0.1, 0.4], observer="final", **ASK)
    assert risk.tpr.attained.tolist() == [0.1, 0.4]
    assert risk.advantage.attained == risk.mu.attained == risk.mu_within.attained == 0.0


def test_where_less_is_attained_than_dominates():
    run = fp.Gaussian(noise_multiplier=1.0).sampled(fp.FixedSize(5, population=25)) * 3
    risk = fp.attack_risk(run, fpr=0.1, adjacency="replace_one", slack=1e-3, tolerance=0.05)
    assert np.all(risk.tpr.attained < risk.tpr.lower)
    assert np.all(risk.tpr.attained > risk.fpr)
    assert 0 < risk.advantage.attained <= risk.advantage.lower


def test_the_worse_orientation_is_named():
    run = fp.Gaussian(noise_multiplier=1.0).sampled(fp.Poisson(0.3)) * 2
    risk = fp.attack_risk(run, fpr=[0.01, 0.8], tolerance=0.004, slack=1e-3, **ASK)
    first, second = risk.present_to_absent, risk.absent_to_present
    assert first.lower[0] > second.upper[0] and second.lower[1] > first.upper[1]
    assert risk.worse == ("present_to_absent", "absent_to_present")
    assert risk.tpr.upper.tolist() == [first.upper[0], second.upper[1]]


@pytest.mark.parametrize("multiplier", [1e-3, 0.02, 1e6])
def test_hopeless_and_perfect_runs_are_answered(multiplier):
    run = fp.Gaussian(noise_multiplier=multiplier)
    curve = fp.tradeoff_curve(run, fpr=[0.0, 0.01, 0.5, 1.0], **ASK)
    assert np.all(np.isfinite(curve.worst)) and np.all(curve.worst.lower <= curve.worst.upper)
    assert curve.worst.upper[0] == 1.0
    risk = fp.attack_risk(run, **ASK)
    assert risk.mu.lower <= 1 / multiplier <= risk.mu.upper
    assert risk.mu_within.upper <= risk.mu.upper


def test_a_unit_that_hardly_takes_part():
    run = fp.Gaussian(noise_multiplier=1.0).sampled(fp.Poisson(1e-12)) * 2
    risk = fp.attack_risk(run, fpr=[0.0, 0.01], **ASK)
    assert risk.tpr.upper[1] <= 0.01 + 1e-9 and risk.mu_within.upper <= 1e-3
    assert risk.mu.upper >= 1.0


def explained(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        main(["explain", "--noise-multiplier", "1.4", "--delta", "1e-5", *arguments])
    assert stop.value.code == 0
    return capsys.readouterr().out


def test_explain_says_what_protects_a_run(capsys):
    words = ["--sampling-probability", "0.1", "--adjacency", "add_remove"]
    plain, out = explained(capsys, *words), explained(capsys, *words, "--theory")
    assert "times as probable, plus delta" in plain and "pld: at most" in plain
    assert not [term for term in ("T2", "mu-GDP", "S(G", "rdp") if term in plain]
    for words in (
        "row of the reference table: Poisson, aggregate, add_remove",
        "S(G(1/z), q)",
        "rests on: Poisson, add_remove: T2",
        "assumes: participants are drawn independently",
        "worst data, which attain the lower end: one unit sends C u or 0",
        "(attained by the same pair)",
        "pld: at most",
        "rdp: at most",
        "advanced: at most",
        "server: Poisson has no theorem",
        "at 1 % false positives: at most",
        "at 0.1 % false positives: at most",
        "claims that the unit is present",
        "mu = 0.7143",
    ):
        assert words in out


def test_explain_as_json(capsys):
    arguments = ["--cohort", "5", "--population", "50", "--adjacency", "replace_one", "--json"]
    data = json.loads(explained(capsys, *arguments, "--observer", "final"))
    assert data["row"]["scheme"] == "FixedSize" and data["row"]["theorem"] == "T1"
    assert data["attained_by"] is None
    assert set(data["epsilon"]) == {"aggregate", "server"}
    assert set(data["epsilon"]["server"]) == {"pld", "rdp", "advanced"}
    assert data["unsupported"] == {}
    assert data["risk"]["fpr"] == [0.01, 0.001] and data["risk"]["observer"] == "final"


# ---- units of several kinds

KINDS = (
    fp.Gaussian(noise_multiplier=0.5, unit="record").sampled(fp.Poisson(0.05)),
    fp.Gaussian(noise_multiplier=2.0, unit="record"),
)
AT = [0.0, 1e-4, 0.01, 0.2, 1.0]


@pytest.mark.parametrize("adjacency", ["zero_out", "replace_one"])
@pytest.mark.parametrize("rounds", [1, 2])
def test_of_several_kinds_the_worst_counts_at_each_rate(adjacency, rounds):
    """A unit is of one kind, so that an attacker on a known kind is as good as it gets."""
    several = fp.Parallel(KINDS) * rounds
    asked = {"adjacency": adjacency, "fpr": AT, "tolerance": 0.05}
    found = fp.attack_risk(several, **asked)
    each = [fp.attack_risk(kind * rounds, **asked) for kind in KINDS]
    for name in ("present_to_absent", "absent_to_present", "tpr"):
        for end in ("lower", "upper", "attained"):
            alone = [getattr(getattr(one, name), end) for one in each]
            whole = getattr(getattr(found, name), end)
            np.testing.assert_allclose(whole, np.max(alone, axis=0), rtol=1e-6, atol=1e-12)
    for name in ("advantage", "mu", "mu_within"):
        for end in ("lower", "upper", "attained"):
            alone = [getattr(getattr(one, name), end) for one in each]
            assert getattr(getattr(found, name), end) == pytest.approx(max(alone), rel=1e-6)
    # No one kind is the worst everywhere, or the test would show little.
    best = np.argmax([one.tpr.upper for one in each], axis=0)
    assert adjacency == "replace_one" or set(best[1:-1]) == {0, 1}
    assert found.theorems and "worst kind" in str(found.theorems)


@pytest.mark.parametrize("adjacency", ["zero_out", "replace_one"])
def test_the_curve_of_several_kinds_lies_below_each_kinds(adjacency):
    asked = {"adjacency": adjacency, "fpr": np.linspace(0, 1, 21), "tolerance": 0.05}
    several = fp.Parallel(KINDS) * 2
    found = fp.tradeoff_curve(several, **asked)
    each = [fp.tradeoff_curve(kind * 2, **asked) for kind in KINDS]
    for name in ("lower", "upper", "attained"):
        alone = np.min([getattr(one.worst, name) for one in each], axis=0)
        np.testing.assert_allclose(getattr(found.worst, name), alone, rtol=1e-6, atol=1e-9)
    # One convex, symmetric function for all: on or below each kind's, and no less than need be.
    assert all(np.all(found.f_dp <= one.f_dp + 1e-12) for one in each)
    assert np.all(found.f_dp <= found.worst.lower + 1e-12)
    assert np.all(np.diff(found.f_dp, 2) >= -1e-9)
    inside = np.interp(found.f_dp, found.fpr, found.f_dp)
    assert np.all(inside >= found.fpr - 0.05)


def test_kinds_that_are_alike_are_one():
    two = fp.Parallel((KINDS[0], KINDS[0]))
    one = fp.attack_risk(KINDS[0], adjacency="zero_out")
    assert fp.attack_risk(two, adjacency="zero_out").to_dict()["tpr"] == one.to_dict()["tpr"]


def test_an_accountant_without_lower_ends_answers_for_several_kinds():
    several = fp.Parallel([fp.Gaussian(noise_multiplier=z) for z in (2.0, 4.0)])
    asked = {"adjacency": "zero_out", "fpr": [0.01]}
    found = fp.attack_risk(several, accountant="rdp", **asked)
    sharp = fp.attack_risk(several, **asked)
    assert found.tpr.upper[0] >= sharp.tpr.upper[0] and "gives only upper ends" in found.reason
