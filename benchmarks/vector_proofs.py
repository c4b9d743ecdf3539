"""Independent checks of answers that a test vector calls wrong: mpmath, Fourier, lattices.

The pairs of two named data sets are written down again from their definitions, and
`campaign_truth` encloses their delta without the package's code.
"""

import math
from typing import Any

from adapters.common import filled, parts
from campaign_truth import Part, Show, delta_ends
from scipy.optimize import minimize_scalar


def round_of(inner: Any, sampling: Any, relation: str, slots: bool) -> Part | None:
    """Return one round of two data sets, in units of the noise; None if it is not written here.

    With ``slots`` another unit takes the slot of the absent or replaced one. It sends -C u, else 0.
    """
    if inner["type"] == "RandomizedResponseDpEvent":
        k, p = inner["num_buckets"], inner["noise_parameter"]
        told, other = 1.0 - p + p / k, p / k
        return Part(1, "atoms", (told, *[other] * (k - 1)), (other, told, *[other] * (k - 2)))
    kind = {"GaussianDpEvent": "normal", "LaplaceDpEvent": "laplace"}.get(inner["type"])
    if kind is None:
        return None
    step, rate = 1.0 / inner["noise_multiplier"], 1.0
    if sampling is not None and "sample_size" in sampling:
        rate = sampling["sample_size"] / sampling["source_dataset_size"]
    elif sampling is not None:
        rate = sampling["sampling_probability"]
    rest = ((1.0 - rate, 0.0),) if rate < 1.0 else ()
    if slots:
        # A zeroed unit keeps its slot and sends 0 there.
        absent = (*rest, (rate, step)) if relation == "REPLACE_SPECIAL" else ((1.0, 0.0),)
        return Part(1, kind, (*rest, (rate, 2.0 * step)), absent)
    other = (*rest, (rate, -step)) if relation == "REPLACE_ONE" else ((1.0, 0.0),)
    return Part(1, kind, (*rest, (rate, step)), other)


def shows(event: dict[str, Any], relation: str) -> list[Show]:
    """Return all rounds of some pairs of data sets."""
    found = list(parts(event))
    sized = all(sampling and "sample_size" in sampling for _, sampling, _ in found)
    made = []
    for slots in (False, True):
        # Only a cohort of a fixed size has slots.
        if slots and not sized:
            continue
        rounds = [(round_of(inner, sampling, relation, slots), n) for inner, sampling, n in found]
        # Without slots, an absent unit of such a cohort is not written here.
        if sized and relation == "ADD_OR_REMOVE_ONE" and not slots:
            continue
        if all(one is not None for one, _ in rounds):
            made.append(Show("named data sets", tuple(((one,), n) for one, n in rounds)))
    return made


def largest(made: list[Show], epsilon: float) -> float:
    """Return a delta that one of the pairs has at least."""
    ends = [delta_ends(show, epsilon) for show in made]
    return max((low for low, _ in filter(None, ends)), default=0.0)


def proof(case: Any, answer: float) -> str:
    """Return in words that the answer is refuted; empty if it is not."""
    asked = case.question
    event = asked["event"]
    if event is None:
        return ""
    if asked["ask"] == "noise_multiplier":
        event = filled(event, answer)
    made = shows(event, asked["relation"])
    if asked["ask"] in ("power", "advantage"):
        return power(made, asked.get("fpr"), answer)
    epsilon = max(answer, 0.0) if asked["ask"] in ("epsilon", "resumed") else asked["epsilon"]
    claimed = answer if asked["ask"] == "delta" else asked["delta"]
    if claimed == 0.0 and "GaussianDpEvent" in str(event):
        return "a Gaussian sum has a delta above 0 at every epsilon"
    found = largest(made, epsilon)
    return f"delta is at least {found:.4g} there" if found > claimed else ""


def power(made: list[Show], fpr: float | None, answer: float) -> str:
    """Return the power of the best test: the least of delta + e^epsilon fpr over epsilon."""
    if fpr is None:
        found = largest(made, 0.0)
    else:
        # Convex in e^epsilon, so with one minimum.
        low = minimize_scalar(
            lambda x: math.log(largest(made, float(x)) + math.exp(x) * fpr),
            bounds=(0.0, -math.log(fpr)),
            method="bounded",
            options={"xatol": 1e-2},
        )
        found = math.exp(low.fun)
    return f"a test attains about {found:.4g}" if answer < 0.99 * found else ""
