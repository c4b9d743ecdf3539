"""Tests of ``fedprivacy.integrations.opacus.loaders``."""

import copy

import pytest

import fedprivacy as fp
from tests.integrations.opacus.test_books import judged, skipping
from tests.integrations.opacus.test_randomness import Listener

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")

from opacus import PrivacyEngine  # noqa: E402
from torch.utils.data import DataLoader, RandomSampler, SubsetRandomSampler, WeightedRandomSampler  # noqa: E402

from fedprivacy.integrations import opacus as live  # noqa: E402
from tests.integrations.opacus.loops import BATCH, DATA, FACTS, SAMPLERS, SIZE, private, train  # noqa: E402

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


def test_a_loader_that_is_looked_at_is_not_copied(ledger):
    _, _, optimizer, loader = private()
    live.keep_books(optimizer, loader, ledger=ledger)
    with pytest.raises(fp.ParameterError, match="passed to look_at must be used directly"):
        copy.deepcopy(loader)


def test_workers_hand_out_in_order():
    _, _, optimizer, loader = private(num_workers=1)
    loader.in_order = False
    with pytest.raises(fp.UnsupportedCombination, match="in_order=False"):
        live.keep_books(optimizer, loader)


@pytest.mark.parametrize("kind", SAMPLERS)
def test_a_loader_is_priced_as_what_it_is(kind, tmp_path):
    options, scheme, rounds = SAMPLERS[kind]
    engine, network, optimizer, loader = private(**options)
    assert engine.accountant.look_at(loader) == scheme
    with fp.Ledger.create(tmp_path / "a", **FACTS) as ledger:
        books = live.keep_books(optimizer, loader, ledger=ledger)
        train(network, optimizer, loader, 7)
        books.close()
    run = fp.Gaussian(noise_multiplier=2.0, unit="record").sampled(scheme) * rounds
    wanted = fp.epsilon(run, delta=1e-5, adjacency="zero_out")
    assert engine.get_epsilon(1e-5) == wanted.upper
    found = fp.audit(tmp_path / "a")
    assert found.verdict == "HOLDS" and found.bound.upper == wanted.upper
    assert found.rounds == rounds and not found.defects


REFUSED = {
    "weights": {"sampler": WeightedRandomSampler([1.0] * SIZE, SIZE)},
    "a subset": {"sampler": SubsetRandomSampler(range(SIZE))},
    "twice": {"sampler": RandomSampler(DATA, num_samples=2 * SIZE)},
    "a smaller last batch": {
        "sampler": RandomSampler(DATA, replacement=True, num_samples=SIZE + 1)
    },
}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_loader_without_a_theorem_is_refused(kind):
    engine, _, optimizer, loader = private(poisson=False, **REFUSED[kind])
    with pytest.raises(fp.UnsupportedCombination, match="poisson_sampling=True"):
        live.keep_books(optimizer, loader)
    with pytest.raises(fp.UnsupportedCombination):
        engine.accountant.look_at(loader)


def test_opacus_prices_a_weighted_loader_as_poisson_and_ours_does_not():
    """Its own accountant returns about 1.4 for seven steps; ours returns no number."""
    _, network, optimizer, loader = private(
        False, PrivacyEngine(accountant="rdp"), **REFUSED["weights"]
    )
    train(network, optimizer, loader, 3)
    with pytest.raises(fp.UnsupportedCombination, match="WeightedRandomSampler"):
        live.scheme_of(loader)


def test_the_loader_is_asked_for_before_any_number():
    engine, network, optimizer, loader = private()
    train(network, optimizer, loader, 1)
    with pytest.raises(fp.ParameterError, match="look_at"):
        engine.get_epsilon(1e-5)
    with pytest.raises(fp.ParameterError, match="before the first step"):
        engine.accountant.look_at(loader)


def test_batches_of_another_loader_are_not_stepped():
    _, network, optimizer, loader = private()
    live.keep_books(optimizer, loader)
    with pytest.raises(fp.ParameterError, match="got 8; 0 drawn batches were left; draw one batch"):
        train(network, optimizer, DataLoader(DATA, batch_size=BATCH), 1)
    # Nor is a batch that is larger than the drawn one.
    next(iter(loader))
    with pytest.raises(fp.ParameterError, match="got 40; 1 drawn batches were left"):
        train(network, optimizer, DataLoader(DATA, batch_size=SIZE), 1)


@pytest.mark.parametrize("kind", ["poisson", "shuffled"])
@pytest.mark.parametrize("workers", [0, 2])
def test_batches_may_be_drawn_ahead_of_their_steps(kind, workers, tmp_path):
    engine, network, optimizer, loader = private(num_workers=workers, **SAMPLERS[kind][0])
    engine.accountant.look_at(loader)
    with fp.Ledger.create(tmp_path / "a", **FACTS) as ledger:
        books = live.keep_books(optimizer, loader, ledger=ledger)
        # Left before its end; the next pass begins anew.
        train(network, optimizer, loader, 2)
        train(network, optimizer, loader, 5)
        books.close()
    assert sum(one.spent for one in ledger.rounds) == {"poisson": 7, "shuffled": 2}[kind]
    assert fp.audit(tmp_path / "a").bound.upper == engine.get_epsilon(1e-5)
