"""Tests of ``fedprivacy.mechanisms.sparsification``."""

import math

import numpy as np
import pytest

import fedprivacy as fp
from fedprivacy import factors
from fedprivacy.audit.messages import described
from fedprivacy.errors import ParameterError, UnsupportedCombination
from tests.systems.averaging.test_loop import fed_smp, loop, travels
from tests.systems.averaging.test_rows import DATA, ledger_of, loop_of, noise_of

torch = pytest.importorskip("torch")

from fedprivacy.mechanisms import Sparsification  # noqa: E402
from fedprivacy.mechanisms.sparsification import fingerprint  # noqa: E402
from fedprivacy.training import train  # noqa: E402

CLIENTS = 12


def test_fresh_masks_are_refused_with_the_reason():
    with pytest.raises(UnsupportedCombination, match="rows cancel only in common coordinates"):
        loop_of(sparsification=Sparsification(kept=3, dimension=8))
    with pytest.raises(ParameterError, match="it determines the mask"):
        loop = loop_of(noise_of(kept=3, dimension=8), seed=None)
        loop.step(loop.init(), DATA)
    for changed in ({"kept": 3}, {"dimension": 8}, {"kept": 9, "dimension": 8}):
        with pytest.raises(ParameterError, match="kept"):
            noise_of(**changed)


SPARSE = {
    "factor": factors.Restarted(factors.BufferedToeplitz(2), 4),
    "participation": fp.MinimumSeparation(3),
    "kept": 3,
    "dimension": 8,
}


def test_a_block_keeps_its_mask_and_an_audit_draws_it_again(tmp_path):
    """The mask is constant within a block; masks of blocks follow from the ledger's nonce."""
    noise, path, seen = noise_of(**SPARSE), tmp_path / "run", []
    loop = loop_of(noise, seed=None)
    with ledger_of(path, noise, seed_policy="operating system", observer="server") as ledger:
        nonce, before = ledger.nonce, []

        def observe(state):
            seen.append(state.parameters.clone())

        for rounds in (6, 12):  # resumed in the middle of the second block
            before.append(len(seen))
            train(
                loop,
                DATA,
                rounds=rounds,
                ledger=ledger,
                checkpoint=tmp_path / "state",
                on_release=observe,
            )
        ledger.close()
    assert before == [0, 6] and len(seen) == 12
    for row in range(1, 12):
        moved = torch.nonzero(seen[row] != seen[row - 1]).flatten().numpy()
        assert set(moved) <= set(noise.mask(row, nonce)) and len(moved)
    assert len({tuple(noise.mask(row, "nonce")) for row in range(12)}) == 3
    whole = fp.epsilon(noise, delta=1e-5, adjacency="zero_out", observer="server")
    found = fp.audit(path, claim=(whole.upper * 1.01, 1e-5))
    assert found.verdict is fp.Verdict.HOLDS
    assert "3 of 8 coordinates, the same ones until the restart" in described(noise)


def test_an_audit_doubts_another_mask(tmp_path):
    noise = noise_of(**SPARSE)
    for policy, change in (("operating system", "1" * 32), ("fixed", "2" * 32)):
        path = tmp_path / policy
        with ledger_of(path, noise, seed_policy=policy) as ledger:
            for row in range(3):
                number = ledger.intent(noise.row(row), clip_norm=1.0, noise_std=2.0)
                mask = fingerprint(noise.mask(row, ledger.nonce))
                ledger.done(
                    number,
                    cohort=3,
                    arrived=3,
                    refused=0,
                    noise_std=2.0,
                    mask=change if row == 2 else mask,
                )
        found = fp.audit(path, claim=(100.0, 1e-5))
        assert found.verdict == "CANNOT BE CERTIFIED"
        assert "a mask that differs from the mask of its block" in str(found)


def test_masks_are_any_set_as_likely():
    """Each of 8 coordinates in 3 of 8 masks: 4,000 of them are off by 6 sigma once in 10^8."""
    noise = noise_of(**SPARSE)
    counts = np.zeros(8)
    for number in range(4000):
        counts[noise.mask(0, str(number))] += 1
    assert np.abs(counts / 4000 - 3 / 8).max() < 6 * math.sqrt(3 / 8 * 5 / 8 / 4000)


def test_a_kept_coordinate_is_scaled_before_it_is_clipped():
    noise = noise_of(**SPARSE, clip_norm=100.0)
    mask = noise.mask(0, "x")
    np.testing.assert_allclose(
        noise.contribution(np.arange(8.0), mask), np.arange(8.0)[mask] * 8 / 3, atol=1e-3
    )
    clipped = noise_of(**SPARSE).contribution(np.arange(8.0), mask)
    assert np.linalg.norm(clipped) <= 1.0


pytestmark = pytest.mark.usefixtures("one_thread")


def test_a_sparsification_that_does_not_fit_is_refused():
    with pytest.raises(ParameterError, match=r"sparsification must be None with a perturbation"):
        loop(fed_smp(), sparsification=travels())
    with pytest.raises(
        ParameterError,
        match="dimension must equal the number of parameters of the model, 8",
    ):
        loop(sparsification=travels(dimension=9)).flat  # noqa: B018
    for chosen in (travels(), fed_smp(kept=3)):
        pick = chosen.select if isinstance(chosen, Sparsification) else chosen.contribution
        with pytest.raises(ParameterError, match=r"mask must have shape \(3,\)"):
            pick(torch.zeros(8), torch.tensor([0, 1]))
        with pytest.raises(ParameterError, match=r"mask must have shape \(3,\)"):
            pick(torch.zeros(8))
