"""The convergence theorems of FedAvg and Fed-SMP, against problems whose iterates are exact.

Every client's loss is L/2 |x - a_i|^2, so the second moments of the iterates obey recursions that
need no sampling: bounds are tested by containment.
"""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedprivacy.errors import MODERATE, ParameterError
from fedprivacy.papers.averaging.bounds import rounds_needed

pytest.importorskip("torch")

from fedprivacy.papers.averaging.bounds import recommended_steps, two_sided_bound

KINDS = ["everyone", "with_replacement", "without_replacement"]


def variance_of_mean(kind, m, n):
    """Return what the variance of a mean of n of m fixed values is multiplied with."""
    return {"everyone": 0.0, "with_replacement": 1 / n}.get(kind, (m - n) / (n * max(m - 1, 1)))


def variance_of_noise(kind, m, n):
    """Return the variance of a mean of the drawn clients' unit noises, copies counted."""
    repeats = 1 + (n - 1) / m if kind == "with_replacement" else 1.0
    return repeats / n


def smallest_gradient(s, kind, m, n, a, start):
    """Return min over t < T of E |grad f(x_t)|^2 of two-sided FedAvg, exactly."""
    smooth, k, local, server = (
        s[key] for key in ("smoothness", "local_steps", "learning_rate", "server_learning_rate")
    )
    shrink = 1 - local * smooth
    pull = 1 - shrink**k
    noise = local**2 * s["gradient_variance"] * sum(shrink ** (2 * j) for j in range(k))
    moment, best = (start - a.mean()) ** 2, math.inf
    for _ in range(s["rounds"]):
        best = min(best, smooth**2 * moment)
        moment = (
            (1 - server * pull) ** 2 * moment
            + (server * pull) ** 2 * a.var() * variance_of_mean(kind, m, n)
            + server**2 * noise * variance_of_noise(kind, m, n)
            + server**2 * (s["noise_std"] / n) ** 2
        )
    return best


def averaging_settings(count):
    draw = np.random.default_rng(5)
    for _ in range(count):
        kind = str(draw.choice(KINDS))
        m = int(draw.integers(2, 30))
        n = m if kind == "everyone" else int(draw.integers(1, m + 1))
        k, smooth = int(draw.integers(1, 8)), float(10 ** draw.uniform(-1, 1))
        a, start = draw.normal(size=m) * draw.choice([0.0, 1.0, 5.0]), float(draw.normal() * 5)
        reach = float(draw.choice([0.1, 0.5, 1.0]))
        yield (
            kind,
            m,
            n,
            a,
            start,
            {
                "smoothness": smooth,
                "local_steps": k,
                "rounds": int(draw.integers(1, 300)),
                "gradient_variance": float(draw.choice([0.0, 1.0, 9.0])),
                "learning_rate": reach / (8 * smooth * k) * (0.3 if kind != "everyone" else 1.0),
                "server_learning_rate": float(10 ** draw.uniform(-1, 0.5)),
                "noise_std": float(draw.choice([0.0, 2.0])),
            },
        )


def test_two_sided_bounds_contain_exact_iterates():
    admitted = dict.fromkeys(KINDS, 0)
    for kind, m, n, a, start, s in averaging_settings(400):
        try:
            bound = two_sided_bound(
                **s,
                clients=m,
                participation=kind,
                cohort=None if kind == "everyone" else n,
                dimension=1,
                gap=0.5 * s["smoothness"] * (start - a.mean()) ** 2,
                heterogeneity=s["smoothness"] ** 2 * float(np.max((a - a.mean()) ** 2)),
            )
        except ParameterError:
            continue
        admitted[kind] += 1
        assert smallest_gradient(s, kind, m, n, a, start) <= bound.value
        assert sum(value for _, value in bound.terms) == pytest.approx(bound.value)
        assert bound.bound
    assert min(admitted.values()) >= 40, admitted


BASE = {
    "clients": 100,
    "local_steps": 5,
    "rounds": 2000,
    "smoothness": 2.0,
    "gap": 3.0,
    "gradient_variance": 4.0,
    "heterogeneity": 1.5,
    "learning_rate": 1 / 200,
    "server_learning_rate": 2.0,
}


@pytest.mark.parametrize(("kind", "n"), [("everyone", None), (KINDS[1], 10), (KINDS[2], 10)])
def test_printed_theorems_word_by_word(kind, n):
    m, k, t, smooth, gap, sl, sg, inner, outer = BASE.values()
    bound = two_sided_bound(**BASE, participation=kind, cohort=n, as_printed=True)
    share = {"everyone": 0.0, KINDS[1]: 1 / (n or 1), KINDS[2]: (m - (n or 1)) / ((n or 1) * 99)}
    v, both = share[kind], smooth * outer * inner
    c = 0.5 - 15 * k**2 * inner**2 * smooth**2
    c -= both * v / 2 * (90 * k**3 * smooth**2 * inner**2 + 3 * k)
    phi = both / (2 * (n or m)) * sl + 3 * k * both * v / 2 * sg
    phi += (5 * k * inner**2 * smooth**2 / 2) * (sl + 6 * k * sg)
    phi += 15 * k**2 * outer * inner**3 * smooth**3 * v / 2 * (sl + 6 * k * sg)
    assert bound.value == pytest.approx((gap / (outer * inner * k * t) + phi) / c, rel=1e-12)
    assert not bound.bound and "as printed" in bound.theorem


@pytest.mark.parametrize("kind", KINDS)
def test_the_repair_never_claims_less_than_the_printed_bound(kind):
    n = None if kind == "everyone" else 10
    both = [two_sided_bound(**BASE, participation=kind, cohort=n, as_printed=p) for p in (0, 1)]
    assert both[0].value > both[1].value
    assert both[0].term("optimisation") >= both[1].term("optimisation")


def test_everyone_drawn_without_replacement_is_everyone():
    full = two_sided_bound(**BASE)
    drawn = two_sided_bound(**BASE, participation="without_replacement", cohort=100)
    assert drawn.terms == full.terms


def test_a_step_of_the_printed_proof_is_false():
    """(a5): one client, two local steps on -L x^2 / 2, noise of two signs: the cross term stays."""
    smooth, eta, sigma = 1.0, 1 / 16, 3.0
    total = noise = drift = 0.0
    for first, second in itertools.product((-sigma, sigma), repeat=2):
        moved = -eta * first
        gradients = [0.0, -smooth * moved]
        total += (gradients[0] + first + gradients[1] + second) ** 2 / 4
        noise += (first + second) ** 2 / 4
        drift += sum(gradients) ** 2 / 4
    assert noise == pytest.approx(2 * sigma**2)
    assert total > (noise + drift) * (1 + 0.05)
    assert total <= 2 * (noise + drift)


def test_a_worker_drawn_twice_is_noisier_than_printed():
    """(b2): the mean over two draws from two clients that each have one noisy update."""
    values = [
        (noises[i] + noises[j]) ** 2 / 4
        for noises in itertools.product((-1.0, 1.0), repeat=2)
        for i, j in itertools.product(range(2), repeat=2)
    ]
    assert np.mean(values) == pytest.approx((1 + 1 / 2) / 2) and np.mean(values) > 1 / 2


def test_the_printed_condition_of_theorem_2_admits_no_constant():
    """Its sign is wrong: two of many, step sizes that it allows, and c would be negative."""
    k, n, local = 1, 2, 1 / 8
    product = 0.49
    printed = 30 * k**2 * local**2 - product / n * (90 * k**3 * local**2 + 3 * k)
    assert printed < 1 and product < (n - 1) / n
    assert 0.5 - 15 * local**2 - product / (2 * n) * (90 * local**2 + 3) < 0
    setting = {
        **BASE,
        "local_steps": k,
        "smoothness": 1.0,
        "learning_rate": local,
        "server_learning_rate": product / local,
        "participation": KINDS[1],
        "cohort": n,
    }
    with pytest.raises(ParameterError, match="c must be above 0"):
        two_sided_bound(**setting, as_printed=True)


@pytest.mark.parametrize(
    ("kind", "n", "slope"), [("everyone", None, 0.5), (KINDS[1], 20, 0.5), (KINDS[2], 20, 0.5)]
)
def test_the_corollaries_rates(kind, n, slope):
    values = []
    for rounds in (10**6, 10**8):
        steps = recommended_steps(local_steps=5, rounds=rounds, smoothness=2.0, cohort=n or 100)
        changed = {
            "rounds": rounds,
            "learning_rate": steps.local,
            "server_learning_rate": steps.server,
        }
        values.append(two_sided_bound(**{**BASE, **changed}, participation=kind, cohort=n).value)
    fall = math.log(values[0] / values[1]) / math.log(100)
    assert fall == pytest.approx(slope, abs=0.03)


@pytest.mark.parametrize("as_printed", [False, True])
@pytest.mark.parametrize(("kind", "n"), [("everyone", None), (KINDS[1], 7), (KINDS[2], 7)])
def test_rounds_needed_is_where_the_recommended_steps_begin(kind, n, as_printed):
    m, k = 40, 6
    first = rounds_needed(
        clients=m, local_steps=k, participation=kind, cohort=n, as_printed=as_printed
    )
    admitted = []
    for rounds in (first - 1, first):
        steps = recommended_steps(local_steps=k, rounds=rounds, smoothness=2.0, cohort=n or m)
        changed = {"clients": m, "local_steps": k, "rounds": rounds}
        changed |= {"learning_rate": steps.local, "server_learning_rate": steps.server}
        try:
            two_sided_bound(
                **{**BASE, **changed}, participation=kind, cohort=n, as_printed=as_printed
            )
        except ParameterError:
            admitted.append(False)
        else:
            admitted.append(True)
    assert admitted == [False, True]
    if kind == "everyone":
        assert first == (m * k if as_printed else 4 * m * k)


def test_privacy_noise_is_a_term_of_its_own():
    quiet = two_sided_bound(**BASE)
    noisy = two_sided_bound(**BASE, noise_std=3.0, dimension=50)
    assert noisy.value - quiet.value == pytest.approx(noisy.term("privacy noise"))
    assert len(noisy.assumed) == len(quiet.assumed) + 1


SMP = {
    "kept": 40,
    "dimension": 100,
    "cohort": 10,
    "local_steps": 4,
    "rounds": 500,
    "smoothness": 2.0,
    "gap": 3.0,
    "gradient_variance": 1.0,
    "dissimilarity": 1.2,
    "heterogeneity": 0.5,
    "step_size": 1e-3,
    "noise_multiplier": 1.4,
    "clip_norm": 0.5,
}


def quiet(d, k, rounds, eta):
    return {
        **SMP,
        "kept": k,
        "dimension": d,
        "local_steps": 1,
        "rounds": rounds,
        "smoothness": 1.0,
        "gap": d / 2,
        "gradient_variance": 0.0,
        "dissimilarity": 1.0,
        "heterogeneity": 0.0,
        "step_size": eta,
        "noise_multiplier": 0.0,
        "sparsifier": "top_k",
    }


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"learning_rate": 1.0}, "be at most 1/8"),
        ({"server_learning_rate": 50.0}, "server_learning_rate"),
        ({"cohort": 3}, "left out"),
        ({"participation": "without_replacement", "cohort": 101}, "at most clients"),
        ({"participation": "with_replacement"}, "cohort"),
        ({"participation": "nobody"}, "participation"),
        ({"noise_std": 1.0}, "dimension"),
        ({"heterogeneity": -1.0}, "heterogeneity"),
        ({"rounds": 0}, "rounds"),
        (
            {"server_learning_rate": 1e299, "learning_rate": 1e-300},
            "learning_rate must be a number from 1e-50",
        ),
        ({"noise_std": 1e160, "dimension": 1}, "noise_std must be 0 or a number from"),
        ({"noise_std": 1e-170, "dimension": 1}, "noise_std must be 0 or a number from"),
    ],
)
def test_two_sided_averaging_refuses(change, words):
    with pytest.raises(ParameterError, match=words):
        two_sided_bound(**{**BASE, **change})


def test_one_worker_at_a_time_is_excluded_by_a_misprint_only():
    one = {"participation": "with_replacement", "cohort": 1}
    slow = {**BASE, "learning_rate": 1e-4, "server_learning_rate": 1.0}
    assert two_sided_bound(**slow, **one).value > 0
    with pytest.raises(ParameterError, match="server_learning_rate"):
        two_sided_bound(**slow, **one, as_printed=True)


def test_the_ends_of_the_range_neither_overflow_nor_vanish():
    small, large = MODERATE
    for noise, server in ((small, small), (large, large)):
        steps = {"learning_rate": small, "server_learning_rate": server, "smoothness": small}
        found = two_sided_bound(**{**BASE, **steps}, noise_std=noise, dimension=10**15)
        assert 0.0 < found.term("privacy noise") < math.inf
    for name in ("smoothness", "cohort"):
        ask = {"local_steps": 1, "rounds": 10**15, "smoothness": 1.0, "cohort": 1}
        steps = recommended_steps(**ask | {name: large if name == "smoothness" else 10**15})
        assert 0.0 < steps.local < math.inf and 0.0 < steps.server < math.inf
    with pytest.raises(ParameterError, match="smoothness"):
        recommended_steps(local_steps=1, rounds=1, smoothness=5e-324, cohort=1)


SETTINGS = settings(derandomize=True, deadline=None, max_examples=25)
SCALES = st.sampled_from([1e-3, 0.5, 3.0, 1e4])


# ---- bounds do not depend on the units


@given(
    scale=SCALES,
    kind=st.sampled_from(["everyone", "with_replacement", "without_replacement"]),
    noise=st.sampled_from([0.0, 0.3]),
    printed=st.booleans(),
)
@SETTINGS
def test_a_loss_in_other_units_has_the_same_bound_in_those(scale, kind, noise, printed):
    """A loss s times as large: gradients s, their squares s^2, steps as long with rates over s."""
    one = {
        "clients": 12,
        "local_steps": 3,
        "rounds": 50,
        "smoothness": 2.0,
        "gap": 1.5,
        "gradient_variance": 0.7,
        "heterogeneity": 0.4,
        "learning_rate": 0.01,
        "server_learning_rate": 1.2,
        "participation": kind,
        "cohort": None if kind == "everyone" else 5,
        "noise_std": noise,
        "dimension": 4,
        "as_printed": printed,
    }
    other = one | {
        "smoothness": scale * 2.0,
        "gap": scale * 1.5,
        "gradient_variance": scale**2 * 0.7,
        "heterogeneity": scale**2 * 0.4,
        "learning_rate": 0.01 / scale,
    }
    before, after = two_sided_bound(**one), two_sided_bound(**other)
    assert after.value == pytest.approx(scale**2 * before.value, rel=1e-9)
    for name, value in before.terms:
        assert after.term(name) == pytest.approx(scale**2 * value, rel=1e-9), name
    assert math.fsum(value for _, value in before.terms) == pytest.approx(before.value)
    assert (before.term("privacy noise") > 0.0) == (noise > 0.0) and before.bound is not printed


@given(
    k=st.integers(1, 50),
    rounds=st.integers(1, 10**6),
    smooth=st.floats(0.1, 10),
    n=st.integers(1, 99),
)
@SETTINGS
def test_recommended_steps_by_their_formula(k, rounds, smooth, n):
    found = recommended_steps(local_steps=k, rounds=rounds, smoothness=smooth, cohort=n)
    assert found.local == pytest.approx(1.0 / (math.sqrt(rounds) * k * smooth), rel=1e-12)
    assert found.server == pytest.approx(math.sqrt(k * n), rel=1e-12)
