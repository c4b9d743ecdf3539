"""A resumed run continues the original: every trained round is in the ledger."""

import json
import shutil

import pytest

pytest.importorskip("torch")

import fedprivacy as fp
from fedprivacy.cli import main
from fedprivacy.errors import BudgetExhausted, LedgerError, ParameterError
from fedprivacy.runs.experiment import Experiment
from fedprivacy.runs.jobs import job
from fedprivacy.training import train

pytestmark = pytest.mark.usefixtures("narrowest")


class Stopped(Exception):
    pass


SETTINGS = ("cohort", "clip_norm", "clients", "learning_rate", "classes_per_client")


def experiment(method="dp-fedavg", *, rounds=4, **options):
    facts = {"epsilon": 8.0, "delta": 1e-3, "seed": None} | options
    settings = {name: facts.pop(name) for name in SETTINGS if name in facts}
    return Experiment(job=job(method, rounds=rounds, **settings), **facts)


def stopping(after, spoil=None):
    """Stop a run after a round; ``spoil`` restores the checkpoint of an earlier one."""

    def on_round(state, info):
        if spoil is not None and state.round == after - 1:
            shutil.copy(spoil, spoil.with_suffix(".old"))
        if state.round == after:
            if spoil is not None:
                shutil.copy(spoil.with_suffix(".old"), spoil)
            raise Stopped

    return on_round


def begun(folder, after=2, spoil=False, **options):
    ledger, checkpoint = folder / "run.ledger", folder / "run.pt"
    with pytest.raises(Stopped):
        experiment(**options).run(
            ledger_path=ledger,
            checkpoint=checkpoint,
            on_round=stopping(after, checkpoint if spoil else None),
        )
    return {"ledger_path": ledger, "checkpoint": checkpoint}


@pytest.mark.parametrize("method", ["dp-fedavg", "fa-ld", "fa-hmc", "fed-plt"])
def test_a_checkpoint_goes_on_under_its_own_ledger_alone(tmp_path, method):
    places = begun(tmp_path, method=method)
    other = {**places, "ledger_path": tmp_path / "other.ledger"}
    with pytest.raises(
        ParameterError,
        match=r"same run, since its rounds would not be counted, .* under a different ledger",
    ):
        experiment(method).run(**other)
    assert not other["ledger_path"].exists()
    record = experiment(method).run(**places)
    assert fp.Ledger.open(places["ledger_path"]).spent_rounds == 4
    assert record.audit.rounds == 4 and str(record.audit.verdict) == "HOLDS" and not record.notes


@pytest.mark.parametrize("method", ["fedavg", "fed-smp-top-k", "fa-ld"])
def test_what_was_sent_before_a_stop_is_counted(tmp_path, method):
    whole = experiment(method, seed=1)
    private = method != "fedavg"
    first = {"ledger_path": tmp_path / "first.ledger"} if private else {}
    sent = whole.run(checkpoint=tmp_path / "first.pt", **first).upload_bytes
    parts = {"checkpoint": tmp_path / "run.pt"}
    parts |= {"ledger_path": tmp_path / "run.ledger"} if private else {}
    with pytest.raises(Stopped):
        whole.run(**parts, on_round=stopping(2))
    for _ in range(2):
        assert whole.run(**parts).upload_bytes == sent > 0


def test_what_was_trained_without_privacy_is_not_made_private(tmp_path):
    checkpoint = tmp_path / "open.pt"
    experiment("fedavg", rounds=3).run(checkpoint=checkpoint)
    for rounds in (3, 4):
        with pytest.raises(ParameterError, match="it was trained without a ledger"):
            experiment(rounds=rounds).run(
                ledger_path=tmp_path / f"{rounds}.ledger", checkpoint=checkpoint
            )
    places = begun(tmp_path)
    with pytest.raises(ParameterError, match="it was trained under a different ledger"):
        experiment("fedavg").run(checkpoint=places["checkpoint"])


def test_a_ledger_that_is_behind_its_checkpoint_is_refused(tmp_path):
    """An older copy of the same ledger counts fewer rounds than were trained."""
    task = job("dp-fedavg", rounds=4)
    loop = task.loop(2.0, 0)
    path, early = tmp_path / "run.ledger", tmp_path / "early.ledger"
    facts = {"unit": "client", "adjacency": "zero_out", "seed_policy": "fixed"}
    with fp.Ledger.create(path, **facts) as ledger:
        shutil.copy(path, early)
        train(loop, task.data, rounds=2, ledger=ledger, checkpoint=tmp_path / "state.pt")
    with (
        fp.Ledger.open(early, resume=True) as ledger,
        pytest.raises(ParameterError, match="would not be counted"),
    ):
        train(loop, task.data, rounds=4, ledger=ledger, checkpoint=tmp_path / "state.pt")
    with fp.Ledger.open(path, resume=True) as ledger:
        train(loop, task.data, rounds=4, ledger=ledger, checkpoint=tmp_path / "state.pt")
    assert fp.Ledger.open(path).spent_rounds == 4


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"epsilon": 20.0}, r"epsilon, delta must be as in the ledger, \(8.0, 0.001\)"),
        ({"delta": 1e-4}, "epsilon, delta must be as in the ledger"),
        ({"adjacency": "replace_one"}, "adjacency must be as in the ledger, 'zero_out'"),
        ({"observer": "server"}, "observer must be as in the ledger, 'aggregate'"),
        ({"seed": 1}, "seed must be as in the ledger"),
        ({"rounds": 5}, "rounds must be 4, as in the ledger"),
        ({"cohort": 50}, r"cohorts must be 'Poisson\(probability=0.25\)', as in the ledger"),
        ({"method": "fed-smp-rand-k"}, "sent must be 650, as in the ledger"),
        ({"clients": 300}, "clients must be 400, as in the ledger"),
        ({"learning_rate": 0.1}, "learning_rate must be 2.0, as in the ledger"),
        ({"level": 3.0}, "noise_multiplier must be"),
    ],
)
def test_a_run_is_gone_on_with_as_it_began(tmp_path, changed, told):
    places = begun(tmp_path)
    before = places["ledger_path"].read_bytes()
    with pytest.raises(ParameterError, match=told):
        experiment(**{"method": "dp-fedavg", **changed}).run(**places)
    assert places["ledger_path"].read_bytes() == before
    if "epsilon" not in changed:
        return
    # What was refused left no trace, whatever it was.
    experiment().run(**places)
    ledger = fp.Ledger.open(places["ledger_path"])
    assert len({r.mechanism for r in ledger.rounds}) == 1 and ledger.closed


@pytest.mark.parametrize("method", ["dp-fedavg", "fa-ld", "fed-plt"])
def test_a_run_is_not_gone_on_with_on_other_data(tmp_path, method):
    """As many clients, other records: a unit of before is no unit of now."""
    places = begun(tmp_path, method=method)
    with pytest.raises(
        ParameterError,
        match=r"be resumed with its own training data|be those of the plan in the ledger",
    ):
        experiment(method, classes_per_client=2).run(**places)
    assert experiment(method).run(**places).rounds[-1] == 4


def test_two_ledgers_of_one_second_are_told_apart(tmp_path):
    facts = {"unit": "client", "adjacency": "zero_out", "seed_policy": "fixed"}
    task = job("dp-fedavg", rounds=2)
    ledgers = [fp.Ledger.create(tmp_path / f"{n}.ledger", **facts) for n in range(2)]
    for ledger in ledgers:
        train(task.loop(2.0, 0), task.data, rounds=2, ledger=ledger, checkpoint=None)
    one, other = ledgers
    assert one.place[0] == other.place[0] and one.passes(one.place)
    assert not one.passes(other.place) and not other.passes(one.place)
    assert not one.passes((one.place[0] + 1, one.place[1])) and not one.passes((0, ""))


def test_a_copy_of_a_ledger_that_went_another_way_is_refused(tmp_path):
    """Three rounds on one copy, three aborted ones on the other."""
    task, checkpoint = job("fed-smp-rand-k", rounds=3, strategy=2, cohort=20), tmp_path / "run.pt"
    loop, path, copy = task.loop(2.0, 0), tmp_path / "run.ledger", tmp_path / "copy.ledger"
    with fp.Ledger.create(path, unit="client", adjacency="zero_out", seed_policy="fixed") as one:
        shutil.copy(path, copy)
        train(loop, task.data, rounds=3, ledger=one, checkpoint=checkpoint)
    with fp.Ledger.open(copy, resume=True) as other:
        train(loop, task.data, rounds=3, ledger=other, dropout=lambda cohort: cohort)
        assert len(other.rounds) == 3 and other.spent_rounds == 0
        with pytest.raises(ParameterError, match="would not be counted"):
            train(loop, task.data, rounds=4, ledger=other, checkpoint=checkpoint)


def test_a_run_killed_before_its_first_checkpoint_begins_again(tmp_path):
    places = begun(tmp_path, after=1)
    with fp.Ledger.open(places["ledger_path"]) as whole:
        header = places["ledger_path"].read_bytes().splitlines(keepends=True)[0]
        assert whole.spent_rounds == 1
    places["ledger_path"].write_bytes(header)
    places["checkpoint"].unlink()
    record = experiment().run(**places)
    assert record.audit.rounds == 4 and record.rounds[-1] == 4


def test_a_finished_run_is_scored_and_audited_again(tmp_path):
    """As after a kill between the ledger's end and the audit."""
    places = {"ledger_path": tmp_path / "run.ledger", "checkpoint": tmp_path / "run.pt"}
    first = experiment().run(**places)
    before = places["ledger_path"].read_bytes()
    again = experiment().run(**places)
    assert again.scores == first.scores and str(again.audit.verdict) == "HOLDS"
    assert places["ledger_path"].read_bytes() == before


def test_a_damaged_checkpoint_says_how_to_begin_again(tmp_path):
    places = begun(tmp_path)
    places["checkpoint"].write_bytes(places["checkpoint"].read_bytes()[:500])
    with pytest.raises(ParameterError, match="delete it and name a new ledger") as told:
        experiment().run(**places)
    assert "weights_only" not in str(told.value)


def test_a_run_that_lost_a_round_ends_with_a_model_a_number_and_a_word(tmp_path):
    """Killed between a release and its checkpoint: the budget has room for a round less."""
    places = begun(tmp_path, after=3, spoil=True)
    record = experiment().run(**places)
    ledger = fp.Ledger.open(places["ledger_path"])
    assert ledger.closed and ledger.spent_rounds == 4
    assert record.rounds[-1] == 3 and 0.05 < record.scores["accuracy"] <= 1.0
    assert record.notes[0].startswith("3 of 4 rounds; the budget was spent")
    assert str(record.audit.verdict) == "HOLDS" and record.audit.rounds == 4


def test_a_run_that_does_not_fit_spends_nothing_and_leaves_nothing(tmp_path):
    with pytest.raises(BudgetExhausted, match=r"4 rounds at noise_multiplier = 0.5 cost epsilon"):
        experiment(level=0.5, epsilon=2.0).run(ledger_path=tmp_path / "run.ledger")
    with pytest.raises(ParameterError, match="be in an existing folder"):
        experiment().run(
            ledger_path=tmp_path / "run.ledger", checkpoint=tmp_path / "absent" / "run.pt"
        )
    with pytest.raises(ParameterError, match="level must be left out"):
        experiment("fedavg", level=1.0).run()
    assert list(tmp_path.iterdir()) == []


def test_a_ledger_of_another_command_is_not_gone_on_with(tmp_path):
    places = begun(tmp_path)
    fp.Ledger.create(tmp_path / "own.ledger", unit="client", adjacency="zero_out").release()
    with pytest.raises(LedgerError, match="does not state noise_multiplier"):
        experiment().run(**{**places, "ledger_path": tmp_path / "own.ledger"})


def test_the_command_line_goes_on_where_it_was(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    begun(tmp_path, after=3, spoil=True)
    words = ["train", "--method", "dp-fedavg", "--rounds", "4", "--ledger", "run.ledger"]
    with pytest.raises(SystemExit) as stop:
        main([*words, "--checkpoint", "run.pt", "--json"])
    printed = capsys.readouterr()
    assert stop.value.code == 0, printed.err
    found = json.loads(printed.out)
    assert found["audit"]["verdict"] == "HOLDS" and found["notes"][0].startswith("3 of 4 rounds")
    recorded = fp.Ledger.open("run.ledger").rounds[0].mechanism.inner.noise_multiplier
    assert found["level"] == recorded


def test_a_run_without_privacy_is_gone_on_with_as_it_was_begun(tmp_path):
    checkpoint = tmp_path / "run.pt"
    experiment("fedavg", rounds=2).run(checkpoint=checkpoint)
    for other in ({"learning_rate": 0.001}, {"cohort": 3}):
        with pytest.raises(
            ParameterError, match=r"be resumed with its original settings, but .* differ"
        ):
            experiment("fedavg", rounds=4, **other).run(checkpoint=checkpoint)
    with pytest.raises(ParameterError, match="be resumed with its original settings, but method"):
        experiment("fedavg-rand-k", rounds=4).run(checkpoint=checkpoint)
    with pytest.raises(ParameterError, match="rounds must be at least 2"):
        experiment("fedavg", rounds=1).run(checkpoint=checkpoint)
    assert experiment("fedavg", rounds=3).run(checkpoint=checkpoint).rounds == (3,)


def test_a_budget_for_two_ledgers_is_charged_with_the_rounds_of_both(tmp_path):
    """As after a restart: a new budget, and the spent rounds are in the ledgers."""
    task = job("dp-fedavg", rounds=4)
    loop = task.loop(2.0, None)
    facts = {"unit": "client", "adjacency": "zero_out"}

    def budget():
        return fp.Budget(epsilon=50.0, delta=1e-3, adjacency="zero_out")

    paths = [tmp_path / "a.ledger", tmp_path / "b.ledger"]
    first = budget()
    for path in paths:
        with fp.Ledger.create(path, **facts) as ledger:
            train(loop, task.data, rounds=2, ledger=ledger, budget=first)
    again = budget()
    for path in paths:
        with fp.Ledger.open(path, resume=True) as ledger:
            train(loop, task.data, rounds=1, ledger=ledger, budget=again)
    six = fp.epsilon(loop.round_mechanism * 6, delta=1e-3, adjacency="zero_out")
    assert again.spent().upper == pytest.approx(six.upper, abs=2e-3)


def test_rounds_that_are_stepped_count_what_the_ledger_holds(tmp_path):
    """Without `train` a new budget took a ledger's next round for the first one."""
    task = job("dp-fedavg", rounds=4)
    loop, facts = task.loop(2.0, None), {"delta": 1e-3, "adjacency": "zero_out"}
    with fp.Ledger.create(tmp_path / "a", unit="client", adjacency="zero_out") as ledger:
        done = train(loop, task.data, rounds=2, ledger=ledger)
        budget = fp.Budget(epsilon=50.0, **facts)
        loop.step(done.state, task.data, ledger=ledger, budget=budget)
        loop.step(done.state, task.data, ledger=ledger, budget=budget)
        known = fp.account(ledger, delta=1e-3)
        assert budget.spent().upper == pytest.approx(known.upper, rel=1e-3)
        adaptive = fp.Budget(epsilon=50.0, adaptive=True, **facts)
        with pytest.raises(fp.ParameterError, match=r"ledger.schedule must be 'adaptive'"):
            loop.step(done.state, task.data, ledger=ledger, budget=adaptive)
        assert len(ledger.rounds) == 4


def test_a_round_beside_train_is_not_taken_for_one_before_it(tmp_path):
    """Which rounds were charged counts, not how many."""
    dear, cheap = (job("dp-fedavg", rounds=4).loop(level, None) for level in (0.5, 50.0))
    data = job("dp-fedavg", rounds=4).data
    facts = {"unit": "client", "adjacency": "zero_out"}
    with fp.Ledger.create(tmp_path / "run.ledger", **facts) as ledger:
        train(dear, data, rounds=1, ledger=ledger)
        budget = fp.Budget(epsilon=500.0, delta=1e-3, adjacency="zero_out")
        cheap.step(cheap.init(), data, ledger=ledger, budget=budget)
        train(cheap, data, rounds=1, ledger=ledger, budget=budget)
        known = fp.account(ledger, delta=1e-3)
    assert budget.spent().upper == pytest.approx(known.upper, rel=1e-3)


def test_a_ledger_is_there_whole_or_not_at_all(tmp_path, monkeypatch):
    """A crash before the header is on disk does not block the next start."""

    def broken(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("fedprivacy.ledger.files.write_all", broken)
        with pytest.raises(KeyboardInterrupt):
            fp.Ledger.create(tmp_path / "run.ledger", unit="client", adjacency="zero_out")
    assert list(tmp_path.iterdir()) == []
    fp.Ledger.create(tmp_path / "run.ledger", unit="client", adjacency="zero_out").close()
    assert [path.name for path in tmp_path.iterdir()] == ["run.ledger"]
