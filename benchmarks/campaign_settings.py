"""Random settings of the whole algebra: a tree of plain values, and code that builds it."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import Any

ADJACENCIES = ("add_remove", "zero_out", "replace_one")
OBSERVERS = ("aggregate", "server", "final")


@dataclass(frozen=True)
class Node:
    """A mechanism: its kind, its numbers, and the mechanisms inside it."""

    kind: str
    values: dict[str, Any] = field(default_factory=dict)
    inside: tuple[Node, ...] = ()

    def __str__(self) -> str:
        return _CODE.get(self.kind, _call)(self)


@dataclass(frozen=True)
class Setting:
    """A query: a run, an observer, and a delta (or epsilon)."""

    name: str
    run: Node
    adjacency: str
    observer: str
    delta: float
    epsilon: float
    tolerance: float

    def snippet(self, extra: str = "") -> str:
        """Return code that computes the run's epsilon."""
        facts = f"adjacency={self.adjacency!r}, observer={self.observer!r}"
        more = f", tolerance={self.tolerance!r}, deadline=0.3" + (f", {extra}" if extra else "")
        return (
            f"import fedprivacy as fp; run = {self.run}; "
            f"print(fp.epsilon(run, delta={self.delta!r}, {facts}{more}))"
        )


def _call(node: Node) -> str:
    arguments = ", ".join(f"{k}={v!r}" for k, v in node.values.items() if v is not None)
    return f"fp.{node.kind}({arguments})"


def scheme_code(scheme: tuple[Any, ...]) -> str:
    """Return code of a scheme, given as a tuple (name, values)."""
    name, values = scheme
    return f"fp.{name}({', '.join(f'{k}={v!r}' for k, v in values.items())})"


def _sampled(node: Node) -> str:
    inner = f"({node.inside[0]})" if node.inside[0].kind in ("repeat", "sum") else node.inside[0]
    return f"{inner}.{node.kind}({scheme_code(node.values['scheme'])})"


def _batched(node: Node) -> str:
    values = {k: v for k, v in node.values.items() if k != "batches"}
    return f"{_call(Node(node.kind, values))[:-1]}, batches={scheme_code(node.values['batches'])})"


_CODE = {
    "NoisySGD": _batched,
    "sampled": _sampled,
    "in_cohort": _sampled,
    "repeat": lambda node: f"({node.inside[0]}) * {node.values['times']}",
    "sum": lambda node: " + ".join(f"({part})" for part in node.inside),
    "Parallel": lambda node: f"fp.Parallel(({', '.join(map(str, node.inside))},))",
}


class Draw:
    """Random numbers: mostly ordinary ones, sometimes extreme ones or ones at an edge."""

    def __init__(self, seed: str) -> None:
        self.rng = random.Random(seed)

    def spread(self, low: float, high: float) -> float:
        return math.exp(self.rng.uniform(math.log(low), math.log(high)))

    def whole(self, low: int, high: int) -> int:
        return max(low, min(high, round(self.spread(low, high))))

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def pick(self, *weighted: tuple[float, Any]) -> Any:
        weights, values = zip(*weighted, strict=True)
        return self.rng.choices(values, weights)[0]

    def noise(self) -> float:
        low, high = self.pick((7, (0.4, 30.0)), (2, (0.05, 1e3)), (1, (0.05, 0.5)))
        value = self.spread(low, high)
        return round(value, 3) if self.chance(0.3) and value > 0.1 else value

    def rounds(self) -> int:
        low, high = self.pick(
            (3, (1, 3)),
            (5, (2, 1000)),
            (2, (1000, 100_000)),
            (1.5, (1, 10**9)),
            (0.5, (2**31, 10**10)),
        )
        return self.whole(low, high)

    def delta(self) -> float:
        low, high = self.pick((7, (1e-12, 1e-3)), (2, (1e-32, 1e-8)), (1, (1e-3, 0.9)))
        return self.spread(low, high) if not self.chance(0.02) else 0.9999

    def probability(self) -> float:
        low, high = self.pick((6, (1e-3, 0.5)), (2, (1e-9, 1e-2)), (1, (0.3, 1.0)))
        return 1.0 if self.chance(0.03) else self.spread(low, high)


def scheme(draw: Draw, population: int | None = None) -> tuple[str, dict[str, Any]]:
    """A sampling scheme, as (name, values)."""
    n = population or draw.pick(
        (4, draw.whole(1, 60)), (4, draw.whole(10, 10_000)), (2, draw.whole(100, 10**9))
    )
    name = draw.pick(
        (5, "Poisson"),
        (5, "FixedSize"),
        (3, "WithReplacement"),
        (3, "TruncatedPoisson"),
        (2, "Shuffled"),
        (2, "RandomAllocation"),
        (1.5, "Everyone"),
    )
    match name:
        case "Poisson":
            return name, {"probability": draw.probability()}
        case "FixedSize":
            whole = draw.chance(0.12)
            return name, {"size": n if whole else draw.whole(1, n), "population": n}
        case "WithReplacement":
            n = 1 if draw.chance(0.06) else n
            most = draw.pick((8, 60), (1, 10_000), (1, 10**6))
            draws = draw.whole(1, most)
            if draw.chance(0.5):
                return name, {"draws": draws, "population": max(1, n)}
            chance = min(draw.spread(0.03, 30.0) / draws, 1.0)
            return name, {"draws": draws, "probability": chance}
        case "TruncatedPoisson":
            q = draw.probability()
            near = max(1, min(n, round(q * n * draw.spread(0.3, 3.0))))
            return name, {"probability": q, "population": n, "largest": near}
        case "Shuffled" | "RandomAllocation":
            rounds = draw.whole(1, draw.pick((4, 100), (1, 100_000)))
            values = {"rounds_per_epoch": rounds}
            if name == "RandomAllocation" and draw.chance(0.5):
                values["take"] = draw.whole(1, min(rounds, draw.pick((4, 30), (1, 3_000))))
            return name, values
    return name, {}


def _unit(draw: Draw) -> str | None:
    return draw.pick((6, None), (2, "client"), (2, "record"))


def gaussian(draw: Draw) -> Node:
    return Node("Gaussian", {"noise_multiplier": draw.noise(), "unit": _unit(draw)})


def laplace(draw: Draw) -> Node:
    return Node("Laplace", {"noise_multiplier": draw.noise(), "unit": _unit(draw)})


def at_an_edge(draw: Draw) -> Node:
    """Return a Gaussian whose epsilon is near a power of two or of ten, where searches end."""
    power = draw.pick((2, 2.0 ** draw.rng.randint(0, 25)), (1, 10.0 ** draw.rng.randint(3, 7)))
    epsilon = power * draw.rng.uniform(0.8, 1.2)
    return Node("Gaussian", {"noise_multiplier": 1.0 / math.sqrt(2.0 * epsilon)})


def sparsified(draw: Draw, cohort: int | None = None, topped: bool | None = None) -> Node:
    r = cohort or draw.whole(1, 100)
    lost = draw.whole(1, r) - 1 if draw.chance(0.3) else 0
    kept = draw.whole(1, 10**7)
    full = draw.chance(0.3) if topped is None else topped
    return Node(
        "SparsifiedPerturbation",
        {
            "noise_multiplier": draw.noise(),
            "clip_norm": 1.0,
            "kept": kept,
            "dimension": kept,
            "cohort": r,
            "missing": lost // 2,
            "colluding": 0 if full else lost - lost // 2,
            "topped_up": full,
        },
    )


def sparsified_run(draw: Draw) -> Node:
    """Fed-SMP with a cohort that fits its scheme."""
    drawn = scheme(draw)
    name, values = drawn
    size = values.get("size") or values.get("draws")
    varies = name in ("Poisson", "TruncatedPoisson", "RandomAllocation")
    step = sparsified(draw, size, True if varies else None)
    if name == "Shuffled" and not step.values["topped_up"]:
        clients = step.values["cohort"] * values["rounds_per_epoch"]
        clients -= draw.rng.randint(0, 1) if step.values["missing"] else 0
        drawn = (name, values | ({"population": clients} if draw.chance(0.7) else {}))
    return step if draw.chance(0.15) else Node("sampled", {"scheme": drawn}, (step,))


def whole_run(draw: Draw) -> Node:
    """Return integer noise, shares and norms of every size, and a cohort that fits its scheme."""
    kind = draw.pick((1, "DistributedDiscreteGaussian"), (1, "Skellam"))
    norm = draw.whole(1, 64)
    noise = min(draw.noise(), 100.0)
    most = max(1, math.floor((noise * norm / 0.126) ** 2))
    noise = max(noise, 0.126 / norm)
    r = draw.whole(1, min(most, 60))
    lost = draw.whole(1, r) - 1 if draw.chance(0.3) else 0
    varies = draw.chance(0.3)
    step = Node(
        kind,
        {
            "noise_multiplier": noise,
            "clip_norm": 1.0,
            "dimension": draw.pick((3, 1), (2, draw.whole(2, 10**6))),
            "cohort": r,
            "missing": 0 if varies else lost // 2,
            "colluding": 0 if varies else lost - lost // 2,
            "topped_up": varies,
            "bits": 40,
            "granularity": 1.0 / norm,
            "rotated": draw.chance(0.3),
        },
    )
    fixed = ("FixedSize", {"size": r, "population": draw.whole(r, 1000)})
    drawn = draw.pick((2, ("Everyone", {})), (2, fixed))
    drawn = ("Poisson", {"probability": draw.probability()}) if varies else drawn
    return step if draw.chance(0.3) else Node("sampled", {"scheme": drawn}, (step,))


def stated(draw: Draw) -> Node:
    adjacency = draw.rng.choice(ADJACENCIES)
    count = draw.pick((5, 1), (2, 2), (1, 4))
    points = []
    for _ in range(count):
        low, high = draw.pick((5, (0.01, 5.0)), (2, (1e-4, 60.0)), (2, (15.0, 40.0)))
        mass = 0.0 if draw.chance(0.5) else draw.spread(1e-15, 1e-2)
        points.append((draw.spread(low, high), mass))
    values = {"guarantees": tuple(points), "adjacency": adjacency}
    return Node("ApproximateDp", values | _flag(draw, adjacency))


def _flag(draw: Draw, adjacency: str) -> dict[str, Any]:
    said = adjacency == "zero_out" and draw.chance(0.5)
    return {"zeroed_is_absent": True} if said else {}


def other_stated(draw: Draw) -> Node:
    adjacency = draw.rng.choice(ADJACENCIES)
    facts = {"adjacency": adjacency} | _flag(draw, adjacency)
    if draw.chance(0.5):
        return Node("GaussianDp", {"mu": 1.0 / draw.noise()} | facts)
    xi = draw.pick((1, 0.0), (1, draw.spread(1e-3, 1.0)))
    return Node("ConcentratedDp", {"rho": draw.spread(1e-4, 3.0), "xi": xi} | facts)


def discrete(draw: Draw) -> Node:
    if draw.chance(0.5):
        answers = draw.whole(2, 1000)
        return Node("RandomizedResponse", {"chance": draw.spread(1e-3, 1.0), "answers": answers})
    values = {"noise_parameter": draw.spread(0.01, 5.0), "sensitivity": draw.whole(1, 20)}
    return Node("DiscreteLaplace", values)


def mixture(draw: Draw) -> Node:
    weights = [draw.rng.random() + 0.05 for _ in range(draw.whole(1, 5))]
    shares = [weight / sum(weights) for weight in weights]
    shares[0] = 1.0 - math.fsum(shares[1:])
    moves = [draw.rng.uniform(0.0, 2.0) for _ in shares]
    values = {"standard_deviation": draw.noise(), "sensitivities": tuple(moves)}
    return Node("MixtureOfGaussians", values | {"probabilities": tuple(shares)})


def renyi(draw: Draw) -> Node:
    adjacency = draw.rng.choice(ADJACENCIES)
    rate = draw.spread(1e-4, 3.0)
    orders = sorted(1.0 + draw.spread(0.1, 100.0) for _ in range(draw.whole(1, 5)))
    points = tuple((a, rate * a * draw.rng.uniform(0.8, 1.2)) for a in orders)
    values = {"divergences": points, "adjacency": adjacency}
    return Node("RenyiDp", values | _flag(draw, adjacency))


def langevin(draw: Draw) -> Node:
    steps = draw.pick((3, draw.whole(1, 5)), (3, draw.whole(2, 300)), (1, draw.whole(10, 10**6)))
    convex = draw.chance(0.45)
    alpha = draw.spread(0.1, 3.0)
    beta = alpha * draw.spread(1.0, 20.0)
    eta = draw.spread(1e-3, 0.95) * (2.0 / beta if convex else 1.0)
    size: Any = eta
    if draw.chance(0.4) and steps <= 300:
        size = tuple(eta / (1.0 + 0.02 * k) for k in range(steps))
    batch = 1.0 if draw.chance(0.5) else draw.spread(0.01, 1.0)
    return Node(
        "FederatedLangevin",
        {
            "step_size": size,
            "temperature": draw.spread(0.05, 20.0),
            "correlation": draw.pick((3, 0.0), (2, draw.rng.random()), (0.1, 1.0)),
            "weight": draw.pick((2, 1.0), (2, draw.spread(0.01, 1.0))),
            "batch_fraction": batch,
            "gradient_sensitivity": draw.spread(0.01, 5.0),
            "steps": steps,
            "strong_convexity": alpha if convex else None,
            "smoothness": beta if convex else None,
        },
    )


def hamiltonian(draw: Draw) -> Node:
    return Node(
        "FederatedHamiltonian",
        {
            "step_size": draw.spread(1e-3, 1.0),
            "leapfrog_steps": draw.pick((3, 1), (2, draw.whole(2, 8))),
            "correlation": draw.pick((3, 0.0), (2, draw.rng.random()), (0.1, 1.0)),
            "weight": draw.pick((2, 1.0), (2, draw.spread(0.01, 1.0))),
            "batch_fraction": 1.0 if draw.chance(0.5) else draw.spread(0.01, 1.0),
            "gradient_sensitivity": draw.spread(0.01, 5.0),
            "gradient_noise_multiplier": draw.pick((1, 0.0), (2, draw.noise())),
            "iterations": draw.whole(1, 1000),
        },
    )


def batches(draw: Draw) -> Node:
    """Return noisy SGD on Poisson batches, in a fixed order, or of a fixed size."""
    drawn = {"probability": draw.spread(0.01, 1.0)}
    scheme = draw.pick(
        (3, ("Poisson", drawn)),
        (1, ("FixedEpochs", {"separation": draw.whole(1, 40)})),
        (1, ("FixedSize", {"size": 1, "population": draw.whole(1, 100)})),
    )
    # A batch of all records must not move points apart.
    size = draw.whole(1, 50)
    return Node(
        "NoisySGD",
        {
            "step_size": 1.0,
            "noise_std": draw.noise() / size,
            "clip_norm": 1.0,
            "denominator": float(size),
            "steps": draw.whole(1, 300),
            "smoothness": draw.spread(1e-3, 1.0),
            "population": size if scheme[0] == "Poisson" else None,
            "batches": scheme,
            **({"radius": draw.spread(0.01, 100.0)} if draw.chance(0.3) else {}),
        },
    )


def descent(draw: Draw) -> Node:
    convex = draw.chance(0.6)
    alpha = draw.spread(0.1, 3.0)
    beta = alpha * draw.spread(1.0, 20.0)
    step = draw.spread(1e-3, 0.99) * 2.0 / beta
    return Node(
        "NoisyGradientDescent",
        {
            "step_size": step,
            "noise_std": draw.noise() * step,
            "sensitivity": draw.spread(0.05, 2.0),
            "strong_convexity": alpha if convex else None,
            "smoothness": beta if convex else None,
            "steps": draw.whole(1, 3000),
            **({"radius": draw.spread(0.01, 100.0)} if draw.chance(0.2) else {}),
        },
    )


def splitting(draw: Draw) -> Node:
    alpha, penalty = draw.spread(0.1, 3.0), draw.spread(0.1, 10.0)
    beta = alpha * draw.spread(1.0, 20.0)
    return Node(
        "SplittingRun",
        {
            "step_size": draw.spread(1e-2, 0.99) * 2.0 / (beta + 1.0 / penalty),
            "noise_scale": draw.noise(),
            "sensitivity": draw.spread(0.01, 1.0),
            "strong_convexity": alpha,
            "smoothness": beta,
            "penalty": penalty,
            "local_steps": draw.whole(1, 20),
            "rounds": draw.whole(1, 2000),
        },
    )


def _sum_step(draw: Draw) -> Node:
    return draw.pick(
        (6, gaussian), (2, laplace), (2, stated), (1, renyi), (0.5, other_stated), (0.5, discrete)
    )(draw)


def sampled_step(draw: Draw) -> Node:
    step = _sum_step(draw)
    if draw.chance(0.08):
        step = Node("sum", {}, (step, _sum_step(draw)))
    return Node("sampled", {"scheme": scheme(draw)}, (step,))


def nested(draw: Draw) -> Node:
    """A mechanism inside a client of a cohort."""
    inner = draw.pick(
        (3, sampled_step), (2, gaussian), (3, langevin), (1, hamiltonian), (1, descent), (1, stated)
    )(draw)
    if draw.chance(0.4):
        inner = Node("repeat", {"times": draw.whole(1, 8)}, (inner,))
    return Node("in_cohort", {"scheme": scheme(draw)}, (inner,))


def parallel(draw: Draw) -> Node:
    if draw.chance(0.5):
        drawn = scheme(draw)
        first = Node("sampled", {"scheme": drawn}, (gaussian(draw),))
        kind = draw.pick((1, "sampled"), (1, "in_cohort"))
        return Node("Parallel", {}, (first, Node(kind, {"scheme": drawn}, (gaussian(draw),))))
    inner = draw.pick((1, gaussian), (1, langevin), (1, sampled_step))
    return Node("Parallel", {}, tuple(inner(draw) for _ in range(draw.whole(1, 3))))


_KINDS = (
    (22, sampled_step),
    (5, gaussian),
    (4, at_an_edge),
    (3, laplace),
    (11, sparsified_run),
    (6, whole_run),
    (8, stated),
    (4, renyi),
    (3, other_stated),
    (3, discrete),
    (2, mixture),
    (10, langevin),
    (5, hamiltonian),
    (6, descent),
    (6, batches),
    (3, splitting),
    (14, nested),
    (5, parallel),
)


def run(draw: Draw) -> Node:
    """A whole run."""
    kind = draw.pick(*_KINDS)
    one = kind(draw)
    if kind is at_an_edge:
        return one
    if draw.chance(0.08):
        one = Node("sum", {}, (one, draw.pick(*_KINDS)(draw)))
    times = draw.rounds()
    return one if times == 1 else Node("repeat", {"times": times}, (one,))


def setting(seed: int, index: int) -> Setting:
    """Return the setting ``index`` of a seed; it is always the same."""
    draw = Draw(f"{seed}:{index}")
    made = run(draw)
    said = _adjacency(made)
    adjacency = said if said and draw.chance(0.9) else draw.rng.choice(ADJACENCIES)
    observer = draw.pick((6, "aggregate"), (3, "server"), (1, "final"))
    tolerance = draw.pick((6, 1e-3), (1, 1e-6), (1, 0.1), (2, 1e-2))
    delta, epsilon = draw.delta(), draw.spread(1e-3, 30.0)
    name = f"seed {seed}, setting {index}"
    return Setting(name, made, adjacency, observer, delta, epsilon, tolerance)


def _adjacency(node: Node) -> str | None:
    """Return the only adjacency that a mechanism inside supports, or None."""
    if "adjacency" in node.values:
        return node.values["adjacency"]
    uploads = ("FederatedLangevin", "FederatedHamiltonian", "NoisyGradientDescent", "SplittingRun")
    if node.kind in uploads:
        return "replace_one"
    return next((said for said in map(_adjacency, node.inside) if said), None)
