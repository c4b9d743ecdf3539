"""Refusals of runs, sweeps, own files and writers, and the files that they leave."""

import csv
import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch")

import torch

import fedprivacy as fp
from fedprivacy import training
from fedprivacy.mechanisms.selection import LAWS
from fedprivacy.runs import (
    own_data,
    parallel,
    pictures,
    private_sweep,
    progress_logging,
    run_specs,
    sources,
    sweep,
)
from fedprivacy.runs.demo import run_demo
from fedprivacy.runs.experiment import Experiment, default_delta
from fedprivacy.runs.jobs import job
from fedprivacy.systems.settings import Setting, axis, read
from tests.contract.test_refused_calls import fits

SETTINGS = settings(derandomize=True, deadline=None, max_examples=25)
FACTS = {"epsilon": 8.0, "delta": 1e-3, "adjacency": "zero_out"}


def small(clients=4, records=2):
    count = clients * records
    labels = torch.arange(count) % 2
    features = torch.stack([labels * 2.0 - 1.0, torch.ones(count)], dim=1)
    return training.FederatedData(
        name="small",
        features=features,
        labels=labels,
        clients=tuple(np.arange(count).reshape(clients, records)),
        test_features=features,
        test_labels=labels,
        num_classes=2,
    )


OWN = small()


def averaged(method="dp-fedavg", **changed):
    return job(method, **{"data": OWN, "rounds": 1, **changed})


def swept(folder="nowhere", **changed):
    given = {"method": "dp-fedavg", "grid": {"rounds": [1]}, "folder": folder, **FACTS}
    return sweep.Sweep(**{**given, "source": {"data": OWN}, **changed})


def selected(**changed):
    law = LAWS["geometric"](2.0)
    return private_sweep.PrivateSweep(sweep=swept(**changed), trials=law, public_test=True)


def sampled(**given):
    return run_specs.SampledRun.of({"noise_multiplier": 1.0, **given}).scheme


def refused_at_once(**changed):
    return lambda: averaged(**changed).loop(1.0, 0)


CALLS = {
    # settings of averaging
    "bits of noise that has none": (
        refused_at_once(bits=8),
        "bits must be left out, since gaussian noise is not an integer, got 8; choose noise "
        "from 'discrete-gaussian' or 'skellam'",
    ),
    "away from a learned norm": (
        refused_at_once(clip_quantile=0.5, missing=1, strategy="fixed", cohort=3),
        "missing must be 0 with clip_quantile, which has no noise shares, got 1; leave out "
        "clip_quantile",
    ),
    "whole numbers of a learned norm": (
        refused_at_once(clip_quantile=0.5, noise="skellam"),
        "noise must be gaussian with clip_quantile, got 'skellam'; leave out clip_quantile",
    ),
    "bits of a learned norm": (
        refused_at_once(clip_quantile=0.5, bits=8),
        "bits must be left out with clip_quantile, got 8; leave out clip_quantile",
    ),
    "colluding in cohorts that vary": (
        refused_at_once(colluding=1),
        "colluding must be 0 for Poisson cohorts with topped-up noise, got 1; use "
        "strategy=fixed for cohorts of a fixed size",
    ),
    "a cohort of more than all": (
        refused_at_once(cohort=5),
        "cohort must be at most the number of clients, 4, got 5",
    ),
    "a chance and a cohort": (
        refused_at_once(sampling_probability=0.5, cohort=2),
        "cohort must be left out, since sampling_probability states the sampling, got 2",
    ),
    "a chance and a way to draw": (
        refused_at_once(sampling_probability=0.5, strategy="fixed"),
        "strategy must be left out, since sampling_probability states the sampling, got 'fixed'",
    ),
    "a mask of no public data": (
        lambda: averaged("fed-smp-top-k").loop(1.0, 0),
        "public_features must be given for top_k, whose mask is computed from public data, got ...",
    ),
    "a chain's model by a name": (
        lambda: job("fa-ld", OWN, model="mlp"),
        "model must be left out, since this method has its own model, got 'mlp'; pass a "
        "Posterior to a sampler: --posterior FILE.py:NAME",
    ),
    "data beside a posterior": (
        lambda: job("fa-ld", OWN, model="mine.py:target"),
        "data, clients must be left out, since a posterior contains the records of its ...",
    ),
    "a bound on inputs of a module": (
        lambda: job("fed-plt", OWN, model="logistic", feature_bound=1.0),
        "feature_bound must be left out for a module, which does not scale inputs, got 1.0; "
        "use clip_norm to bound a record",
    ),
    # data and models by name
    "a folder for data at hand": (
        lambda: sources.load_data(OWN, data_dir="there"),
        "data_dir must be left out, since small is not read from a folder, got 'there'",
    ),
    "a folder for digits": (
        lambda: sources.load_data("digits", data_dir="there"),
        "data_dir must be left out, since digits is not read from a folder, got 'there'",
    ),
    "another split of data at hand": (
        lambda: sources.load_data(OWN, clients=2),
        "clients, classes_per_client must be left out, since these data are already split, "
        "got (2, None)",
    ),
    "other classes of data at hand": (
        lambda: sources.load_data(OWN, classes_per_client=1),
        "clients, classes_per_client must be left out, since these data are already split, "
        "got (None, 1)",
    ),
    "data of no name": (
        lambda: sources.load_data("iris"),
        "data must be one of 'digits' or 'fashion-mnist', or a file that ends in .npz, got 'iris'",
    ),
    "a model of no name": (
        lambda: sources.model_for("vgg", OWN),
        "model must be one of 'logistic', 'mlp' or 'cnn', or FILE.py:NAME, got 'vgg'",
    ),
    "a place without a file": (
        lambda: own_data.model_at(":build"),
        "model must be FILE.py:NAME or package.module:NAME, got ':build'",
    ),
    "a place whose name is none": (
        lambda: own_data.posterior_at("mine.py:1st"),
        "posterior must be FILE.py:NAME or package.module:NAME, got 'mine.py:1st'",
    ),
    "a module that is none": (
        lambda: own_data.check_model(lambda: 3, OWN),
        "model must build an nn.Module, got 'int'",
    ),
    "a module that is not built": (
        lambda: own_data.check_model(lambda: 1 // 0, OWN),
        "model must be built without arguments (integer division or modulo by zero), got 'ZeroDiv"
        "isionError'",
    ),
    "a module of three classes": (
        lambda: own_data.check_model(lambda: torch.nn.Linear(2, 3), OWN),
        "model's output must have shape (records, 2 classes), got (3, 3)",
    ),
    "a module without an end": (
        lambda: own_data.check_model(infinite, OWN),
        "model's output must be finite, got 'NaN or infinity'; check the initial parameters, "
        "since no update would be finite",
    ),
    # the budget of a run
    "a delta that would tell": (
        lambda: default_delta(40, "add_remove"),
        "delta must be given for add_remove, since n^-1.1 would reveal the number of units, "
        "got None",
    ),
    "nobody who answers": (
        lambda: Experiment(job=averaged(), **FACTS, dropout_rate=1.0),
        "dropout_rate must be below 1, got 1.0; otherwise no client answers",
    ),
    "an evaluation never": (
        lambda: Experiment(job=averaged(), **FACTS, evaluate_every=0),
        "evaluate_every must be an integer of at least 1, got 0",
    ),
    "no noise": (
        lambda: Experiment(job=averaged(), **FACTS, level=0.0),
        "noise_multiplier must be a finite number above 0, got 0.0",
    ),
    "noise without privacy": (
        lambda: Experiment(job=averaged("fedavg"), **FACTS, level=1.0).run(),
        "level must be left out, since this run is not private, got 1.0",
    ),
    "a private run without a ledger": (
        lambda: Experiment(job=averaged(), **FACTS, level=9.0).run(),
        "ledger_path must be given, got None; a private run needs a ledger",
    ),
    # sweeps
    "a sweep without privacy": (
        lambda: swept(method="fedavg"),
        "method must be one of 'dp-fedavg', ..., got 'fedavg'",
    ),
    "no repeat": (lambda: swept(seeds=0), "seeds must be an integer of at least 1, got 0"),
    "a grid over partitions": (
        lambda: swept(grid={"classes_per_client": [1, 2]}),
        "classes_per_client must be the same for all settings, got [1, 2]; runs on different "
        "partitions protect different units; sweep each partition separately",
    ),
    "values that are one": (
        lambda: swept(grid={"rounds": 3}),
        "rounds must be a list of at least one value, got 3",
    ),
    "a value twice": (
        lambda: swept(grid={"rounds": [3, 3.0]}),
        "rounds must contain every value at most once, got [3, 3.0]",
    ),
    "values that are lists": (
        lambda: swept(grid={"rounds": [[3], [4]]}),
        "rounds must contain numbers or words, got [[3], [4]]",
    ),
    "a test set that may be secret": (
        lambda: private_sweep.PrivateSweep(sweep=swept(), trials=LAWS["geometric"](2.0)),
        "public_test must be True, since the test data select the best trial, got False; pass ...",
    ),
    "a test set that is public somehow": (
        lambda: private_sweep.PrivateSweep(
            sweep=swept(), trials=LAWS["geometric"](2.0), public_test=1
        ),
        "public_test must be True, since the test data select ...",
    ),
    "repeats of a private sweep": (
        lambda: selected(seeds=2),
        "seeds must be 1, since every repeat would be a trial, got 2",
    ),
    "a private sweep without a budget": (
        lambda: selected(epsilon=None),
        "epsilon must be given as the budget of the whole selection, got None",
    ),
    "a budget that is less than a selection": (
        lambda: selected(epsilon=0.1, grid={"noise_multiplier": [0.5]}).trial_epsilon,
        "epsilon must be enough for the selection, which costs ..., got 0.1; raise epsilon, "
        "draw fewer trials, or add noise",
    ),
    # several at once
    "work in threads": (
        lambda: parallel.check_backend("threading", 2),
        "backend must not be threads, which share torch's randomness, got 'threading'; use "
        "'loky', which uses processes",
    ),
    "work in a place of no name": (
        lambda: parallel.check_backend("cloud", 2),
        "backend must be one of 'sequential', 'loky', 'dask' or 'ray', got 'cloud'",
    ),
    "no job at all": (
        lambda: parallel.each([], jobs=0),
        "jobs must be an integer of at least 1, got 0",
    ),
    # runs of a few numbers
    "a cohort of nobody's": (
        lambda: sampled(cohort=3),
        "cohort and population must be given together, got (3, None)",
    ),
    "a population of nobody's": (
        lambda: sampled(population=3),
        "cohort and population must be given together, got (None, 3)",
    ),
    "a chance beside a cohort": (
        lambda: sampled(sampling_probability=0.5, cohort=3),
        "sampling_probability must be given without cohort, got 0.5",
    ),
    "a largest cohort without a chance": (
        lambda: sampled(largest_cohort=3, population=9),
        "largest_cohort must be given with sampling_probability and population, without cohort, "
        "got 3",
    ),
    "a largest cohort beside a cohort": (
        lambda: sampled(largest_cohort=3, population=9, sampling_probability=0.5, cohort=2),
        "largest_cohort must be given with sampling_probability and population, without cohort, "
        "got 3",
    ),
    "an epoch without its length": (
        lambda: sampled(sampling="shuffled", rounds=20),
        "rounds_per_epoch must be given with sampling 'shuffled' or 'allocation', got None",
    ),
    "an epoch and a cohort": (
        lambda: sampled(sampling="allocation", rounds_per_epoch=10, rounds=20, cohort=3),
        "cohort must be left out, since an epoch has every unit once, got 3",
    ),
    "a part of an epoch": (
        lambda: sampled(sampling="allocation", rounds_per_epoch=10, rounds=25),
        "rounds must be a multiple of the 10 rounds of an epoch, got 25",
    ),
    "draws with replacement from nothing": (
        lambda: sampled(sampling="with-replacement", cohort=3),
        "sampling must be given with cohort and population only, got 'with-replacement'",
    ),
    "a cost that is none": (
        lambda: run_specs.runs_of_grid({"noise_multiplier": [1.0]}, None, ["beauty"]),
        "--cost must be one of 'noise', 'averaged-noise', 'uploads' or 'rounds', got 'beauty'",
    ),
    # reported and drawn values
    "a budget of less than nothing": (
        lambda: progress_logging.Meter(None, delta=1e-5, adjacency="zero_out", epsilon=-1.0),
        "epsilon must be a finite number of at least 0, got -1.0",
    ),
    "a line every 0 rounds": (
        lambda: progress_logging.to_csv(
            "rounds.csv", None, every=0, delta=1e-5, adjacency="zero_out"
        ),
        "every must be an integer of at least 1, got 0",
    ),
    "a picture of no kind": (
        lambda: pictures.check_picture("curve.doc"),
        "path must end in one of ..., got 'curve.doc'",
    ),
    "a picture nowhere": (
        lambda: pictures.check_picture("nowhere/curve.png"),
        "path must be in an existing folder, got 'nowhere/curve.png'; create the folder ...",
    ),
    # settings as texts
    "a number that is two": (
        lambda: ROUNDS.read("1 2"),
        "rounds must be an integer of at least 1, got '1 2'; pass a number",
    ),
    "a number with a power": (
        lambda: ROUNDS.read("\u00b2"),
        "rounds must be an integer of at least 1, got '²'; pass a number",
    ),
    "a number of too many digits": (
        lambda: ROUNDS.read("9" * 5000),
        "rounds must be an integer of at least 1, got '999...'; pass a number",
    ),
    "a number that is left open": (
        lambda: ROUNDS.read("all"),
        "rounds must be an integer of at least 1, got 'all'; pass a number",
    ),
    "no value between commas": (
        lambda: read({"rounds": ROUNDS}, {"rounds": "1,,2"}),
        "rounds must be an integer of at least 1, got ''; pass a number",
    ),
    "an axis of nothing": (
        lambda: axis("rounds", ()),
        "rounds must contain at least one value, got ()",
    ),
}
ROUNDS: Setting = run_specs.SampledRun.known()["rounds"]


def infinite():
    module = torch.nn.Linear(2, 2)
    torch.nn.init.constant_(module.weight, math.inf)
    return module


@pytest.mark.parametrize("what", CALLS)
def test_what_a_run_refuses_says_all_four(what, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    call, wanted = CALLS[what]
    with pytest.raises(fp.ParameterError) as caught:
        call()
    assert fits(str(caught.value), wanted), str(caught.value)
    assert list(tmp_path.iterdir()) == []


@given(units=st.integers(1, 10**9))
@SETTINGS
def test_the_usual_delta_is_below_one_in_n_and_a_tenth_and_has_two_digits(units):
    found = default_delta(units, "zero_out")
    assert found <= min(0.1, units**-1.1) and found == float(f"{found:.1e}")
    # Rounded down by less than a digit.
    assert found >= 0.9 * min(0.1, units**-1.1)


# ---- folders of sweeps


def test_a_folder_with_other_ledgers_is_not_a_sweep_s(tmp_path):
    with fp.Ledger.create(tmp_path / "mine.ledger", unit="client", adjacency="zero_out"):
        pass
    one = swept(tmp_path, grid={"noise_multiplier": [3.0]}, epsilon=None)
    with pytest.raises(fp.ParameterError) as caught:
        one.train(one.labels[0])
    told = "folder must contain only ledgers of this sweep, got ...; name another folder"
    assert fits(str(caught.value), told)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.ledger"]


NOTES = {
    "no text": (b"\xff", "must be JSON, got 'utf-8' codec"),
    "no JSON": (b"{", "must be JSON, got Expecting property name"),
    "nested without end": (b"[" * 10**5, "must be JSON, got maximum recursion"),
    "a list": (b"[]", "folder must be that of a sweep with the same method, got"),
    "a number": (b"3", "folder must be that of a sweep with the same method, got"),
    "another seed": (None, "folder must be that of a sweep with the same seed, got"),
}


@pytest.mark.parametrize("what", NOTES)
def test_a_folder_s_note_must_be_the_sweep_s(tmp_path, what):
    content, told = NOTES[what]
    one = swept(tmp_path, grid={"noise_multiplier": [3.0]}, epsilon=None)
    if content is None:
        replace(one, seed=5)._open_folder()
    else:
        (tmp_path / sweep.NOTE).write_bytes(content)
    before = (tmp_path / sweep.NOTE).read_bytes()
    with pytest.raises(fp.ParameterError, match=told) as caught:
        one.train(one.labels[0])
    assert str(caught.value).endswith("name another folder")
    assert (tmp_path / sweep.NOTE).read_bytes() == before and len(list(tmp_path.iterdir())) == 1


@given(
    values=st.lists(st.sampled_from([1, 2.5, "a/b", "x", None, True]), max_size=3, unique_by=str),
    repeat=st.integers(0, 3),
)
@SETTINGS
def test_a_setting_s_files_have_names_of_their_own_in_the_folder(values, repeat):
    label = {f"n{number}": value for number, value in enumerate(values)}
    name = sweep._name(label, repeat)
    assert name and "/" not in name
    assert name != sweep._name(label, repeat + 1)
    assert all(f"{key}=" in name for key in label)


def test_seeds_of_a_sweep_are_each_run_s_own():
    one = swept(seed=3)
    found = [one.seed_of(name) for name in ("a", "b", "a,repeat=2")]
    assert len(set(found)) == 3 and all(0 <= seed < 2**48 for seed in found)
    assert found[0] == swept(seed=3).seed_of("a") != swept(seed=4).seed_of("a")
    assert swept(seed=None).seed_of("a") is None


def test_a_table_of_runs_keeps_rows_of_other_settings_whose_ledgers_are_there(tmp_path):
    one = swept(tmp_path)
    for name in ("a.ledger", "b.ledger"):
        (tmp_path / name).write_text("")
    one.write([({"rounds": 1}, (tmp_path / "a.ledger", {"accuracy": 0.5, "MB": [1.0, 2.0]}))])
    one.write([({}, (tmp_path / "b.ledger", {"accuracy": 0.75, "MB": 3.0}))])
    rows = list(csv.DictReader((tmp_path / "runs.csv").read_text().splitlines()))
    assert [(row["label"], row["accuracy"], row["MB"]) for row in rows] == [
        ("rounds = 1", "0.5", "1.0;2.0"),
        ("run", "0.75", "3.0"),
    ]
    # Again replaces; a ledger that is gone takes its row along.
    (tmp_path / "b.ledger").unlink()
    one.write([({"rounds": 1}, (tmp_path / "a.ledger", {"accuracy": 0.25, "MB": 1.0}))])
    rows = list(csv.DictReader((tmp_path / "runs.csv").read_text().splitlines()))
    assert [(row["ledger"], row["accuracy"]) for row in rows] == [("a.ledger", "0.25")]


# ---- files of settings

FILES = {
    "no setting": (
        "s.csv",
        "label,noise_multiplier\n",
        "SETTINGS must contain at least one setting",
    ),
    "no text": ("s.csv", b"\xff\xfe\xfa", "SETTINGS must be CSV, or JSON with the ending .json"),
    "an open quote": (
        "s.csv",
        'label,cost\n"a,1\n',
        "SETTINGS must be CSV, or JSON with the ending .json",
    ),
    "an object": ("s.json", '{"label": "a"}', "SETTINGS must be a list of objects"),
    "a list of numbers": ("s.json", "[1, 2]", "SETTINGS must be a list of objects"),
    "a cell too many": (
        "s.csv",
        "noise_multiplier,cost\n1,2,3\n",
        "row 1 must have one number for every column of the header",
    ),
    "no cost": (
        "s.csv",
        "noise_multiplier\n1\n",
        "row 1 must have a cost, got ['noise_multiplier']; add a column beside",
    ),
    "numbers beside a ledger": (
        "s.csv",
        "ledger,rounds,cost\na.ledger,3,1\n",
        "row 1 must be left out with a ledger, got ['rounds']",
    ),
    "no noise": (
        "s.csv",
        "rounds,cost\n3,1\n",
        "noise_multiplier must be above 0, got None; pass it, since it has no default",
    ),
    "a number that is none": (
        "s.csv",
        "noise_multiplier,cost\n1,2\nmuch,2\n",
        "row 2: noise_multiplier must be above 0, got 'much'; pass a number",
    ),
}


@pytest.mark.parametrize("what", FILES)
def test_a_file_of_settings_that_does_not_fit_is_named_by_its_row(tmp_path, what):
    name, content, wanted = FILES[what]
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(fp.ParameterError) as caught:
        run_specs.runs_of_file(path, None, [])
    assert wanted in str(caught.value), str(caught.value)


@pytest.mark.parametrize(
    ("cost", "told"),
    [
        ("rounds", "--cost must not be a column that describes a run, got 'rounds'"),
        ("label", "--cost must not be a column that describes a run, got 'label'"),
        ("time", "--cost must be a column with a value in row 2, got 'time'"),
    ],
)
def test_a_cost_must_be_a_column_of_every_row(tmp_path, cost, told):
    path = tmp_path / "s.csv"
    path.write_text("label,noise_multiplier,time\na,1,5\nb,2,\n")
    with pytest.raises(fp.ParameterError) as caught:
        run_specs.runs_of_file(path, None, [cost])
    assert str(caught.value) == told


def test_rows_become_runs_with_their_costs(tmp_path):
    path = tmp_path / "s.csv"
    # As a spreadsheet writes it, with a mark in front.
    path.write_text(
        "\ufeffnoise_multiplier,sampling_probability,rounds,unit,seconds,where\n"
        "1.5,0.25,4,record,3;5,here\n2,,,,7,there\n"
    )
    first, second = run_specs.runs_of_file(path, "client", ["seconds"])
    assert first[1][1] == {"seconds": ["3", "5"]} and second[1][1] == {"seconds": "7"}
    noisy = fp.Gaussian(noise_multiplier=1.5, unit="record").sampled(fp.Poisson(0.25)) * 4
    assert first[1][0] == noisy
    assert (
        second[1][0] == fp.Gaussian(noise_multiplier=2.0, unit="client").sampled(fp.Everyone()) * 1
    )
    told = "noise_multiplier = 1.5, sampling_probability = 0.25, rounds = 4, unit = record"
    assert first[0] == f"{told}, where = here"


@given(
    noise=st.floats(0.1, 10.0),
    cohort=st.integers(1, 50),
    more=st.integers(0, 50),
    rounds=st.integers(1, 99),
)
@SETTINGS
def test_costs_that_numbers_tell_are_those_of_the_share_that_takes_part(
    noise, cohort, more, rounds
):
    given = {"noise_multiplier": noise, "rounds": rounds}
    fixed = run_specs.SampledRun(**given, cohort=cohort, population=cohort + more)
    share = cohort / (cohort + more)
    drawn = run_specs.SampledRun(**given, sampling_probability=share)
    for name, cost in run_specs.GRID_COSTS.items():
        assert cost(fixed) == cost(drawn), name
    assert run_specs.GRID_COSTS["uploads"](fixed) == pytest.approx(share * rounds)
    assert run_specs.GRID_COSTS["noise"](fixed) == pytest.approx(noise / share)
    averaged = run_specs.GRID_COSTS["averaged-noise"](fixed)
    assert averaged == pytest.approx(noise / share / math.sqrt(rounds))
    assert run_specs.SampledRun(**given).rate == 1.0


# ---- the demo's places


@pytest.mark.parametrize(
    ("output", "ledgers", "wanted"),
    [
        ("page.pdf", None, "output must be a .html file, got "),
        ("none/page.html", None, "output must be in an existing folder, got "),
        ("page.html", "full", "ledgers must be a new or empty folder, got "),
        ("page.html", "full/mine", "ledgers must be a new or empty folder, got "),
    ],
)
def test_the_demo_overwrites_nothing(tmp_path, output, ledgers, wanted):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("here")
    folder = None if ledgers is None else tmp_path / ledgers
    with pytest.raises(fp.ParameterError) as caught:
        run_demo({}, tmp_path / output, folder)
    assert str(caught.value).startswith(wanted)
    assert (tmp_path / "full" / "mine").read_text() == "here" and len(list(tmp_path.iterdir())) == 1


# ---- several at once


def test_results_are_in_their_order_and_each_is_told_when_it_is_done():
    came = []
    calls = [lambda n=n: came.append(("run", n)) or n * n for n in range(4)]
    done = lambda place: came.append(("done", place))  # noqa: E731
    assert parallel.each(calls, jobs=3, backend="sequential", done=done) == [0, 1, 4, 9]
    assert came == [(what, n) for n in range(4) for what in ("run", "done")]
    assert parallel.each([], jobs=2, backend="sequential") == []


def test_a_call_that_fails_stops_the_rest():
    came = []
    calls = [lambda: came.append(0), lambda: 1 // 0, lambda: came.append(2)]
    with pytest.raises(ZeroDivisionError):
        parallel.each(calls, backend="sequential")
    assert came == [0]


@pytest.mark.parametrize("backend", ["dask", "ray"])
def test_a_cluster_that_is_not_installed_is_named(monkeypatch, backend):
    def absent(name):
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(parallel.importlib, "import_module", absent)
    with pytest.raises(fp.ParameterError) as caught:
        parallel.check_backend(backend, 1)
    package = {"dask": "'dask[distributed]'", "ray": "ray"}[backend]
    assert fits(
        str(caught.value),
        f"backend must be one that is installed, got {backend!r} (No module named ...); pip "
        f"install {package}, or use another of 'sequential', 'loky', 'dask' or 'ray'",
    )


# ---- progress logging


def round_info(number, **changed):
    given = {"cohort": 3, "arrived": 2, "refused": 1, "aborted": False, "upload_bytes": 40}
    return training.RoundInfo(round=number, noise_std=1.0, **{**given, **changed})


class Plain:
    """A loop without privacy."""

    round_mechanism = None


@pytest.mark.parametrize("name", ["parameters", "positions", "models"])
def test_a_meter_tells_how_far_a_release_moved(name):
    meter = progress_logging.Meter(Plain(), delta=1e-5, adjacency="zero_out")
    states = [SimpleNamespace(round=n, **{name: torch.tensor([3.0 * n, 4.0 * n])}) for n in (1, 3)]
    first, second = (meter(state, round_info(state.round - 1)) for state in states)
    assert "released_change" not in first and second["released_change"] == 10.0
    assert "epsilon_upper" not in second and "budget_left" not in second
    told = {key: second[f"not_covered_{key}"] for key in ("cohort", "arrived", "refused")}
    assert told == {"cohort": 3.0, "arrived": 2.0, "refused": 1.0}


def test_a_meter_keeps_a_copy_of_what_was_released():
    meter = progress_logging.Meter(Plain(), delta=1e-5, adjacency="zero_out")
    held = torch.zeros(2, dtype=torch.float64)
    meter(SimpleNamespace(round=1, parameters=held), round_info(0))
    held += 3.0
    moved = meter(SimpleNamespace(round=2, parameters=held), round_info(1))["released_change"]
    assert moved == pytest.approx(3.0 * math.sqrt(2.0))
    nothing = SimpleNamespace(round=3)
    assert meter(nothing, round_info(2))["round"] == 3.0


def test_a_table_goes_on_where_it_was_and_lands_on_no_ledger(tmp_path):
    path = tmp_path / "rounds.csv"
    for number in (1, 2):
        write = progress_logging.to_csv(path, Plain(), delta=1e-5, adjacency="zero_out")
        write(SimpleNamespace(round=number), round_info(number - 1))
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert [row["round"] for row in rows] == ["1.0", "2.0"] and rows[0]["epsilon_upper"] == ""
    book = tmp_path / "run.ledger"
    with fp.Ledger.create(book, unit="client", adjacency="zero_out"):
        pass
    before = book.read_bytes()
    with pytest.raises(fp.errors.ParameterError, match="not be a ledger, since the record of"):
        progress_logging.to_csv(book, Plain(), delta=1e-5, adjacency="zero_out")
    # Nor on one that takes its place while it runs.
    path.write_bytes(before)
    with pytest.raises(fp.errors.ParameterError, match="not be a ledger, since the record of"):
        write(SimpleNamespace(round=3), round_info(2))
    assert book.read_bytes() == path.read_bytes() == before


# ---- one's own files


def saved(path, **changed):
    arrays = {
        "features": np.arange(12.0).reshape(6, 2),
        "labels": np.array([0, 1, 2, 0, 1, 2]),
        "test_features": np.zeros((2, 2)),
        "test_labels": np.array([0, 1]),
        **changed,
    }
    np.savez(path, **{name: value for name, value in arrays.items() if value is not None})
    return path


@given(owners=st.lists(st.sampled_from(["b", "a", "c"]), min_size=6, max_size=6))
@SETTINGS
def test_every_record_stays_with_its_owner(tmp_path_factory, owners):
    path = saved(tmp_path_factory.mktemp("own") / "mine.npz", clients=np.array(owners))
    found = own_data.read_npz(path)
    # Clients in the order of their names, records in the file's.
    wanted = [
        [n for n, owner in enumerate(owners) if owner == name] for name in sorted(set(owners))
    ]
    assert [rows.tolist() for rows in found.clients] == wanted
    assert found.features.tolist() == np.arange(12.0).reshape(6, 2).tolist()


@pytest.mark.parametrize(
    ("split", "sizes"),
    [
        ({"clients": 6}, [1] * 6),
        ({"clients": 4}, [2, 2, 1, 1]),
        ({"clients": 1}, [6]),
        ({"clients": 3, "classes_per_client": 1}, [2, 2, 2]),
    ],
)
def test_a_file_that_names_nobody_is_split_as_asked(tmp_path, split, sizes):
    path = saved(tmp_path / "mine.npz")
    found = own_data.read_npz(path, **split, seed=1)
    assert sorted(map(len, found.clients), reverse=True) == sizes
    assert sorted(np.concatenate(found.clients)) == list(range(6))
    again = own_data.read_npz(path, **split, seed=1)
    assert all(map(np.array_equal, found.clients, again.clients))
    if "classes_per_client" in split:
        assert all(len(set(found.labels[rows].tolist())) == 1 for rows in found.clients)


@pytest.mark.parametrize(("clients", "classes"), [(7, None), (4, 2)])
def test_a_file_has_a_record_for_every_client_or_is_refused(tmp_path, clients, classes):
    path = saved(tmp_path / "mine.npz")
    with pytest.raises(fp.ParameterError, match=r"clients must be at most .*use fewer clients"):
        own_data.read_npz(path, clients=clients, classes_per_client=classes)


def test_code_that_cannot_be_run_is_told_with_its_first_line(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("raise RuntimeError('first\\nsecond')\n")
    with pytest.raises(fp.ParameterError) as caught:
        own_data.model_at(f"{path}:build")
    assert "be code that runs (RuntimeError: first), got" in str(caught.value)
    path.write_text("def build():\n    raise SystemExit\n\nbuilt = 3\n")
    with pytest.raises(
        fp.ParameterError, match=r"be a function that runs \(SystemExit: SystemExit"
    ):
        own_data.posterior_at(f"{path}:build")
    with pytest.raises(fp.ParameterError) as caught:
        own_data.posterior_at(f"{path}:built")
    assert fits(
        str(caught.value),
        "posterior must be a Posterior, got 'int'; training.Posterior.of(log_likelihood, "
        "clients=[...], dimension=...)",
    )
    with pytest.raises(fp.ParameterError, match="name an existing file, got"):
        own_data.model_at(f"{tmp_path / 'none.py'}:build")


# ---- places of a run


@pytest.mark.parametrize(
    ("places", "wanted"),
    [
        (("none/a", None, None), "ledger must be in an existing folder, got "),
        (("a", "none/b", None), "checkpoint must be in an existing folder, got "),
        (("a", "a", None), "checkpoint must differ from the ledger and its private files, got "),
        (("a", "a.private", None), "checkpoint must differ from the ledger and its private"),
        (("a", None, "a"), "output must differ from ledger and checkpoint"),
        (("a", "b", "b"), "output must differ from ledger and checkpoint"),
        (("a", "b", "b.tmp"), "output must differ from ledger and checkpoint"),
        (("a", "b", "none/c"), "output must be in an existing folder, got "),
    ],
)
def test_a_run_s_files_are_apart_and_in_folders_that_are_there(tmp_path, places, wanted):
    one = Experiment(job=averaged(), **FACTS, level=9.0)
    ledger, checkpoint, output = (None if name is None else tmp_path / name for name in places)
    with pytest.raises(fp.ParameterError) as caught:
        one.run(ledger_path=ledger, checkpoint=checkpoint, output=output)
    assert str(caught.value).startswith(wanted), str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_run_s_dropouts_are_those_of_its_rounds(tmp_path):
    """Seeded, the same clients are lost in a round that is run again."""
    one = Experiment(job=averaged(), **FACTS, level=9.0, seed=4, dropout_rate=0.5)
    cohort, rounds = np.arange(40), [[], []]
    for found in rounds:
        lost = one._dropout(None)
        found += [lost(cohort) for _ in range(3)]
    assert rounds[0] == rounds[1] and len(set(map(frozenset, rounds[0]))) == 3
    assert all(5 < len(gone) < 35 and gone <= set(cohort) for gone in rounds[0])
    assert one.settings["dropout_rate"] == 0.5
