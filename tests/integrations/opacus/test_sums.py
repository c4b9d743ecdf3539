"""Tests of ``fedprivacy.integrations.opacus.sums``."""

import pytest

import fedprivacy as fp

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")

from opacus import PrivacyEngine  # noqa: E402
from opacus.schedulers import ExponentialGradClip  # noqa: E402
from opacus.utils.batch_memory_manager import BatchMemoryManager  # noqa: E402
from torch.utils.data import DataLoader  # noqa: E402

from fedprivacy.integrations import opacus as live  # noqa: E402
from tests.integrations.opacus.loops import BATCH, DATA, FACTS, backward, private, train  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")


@pytest.fixture(autouse=True)
def registered():
    live.register(adjacency="zero_out")
    torch.seed()


def test_a_denominator_that_follows_the_records_is_declared_for_add_remove(tmp_path):
    _, network, optimizer, loader = private()
    facts = {**FACTS, "adjacency": "add_remove"}
    with fp.Ledger.create(tmp_path / "a", **facts) as ledger:
        public = {"scheme": fp.Poisson(0.2), "expected_batch_size": 10}
        for name in public:
            others = {key: value for key, value in public.items() if key != name}
            with pytest.raises(fp.ParameterError, match=f"{name} must be given for add_remove"):
                live.keep_books(optimizer, loader, ledger=ledger, **others)
        with pytest.raises(fp.ParameterError, match=r"be the scheme of the loader, Poisson\(prob"):
            live.keep_books(optimizer, loader, ledger=ledger, scheme=fp.Poisson(0.1))
        books = live.keep_books(optimizer, loader, ledger=ledger, **public)
        train(network, optimizer, loader, 2)
        books.close()
    assert {r.done.denominator for r in fp.Ledger.open(tmp_path / "a").rounds} == {10.0}
    assert fp.audit(tmp_path / "a").verdict == "HOLDS"


# ---- the norm that gradients were clipped to


def by_layer():
    """Return a private training with one norm per layer, sqrt(2) in all."""
    engine, network = PrivacyEngine(accountant=live.NAME), torch.nn.Linear(3, 1)
    return engine, *engine.make_private(
        module=network,
        optimizer=torch.optim.SGD(network.parameters(), lr=0.0),
        data_loader=DataLoader(DATA, batch_size=BATCH),
        noise_multiplier=5.0,
        max_grad_norm=[1.0, 1.0],
        clipping="per_layer",
    )


@pytest.mark.parametrize("books", [True, False])
def test_noise_goes_with_the_norm_that_layers_were_clipped_to(books, tmp_path):
    """Opacus's scheduler changes only the noise: ten passes HOLD at 2.594 and attain 13.001."""
    engine, network, optimizer, loader = by_layer()
    engine.accountant.look_at(loader)
    with fp.Ledger.create(tmp_path / "a", **FACTS) as ledger:
        if books:
            live.keep_books(optimizer, loader, ledger=ledger)
        train(network, optimizer, loader, 1)
        ExponentialGradClip(optimizer, gamma=0.8).step()
        with pytest.raises(fp.ParameterError, match=r"max_grad_norm must be at least 1\.41421"):
            train(network, optimizer, loader, 1)
        # More noise than asked for hides it all the same.
        optimizer.max_grad_norm = 2.0
        train(network, optimizer, loader, 1)
    assert len(engine.accountant) == 2


def test_the_norm_stays_within_a_step(tmp_path):
    """Parts of a step clipped at 1.5, with a tenth of the noise: it HELD, and a record is seen."""
    engine, network, optimizer, loader = private(batch_size=20)
    engine.accountant.look_at(loader, optimizer)
    norm = ExponentialGradClip(optimizer, gamma=0.1)
    with fp.Ledger.create(tmp_path / "a", **FACTS) as ledger:
        live.keep_books(optimizer, loader, ledger=ledger)
        manager = BatchMemoryManager(
            data_loader=loader, max_physical_batch_size=4, optimizer=optimizer
        )
        with manager as small, pytest.raises(fp.ParameterError, match=r"be at least 1\.5"):
            for x, y in small:
                backward(network, optimizer, x, y)
                optimizer.step()
                norm.step()
    assert not ledger.rounds and not engine.accountant.history


@pytest.mark.parametrize("books", [True, False])
def test_norms_of_half_precision_bound_nothing(books, tmp_path):
    """Under autocast a gradient that was clipped to C had a norm of up to 1.006 C, and HELD."""
    engine, network, optimizer, loader = private()
    engine.accountant.look_at(loader, optimizer)
    with fp.Ledger.create(tmp_path / "a", **FACTS) as ledger:
        if books:
            live.keep_books(optimizer, loader, ledger=ledger)
        x, y = next(iter(loader))
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = ((network(x) - y) ** 2).sum()
        loss.backward()
        with pytest.raises(fp.ParameterError, match="be of single or double precision"):
            optimizer.step()
    assert not ledger.rounds and not engine.accountant.history
