"""The benchmark runs, and the independent checks refute the wrong answers of peers."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from tests.common import ROOT

BENCHMARKS = ROOT / "benchmarks"


def test_one_setting(tmp_path):
    pytest.importorskip("dp_accounting")
    command = [sys.executable, str(BENCHMARKS / "accounting.py"), "--smoke"]
    written = tmp_path / "numbers.json"
    done = subprocess.run([*command, "--json", str(written)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    [row] = json.loads(written.read_text())["sampled"]
    ours, theirs = row["answers"]
    assert ours["way"] == "fedprivacy pld" and theirs["way"] == "dp-accounting RDP"
    assert ours["low"] <= ours["high"] <= theirs["high"]
    assert ours["high"] - ours["low"] <= 1e-3
    assert "x ours" in done.stdout


@pytest.fixture
def accounting(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import accounting

    return accounting


def test_renewed_rows_take_their_places(accounting):
    kept = {
        "versions": {"ours": "1"},
        "exponent": 0.1,
        "single": [{"question": "a", "answers": [1]}, {"question": "b", "answers": [2]}],
        "below": ["all of a run"],
    }
    fresh = {
        "versions": {"ours": "1"},
        "single": [{"question": "c", "answers": [3]}, {"question": "a", "answers": [4]}],
        "training": [{"way": "ours", "rounds": 5}],
        "below": [],
    }
    found = accounting.renewed(kept, fresh)
    assert [row["answers"] for row in found["single"]] == [[4], [2], [3]]
    assert found["training"] == fresh["training"] and found["below"] == kept["below"]
    with pytest.raises(SystemExit, match="renew all"):
        accounting.renewed(kept, fresh | {"versions": {"ours": "2"}})


def test_questions_of_a_section_have_names_of_their_own(accounting):
    import questions

    names = [questions.named(row.question) for row in accounting.ROWS.values()]
    assert len(set(names)) == len(names)


@pytest.fixture
def checks(monkeypatch):
    pytest.importorskip("dp_accounting")
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import checks

    return checks


@pytest.mark.parametrize("name", ["replaced_gaussian", "replaced_laplace", "responses"])
def test_closed_forms_refute(checks, name):
    assert getattr(checks, name)().refuted


def test_moments_refute(checks):
    found = checks.strict_pld(0.5, 8.0, 1_000, 1e-9, 3, 30)
    assert found.refuted and found.at_least < 1.001e-9


def test_moments_agree_with_a_closed_form(checks):
    """q = 1: N(1, 4^2) against N(0, 4^2), nine times, is 3/4-GDP."""
    pair = checks.SampledGaussian(1.0, 4.0, 9, 3)
    found, exact = pair.least_delta(2.0, 20.0, 80), checks.gaussian_delta(2.0, 0.75)
    assert (1 - 1e-6) * exact < found <= exact


def test_tilted_limit_is_a_lower_one(checks):
    found = checks.tilted_delta(1.0, 4.0, 9, 2.0, 3, 20_000)
    exact = checks.gaussian_delta(2.0, 0.75)
    assert 0.8 * exact < found <= exact


def test_smoothly_below_on_the_peers_side(checks):
    """A claim that is true is not refuted."""
    exact = checks.gaussian_delta(2.0, 0.75)
    assert checks.event_delta(1.0, 4.0, 9, 2.0, 20_000) <= exact


@pytest.fixture
def drawn(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS / "papers"))
    import drawn

    return drawn


def test_a_drawn_cell_that_differs_is_told(drawn, capsys):
    assert drawn.redrawn({"I": {"one": lambda: True}, "II": {}})
    assert not drawn.redrawn({"I": {"one": lambda: True}, "II": {"two": lambda: False}})
    assert "II, two: DIFFERENT" in capsys.readouterr().out


def test_the_same_cells_are_drawn_again(drawn, monkeypatch, capsys):
    cells = {str(number): lambda: True for number in range(1000)}
    found = []
    for number in (7, 7, 8):
        monkeypatch.setenv("REPRO_DRAW", str(number))
        assert drawn.redrawn({"I": cells})
        found.append(capsys.readouterr().out.partition(":")[0])
    assert found[0] == found[1] != found[2]


def test_a_cell_that_takes_too_long_is_neither(drawn, capsys):
    def endless():
        while True:
            pass

    assert drawn.redrawn({"I": {"long": endless}}, seconds=0.05)
    assert "neither confirmed nor refuted" in capsys.readouterr().out


def test_nearness_goes_through_whole_results(drawn):
    kept = {"a": [1.0, {"b": 2.0}], "c": None}
    assert drawn.near({"a": [1.0 + 1e-9, {"b": 2.0}], "c": None}, kept)
    assert not drawn.near({"a": [1.0, {"b": 2.001}], "c": None}, kept)
    assert not drawn.near({"a": [1.0], "c": None}, kept)
    assert not drawn.near({"a": [1.0, {"b": 2.0}]}, kept)


@pytest.fixture
def fed_smp(monkeypatch, tmp_path):
    pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(BENCHMARKS / "papers"))
    import fed_smp
    import fed_smp_settings

    for module in (fed_smp, fed_smp_settings):
        monkeypatch.setattr(module, "HERE", tmp_path)
    return fed_smp


def small_run(fed_smp, rate, rounds=4):
    """A run of DP-FedAvg on digits; a huge local step makes its updates infinite."""
    import fedprivacy as fp
    from fedprivacy.training import digits, logistic

    class Small(fed_smp.Setting):
        population = 20

        def data(self):
            return digits(clients=20)

        def loop(self):
            return fed_smp.Unguarded(
                model=logistic(64, 10),
                scheme=fp.FixedSize(5, population=20),
                perturbation=fp.Gaussian(noise_multiplier=1.0, unit="client"),
                local_steps=3,
                learning_rate=rate,
                seed=1,
            )

    return Small(method="fedavg", seed=1, rounds=rounds)


def test_a_run_ends_at_the_first_update_that_is_not_finite(fed_smp):
    setting = small_run(fed_smp, 3e38)
    fed_smp.run(setting)
    found = fed_smp.record(setting)
    assert (found["rounds_done"], found["first_non_finite_round"]) == (1, 1)
    assert found["finished"] and found["best_accuracy"] is None and found["refused"] > 0
    fed_smp.run(setting)
    assert fed_smp.record(setting)["rounds_done"] == found["ledger_rounds"] == 1
    assert not found["guard"]


def test_a_run_that_was_killed_while_its_state_was_looked_at_goes_on(fed_smp):
    """It began anew: of two that were stopped, one lost 129 rounds."""
    setting = small_run(fed_smp, 0.1)
    fed_smp.run(setting)
    whole, notes = fed_smp.record(setting), setting.folder / "rounds.jsonl"
    *before, looked = notes.read_text().splitlines(keepends=True)
    assert whole["finished"] and "accuracy" in looked and "accuracy" not in before[-1]
    notes.write_text("".join(before))
    assert not fed_smp.record(setting)["finished"]
    fed_smp.run(setting)
    assert fed_smp.record(setting) == whole


@pytest.mark.filterwarnings("ignore::fedprivacy.training.EmptySum")
def test_a_run_with_a_guard_is_another_run_and_goes_to_its_end(fed_smp):
    plain = small_run(fed_smp, 3e38)
    guarded = replace(plain, guard=True)
    for setting in (plain, guarded):
        fed_smp.run(setting)
    unguarded, found = map(fed_smp.record, (plain, guarded))
    assert unguarded["rounds_done"] == 1 and found["rounds_done"] == found["rounds_planned"] == 4
    assert found["guard"] and found["first_non_finite_round"] == 1 and found["finished"]
    assert found["best_accuracy"] == max(found["accuracy_by_round"].values())
    assert fed_smp.key(found) != fed_smp.key(unguarded)
    # Old ones do not mention a guard.
    del unguarded["guard"]
    assert fed_smp.key(unguarded)[-1] is False


def test_what_has_progress_is_collected_as_it_was_asked_for(fed_smp, monkeypatch, capsys):
    (fed_smp.HERE / "results").mkdir()
    target = fed_smp.HERE / "results" / "fed_smp_mnist.json"
    fed_smp.collect("mnist", None)
    assert "no run has progress" in capsys.readouterr().out and not target.exists()
    asked = [
        fed_smp.setting_of("rand_k-0.1@2", 3, rounds, dataset="mnist", guard=guard)
        for rounds in (5, 180)
        for guard in (False, True)
    ]
    for setting in asked:
        setting.folder.mkdir(parents=True)
    assert sorted(map(repr, fed_smp.begun("mnist", None))) == sorted(map(repr, asked))
    short = {"run": "a", "model": "cnn", "inputs": "unit", "seed": 1, "rounds_done": 3}
    facts = {**short, "finished": False}
    monkeypatch.setattr(fed_smp, "record", lambda of: {**facts, "rounds_planned": of.rounds})
    fed_smp.collect("mnist", None)
    assert capsys.readouterr().out.count("3 of 5 rounds, left out: what has not ended needs 5") == 2


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("--plan --dataset mnist", "--dataset must be fashion-mnist for --plan"),
        ("--plan --inputs symmetric", "--inputs must be standardised for --plan"),
        ("--guard --collect", "--guard must be given with --run"),
        ("--run top_l-0.1", "run must be one of 'fedavg'"),
        ("--run fedavg --rounds 0", "rounds must be an integer of at least 1"),
        ("--run fedavg --dataset svhn --model 2nn", "model must be cnn for svhn"),
        ("--run fedavg --dataset shakespeare --inputs standardised", "be unit for shakespeare"),
        ("--run fedavg --dataset mnist", "data_dir must be given"),
    ],
)
def test_what_is_refused_is_told_in_a_line(fed_smp, monkeypatch, capsys, line, told):
    monkeypatch.setattr("sys.argv", ["fed_smp.py", *line.split()])
    with pytest.raises(SystemExit) as ended:
        fed_smp.main()
    said = capsys.readouterr().err
    assert ended.value.code == 2 and said.startswith("error: ") and said.count("\n") == 1
    assert told in said and not (fed_smp.HERE / "progress").exists()


def test_a_run_goes_on_where_the_server_s_own_update_is_not_finite(fed_smp, monkeypatch):
    """That of top-k's mask, on the public images: the mask is some mask, and the results say so."""
    import fedprivacy as fp

    plain = replace(small_run(fed_smp, 0.1), method="top_k", ratio=5 / 650)
    data, loop = plain.data(), plain.loop()
    pictures = data.features[:5] * 1e30
    data = replace(data, public_features=pictures, public_labels=data.labels[:5])
    noise = fp.SparsifiedPerturbation(
        noise_multiplier=1.0,
        clip_norm=1.0,
        kept=5,
        dimension=650,
        cohort=5,
        sparsifier="top_k",
    )
    monkeypatch.setattr(type(plain), "data", lambda self: data)
    monkeypatch.setattr(type(plain), "loop", lambda self: replace(loop, perturbation=noise))
    fed_smp.run(plain)
    found = fed_smp.record(plain)
    assert found["rounds_done"] == found["ledger_rounds"] == plain.rounds
    assert found["arbitrary_masks"] == [1, 2, 3, 4]
    assert found["first_non_finite_round"] is None and found["best_accuracy"] > 0


def test_no_two_runs_share_a_folder_or_a_ledger(fed_smp):
    labels = ("fedavg", "dp-fedavg", "top_k-0.1", "rand_k-0.1", "rand_k_unscaled-0.1@2")
    every = [
        fed_smp.setting_of(label, seed, rounds, model, inputs, guard=guard)
        for label in labels
        for seed, rounds, guard in (
            (1, 180, False),
            (1, 180, True),
            (1, 5, False),
            (11, 180, False),
        )
        for model in fed_smp.MODELS
        for inputs in fed_smp.INPUTS
    ]
    assert len({one.folder for one in every}) == len(every)
    # The small network's ledgers are not kept.
    large = [one for one in every if one.model != "2nn"]
    assert len({fed_smp.kept_ledger(one) for one in large}) == len(large)


def test_networks_are_what_they_are_called(fed_smp):
    last = {
        model: type(list(fed_smp.setting_of("fedavg", 1, 180, model).factory())[-1]).__name__
        for model in ("cnn", "softmax-cnn", "label-cnn")
    }
    named = {"cnn": "Linear", "softmax-cnn": "Logarithm", "label-cnn": "LabelLogarithm"}
    assert last == named


def test_a_run_without_overflow_goes_on_to_its_end(fed_smp):
    setting = small_run(fed_smp, 0.1)
    fed_smp.run(setting)
    found = fed_smp.record(setting)
    assert found["rounds_done"] == found["ledger_rounds"] == 4 and found["finished"]
    assert found["first_non_finite_round"] is None and found["training_loss"] > 0
    assert found["best_accuracy"] == max(found["accuracy_by_round"].values())
    # By what it was trained, not by what would train it here.
    assert found["trained_by"] == "torch"


def test_the_papers_number_of_a_run_is_found_or_none(fed_smp):
    from fed_smp_page import printed

    found = [printed(label) for label in ("rand_k_unscaled-0.4", "rand_k_unscaled-0.4@2")]
    assert found == [79.88, 69.62]
    for label in ("dp-fedavg@2", "rand_k-0.4@3", "top_k-0.3@2", "fedavg-rand_k-0.4", "top_k@2"):
        assert printed(label) is None


def test_a_run_killed_before_its_line_was_written_begins_again(fed_smp):
    setting = small_run(fed_smp, 0.1)
    fed_smp.run(setting)
    notes = setting.folder / "rounds.jsonl"
    whole = fed_smp.record(setting)
    notes.write_text("".join(notes.read_text().splitlines(keepends=True)[:-1]))
    fed_smp.run(setting)
    assert fed_smp.record(setting) == whole


@pytest.fixture
def tuning(monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(BENCHMARKS / "papers"))
    import fa_ld_fashion

    return fa_ld_fashion


def group_of(values):
    """Cells of one setting: step size to accuracy, None where the chain diverged."""
    cells = []
    for size, value in values.items():
        worse = None if value is None else 1.0 - value
        scores = {"accuracy": value, "brier": worse, "nll": worse, "ece": 0.1 * size}
        row = {"round": None} if value is None else {"round": 1, "all": scores}
        cells.append({"step_size": size, "curve": [row]})
    return cells


@pytest.mark.parametrize(
    ("values", "edge", "then"),
    [
        ({1.0: 0.5, 2.0: 0.7, 4.0: 0.6}, None, []),
        ({1.0: 0.5, 2.0: 0.7}, "high", [4.0]),
        ({1.0: 0.5, 2.0: 0.4}, "low", [0.5]),
        ({1.0: 0.5, 2.0: 0.7, 4.0: None}, None, []),
        ({1.0: 0.5}, "low", [0.5]),
        ({1.0: None, 2.0: None}, "low", [0.5]),
    ],
)
def test_a_best_at_the_edge_of_its_grid_is_refused(tuning, values, edge, then):
    group = group_of(values)
    assert tuning.tuned(group, "accuracy")[2] == edge
    assert tuning.wanted(group) == then


def test_the_calibration_error_is_that_of_the_best_brier_score(tuning):
    group = group_of({1.0: 0.5, 2.0: 0.7, 4.0: 0.6})
    assert tuning.tuned(group, "ece") == (pytest.approx(0.2), 2.0, None)


@pytest.fixture
def long_chains(monkeypatch, tmp_path):
    pytest.importorskip("torch")
    monkeypatch.syspath_prepend(str(BENCHMARKS / "papers"))
    import long_chains

    monkeypatch.setattr(long_chains, "RESULTS", tmp_path)
    monkeypatch.setattr(long_chains, "PROGRESS", tmp_path)
    monkeypatch.setattr(long_chains, "SUFFIX", [""])
    return long_chains


def test_long_chains_of_other_data_go_to_other_files_and_not_onto_the_page(
    long_chains, monkeypatch, tmp_path
):
    import torch

    from fedprivacy.training import federate

    images, labels = torch.rand(400, 3, 8, 8), torch.arange(400) % 2
    data = federate("two classes", (images, labels), (images, labels), clients=2, num_classes=2)
    monkeypatch.setattr(long_chains, "images", lambda name, folder: data)
    tiny = {
        "fa_ld_long": {**long_chains.PARTS["fa_ld_long"], "rounds": 10, "warmup": 5, "batch": 50}
    }
    monkeypatch.setattr(long_chains, "PARTS", tiny)
    monkeypatch.setattr(long_chains, "TASKS", [("fa_ld_long", {"local_steps": 1}, 1)])
    sizes = iter([[1e-6, 4e-6]])
    monkeypatch.setattr(long_chains, "missing", lambda *asked: next(sizes, []))
    monkeypatch.setattr(long_chains, "pages", lambda: pytest.fail("the page is of Fashion-MNIST"))
    monkeypatch.setattr("sys.argv", ["long_chains.py", "--dataset", "cifar2"])
    with pytest.raises(SystemExit) as ended:
        long_chains.main()
    assert not ended.value.code
    assert [path.name for path in tmp_path.iterdir()] == ["fa_ld_long_cifar2.json"]
    kept = json.loads((tmp_path / "fa_ld_long_cifar2.json").read_text())
    assert kept["data"] == "cifar2" and [cell["finished"] for cell in kept["cells"]] == [True, True]


def test_a_grid_begins_around_the_best_of_fewer_iterations(long_chains, monkeypatch):
    facts = {"leapfrog_steps": 50, "iterations": 20}
    done = {"finished": True, "repeatable": True, "seed": 0, "leapfrog_steps": 50}
    cells = []
    monkeypatch.setattr(long_chains, "known", lambda part: cells)
    five = long_chains.FIVE_SIZES["fa_hmc_long"]
    assert long_chains.first_sizes("fa_hmc_long", facts) == five
    once = group_of({4e-4: 0.7, 8e-4: 0.9, 1.6e-3: 0.8})
    cells += [{**cell, **done, "iterations": 1} for cell in once]
    assert long_chains.first_sizes("fa_hmc_long", facts) == [4e-4, 8e-4, 1.6e-3]
    assert long_chains.missing("fa_hmc_long", facts, 0) == [4e-4, 8e-4, 1.6e-3]
    # Nearest in iterations, and a best at an edge has no meaning yet.
    cells += [{**cell, **done, "iterations": 10} for cell in group_of({4e-4: 0.7, 8e-4: 0.9})]
    assert long_chains.first_sizes("fa_hmc_long", facts) == [4e-4, 8e-4, 1.6e-3]
    cells.append({**group_of({1.6e-3: 0.8})[0], **done, "iterations": 10})
    cells += [{**cell, **done, "iterations": 20} for cell in group_of({4e-4: 0.95, 8e-4: 0.9})]
    assert long_chains.missing("fa_hmc_long", facts, 0) == [4e-4, 8e-4, 1.6e-3][2:]
    cells.append({**group_of({1.6e-3: 0.8})[0], **done, "iterations": 20})
    assert long_chains.missing("fa_hmc_long", facts, 0) == [1e-4, 2e-4]


@pytest.fixture
def long_network(long_chains):
    import long_network
    import torch

    yield long_network
    torch.set_float32_matmul_precision("highest")


@pytest.mark.parametrize(("error", "kept"), [(2e-3, "highest"), (4e-7, "medium")])
def test_products_of_16_bits_are_not_taken_for_those_of_32(long_network, monkeypatch, error, kept):
    import torch

    errors = iter([2.5e-7, error])
    monkeypatch.setattr(long_network, "product_error", lambda: next(errors))
    long_network.multiply_by_onednn()
    assert torch.get_float32_matmul_precision() == kept


def test_products_are_exact_whatever_multiplies(long_network):
    usual = long_network.product_error()
    long_network.multiply_by_onednn()
    assert usual < 1e-4 and long_network.product_error() <= long_network.TIMES * usual


def test_gradients_of_16_bits_are_near_those_of_32(long_network):
    import torch

    from fedprivacy.training import classifier, mlp

    torch.manual_seed(0)
    model = classifier(mlp(20, 3, hidden=[16, 16]))
    asked = (
        model.flat.flatten()[None],
        torch.rand(1, 50, 20),
        torch.zeros(1, 50, dtype=torch.int64),
        torch.ones(1, 50),
        None,
    )
    found, exact = (one.gradient_sums(*asked) for one in (long_network.InHalf(model), model))
    error = (found - exact).norm() / exact.norm()
    assert found.dtype == torch.float32 and 1e-4 < error < 0.05
