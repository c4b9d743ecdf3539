"""Training with correlated noise: rows, participation, files and audits."""

import itertools
import json
import math
import os
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fedprivacy as fp
from fedprivacy import factors
from fedprivacy.errors import ParameterError, UnsupportedCombination
from tests.common import ROOT

torch = pytest.importorskip("torch")

from fedprivacy.systems.averaging.rows import NoiseFile, may_come, of_clients, taken  # noqa: E402
from fedprivacy.training import FederatedAveraging, logistic, train  # noqa: E402
from tests.common import two_classes  # noqa: E402

pytestmark = pytest.mark.usefixtures("narrowest")

CLIENTS = 12
DATA = two_classes(24, CLIENTS)


def noise_of(factor=None, **changed):
    given = {
        "noise_multiplier": 2.0,
        "rounds": 12,
        "participation": fp.MinimumSeparation(3),
        "unit": "client",
    }
    return fp.CorrelatedNoise(factor=factor or factors.BufferedToeplitz(2), **{**given, **changed})


def loop_of(noise=None, **changed):
    given = {"scheme": fp.FixedSize(3, population=CLIENTS), "local_steps": 1, "seed": 5}
    return FederatedAveraging(
        model=logistic(3, 2), perturbation=noise or noise_of(), **{**given, **changed}
    )


def ledger_of(path, noise=None, **changed):
    given = {"unit": "client", "adjacency": "zero_out", "seed_policy": "fixed"}
    return fp.Ledger.create(path, plan=noise, **{**given, **changed})


@pytest.mark.parametrize(
    "factor",
    [
        factors.BufferedToeplitz(2),
        factors.Banded(3),
        factors.Tree(),
        factors.BandedInverse(3),
        factors.SquareRootToeplitz(),
        factors.Identity(),
    ],
    ids=lambda f: type(f).__name__,
)
def test_a_run_is_accounted_as_one_gaussian(factor, tmp_path):
    noise = noise_of(factor)
    path = tmp_path / "run"
    with ledger_of(path, noise, observer="server", seed_policy="operating system") as ledger:
        done = train(loop_of(noise, seed=None), DATA, rounds=12, ledger=ledger)
        ledger.close()
    assert done.state.round == 12
    bound = fp.account(path, delta=1e-5)
    whole = fp.epsilon(noise, delta=1e-5, adjacency="zero_out", observer="server")
    assert bound.upper == pytest.approx(whole.upper, rel=1e-12)
    assert bound.lower == pytest.approx(whole.lower, rel=1e-9)
    assert fp.audit(path, claim=(whole.upper * 1.01, 1e-5)).verdict == "HOLDS"
    assert fp.audit(path, claim=(whole.lower * 0.99, 1e-5)).verdict == "FAILS"
    rows = [one.mechanism for one in fp.Ledger.open(path).rounds]
    assert [row.row for row in rows] == list(range(12))
    assert all(row.kept for row in rows)
    # At least 24 of 36 places go to clients with an earlier place; the rounds are random.
    apart = [row.separation for row in rows if row.separation is not None]
    assert apart and min(apart) >= 3


def test_what_is_released_is_the_sums_plus_the_rows():
    """With updates of zero length the models move only by C^-1 z; C recovers z."""
    noise = noise_of(factors.BufferedToeplitz(2), rounds=8)
    loop = loop_of(noise, learning_rate=1e-30, expected_cohort=1)
    states = [loop.init()]
    for _ in range(8):
        states.append(loop.step(states[-1], DATA)[0])
    moved = np.array(
        [(a.parameters - b.parameters).double().numpy() for a, b in itertools.pairwise(states)]
    )
    draws = noise.factor.matrix(8) @ moved / noise.full_noise_std
    assert abs(draws.std() - 1.0) < 5 / np.sqrt(2 * draws.size)
    correlation = np.corrcoef(draws)
    assert np.abs(correlation - np.eye(8)).max() < 6 / np.sqrt(draws.shape[1])


def test_nobody_comes_too_soon():
    noise = noise_of(participation=fp.MinimumSeparation(3, at_most=2))
    state = of_clients(loop_of(noise).init(), CLIENTS)
    state = taken(state, np.array([0, 1]), noise)
    later = type(state)(**{**vars(state), "round": 2})
    assert 0 not in may_come(later, noise)
    with pytest.raises(ParameterError, match="drawn in round 0"):
        taken(later, np.array([0, 5]), noise)
    third = taken(type(state)(**{**vars(state), "round": 3}), np.array([0]), noise)
    last = type(state)(**{**vars(third), "round": 9})
    assert set(may_come(last, noise)) == set(range(1, CLIENTS))
    epochs = noise_of(participation=fp.FixedEpochs(3))
    one = taken(of_clients(loop_of(epochs).init(), CLIENTS), np.array([4]), epochs)
    assert [4 in may_come(type(one)(**{**vars(one), "round": r}), epochs) for r in (3, 4, 6)] == [
        True,
        False,
        True,
    ]


def test_too_few_that_may_come_is_refused(tmp_path):
    noise = noise_of(participation=fp.MinimumSeparation(6))
    loop = loop_of(noise)
    state = loop.init()
    for _ in range(4):
        state, _ = loop.step(state, DATA)
    with pytest.raises(ParameterError, match="be at most 0, the number of clients that may"):
        loop.step(state, DATA)


def test_rounds_beyond_the_factor_are_refused(tmp_path):
    with pytest.raises(ParameterError, match="the number of rows of the factor"):
        train(loop_of(noise_of(rounds=2)), DATA, rounds=3)


@pytest.mark.parametrize("scheme", [fp.Poisson(0.3), fp.Everyone()])
def test_other_draws(scheme):
    noise = noise_of(participation=fp.MinimumSeparation(1 if scheme == fp.Everyone() else 3))
    done = train(loop_of(noise, scheme=scheme, expected_cohort=3), DATA, rounds=5)
    assert len(done.history) == 5


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"scheme": fp.WithReplacement(3, population=CLIENTS)}, "at most once"),
        ({"server_momentum": 1.0}, r"\[0, 1\)"),
        ({"server_rates": (0.0,)}, "above 0"),
    ],
)
def test_bad_loops(changed, words):
    with pytest.raises(ParameterError, match=words):
        loop_of(**changed)


def test_the_memory_is_secret_and_on_disk_before_the_release(tmp_path):
    noise, path = noise_of(), tmp_path / "run"
    with ledger_of(path, noise) as ledger:
        loop, file = loop_of(noise), NoiseFile(ledger)
        state = loop.init()
        seen = []

        def on_release(after):
            held = file.read(after)
            seen.append((held.round, torch.equal(held.memory, after.memory)))

        for _ in range(3):
            state, _ = loop.step(state, DATA, ledger=ledger, on_release=on_release)
        assert seen == [(1, True), (2, True), (3, True)]
        assert stat.S_IMODE(os.stat(file.path).st_mode) == 0o600


def test_a_row_that_may_have_been_released_is_never_released_again(tmp_path):
    noise, path = noise_of(), tmp_path / "run"
    loop = loop_of(noise)
    with ledger_of(path, noise) as ledger:
        state, _ = loop.step(loop.init(), DATA, ledger=ledger)
        released = []

        def crash(after):
            released.append(after)
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            loop.step(state, DATA, ledger=ledger, on_release=crash)
    with fp.Ledger.open(path, resume=True) as ledger:
        caught, info = loop.step(state, DATA, ledger=ledger)
        assert info.aborted and caught.round == 2
        assert torch.equal(caught.memory, released[0].memory)
        assert torch.equal(caught.parameters, state.parameters)
        assert torch.equal(caught.last, released[0].last)
        after, info = loop.step(caught, DATA, ledger=ledger)
        assert not info.aborted and after.round == 3
    rows = [one.mechanism.row for one in fp.Ledger.open(path).rounds]
    assert rows == [0, 1, 2]
    whole = fp.epsilon(noise, delta=1e-5, adjacency="zero_out").upper
    bound = fp.account(path, delta=1e-5)
    assert bound.upper == pytest.approx(whole, rel=1e-12)
    first = fp.epsilon(noise.leading(1), delta=1e-5, adjacency="zero_out")
    assert bound.lower == pytest.approx(first.lower, rel=1e-9)


def test_a_crash_before_the_release_skips_the_row(tmp_path):
    noise, path = noise_of(), tmp_path / "run"
    loop = loop_of(noise)

    def fails(cohort):
        raise RuntimeError

    with ledger_of(path, noise) as ledger:
        start = loop.init()
        with pytest.raises(RuntimeError):
            loop.step(start, DATA, ledger=ledger, dropout=fails)
        caught, info = loop.step(start, DATA, ledger=ledger)
        assert info.aborted and caught.round == 1
        assert (caught.last == -1).all()
        after, _ = loop.step(caught, DATA, ledger=ledger)
        assert after.round == 2
        NoiseFile(ledger).path.unlink()
        with pytest.raises(ParameterError, match="noise file must exist"):
            loop.step(caught, DATA, ledger=ledger)


def test_a_foreign_or_broken_noise_file_is_refused(tmp_path):
    noise = noise_of()
    loop = loop_of(noise)
    ledgers = [ledger_of(tmp_path / name, noise) for name in ("one", "two")]
    states = [loop.step(loop.init(), DATA, ledger=ledger)[0] for ledger in ledgers]
    files = [NoiseFile(ledger) for ledger in ledgers]
    files[0].path.write_bytes(files[1].path.read_bytes())
    with pytest.raises(ParameterError, match="this ledger"):
        files[0].read(states[0])
    files[0].path.write_bytes(b"nothing")
    with pytest.raises(ParameterError, match="readable"):
        files[0].read(states[0])
    for ledger in ledgers:
        ledger.release()


@pytest.mark.parametrize("content", [None, b"nothing"], ids=["another run's", "damaged"])
def test_another_run_s_noise_file_is_not_overwritten(tmp_path, content):
    noise, path = noise_of(), tmp_path / "run"
    with ledger_of(path, noise) as ledger:
        loop_of(noise).step(loop_of(noise).init(), DATA, ledger=ledger)
        file = NoiseFile(ledger).path
    path.unlink()
    content = content or file.read_bytes()
    file.write_bytes(content)
    with ledger_of(path, noise) as ledger:
        with pytest.raises(ParameterError, match=r"noise file must .*another"):
            loop_of(noise).step(loop_of(noise).init(), DATA, ledger=ledger)
        assert file.read_bytes() == content and not ledger.rounds
        file.unlink()
        loop_of(noise).step(loop_of(noise).init(), DATA, ledger=ledger)
        # The same ledger's file is its own, another noise in it or not.
        other = noise_of(noise_multiplier=1.0)
        loop_of(other).step(loop_of(other).init(), DATA, ledger=ledger)
        assert len(ledger.rounds) == 2


def test_another_run_s_memory_is_no_noise_of_this_one(tmp_path):
    """Rows of one run continued with the noise of the other, so two releases shared it."""
    ours, other = loop_of(noise_of()), loop_of(noise_of(noise_multiplier=1.0))
    with ledger_of(tmp_path / "run", noise_of()) as ledger:
        state, theirs = ours.init(), other.init()
        for _ in range(2):
            state, _ = ours.step(state, DATA, ledger=ledger)
        # Released, and not kept.
        ours.step(state, DATA, ledger=ledger)
        for _ in range(3):
            theirs, _ = other.step(theirs, DATA, ledger=ledger)
        with pytest.raises(ParameterError, match=r"noise file must contain the noise of this run"):
            ours.step(state, DATA, ledger=ledger)
        assert not other.step(theirs, DATA, ledger=ledger)[1].aborted
        assert len(ledger.rounds) == 7


def test_a_budget_without_a_ledger_is_refused():
    """It let every row but the first out again and again, at no price."""
    loop = loop_of(noise_of())
    budget = fp.Budget(1e3, 1e-5, adjacency="zero_out")
    with pytest.raises(ParameterError, match="ledger must be given with a budget"):
        loop.step(loop.init(), DATA, budget=budget)
    assert budget.spent() is None


def test_an_older_noise_file_is_not_gone_on_with(tmp_path):
    noise, path, place = noise_of(), tmp_path / "run", tmp_path / "state"
    with ledger_of(path, noise) as ledger:
        train(loop_of(noise), DATA, rounds=2, ledger=ledger, checkpoint=place)
        files = {file: file.read_bytes() for file in (NoiseFile(ledger).path, place)}
        train(loop_of(noise), DATA, rounds=5, ledger=ledger, checkpoint=place)
        for file, content in files.items():
            file.write_bytes(content)
        with pytest.raises(ParameterError, match="up to the released row 4, not 1"):
            train(loop_of(noise), DATA, rounds=8, ledger=ledger, checkpoint=place)
        assert len(ledger.rounds) == 5


@pytest.mark.parametrize(
    "changed",
    [
        {"noise_multiplier": 1.0},
        {"rounds": 20},
        {"participation": fp.MinimumSeparation(2)},
        {"factor": factors.BufferedToeplitz(2, scales=(0.3, 0.2), decays=(0.5, 0.2))},
    ],
)
def test_no_row_is_made_of_another_noise_s_memory(tmp_path, changed):
    noise, path, place = noise_of(), tmp_path / "run", tmp_path / "state"
    with ledger_of(path, noise) as ledger:
        train(loop_of(noise), DATA, rounds=4, ledger=ledger, checkpoint=place)
        with pytest.raises(ParameterError, match="be the noise of the 4 rows of the state"):
            train(loop_of(noise_of(**changed)), DATA, rounds=8, ledger=ledger, checkpoint=place)
        assert len(ledger.rounds) == 4


@pytest.mark.parametrize(
    "factor",
    [
        factors.BufferedToeplitz(2),
        factors.Banded(3, weights=(1.0, 0.5, -0.25)),
        factors.Tree(),
        factors.BandedInverse(3),
        factors.Identity(),
    ],
    ids=lambda f: type(f).__name__,
)
def test_a_checkpoint_goes_on(factor, tmp_path):
    noise, path = noise_of(factor), tmp_path / "run"
    with ledger_of(path, noise) as ledger:
        train(loop_of(noise), DATA, rounds=5, ledger=ledger, checkpoint=tmp_path / "state")
    with fp.Ledger.open(path, resume=True) as ledger:
        done = train(loop_of(noise), DATA, rounds=9, ledger=ledger, checkpoint=tmp_path / "state")
    straight = train(loop_of(noise), DATA, rounds=9)
    assert torch.equal(done.state.parameters, straight.state.parameters)


def test_add_remove_is_refused_before_anything_is_spent(tmp_path):
    noise, path = noise_of(), tmp_path / "run"
    with ledger_of(path, noise, adjacency="add_remove") as ledger:
        loop = loop_of(noise, expected_cohort=3)
        with pytest.raises(UnsupportedCombination, match="the removal of a unit moves others to"):
            loop.step(loop.init(), DATA, ledger=ledger)
        assert ledger.rounds == ()


class Lottery(fp.FixedSize):
    """A scheme of somebody else's, which needs no place in any list."""

    def among_free(self, free):
        return Lottery(self.size, population=free)


class Twice(Lottery):
    def among_free(self, free):
        return Twice(self.size, population=free)

    def draw(self, population, generator):
        return np.zeros(2, dtype=np.int64)


def test_a_scheme_of_your_own_draws_from_those_that_may_come():
    clients = len(DATA.clients)
    loop = loop_of(scheme=Lottery(2, population=clients))
    state, info = loop.step(loop.init(), DATA)
    assert info.cohort == 2 and int(state.times.sum()) == 2
    with pytest.raises(ParameterError, match="at most once"):
        loop = loop_of(scheme=Twice(2, population=clients))
        loop.step(loop.init(), DATA)
    with pytest.raises(ParameterError, match="among_free"):
        loop_of(scheme=fp.WithReplacement(2, population=clients))


def rows_recorded(path, noise, rows, **given):
    with ledger_of(path, noise) as ledger:
        for row in rows:
            number = ledger.intent(row, clip_norm=1.0, noise_std=given.get("std", 2.0))
            ledger.done(number, cohort=3, arrived=3, refused=0, noise_std=given.get("std", 2.0))
    return path


def test_an_audit_prices_who_may_have_taken_part(tmp_path):
    noise = noise_of()
    ask = {"delta": 1e-5, "adjacency": "zero_out"}
    early = [noise.row(0), noise.row(1, separation=1, participations=2)]
    path = rows_recorded(tmp_path / "early", noise, early)
    worse = noise.with_gaps(1, 4)
    assert fp.account(path, delta=1e-5).upper == pytest.approx(fp.epsilon(worse, **ask).upper)
    often = [noise.row(0), noise.row(9, separation=3, participations=7)]
    path = rows_recorded(tmp_path / "often", noise, often)
    more = noise.with_gaps(3, 7)
    assert fp.account(path, delta=1e-5).upper == pytest.approx(fp.epsilon(more, **ask).upper)
    late = rows_recorded(tmp_path / "late", noise, [noise.row(4)])
    assert fp.account(late, delta=1e-5).upper == pytest.approx(fp.epsilon(noise, **ask).upper)
    banded = noise_of(factors.Banded(3))
    path = rows_recorded(tmp_path / "bands", banded, [banded.row(1, separation=2)])
    with pytest.raises(UnsupportedCombination, match="sooner"):
        fp.account(path, delta=1e-5)


def test_rows_with_less_noise_refute_the_claim_that_the_plan_keeps(tmp_path):
    """The certain part gives a lower end: the leading rows, with their largest noise."""
    noise = noise_of()
    rows = [noise.row(i) for i in range(noise.rounds)]
    ask = {"delta": 1e-5, "adjacency": "zero_out"}
    planned, half = fp.epsilon(noise, **ask), fp.epsilon(noise.rescaled(0.5), **ask)
    own = noise.full_noise_std
    path = rows_recorded(tmp_path / "half", noise, rows, std=0.5 * own)
    found = fp.audit(path, claim=(1.01 * planned.upper, 1e-5))
    assert found.verdict is fp.Verdict.FAILS
    assert found.bound.lower == pytest.approx(half.lower) and found.bound.lower > planned.upper
    with ledger_of(tmp_path / "one", noise) as ledger:
        for row, share in zip(rows, [0.5] + [1.0] * len(rows), strict=False):
            number = ledger.intent(row, clip_norm=1.0, noise_std=own)
            ledger.done(number, cohort=3, arrived=3, refused=0, noise_std=share * own)
    mixed = fp.account(tmp_path / "one", delta=1e-5)
    # By hand: the first row counts twice; the worst pattern is among all.
    column = noise.factor.matrix(12) * np.array([2.0] + [1.0] * 11)[:, None]
    largest = max(
        np.linalg.norm(column[:, list(rounds)].sum(axis=1))
        for times in range(1, 5)
        for rounds in itertools.combinations(range(12), times)
        if min(np.diff(rounds), default=3) >= 3
    )
    gaussian = fp.Gaussian(noise_multiplier=noise.noise_multiplier / largest)
    truth = fp.epsilon(gaussian, delta=1e-5, adjacency="zero_out").upper
    assert planned.upper < mixed.lower <= truth <= mixed.upper < half.upper
    assert mixed.lower > 0.99 * truth
    found = fp.audit(tmp_path / "one", claim=(1.01 * planned.upper, 1e-5))
    assert found.verdict is fp.Verdict.FAILS


def test_an_audit_finds_a_row_twice(tmp_path):
    noise = noise_of()
    path = rows_recorded(tmp_path / "twice", noise, [noise.row(0), noise.row(1), noise.row(1)])
    found = fp.audit(path, claim=(100.0, 1e-5))
    assert found.verdict == "CANNOT BE CERTIFIED"
    assert "released before" in str(found)


def test_less_noise_is_priced(tmp_path):
    noise = noise_of()
    half = fp.epsilon(noise.rescaled(0.5), delta=1e-5, adjacency="zero_out").upper
    rows = [noise.row(row) for row in range(12)]
    path = rows_recorded(tmp_path / "less", noise, rows, std=1.0)
    assert fp.account(path, delta=1e-5).upper == pytest.approx(half)
    # Future rows have the planned noise.
    path = rows_recorded(tmp_path / "begun", noise, rows[:2], std=1.0)
    planned = fp.epsilon(noise, delta=1e-5, adjacency="zero_out").upper
    assert planned < fp.account(path, delta=1e-5).upper < half


def test_a_budget_stops_the_run_at_its_first_row(tmp_path):
    noise = noise_of()
    budget = fp.Budget(0.1, 1e-5, adjacency="zero_out")
    whole = fp.epsilon(noise, delta=1e-5, adjacency="zero_out").upper
    enough = fp.Budget(whole * 1.001, 1e-5, adjacency="zero_out")
    with ledger_of(tmp_path / "run", noise) as ledger:
        with pytest.raises(fp.errors.BudgetExhausted):
            train(loop_of(noise), DATA, rounds=2, ledger=ledger, budget=budget)
        run = train(loop_of(noise), DATA, rounds=12, ledger=ledger, budget=enough)
    assert run.state.round == 12


def killed(folder, kills, seed, *blocks):
    """Return what the ledger says and what the observer saw, after so many kills."""
    script = ROOT / "tests" / "contract" / "killed_rows.py"
    command = [sys.executable, str(script), str(folder), *map(str, (kills, seed, *blocks))]
    env = os.environ | {"PYTHONPATH": str(Path(fp.__file__).parent.parent)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=1700, env=env)
    assert done.returncode == 0, done.stderr
    releases = [json.loads(line) for line in (folder / "releases").read_text().splitlines()]
    return json.loads(done.stdout), releases


def check_killed(told, releases, block=10**9, kept=42):
    """No row twice, every release in the ledger, and C takes the releases apart into fresh draws.

    C has two bands: z_i = e_i + 0.8 e_{i-1} within a block, whose rows are about the same
    coordinates, and an audit says which. Where a run was killed between i - 1 and i, a memory
    that was lost would leave z_i with 1.64 + times the variance. Sums of n squares are off by 6
    sigma once in 10^9 times.
    """
    rows = [one["row"] for one in releases]
    assert rows == sorted(set(rows))
    assert set(rows) <= set(told["rows"])
    assert told["rows"] == sorted(set(told["rows"]))
    # The last round may be under way, and some were: no more is open than that.
    assert told["kept"] and told["verdict"] != "FAILS" and "mask" not in told["reasons"]
    seams, inside, masks = [], [], {}
    for one in releases:
        # A coordinate of the mask that moved by exactly 0 has no probability worth a number.
        mask = masks.setdefault(one["row"] // block, tuple(np.nonzero(one["release"])[0]))
        assert tuple(np.nonzero(one["release"])[0]) == mask and len(mask) == kept
    for one, other in itertools.pairwise(releases):
        if other["row"] == one["row"] + 1 and other["row"] % block:
            draws = np.array(other["release"]) + 0.8 * np.array(one["release"])
            draws = draws[list(masks[other["row"] // block])]
            (inside if other["by"] == one["by"] else seams).append(draws)
    first = [one["release"] for one in releases if block < 100 and not one["row"] % block]
    draws = np.array(first)[np.array(first) != 0.0]
    assert abs(draws.var() - 1.0) < 6 * math.sqrt(2 / draws.size) if first else block > 100
    assert block > 100 or len(set(masks.values())) > 0.9 * len(masks)
    for draws in (np.concatenate(seams), np.concatenate(inside)):
        assert abs(draws.var() - 1.0) < 6 * math.sqrt(2 / draws.size)
    return len(seams), len(inside)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_three_hundred_kills(tmp_path):
    seams, inside = check_killed(*killed(tmp_path, 300, 2))
    assert seams > 30
    assert inside > 100


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_kills_within_blocks_of_one_mask(tmp_path):
    seams, inside = check_killed(*killed(tmp_path, 100, 3, 5, 10), block=5, kept=10)
    assert seams > 5
    assert inside > 20


def test_a_report_tells_of_the_rows(tmp_path):
    noise, path = noise_of(), tmp_path / "run"
    with ledger_of(path, noise, seed_policy="operating system") as ledger:
        train(loop_of(noise, seed=None), DATA, rounds=3, ledger=ledger)
        ledger.close()
    page = tmp_path / "report.html"
    fp.report(fp.audit(path, claim=(100.0, 1e-5)), page)
    assert "DP-FTRL: " in page.read_text()
