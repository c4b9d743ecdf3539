"""A whole run of Fed-PLT as a mechanism, for observers of the uploads and of the models."""

import math

import pytest

import fedprivacy as fp
from fedprivacy.errors import ParameterError, UnsupportedCombination
from fedprivacy.theory.splitting_privacy import PrivateSplitting, attained

SETTING = {
    "step_size": 1 / 11,
    "noise_scale": 1.0,
    "sensitivity": 1.0,
    "strong_convexity": 1.0,
    "smoothness": 1.0,
    "penalty": 10.0,
    "local_steps": 60,
    "rounds": 20,
}
ASK = {"delta": 1e-5, "adjacency": "replace_one"}


def run(**changed):
    return fp.SplittingRun(**{**SETTING, **changed})


def gaussian_epsilon(mu):
    return fp.epsilon(fp.Gaussian(noise_multiplier=1.0 / mu), delta=1e-5, adjacency="zero_out")


@pytest.mark.parametrize("rounds", [1, 2, 5, 20, 100])
@pytest.mark.parametrize("smoothness", [1.0, 1.1, 1.5])
def test_final_models_lie_between_an_attained_pair_and_the_rounds(rounds, smoothness):
    given = run(rounds=rounds, smoothness=smoothness, step_size=0.08)
    final = fp.epsilon(given, observer="final", **ASK)
    fields = {name: getattr(given, name) for name in SETTING}
    shown = attained(PrivateSplitting(**fields), "final", 1e-12)
    assert gaussian_epsilon(shown.mu).lower <= final.upper
    assert final.upper <= fp.epsilon(given, observer="aggregate", **ASK).upper
    assert final.lower == pytest.approx(gaussian_epsilon(shown.mu).lower, rel=1e-14)
    assert final.lower > 0.0
    assert final.observer is fp.Observer.FINAL and "one agent" in final.witness


def test_final_models_stop_paying_while_uploads_go_on():
    few, many = (fp.epsilon(run(rounds=k), observer="final", **ASK) for k in (100, 1000))
    assert many.upper <= few.upper * 1.001 < 9.0
    assert any("without z" in each for each in many.assumptions)
    assert fp.epsilon(run(rounds=1000), **ASK).lower > 500.0


def test_two_runs_in_sequence_are_not_a_final_view():
    twice = fp.epsilon(run() * 2, observer="final", **ASK)
    assert twice.upper >= fp.epsilon(run(rounds=40), observer="server", **ASK).upper * 0.999


def test_it_is_written_to_a_ledger_and_read(tmp_path):
    with fp.Ledger.create(tmp_path / "a.ledger", unit="record", adjacency="replace_one") as ledger:
        # Without clipping: the sensitivity of the gradient, and the noise on it.
        (std,) = run().noise_ratios(1.0)
        number = ledger.intent(run(), clip_norm=1.0, noise_std=std)
        ledger.done(number, cohort=1, arrived=1, refused=0, noise_std=std)
        ledger.close()
    again = fp.account(tmp_path / "a.ledger", delta=1e-5)
    assert again.upper == fp.epsilon(run(), **ASK).upper


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"step_size": 2 / 1.1}, "step_size must be below"),
        ({"strong_convexity": 0.0}, "strong_convexity must be"),
        ({"strong_convexity": 2.0}, "strong_convexity must be at most"),
        ({"rounds": 0}, "rounds must be"),
        ({"noise_scale": math.nan}, "noise_scale must be"),
    ],
)
def test_what_has_no_proof_is_refused(changed, told):
    with pytest.raises(ParameterError, match=told):
        run(**changed)


@pytest.mark.parametrize("adjacency", ["add_remove", "zero_out"])
def test_other_adjacencies_are_refused(adjacency):
    with pytest.raises(UnsupportedCombination, match="replace_one"):
        fp.epsilon(run(), delta=1e-5, adjacency=adjacency, observer="final")
    with pytest.raises(UnsupportedCombination, match="already sampled"):
        run().sampled(fp.Poisson(0.1))
