"""Questions for every library, as plain JSON values, so that they can be sent through a pipe.

A run is a list of parts {"mechanism", "noise", "scheme", "count"}. A question also names the
adjacency, delta, and the wanted quantity: "epsilon", "profile", "calibrate" or "rounds". The noise
of a "guarantee" is the epsilon of each round, the only known fact about it.
"""

from typing import Any

Question = dict[str, Any]

SETTINGS = [
    (0.01, 0.8, 100),
    (0.01, 0.8, 1_000),
    (0.01, 0.8, 10_000),
    (0.01, 0.8, 100_000),
    (0.01, 0.8, 1_000_000),
    (256 / 60_000, 1.1, 14_063),
    (0.001, 0.5, 10_000),
]
"""(q, noise multiplier, rounds) of the sampled Gaussian, at delta 1e-5."""

TARGETS = [(1.0, 1e-5), (8.0, 1e-6), (0.5, 1e-8)]
"""(epsilon, delta) to calibrate for, q = 0.01, 10,000 rounds."""


def part(noise: float, count: int = 1, scheme: list[Any] | None = None, mechanism="gaussian"):
    return {"mechanism": mechanism, "noise": noise, "scheme": scheme, "count": count}


def epsilon(parts: list[Any], delta: float = 1e-5, adjacency: str = "add_remove") -> Question:
    return {"wanted": "epsilon", "parts": parts, "delta": delta, "adjacency": adjacency}


def poisson(q: float, noise: float, rounds: int, **facts: Any) -> Question:
    return epsilon([part(noise, rounds, ["poisson", q])], **facts)


def calibration(target: float, delta: float) -> Question:
    question = poisson(0.01, 1.0, 10_000, delta=delta)
    return question | {"wanted": "calibrate", "epsilon": target}


def mixed(count: int = 1_000) -> Question:
    """Return ``count`` different pairs (noise, q) without an order, ten rounds of each."""
    golden = 0.6180339887498949
    pairs = [(0.8 + 1.2 * (i * golden % 1.0), 0.002 + 0.008 * i / count) for i in range(count)]
    return epsilon([part(noise, 10, ["poisson", q]) for noise, q in pairs])


def cohorts(adjacency: str) -> Question:
    """Return 180 rounds with 100 clients of 6,000, drawn without replacement."""
    return epsilon([part(1.4, 180, ["fixed", 100, 6_000])], 6_000**-1.1, adjacency)


REPLACED_GAUSSIAN = epsilon([part(1.0)], adjacency="replace_one")
REPLACED_LAPLACE = epsilon([part(1.0, 10, None, "laplace")], adjacency="replace_one")


def profile(q: float, noise: float, rounds: int) -> Question:
    """Return the question of delta at each of 1,000 epsilons from 0 to 5."""
    question = poisson(q, noise, rounds)
    return question | {"wanted": "profile", "epsilons": [0.005 * k for k in range(1_000)]}


def different(count: int) -> Question:
    """Return ``count`` different rounds."""
    question = mixed(count)
    return question | {"parts": [one | {"count": 1} for one in question["parts"]]}


SCHEMES = {
    "everyone": ("add_remove", None),
    "poisson": ("add_remove", ["poisson", 0.01]),
    "truncated": ("add_remove", ["truncated", 0.01, 100_000, 1_500]),
    "fixed": ("add_remove", ["fixed", 1_000, 100_000]),
    "fixed-zero_out": ("zero_out", ["fixed", 1_000, 100_000]),
    "fixed-replace_one": ("replace_one", ["fixed", 1_000, 100_000]),
    "replacement": ("zero_out", ["replacement", 1_000, 100_000]),
    "shuffled": ("zero_out", ["shuffled", 100]),
    "allocation": ("zero_out", ["allocation", 100]),
}
"""name -> (adjacency, scheme): about 1 in 100 takes part in a round."""


def scheme_calibration(name: str) -> Question:
    """Return the question of the noise for (2, 1e-6) in 1,000 rounds (or 10 epochs of 100)."""
    adjacency, scheme = SCHEMES[name]
    epochs = scheme is not None and scheme[0] in ("shuffled", "allocation")
    question = epsilon([part(1.0, 10 if epochs else 1_000, scheme)], 1e-6, adjacency)
    return question | {"wanted": "calibrate", "epsilon": 2.0}


def rounds(epsilon_budget: float, count: int) -> Question:
    """Return the question of a training loop, repeated ``count`` times: does one more round fit?"""
    question = poisson(0.01, 0.8, count)
    return question | {"wanted": "rounds", "epsilon": epsilon_budget}


def moved(question: Question, share: float) -> Question:
    """Return the question with every noise a little larger, so that no cache has its answer."""
    parts = [one | {"noise": one["noise"] * (1.0 + share)} for one in question["parts"]]
    target = question.get("epsilon", 0.0) * (1.0 + share)
    return question | {"parts": parts, "epsilon": target}


HOW = {
    None: "",
    "poisson": "q {:.4g}",
    "fixed": "{} of {}",
    "truncated": "q {:.4g} of {}, {} at most",
    "replacement": "{} of {} with replacement",
    "shuffled": "shuffled into {}",
    "allocation": "allocated to one of {}",
}


def named(question: Question) -> str:
    """Return a short description for a table."""
    first, several = question["parts"][0], len(question["parts"])
    scheme = first["scheme"]
    how = HOW[scheme and scheme[0]]
    words = [first["mechanism"] if several == 1 else f"{several} pairs"]
    words += [how.format(*scheme[1:])] if scheme and several == 1 else []
    words += [f"z {first['noise']:.4g}"] if several == 1 else []
    words += [f"x {first['count']}", f"delta {question['delta']:.3g}", question["adjacency"]]
    if question["wanted"] == "profile":
        words[-2] = f"delta at {len(question['epsilons']):,} epsilons"
    if question["wanted"] == "calibrate":
        words = [f"epsilon {question['epsilon']:g}, delta {question['delta']:g}"]
        if (scheme, first["count"]) != (["poisson", 0.01], 10_000):
            words += [how.format(*scheme[1:]) if scheme else "everyone", question["adjacency"]]
            words.insert(-1, f"x {first['count']}")
    return ", ".join(words)
