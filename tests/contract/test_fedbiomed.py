"""Fed-BioMed 6.4: a node's rounds with "local" privacy, in a ledger of the node."""

import pytest

pytest.importorskip("fedbiomed", reason="pip install fedbiomed '.[test]' elsewhere, Python 3.11")
torch = pytest.importorskip("torch")

from fedbiomed.common.dataloader import PytorchDataLoader  # noqa: E402
from fedbiomed.common.training_args import TrainingArgs  # noqa: E402
from fedbiomed.common.training_plans import TorchTrainingPlan  # noqa: E402
from torch.utils.data import TensorDataset  # noqa: E402

import fedprivacy as fp  # noqa: E402
from fedprivacy.errors import BudgetExhausted  # noqa: E402
from fedprivacy.integrations.opacus import keep_books  # noqa: E402
from fedprivacy.ledger import Ledger  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
STEP = fp.Gaussian(noise_multiplier=2.0, unit="record").sampled(fp.Poisson(0.2))


class Plan(TorchTrainingPlan):
    """A training plan whose node keeps books; the budget and ledger come from outside."""

    def init_model(self, model_args):
        return torch.nn.Linear(3, 1)

    def init_optimizer(self, optimizer_args):
        return torch.optim.SGD(self.model().parameters(), lr=0.1)

    def training_step(self, data, target):
        return ((self.model()(data) - target) ** 2).sum()

    def training_data(self):
        raise NotImplementedError

    def booked(self, optimizer, loader):
        keep_books(optimizer.optimizer, loader, ledger=self.ledger, budget=self.budget)
        return optimizer, loader

    def training_routine(self, *given, **named):
        plain = self._dp_controller.before_training
        self._dp_controller.before_training = lambda **parts: self.booked(*plain(**parts))
        return super().training_routine(*given, **named)


def one_round(path, budget, updates=4, kind="local"):
    """Run a round on a node; the ledger is resumed from round to round."""
    facts = {"unit": "record", "adjacency": "zero_out", "claim": (9.0, 1e-5)}
    opened = Ledger.open(path, resume=True) if path.exists() else Ledger.create(path, **facts)
    arguments = TrainingArgs(
        {
            "num_updates": updates,
            "loader_args": {"batch_size": 8},
            "dp_args": {"type": kind, "sigma": 2.0, "clip": 1.5},
        },
        only_required=False,
    )
    plan = Plan()
    plan.ledger, plan.budget = opened, budget
    plan.post_init({}, arguments)
    data = TensorDataset(torch.randn(40, 3), torch.ones(40, 1))
    plan.set_data_loaders(PytorchDataLoader(data, batch_size=8, shuffle=True), None)
    with opened:
        plan.training_routine()
    return plan


def a_budget(epsilon=9.0):
    return fp.Budget(epsilon, 1e-5, adjacency="zero_out")


def test_every_step_of_every_round_is_recorded(tmp_path):
    path = tmp_path / "run.ledger"
    for _ in range(2):
        one_round(path, a_budget())
    with Ledger.open(path, resume=True) as ledger:
        ledger.close()
    assert len(ledger.rounds) == 8
    exact = fp.epsilon(STEP * 8, delta=1e-5, adjacency="zero_out")
    found = fp.audit(path)
    assert found.verdict == "HOLDS" and found.bound.upper == exact.upper


def test_a_node_stops_at_its_budget_over_rounds(tmp_path):
    path = tmp_path / "run.ledger"
    ends = [fp.epsilon(STEP * n, delta=1e-5, adjacency="zero_out").upper for n in (6, 7)]
    one_round(path, a_budget(sum(ends) / 2))
    with pytest.raises(BudgetExhausted):
        one_round(path, a_budget(sum(ends) / 2))
    assert len(Ledger.open(path).rounds) == 6


def test_steps_without_noise_are_refused(tmp_path):
    """Its "central" type adds no noise to the steps of a node."""
    with pytest.raises((fp.ParameterError, fp.UnsupportedCombination)):
        one_round(tmp_path / "run.ledger", a_budget(), kind="central")
    assert not Ledger.open(tmp_path / "run.ledger").rounds
