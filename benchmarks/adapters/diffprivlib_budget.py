"""diffprivlib: its budget, and the noise of its Gaussian mechanisms."""

from importlib.metadata import version

from common import event_of, one, parts
from diffprivlib.accountant import BudgetAccountant
from diffprivlib.mechanisms import GaussianAnalytic

NAME, VERSION, ANSWERS = "diffprivlib", version("diffprivlib"), "upper"


def epsilon(case):
    """Return the total of guarantees; what they leave of delta is the slack."""
    run = case.get("run") or {}
    if run.get("type") == "Run" and len(run["fields"]["parts"]) == 1:
        [[stated, count]] = run["fields"]["parts"]
    else:
        stated, count = run, 1
    if stated.get("type") == "ApproximateDp":
        [[spent, lost]] = stated["fields"]["guarantees"]
    else:
        inner, sampling, count = one(list(parts(event_of(case))))
        if inner["type"] != "LaplaceDpEvent" or sampling or case["relation"] == "REPLACE_ONE":
            raise NotImplementedError("only guarantees, and Laplace sums")
        spent, lost = 1.0 / inner["noise_multiplier"], 0.0
    slack = case["delta"] - count * lost
    if slack < 0.0 or count > 1000:
        raise NotImplementedError("only delta that the guarantees leave, and 1,000 of them")
    budget = BudgetAccountant(slack=slack)
    for _ in range(count):
        budget.spend(spent, lost)
    epsilon, _ = budget.total()
    return epsilon


def noise_multiplier(case):
    inner, sampling, count = one(list(parts(event_of(case))))
    if inner["type"] != "GaussianDpEvent" or sampling or count > 1:
        raise NotImplementedError("only one Gaussian sum")
    moved = 2.0 if case["relation"] == "REPLACE_ONE" else 1.0
    made = GaussianAnalytic(epsilon=case["epsilon"], delta=case["delta"], sensitivity=moved)
    return made._scale
