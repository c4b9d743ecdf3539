"""Correlated noise: certified sensitivities, the Gaussian pair of a whole run, and the draws."""

import math

import numpy as np
import pytest

import fedprivacy as fp
from fedprivacy import factors
from fedprivacy.accountants import ACCOUNTANTS
from fedprivacy.errors import ParameterError, UnsupportedCombination
from fedprivacy.integrations.dp_accounting import CertifiedAccountant, relation_of, to_event
from fedprivacy.loss import Gdp
from fedprivacy.mechanisms import CorrelatedRow
from fedprivacy.registry import decode, encode

RNG = np.random.default_rng(21)


def lower_triangular(size, signs):
    found = np.tril(RNG.normal(size=(size, size)))
    found = found if signs else np.abs(found)
    found[np.diag_indices(size)] = 1.0 + RNG.random(size)
    return found


def factors_of(rounds, separation):
    bands = min(3, separation)
    yield factors.Identity()
    yield factors.SquareRootToeplitz()
    yield factors.Banded(bands)
    yield factors.Banded(bands, weights=(1.0, -0.7, 0.4)[:bands])
    yield factors.BandedInverse(3)
    yield factors.BufferedToeplitz(2)
    yield factors.Tree()
    yield factors.Tree(online=False)
    yield factors.Matrix(lower_triangular(rounds, signs=False))
    yield factors.Matrix(lower_triangular(rounds, signs=True))
    yield factors.Restarted(factors.BufferedToeplitz(2), min(5, rounds))
    yield factors.Restarted(factors.Tree(), min(4, rounds))


@pytest.mark.parametrize("factor", list(factors_of(13, 3)), ids=lambda f: type(f).__name__)
def test_the_noise_undoes_the_factor(factor):
    """B C is the identity: the addition to the sums is a function of C x + z."""
    noise, matrix = factor.noise_matrix(13), factor.matrix(13)
    np.testing.assert_allclose(noise @ matrix, np.eye(13), atol=1e-10)
    assert np.allclose(np.triu(noise[:, :13], 1) if noise.shape[1] == 13 else 0.0, 0.0)


def noise_of(factor, **changed):
    given = {"noise_multiplier": 2.0, "rounds": 32, "participation": fp.MinimumSeparation(8)}
    return fp.CorrelatedNoise(factor=factor, **{**given, **changed})


@pytest.mark.parametrize("factor", list(factors_of(32, 8)), ids=lambda f: type(f).__name__)
def test_the_loss_is_one_gaussian(factor):
    run = noise_of(factor, unit="client")
    lower, upper = run.sensitivity
    assert lower <= upper
    for adjacency, moves in (("zero_out", 1.0), ("replace_one", 2.0)):
        for observer in ("aggregate", "server", "final"):
            loss = run.privacy_loss(adjacency, observer)
            assert loss.curve == Gdp(moves * upper / 2.0)
            if observer != "final":
                assert loss.witness.curve == Gdp(moves * lower / 2.0)
        with pytest.raises(UnsupportedCombination, match="the removal of a unit moves others to"):
            run.privacy_loss("add_remove")
    apart = noise_of(factor, participation=fp.MinimumSeparation(8, apart=True))
    assert apart.privacy_loss("add_remove").curve == Gdp(upper / 2.0)


def test_every_question_is_answered():
    run = noise_of(factors.BufferedToeplitz(3), noise_multiplier=8.0, unit="client")
    plain = fp.Gaussian(noise_multiplier=8.0 / run.sensitivity.upper)
    for accountant in ACCOUNTANTS:
        mine, its = (
            fp.epsilon(one, delta=1e-5, adjacency="zero_out", accountant=accountant)
            for one in (run, plain)
        )
        assert mine.upper == pytest.approx(its.upper, rel=1e-12)
    bound = fp.epsilon(run, delta=1e-5, adjacency="zero_out")
    assert bound.lower <= bound.upper <= bound.lower * (1 + 1e-3)
    assert fp.audit(run, claim=(1.1 * bound.upper, 1e-5), adjacency="zero_out").verdict == "HOLDS"
    assert fp.audit(run, claim=(0.9 * bound.lower, 1e-5), adjacency="zero_out").verdict == "FAILS"
    both = fp.Parallel((run, run))
    assert fp.epsilon(both, delta=1e-5, adjacency="zero_out").upper >= bound.lower
    assert fp.delta(run, epsilon=bound.upper, adjacency="zero_out").upper <= 1e-5 * (1 + 1e-9)
    assert fp.attack_risk(run, adjacency="zero_out").advantage.upper > 0
    twice = fp.epsilon(run * 2, delta=1e-5, adjacency="zero_out")
    assert twice.upper > bound.upper


@pytest.mark.parametrize("factor", list(factors_of(32, 8)), ids=lambda f: type(f).__name__)
def test_records_and_events_know_it(factor, tmp_path):
    run = noise_of(factor, unit="client", clip_norm=0.5)
    assert decode(encode(run, fp.ledger.REGISTRY), fp.ledger.REGISTRY) == run
    path = tmp_path / "run.jsonl"
    with fp.Ledger.create(path, unit="client", adjacency="zero_out", plan=run) as ledger:
        for row in range(3):
            number = ledger.intent(run.row(row), clip_norm=0.5, noise_std=1.0)
            ledger.done(number, cohort=4, arrived=4, refused=0, noise_std=1.0)
    again = fp.Ledger.open(path)
    assert again.plan == run
    assert [one.mechanism for one in again.rounds] == [run.row(i) for i in range(3)]
    whole = fp.epsilon(run, delta=1e-5, adjacency="zero_out").upper
    assert fp.account(path, delta=1e-5).upper == pytest.approx(whole, rel=1e-12)
    peer = CertifiedAccountant(relation_of("zero_out"))
    peer.compose(to_event(run, adjacency="zero_out"))
    assert peer.get_epsilon(1e-5) == pytest.approx(whole, rel=1e-9)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: noise_of(factors.Banded(9)), "at most the separation 8"),
        (lambda: noise_of(factors.Matrix(np.eye(31))), "equal the size of the matrix, 31"),
        (lambda: factors.Matrix([[1.0, 0.0], [1.0, 0.0]]), "needs the inverse"),
        (lambda: factors.Matrix([[1.0, 2.0], [1.0, 1.0]]), "lower triangular"),
        (lambda: factors.Matrix([[1.0], [1.0]]), r"shape \(n, n\)"),
        (lambda: factors.Matrix([[math.nan]]), "finite"),
        (lambda: factors.Banded(2, weights=(0.0, 1.0)), "inverse"),
        (lambda: factors.BufferedToeplitz(1, scales=(-0.1,), decays=(0.5,)), "above 0"),
        (lambda: factors.BufferedToeplitz(1, scales=(0.1,), decays=(1.0,)), "below 1"),
        (lambda: factors.BufferedToeplitz(1, scales=(0.1,)), "together"),
        (lambda: factors.SquareRootToeplitz().matrix(100_000), "80 GB"),
        (lambda: factors.Tree(online=1), "True or False"),
        (lambda: noise_of(factors.Tree(), rounds=0), "at least 1"),
        (lambda: noise_of(factors.Tree(), noise_multiplier=0.0), "above 0"),
        (lambda: noise_of(factors.Banded(2, weights=(1e-200, 0.0))), "from 1e-50 to 1e"),
        (lambda: factors.Matrix(1e200 * np.eye(3)), "at most 1e"),
        (lambda: factors.Banded(1, weights=(1e200,)), "at most 1e"),
        (lambda: noise_of(factors.Identity(), rounds=10**12), "8e"),
        (lambda: factors.BufferedToeplitz(65), "at most 64"),
        (lambda: noise_of(factors.Restarted(factors.Tree(), 33)), "at most rounds = 32"),
        (
            lambda: factors.Restarted(factors.Restarted(factors.Tree(), 2), 4),
            "a factor of fedprivacy.factors that is not Restarted",
        ),
        (lambda: factors.Restarted(factors.Tree(), 0), "at least 1"),
        (lambda: noise_of("tree"), "be a factor of fedprivacy.factors"),
        (lambda: noise_of(factors.Tree(), participation=8), "rule of participation"),
        (lambda: fp.MinimumSeparation(0), "at least 1"),
        (lambda: fp.FixedEpochs(3, at_most=0), "at least 1"),
        (lambda: noise_of(factors.Tree()).row(32), "the number of rows of the factor"),
        (lambda: noise_of(factors.Tree()).contribution(np.ones(3), mask=[1]), "same coordinates"),
    ],
)
def test_bad_input_says_why(build, words):
    with pytest.raises(ParameterError, match=words):
        build()


def drawn(run, dimension, seed=5):
    memory, rows = run.begin(np.zeros(dimension)), []
    generator = np.random.default_rng(seed)
    for _ in range(run.rounds):
        row, memory = run.stream.draw(memory, generator)
        rows.append(row)
    return np.array(rows), memory


@pytest.mark.parametrize("factor", list(factors_of(12, 8)), ids=lambda f: type(f).__name__)
def test_what_is_drawn_has_the_law_of_the_factor(factor):
    """Every entry of a sample covariance of 20 000 lies within 6 of its standard errors."""
    run = noise_of(factor, rounds=12, clip_norm=0.5)
    rows, memory = drawn(run, 20_000)
    assert (rows / run.grid == np.rint(rows / run.grid)).all()
    assert memory.row == 12
    inverse = factor.noise_matrix(12)
    wanted = inverse @ inverse.T * run.full_noise_std**2
    found = rows @ rows.T / rows.shape[1]
    error = np.sqrt((wanted**2 + np.outer(np.diag(wanted), np.diag(wanted))) / rows.shape[1])
    assert np.max(np.abs(found - wanted) / error) < 6.0
    with pytest.raises(ParameterError, match="the number of rows of the factor"):
        run.stream.draw(memory)


def test_tensors_draw_what_arrays_draw():
    torch = pytest.importorskip("torch")
    for factor in factors_of(12, 8):
        run = noise_of(factor, rounds=12)
        rows, _ = drawn(run, 50)
        memory, generator = run.begin(torch.zeros(50)), np.random.default_rng(5)
        for row in rows:
            mine, memory = run.stream.draw(memory, generator)
            np.testing.assert_allclose(mine.numpy(), row, atol=2 * run.grid)


@pytest.mark.parametrize("parameter", ["noise", "bands", "separation", "buffers"])
def test_every_parameter_is_calibrated(parameter):
    def run(value):
        given = {"noise": 3.0, "bands": 8, "separation": 64, "buffers": 4}
        given[parameter] = value
        return fp.CorrelatedNoise(
            factor=factors.BufferedToeplitz(given["buffers"])
            if parameter in ("buffers", "separation")
            else factors.Banded(given["bands"]),
            noise_multiplier=given["noise"],
            rounds=256,
            participation=fp.MinimumSeparation(given["separation"]),
        )

    domain = {"noise": None, "bands": (1, 64), "separation": (1, 256), "buffers": (1, 12)}
    target = fp.epsilon(
        run({"noise": 3.0, "bands": 8, "separation": 64, "buffers": 4}[parameter]),
        delta=1e-5,
        adjacency="zero_out",
    ).upper
    found = fp.calibrate(
        run,
        epsilon=target * 1.001,
        delta=1e-5,
        adjacency="zero_out",
        integer=parameter != "noise",
        domain=domain[parameter],
    )
    assert found.bound.upper <= target * 1.001


def test_a_row_is_priced_as_the_whole_run():
    run = noise_of(factors.Tree(), unit="client")
    for number in (0, 5):
        assert run.row(number).privacy_loss("zero_out").curve == run.privacy_loss("zero_out").curve
    assert run.row(5).rescaled(0.5).privacy_loss("zero_out").curve == Gdp(run.sensitivity.upper)
    assert isinstance(run.row(5), CorrelatedRow)


def test_draws_of_correlated_noise_take_the_best_curve_for_each_delta():
    """One dimension has 0.398 at 1e-15."""
    run = fp.CorrelatedNoise(
        noise_multiplier=32.0,
        factor=factors.SquareRootToeplitz(),
        rounds=64,
        participation=fp.FixedEpochs(1),
    ).sampled(fp.Poisson(1 / 64))
    line, rows = (
        fp.epsilon(run, delta=delta, adjacency="zero_out").upper for delta in (1e-15, 1e-5)
    )
    assert 0.194 < line < 0.21 and rows < 0.083
