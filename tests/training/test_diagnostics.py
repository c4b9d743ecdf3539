"""Tests of ``fedprivacy.training.diagnostics``."""

import builtins
import math

import numpy as np
import pytest

from fedprivacy.errors import ParameterError
from fedprivacy.training import diagnose
from tests.runs.test_progress_logging import regression

pytest.importorskip("torch")

import torch

import fedprivacy as fp
from fedprivacy import training

pytestmark = pytest.mark.usefixtures("one_thread")


def test_diagnostics_see_a_chain_that_is_elsewhere():
    draws = torch.randn(4, 200, 2, generator=torch.Generator().manual_seed(0))
    good = diagnose(draws)
    assert good.worst[0] < 1.02 and good.worst[1] > 400
    draws[0, :, 1] += 3.0
    bad = diagnose(draws)
    assert bad.r_hat[0] < 1.02 < 1.2 < bad.r_hat[1] and bad.bulk_ess[1] < 50
    assert "have mixed" in str(good) and "do not use these draws: R-hat is up to 1." in str(bad)
    alone = diagnose(draws[1:2])
    assert alone.worst[0] < 1.05 and alone.worst[1] > 40
    for shape in ((200, 2), (1, 7, 2), (4, 3, 2)):
        with pytest.raises(ParameterError, match="with at least 4 draws per chain, or"):
            diagnose(torch.zeros(shape))
    with pytest.raises(ParameterError, match="finite"):
        diagnose(draws * math.nan)


@pytest.mark.parametrize("size", [1e-9, 1e-300, 1.0, 1e300])
def test_chains_that_moved_once_have_not_mixed(size):
    draws = torch.zeros(4, 1000, 2, dtype=torch.float64)
    draws[:, :, 1] = torch.randn(4, 1000, generator=torch.Generator().manual_seed(0))
    draws[:, -1, 0] = size
    found = diagnose(draws)
    assert found.r_hat[0] == math.inf and found.r_hat[1] < 1.02 and not found.mixed
    assert found.bulk_ess[0] <= 8 and found.tail_ess[0] <= 8 and found.bulk_ess[1] > 2000
    assert "do not use these draws: a chain hardly moved in 1 of 2 coordinates" in str(found)


def test_draws_that_repeat_count_once():
    once = torch.randn(4, 250, 1, generator=torch.Generator().manual_seed(0))
    found, each = diagnose(once.repeat_interleave(4, dim=1)), diagnose(once)
    assert found.mixed and each.bulk_ess[0] > 700
    # ArviZ counts up to a thousand draws here; there are 4 x 250 different ones.
    assert found.bulk_ess[0] <= 1000 and found.tail_ess[0] <= 1000


def test_large_finite_draws_are_finite():
    draws = torch.randn(4, 200, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    small, large = diagnose(draws), diagnose(draws / draws.abs().max() * 1.5e308)
    assert np.allclose(small.r_hat, large.r_hat) and np.allclose(small.bulk_ess, large.bulk_ess)


def test_clipping_that_flattens_is_told_with_numbers():
    target = regression(scale=2.0)
    with pytest.warns(training.FlattenedPosterior, match="gradients are clipped; expect"):
        found = training.clipping(target, [1.0, -1.0])
    assert 0.4 < found.share < 0.8 and found.widening > 1.1


def test_little_clipping_is_no_warning():
    target = training.Posterior.of(
        lambda p, x: -0.5 * ((x - p) ** 2).sum(1),
        clients=[np.zeros((50, 2))],
        dimension=2,
        clip_norm=9.0,
    )
    assert training.clipping(target, [0.1, 0.1]) == training.Clipping(0.0, pytest.approx(1.0))
    draws = torch.randn(2, 50, 2, dtype=torch.float64) * 0.1
    assert "0.0% of the records" in str(training.diagnose(draws, target))
    with pytest.raises(ParameterError, match="without clip_norm no gradient is clipped"):
        training.clipping(training.Posterior(model=target.model, data=target.data), [0.0, 0.0])


def test_draws_go_to_arviz():
    pytest.importorskip("arviz_base")
    draws = torch.randn(2, 30, 2)
    tree = training.inference_data(draws, ["slope", "intercept"])
    assert tree["posterior"]["slope"].shape == (2, 30)
    assert training.inference_data(draws)["posterior"]["parameters"].shape == (2, 30, 2)
    with pytest.raises(ParameterError, match="be 2 names"):
        training.inference_data(draws, ["slope"])
    assert math.isfinite(float(tree["posterior"]["slope"].mean()))


# ---- a module that is not there, or a name


@pytest.mark.parametrize(
    ("module", "call", "wanted"),
    [
        (
            "arviz_stats",
            lambda: training.diagnose(torch.zeros(2, 8, 1)),
            "diagnostics need ArviZ, which is not installed; pip install 'fedprivacy[train]'",
        ),
        (
            "arviz",
            lambda: training.inference_data(torch.zeros(2, 8, 1)),
            "inference_data needs ArviZ, which is not installed; pip install 'fedprivacy[arviz]'",
        ),
    ],
)
def test_what_needs_another_package_says_which(monkeypatch, module, call, wanted):
    real = builtins.__import__

    def without(name, *rest, **more):
        if name.partition(".")[0] in (module, f"{module}_base"):
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(fp.ParameterError) as caught:
        call()
    assert str(caught.value) == wanted and isinstance(caught.value.__cause__, ImportError)


def test_older_arviz_gets_its_own_form(monkeypatch):
    """Without arviz-base the draws go to ``arviz.from_dict`` as the posterior."""
    import sys
    import types

    older = types.ModuleType("arviz")
    older.from_dict = lambda **given: given
    monkeypatch.setitem(sys.modules, "arviz", older)
    monkeypatch.setitem(sys.modules, "arviz_base", None)
    draws = torch.arange(12.0).reshape(2, 3, 2)
    whole = training.inference_data(draws)
    assert list(whole) == ["posterior"] and list(whole["posterior"]) == ["parameters"]
    named = training.inference_data(draws, ["a", "b"])["posterior"]
    assert named["a"].tolist() == draws[..., 0].tolist()
    assert named["b"].tolist() == draws[..., 1].tolist()


def squares(records, size, clip):
    """Records whose gradients are p - x: curvature 1 each, on every coordinate."""
    return training.Posterior.of(
        lambda p, x: -0.5 * ((x - p) ** 2).sum(1),
        clients=[records],
        dimension=size,
        clip_norm=clip,
        prior_precision=0.5,
    )


@pytest.mark.filterwarnings("ignore::fedprivacy.training.FlattenedPosterior")
@pytest.mark.parametrize("size", [1, 16, 40])
@pytest.mark.parametrize(("far", "share"), [(0, 0.0), (3, 0.3), (10, 1.0)])
def test_clipping_flattens_by_the_records_whose_gradients_it_cuts(size, far, share):
    """Along any direction a cut record keeps (1 - 1/d) clip / distance of its curvature."""
    records = np.zeros((10, size))
    records[:far, 0] = 100.0
    found = training.clipping(squares(records, size, 1.0), np.zeros(size), probes=400)
    assert found.share == share
    left = (10 - far) + far * (size - 1) / size / 100.0
    assert found.widening == pytest.approx(math.sqrt(10.5 / (left + 0.5)), rel=0.01)
    assert f"{share:.1%} of the records" in str(found)


def test_one_chain_is_judged_by_its_halves_and_the_worst_coordinate_counts():
    draw = torch.Generator().manual_seed(0)
    good = torch.randn(4, 200, 2, generator=draw, dtype=torch.float64)
    stuck = good.clone()
    stuck[0, :, 1] += 9.0
    assert training.diagnose(good).worst[0] < 1.05
    found = training.diagnose(stuck)
    assert found.r_hat[0] < 1.05 < found.r_hat[1] == found.worst[0]
    assert "in 1 of 2 coordinates, so the chains have not mixed" in str(found)
    sizes = np.minimum(found.bulk_ess, found.tail_ess)
    assert found.worst[1] == sizes.min() and found.clipping is None
    drifting = torch.linspace(0, 9, 100).double()[None, :, None] + good[:1, :100, :1]
    assert training.diagnose(drifting).worst[0] > 1.5
    # Of an odd chain the middle draw is in neither half.
    odd = torch.cat([good[:1, :4, :1], torch.full((1, 1, 1), 1e9), good[:1, 4:8, :1]], dim=1)
    halves = torch.stack([odd[0, :4], odd[0, -4:]])
    assert vars(training.diagnose(odd)) == vars(training.diagnose(halves))
