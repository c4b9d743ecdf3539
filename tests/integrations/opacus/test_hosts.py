"""A module, an optimizer and a loader made private at once, as the hosts do it."""

import sys
from importlib import import_module

import pytest

import fedprivacy as fp

torch = pytest.importorskip("torch")
pytest.importorskip("opacus")

from torch.utils.data import DataLoader  # noqa: E402

from fedprivacy.integrations.opacus.hosts import PrivateRun  # noqa: E402
from fedprivacy.ledger import Ledger  # noqa: E402
from tests.integrations.opacus.loops import DATA, backward  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")


def begun(folder, adjacency="zero_out", **named):
    """Return a run with its module, optimizer and loader."""
    run = PrivateRun(
        noise_multiplier=2.0, clip_norm=1.5, ledger=folder / "run.ledger",
        budget=fp.Budget(9.0, 1e-5, adjacency=adjacency), **named,
    )  # fmt: skip
    network = torch.nn.Linear(3, 1)
    loader = run.loader(DataLoader(DATA, batch_size=8))
    return run, network, run.begin(network, torch.optim.SGD(network.parameters(), lr=0.1)), loader


def test_a_seed_of_torch_touches_neither_noise_nor_draws(tmp_path):
    runs = []
    before = torch.get_rng_state()
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        torch.manual_seed(1)
        run, network, optimizer, loader = begun(tmp_path / name)
        sizes = []
        for x, y in loader:
            backward(network, optimizer, x, y)
            optimizer.step()
            sizes.append(len(x))
        run.complete()
        runs.append((sizes, network.weight.detach().clone()))
        assert fp.audit(tmp_path / name / "run.ledger").verdict == "HOLDS"
    torch.set_rng_state(before)
    assert not torch.equal(runs[0][1], runs[1][1])


def test_a_step_of_a_second_optimizer_makes_the_record_void(tmp_path):
    run, network, optimizer, loader = begun(tmp_path)
    x, y = next(iter(loader))
    backward(network, optimizer, x, y)
    torch.optim.SGD(network.parameters(), lr=0.1).step()
    with pytest.raises(fp.ParameterError, match="parameters changed outside"):
        optimizer.step()
    run.interrupt()
    assert Ledger.open(tmp_path / "run.ledger").voids
    assert not run.fits


def test_an_empty_run_is_left_open(tmp_path):
    run, *_ = begun(tmp_path)
    assert run.fits
    run.complete()
    assert not Ledger.open(tmp_path / "run.ledger").closed


def test_add_remove_needs_public_numbers_and_leaves_no_locked_file(tmp_path):
    with pytest.raises(fp.ParameterError, match="be given for add_remove"):
        begun(tmp_path, adjacency="add_remove")
    begun(tmp_path, adjacency="add_remove", scheme=fp.Poisson(0.25), expected_batch_size=10)


def test_a_run_needs_its_loader_and_a_plain_optimizer(tmp_path):
    run, network, optimizer, loader = begun(tmp_path)
    run.interrupt()
    with pytest.raises(fp.ParameterError, match="not be private yet"):
        run.begin(network, optimizer)
    other = PrivateRun(
        noise_multiplier=2.0, clip_norm=1.5, ledger=tmp_path / "other",
        budget=fp.Budget(9.0, 1e-5, adjacency="zero_out"),
    )  # fmt: skip
    with pytest.raises(fp.ParameterError, match="draw the batches"):
        other.begin(network, torch.optim.SGD(network.parameters(), lr=0.1))
    with pytest.raises(fp.ParameterError, match="pass over its records"):
        other.loader(loader)


@pytest.mark.parametrize("host", ["lightning", "accelerate"])
def test_a_missing_host_is_named_in_one_line(host, monkeypatch):
    monkeypatch.setitem(sys.modules, host, None)
    monkeypatch.delitem(sys.modules, f"fedprivacy.integrations.{host}", raising=False)
    with pytest.raises(fp.ParameterError, match=f"needs {host}; pip install {host} ") as found:
        import_module(f"fedprivacy.integrations.{host}")
    assert "\n" not in str(found.value)
