"""Books on Opacus that were switched off, batches that were dropped, noise that comes again.

Each of these left a record that HOLDS. Now it is refused where it happens, or the record is void.
"""

import copy
from itertools import islice

import pytest

import fedprivacy as fp

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")

from opacus import PrivacyEngine  # noqa: E402
from opacus.accountants import RDPAccountant  # noqa: E402
from opacus.utils.batch_memory_manager import BatchMemoryManager  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

from fedprivacy.integrations import opacus as live  # noqa: E402
from fedprivacy.integrations.opacus.randomness import keyed  # noqa: E402

from .opacus_loops import DATA, FACTS, SAMPLERS, backward, private, train  # noqa: E402

NOT_STEPPED = "be stepped before the next one is drawn"


@pytest.fixture(autouse=True)
def registered():
    live.register(adjacency="zero_out")
    before = torch.get_rng_state()
    torch.seed()
    yield
    torch.set_rng_state(before)


@pytest.fixture
def ledger(tmp_path):
    with fp.Ledger.create(tmp_path / "a", **FACTS) as ledger:
        yield ledger


def judged(ledger):
    ledger.release()
    return fp.audit(ledger.path)


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


def no_hook(engine, network, optimizer, loader):
    optimizer.step_hook = None
    train(network, optimizer, loader, 1)


def second_engine(engine, network, optimizer, loader):
    """Make what is private so once more: Opacus wraps the same optimizer again."""
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
    with pytest.raises(fp.ParameterError, match="a step must be begun by keep_books"):
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


def test_a_record_that_is_void_stays_so_where_its_ledger_is_closed_by_another(ledger):
    engine, network, optimizer, loader = private()
    live.keep_books(optimizer, loader, ledger=ledger)
    train(network, optimizer, loader, 2)
    with pytest.raises(fp.ParameterError):
        no_hook(engine, network, optimizer, loader)
    ledger.release()
    with fp.Ledger.open(ledger.path, resume=True) as again:
        again.close()
    found = fp.audit(ledger.path)
    assert again.closed and found.verdict == "CANNOT BE CERTIFIED"
    # It would fail a small claim as little as it keeps a large one.
    assert fp.audit(ledger.path, claim=(1e-3, 1e-5)).verdict == "CANNOT BE CERTIFIED"


def test_a_step_is_seen_after_it_where_the_first_look_was_taken_out(ledger):
    _, network, optimizer, loader = private()
    books = live.keep_books(optimizer, loader, ledger=ledger)
    optimizer.original_optimizer._optimizer_step_pre_hooks.clear()
    optimizer.attach_step_hook(lambda optimizer: None)
    with pytest.raises(fp.ParameterError, match="a step must be begun"):
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


@pytest.mark.parametrize("optimizer_given", [True, False])
def test_an_accountant_that_counts_no_steps_gives_no_number(optimizer_given):
    """A hook in the place of the accountant's: five steps, epsilon 0."""
    engine, network, optimizer, loader = private()
    engine.accountant.look_at(loader, *[optimizer] * optimizer_given)
    train(network, optimizer, loader, 1)
    assert engine.get_epsilon(1e-5) > 0.0
    with pytest.raises(fp.ParameterError, match="a step must be begun"):
        no_hook(engine, network, optimizer, loader)
    with pytest.raises(fp.ParameterError, match="void"):
        engine.get_epsilon(1e-5)


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


def test_books_are_kept_once_until_they_end(ledger, tmp_path):
    _, network, optimizer, loader = private()
    books = live.keep_books(optimizer, loader, ledger=ledger)
    with fp.Ledger.create(tmp_path / "b", **FACTS) as other:
        with pytest.raises(fp.ParameterError, match="keep_books must be called once"):
            live.keep_books(optimizer, loader, ledger=other)
        train(network, optimizer, loader, 2)
        books.close()
        with pytest.raises(fp.ParameterError, match=r"after StepBooks\.close"):
            train(network, optimizer, loader, 1)
        more = live.keep_books(optimizer, loader, ledger=other)
        train(network, optimizer, loader, 3)
        more.close()
    assert (judged(ledger).rounds, judged(other).rounds) == (2, 3)


def test_an_optimizer_of_before_is_refused(ledger):
    _, network, optimizer, loader = private()
    train(network, optimizer, loader, 1)
    with pytest.raises(fp.ParameterError, match="clipped gradients from before"):
        live.keep_books(optimizer, loader, ledger=ledger)


# ---- a record without a round


@pytest.mark.parametrize("close", ["books", "ledger"])
def test_books_without_a_step_are_not_closed(close, ledger):
    _, _, optimizer, loader = private()
    books = live.keep_books(optimizer, loader, ledger=ledger)
    with pytest.raises(fp.ParameterError, match="the run must have recorded a step"):
        {"books": books, "ledger": ledger}[close].close()
    assert not ledger.closed
    assert judged(ledger).verdict == "CANNOT BE CERTIFIED"


def test_an_audit_says_that_no_round_was_recorded(ledger, tmp_path):
    ledger.close()
    found = fp.audit(ledger.path)
    assert found.statement == "HOLDS, no round was recorded"
    assert "No round was recorded." in str(found)
    assert found.to_dict()["statement"] == found.statement
    assert found.to_dict()["defects"] == ["a record without rounds"]
    assert "no round was recorded" in str(found.bound)
    assert "no round was recorded" in str(fp.account(ledger.path, delta=1e-5))
    for name in ("page.html", "page.md"):
        fp.report(found, tmp_path / name)
        assert "no round was recorded" in (tmp_path / name).read_text(encoding="utf-8")


# ---- batches that were drawn and not stepped


def skipping(network, optimizer, loader, skipped):
    for number, (x, y) in enumerate(loader):
        if number == skipped:
            continue
        backward(network, optimizer, x, y)
        optimizer.step()


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", ["poisson", "shuffled"])
def test_no_batch_is_drawn_while_one_was_not_stepped(kind, workers, ledger):
    """Empty batches that were skipped: .4653 certified, .760 true."""
    engine, network, optimizer, loader = private(num_workers=workers, **SAMPLERS[kind][0])
    engine.accountant.look_at(loader, optimizer)
    books = live.keep_books(optimizer, loader, ledger=ledger)
    for _ in range(2):
        with pytest.raises(fp.ParameterError, match=NOT_STEPPED):
            skipping(network, optimizer, loader, 1)
    with pytest.raises(fp.ParameterError, match=NOT_STEPPED.split()[1]):
        engine.get_epsilon(1e-5)
    for close in (books.close, ledger.close):
        with pytest.raises(fp.ParameterError, match="stepped before the run is complete"):
            close()
    # Who ends here has dropped a batch: the record says so.
    assert fp.audit(ledger.path).verdict == "CANNOT BE CERTIFIED" and fp.audit(ledger.path).void
    train(network, optimizer, loader, 1)
    assert not ledger.voids
    books.close()
    found = judged(ledger)
    assert found.verdict == "HOLDS" and not found.defects
    assert found.bound.upper == engine.get_epsilon(1e-5)


def test_a_batch_that_waits_is_handed_out_again(ledger):
    _, network, optimizer, loader = private(False, shuffle=True)
    books = live.keep_books(optimizer, loader, ledger=ledger)
    seen = []
    loader.batch_sampler.draws.listeners.append(Listener(seen))
    for _ in range(3):
        next(iter(loader))
    assert [draw.number for draw in seen] == [0, 0, 0] and len({id(draw) for draw in seen}) == 1
    # In the pass that drew it.
    train(network, optimizer, loader, 1)
    books.close()
    assert [one.done.cohort for one in ledger.rounds] == [8]


class Listener:
    """Hears what is handed out."""

    def __init__(self, seen):
        self.seen = seen

    def handed_out(self, draw):
        self.seen.append(draw)

    def restart(self):
        pass


@pytest.mark.parametrize("workers", [0, 2])
def test_a_pass_that_is_left_gives_its_batch_to_its_own_round(workers, ledger):
    """A record of it is in the next pass as well, which is another round."""
    engine, network, optimizer, loader = private(False, shuffle=True, num_workers=workers)
    engine.accountant.look_at(loader)
    books = live.keep_books(optimizer, loader, ledger=ledger)
    train(network, optimizer, loader, 2)
    next(iter(loader))
    # One batch that waits, and then a whole pass of five.
    train(network, optimizer, loader, 6)
    books.close()
    # The pass that was left, the one whose first batch was looked at, and a whole one.
    assert [one.done.cohort for one in ledger.rounds] == [16, 8, 40]
    assert engine.get_epsilon(1e-5) == fp.audit(ledger.path).bound.upper


def test_the_accountant_alone_sees_a_batch_that_was_dropped():
    engine, network, optimizer, loader = private()
    engine.accountant.look_at(loader)
    with pytest.raises(fp.ParameterError, match=NOT_STEPPED):
        skipping(network, optimizer, loader, 1)
    with pytest.raises(
        fp.ParameterError, match="be stepped before epsilon is computed, since dropping"
    ):
        engine.get_epsilon(1e-5)
    train(network, optimizer, loader, 1)
    assert len(engine.accountant) == 2 and engine.get_epsilon(1e-5) > 0.0


@pytest.mark.parametrize("part", [0, 1])
def test_parts_of_a_batch_are_not_skipped_either(part, ledger):
    _, network, optimizer, loader = private(False, shuffle=True, batch_size=20)
    books = live.keep_books(optimizer, loader, ledger=ledger)
    manager = BatchMemoryManager(data_loader=loader, max_physical_batch_size=5, optimizer=optimizer)
    with manager as small:
        # The signals of the parts are then those of others.
        with pytest.raises(fp.ParameterError):
            for _ in range(3):
                skipping(network, optimizer, small, part)
        for _ in range(2):
            for x, y in small:
                backward(network, optimizer, x, y)
                optimizer.step()
    books.close()
    assert judged(ledger).verdict == "HOLDS"
    assert all(one.done.cohort <= 40 for one in ledger.rounds)


def test_a_manager_s_batch_that_was_left_half_way_is_summed_once(ledger):
    _, network, optimizer, loader = private(False, shuffle=True, batch_size=20)
    books = live.keep_books(optimizer, loader, ledger=ledger)
    manager = BatchMemoryManager(data_loader=loader, max_physical_batch_size=5, optimizer=optimizer)
    with manager as small:
        for x, y in islice(small, 2):
            backward(network, optimizer, x, y)
            optimizer.step()
        assert not ledger.begun_rounds
        for x, y in islice(small, 8):
            backward(network, optimizer, x, y)
            optimizer.step()
    books.close()
    # The batch that was left is of the pass that drew it.
    assert [one.done.cohort for one in ledger.rounds] == [20, 20]


def test_batches_that_the_budget_refused_may_go(ledger):
    """Whether a step fits does not depend on its batch."""
    engine, network, optimizer, loader = private()
    engine.accountant.look_at(loader)
    budget = fp.Budget(1.2, 1e-5, adjacency="zero_out")
    books = live.keep_books(optimizer, loader, ledger=ledger, budget=budget)
    for _ in range(2):
        with pytest.raises(fp.errors.BudgetExhausted):
            train(network, optimizer, loader, 100)
    books.close()
    assert judged(ledger).verdict == "HOLDS"
    assert engine.get_epsilon(1e-5) == fp.audit(ledger.path).bound.upper


def test_a_batch_that_another_optimizer_stepped_is_missing_here(tmp_path):
    _, network, optimizer, loader = private(False, shuffle=True)
    other = torch.nn.Linear(3, 1)
    other, second, _ = PrivacyEngine(accountant="rdp").make_private(
        module=other,
        optimizer=torch.optim.SGD(other.parameters(), lr=0.1),
        data_loader=DataLoader(DATA, batch_size=8),
        noise_multiplier=2.0,
        max_grad_norm=1.0,
        poisson_sampling=False,
    )
    facts = {**FACTS, "claim": (90.0, 1e-5)}
    with (
        fp.Ledger.create(tmp_path / "a", **facts) as one,
        fp.Ledger.create(tmp_path / "b", **facts) as two,
    ):
        books = live.keep_books(optimizer, loader, ledger=one)
        both = live.keep_books(second, loader, ledger=two)
        with pytest.raises(fp.ParameterError, match="be stepped by this optimizer as well, since"):
            for number, (x, y) in enumerate(loader):
                backward(other, second, x, y)
                second.step()
                if number != 1:
                    backward(network, optimizer, x, y)
                    optimizer.step()
        with pytest.raises(fp.ParameterError, match="void"):
            books.close()
        both.close()
    assert fp.audit(tmp_path / "a").verdict == "CANNOT BE CERTIFIED"
    assert fp.audit(tmp_path / "b").verdict == "HOLDS"


@pytest.mark.parametrize("kind", ["poisson", "shuffled"])
def test_a_step_is_of_the_whole_batch(kind, ledger):
    """Who leaves out what is in a small batch selects as well."""
    _, network, optimizer, loader = private(**{**SAMPLERS[kind][0], "batch_size": 20})
    books = live.keep_books(optimizer, loader, ledger=ledger)
    x, y = next(iter(loader))
    with pytest.raises(fp.ParameterError, match="a step's gradients must come from"):
        train(network, optimizer, [(x[:-1], y[:-1])], 1)
    # A run that ends here, and goes on later, has dropped a batch.
    assert ledger.voids == ("a batch was drawn, but its step did not follow",)
    train(network, optimizer, [(x, y)], 1)
    assert not ledger.voids
    books.close()
    assert judged(ledger).statement == "HOLDS"


def test_a_loader_that_is_looked_at_is_not_copied(ledger):
    _, _, optimizer, loader = private()
    live.keep_books(optimizer, loader, ledger=ledger)
    with pytest.raises(fp.ParameterError, match="passed to look_at must be used directly"):
        copy.deepcopy(loader)


def test_noise_is_added_by_the_optimizer(ledger):
    _, network, optimizer, loader = private()
    live.keep_books(optimizer, loader, ledger=ledger)

    def none():
        for parameter in optimizer.params:
            parameter.grad = parameter.summed_grad.clone()

    optimizer.add_noise = none
    with pytest.raises(fp.ParameterError, match="the noise of a step must be added by"):
        train(network, optimizer, loader, 1)
    assert not ledger.begun_rounds


def test_workers_hand_out_in_order():
    _, _, optimizer, loader = private(num_workers=1)
    loader.in_order = False
    with pytest.raises(fp.UnsupportedCombination, match="in_order=False"):
        live.keep_books(optimizer, loader)


# ---- noise, and draws, that come again


def session(ledger, state=None, steps=3, **options):
    """Return the noise of a session's steps, and the books."""
    _, network, optimizer, loader = private(**options)
    if state is not None:
        torch.set_rng_state(state)
    books, noises = live.keep_books(optimizer, loader, ledger=ledger), []
    for x, y in islice(loader, steps):
        backward(network, optimizer, x, y)
        optimizer.step()
        noises.append(torch.cat([(p.grad * 8 - p.summed_grad).flatten() for p in optimizer.params]))
    return books, torch.stack(noises)


@pytest.mark.parametrize("kind", ["poisson", "shuffled", "one batch of a few"])
def test_a_restored_state_gives_other_noise(kind, tmp_path):
    """Two sessions whose noises were equal to 2.4e-7: their difference gave the data away."""
    state, path = torch.get_rng_state(), tmp_path / "a"
    options, steps = SAMPLERS[kind][0], 1
    with fp.Ledger.create(path, **FACTS) as ledger:
        _, one = session(ledger, state, steps, **options)
    with fp.Ledger.open(path, resume=True) as ledger:
        books, two = session(ledger, state, steps, **options)
        books.close()
    # Four numbers, of std 4.2: all within .001 by chance with less than 2e-15.
    assert (one - two).abs().max() > 1e-3
    assert fp.audit(path).verdict == "HOLDS"


def test_a_restored_state_draws_other_batches(ledger):
    state, seen = torch.get_rng_state(), []
    for _ in range(2):
        _, network, optimizer, loader = private(batch_size=20)
        torch.set_rng_state(state)
        books = live.keep_books(optimizer, loader, ledger=ledger)
        listener = Listener(seen)
        loader.batch_sampler.draws.listeners.append(listener)
        train(network, optimizer, loader, 4)
    books.close()
    # 160 fair coins fall alike twice with a chance of 2^-160.
    first, second = seen[:4], seen[4:]
    assert [draw.indices for draw in first] != [draw.indices for draw in second]


def test_a_restored_state_within_a_session_gives_other_noise(ledger):
    _, network, optimizer, loader = private(False, shuffle=True)
    live.keep_books(optimizer, loader, ledger=ledger)
    state, noises = torch.get_rng_state(), []
    for x, y in islice(loader, 2):
        torch.set_rng_state(state)
        backward(network, optimizer, x, y)
        optimizer.step()
        noises.append(torch.cat([(p.grad * 8 - p.summed_grad).flatten() for p in optimizer.params]))
    assert (noises[0] - noises[1]).abs().max() > 1e-3


@pytest.mark.parametrize("whose", ["ours", "given"])
def test_a_restored_state_of_the_noise_s_own_generator_is_refused(whose, ledger):
    _, network, optimizer, loader = private()
    if whose == "given":
        optimizer.generator = torch.Generator()
        optimizer.generator.seed()
    books = live.keep_books(optimizer, loader, ledger=ledger)
    state = optimizer.generator.get_state()
    train(network, optimizer, loader, 2)
    optimizer.generator.set_state(state)
    start = [p.clone() for p in network.parameters()]
    # Of a given generator each state is known that was drawn from, and all are refused.
    for _ in range(2 if whose == "given" else 1):
        with pytest.raises(fp.ParameterError, match="generator of torch must be one that nothing"):
            train(network, optimizer, loader, 1)
    assert all(map(torch.equal, start, network.parameters()))
    train(network, optimizer, loader, 1)
    books.close()
    assert judged(ledger).rounds == 3


def test_a_given_generator_is_looked_at_across_sessions(tmp_path):
    generator = torch.Generator()
    generator.seed()
    state = generator.get_state()
    for number in range(2):
        _, network, optimizer, loader = private()
        optimizer.generator = generator
        generator.set_state(state)
        with fp.Ledger.create(tmp_path / str(number), **FACTS) as ledger:
            live.keep_books(optimizer, loader, ledger=ledger)
            if number:
                with pytest.raises(fp.ParameterError, match="generator of torch must be one that"):
                    train(network, optimizer, loader, 1)
                assert not ledger.begun_rounds
            else:
                train(network, optimizer, loader, 1)


@pytest.mark.parametrize("kind", ["poisson", "with replacement"])
def test_a_restored_state_of_the_draws_is_refused(kind, ledger):
    _, network, optimizer, loader = private(**SAMPLERS[kind][0])
    live.keep_books(optimizer, loader, ledger=ledger)
    sampler = loader.batch_sampler if kind == "poisson" else loader.batch_sampler.sampler
    state = sampler.generator.get_state()
    train(network, optimizer, loader, 2)
    sampler.generator.set_state(state)
    with pytest.raises(fp.ParameterError, match="generator of torch must be one that nothing"):
        train(network, optimizer, loader, 1)


def test_a_budget_alone_has_noise_of_its_own_too():
    state, noises = torch.get_rng_state(), []
    for _ in range(2):
        _, network, optimizer, loader = private(False, shuffle=True)
        torch.set_rng_state(state)
        budget = fp.Budget(90.0, 1e-5, adjacency="zero_out")
        live.keep_books(optimizer, loader, budget=budget)
        train(network, optimizer, loader, 1)
        noises.append(torch.cat([(p.grad * 8 - p.summed_grad).flatten() for p in optimizer.params]))
        assert budget.spent().qualified == ()
    assert (noises[0] - noises[1]).abs().max() > 1e-3


def test_a_fixed_seed_is_a_fixed_seed(tmp_path):
    """What is to be reproducible is: the ledger says that it is not private."""
    noises = []
    for number in range(2):
        torch.manual_seed(5)
        facts = {**FACTS, "seed_policy": "fixed"}
        with fp.Ledger.create(tmp_path / str(number), **facts) as ledger:
            books, noise = session(ledger)
            books.close()
        noises.append(noise)
        assert "the seed was fixed" in fp.audit(ledger.path).statement
    assert torch.equal(*noises)


def test_a_key_is_more_than_the_seed_of_a_generator():
    """torch takes 32 bits of a seed for the processor's generator."""
    one = keyed(torch.device("cpu"))
    seeded = torch.Generator().manual_seed(one.initial_seed())
    assert not torch.equal(torch.rand(8, generator=one), torch.rand(8, generator=seeded))
    # Its law is the same: of 40,000 numbers the mean is within 7 standard errors, 2.6e-12 apart.
    drawn = torch.randn(40_000, generator=one, dtype=torch.float64)
    assert abs(float(drawn.mean())) < 7 / 200 and abs(float(drawn.var()) - 1) < 7 * (2 / 4e4) ** 0.5


def test_a_refusal_that_does_not_look_at_the_batch_voids_nothing(ledger):
    """The run is mended and resumed: what was refused had nothing to do with what was drawn."""
    _, network, optimizer, loader = private()
    live.keep_books(optimizer, loader, ledger=ledger)
    train(network, optimizer, loader, 2)
    optimizer.noise_multiplier = 0.0
    with pytest.raises(fp.ParameterError, match="noise_multiplier"):
        train(network, optimizer, loader, 1)
    ledger.release()
    with fp.Ledger.open(ledger.path, resume=True) as again:
        _, network, optimizer, loader = private()
        books = live.keep_books(optimizer, loader, ledger=again)
        train(network, optimizer, loader, 1)
        books.close()
    found = fp.audit(ledger.path)
    assert found.statement == "HOLDS" and found.rounds == 3


def test_every_bookkeeper_must_begin_a_step(ledger):
    """Books that come first do not stand in for an accountant whose hook was never attached."""
    _, network, optimizer, loader = private()
    live.keep_books(optimizer, loader, ledger=ledger)
    late = PrivacyEngine(accountant=live.NAME).accountant
    late.look_at(loader, optimizer)
    with pytest.raises(fp.ParameterError, match="a step was taken that was not recorded"):
        train(network, optimizer, loader, 1)
    # The step was refused: its round stays spent, and the accountant, which missed it, is void.
    assert ledger.spent_rounds == 1
    with pytest.raises(fp.ParameterError, match="step"):
        late.get_epsilon(1e-5)
