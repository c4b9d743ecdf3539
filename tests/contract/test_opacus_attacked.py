"""Attempts to make Opacus's integration certify more steps than it counted."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")

from torch.utils.data import default_collate  # noqa: E402

import fedprivacy as fp  # noqa: E402
from fedprivacy.integrations import opacus as live  # noqa: E402
from tests.integrations.opacus.loops import DATA, FACTS, backward, private, train  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")


@pytest.fixture(autouse=True)
def registered():
    live.register(adjacency="zero_out")
    before = torch.get_rng_state()
    torch.seed()
    yield
    torch.set_rng_state(before)


@pytest.fixture
def ledger(tmp_path):
    with fp.Ledger.create(tmp_path / "a", **FACTS) as made:
        yield made


def looked_at(**given):
    engine, network, optimizer, loader = private(**given)
    engine.accountant.look_at(loader, optimizer)
    return engine, network, optimizer, loader


def test_a_batch_is_not_dropped_by_a_release_of_the_ledger(ledger):
    """A program that resumes after each unwanted batch chose what it released: it was HOLDS."""
    _, network, optimizer, loader = private()
    live.keep_books(optimizer, loader, ledger=ledger)
    train(network, optimizer, loader, 2)
    next(iter(loader))
    ledger.release()
    with fp.Ledger.open(ledger.path, resume=True) as again:
        assert again.voids == ("a batch was drawn, but its step did not follow",)
        _, network, optimizer, loader = private()
        books = live.keep_books(optimizer, loader, ledger=again)
        train(network, optimizer, loader, 1)
        books.close()
    assert fp.audit(ledger.path).verdict == "CANNOT BE CERTIFIED"


def test_a_batch_that_waits_is_stepped_after_a_resume(ledger):
    _, network, optimizer, loader = private()
    live.keep_books(optimizer, loader, ledger=ledger)
    train(network, optimizer, loader, 2)
    next(iter(loader))
    ledger.release()
    with fp.Ledger.open(ledger.path, resume=True) as again:
        optimizer.zero_grad()
        books = live.keep_books(optimizer, loader, ledger=again)
        train(network, optimizer, loader, 1)
        assert not again.voids
        books.close()
    found = fp.audit(ledger.path)
    assert found.verdict == "HOLDS" and found.rounds == 3


def test_a_batch_is_not_dropped_by_a_step_that_does_not_fit(ledger):
    """Little noise for an unwanted batch made the budget refuse it: 36 of 60 draws were dropped."""
    engine, network, optimizer, loader = looked_at()
    budget = fp.Budget(9.0, 1e-5, adjacency="zero_out")
    books = live.keep_books(optimizer, loader, ledger=ledger, budget=budget)
    train(network, optimizer, loader, 1)
    draws = iter(loader)
    optimizer.noise_multiplier = 0.05
    with pytest.raises(fp.errors.BudgetExhausted):
        train(network, optimizer, [next(draws)], 1)
    optimizer.noise_multiplier = 2.0
    with pytest.raises(fp.ParameterError, match="dropping a batch selects the release"):
        next(draws)
    # The run may end here, or continue with that batch.
    assert engine.get_epsilon(1e-5) < 9.0
    train(network, optimizer, loader, 2)
    books.close()
    found = fp.audit(ledger.path)
    assert found.verdict == "HOLDS" and found.rounds == 3


@pytest.mark.parametrize("change", ["rate", "data"])
@pytest.mark.parametrize("kept", [False, True])
def test_a_loader_draws_as_it_was_looked_at(change, kept, ledger):
    """A rate of .9 was priced as one of .2."""
    engine, network, optimizer, loader = looked_at()
    if kept:
        live.keep_books(optimizer, loader, ledger=ledger)
    train(network, optimizer, loader, 1)
    if change == "rate":
        loader.batch_sampler.sample_rate = 0.9
    else:
        loader.batch_sampler.num_samples = len(DATA) // 2
    with pytest.raises((fp.ParameterError, fp.UnsupportedCombination), match="data loader"):
        next(iter(loader))
    assert engine.get_epsilon(1e-5) < 1.0


@pytest.mark.parametrize("change", ["expected_batch_size", "loss_reduction"])
@pytest.mark.parametrize("kept", ["budget", ""])
def test_a_divisor_does_not_follow_the_batch(change, kept):
    """Without a ledger it was not noticed; an audit of the ledger shows it."""
    _, network, optimizer, loader = looked_at()
    if kept:
        live.keep_books(optimizer, loader, budget=fp.Budget(9.0, 1e-5, adjacency="zero_out"))
    train(network, optimizer, loader, 1)
    setattr(optimizer, change, 3 if change == "expected_batch_size" else "sum")
    with pytest.raises(fp.ParameterError, match="expected_batch_size must stay 8"):
        train(network, optimizer, loader, 1)


def test_the_accountant_alone_sees_noise_that_comes_again():
    engine, network, optimizer, loader = looked_at()
    state = torch.get_rng_state()
    for step in range(2):
        batch = next(iter(loader))
        torch.set_rng_state(state)
        if not step:
            train(network, optimizer, [batch], 1)
            continue
        with pytest.raises(fp.ParameterError, match="be unused, since its noise"):
            train(network, optimizer, [batch], 1)
    # There was no release, and the batch is stepped with other noise.
    torch.seed()
    train(network, optimizer, loader, 1)
    assert engine.get_epsilon(1e-5) < 1.0 and len(engine.accountant) == 2


def test_the_accountant_alone_says_that_a_seed_was_chosen():
    engine, network, optimizer, loader = looked_at()
    train(network, optimizer, loader, 1)
    assert not engine.accountant.bound(1e-5).qualified
    # Again, as somebody does who wants the same numbers: that is no repeated noise of one run.
    for _ in range(2):
        torch.manual_seed(0)
        engine, network, optimizer, loader = looked_at()
        train(network, optimizer, loader, 1)
        assert engine.accountant.bound(1e-5).qualified == ("the seed was fixed",)


def test_an_accountant_that_is_void_stays_so_in_its_state(tmp_path):
    """Its state gave a number to another accountant, and HOLDS to an audit."""
    engine, network, optimizer, loader = looked_at()
    train(network, optimizer, loader, 2)
    backward(network, optimizer, *next(iter(loader)))
    with pytest.raises(fp.ParameterError):
        optimizer.original_optimizer.step()
    state = engine.accountant.state_dict()
    other, *_ = looked_at()
    other.accountant.load_state_dict(state)
    with pytest.raises(fp.ParameterError, match="void: a step was taken"):
        other.get_epsilon(1e-5)
    torch.save(state, tmp_path / "state.pt")
    with pytest.raises(fp.errors.ConversionError, match="void: a step was taken"):
        fp.audit(tmp_path / "state.pt", adjacency="zero_out", claim=(9.0, 1e-5))


def _refuse_small(records):
    if len(records) < 9:
        raise ValueError("too small")
    return default_collate(records)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_batch_that_could_not_be_loaded_waits(workers, ledger):
    """A worker's error let the batch vanish: 60 of 100 draws were dropped, and it was HOLDS."""
    _, network, optimizer, loader = private(num_workers=workers)
    loader.collate_fn = _refuse_small
    live.keep_books(optimizer, loader, ledger=ledger)
    with pytest.raises(ValueError, match="too small"):
        # Each of 200 batches has fewer than 9 records with a chance of .59.
        train(network, optimizer, loader, 200)
    recorded = ledger.begun_rounds
    for _ in range(3):
        with pytest.raises(ValueError, match="too small"):
            next(iter(loader))
    assert ledger.begun_rounds == recorded
    with pytest.raises(fp.ParameterError, match=r"dropping a batch|have recorded a step"):
        ledger.close()


def test_a_batch_is_not_dropped_by_a_state_of_before(tmp_path):
    engine, network, optimizer, loader = looked_at()
    train(network, optimizer, loader, 2)
    next(iter(loader))
    state = engine.accountant.state_dict()
    other, network, optimizer, loader = looked_at()
    other.accountant.load_state_dict(state)
    train(network, optimizer, loader, 1)
    with pytest.raises(fp.ParameterError, match="void: a batch was drawn"):
        other.get_epsilon(1e-5)
