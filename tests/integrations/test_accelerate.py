"""Accelerate: loops that stop at a budget, are killed, resumed, and tricked into other steps."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("accelerate", reason="pip install accelerate opacus '.[train,test]' elsewhere")
torch = pytest.importorskip("torch")
pytest.importorskip("opacus")

from accelerate import Accelerator  # noqa: E402
from accelerate.state import AcceleratorState, GradientState, PartialState  # noqa: E402
from torch.utils.data import WeightedRandomSampler  # noqa: E402

import fedprivacy as fp  # noqa: E402
from fedprivacy.errors import ParameterError  # noqa: E402
from fedprivacy.ledger import Ledger  # noqa: E402
from tests.common import ROOT  # noqa: E402
from tests.integrations import accelerate_loop as loops  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
STEP = fp.Gaussian(noise_multiplier=2.0, unit="record").sampled(fp.Poisson(0.2))


@pytest.fixture(autouse=True)
def fresh():
    """Accelerate keeps one state for the whole process."""
    for state in (AcceleratorState, GradientState, PartialState):
        state._reset_state()
    before = torch.get_rng_state()
    yield
    torch.set_rng_state(before)


def rounds(folder):
    return Ledger.open(folder / "run.ledger").rounds


def bound_of(steps):
    return fp.epsilon(STEP * steps, delta=1e-5, adjacency="zero_out").upper


def test_a_loop_is_recorded_step_by_step(tmp_path):
    accelerator = Accelerator(cpu=True)
    loop = loops.private(tmp_path, accelerator=accelerator)
    loops.train(accelerator, *loop.prepare(*loops.objects()), epochs=2)
    loop.complete()
    assert len(rounds(tmp_path)) == 10
    found = fp.audit(tmp_path / "run.ledger")
    assert found.verdict == "HOLDS" and found.bound.upper == bound_of(10)


def test_the_loader_ends_at_the_budget(tmp_path):
    accelerator, steps = Accelerator(cpu=True), []
    budget = (bound_of(3) + bound_of(4)) / 2
    loop = loops.private(tmp_path, budget, accelerator)
    prepared = loop.prepare(*loops.objects())
    loops.train(accelerator, *prepared, epochs=4, after=lambda: steps.append(1))
    loop.complete()
    assert len(steps) == len(rounds(tmp_path)) == 3
    assert fp.audit(tmp_path / "run.ledger").verdict == "HOLDS"


def test_a_kill_counts_the_step(tmp_path):
    command = [sys.executable, "-m", "tests.integrations.accelerate_loop", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == -9 and len(rounds(tmp_path)) == 3
    accelerator = Accelerator(cpu=True)
    loop = loops.private(tmp_path, accelerator=accelerator)
    loops.train(accelerator, *loop.prepare(*loops.objects()))
    loop.complete()
    assert fp.audit(tmp_path / "run.ledger").bound.upper == bound_of(8)


def test_a_restored_state_brings_no_noise_again_and_needs_its_ledger(tmp_path):
    accelerator = Accelerator(cpu=True)
    loop = loops.private(tmp_path, accelerator=accelerator)
    model, optimizer, batches = loop.prepare(*loops.objects())
    loops.train(accelerator, model, optimizer, batches)
    accelerator.save_state(str(tmp_path / "saved"))
    weights = []
    for _ in range(2):
        loops.train(accelerator, model, optimizer, batches)
        weights.append(model.weight.detach().clone())
        accelerator.load_state(str(tmp_path / "saved"))
    assert not torch.equal(*weights)
    loops.train(accelerator, model, optimizer, batches)
    loop.complete()
    assert len(rounds(tmp_path)) == 20
    assert fp.audit(tmp_path / "run.ledger").verdict == "HOLDS"
    other = tmp_path / "other"
    other.mkdir()
    fresh_one = Accelerator(cpu=True)
    again = loops.private(other, accelerator=fresh_one)
    again.prepare(*loops.objects())
    with pytest.raises(ParameterError, match="checkpoint must be of the run of this ledger"):
        fresh_one.load_state(str(tmp_path / "saved"))
    again.interrupt()


def accumulating(accelerator, model, optimizer, batches):
    """Accelerate then steps every second batch only."""
    accelerator.gradient_accumulation_steps = 2
    for x, y in batches:
        with accelerator.accumulate(model):
            optimizer.zero_grad()
            accelerator.backward(((model(x) - y) ** 2).sum())
            optimizer.step()


def hidden(accelerator, model, optimizer, batches):
    other = torch.optim.SGD(model.parameters(), lr=0.1)
    loops.train(accelerator, model, optimizer, batches, after=other.step)


def plain(accelerator, model, optimizer, batches):
    inner = optimizer.optimizer.original_optimizer
    loops.train(accelerator, model, optimizer, batches, after=inner.step)


def skipping(accelerator, model, optimizer, batches):
    for _ in batches:
        pass


def old_loader(accelerator, model, optimizer, batches):
    loops.train(accelerator, model, optimizer, loops.loader())


def by_hand(accelerator, model, optimizer, batches):
    def decay():
        with torch.no_grad():
            model.weight.mul_(0.9)

    loops.train(accelerator, model, optimizer, batches, after=decay)


TRICKS = {
    "accumulated batches": (accumulating, "be stepped before the next one is drawn"),
    "a second optimizer": (hidden, "parameters changed outside of the recorded steps"),
    "the plain optimizer": (plain, "a step was taken that was not recorded"),
    "skipped batches": (skipping, "be stepped before the next one is drawn"),
    "the loader from before": (old_loader, "come from one batch drawn for it"),
    "weights set by hand": (by_hand, "parameters changed outside of the recorded steps"),
}


@pytest.mark.parametrize(("trick", "reason"), TRICKS.values(), ids=TRICKS)
def test_other_steps_than_those_that_are_priced_are_refused(tmp_path, trick, reason):
    accelerator = Accelerator(cpu=True)
    loop = loops.private(tmp_path, accelerator=accelerator)
    prepared = loop.prepare(*loops.objects())
    with pytest.raises((ParameterError, ValueError), match=reason):
        trick(accelerator, *prepared)
    if "recorded" in reason:
        with pytest.raises(ParameterError):
            loop.complete()
        loop.interrupt()
        assert Ledger.open(tmp_path / "run.ledger").voids
    loop.interrupt()
    assert fp.audit(tmp_path / "run.ledger").verdict == "CANNOT BE CERTIFIED"


def test_a_last_step_of_another_optimizer_is_found_at_the_end(tmp_path):
    accelerator = Accelerator(cpu=True)
    loop = loops.private(tmp_path, accelerator=accelerator)
    model, optimizer, batches = loop.prepare(*loops.objects())
    loops.train(accelerator, model, optimizer, batches)
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    with pytest.raises(ParameterError, match="parameters changed"):
        loop.complete()
    loop.interrupt()
    assert Ledger.open(tmp_path / "run.ledger").voids


SETTINGS = {
    "accumulation": ({"gradient_accumulation_steps": 2}, "be 1"),
    "half precision": ({"mixed_precision": "bf16"}, "mixed_precision must be 'no'"),
}


@pytest.mark.parametrize(("settings", "reason"), SETTINGS.values(), ids=SETTINGS)
def test_settings_that_change_the_steps_are_refused(tmp_path, settings, reason):
    with pytest.raises(ParameterError, match=reason):
        loops.private(tmp_path, accelerator=Accelerator(cpu=True, **settings))
    assert not (tmp_path / "run.ledger").exists()


def test_two_processes_are_refused(tmp_path):
    code = (
        "from tests.integrations.accelerate_loop import private\n"
        "try:\n    private('.')\n"
        "except ValueError as problem:\n    print(problem)\n"
    )
    script = tmp_path / "two.py"
    script.write_text(code)
    words = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", str(script)]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, env=env, capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout.count("num_processes must be 1") == 2, done.stderr[-2000:]


def test_prepared_objects_and_other_draws_are_refused(tmp_path):
    accelerator = Accelerator(cpu=True)
    model, optimizer, batches = loops.objects()
    loop = loops.private(tmp_path, accelerator=accelerator)
    with pytest.raises(ParameterError, match="not be prepared yet"):
        loop.prepare(model, accelerator.prepare(optimizer), batches)
    weighted = loops.loader(shuffle=False, sampler=WeightedRandomSampler([1.0] * 40, 40))
    with pytest.raises(fp.UnsupportedCombination, match="WeightedRandomSampler"):
        loop.prepare(model, optimizer, weighted)


def test_public_numbers_serve_add_remove(tmp_path):
    accelerator = Accelerator(cpu=True)
    budget = fp.Budget(9.0, 1e-5, adjacency="add_remove")
    loop = loops.private(
        tmp_path, accelerator=accelerator, budget=budget, scheme=fp.Poisson(0.25),
        expected_batch_size=10,
    )  # fmt: skip
    loops.train(accelerator, *loop.prepare(*loops.objects()))
    loop.complete()
    assert [one.done.denominator for one in rounds(tmp_path)] == [10.0] * 4
    exact = fp.Gaussian(noise_multiplier=2.0, unit="record").sampled(fp.Poisson(0.25)) * 4
    found = fp.audit(tmp_path / "run.ledger")
    assert found.bound.upper == fp.epsilon(exact, delta=1e-5, adjacency="add_remove").upper
