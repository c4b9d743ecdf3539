"""Comparison of settings: the front by its definition, and the command in a process."""

import dataclasses
import json
import math
import re

import numpy as np
import pytest

import fedprivacy as fp
from tests.cli.test_ledgers import ledger_of
from tests.cli.test_program import answer, run

ASK = {"delta": 1e-5, "adjacency": "add_remove"}
ZS = (0.7, 1.0, 1.5, 3.0)


def gaussian(z, rounds=10):
    return fp.Gaussian(noise_multiplier=z, unit="client").sampled(fp.Poisson(0.1)) * rounds


def random_comparison(seed, maximise=()):
    draw = np.random.default_rng(seed)
    runs = {}
    for index in range(14):
        costs = {name: float(draw.integers(0, 4)) for name in ("loss", "accuracy")}
        runs[index] = gaussian(float(draw.integers(1, 5))), costs
    return fp.pareto(runs, accountant="rdp", maximise=maximise, **ASK)


def better(found, one, other):
    """Return whether ``one`` dominates ``other``, by the definition."""
    signs = [-1 if name in found.maximise else 1 for name in found.costs]
    here = [one.bound.upper, *(s * one.cost(n) for s, n in zip(signs, found.costs, strict=True))]
    there = [
        other.bound.upper,
        *(s * other.cost(n) for s, n in zip(signs, found.costs, strict=True)),
    ]
    return here != there and all(a <= b for a, b in zip(here, there, strict=True))


@pytest.mark.fast_cells(6)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("maximise", [(), "accuracy", ("accuracy", "loss")])
def test_the_front_is_what_nothing_dominates(seed, maximise):
    found = random_comparison(seed, maximise)
    for setting in found.settings:
        dominated = any(better(found, other, setting) for other in found.settings)
        assert setting.on_front is not dominated
    assert 0 < len(found.front) < len(found.settings)
    epsilons = [setting.epsilon for setting in found.front]
    assert epsilons == sorted(epsilons)


@pytest.mark.fast_cells(2)
@pytest.mark.parametrize("seed", range(4))
def test_the_best_within_a_budget_is_the_best_of_all_settings(seed):
    found = random_comparison(seed, "accuracy")
    for budget in sorted({s.epsilon for s in found.settings}):
        within = [s for s in found.settings if s.epsilon <= budget]
        assert found.best("loss", epsilon=budget).cost("loss") == min(
            s.cost("loss") for s in within
        )
        most = max(s.cost("accuracy") for s in within)
        assert found.best("accuracy", epsilon=budget).cost("accuracy") == most
    assert found.best(epsilon=0.0) is None


def test_epsilons_are_the_certified_upper_ends():
    found = fp.pareto({z: gaussian(z) for z in ZS}, cost=lambda z: -z, **ASK)
    for z, setting in zip(ZS, found.settings, strict=True):
        assert setting.bound == fp.epsilon(gaussian(z), **ASK)
        assert setting.label == z and setting.costs == (("cost", -z),)
    assert [s.label for s in found.front] == [3.0]


def test_ledgers_and_mechanisms_side_by_side(tmp_path):
    recorded = ledger_of(tmp_path / "a")
    ask = {"delta": 1e-5, "adjacency": "replace_one"}
    with fp.Ledger.open(tmp_path / "a") as opened:
        found = fp.pareto(
            {
                "path": (tmp_path / "a", {"accuracy": 0.8}),
                "text": (str(tmp_path / "a"), {"accuracy": 0.8}),
                "open": (opened, {"accuracy": 0.8}),
                "plan": (recorded, {"accuracy": 0.9}),
            },
            maximise="accuracy",
            **ask,
        )
    expected = fp.epsilon(recorded, **ask).upper
    assert [s.epsilon for s in found.settings] == [expected] * 4
    assert [s.label for s in found.front] == ["plan"]


def test_what_no_theorem_covers_is_kept_and_says_why():
    fixed = fp.Gaussian(noise_multiplier=1.0).sampled(fp.FixedSize(2, population=9))
    plain = fp.Gaussian(noise_multiplier=1.0)
    found = fp.pareto(
        {"seen": (fixed, 1.0), "plain": (plain, 2.0), "lost": (plain, math.nan)},
        delta=1e-5,
        adjacency="add_remove",
        observer="server",
    )
    seen, plain, lost = found.settings
    assert seen.bound is None and "no theorem" in seen.refused and seen.epsilon == math.inf
    assert lost.bound is not None and "not finite" in lost.refused
    assert plain.on_front and not seen.on_front and not lost.on_front
    assert found.refused == (seen, lost)
    assert "refused: seen: FixedSize has no theorem" in found.table()
    assert found.to_dict()["settings"][2]["costs"] == {"cost": None}


def test_an_infinite_epsilon_is_not_on_the_front():
    leaky = fp.Gaussian(noise_multiplier=1e-200)
    found = fp.pareto({"leaky": (leaky, 0.0), "ok": (gaussian(1.0), 1.0)}, **ASK)
    assert "no finite certified epsilon" in found.settings[0].refused
    assert [s.label for s in found.front] == ["ok"]


@dataclasses.dataclass(frozen=True)
class Chosen:
    z: float
    rounds: int


def test_labels_of_every_kind_are_told_in_words():
    pairs = [
        ({"z": 1.0, "rounds": 2}, (gaussian(1.0, 2), 1.0)),
        (Chosen(2.0, 3), (gaussian(2.0, 3), 1.0)),
        (("a", 1), (gaussian(2.0, 3), 1.0)),
    ]
    found = fp.pareto(pairs, **ASK)
    names = [setting.name for setting in found.settings]
    assert names == ["z = 1.0, rounds = 2", "z = 2.0, rounds = 3", "('a', 1)"]
    assert found.settings[0].label == {"z": 1.0, "rounds": 2}


@pytest.mark.parametrize(
    ("runs", "options", "words"),
    [
        ({}, {}, "at least one"),
        ({"a": gaussian(1.0)}, {}, "cost must be given for 'a'"),
        ({"a": (gaussian(1.0), "cheap")}, {}, "be a number"),
        ({"a": (gaussian(1.0), {})}, {}, "at least one number"),
        ({"a": (gaussian(1.0), {"x": 1}), "b": (gaussian(2.0), {"y": 1})}, {}, "have the names"),
        ({"a": (gaussian(1.0), 1.0)}, {"maximise": "accuracy"}, "maximise"),
        ({"a": (gaussian(1.0), 1.0)}, {"epsilon": -1.0}, "epsilon"),
        ({"a": (gaussian(1.0), 1.0)}, {"delta": 0.0}, "delta"),
        ({"a": (gaussian(1.0), 1.0)}, {"adjacency": "other"}, "adjacency"),
        ({"a": (gaussian(1.0), 1.0)}, {"observer": "other"}, "observer"),
        ({"a": (gaussian(1.0), 1.0)}, {"accountant": "other"}, "accountant"),
        ({"a": (3.0, 1.0)}, {}, "privacy loss"),
        ([("a", (gaussian(1.0), 1.0))] * 2, {}, "have different labels"),
        (["a"], {}, "pairs"),
        (
            {
                "a": (gaussian(1.0), 1.0),
                "b": (fp.Gaussian(noise_multiplier=1.0, unit="record"), 1.0),
            },
            {},
            "unit must",
        ),
    ],
)
def test_bad_input_is_refused(runs, options, words):
    with pytest.raises(fp.ParameterError, match=words):
        fp.pareto(runs, **{**ASK, **options})


def test_best_needs_a_cost_that_is_there():
    found = fp.pareto({"a": (gaussian(1.0), 1.0)}, **ASK)
    with pytest.raises(fp.ParameterError, match="cost must be one of"):
        found.best("accuracy")


def test_the_table_rounds_epsilon_upwards():
    found = fp.pareto({"a": (gaussian(1.0), 1.0)}, epsilon=100.0, **ASK)
    printed = float(re.search(r"\*\s+(\S+)", found.table().splitlines()[2]).group(1))
    assert printed >= found.settings[0].epsilon
    assert "best cost within epsilon = 100: a" in found.table()


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_the_plot_is_written(tmp_path, ending):
    found = random_comparison(0, "accuracy")
    path = found.plot(tmp_path / f"front.{ending}")
    start = path.read_bytes()[:60]
    assert (b"PNG" if ending == "png" else b"<?xml") in start


def test_a_plot_that_cannot_be_drawn_is_refused(tmp_path):
    found = random_comparison(0)
    with pytest.raises(fp.ParameterError, match="end in one of"):
        found.plot(tmp_path / "front.nothing")
    none = fp.pareto({"a": (gaussian(1.0), math.inf)}, **ASK)
    with pytest.raises(fp.ParameterError, match="not refused"):
        none.plot(tmp_path / "front.png")


CSV = """label,noise_multiplier,sampling_probability,rounds,accuracy,MB
a,1,0.1,10,0.8,3
b,2,0.1,10,0.7,2
c,2,0.1,20,0.7,2
"""
ADD = ["--delta", "1e-5", "--adjacency", "add_remove"]


@pytest.fixture
def table(tmp_path):
    (tmp_path / "runs.csv").write_text(CSV)
    return tmp_path / "runs.csv"


def test_the_command_in_a_process_of_its_own(table):
    done = run(
        *["pareto", "runs.csv", *ADD, "--maximise", "accuracy", "--epsilon", "9"],
        *["--output", "front.png"],
        cwd=table.parent,
    )
    assert done.returncode == 0, done.stderr
    assert (table.parent / "front.png").read_bytes()[1:4] == b"PNG"
    assert "best accuracy within epsilon = 9: a" in done.stdout and "plot: front.png" in done.stdout


def test_the_command_says_what_the_function_says(table, capsys):
    code, out, _ = answer(
        capsys, "pareto", str(table), *ADD, "--maximise", "accuracy", "--unit", "client", "--json"
    )
    found = json.loads(out)
    assert code == 0 and found["front"] == ["b", "a"]
    direct = fp.epsilon(gaussian(2.0, 20), **ASK)
    assert found["settings"][2]["epsilon"] == direct.to_dict()


def test_of_a_file_with_more_columns_those_named_are_costs(tmp_path, capsys):
    text = "noise_multiplier,rounds,seed,by,accuracy\n2,10,1,Ada,0.7\n2,10,2,Emmy,0.8\n"
    (tmp_path / "runs.csv").write_text(text)
    words = ["pareto", str(tmp_path / "runs.csv"), *ADD, "--maximise", "accuracy", "--json"]
    code, out, err = answer(capsys, *words, "--cost", "accuracy")
    assert code == 0, err
    found = json.loads(out)
    assert found["costs"] == ["accuracy"]
    assert found["front"] == ["noise_multiplier = 2.0, rounds = 10, seed = 2, by = Emmy"]
    code, _, err = answer(capsys, *words, "--cost", "speed")
    assert code == 2 and "--cost must be a column with a value in row 1" in err


def test_epsilons_are_compared_as_they_are_shown():
    def found(digits):
        runs = {
            "quiet": (gaussian(1.99), {"accuracy": 0.7}),
            "less": (gaussian(1.95), {"accuracy": 0.8}),
        }
        return fp.pareto(runs, maximise="accuracy", digits=digits, **ASK)

    fine, coarse = found(5), found(1)
    assert [s.name for s in fine.front] == ["quiet", "less"]
    assert [s.name for s in coarse.front] == ["less"]
    quiet, less = coarse.settings
    assert coarse.best(epsilon=(quiet.epsilon + less.epsilon) / 2) == quiet
    assert coarse.best() == less
    shown = [line.split()[0] for line in coarse.table().splitlines()[3:]]
    assert float(shown[0]) >= quiet.epsilon and len(shown[0].strip("0.")) == 1


def test_json_with_ledgers(tmp_path, capsys):
    recorded = ledger_of(tmp_path / "a")
    rows = [
        {"ledger": "a", "seconds": 3.0},
        {"label": "plan", "noise_multiplier": 4.0, "rounds": 2, "unit": "client", "seconds": 2},
    ]
    (tmp_path / "runs.json").write_text(json.dumps(rows))
    code, out, err = answer(
        capsys,
        *["pareto", str(tmp_path / "runs.json"), "--delta", "1e-5"],
        *["--adjacency", "replace_one", "--json"],
    )
    assert code == 0, err
    found = json.loads(out)
    assert [s["setting"] for s in found["settings"]] == ["a", "plan"]
    expected = fp.epsilon(recorded, delta=1e-5, adjacency="replace_one").upper
    assert found["settings"][0]["epsilon"]["upper"] == expected


def test_a_grid(capsys):
    code, out, _ = answer(
        capsys,
        *["pareto", *ADD, "--noise-multiplier", "1,2", "--cohort", "10,20", "--population", "100"],
        *["--rounds", "3", "--cost", "noise", "--cost", "uploads", "--json"],
    )
    found = json.loads(out)
    assert code == 0 and len(found["settings"]) == 4
    last = found["settings"][3]
    assert last["setting"] == "noise_multiplier = 2.0, cohort = 20, population = 100, rounds = 3"
    assert last["costs"] == pytest.approx({"noise": 10.0, "uploads": 0.6})
    sampled = fp.Gaussian(noise_multiplier=2.0).sampled(fp.FixedSize(20, population=100)) * 3
    assert last["epsilon"]["upper"] == fp.epsilon(sampled, **ASK).upper


@pytest.mark.parametrize(
    ("content", "arguments", "words"),
    [
        ("", [], "at least one setting"),
        ("label,noise_multiplier\na,1\n", [], "row 1 must have a cost"),
        ("label,noise_multiplier,x\na,one,1\n", [], "row 1: noise_multiplier must be above 0"),
        ("label,noise_multiplier,x\na,1,one\n", [], "x of 'a' must be a number"),
        ("label,noise_multiplier,x\na,1,1\nb,1,\n", [], "row 2 must have a cost"),
        ("label,ledger,rounds,x\na,gone,1,1\n", [], "be left out with a ledger"),
        ("label,ledger,x\na,gone,1\n", [], "gone"),
        ("label,x\na,1\n", [], "noise_multiplier must be above 0, got None"),
        ("label,noise_multiplier,x\na,1,1,7\n", [], "number"),
        ("label,noise_multiplier,x\na,1,1\n", ["--maximise", "y"], "maximise"),
        ("label,noise_multiplier,x\na,1,1\n", ["--rounds", "3"], "be used without"),
        ("label,noise_multiplier,x\na,1,1\n", ["--digits", "0"], "digits"),
        ("label,noise_multiplier,x\na,1,1\n", ["--cost", "y"], "--cost must be a column"),
        (
            "label,noise_multiplier,x\na,1,1\n",
            ["--cost", "label"],
            "not be a column that describes a run",
        ),
        ("label,noise_multiplier,x\na,1,1\n", ["--output", "a.nothing"], "end in one of"),
    ],
)
def test_a_bad_file_is_one_line_and_exit_code_2(tmp_path, capsys, content, arguments, words):
    (tmp_path / "runs.csv").write_text(content)
    code, _, err = answer(capsys, "pareto", str(tmp_path / "runs.csv"), *ADD, *arguments)
    assert code == 2 and words in err and err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "SETTINGS must be given"),
        (["--noise-multiplier", "1,b"], "noise_multiplier must be above 0, got 'b'"),
        (["--noise-multiplier", "1", "--cohort", "3"], "together"),
        (["--noise-multiplier", "1,1"], "have different labels"),
        (["nothing.csv"], "nothing.csv"),
        (["--noise-multiplier", "1", "--cost", "money"], "--cost must be one of"),
    ],
)
def test_bad_options_are_one_line_and_exit_code_2(capsys, arguments, words):
    code, _, err = answer(capsys, "pareto", *arguments, *ADD)
    assert code == 2 and words in err and err.count("\n") == 1


@pytest.mark.parametrize("content", ["{", "{}", "[1]", '[{"label": "a"}]'])
def test_bad_json_is_one_line_and_exit_code_2(tmp_path, capsys, content):
    (tmp_path / "runs.json").write_text(content)
    code, _, err = answer(capsys, "pareto", str(tmp_path / "runs.json"), *ADD)
    assert code == 2 and err.count("\n") == 1


def langevin(step):
    return fp.FederatedLangevin(
        step_size=step,
        temperature=1.0,
        correlation=0.5,
        weight=0.1,
        batch_fraction=0.2,
        gradient_sensitivity=0.05,
    )


def splitting(noise):
    return fp.NoisyGradientDescent(
        step_size=0.2,
        noise_std=noise,
        sensitivity=0.1,
        strong_convexity=1.0,
        smoothness=4.0,
        steps=5,
    )


def test_samplers_and_splitting_methods_stand_beside_each_other():
    runs = {("langevin", h): langevin(h) * 20 for h in (0.001, 0.004)}
    runs |= {("splitting", s): splitting(s) * 3 for s in (0.5, 1.0)}
    found = fp.pareto(
        runs,
        cost=lambda label: {"W2": 10.0 * label[1], "seconds": 1.0},
        delta=1e-5,
        adjacency="replace_one",
    )
    assert [s.bound.unit for s in found.settings] == ["record"] * 4
    for (label, one), setting in zip(runs.items(), found.settings, strict=True):
        assert setting.label == label
        assert setting.epsilon == fp.epsilon(one, delta=1e-5, adjacency="replace_one").upper
    wrong = fp.pareto(runs, cost=lambda label: 1.0, delta=1e-5, adjacency="add_remove")
    assert wrong.refused == wrong.settings and wrong.front == () and wrong.best() is None
