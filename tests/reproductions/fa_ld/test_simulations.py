"""FA-LD's simulated figures: known numbers, seeds, densities."""

import numpy as np
import pytest

from fedprivacy.reproductions.base import CellRun
from fedprivacy.reproductions.catalogue import FIGURES
from fedprivacy.reproductions.fa_ld import simulations


def values(name, cell, folder, **facts):
    figure = FIGURES[f"fa-ld/{name}"]
    (wanted,) = (each for each in figure.cells if each.name == cell)
    return figure.work_of()(CellRun(cell=wanted, folder=folder, **facts))


def test_rounds_fall_with_local_steps_until_one_round_is_enough(tmp_path):
    found = list(values("figure-1a", "alpha-1", tmp_path).values())
    assert found == sorted(found, reverse=True) and found[0] == 2644 and found[-1] == 1
    assert list(values("figure-1a", "alpha-1", tmp_path, seed=2).values()) != found


def test_a_density_integrates_to_one_and_is_the_targets_after_all_rounds(tmp_path):
    law, target = simulations.density_law()
    points = simulations.around(target, 6.0, 201)
    cell = np.prod([np.diff(np.unique(points[:, place])[:2])[0] for place in (0, 1)])
    for one in (law, target):
        assert simulations.density(one, points).sum() * cell == pytest.approx(1.0, abs=1e-6)
    found = values("figure-1e", "exact-law", tmp_path)
    true = values("figure-1d", "target", tmp_path)
    assert 0.0 < found["largest difference of the densities, share of the peak"] < 0.01
    assert {name: found[name] for name in true} == pytest.approx(true, rel=2e-3)


def test_300_draws_of_the_target_do_not_show_its_density_well(tmp_path):
    found = values("figure-1e", "300-draws-of-the-target", tmp_path)
    assert 0.1 < found["largest difference of the densities, share of the peak"] < 0.5
