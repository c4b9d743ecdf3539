"""Lightning: fits that stop at a budget, are killed, resumed, and tricked into other steps."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("lightning", reason="pip install lightning opacus '.[train,test]' elsewhere")
torch = pytest.importorskip("torch")
pytest.importorskip("opacus")

from lightning.pytorch import seed_everything  # noqa: E402

import fedprivacy as fp  # noqa: E402
from fedprivacy.errors import BudgetExhausted, LedgerError, ParameterError  # noqa: E402
from fedprivacy.ledger import Ledger  # noqa: E402
from tests.common import ROOT  # noqa: E402
from tests.integrations import lightning_fit as fits  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
STEP = fp.Gaussian(noise_multiplier=2.0, unit="record").sampled(fp.Poisson(0.2))


@pytest.fixture(autouse=True)
def same_process():
    """Leave torch's randomness, and what Lightning sets for several processes, as it was."""
    before, variables = torch.get_rng_state(), dict(os.environ)
    yield
    torch.set_rng_state(before)
    os.environ.clear()
    os.environ.update(variables)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def fit(folder, module=None, budget=9.0, ckpt_path=None, data=None, **trainer):
    private = fits.private(folder, budget)
    made = fits.trainer(folder, private, **trainer)
    loader = fits.loader(**(data or {}))
    made.fit(module or fits.Linear(), private.loader(loader), ckpt_path=ckpt_path)
    return made, private


def rounds(folder):
    return Ledger.open(folder / "run.ledger").rounds


def enough_for(steps):
    """Return an epsilon between that of so many steps and that of one more."""
    ends = [
        fp.epsilon(STEP * n, delta=1e-5, adjacency="zero_out").upper for n in (steps, steps + 1)
    ]
    return sum(ends) / 2


def test_a_fit_is_recorded_step_by_step(tmp_path):
    """Seeded, and with a validation, which restores the state of torch's generator."""
    seed_everything(1)
    trainer, _ = fit(tmp_path, fits.Linear(validate=True), max_epochs=2)
    assert trainer.global_step == len(rounds(tmp_path)) == 10
    found = fp.audit(tmp_path / "run.ledger")
    assert found.verdict == "HOLDS"
    exact = fp.epsilon(STEP * 10, delta=1e-5, adjacency="zero_out")
    assert found.bound.upper == exact.upper


SETTINGS = {
    "two workers": ({"num_workers": 2}, {"max_epochs": 2}, 10),
    "empty batches": ({"batch_size": 1}, {"max_epochs": 1}, 40),
    "a number of steps": ({}, {"max_steps": 3}, 3),
    "a part of a pass": ({}, {"max_epochs": 3, "limit_train_batches": 2}, 6),
    "a new iterator each pass": ({}, {"max_epochs": 2, "reload_dataloaders_every_n_epochs": 1}, 10),
}


@pytest.mark.parametrize(("data", "trainer", "steps"), SETTINGS.values(), ids=SETTINGS)
def test_settings_of_the_trainer_leave_one_round_for_one_step(tmp_path, data, trainer, steps):
    module = fits.Linear()
    made, _ = fit(tmp_path, module, data=data, **trainer)
    drawn = [one.done.cohort for one in rounds(tmp_path)]
    assert made.global_step == len(drawn) == steps
    # Without an empty batch once in .64^40 of all runs, or 2 in 10^8.
    assert "batch_size" not in data or 0 in drawn
    assert torch.isfinite(module.layer.weight).all()
    assert fp.audit(tmp_path / "run.ledger").verdict == "HOLDS"


def test_noise_is_new_although_everything_is_seeded(tmp_path):
    weights = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        seed_everything(1)
        module = fits.Linear()
        fit(tmp_path / name, module, max_epochs=1)
        weights.append(module.layer.weight.detach().clone())
    assert not torch.equal(*weights)


def test_the_noise_that_is_added_is_the_noise_that_is_priced(tmp_path):
    """Records without gradients: all that moves the weights is noise of std 2 x 1.5 / 8."""
    module = fits.Linear(width=2000, still=True)
    fit(tmp_path, module, max_epochs=1, limit_train_batches=1)
    moved = module.layer.weight.detach() / fits.RATE
    assert moved.std().item() == pytest.approx(2.0 * 1.5 / 8, rel=0.1)
    (only,) = rounds(tmp_path)
    assert only.done.noise_std == 3.0 and only.done.denominator == 8.0


def test_a_fit_stops_at_its_budget(tmp_path):
    trainer, _ = fit(tmp_path, budget=enough_for(3), max_epochs=4)
    assert trainer.global_step == len(rounds(tmp_path)) == 3
    assert fp.audit(tmp_path / "run.ledger").verdict == "HOLDS"


def test_a_trainer_that_must_go_on_is_stopped_by_an_error(tmp_path):
    with pytest.raises(BudgetExhausted):
        fit(tmp_path, budget=enough_for(3), max_epochs=4, min_epochs=2)
    assert len(rounds(tmp_path)) == 3


@pytest.mark.parametrize("moment", ["released", "confirmed"])
def test_a_kill_counts_the_step(tmp_path, moment):
    command = [sys.executable, "-m", "tests.integrations.lightning_fit", str(tmp_path), moment]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == -9, done.stderr[-2000:]
    # The parameters had moved three times.
    assert (tmp_path / "moved").read_text() == "3"
    assert len(rounds(tmp_path)) == 3
    fit(tmp_path, max_epochs=1)
    assert len(rounds(tmp_path)) == 8
    exact = fp.epsilon(STEP * 8, delta=1e-5, adjacency="zero_out")
    assert fp.audit(tmp_path / "run.ledger").bound.upper == exact.upper


def test_steps_after_a_checkpoint_count_twice_if_they_run_twice(tmp_path):
    class Fails(fits.Linear):
        def on_train_batch_start(self, batch, batch_idx):
            if self.global_step == 7:
                raise RuntimeError("after two steps of the second epoch")

    with pytest.raises(RuntimeError, match="after two steps"):
        fit(tmp_path, Fails(), max_epochs=3, checkpoints=True)
    (saved,) = tmp_path.glob("*.ckpt")
    assert len(rounds(tmp_path)) == 7
    # As a new process: this one would remember the batch that was drawn and not stepped.
    code = "import sys; from tests.integrations.lightning_fit import resume; resume(*sys.argv[1:])"
    words = [sys.executable, "-c", code, str(tmp_path), str(saved)]
    subprocess.run(words, cwd=ROOT, check=True, capture_output=True)
    assert len(rounds(tmp_path)) == 7 + 10
    # A checkpoint does not continue with a ledger that misses its steps.
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(ParameterError, match="checkpoint must be of the run of this ledger"):
        fit(other, max_epochs=3, ckpt_path=saved)


def test_an_error_in_a_step_leaves_a_ledger_that_counts_every_release(tmp_path):
    class Fails(fits.Linear):
        def training_step(self, batch, batch_idx):
            if batch_idx == 2:
                raise RuntimeError("no")
            return super().training_step(batch, batch_idx)

    with pytest.raises(RuntimeError, match="no"):
        fit(tmp_path, Fails(), max_epochs=1)
    assert len(rounds(tmp_path)) == 2
    assert not Ledger.open(tmp_path / "run.ledger").closed


class Manual(fits.Linear):
    """Steps by itself, several times on request."""

    def __init__(self, steps=1, skips=False):
        super().__init__()
        self.automatic_optimization = False
        self.steps, self.skips = steps, skips

    def training_step(self, batch, batch_idx):
        optimizer = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(self.loss(batch))
        for _ in range(0 if self.skips and batch_idx == 1 else self.steps):
            optimizer.step()


def test_manual_optimization_is_recorded_as_well(tmp_path):
    fit(tmp_path, Manual(), max_epochs=1)
    assert len(rounds(tmp_path)) == 5
    assert fp.audit(tmp_path / "run.ledger").verdict == "HOLDS"


class Second(fits.Linear):
    """Holds an optimizer that the trainer does not know."""

    def configure_optimizers(self):
        self.hidden = torch.optim.SGD(self.parameters(), lr=0.1)
        return super().configure_optimizers()

    def on_train_batch_end(self, *_):
        self.hidden.step()


class Direct(fits.Linear):
    """Steps the optimizer that was made private, without its noise."""

    def configure_optimizers(self):
        self.plain = super().configure_optimizers()
        return self.plain

    def on_train_batch_end(self, *_):
        self.plain.step()


class Both(Manual):
    def configure_optimizers(self):
        return [super(Both, self).configure_optimizers() for _ in range(2)]


class Skips(fits.Linear):
    """Looks at a batch, and then leaves it out."""

    def training_step(self, batch, batch_idx):
        return None if batch_idx == 1 else super().training_step(batch, batch_idx)


class Swaps(fits.Linear):
    """Gives the trainer another optimizer after the start."""

    def on_train_batch_start(self, batch, batch_idx):
        if batch_idx == 1:
            self.trainer.optimizers = [torch.optim.SGD(self.parameters(), lr=0.1)]


TRICKS = {
    "two steps of a batch": (lambda: Manual(steps=2), {}, "haven't been cleared"),
    "a batch without a step": (lambda: Manual(skips=True), {}, "be stepped before the next"),
    "a skipped step": (Skips, {}, "Per sample gradient"),
    "a second optimizer": (Second, {}, "parameters changed outside of the recorded steps"),
    "the plain optimizer": (Direct, {}, "a step was taken that was not recorded"),
    "two optimizers": (Both, {}, "be one"),
    "another optimizer": (Swaps, {}, "compatible with grad accumulation"),
    "accumulated batches": (fits.Linear, {"accumulate_grad_batches": 2}, "be 1"),
    "half precision": (fits.Linear, {"precision": "bf16-mixed"}, "32-true"),
    "clipped by the trainer": (fits.Linear, {"gradient_clip_val": 1.0}, "gradient_clip_val"),
    "several processes": (fits.Linear, {"strategy": "ddp"}, "one device in one process"),
}


@pytest.mark.parametrize(("module", "trainer", "reason"), TRICKS.values(), ids=TRICKS)
def test_other_steps_than_those_that_are_priced_are_refused(tmp_path, module, trainer, reason):
    with pytest.raises((ParameterError, ValueError, TypeError), match=reason):
        fit(tmp_path, module(), max_epochs=1, **trainer)
    file = tmp_path / "run.ledger"
    assert not file.exists() or fp.audit(file).verdict == "CANNOT BE CERTIFIED"
    # A step that was taken is never certified, also where the run is resumed and completed.
    if "recorded" in reason:
        assert Ledger.open(file).voids


def test_the_loader_of_the_run_is_demanded(tmp_path):
    private = fits.private(tmp_path)
    private.loader(fits.loader())
    with pytest.raises(ParameterError, match="be the loader of this run"):
        fits.trainer(tmp_path, private, max_epochs=1).fit(fits.Linear(), fits.loader())
    with pytest.raises(ParameterError, match="a second one"):
        private.loader(fits.loader())


def test_a_complete_ledger_takes_no_other_fit(tmp_path):
    fit(tmp_path, max_epochs=1)
    with pytest.raises(LedgerError, match="is closed"):
        fit(tmp_path, max_epochs=1)
