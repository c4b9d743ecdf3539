"""Tests of ``fedprivacy.papers.choosing``."""

import math
from functools import cache

import numpy as np
import pytest

import fedprivacy as fp
from fedprivacy.errors import ImpossibleBudget
from fedprivacy.papers.choosing import SYSTEMS, Range
from fedprivacy.papers.fa_ld.grid import MeanProblem, mean_settings
from fedprivacy.theory.targets import GaussianTarget

BUDGET = {"epsilon": 2.0, "delta": 1e-5}
FEW = {"rounds": 5, "local_steps": 5}
FIXED = {
    "fa-ld": FEW | {"correlation": 0.0},
    "fa-hmc": {"rounds": 5, "iterations": 5, "leapfrog_steps": 1, "correlation": 0.0},
    "fed-plt": {"local_steps": 10, "step_share": 0.5, "penalty": 1.0},
}


@cache
def chosen(system):
    """The choice within the budget, which two tests look at."""
    return fp.choose(system, fixed=FIXED[system], **BUDGET)


@pytest.mark.fast_cells("fa-ld", "fed-plt")
@pytest.mark.parametrize("system", FIXED)
def test_what_is_chosen_keeps_the_budget_and_its_numbers_are_those_of_its_run(system):
    found, fixed = chosen(system), FIXED[system]
    assert found.bound.upper <= 2.0 and found.bound.lower > 1.8, "the budget is used"
    assert fixed.items() <= found.settings.items() and not set(fixed) & set(found.edges)
    known = SYSTEMS[system]
    run, cost = known.on(known.problem()).priced(found.settings)
    assert cost == found.cost and math.isfinite(cost)
    asked = {"delta": 1e-5, "adjacency": "replace_one"}
    assert fp.epsilon(run, **asked) == found.bound
    # More epsilon never costs accuracy, and each point keeps its budget.
    costs = [one.cost for one in found.curve]
    assert costs == sorted(costs, reverse=True) and len(costs) == 5
    assert all(one.epsilon <= one.budget for one in found.curve)
    assert found.to_dict()["cost"] == found.cost and str(found).startswith(f"{system}: ")


def test_no_setting_of_a_grid_is_better():
    plain = {"temperature": 1.0, "correlation": 0.0}
    found = fp.choose("fa-ld", fixed=plain, **BUDGET)
    axes = {"step_size": list(np.geomspace(1e-6, 5e-3, 12)), "rounds": [1, 10, 100], **plain}
    grid = mean_settings(MeanProblem(), axes)
    best = fp.pareto(grid, delta=1e-5, adjacency="replace_one", epsilon=2.0).best("w2", epsilon=2.0)
    assert found.cost < 0.7 * best.cost("w2")


@pytest.mark.parametrize(
    ("system", "fixed"),
    [
        pytest.param("fa-ld", {"local_steps": 5}, marks=pytest.mark.slow),
        ("fa-hmc", {"iterations": 5, "leapfrog_steps": 1}),
    ],
)
def test_a_problem_of_one_s_own_is_a_target_and_a_sensitivity(system, fixed):
    class Mine:
        target = GaussianTarget(
            hessians=np.array([[[50.0]], [[150.0]]]), centres=np.array([[0.1], [0.2]])
        )
        gradient_sensitivity = 0.5

    fixed = fixed | {"rounds": 2, "correlation": 0.0}
    found = fp.choose(system, problem=Mine(), fixed=fixed, **BUDGET)
    assert found.bound.upper <= 2.0 and found.cost < 0.3


def test_a_deadline_ends_the_search_with_the_best_setting_so_far():
    whole, fixed = chosen("fa-ld"), FIXED["fa-ld"]
    cut = fp.choose("fa-ld", fixed=fixed, deadline=0.3, **BUDGET)
    assert cut.tried < whole.tried and whole.cost <= cut.cost


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"system": "fed-smp"}, "fedprivacy sweep --private, which prices the choice"),
        ({"system": "fedavg"}, "system must be one of 'fa-ld', 'fa-hmc' or 'fed-plt'"),
        ({"epsilon": 0.0}, "epsilon must be a finite number above 0"),
        ({"epsilon": math.inf}, "epsilon must be a finite number"),
        ({"delta": 0.0}, "delta must lie strictly between 0 and 1"),
        ({"deadline": -1.0}, "deadline must be"),
        ({"fixed": {"speed": 1}}, "fixed must be one of 'step_size', 'local_steps'"),
        ({"fixed": {"cohort": 1}}, "fixed must be one of 'step_size', 'local_steps'"),
        ({"fixed": {"rounds": 1.5}}, "rounds must be an integer of at least 1"),
        ({"fixed": {"rounds": None}}, "rounds must be a number"),
        ({"observer": "nobody"}, "observer"),
    ],
)
def test_what_is_wrong_is_told(change, told):
    with pytest.raises(ValueError, match=told):
        fp.choose(**{"system": "fa-ld", **BUDGET, **change})


def test_a_budget_that_is_too_small_is_told():
    with pytest.raises(ImpossibleBudget, match="no setting of fa-ld was found within epsilon"):
        fp.choose("fa-ld", epsilon=1e-9, delta=1e-5, fixed=FEW)


def test_unequal_weights_are_refused_for_fa_hmc():
    class Mine:
        target = GaussianTarget(
            hessians=np.array([[[1.0]], [[1.0]]]), centres=np.zeros((2, 1)), weights=[0.25, 0.75]
        )
        gradient_sensitivity = 1.0

    with pytest.raises(fp.ParameterError, match="weights must be equal for fa-hmc"):
        fp.choose("fa-hmc", problem=Mine(), **BUDGET)


def test_a_step_changes_a_value_within_its_range():
    whole = Range(1, 10, "whole")
    assert [whole.at(share) for share in (0.0, 0.5, 1.0)] == [1, 3, 10]
    assert [whole.moved(5, step) for step in (1.0, 0.01, -0.01, -1.0, 9.0)] == [10, 6, 4, 2, 10]
    assert Range(0.0, 1.0, "share").moved(0.25, 1.0) == 0.375
    assert Range(1e-3, 1e3).moved(1.0, -0.5) == 0.7071
