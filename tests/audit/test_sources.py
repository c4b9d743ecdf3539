"""Tests of ``fedprivacy.audit.sources``."""

import math

import pytest

import fedprivacy as fp
from fedprivacy.audit import imports
from fedprivacy.errors import ConversionError, LedgerError


@pytest.mark.parametrize(
    "said",
    [
        {"sampling": "poisson"},
        {"population": 9},
        {"steps_per_round": 2},
        {"missing_shares": 1},
        {"denominator": "public"},
        {"trials": 4},
    ],
    ids=lambda said: next(iter(said)),
)
def test_a_mechanism_and_a_ledger_say_it_themselves(said, tmp_path):
    step = fp.Gaussian(noise_multiplier=2.0, unit="client")
    path = tmp_path / "run.ledger"
    with fp.Ledger.create(path, unit="client", adjacency="zero_out") as ledger:
        ledger.intent(step, clip_norm=1.0, noise_std=2.0)
    ((name, value),) = said.items()
    for source, what in ((step, "a mechanism"), (path, "a ledger"), (fp.Ledger.open(path),) * 2):
        with pytest.raises(fp.ParameterError) as caught:
            fp.audit(source, claim=(9.0, 1e-5), adjacency="zero_out", **said)
        what = "a ledger" if isinstance(what, fp.Ledger) else what
        told = f"{name} must be left out, got {str(value)!r}; {what} states it"
        assert str(caught.value) == told


CLAIMS = {
    "one number": (8.0, "claim must be a pair (epsilon, delta), got 8.0"),
    "three numbers": ((1, 2, 3), "claim must be a pair (epsilon, delta), got (1, 2, 3)"),
    "an epsilon below 0": ((-1.0, 1e-5), "epsilon must be a finite number of at least 0, got -1.0"),
    "an epsilon that is none": ((math.nan, 1e-5), "epsilon must be a finite number of at least 0"),
    "a delta above 1": ((1.0, 1.5), "delta must be at least 0 and below 1, got 1.5; at delta = 1 "),
    "a delta of 1": ((1.0, 1), "delta must be at least 0 and below 1, got 1; at delta = 1 every "),
    "half of it": ((1.0, None), "claim must be (epsilon, delta), got (1.0, None); its delta is "),
    "texts": (("8", 1e-5), "epsilon must be a finite number of at least 0, got '8'; pass a number"),
}


@pytest.mark.parametrize("what", CLAIMS)
def test_a_claim_is_two_numbers(what):
    claim, words = CLAIMS[what]
    with pytest.raises(fp.ParameterError) as caught:
        fp.audit(fp.Gaussian(noise_multiplier=1.0), claim=claim, adjacency="zero_out")
    assert str(caught.value).startswith(words)


def test_a_folder_and_a_missing_file_are_named(tmp_path):
    with pytest.raises(LedgerError) as caught:
        imports.read(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path} is not a file; fp.audit.each(folder) judges its records"
    )
    nowhere = tmp_path / "nowhere.csv"
    for call in (lambda: imports.read(nowhere), lambda: fp.audit(nowhere, claim=(1.0, 1e-5))):
        with pytest.raises(LedgerError) as caught:
            call()
        assert str(caught.value) == f"{nowhere}: could not read it: No such file or directory"


def test_an_empty_file_is_said_to_be_empty(tmp_path):
    for content in ("", "\n \n", "\ufeff\n"):
        (tmp_path / "rounds.csv").write_text(content)
        with pytest.raises(ConversionError, match=r"rounds\.csv: empty; name the record of a run"):
            fp.audit(tmp_path / "rounds.csv", claim=(1.0, 1e-5))
