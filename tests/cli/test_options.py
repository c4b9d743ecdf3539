"""Every option of every command: accepted values, refusals, and help."""

import json

import click
import pytest

pytest.importorskip("torch")

from fedprivacy.cli import options as shared
from fedprivacy.runs.methods import METHODS
from tests.commands import EVERY
from tests.contract.test_command_line import command

ADD = ["--adjacency", "add_remove"]
GRID = ["pareto", "--method", "fa-ld", *ADD, "--delta", "1e-5"]
RUN = ["--noise-multiplier", "2", "--rounds", "3"]
OPTIONS = [
    (name, each)
    for name, known in sorted(EVERY.items())
    for each in known.params
    if isinstance(each, click.Option)
]


def of_kind(*kinds):
    """Options of a kind, one case for each."""
    return [
        pytest.param(name, each, id=f"{name} {each.opts[0]}")
        for name, each in OPTIONS
        if isinstance(each.type, kinds) and not each.is_flag
    ]


def test_the_tables_of_options_are_not_empty():
    kinds = [type(each.type).__name__ for _, each in OPTIONS]
    assert len(OPTIONS) > 150
    counts = {kind: kinds.count(kind) for kind in set(kinds)}
    assert counts["Choice"] > 20 and counts["FloatParamType"] > 20 and counts["IntParamType"] > 20


@pytest.mark.parametrize(("name", "option"), of_kind(click.types.FloatParamType))
def test_a_number_that_is_none_is_refused_by_its_option(name, option, capsys):
    for text in ("much", "1,5", ""):
        code, out, err = command(capsys, name, option.opts[0], text)
        assert code == 2 and out == ""
        assert f"{text!r} is not a valid float" in err and option.opts[0] in err


@pytest.mark.parametrize(("name", "option"), of_kind(click.types.IntParamType))
def test_a_whole_number_that_is_none_is_refused_by_its_option(name, option, capsys):
    for text in ("1.5", "1e3", "many"):
        code, out, err = command(capsys, name, option.opts[0], text)
        assert code == 2 and out == ""
        assert f"{text!r} is not a valid int" in err and option.opts[0] in err


@pytest.mark.parametrize(("name", "option"), of_kind(click.Choice))
def test_a_choice_that_there_is_not_is_told_those_that_there_are(name, option, capsys):
    code, out, err = command(capsys, name, option.opts[0], "nonsense")
    assert code == 2 and out == ""
    told = " ".join(err.split())
    assert "'nonsense' is not one of" in told
    for choice in option.type.choices:
        assert f"'{choice}'" in told


@pytest.mark.parametrize("name", sorted(EVERY))
def test_an_option_that_there_is_not_is_refused(name, capsys):
    code, out, err = command(capsys, name, "--no-such-option")
    assert code == 2 and out == "" and "--no-such-option" in err


@pytest.mark.parametrize("name", sorted(EVERY))
def test_help_has_every_option_and_ends_with_0(name, capsys):
    code, out, err = command(capsys, name, "--help")
    assert (code, err) == (0, "")
    for each in EVERY[name].params:
        if isinstance(each, click.Option):
            assert each.opts[0] in out
            assert each.help, f"{name} {each.opts[0]} says what it is"


def test_an_option_of_one_name_says_one_thing():
    """An option has the same help everywhere, unless its meaning differs in a command."""
    told = {}
    for name, each in OPTIONS:
        told.setdefault(each.opts[0], {}).setdefault(each.help, []).append(name)
    several = {option: list(words.values()) for option, words in told.items() if len(words) > 1}
    allowed = {
        *("--adjacency", "--observer", "--unit", "--epsilon", "--delta", "--output", "--method"),
        *("--set", "--rounds", "--cohort", "--population", "--sampling-probability", "--clients"),
        *(
            "--noise-multiplier",
            "--ledgers",
            "--trials",
            "--rounds-per-epoch",
            "--sampling",
            "--deadline",
        ),
    }
    assert set(several) <= allowed, {k: v for k, v in several.items() if k not in allowed}


# The arguments, and the one line of the error.
LINES = {
    "no delta": (["epsilon", *RUN, *ADD], "Missing option '--delta'"),
    "no adjacency": (["epsilon", *RUN, "--delta", "1e-5"], "Missing option '--adjacency'"),
    "a delta of 2": (
        ["epsilon", *RUN, *ADD, "--delta", "2"],
        "delta must lie between 0 and 1, got 2.0",
    ),
    "an epsilon below 0": (
        ["delta", *RUN, *ADD, "--epsilon", "-1"],
        "epsilon must be a number of at least 0, got -1.0",
    ),
    "noise below 0": (
        ["epsilon", "--noise-multiplier", "-1", *ADD, "--delta", "1e-5"],
        "noise_multiplier must be a finite number above 0, got -1.0",
    ),
    "no noise": (["epsilon", *ADD, "--delta", "1e-5"], "noise_multiplier must"),
    "no round": (
        ["epsilon", *RUN[:2], "--rounds", "0", *ADD, "--delta", "1e-5"],
        "rounds must be an integer of at least 1, got 0",
    ),
    "a probability of 2": (
        ["epsilon", *RUN, "--sampling-probability", "2", *ADD, "--delta", "1e-5"],
        "sampling_probability must",
    ),
    "a cohort of nobody": (
        ["epsilon", *RUN, "--cohort", "3", *ADD, "--delta", "1e-5"],
        "population",
    ),
    "a tolerance of 0": (
        ["epsilon", *RUN, *ADD, "--delta", "1e-5", "--tolerance", "0"],
        "tolerance must be a finite number above 0, got 0.0",
    ),
    "no time": (
        ["epsilon", *RUN, *ADD, "--delta", "1e-5", "--deadline", "-3"],
        "deadline must be a finite number above 0, got -3.0",
    ),
    "what is solved for, given": (
        ["calibrate", *RUN, *ADD, "--epsilon", "1", "--delta", "1e-5"],
        "--noise-multiplier must be left out, got 2.0; --solve-for computes it",
    ),
    "a budget of less than nothing": (
        ["calibrate", *RUN[2:], *ADD, "--epsilon", "-1", "--delta", "1e-5"],
        "epsilon must",
    ),
    "a budget of no round": (
        ["calibrate", "--rounds", "0", *ADD, "--epsilon", "1", "--delta", "1e-5"],
        "fedprivacy: rounds must be an integer of at least 1, got 0",
    ),
    "a cohort of an unknown population, solved for": (
        [
            *("calibrate", "--solve-for", "cohort", *RUN, *ADD),
            *("--epsilon", "1", "--delta", "1e-5"),
        ],
        "at 1: cohort and population must be given together, got (1, None)",
    ),
    "a rate that is none": (
        ["tradeoff", *RUN, *ADD, "--fpr", "0.1,half"],
        "half",
    ),
    "a picture without an ending": (
        ["tradeoff", *RUN, *ADD, "--plot", "curve"],
        "curve",
    ),
    "settings and a method": (
        ["pareto", "runs.csv", "--method", "fa-ld", *ADD, "--delta", "1e-5"],
        "--method must be used without SETTINGS, --cost and --unit client, got 'fa-ld'",
    ),
    "a file and a grid": (
        ["pareto", "runs.csv", *RUN, *ADD, "--delta", "1e-5"],
        "SETTINGS must be used without --noise-multiplier, --rounds, got 'runs.csv'",
    ),
    "nothing to compare": (
        ["pareto", *ADD, "--delta", "1e-5"],
        "SETTINGS must be given, got None; or a grid, for example with --noise-multiplier",
    ),
    "a setting twice": (
        [*GRID, "--set", "correlation=0", "--set", "correlation=0.5"],
        "--set must be given once, got 'correlation'; separate several values by commas",
    ),
    "a setting of nothing": (
        [*GRID, "--set", "correlation"],
        "--set must be NAME=VALUE, or NAME=VALUES separated by commas, got 'correlation'",
    ),
    "an audit of what is not there": (
        ["audit", "nowhere.ledger"],
        "nowhere.ledger: could not read",
    ),
    "half a claim": (
        ["audit", *RUN, *ADD, "--sampling", "everyone", "--claim-epsilon", "3"],
        "claim must be (epsilon, delta), got (3.0, None); its delta is not stated; give it "
        "(--claim-delta)",
    ),
    "a claim that is no pair": (
        ["audit", *RUN, "--sampling", "poisson", "--claim", "8"],
        "--claim must be two numbers, epsilon and delta, got '8'; such as --claim 8,1e-5",
    ),
    "a claim of words": (
        ["audit", *RUN, "--sampling", "poisson", "--claim", "a,b"],
        "--claim must be two numbers, epsilon and delta, got 'a,b'; such as --claim 8,1e-5",
    ),
    "parameters without a scheme": (
        ["audit", *RUN, "--claim", "8,1e-5"],
        "--sampling must be given, got None; pass one of poisson, fixed, shuffled",
    ),
    "a cohort of Poisson sampling": (
        ["audit", "run.ledger", "--sampling", "poisson", "--cohort", "3"],
        "--cohort must be given with --sampling fixed or with-replacement, got 3",
    ),
    "epochs of Poisson sampling": (
        ["audit", "run.ledger", "--sampling", "poisson", "--rounds-per-epoch", "3"],
        "--rounds-per-epoch must be given with --sampling shuffled or allocation, got 3",
    ),
    "a probability of a fixed size": (
        ["audit", "run.ledger", "--sampling", "fixed", "--sampling-probability", "0.1"],
        "--sampling-probability must be given with --sampling poisson, got 0.1",
    ),
    "a cohort of how many": (
        ["audit", "run.ledger", "--sampling", "fixed", "--cohort", "3"],
        "--population must be given with --cohort, got None",
    ),
    "epochs of everybody": (
        [*("audit", *RUN, "--sampling", "everyone"), *("--rounds-per-epoch", "7")],
        "--rounds-per-epoch must be given with --sampling shuffled or allocation, got 7",
    ),
    "no rounds of parameters": (
        ["audit", *RUN[:2], "--rounds", "0", "--sampling", "poisson", "--claim", "8,1e-5"],
        "rounds must be an integer of at least 1, got 0",
    ),
    "a setting that an option gives": (
        ["train", "--method", "dp-fedavg", "--clip-norm", "1", "--set", "clip_norm=2"],
        "--set must not be a setting with its own option, got 'clip_norm'; leave out one "
        "of the two",
    ),
    "the data as a setting": (
        ["train", "--set", "data=digits"],
        "--set must not be a setting with its own option, got 'data'",
    ),
    "a setting of another method": (
        ["train", "--method", "fa-ld", "--set", "kept_fraction=0.1"],
        "kept_fraction must be left out, since fa-ld does not use it",
    ),
    "a setting that there is not": (
        ["train", "--method", "fa-ld", "--set", "courage=1"],
        "courage",
    ),
    "a setting of two values": (
        ["train", "--method", "fa-ld", "--set", "local_steps=1,2"],
        "local_steps must",
    ),
    "a grid of another method": (
        ["sweep", "--method", "dp-fedavg", "--set", "kept_fraction=0.1"],
        "kept_fraction must be left out, since dp-fedavg does not use it",
    ),
    "a grid of words": (
        ["sweep", "--method", "dp-fedavg", "--set", "cohort=few"],
        "cohort must",
    ),
    "a plot of one secret trial": (
        ["sweep", "--set", "noise_multiplier=2", "--private", "geometric", "--output", "a.png"],
        "--output must be left out with --private, got 'a.png'",
    ),
    "secret trials at once": (
        ["sweep", "--set", "noise_multiplier=2", "--private", "geometric", "--jobs", "2"],
        "--jobs must be left out with --private, got '2'",
    ),
    "data of an unknown name": (
        ["train", "--data", "nonesuch"],
        "nonesuch",
    ),
    "a model that is no place": (
        ["train", "--method", "dp-fedavg", "--model", "nonesuch"],
        "nonesuch",
    ),
    "a run file that is not there": (["run", "nowhere.toml"], "nowhere.toml"),
    "a certificate that is not there": (["verify", "nowhere.json"], "nowhere.json"),
    "a schema of what prints none": (["schema", "run"], "'run' is not one of"),
    "an unknown command": (["explode"], "No such command 'explode'"),
}


@pytest.mark.parametrize("what", LINES)
def test_bad_input_is_told_and_leaves_nothing_behind(what, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words, wanted = LINES[what]
    code, out, err = command(capsys, *words)
    told = " ".join(err.split())
    assert code == 2 and out == "" and wanted in told, told
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


RUN_FILES = {
    "no TOML": ("command = ", ":1:"),
    "no command": ("delta = 1e-5\n", "command must be one of"),
    "itself": ('command = "run"\n', "command must be one of"),
    "an unknown option": ('command = "epsilon"\nspeed = 3\n', "speed must be one of"),
    "a number for a choice": ('command = "epsilon"\nadjacency = 3\n', "adjacency"),
    "a table for a number": ('command = "epsilon"\n[delta]\nvalue = 1\n', "delta"),
}


@pytest.mark.parametrize("what", RUN_FILES)
def test_a_run_file_that_is_none_is_refused_with_its_place(what, tmp_path, capsys):
    text, wanted = RUN_FILES[what]
    path = tmp_path / "run.toml"
    path.write_text(text)
    code, out, err = command(capsys, "run", str(path))
    told = " ".join(err.split())
    assert code == 2 and out == "" and wanted in told, told


def test_a_run_file_that_is_no_text_is_refused(tmp_path, capsys):
    path = tmp_path / "run.toml"
    path.write_bytes(b'command = "\xff"\n')
    code, _, err = command(capsys, "run", str(path))
    assert code == 2 and "must be UTF-8" in err


@pytest.mark.parametrize("name", sorted(METHODS))
def test_no_method_has_its_own_knob_as_a_setting(name):
    each = METHODS[name]
    if each.knob is None:
        assert not each.private and each.knob_name is None
        return
    assert each.knob.name in each.known
    with pytest.raises(ValueError, match=f"{each.knob.name} must be left out.*pass level"):
        each.of({each.knob.name: 1.0})


@pytest.mark.parametrize("name", sorted(METHODS))
def test_a_method_s_defaults_keep_their_own_rules(name):
    """And each setting's words in help are those that its refusal has."""
    each = METHODS[name]
    made = each.of({})
    for key, one in each.settings.known().items():
        value = getattr(made, key)
        if value is not None:
            assert one.rule.check(**{key: value}) == value
        with pytest.raises(ValueError, match=key):
            one.rule.check(**{key: "nonsense"})


def test_texts_by_name():
    assert shared.named_texts(["a-b=1,2", " c =x=y"]) == {"a_b": "1,2", "c": "x=y"}
    assert shared.named_texts([]) == {}


def test_json_of_a_question_is_one_document(capsys):
    asked = ["epsilon", *RUN, *ADD, "--delta", "1e-5", "--json"]
    code, out, err = command(capsys, *asked)
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["quantity"] == "epsilon" and found["given"] == 1e-5
    assert found["lower"] <= found["resolution"][0] <= found["upper"] == found["resolution"][1]
