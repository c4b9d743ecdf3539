"""Tests of ``fedprivacy.cli.explain``."""

import json

import pytest

from fedprivacy.cli.explain import _print_shares, _up

pytest.importorskip("torch")

import fedprivacy as fp
from tests.contract.test_command_line import command

ZERO = ["--adjacency", "zero_out"]
STEP = fp.Gaussian(noise_multiplier=2.0)


def answered(capsys, *words):
    """The JSON that a command prints, which ends well."""
    code, out, err = command(capsys, *words, "--json")
    assert code == 0, err
    return json.loads(out)


def refused(capsys, *words):
    """What a command says that ends with 2, in one line."""
    code, out, err = command(capsys, *words)
    assert (code, out) == (2, "") and "Traceback" not in err
    return " ".join(err.split())


def ledger(path, ended=True, closed=True, **facts):
    given = {"unit": "client", "adjacency": "zero_out", "claim": (9.0, 1e-4)} | facts
    with fp.Ledger.create(path, **given) as made:
        number = made.intent(
            fp.Gaussian(noise_multiplier=2.0, unit="client"), clip_norm=1.0, noise_std=2.0
        )
        if ended:
            made.done(number, cohort=3, arrived=3, refused=0, noise_std=2.0, denominator=3.0)
        else:
            made.abort(number, "nobody came")
        if closed:
            made.close()
    return str(path)


EXPLAINED = ["--delta", "1e-4", *ZERO]
LEDGERS = {
    "noise": (
        ["--noise-multiplier", "2"],
        "--noise-multiplier must be left out with LEDGER, got 2",
    ),
    "rounds": (["--rounds", "2"], "--rounds must be left out with LEDGER, got 2"),
    "a unit": (["--unit", "client"], "--unit must be left out with LEDGER"),
}


@pytest.mark.parametrize("what", LEDGERS)
def test_explain_takes_a_ledger_or_a_run(capsys, tmp_path, what):
    words, told = LEDGERS[what]
    path = ledger(tmp_path / "run.ledger")
    assert told in refused(capsys, "explain", path, *EXPLAINED, *words)


def test_explain_tells_of_infinitely_much_that_a_part_has_it_all(capsys):
    words = ["--noise-multiplier", "1", "--delta", "0", *ZERO]
    (part,) = answered(capsys, "explain", *words)["parts"]
    assert part["share"] == 1.0 and part["without"] == 0.0


def test_explain_needs_a_round(capsys, tmp_path):
    path = ledger(tmp_path / "run.ledger", ended=False)
    told = refused(capsys, "explain", path, *EXPLAINED)
    assert f"LEDGER must contain a round that was released, got '{path}'" in told


def test_explain_says_of_a_ledger_what_it_says_of_its_run(capsys, tmp_path):
    found = answered(capsys, "explain", ledger(tmp_path / "run.ledger"), *EXPLAINED)
    bound = fp.epsilon(STEP, delta=1e-4, adjacency="zero_out")
    assert found["epsilon"]["aggregate"]["pld"]["upper"] == bound.upper
    assert found["halved_by"] == {} and [part["share"] for part in found["parts"]] == [1.0]


def uneven(path, **facts):
    """A ledger of two rounds whose sums were divided by different numbers."""
    step = fp.Gaussian(noise_multiplier=2.0, unit="client").sampled(fp.Poisson(0.5))
    with fp.Ledger.create(path, unit="client", claim=(9.0, 1e-4), **facts) as made:
        for count in (3, 4):
            number = made.intent(step, clip_norm=1.0, noise_std=2.0)
            made.done(
                number, cohort=3, arrived=3, refused=0, noise_std=2.0, denominator=float(count)
            )
        made.close()
    return str(path)


def test_explain_refuses_what_accounting_refuses(capsys, tmp_path):
    differ = uneven(tmp_path / "a.ledger", adjacency="add_remove")
    chosen = ledger(tmp_path / "b.ledger", schedule="adaptive")
    for path in (differ, chosen):
        with pytest.raises(fp.errors.UnsupportedCombination) as why:
            fp.account(path, delta=1e-4, adjacency="add_remove")
        words = ["--delta", "1e-4", "--adjacency", "add_remove"]
        assert refused(capsys, "explain", path, *words) == f"fedprivacy: {why.value}"


def test_explain_says_what_a_record_s_numbers_depend_on(capsys, tmp_path):
    path = ledger(tmp_path / "run.ledger", seed_policy="fixed", closed=False)
    found = answered(capsys, "explain", path, *EXPLAINED)
    words = ["the ledger was not closed", "the seed was fixed"]
    assert found["qualified"] == words
    bounds = [one for by_name in found["epsilon"].values() for one in by_name.values()]
    assert len(bounds) == 6 and all(one["qualified"] == words for one in bounds)
    _, out, _ = command(capsys, "explain", path, *EXPLAINED, "--theory")
    assert out.count(", the ledger was not closed, the seed was fixed\n") == 6
    assert all(f"  but: {one}\n" in out for one in words)


def test_explain_counts_on_no_round_that_was_not_confirmed(capsys, tmp_path):
    with fp.Ledger.create(tmp_path / "run.ledger", unit="client", adjacency="zero_out") as made:
        made.intent(STEP, clip_norm=1.0, noise_std=2.0)
    found = answered(capsys, "explain", str(tmp_path / "run.ledger"), *EXPLAINED)
    assert found["attained_by"] is found["risk"]["witness"] is None
    assert found["risk"]["tpr"]["attained"] == found["risk"]["fpr"]


TRAIN = ["--rounds", "1", "--seed", "1"]


def test_explain_reads_a_ledger_with_all_its_parts(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["--method", "dp-fedavg", "--delta", "1e-3", *TRAIN, "--ledger", "a.ledger"]
    assert command(capsys, "train", *words)[0] == 0
    words = ["--delta", "1e-3", "--adjacency", "zero_out"]
    code, out, err = command(capsys, "explain", "a.ledger", *words)
    assert code == 0 and "100 %: 1 rounds of SampledMechanism" in out, err
    words = ["--method", "fed-plt", "--delta", "1e-3", *TRAIN, "--ledger", "b.ledger"]
    assert command(capsys, "train", *words)[0] == 0
    words = ["--delta", "1e-3", "--adjacency", "replace_one"]
    code, out, err = command(capsys, "explain", "b.ledger", *words)
    # Records of clients of other sizes are kinds of units, and the worst kind counts.
    assert (
        code == 0 and "advantage (true-positive rate minus false-positive rate): at most" in out
    ), err
    assert "not known" not in out and "at 1 % false positives: at most" in out


def test_explain_prints_what_halves_epsilon_in_full(capsys):
    _print_shares({"parts": [], "halved_by": {"rounds": 1150197, "noise_multiplier": 12.78073123}})
    told = capsys.readouterr().out
    assert (
        "by changing only rounds: 1150197\n" in told and "noise_multiplier: 12.78073123\n" in told
    )


@pytest.mark.parametrize("value", [0.0, 1.0, 0.04330001, 9.58314847, 1e-7, 123456.0])
def test_printed_upper_ends_are_rounded_up(value):
    printed = float(_up(value))
    assert value <= printed <= value * 1.001
