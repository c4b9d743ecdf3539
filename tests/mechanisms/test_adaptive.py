"""A clip norm that follows a quantile: the law of its sums, its cost, and its ledgers."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedprivacy as fp
from fedprivacy.errors import ParameterError

torch = pytest.importorskip("torch")

from fedprivacy.training import FederatedAveraging, logistic, train  # noqa: E402
from tests.common import two_classes  # noqa: E402

CLIENTS, DELTA = 20, 1e-5
PUBLIC = {"adjacency": "zero_out", "delta": DELTA}
DATA = two_classes(60, CLIENTS)


def clipping(**changed):
    chosen = {"noise_multiplier": 1.0, "clip_norm": 0.1, "bits_share": 0.04, "unit": "client"}
    return fp.AdaptiveClipping(**{**chosen, **changed})


def loop_of(noise=None, **changed):
    chosen = {"scheme": fp.FixedSize(8, population=CLIENTS), "local_steps": 2, "seed": 5}
    return FederatedAveraging(
        model=logistic(3, 2), perturbation=noise or clipping(), **{**chosen, **changed}
    )


def ledger_of(path, **changed):
    chosen = {"unit": "client", "adjacency": "zero_out", "seed_policy": "fixed"}
    return fp.Ledger.create(path, **{**chosen, **changed})


# ---- the law of the two sums


@settings(max_examples=60, deadline=None)
@given(
    clip_norm=st.floats(1e-6, 1e6),
    multiplier=st.floats(1e-3, 1e3),
    share=st.floats(1e-6, 0.5),
    length=st.floats(1e-6, 3.0),
    seed=st.integers(0, 2**32),
    single=st.booleans(),
)
def test_no_contribution_is_longer_than_the_clip_norm(
    clip_norm, multiplier, share, length, seed, single
):
    own = clipping(clip_norm=clip_norm, noise_multiplier=multiplier, bits_share=share)
    check_contribution(own, length, seed, single)


@pytest.mark.parametrize("length", [0.5, 1.0, 2.0])
def test_no_long_contribution_is_longer_either(length):
    check_contribution(clipping(), length, 0, single=True, numbers=150_000)


def check_contribution(own, length, seed, single, numbers=7):
    way = np.random.default_rng(seed).normal(size=numbers)
    update = way / np.linalg.norm(way) * length * own.clip_norm
    given_ = torch.from_numpy(update).float() if single else update
    part = np.asarray(own.contribution(given_), dtype=np.float64)
    points = part / own.grid
    assert np.array_equal(points, np.round(points))
    # Exactly: integers have no rounding.
    assert sum(int(p) ** 2 for p in points) <= (own.clip_norm / own.grid) ** 2
    if length > 1.001:
        assert part[-1] == -own.bit
    elif length < 0.7:
        assert part[-1] == own.bit
    assert own.bit == pytest.approx(own.clip_norm * math.sqrt(own.bits_share), rel=0.01)


def test_who_contributes_nothing_has_no_bit():
    assert not clipping().contribution(np.zeros(4)).any()
    assert not clipping().contribution(torch.zeros(4)).any()


@pytest.mark.parametrize("adjacency", ["add_remove", "zero_out", "replace_one"])
def test_it_costs_what_its_two_sums_cost_together(adjacency):
    own = clipping(noise_multiplier=0.8, bits_share=0.1)
    moves = 2.0 if adjacency == "replace_one" else 1.0
    # Bits of +-1/2 move their sum by 1/2, by 1 where one is replaced.
    sums = fp.GaussianDp(mu=moves / own.update_multiplier, adjacency=adjacency) + fp.GaussianDp(
        mu=0.5 * moves / own.bits_std, adjacency=adjacency
    )
    both = fp.epsilon(sums, delta=DELTA, adjacency=adjacency)
    one = fp.epsilon(own, delta=DELTA, adjacency=adjacency)
    assert one.upper == pytest.approx(both.upper, rel=1e-3)
    z = (own.update_multiplier**-2 + (2 * own.bits_std) ** -2) ** -0.5
    assert z == pytest.approx(0.8, rel=1e-9)
    plain = fp.Gaussian(noise_multiplier=0.8).sampled(fp.Poisson(0.1)) * 50
    ours = own.sampled(fp.Poisson(0.1)) * 50
    asked = {"delta": DELTA, "adjacency": adjacency}
    assert fp.epsilon(ours, **asked).upper == fp.epsilon(plain, **asked).upper


def test_it_conforms():
    found = fp.verify(clipping(), pairs=60, draws=60, generator=np.random.default_rng(1))
    assert found.passed, str(found)


class ZeroOrOne(fp.AdaptiveClipping):
    """Bits of 0 and 1, as one would write them first."""

    def contribution(self, update, mask=None):
        part = super().contribution(update, mask)
        part[-1] = 2.0 * self.bit * (part[-1] > 0)
        return part


class QuietBits(fp.AdaptiveClipping):
    """Half of the noise on the bits, not stated."""

    def noise(self, like, generator=None, *, shares=None):
        noise, std = super().noise(like, generator, shares=shares)
        noise[-1] *= 0.5
        return noise, std

    def release(self, value, generator=None):
        return value + self.noise(value, generator)[0]


@pytest.mark.parametrize(
    ("kind", "told", "tries"),
    [(ZeroOrOne, "movement", (100, 20)), (QuietBits, "scale", (3, 200))],
)
def test_what_does_otherwise_is_found(kind, told, tries):
    own = kind(noise_multiplier=1.0, clip_norm=0.1, bits_share=0.5)

    def release(updates, generator):
        return own.release(sum(map(own.contribution, updates)), generator)

    # Updates of one coordinate, so the bit is half of the tested values.
    stated = {"clip_norm": own.clip_norm, "noise_std": own.full_noise_std, "dimension": 1}
    how = dict(zip(("pairs", "draws"), tries, strict=True))
    found = fp.verify(release, **stated, **how, generator=np.random.default_rng(2))
    assert told in found.failures


def test_the_clip_norm_finds_the_quantile():
    """Norms are known, so is the quantile: noise of the bits' std over the cohort moves it."""
    generator, own = np.random.default_rng(3), clipping(quantile=0.8)
    norms, cohort = np.exp(generator.normal(size=20_000)), 200
    last = []
    for number in range(110):
        chosen = generator.choice(norms, cohort)
        total = sum(own.contribution(np.array([length])) for length in chosen)
        own = own.after(own.release(total, generator), cohort)
        last += [own.threshold] if number >= 60 else []
    reached = float((norms <= np.exp(np.mean(np.log(last)))).mean())
    # Five std of a mean of 50 correlated rounds, each off by at most 0.03.
    assert reached == pytest.approx(0.8, abs=0.03)


# ---- a run


def test_a_ledger_keeps_every_clip_norm_and_the_audit_holds(tmp_path):
    path, states = tmp_path / "run.ledger", []
    loop = loop_of(seed=None)
    with ledger_of(path, seed_policy="operating system") as ledger:
        train(loop, DATA, rounds=4, ledger=ledger, on_round=lambda s, *_: states.append(s))
        ledger.close()
    rounds = list(fp.Ledger.open(path).rounds)
    kept = [one.clip_norm for one in rounds]
    assert kept == [0.1, *(state.clip_norm for state in states[:-1])]
    assert len(set(kept)) == 4
    # The mechanism is one and the same: a line a round, not a mechanism a round.
    assert len({one.mechanism for one in rounds}) == 1
    run = clipping().sampled(fp.FixedSize(8, population=CLIENTS)) * 4
    bound = fp.epsilon(run, **PUBLIC)
    assert fp.account(path, delta=DELTA).upper == pytest.approx(bound.upper, rel=1e-9)
    assert fp.audit(path, claim=(bound.upper * 1.001, DELTA)).verdict == "HOLDS"
    assert fp.audit(path, claim=(bound.lower * 0.999, DELTA)).verdict == "FAILS"


def test_half_the_noise_on_bits_fails(tmp_path):
    own = clipping(bits_share=0.2)
    z_bits = 0.5 * 2.0 * own.bits_std
    z = (own.update_multiplier**-2 + z_bits**-2) ** -0.5
    less = clipping(noise_multiplier=z, bits_share=(z / z_bits) ** 2)
    assert less.update_multiplier == pytest.approx(own.update_multiplier, rel=1e-5)
    assert less.bits_std == pytest.approx(own.bits_std / 2, rel=1e-5)
    scheme = fp.FixedSize(8, population=CLIENTS)
    claim = (fp.epsilon(own.sampled(scheme) * 2, **PUBLIC).upper * 1.001, DELTA)
    for noise, verdict in ((own, "HOLDS"), (less, "FAILS")):
        path = tmp_path / verdict
        with ledger_of(path, seed_policy="operating system") as ledger:
            train(loop_of(noise, seed=None), DATA, rounds=2, ledger=ledger)
            ledger.close()
        assert fp.audit(path, claim=claim).verdict == verdict


def test_a_round_with_less_noise_is_priced_by_it(tmp_path):
    path = tmp_path / "weak"
    own = clipping()
    mechanism = own.sampled(fp.FixedSize(8, population=CLIENTS))
    with ledger_of(path) as ledger:
        for clip_norm, share in ((0.1, 1.0), (0.3, 0.5)):
            std = own.at(clip_norm).full_noise_std
            number = ledger.intent(mechanism, clip_norm=clip_norm, noise_std=std)
            ledger.done(
                number, cohort=8, arrived=8, refused=0, noise_std=share * std, denominator=8
            )
        ledger.close()
    half = own.rescaled(0.5).sampled(fp.FixedSize(8, population=CLIENTS))
    wanted = fp.epsilon(mechanism + half, **PUBLIC)
    assert fp.account(path, delta=DELTA).upper == pytest.approx(wanted.upper, rel=1e-6)


def test_the_next_norm_is_what_the_release_says():
    """Without noise to speak of and with updates that are all longer, it grows by e^(rate q)."""
    own = clipping(noise_multiplier=1e-6, clip_norm=1e-9)
    state, _ = loop_of(own).step(loop_of(own).init(), DATA)
    assert state.clip_norm == pytest.approx(1e-9 * math.exp(0.2 * 0.5), rel=1e-4)
    wide = clipping(noise_multiplier=1e-6, clip_norm=1e3)
    state, _ = loop_of(wide).step(loop_of(wide).init(), DATA)
    assert state.clip_norm == pytest.approx(1e3 * math.exp(-0.2 * 0.5), rel=1e-4)


def test_a_run_that_goes_on_ends_as_one_that_was_not_interrupted(tmp_path):
    whole = train(loop_of(), DATA, rounds=6).state
    checkpoint = tmp_path / "run.pt"
    with ledger_of(tmp_path / "run.ledger") as ledger:
        train(loop_of(), DATA, rounds=3, ledger=ledger, checkpoint=checkpoint)
    with fp.Ledger.open(tmp_path / "run.ledger", resume=True) as ledger:
        ended = train(loop_of(), DATA, rounds=6, ledger=ledger, checkpoint=checkpoint).state
    assert ended.clip_norm == whole.clip_norm
    assert torch.equal(ended.parameters, whole.parameters)


def test_an_aborted_state_keeps_its_clip_norm():
    loop = loop_of()
    state = dataclasses.replace(loop.init(), clip_norm=0.7)
    assert loop._after(state, state.parameters).clip_norm == 0.7


@pytest.mark.parametrize(
    "wrong",
    [
        {"quantile": 0.0},
        {"quantile": 1.0},
        {"bits_share": 0.6},
        {"bits_share": 1e-9},
        {"clip_learning_rate": 0.0},
        {"clip_learning_rate": 11.0},
        {"noise_multiplier": 1e9},
    ],
    ids=str,
)
def test_values_out_of_range_are_told(wrong):
    (name,) = wrong
    with pytest.raises(ParameterError, match=name):
        clipping(**wrong)


def test_a_mask_is_refused():
    with pytest.raises(ParameterError, match="mask"):
        clipping().contribution(np.ones(3), mask=np.arange(2))
