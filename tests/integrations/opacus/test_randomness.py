"""Tests of ``fedprivacy.integrations.opacus.randomness``."""

from itertools import islice

import pytest

import fedprivacy as fp
from tests.integrations.opacus.test_books import judged

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")

from fedprivacy.integrations import opacus as live  # noqa: E402
from fedprivacy.integrations.opacus.randomness import keyed  # noqa: E402
from tests.integrations.opacus.loops import FACTS, SAMPLERS, backward, private, train  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")


@pytest.fixture(autouse=True)
def registered():
    live.register(adjacency="zero_out")
    before = torch.get_rng_state()
    torch.seed()
    yield
    torch.set_rng_state(before)


class Listener:
    """Records the returned batches."""

    def __init__(self, seen):
        self.seen = seen

    def handed_out(self, draw):
        self.seen.append(draw)

    def restart(self):
        pass


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
        with pytest.raises(fp.ParameterError, match="generator of torch must be unused"):
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
                with pytest.raises(fp.ParameterError, match="generator of torch must be unused"):
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
    with pytest.raises(fp.ParameterError, match="generator of torch must be unused"):
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
    """A run with a fixed seed is reproducible, and the ledger states that it is not private."""
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


def test_a_seed_is_seen(tmp_path):
    torch.manual_seed(1)
    _, network, optimizer, loader = private()
    with (
        fp.Ledger.create(tmp_path / "a", **FACTS) as ledger,
        pytest.raises(fp.ParameterError, match="seed_policy"),
    ):
        live.keep_books(optimizer, loader, ledger=ledger)
    with fp.Ledger.create(tmp_path / "b", **FACTS, seed_policy="fixed") as ledger:
        books = live.keep_books(optimizer, loader, ledger=ledger)
        train(network, optimizer, loader, 1)
        books.close()
    assert "the seed was fixed" in fp.audit(tmp_path / "b").statement


def other_generator(optimizer, _):
    optimizer.generator = torch.Generator()
    optimizer.generator.seed()


SEEDED_LATER = {
    "torch": lambda *_: torch.manual_seed(7),
    "torch, by many bits": lambda *_: torch.manual_seed(2**50),
    "another generator": other_generator,
    "the draws": lambda _, loader: setattr(
        loader.batch_sampler, "generator", torch.Generator().manual_seed(1)
    ),
}


@pytest.mark.parametrize("what", SEEDED_LATER)
def test_a_seed_is_seen_at_every_step(what, tmp_path):
    _, network, optimizer, loader = private()
    with fp.Ledger.create(tmp_path / "a", **FACTS) as ledger:
        live.keep_books(optimizer, loader, ledger=ledger)
        train(network, optimizer, loader, 2)
        SEEDED_LATER[what](optimizer, loader)
        before = [p.clone() for p in network.parameters()]
        with pytest.raises(fp.ParameterError, match="seed before keep_books"):
            train(network, optimizer, loader, 1)
        assert all(map(torch.equal, before, network.parameters()))
    assert len(ledger.rounds) == 2
    _, network, optimizer, loader = private()
    with fp.Ledger.create(tmp_path / "b", **FACTS, seed_policy="fixed") as ledger:
        live.keep_books(optimizer, loader, ledger=ledger)
        SEEDED_LATER[what](optimizer, loader)
        train(network, optimizer, loader, 2)
    assert len(ledger.rounds) == 2


@pytest.mark.parametrize("seed", [None, 3])
def test_a_new_generator_is_seeded_by_nobody_and_so_by_everybody(seed, tmp_path):
    generator = torch.Generator() if seed is None else torch.Generator().manual_seed(seed)
    with fp.Ledger.create(tmp_path / "a", **FACTS) as ledger:
        # Repeatable draws hide no unit; passes hide none in any case.
        _, _, optimizer, loader = private(generator=generator)
        with pytest.raises(fp.ParameterError, match="seed_policy"):
            live.keep_books(optimizer, loader, ledger=ledger)
        _, _, optimizer, loader = private(False, shuffle=True, generator=generator)
        live.keep_books(optimizer, loader, ledger=ledger)
        _, _, optimizer, loader = private(False, shuffle=True)
        optimizer.generator = generator
        with pytest.raises(fp.ParameterError, match="seed_policy"):
            live.keep_books(optimizer, loader, ledger=ledger)
        generator.seed()
        live.keep_books(optimizer, loader, ledger=ledger)


@pytest.mark.parametrize("poisson", [True, False])
def test_a_budget_without_a_ledger_says_that_torch_was_seeded(poisson):
    """A ledger would have refused it; a budget without a ledger did not."""
    _, network, optimizer, loader = private(poisson=poisson)
    budget = fp.Budget(500.0, 1e-5, adjacency="zero_out")
    live.keep_books(optimizer, loader, budget=budget)
    train(network, optimizer, loader, 1)
    assert budget.spent().qualified == ()
    before = torch.get_rng_state()
    try:
        torch.manual_seed(3)
        train(network, optimizer, loader, 1)
    finally:
        torch.set_rng_state(before)
    assert budget.spent().qualified == ("the seed was fixed",)


def test_draws_that_were_seeded_are_told_where_noise_was_not():
    _, network, optimizer, loader = private()
    budget = fp.Budget(500.0, 1e-5, adjacency="zero_out")
    live.keep_books(optimizer, loader, budget=budget)
    before = torch.get_rng_state()
    try:
        torch.manual_seed(3)
        batch = next(iter(loader))
        torch.seed()
        train(network, optimizer, [batch], 1)
    finally:
        torch.set_rng_state(before)
    assert budget.spent().qualified == ("the seed was fixed",)
