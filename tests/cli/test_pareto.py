"""Tests of ``fedprivacy.cli.pareto``."""

import json
import math

import pytest

from fedprivacy.papers.fa_ld.grid import MeanProblem, langevin_settings
from fedprivacy.papers.fed_plt.grid import splitting_settings
from fedprivacy.papers.fed_plt.tradeoff import SplittingProblem
from tests.cli.test_explain import answered, refused
from tests.cli.test_program import answer

pytest.importorskip("torch")

import fedprivacy as fp

ZERO = ["--adjacency", "zero_out"]
NOISE = ["--noise-multiplier", "2"]
# Comparisons

TABLE = """\
label,noise_multiplier,sampling_probability,rounds,accuracy,hours
quiet,8,0.1,10,0.6,3
middle,4,0.1,10,0.7,2
loud,1,0.1,10,0.9,1
worse,1,0.1,10,0.8,1
twin,4,0.1,10,0.7,4
"""


def rows():
    head, *found = (line.split(",") for line in TABLE.splitlines())
    return {row[0]: dict(zip(head[1:], map(float, row[1:]), strict=True)) for row in found}


@pytest.mark.parametrize("costs", [["accuracy"], ["hours"], ["accuracy", "hours"]])
def test_the_front_is_what_nothing_else_beats(capsys, tmp_path, costs):
    """By hand: no other setting is as private and as cheap, and better in one respect."""
    path = tmp_path / "runs.csv"
    path.write_text(TABLE)
    words = ["pareto", str(path), "--delta", "1e-4", *ZERO, "--maximise", "accuracy"]
    words = words if "accuracy" in costs else words[:-2]
    words += [word for cost in costs for word in ("--cost", cost)]
    found = answered(capsys, *words)
    points = {}
    for label, row in rows().items():
        run = fp.Gaussian(noise_multiplier=row["noise_multiplier"]).sampled(fp.Poisson(0.1)) * 10
        upper = fp.epsilon(run, delta=1e-4, adjacency="zero_out").upper
        signs = [-row[c] if c == "accuracy" else row[c] for c in costs]
        points[label] = (float(f"{upper:.3g}"), *signs)
    front = {
        label
        for label, here in points.items()
        if not any(
            other != here and all(a <= b for a, b in zip(other, here, strict=True))
            for other in points.values()
        )
    }
    assert set(found["front"]) == front
    assert {each["setting"] for each in found["settings"] if each["on_front"]} == front
    for each in found["settings"]:
        assert each["costs"] == {cost: rows()[each["setting"]][cost] for cost in costs}


def test_the_best_within_a_budget_is_named(capsys, tmp_path):
    path = tmp_path / "runs.json"
    listed = [{"label": label, **row} for label, row in rows().items()]
    path.write_text(json.dumps(listed))
    words = ["pareto", str(path), "--delta", "1e-4", *ZERO, "--cost", "accuracy"]
    words += ["--maximise", "accuracy", "--epsilon"]
    best = [answered(capsys, *words, budget)["best"]["accuracy"] for budget in ("99", "0.5", "0")]
    assert best[0] == "loud" and best[1] in ("middle", "quiet", "twin") and best[2] is None


def test_settings_of_several_files_are_named_by_their_folders(capsys, tmp_path):
    paths = []
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        paths.append(str(tmp_path / folder / "runs.csv"))
        (tmp_path / folder / "runs.csv").write_text(TABLE)
    found = answered(capsys, "pareto", *paths, "--delta", "1e-4", *ZERO, "--cost", "hours")
    names = [each["setting"] for each in found["settings"]]
    assert sorted(names) == sorted(f"{f}: {label}" for f in ("one", "two") for label in rows())


FILES = {
    "nothing": ("runs.csv", "", "SETTINGS must contain at least one setting"),
    "a head alone": ("runs.csv", "label,hours\n", "SETTINGS must contain at least one setting"),
    "no list": ("runs.json", "{}", "SETTINGS must be a list of objects"),
    "no objects": ("runs.json", "[1]", "SETTINGS must be a list of objects"),
    "no JSON": ("runs.json", "[", "runs.json: not readable as JSON"),
    "bytes": ("runs.csv", "\udcff", "SETTINGS must be CSV, or JSON with the ending .json"),
    "no cost": (
        "runs.csv",
        "label,noise_multiplier\na,1\n",
        "row 1 must have a cost, got ['label', 'noise_multiplier']; add a column besides ",
    ),
    "a cell too many": (
        "runs.csv",
        "noise_multiplier,hours\n1,2\n1,2,3\n",
        "row 2 must have one number for every column of the header",
    ),
    "noise of nothing": (
        "runs.csv",
        "noise_multiplier,hours\n1,2\n0,2\n",
        "row 2: noise_multiplier must be a finite number above 0, got",
    ),
    "a word": (
        "runs.csv",
        "noise_multiplier,hours\nmuch,2\n",
        "row 1: noise_multiplier must be above 0, got 'much'; pass a number",
    ),
    "a run beside a ledger": (
        "runs.csv",
        "ledger,rounds,hours\na.ledger,3,2\n",
        "row 1 must be left out with a ledger, got ['rounds']",
    ),
    "a cost that is no number": (
        "runs.csv",
        "noise_multiplier,hours\n1,long\n",
        "hours",
    ),
}


@pytest.mark.parametrize("what", FILES)
def test_a_file_of_settings_is_refused_by_its_row(capsys, tmp_path, what):
    name, text, told = FILES[what]
    path = tmp_path / name
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    assert told in refused(capsys, "pareto", str(path), "--delta", "1e-4", *ZERO)


COSTS = {
    "a column that is not there": (["--cost", "days"], "--cost must be a column with a value in"),
    "a column of the run": (
        ["--cost", "rounds"],
        "--cost must not be a column that describes a run, got 'rounds'",
    ),
    "more of what is no cost": (["--maximise", "days"], "days"),
}


@pytest.mark.parametrize("what", COSTS)
def test_a_cost_is_a_column(capsys, tmp_path, what):
    path, (words, told) = tmp_path / "runs.csv", COSTS[what]
    path.write_text(TABLE)
    assert told in refused(capsys, "pareto", str(path), "--delta", "1e-4", *ZERO, *words)


def test_a_cost_of_a_grid_is_one_that_its_numbers_tell(capsys):
    words = ["pareto", "--noise-multiplier", "1,2", "--delta", "1e-4", *ZERO]
    assert "--cost must be one of 'noise', 'averaged-noise', 'uploads' or 'rounds'" in refused(
        capsys, *words, "--cost", "fun"
    )
    grid = [*words, "--rounds", "1,4", "--sampling-probability", "0.5"]
    costs = ["noise", "averaged-noise", "uploads", "rounds"]
    found = answered(capsys, *grid, *(w for cost in costs for w in ("--cost", cost)))
    told = {
        (run["noise"], run["averaged-noise"], run["uploads"], run["rounds"])
        for run in (each["costs"] for each in found["settings"])
    }
    wanted = {(z / 0.5, z / 0.5 / math.sqrt(n), n * 0.5, n) for z in (1.0, 2.0) for n in (1.0, 4.0)}
    assert told == wanted


SIZES = {
    "a probability and a cohort": (
        ["--sampling-probability", "0.1", "--cohort", "3", "--population", "9"],
        "sampling_probability must be given without cohort, got 0.1",
    ),
    "a population alone": (
        ["--population", "9"],
        "cohort and population must be given together, got (None, 9)",
    ),
    "the largest of what": (
        ["--largest-cohort", "3"],
        "largest_cohort must be given with sampling_probability and population, without cohort, "
        "got 3",
    ),
    "more than there are": (
        ["--cohort", "10", "--population", "9"],
        "size must be at most population = 9, got 10",
    ),
}


@pytest.mark.parametrize("what", SIZES)
@pytest.mark.parametrize("name", ["epsilon", "explain", "tradeoff"])
def test_numbers_that_do_not_go_together_are_told(capsys, name, what):
    words, told = SIZES[what]
    asked = [] if name == "tradeoff" else ["--delta", "1e-4"]
    assert told in refused(capsys, name, *NOISE, *words, *asked, *ZERO)


ASK = {"delta": 1e-5, "adjacency": "replace_one"}
METHOD = ["--delta", "1e-5", "--adjacency", "replace_one", "--observer", "server"]


def test_the_command_names_the_best_setting_and_draws_it(tmp_path, capsys):
    path = tmp_path / "front.png"
    words = [*METHOD, "--epsilon", "4", "--set", "rounds=50", "--output", str(path)]
    words += ["--set", "local_steps=1,5", "--set", "correlation=0"]
    code, out, err = answer(capsys, "pareto", "--method", "fa-ld", *words)
    assert code == 0, err
    assert "best w2 within epsilon = 4: step_size = " in out
    picture = path.read_bytes()
    assert picture[1:4] == b"PNG"
    assert int.from_bytes(picture[16:20]) == 840  # one panel: the rounds are all the same


def test_the_command_says_what_the_functions_say(capsys):
    words = ["--set", "clients=3", "--set", "records=10", "--set", "cohort=2,all"]
    words += ["--set", "step_size=0.001,0.01", "--set", "temperature=1", "--set", "rounds=4"]
    words += ["--set", "correlation=0.5", "--set", "local-steps=2"]
    code, out, err = answer(capsys, "pareto", "--method", "fa-ld", *METHOD, *words, "--json")
    assert code == 0, err
    problem = MeanProblem(clients=3, records=10)
    settings = langevin_settings(
        problem.target,
        gradient_sensitivity=2.0,
        rounds=4,
        step_size=[0.001, 0.01],
        correlation=0.5,
        local_steps=2,
        cohort=[2, None],
    )
    direct = fp.pareto(settings, **ASK, observer="server").to_dict()
    assert json.loads(out)["settings"] == json.loads(json.dumps(direct))["settings"]


def test_the_command_for_fed_plt(capsys):
    words = ["--set", "records=100", "--set", "noise_scale=0.1", "--set", "agents=20"]
    code, out, err = answer(
        capsys, "pareto", "--method", "fed-plt", *METHOD, *words, "--epsilon", "4", "--json"
    )
    assert code == 0, err
    found = json.loads(out)
    problem = SplittingProblem(
        sensitivity=0.04, strong_convexity=0.5, smoothness=1.5, coordinates=100
    )
    settings = splitting_settings(
        problem,
        penalty=[0.3, 1.0, 3.0],
        step_share=[0.25, 0.5, 0.75],
        local_steps=[5, 10, 20],
        noise_scale=0.1,
    )
    assert [s["costs"] for s in found["settings"]] == [costs for _, (_, costs) in settings]
    assert found["best"]["error"] is not None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--method", "fa-ld", "--set", "penalty=1"], "setting must be one of 'clients'"),
        (["--method", "fed-plt", "--set", "cohort=1"], "setting must be one of 'gradient_cost'"),
        (["--method", "fa-ld", "--set", "local_steps=1,x"], "local_steps must be an integer"),
        (["--method", "fa-ld", "--set", "clients=1,2"], "be one value"),
        (["--method", "fa-ld", "--set", "local_steps"], "NAME=VALUES"),
        (["--method", "fa-ld", "--set", "step_size=-1"], "step_size must"),
        (["--method", "fa-ld", "--set", "spread=2"], "spread must"),
        (
            ["--method", "fa-ld", "--cost", "noise"],
            "be used without SETTINGS, --cost and --unit client",
        ),
        (
            ["--method", "fa-ld", "--unit", "client"],
            "be used without SETTINGS, --cost and --unit client",
        ),
        (["--method", "fa-ld", "--noise-multiplier", "1"], "setting must be one of"),
        (["--method", "fa-ld", "runs.csv"], "be used without SETTINGS, --cost and --unit client"),
        (["--method", "fed-plt", "--set", "feature_bound=0"], "feature_bound must"),
        (["--method", "fed-plt", "--set", "local_steps=1", "--set", "penalty=9"], "stability"),
        (["--set", "local_steps=1"], "given with --method"),
        (["runs.csv", "--set", "local_steps=1"], "be used without"),
    ],
)
def test_bad_options_are_one_line_and_exit_code_2(capsys, arguments, words):
    code, _, err = answer(capsys, "pareto", *arguments, *METHOD)
    assert code == 2 and words in err and err.count("\n") == 1
