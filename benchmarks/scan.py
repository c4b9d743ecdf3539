"""Search for answers that are below a value that two named neighbouring data sets attain."""

from collections.abc import Callable
from typing import Any

import questions
from pool import Pool, Way
from questions import Question, named

CHEAP = [
    Way("dp-accounting", "PLD", 1e-3),
    Way("dp-accounting", "RDP"),
    Way("opacus", "RDP"),
    Way("opacus", "PRV"),
    Way("opacus", "GDP"),
    Way("prv-accountant", "PRV", 0.1),
    Way("autodp", "RDP"),
]

DEFAULT = Way("dp-accounting", "PLD", label="default")

GRID = [
    (q, noise, rounds, delta)
    for q, noise, rounds in [
        (1e-4, 0.5, 1_000),
        (0.001, 1.0, 10_000),
        (0.01, 0.5, 100),
        (0.01, 1.0, 1_000),
        (0.01, 4.0, 10_000),
        (0.1, 0.8, 100),
        (0.1, 2.0, 1_000),
        (0.1, 20.0, 10_000),
        (0.5, 1.0, 10),
        (0.5, 8.0, 1_000),
    ]
    for delta in (0.5, 1e-3, 1e-6, 1e-9, 1e-12, 1e-17)
]
"""Settings of the sampled Gaussian, from loose to strict, near and past rounding errors."""

REPLACED = [
    questions.REPLACED_GAUSSIAN,
    questions.epsilon([questions.part(20.0, 100)], adjacency="replace_one"),
    questions.REPLACED_LAPLACE,
    questions.poisson(0.01, 1.0, 1_000, adjacency="replace_one"),
    questions.epsilon([questions.part(1.0, 1_000, ["fixed", 50, 50_000])], adjacency="replace_one"),
]


def near_misses(pool: Pool, quick: bool) -> None:
    """Ask the fast ways many questions; their answers are kept in the pool's log."""
    for q, noise, rounds, delta in GRID[::7] if quick else GRID:
        ways = [*CHEAP, DEFAULT] if delta in (1e-9, 1e-12) and not quick else CHEAP
        pool.compare(questions.poisson(q, noise, rounds, delta=delta), ways, calls=0, limit=5.0)
    for question in REPLACED:
        pool.compare(question, CHEAP, calls=0, limit=5.0)


def below(pool: Pool, attained: Callable[[Question], tuple[float, float]]) -> list[dict[str, Any]]:
    """Return every logged answer below the attained end, or with a lower end above the truth."""
    known: dict[str, tuple[float, float]] = {}
    found = []
    for question, answer in list(pool.log):
        if answer.way.library == "fedprivacy" or question["wanted"] == "rounds":
            continue
        value, said = answer.high, answer.high
        if question["wanted"] == "calibrate":
            value = question["epsilon"]
            [part] = question["parts"]
            question = question | {"wanted": "epsilon", "parts": [part | {"noise": answer.high}]}
        key = repr(question)
        known[key] = known.get(key) or attained(question)
        low, high = known[key]
        case = {"way": answer.way.name, "question": named(question), "said": value}
        if value < low or value < 0:
            found.append(case | {"attained": low, "short": short(value, low)})
        elif answer.low is not None and answer.low > high:
            said = f"{case['way']} (its lower end)"
            found.append(case | {"way": said, "said": answer.low, "attained": high, "short": 0.0})
    unique = {(case["way"], case["question"]): case for case in found}
    return sorted(unique.values(), key=lambda case: (case["way"], case["question"]))


def short(value: float, attained: float) -> float:
    """Return the relative shortfall of an answer from the attained end."""
    return (attained - value) / attained if attained > 0 else 1.0
