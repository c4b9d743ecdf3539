"""Small ledgers with huge numbers are answered or refused, quickly and in little memory."""

import pytest

import fedprivacy as fp
from tests.common import ROOT

BENCHMARKS = ROOT / "benchmarks"
SECONDS, MEGABYTES = 2.0, 200.0
"""Twice the benchmark's time: processors that others use as well are slower."""
PATIENT = 20.0
"""A hundred times what those of ``FEW`` take: a fast test fails on no machine, however busy."""
FEW = [
    "FixedSize population 1e15 pld zero_out aggregate",
    "WithReplacement draws 1e6 pld add_remove aggregate",
    "WithReplacement draws 1e6 rdp zero_out aggregate",
    "WithReplacement draws 1e6 advanced add_remove aggregate",
    "Shuffled rounds_per_epoch 1e7 pld zero_out server",
    "RandomAllocation rounds_per_epoch 1e6 rdp add_remove aggregate",
    "BufferedToeplitz rounds 1e7 pld zero_out aggregate",
    "Tree rounds 1e7 pld zero_out aggregate",
    "BandedInverse wide 2 rounds 1e6 pld zero_out aggregate",
    "BufferedToeplitz wide 1 rounds 1e6 rdp zero_out aggregate",
    "BandedInverse wide 3 rounds 1e6 pld zero_out aggregate",
    "WithReplacement draws 1e9 advanced zero_out aggregate",
    "WithReplacement draws 1e9 advanced replace_one aggregate",
]


@pytest.fixture
def ledgers(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import hostile_ledgers

    return hostile_ledgers


def asked(ledgers, chosen, seconds=SECONDS):
    """Return the outcomes of the chosen cases, by name."""
    return {
        case.name: ledgers.outcome(case, seconds, MEGABYTES)
        for case in ledgers.cases()
        if chosen(case.name)
    }


def test_a_few_of_every_kind(ledgers):
    found = asked(ledgers, set(FEW).__contains__, PATIENT)
    assert set(found) == set(FEW)
    assert not {k: v for k, v in found.items() if ledgers.wrong(v, PATIENT, MEGABYTES)}
    refusal = found["Tree rounds 1e7 pld zero_out aggregate"].said
    assert "rounds must be at most" in refusal and "10000000" in refusal
    refusal = found["BandedInverse wide 3 rounds 1e6 pld zero_out aggregate"].said
    assert "bands must be at most 501 over 1000000 rounds" in refusal


def test_outcomes_are_kept_and_not_asked_again(ledgers, tmp_path, monkeypatch):
    given = (FEW[0], tmp_path / "kept.jsonl", SECONDS, MEGABYTES)
    first = list(ledgers.outcomes(*given))
    monkeypatch.setattr(ledgers, "outcome", None)
    assert list(ledgers.outcomes(*given)) == first and len(first) == 1


def test_what_hangs_or_grows_is_told(ledgers, monkeypatch):
    [case] = [one for one in ledgers.cases() if one.name == FEW[0]]
    monkeypatch.setattr(ledgers, "answer", lambda case: str(len(bytearray(10**10))))
    assert ledgers.wrong(ledgers.outcome(case, SECONDS, MEGABYTES), SECONDS, MEGABYTES)

    def hang(case):
        while True:
            pass

    monkeypatch.setattr(ledgers, "answer", hang)
    assert ledgers.wrong(ledgers.outcome(case, 0.1, MEGABYTES), 0.1, MEGABYTES)


def test_a_hopeless_run_says_why():
    scheme = fp.WithReplacement(10**6, population=1000)
    run = fp.Gaussian(noise_multiplier=1.0).sampled(scheme) * 3
    bound = fp.epsilon(run, delta=1e-5, adjacency="add_remove")
    # At least 900 draws of the unit, each adding 2 to the mean: the loss is above 10^6.
    renyi = fp.epsilon(run, delta=1e-5, adjacency="add_remove", accountant="rdp").upper
    assert 1e6 < bound.upper <= renyi < float("inf") and "not refined" in bound.reason


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_scheme_and_factor(ledgers):
    found = asked(ledgers, lambda name: True)
    assert len(found) > 500
    # Fifty labels of a mixture each, at a hundred points: the one that takes longer.
    slowest = found.pop("HeldMechanism 17 scheme.draws 1e6 advanced zero_out aggregate")
    assert not ledgers.wrong(slowest, 1.5 * SECONDS, MEGABYTES)
    assert not {k: v for k, v in found.items() if ledgers.wrong(v, SECONDS, MEGABYTES)}
