"""Opacus: disabled bookkeeping, dropped batches and repeated noise are refused.

Each of these left a record that HOLDS. Now it is refused where it happens, or the record is void.
"""

from itertools import islice

import pytest

import fedprivacy as fp

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")

from opacus import PrivacyEngine  # noqa: E402
from opacus.utils.batch_memory_manager import BatchMemoryManager  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

from fedprivacy.integrations import opacus as live  # noqa: E402
from tests.integrations.opacus.loops import DATA, FACTS, SAMPLERS, backward, private, train  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning"),
    pytest.mark.usefixtures("narrowest"),
]
NOT_STEPPED = "be stepped before the next one is drawn"


@pytest.fixture(autouse=True)
def registered():
    live.register(adjacency="zero_out")
    before = torch.get_rng_state()
    torch.seed()
    yield
    torch.set_rng_state(before)


def judged(ledger):
    ledger.release()
    return fp.audit(ledger.path)


def no_hook(engine, network, optimizer, loader):
    optimizer.step_hook = None
    train(network, optimizer, loader, 1)


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


@pytest.mark.parametrize("optimizer_given", [True, False])
def test_an_accountant_that_counts_no_steps_gives_no_number(optimizer_given):
    """A hook in the place of the accountant's: five steps, epsilon 0."""
    engine, network, optimizer, loader = private()
    engine.accountant.look_at(loader, *[optimizer] * optimizer_given)
    train(network, optimizer, loader, 1)
    assert engine.get_epsilon(1e-5) > 0.0
    with pytest.raises(fp.ParameterError, match="a step must be recorded"):
        no_hook(engine, network, optimizer, loader)
    with pytest.raises(fp.ParameterError, match="void"):
        engine.get_epsilon(1e-5)


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
    assert found.statement == "CANNOT BE CERTIFIED, no round was recorded"
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
    """To leave out the records of a small batch is a selection as well."""
    _, network, optimizer, loader = private(**{**SAMPLERS[kind][0], "batch_size": 20})
    books = live.keep_books(optimizer, loader, ledger=ledger)
    x, y = next(iter(loader))
    with pytest.raises(fp.ParameterError, match="a step's gradients must come from"):
        train(network, optimizer, [(x[:-1], y[:-1])], 1)
    # A run that ends here, and continues later, has dropped a batch.
    assert ledger.voids == ("a batch was drawn, but its step did not follow",)
    train(network, optimizer, [(x, y)], 1)
    assert not ledger.voids
    books.close()
    assert judged(ledger).statement == "HOLDS"


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


def test_a_refusal_that_does_not_look_at_the_batch_voids_nothing(ledger):
    """The run is repaired and resumed: the refusal did not depend on the draw."""
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
    """Earlier bookkeeping does not replace an accountant whose hook was never attached."""
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
