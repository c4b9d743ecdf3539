"""What commands print is what the questions answer; and what files and options they refuse."""

import json
import math

import pytest

pytest.importorskip("torch")

import fedprivacy as fp
from fedprivacy.audit.imports import Unseen
from fedprivacy.cli.answers import ANSWERS

from .test_command_line import command

ZERO = ["--adjacency", "zero_out"]
NOISE = ["--noise-multiplier", "2"]
STEP = fp.Gaussian(noise_multiplier=2.0)
# Options, and the run that they describe.
RUNS = {
    "one release": (NOISE, STEP.sampled(fp.Everyone()) * 1),
    "rounds": ([*NOISE, "--rounds", "3"], STEP.sampled(fp.Everyone()) * 3),
    "drawn": (
        [*NOISE, "--rounds", "5", "--sampling-probability", "0.1"],
        STEP.sampled(fp.Poisson(0.1)) * 5,
    ),
    "cohorts": (
        [*NOISE, "--rounds", "5", "--cohort", "3", "--population", "40"],
        STEP.sampled(fp.FixedSize(3, population=40)) * 5,
    ),
    "cut cohorts": (
        [*NOISE, "--sampling-probability", "0.1", "--population", "40", "--largest-cohort", "9"],
        STEP.sampled(fp.TruncatedPoisson(0.1, population=40, largest=9)) * 1,
    ),
}
FACTS = [
    ("zero_out", "aggregate"),
    ("zero_out", "server"),
    ("replace_one", "aggregate"),
    ("add_remove", "aggregate"),
]


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


@pytest.mark.parametrize(("adjacency", "observer"), FACTS)
@pytest.mark.parametrize("what", RUNS)
def test_epsilon_and_delta_are_those_of_the_run(capsys, what, adjacency, observer):
    words, run = RUNS[what]
    seen = ["--adjacency", adjacency, "--observer", observer]
    facts = {"adjacency": adjacency, "observer": observer}
    found = answered(capsys, "epsilon", *words, *seen, "--delta", "1e-4")
    assert found == json.loads(json.dumps(fp.epsilon(run, delta=1e-4, **facts).to_dict()))
    found = answered(capsys, "delta", *words, *seen, "--epsilon", "0.5")
    assert found == json.loads(json.dumps(fp.delta(run, epsilon=0.5, **facts).to_dict()))


@pytest.mark.parametrize("unit", ["client", "record"])
@pytest.mark.parametrize("accountant", ["pld", "rdp", "advanced"])
def test_whose_data_and_by_whom_it_is_accounted_is_said(capsys, unit, accountant):
    words = ["epsilon", *NOISE, *ZERO, "--delta", "1e-4", "--unit", unit]
    code, out, _ = command(capsys, *words, "--accountant", accountant)
    run = fp.Gaussian(noise_multiplier=2.0, unit=unit).sampled(fp.Everyone()) * 1
    bound = fp.epsilon(run, delta=1e-4, adjacency="zero_out", accountant=accountant)
    lines = out.splitlines()
    assert code == 0 and lines[0] == str(bound) and f"{unit} level" in lines[0]
    told = [f"  rests on: {each}" for each in bound.theorems]
    told += [f"  assumes: {each}" for each in bound.assumptions]
    told = [f"  attained by: {bound.witness}"] * bool(bound.witness) + told
    assert lines[1:] == told + [f"  wider than the tolerance: {bound.reason}"] * bool(bound.reason)


def test_a_tolerance_is_kept(capsys):
    words = ["epsilon", *RUNS["cohorts"][0], *ZERO, "--delta", "1e-4"]
    widths = []
    for tolerance in ("0.5", "1e-4"):
        found = answered(capsys, *words, "--tolerance", tolerance)
        widths.append(found["resolution"][1] - found["resolution"][0])
        assert widths[-1] <= float(tolerance)
    assert widths[0] > widths[1]


@pytest.mark.parametrize("name", ["noise-multiplier", "rounds", "sampling-probability"])
def test_a_calibrated_value_meets_its_budget_and_the_next_one_does_not(capsys, name):
    given = {"noise-multiplier": "2", "rounds": "20", "sampling-probability": "0.1"}
    del given[name]
    words = [word for option, value in given.items() for word in (f"--{option}", value)]
    budget = ["--epsilon", "0.8", "--delta", "1e-4", *ZERO]
    found = answered(capsys, "calibrate", "--solve-for", name, *words, *budget)
    assert found["parameter"] == name.replace("-", "_") and found["bound"]["upper"] <= 0.8
    step = {"noise-multiplier": 0.99, "rounds": 1.0, "sampling-probability": 1.01}[name]
    worse = found["value"] * step + (name == "rounds")
    given |= {name: f"{worse:.0f}" if name == "rounds" else str(worse)}
    words = [word for option, value in given.items() for word in (f"--{option}", value)]
    again = answered(capsys, "epsilon", *words, *budget[2:])
    assert again["resolution"][1] > 0.8
    del given[name]
    words = [word for option, value in given.items() for word in (f"--{option}", value)]
    code, out, _ = command(capsys, "calibrate", "--solve-for", name, *words, *budget)
    assert code == 0 and out.startswith(f"{found['parameter']} = {found['value']}\n")


def test_a_calibrated_value_is_printed_as_it_was_certified(capsys):
    words = ["--noise-multiplier", "4000", "--epsilon", "1", "--delta", "1e-5", *ZERO]
    code, out, _ = command(capsys, "calibrate", "--solve-for", "rounds", *words)
    assert code == 0 and out.startswith("rounds = 1149622\n")


def test_a_trade_off_is_that_of_the_run(capsys):
    words, run = RUNS["drawn"]
    found = answered(capsys, "tradeoff", *words, *ZERO, "--fpr", "0,0.01,0.5,1")
    curve = fp.tradeoff_curve(run, adjacency="zero_out", fpr=[0.0, 0.01, 0.5, 1.0])
    assert found == json.loads(json.dumps(curve.to_dict()))
    code, out, _ = command(capsys, "tradeoff", *words, *ZERO, "--fpr", "0.5")
    head, line, *grounds = out.splitlines()
    assert head.endswith("(zero_out, aggregate)")
    told = [f"  attained by: {curve.witness}", *(f"  rests on: {one}" for one in curve.theorems)]
    assert grounds == told + [f"  assumes: {one}" for one in curve.assumptions]
    rate, least, known = line.replace(",", "").replace(":", "").split()
    assert (code, rate) == (0, "0.5") and float(least) <= curve.worst.lower[2]
    assert float(known) >= curve.worst.attained[2]


def test_a_certificate_is_the_bounds_own(capsys, tmp_path):
    path, (words, run) = tmp_path / "one.json", RUNS["drawn"]
    answered(capsys, "epsilon", *words, *ZERO, "--delta", "1e-4", "--certificate", str(path))
    wanted = fp.epsilon(run, delta=1e-4, adjacency="zero_out").certificate()
    assert json.loads(path.read_text()) == json.loads(json.dumps(wanted))


def test_verify_tells_each_file_and_ends_with_the_worst(capsys, tmp_path):
    pytest.importorskip("flint")
    bound = fp.epsilon(STEP, delta=1e-4, adjacency="zero_out")
    right, wrong, none = (tmp_path / name for name in ("a.json", "b.json", "c.json"))
    right.write_text(json.dumps(bound.certificate()))
    changed = bound.certificate()
    changed["bound"]["upper"] *= 0.5
    wrong.write_text(json.dumps(changed))
    none.write_text("[]")
    code, out, _ = command(capsys, "verify", str(right))
    assert code == 0 and out.startswith(f"{right}: ")
    for files, worst in (([right, wrong], 2), ([none, right], 2), ([right, right], 0)):
        code, out, err = command(capsys, "verify", *map(str, files), "--json")
        found = json.loads(out)["certificates"]
        assert [each["file"] for each in found] == list(map(str, files)), err
        assert code == worst == max(each["exit_code"] for each in found)
    assert "digest" in found[0]["said"] or found[0]["exit_code"] == 0
    assert "nowhere.json" in refused(capsys, "verify", str(tmp_path / "nowhere.json"))


# Audits

TYPED = [*NOISE, "--rounds", "4", "--sampling", "poisson", "--sampling-probability", "0.2"]
TYPED_RUN = STEP.sampled(fp.Poisson(0.2)) * 4


@pytest.mark.parametrize(
    ("epsilon", "verdict", "code"),
    [("9", "HOLDS", 0), ("0.01", "FAILS", 3)],
)
def test_strict_tells_the_verdict_by_the_exit_code(capsys, epsilon, verdict, code):
    words = ["audit", *TYPED, *ZERO, "--claim", f"{epsilon},1e-4"]
    ended, out, err = command(capsys, *words, "--strict")
    assert (ended, err) == (code, "") and out.startswith(verdict)
    assert command(capsys, *words)[0] == 0
    found = answered(capsys, *words)
    bound = fp.epsilon(TYPED_RUN, delta=1e-4, adjacency="zero_out")
    assert found["verdict"] == verdict == str(bound.verdict(float(epsilon)))
    assert found["bounds"]["aggregate"]["pld"]["upper"] == pytest.approx(bound.upper, abs=1e-3)
    assert found["claim"] == {"epsilon": float(epsilon), "delta": 1e-4}


def test_neither_ends_with_4(capsys):
    shuffled = [*NOISE, "--rounds", "4", "--sampling", "shuffled", "--rounds-per-epoch", "4"]
    words = ["audit", *shuffled, *ZERO, "--strict"]
    run = STEP.sampled(fp.Shuffled(4))
    bound = fp.epsilon(run, delta=1e-4, adjacency="zero_out")
    between = (bound.lower + bound.upper) / 2
    code, out, _ = command(capsys, *words, "--claim-epsilon", str(between), "--delta", "1e-4")
    assert code == 4 and out.startswith("CANNOT BE CERTIFIED")


def test_what_nobody_said_is_told_with_the_option_that_says_it(capsys):
    words = ["audit", *TYPED, *ZERO, "--claim", "9,1e-4"]
    said = {
        "steps_per_round": "1",
        "missing_shares": "0",
        "denominator": "public",
        "trials": "1",
    }
    assert set(said) == set(Unseen.__members__)
    for name, value in said.items():
        option = f"--{name.replace('_', '-')}"
        before, after = (
            " ".join(command(capsys, *words, *more)[1].split()) for more in ([], [option, value])
        )
        granted = f"assumed by default: {Unseen[name].value} ({option})"
        assert granted in before and granted not in after
        assert f"{name} = {value}" in after and "stated by the user but not recorded" in after


def test_a_file_and_the_same_numbers_typed_are_one_audit(capsys, tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(
        "noise_multiplier = 2.0\nrounds = 4\nsampling = 'poisson'\nsampling_probability = 0.2\n"
    )
    ask = [*ZERO, "--claim", "9,1e-4", "--trials", "2"]
    typed, read = (answered(capsys, "audit", *words, *ask) for words in (TYPED, [str(path)]))
    assert typed["verdict"] == read["verdict"]
    for observer, bounds in typed["bounds"].items():
        for name, bound in bounds.items():
            other = read["bounds"][observer][name]
            # What differs is whose word it is.
            assert {**bound, "qualified": []} == {**other, "qualified": []}
            assert bound["qualified"] != other["qualified"]
    twice = fp.epsilon(TYPED_RUN * 2, delta=1e-4, adjacency="zero_out")
    assert read["bounds"]["aggregate"]["pld"]["upper"] == pytest.approx(twice.upper, abs=1e-3)


SAMPLED = {
    "poisson": (["--sampling-probability", "0.25"], fp.Poisson(0.25)),
    "fixed": (["--cohort", "5", "--population", "20"], fp.FixedSize(5, population=20)),
    "with-replacement": (
        ["--cohort", "5", "--population", "20"],
        fp.WithReplacement(5, population=20),
    ),
    "everyone": ([], fp.Everyone()),
}


@pytest.mark.parametrize("name", SAMPLED)
def test_a_scheme_is_stated_for_a_file_that_names_none(capsys, tmp_path, name):
    path, (words, scheme) = tmp_path / "log.csv", SAMPLED[name]
    path.write_text("round,noise_multiplier\n" + "".join(f"{i},2.0\n" for i in range(3)))
    found = answered(
        capsys, "audit", str(path), "--sampling", name, *words, *ZERO, "--claim", "9,1e-4",
        "--observer", "server",
    )  # fmt: skip
    run = STEP.sampled(scheme) * 3
    bound = fp.epsilon(run, delta=1e-4, adjacency="zero_out", observer="server")
    assert found["bounds"]["server"]["pld"]["upper"] == pytest.approx(bound.upper, abs=1e-3)


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


REPORTS = {
    "page.html": lambda text: text.startswith("<!DOCTYPE html>"),
    "page.md": lambda text: text.startswith("#"),
    "page.json": lambda text: next(iter(json.loads(text)["runs"].values()))["verdict"] == "HOLDS",
}


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_is_written_in_the_form_of_its_name(capsys, tmp_path, name):
    path = ledger(tmp_path / "run.ledger")
    target = tmp_path / name
    code, out, err = command(capsys, "report", path, "--output", str(target), "--subject", "Us")
    assert (code, err) == (0, "") and out.endswith(f": {target}\n") and "HOLDS" in out
    assert REPORTS[name](target.read_text(encoding="utf-8"))
    assert "Privacy of Us" in target.read_text(encoding="utf-8")


OUTPUTS = {
    "no form": (["--output", "a.txt"], "path must end in .html, .md"),
    "no folder": (["--output", "nowhere/a.html"], "path must be in an existing folder"),
    "over the record": (["--output", "run.ledger"], "must differ from the files that are read"),
    "a deployment of a page": (
        ["--output", "a.html", "--deployment", "said.toml"],
        "deployment must be left out, got 'given'; it applies only to a path that ends in .yaml",
    ),
    "an entry of nobody": (
        ["--output", "a.yaml"],
        "deployment must be given for the registry: a dict with ",
    ),
    "no statement": (
        ["--output", "a.yaml", "--deployment", "none.toml"],
        "none.toml: could not read it: No such file or directory",
    ),
}


@pytest.mark.parametrize("what", OUTPUTS)
def test_a_report_that_has_no_place_is_not_written(capsys, tmp_path, monkeypatch, what):
    monkeypatch.chdir(tmp_path)
    ledger(tmp_path / "run.ledger")
    (tmp_path / "said.toml").write_text("name = 'us'\n")
    words, told = OUTPUTS[what]
    before = (tmp_path / "run.ledger").read_bytes()
    assert told in refused(capsys, "report", "run.ledger", *words)
    assert (tmp_path / "run.ledger").read_bytes() == before
    assert {each.name for each in tmp_path.iterdir()} == {"run.ledger", "said.toml"}


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
    _, out, _ = command(capsys, "explain", path, *EXPLAINED)
    assert out.count(", the ledger was not closed, the seed was fixed\n") == 6
    assert all(f"  but: {one}\n" in out for one in words)


def test_explain_counts_on_no_round_that_was_not_confirmed(capsys, tmp_path):
    with fp.Ledger.create(tmp_path / "run.ledger", unit="client", adjacency="zero_out") as made:
        made.intent(STEP, clip_norm=1.0, noise_std=2.0)
    found = answered(capsys, "explain", str(tmp_path / "run.ledger"), *EXPLAINED)
    assert found["attained_by"] is found["risk"]["witness"] is None
    assert found["risk"]["tpr"]["attained"] == found["risk"]["fpr"]


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
    """By hand: no other setting is as private and as cheap, and better in one of them."""
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
        "row 1 must have a cost, got ['label', 'noise_multiplier']; a column besides ",
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


def test_a_run_that_is_not_private_leaves_no_ledger(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    told = refused(capsys, "train", "--method", "fedavg", "--ledger", "a.ledger", "--rounds", "1")
    assert "--ledger must be left out, since fedavg is not private, got 'a.ledger'" in told
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", sorted(ANSWERS))
def test_every_schema_says_what_is_required_and_closes_nothing(capsys, name):
    """Fields may be added; whoever reads by the schema must not refuse those."""
    code, out, _ = command(capsys, "schema", name)
    found = json.loads(out)
    assert code == 0 and "$defs" in found
    for kind in found["$defs"].values():
        if kind.get("type") == "object":
            assert set(kind.get("required", ())) <= set(kind["properties"])
            assert kind.get("additionalProperties", True) is True
