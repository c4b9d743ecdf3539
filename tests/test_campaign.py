"""The campaign at a fixed seed finds wrong ends of every kind."""

import gc
import sys
import time
from dataclasses import replace

import pytest

from tests.common import ROOT

pytest.importorskip("mpmath")
sys.path.insert(0, str(ROOT / "benchmarks"))

import campaign
import campaign_checks
import campaign_settings
import campaign_tiny
import campaign_truth as truth
import campaign_worlds as worlds
from campaign_settings import Node, Setting

import fedprivacy as fp
from fedprivacy.loss.strategies import inversion

SEED = 2026
PINNED = [0, 1, 5, 7, 8, 9, 11, 14, 17, 19, 23, 24, 27, 32, 38, 39, 118, 169, 217]


def asked(run, adjacency="add_remove", observer="aggregate", delta=1e-5):
    return Setting("a test", run, adjacency, observer, delta, 1.0, 1e-3)


def sampled(scheme, times=1, **step):
    one = Node("sampled", {"scheme": scheme}, (Node("Gaussian", step),))
    return Node("repeat", {"times": times}, (one,)) if times > 1 else one


POISSON = sampled(("Poisson", {"probability": 0.05}), 100, noise_multiplier=1.0)


def falsified(monkeypatch, name, **factors):
    """Every Bound of one accountant has an end moved by a factor."""
    real = campaign_checks.Checker._asked

    def moved(self, loss, accountant, ask):
        bound = real(self, loss, accountant, ask)
        if bound is None or accountant != name:
            return bound
        changed = {end: getattr(bound, end) * by for end, by in factors.items()}
        return replace(bound, **changed)

    monkeypatch.setattr(campaign_checks.Checker, "_asked", moved)


def found(setting):
    return {one.check for one in campaign_checks.check(setting).found}


@pytest.mark.parametrize("index", PINNED)
def test_a_fixed_seed_finds_nothing(index):
    report = campaign.one(SEED, index)
    assert report.counts["settings"] == 1
    assert not report.found, report.found[0]


def test_a_setting_is_the_same_each_time():
    first, second = (campaign_settings.setting(SEED, 7) for _ in range(2))
    assert first == second != campaign_settings.setting(SEED, 8)
    assert str(first.run) in first.snippet()


@pytest.mark.parametrize("shift", [1.0 - 1e-3, 1.0 + 1e-3])
def test_moved_ends_are_found(monkeypatch, shift):
    """Both ends of a sampled run, a thousandth below or above."""
    falsified(monkeypatch, "pld", upper=shift, lower=shift)
    name = "upper end above what data sets show" if shift < 1.0 else "lower end attained"
    assert name in found(asked(POISSON))


def test_an_accountant_that_says_too_little_is_found(monkeypatch):
    falsified(monkeypatch, "rdp", upper=0.5)
    assert "rdp above pld's lower end" in found(asked(POISSON))


def test_a_way_that_says_too_little_is_found(monkeypatch):
    real = inversion.epsilon_interval

    def wrong(*arguments):
        low, high = real(*arguments)
        return 0.9 * low, 0.9 * high

    monkeypatch.setattr(inversion, "epsilon_interval", wrong)
    report = campaign_checks.Report()
    checker = campaign_checks.Checker(asked(POISSON), report)
    loss = checker._loss(POISSON)
    checker._ways(loss, checker._epsilon(loss, 1e-5))
    assert {one.check for one in report.found} >= {"ways meet"}


def test_what_never_ends_is_given_up():
    def forever():
        while True:
            pass

    with pytest.raises(campaign_checks.TimeUp):
        campaign_checks.within(0.05, forever)


def test_an_alarm_that_the_collector_swallows_comes_again(monkeypatch):
    """The user sees no message about it, but other lost errors are reported."""
    told, began = [], time.process_time()

    def tell(lost):
        told.append(lost.exc_type)

    monkeypatch.setattr(sys, "unraisablehook", tell)

    def slow(phase, info):
        while time.process_time() < began + 0.2:
            pass
        raise ValueError

    def forever():
        # An inner alarm leaves the outer one as it was.
        campaign_checks.within(5.0, lambda: None)
        # Only of the youngest objects: a whole collection may last until the second alarm.
        gc.collect(0)
        while True:
            pass

    gc.callbacks.append(slow)
    gc.disable()
    try:
        with pytest.raises(campaign_checks.TimeUp):
            campaign_checks.within(0.05, forever)
    finally:
        gc.callbacks.remove(slow)
        gc.enable()
    assert {*told} == {ValueError}
    assert sys.unraisablehook is tell
    # The system's timer counts in ticks: .994 of the 1.05 was seen.
    assert time.process_time() - began > 0.9


def test_tiny_data_sets_find_an_upper_end_too_small(monkeypatch):
    falsified(monkeypatch, "pld", upper=1.0 - 1e-6)
    reports = [campaign_tiny.check(SEED, index) for index in (0, 3, 4)]
    assert any("tiny" in one.check for report in reports for one in report.found)


def test_the_references_agree():
    """Twelve rounds that are seen: the closed sum, Fourier's integral and cells."""
    q, mu, epsilon = 0.3, 0.8, 1.5
    pair = (truth.Part(1.0 - q, "same"), truth.shift(mu, q))
    show = truth.Show("seen", ((pair, 12),))
    exact = sum(
        float(truth.mpmath.binomial(12, j) * q**j * (1 - q) ** (12 - j))
        * float(truth.gaussian_delta(epsilon, mu * truth.mpmath.sqrt(j)))
        for j in range(1, 13)
    )
    for low, high in (truth._fourier(show, epsilon), truth._lattice(show, epsilon)):
        assert low <= exact <= high < 1.05 * low


def test_one_round_is_exact():
    """A sampled round by its region's masses: the loss is above epsilon right of a threshold."""
    q, mu, epsilon = 0.2, 1.3, 0.4
    part = truth.Part(1.0, "normal", ((1.0 - q, 0.0), (q, mu)), ((1.0, 0.0),))
    inner = truth.mpmath.log(1 + truth.mpmath.expm1(epsilon) / q)
    exact = q * truth.gaussian_delta(inner, mu)
    assert abs(truth.hockey(part, epsilon) / exact - 1) < 1e-14


def test_a_share_of_noise_goes_with_its_client():
    """If no unit takes the slot, the variance shows it: an upper end of only the mean is wrong."""
    numbers = {"clip_norm": 1.0, "kept": 10**6, "dimension": 10**6, "cohort": 100}
    more = {"missing": 0, "colluding": 0, "topped_up": False, "noise_multiplier": 1.0}
    run = Node("SparsifiedPerturbation", numbers | more)
    models = {model.name: model for model in worlds.shown(asked(run))}
    [name] = [name for name in models if "share of the noise" in name]
    assert models[name].ends(4.378)[0] > 0.99
    topped = Node("SparsifiedPerturbation", numbers | more | {"topped_up": True})
    assert name not in {model.name for model in worlds.shown(asked(topped))}


def test_a_run_goes_on(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(campaign, "CHUNK", 2)
    monkeypatch.setattr(campaign, "one", lambda seed, index: campaign_tiny.check(seed, index))
    results = tmp_path / "campaign.json"
    for settings, expected in ((2, 2), (6, 6)):
        words = ["campaign", "--settings", str(settings), "--results", str(results), "--seed", "5"]
        monkeypatch.setattr(sys, "argv", words)
        assert campaign.main() == 0
        state = campaign._read(results)["5"]
        assert state["next"] == state["counts"]["settings"] == expected
    assert "from setting 2" in capsys.readouterr().out


def test_refusals_are_counted():
    scheme = ("FixedSize", {"size": 3, "population": 3})
    refused = asked(sampled(scheme, noise_multiplier=1.0))
    report = campaign_checks.check(refused)
    [kind] = report.refusals
    assert kind.startswith("UnsupportedCombination: a cohort of the whole population")
    assert fp.errors.UnsupportedCombination.__name__ in kind
