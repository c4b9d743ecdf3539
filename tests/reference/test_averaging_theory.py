"""The convergence theorems of FedAvg and Fed-SMP, against problems whose iterates are exact.

Every client's loss is L/2 |x - a_i|^2, so the second moments of the iterates obey recursions that
need no sampling: bounds are tested by containment.
"""

import itertools
import math

import numpy as np
import pytest

from fedprivacy.errors import MODERATE, ParameterError
from fedprivacy.systems.averaging.bounds import recommended_steps, rounds_needed, two_sided_bound
from fedprivacy.systems.fed_smp.bounds import SmpSetting, fed_smp_bound, preferred_kept

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


def test_fed_smp_word_by_word():
    bound = fed_smp_bound(SmpSetting(**SMP))
    k, d, r, tau, t, smooth, e0, zeta, _, kappa, eta, sigma, clip = SMP.values()
    phi = d / k - 1
    start = 8 * e0 / (t * eta * tau) + 8 * eta * tau * smooth * (3 * kappa + 2 * zeta)
    assert bound.term("optimisation") == pytest.approx(start)
    sparse = 8 * eta * tau * smooth * (2 * kappa + zeta) * phi
    assert bound.term("sparsification") == pytest.approx(sparse)
    noise = 4 * smooth * k * clip**2 * sigma**2 / (eta * tau * r**2)
    assert bound.term("privacy noise") == pytest.approx(noise)
    assert bound.value == pytest.approx(start + sparse + noise)


def test_fed_smp_top_k_word_by_word():
    top = {**SMP, "kept": 70, "sparsifier": "top_k"}
    sparse = (8 * 4e-3 * 2 * (2 * 0.5 + 1) + 4 * 1.0 / (1 / 3)) * 0.3
    assert fed_smp_bound(SmpSetting(**top)).term("sparsification") == pytest.approx(sparse)


def mean_gradient_of_rand_k(s, n, a, start):
    """Return the mean over t < T of E |grad f|^2 of Fed-SMP with rand_k, exactly."""
    d, k, r = s["dimension"], s["kept"], s["cohort"]
    smooth, eta, tau = s["smoothness"], s["step_size"], s["local_steps"]
    shrink = 1 - eta * smooth
    pull = 1 - shrink**tau
    noise = eta**2 * s["gradient_variance"] / d * sum(shrink ** (2 * j) for j in range(tau)) / r
    drawn = a.var(axis=0) * (n - r) / (r * max(n - 1, 1))
    moment, total = (start - a.mean(axis=0)) ** 2, 0.0
    for _ in range(s["rounds"]):
        total += smooth**2 * moment.sum()
        kept = d / k * (pull**2 * (moment + drawn) + noise)
        private = k / d * (s["clip_norm"] * s["noise_multiplier"] / r) ** 2
        moment = moment * (1 - 2 * pull) + kept + private
    return total / s["rounds"]


def test_fed_smp_contains_exact_iterates():
    draw = np.random.default_rng(3)
    for _ in range(150):
        d, n, tau = int(draw.integers(1, 12)), int(draw.integers(1, 20)), int(draw.integers(1, 6))
        k, r = int(draw.integers(1, d + 1)), int(draw.integers(1, n + 1))
        smooth = float(10 ** draw.uniform(-1, 1))
        a = draw.normal(size=(n, d)) * draw.choice([0.0, 1.0, 4.0])
        start = draw.normal(size=d) * 5
        largest = min(k / (24 * d), 1 / (4 * math.sqrt(6)), 1 / 12) / (tau * smooth)
        s = {
            "kept": k,
            "dimension": d,
            "cohort": r,
            "local_steps": tau,
            "rounds": int(draw.integers(1, 400)),
            "smoothness": smooth,
            "gap": 0.5 * smooth * float(((start - a.mean(axis=0)) ** 2).sum()),
            "gradient_variance": float(draw.choice([0.0, 1.0, 25.0])),
            "dissimilarity": 1.0,
            "heterogeneity": smooth**2 * float(a.var(axis=0).sum()),
            "step_size": largest * float(draw.choice([0.1, 0.5, 1.0])),
            "noise_multiplier": float(draw.choice([0.0, 1.0])),
            "clip_norm": float(draw.choice([0.1, 1.0])),
        }
        assert mean_gradient_of_rand_k(s, n, a, start) <= fed_smp_bound(SmpSetting(**s)).value


def top_k_descent(d, k, rounds, eta):
    """Return the mean squared gradient of steps on |x|^2 / 2 along its k largest coordinates."""
    x, total = np.ones(d), 0.0
    for _ in range(rounds):
        total += float(x @ x)
        kept = np.argsort(-np.abs(x), kind="stable")[:k]
        x[kept] *= 1 - eta
    return total / rounds


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


def test_top_k_needs_the_hypothesis_that_is_not_printed():
    """One of 100 coordinates: all printed hypotheses hold, the printed bound does not."""
    d, k, rounds = 100, 1, 1000
    phi = 1 - k / d
    eta = min(1 / (24 * (phi + 1)), 1 / (4 * math.sqrt(6)), 1 / 12)
    printed = 8 * (d / 2) / (rounds * eta)
    truth = top_k_descent(d, k, rounds, eta)
    assert truth > 4 * printed
    with pytest.raises(ParameterError, match="kept must be at least 67"):
        fed_smp_bound(SmpSetting(**quiet(d, k, rounds, eta)))


@pytest.mark.parametrize(("k", "rounds"), [(67, 50), (67, 1000), (80, 300), (100, 300)])
def test_top_k_within_its_hypotheses(k, rounds):
    eta = 1 / (24 * (2 - k / 100))
    bound = fed_smp_bound(SmpSetting(**quiet(100, k, rounds, eta)))
    assert top_k_descent(100, k, rounds, eta) <= bound.value


def without(setting, *names):
    return {key: value for key, value in setting.items() if key not in names}


CHOICE = without(SMP, "kept", "rounds", "gap")


@pytest.mark.parametrize("sparsifier", ["rand_k", "top_k"])
@pytest.mark.parametrize("noise", [0.0, 0.02, 0.1, 0.5, 3.0])
@pytest.mark.parametrize("free", ["clip_norm", "update_norm"])
def test_the_preferred_k_is_the_best_of_all_that_are_allowed(sparsifier, noise, free):
    choice = {**without(CHOICE, "clip_norm"), "noise_multiplier": noise, "sparsifier": sparsifier}
    choice[free] = 0.5
    values = {}
    for k in range(1, 101):
        clip = 0.5 * (100 / k if (free, sparsifier) == ("update_norm", "rand_k") else 1.0)
        setting = {**choice, free: 0.5, "clip_norm": clip}
        try:
            values[k] = fed_smp_bound(SmpSetting(**setting, kept=k, rounds=1, gap=0.0)).value
        except ParameterError:
            continue
    found = preferred_kept(SmpSetting(**choice))
    assert values[found] <= min(values.values()) * (1 + 1e-12)
    if (free, sparsifier) == ("update_norm", "rand_k"):
        assert found == 100


def test_more_noise_never_asks_for_more_coordinates():
    ks = [
        preferred_kept(SmpSetting(**{**CHOICE, "noise_multiplier": z}))
        for z in np.geomspace(0.01, 10, 30)
    ]
    assert ks == sorted(ks, reverse=True) and len(set(ks)) > 5


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kept": 101}, "kept must be at most"),
        ({"kept": 0}, "kept"),
        ({"step_size": 1.0}, "step_size must be at most"),
        ({"dissimilarity": 0.9}, "dissimilarity must be at least 1"),
        ({"heterogeneity": -1.0}, "heterogeneity"),
        ({"update_norm": 0.3}, "clip_norm must be at least 0.75"),
        ({"sparsifier": "best"}, "sparsifier"),
        ({"sparsifier": "top_k", "kept": 90, "gamma": 0.5}, "gamma"),
        ({"sparsifier": "top_k"}, "kept must be at least 68"),
        ({"gap": math.nan}, "gap"),
        ({"noise_multiplier": 1e160}, "noise_multiplier must be 0 or a number from 1e-50 to 1e"),
        ({"clip_norm": 1e-200}, "clip_norm must be a number from 1e-50 to 1e"),
        ({"step_size": 5e-324}, "step_size must be a number from"),
        ({"rounds": 1e308}, "rounds must be an integer of at most 1e15"),
    ],
)
def test_fed_smp_refuses(change, words):
    with pytest.raises(ParameterError, match=words):
        fed_smp_bound(SmpSetting(**{**SMP, **change}))


@pytest.mark.parametrize("given", [{}, {"clip_norm": 1.0, "update_norm": 1.0}])
def test_the_preferred_k_needs_one_norm(given):
    with pytest.raises(ParameterError, match="clip_norm"):
        preferred_kept(SmpSetting(**without(CHOICE, "clip_norm"), **given))


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
