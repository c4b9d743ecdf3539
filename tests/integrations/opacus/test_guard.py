"""Tests of ``fedprivacy.integrations.opacus.guard``."""

import pytest

import fedprivacy as fp
from tests.integrations.opacus.test_books import judged, no_hook

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")

from opacus import PrivacyEngine  # noqa: E402
from opacus.accountants import RDPAccountant  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

from fedprivacy.integrations import opacus as live  # noqa: E402
from tests.integrations.opacus.loops import DATA, backward, private, train  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
NOT_STEPPED = "be stepped before the next one is drawn"


@pytest.fixture(autouse=True)
def registered():
    live.register(adjacency="zero_out")
    before = torch.get_rng_state()
    torch.seed()
    yield
    torch.set_rng_state(before)


# ---- steps that the books did not begin


def raw_step(engine, network, optimizer, loader):
    x, y = next(iter(loader))
    backward(network, optimizer, x, y)
    optimizer.original_optimizer.step()


def stepping(attach):
    """Return what attaches a hook and then takes a step."""

    def run(engine, network, optimizer, loader):
        optimizer.attach_step_hook(attach(engine))
        train(network, optimizer, loader, 1)

    return run


def second_engine(engine, network, optimizer, loader):
    """Make the training private once more: Opacus wraps the same optimizer again."""
    made = PrivacyEngine(accountant="rdp").make_private(
        module=network,
        optimizer=optimizer,
        data_loader=DataLoader(DATA, batch_size=8),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
    )
    train(*made, 1)


def gradients_after_noise(engine, network, optimizer, loader):
    """Begin a step, and take it with gradients that have no noise."""
    x, y = next(iter(loader))
    backward(network, optimizer, x, y)
    assert optimizer.pre_step()
    for parameter in network.parameters():
        parameter.grad.zero_()
    optimizer.original_optimizer.step()


def hook_by_hand(engine, network, optimizer, loader):
    """Let the books begin a step that gets no noise."""
    x, y = next(iter(loader))
    backward(network, optimizer, x, y)
    optimizer.clip_and_accumulate()
    optimizer.add_noise()
    optimizer.step_hook(optimizer)
    for parameter in optimizer.params:
        parameter.grad = parameter.summed_grad.clone()
    optimizer.original_optimizer.step()


SWITCHES = {
    "the step hook by hand": hook_by_hand,
    "a logger's hook": stepping(lambda engine: lambda optimizer: None),
    "a second accountant": stepping(lambda engine: RDPAccountant().get_optimizer_hook_fn(0.2)),
    "the engine's own hook again": stepping(
        lambda engine: engine.accountant.get_optimizer_hook_fn(0.2)
    ),
    "no hook": no_hook,
    "the wrapped optimizer": raw_step,
    "a second engine": second_engine,
    "gradients after their noise": gradients_after_noise,
}


@pytest.mark.parametrize("before", [0, 2])
@pytest.mark.parametrize("how", SWITCHES)
def test_a_step_that_the_books_did_not_begin_is_refused_and_voids_them(how, before, ledger):
    """Five steps of noise .01, closed: HOLDS, 0 rounds, epsilon 0."""
    engine, network, optimizer, loader = private()
    budget = fp.Budget(9.0, 1e-5, adjacency="zero_out")
    books = live.keep_books(optimizer, loader, ledger=ledger, budget=budget)
    if before:
        train(network, optimizer, loader, before)
    start = [p.clone() for p in network.parameters()]
    with pytest.raises(fp.ParameterError, match="a step must be recorded by keep_books"):
        SWITCHES[how](engine, network, optimizer, loader)
    # It is refused before anything moves.
    assert all(map(torch.equal, start, network.parameters()))
    for close in (books.close, ledger.close):
        with pytest.raises(fp.ParameterError, match="void"):
            close()
    with pytest.raises(fp.UnsupportedCombination):
        budget.spent()
    assert ledger.voids and not ledger.closed
    found = judged(ledger)
    assert found.verdict == "CANNOT BE CERTIFIED" and found.void
    assert "the run declared its record void" in str(found)
    with pytest.raises(fp.UnsupportedCombination, match="void"):
        fp.account(ledger.path, delta=1e-5)
    with pytest.raises(fp.UnsupportedCombination, match="void"):
        fp.Budget(9.0, 1e-5, adjacency="zero_out").charge(fp.Ledger.open(ledger.path))


def test_a_step_is_seen_after_it_where_the_first_look_was_taken_out(ledger):
    _, network, optimizer, loader = private()
    books = live.keep_books(optimizer, loader, ledger=ledger)
    optimizer.original_optimizer._optimizer_step_pre_hooks.clear()
    optimizer.attach_step_hook(lambda optimizer: None)
    with pytest.raises(fp.ParameterError, match="a step must be recorded"):
        train(network, optimizer, loader, 1)
    with pytest.raises(fp.ParameterError, match="void"):
        books.close()


def test_another_wrapped_optimizer_is_refused(ledger):
    _, network, optimizer, loader = private()
    live.keep_books(optimizer, loader, ledger=ledger)
    optimizer.original_optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    start = [p.clone() for p in network.parameters()]
    with pytest.raises(fp.ParameterError, match="original_optimizer must stay"):
        train(network, optimizer, loader, 1)
    assert all(map(torch.equal, start, network.parameters())) and not ledger.begun_rounds


def test_an_accountant_whose_hook_never_ran_gives_no_number():
    engine, network, optimizer, loader = private()
    engine.accountant.look_at(loader)
    optimizer.attach_step_hook(lambda optimizer: None)
    with pytest.raises(fp.ParameterError, match=NOT_STEPPED):
        train(network, optimizer, loader, 2)
    engine.accountant.history.append((2.0, 0.2, 1))
    with pytest.raises(fp.ParameterError, match="void"):
        engine.get_epsilon(1e-5)


def test_hooks_that_call_the_one_before_them_are_welcome(ledger):
    engine, network, optimizer, loader = private()
    engine.accountant.look_at(loader, optimizer)
    books = live.keep_books(optimizer, loader, ledger=ledger)
    held, logged = optimizer.step_hook, []
    optimizer.attach_step_hook(lambda of: (held(of), logged.append(1)))
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    train(network, optimizer, loader, 2)
    schedule.step()
    optimizer.load_state_dict(optimizer.state_dict())
    x, y = next(iter(loader))

    def closure():
        backward(network, optimizer, x, y)
        return 0.0

    optimizer.step(closure)
    if optimizer.original_optimizer.state_dict():
        x, y = next(iter(loader))
        backward(network, optimizer, x, y)
        assert optimizer.pre_step()
        optimizer.original_optimizer.step()
    books.close()
    found = judged(ledger)
    assert found.rounds == len(logged) == len(engine.accountant) == 4
    assert found.verdict == "HOLDS" and not found.defects


@pytest.mark.parametrize("nesterov", [True, False])
def test_optimizers_that_write_to_gradients_are_welcome(nesterov, ledger):
    network = torch.nn.Linear(3, 1)
    network, optimizer, loader = PrivacyEngine(accountant="rdp").make_private(
        module=network,
        optimizer=torch.optim.SGD(
            network.parameters(), lr=0.1, momentum=0.9, nesterov=nesterov, weight_decay=0.1
        ),
        data_loader=DataLoader(DATA, batch_size=8),
        noise_multiplier=2.0,
        max_grad_norm=1.0,
    )
    books = live.keep_books(optimizer, loader, ledger=ledger)
    train(network, optimizer, loader, 3)
    books.close()
    assert judged(ledger).statement == "HOLDS"
