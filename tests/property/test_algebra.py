"""The algebra of mechanisms: laws of sequences, kinds, cohorts and fractions of noise."""

import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import fedprivacy as fp
from fedprivacy.accountants import ACCOUNTANTS
from fedprivacy.mechanisms import Mechanism, Run, Traits
from fedprivacy.mechanisms.base import noise_mismatch, single_uploads
from fedprivacy.sampling import MOST_HELD

CHEAP = settings(
    derandomize=True,
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
ASK = {"delta": 1e-5, "adjacency": "replace_one"}
STEP = fp.Gaussian(noise_multiplier=2.0)
RECORD = fp.Gaussian(noise_multiplier=2.0, unit="record")
CLIENT = fp.Gaussian(noise_multiplier=2.0, unit="client")

noise = st.floats(0.5, 20.0)
counts = st.integers(1, 10**6)
gaussians = st.builds(fp.Gaussian, noise_multiplier=noise)
laplaces = st.builds(fp.Laplace, noise_multiplier=noise)
drawn = st.builds(
    lambda inner, q: inner.sampled(fp.Poisson(q)), gaussians | laplaces, st.floats(1e-6, 1.0)
)
mechanisms = gaussians | laplaces | drawn
runs = st.recursive(
    mechanisms,
    lambda inner: (
        st.builds(lambda m, k: m * k, inner, counts) | st.builds(lambda a, b: a + b, inner, inner)
    ),
    max_leaves=6,
)


def counted(run):
    """How often each mechanism is in a run, by the run's own parts."""
    found = {}
    for part, times in run.sequence():
        found[part] = found.get(part, 0) + times
    return found


@CHEAP
@given(runs, runs, runs)
def test_sums_of_runs_count_parts_whatever_the_brackets(a, b, c):
    wanted = {}
    for run in (a, b, c):
        for part, times in counted(run).items():
            wanted[part] = wanted.get(part, 0) + times
    for made in ((a + b) + c, a + (b + c), (c + b) + a):
        assert counted(made) == wanted
    assert (a + b) + c == a + (b + c)


@CHEAP
@given(runs, runs, counts)
def test_a_repeated_sum_is_the_sum_of_the_repeated(a, b, times):
    assert counted((a + b) * times) == counted(a * times + b * times)
    assert a * times == times * a
    assert counted(a + a) == counted(a * 2) == {k: 2 * n for k, n in counted(a).items()}


@CHEAP
@given(runs, st.integers(1, 1000), st.integers(1, 1000))
def test_powers_multiply(run, a, b):
    assert (run * a) * b == run * (a * b)
    assert counted(run * a + run * b) == counted(run * (a + b))


@CHEAP
@given(runs, st.floats(0.1, 10.0), st.floats(0.1, 10.0))
def test_fractions_of_all_noise_multiply(run, one, other):
    """Of a Gaussian and a Laplace number a fraction is one of less noise; so it is of a run."""
    once, twice = run.rescaled(one * other), run.rescaled(one).rescaled(other)
    for (part, n), (again, m) in zip(once.sequence(), twice.sequence(), strict=True):
        assert n == m and type(part) is type(again)
        first, second = (x.inner if hasattr(x, "inner") else x for x in (part, again))
        assert first.noise_multiplier == pytest.approx(second.noise_multiplier, rel=1e-12)
        assert getattr(part, "scheme", None) == getattr(again, "scheme", None)
    same = run.rescaled(1.0)
    assert counted(same) == counted(run)


@CHEAP
@given(runs, st.floats(0.5, 4.0))
def test_the_ratios_of_noise_are_the_parts(run, clip_norm):
    leaves = [part.inner if hasattr(part, "inner") else part for part, _ in run.sequence()]
    found = run.noise_ratios(clip_norm)
    assert found == frozenset().union(*(one.noise_ratios(clip_norm) for one in leaves))


NO_RUN = [0, -1, 1.5, math.nan, math.inf, None, "2", True, [2]]


@pytest.mark.parametrize("times", NO_RUN, ids=repr)
def test_a_run_is_repeated_a_whole_number_of_times(times):
    for call in (lambda: STEP * times, lambda: times * (STEP * 2)):
        with pytest.raises(fp.ParameterError) as caught:
            call()
        told = str(caught.value)
        assert told.startswith("count must be an integer of at least 1, got ")
        assert repr(times) in told


@pytest.mark.parametrize("other", [0, 1.0, None, "Gaussian", fp.Poisson(0.1), (STEP, 1)], ids=repr)
def test_only_a_mechanism_follows_a_mechanism(other):
    with pytest.raises(TypeError, match="unsupported operand"):
        STEP + other
    with pytest.raises(TypeError, match=r"unsupported operand|can only concatenate"):
        other + STEP


def test_a_run_of_nothing_is_none():
    with pytest.raises(
        fp.ParameterError, match=r"parts must contain at least one mechanism, got \(\)"
    ):
        Run(())
    with pytest.raises(fp.ParameterError, match="count must be an integer of at least 1, got 0"):
        Run(((STEP, 0),))


UNITS = [
    lambda: CLIENT + RECORD,
    lambda: Run(((RECORD * 2, 1), (CLIENT, 3))),
    lambda: fp.Parallel((RECORD, CLIENT)),
    lambda: CLIENT * 4 + STEP + STEP.sampled(fp.Poisson(0.5), held=2) + RECORD,
]


@pytest.mark.parametrize("make", UNITS, ids=range(len(UNITS)))
def test_two_units_do_not_add_and_both_are_named(make):
    with pytest.raises(fp.ParameterError) as caught:
        make()
    told = str(caught.value)
    assert told.startswith("unit must agree with the other mechanism's unit")
    assert "'client'" in told and "'record'" in told
    assert told.endswith("account the client level and the record level separately")


def test_a_unit_that_nobody_said_joins_either():
    assert (CLIENT + STEP).protects == "client" and (STEP + RECORD).protects == "record"
    assert (STEP * 3 + STEP).protects is None
    # A client that holds records is a client, whatever draws them.
    assert STEP.sampled(fp.Poisson(0.5), held=2).protects == "client"
    assert STEP.in_cohort(fp.Poisson(0.5)).protects == "record"


# Kinds side by side


def test_kinds_side_by_side_are_asked_one_by_one():
    kinds = (STEP * 3, fp.Laplace(noise_multiplier=3.0) * 2, fp.Gaussian(noise_multiplier=1.5))
    alone = [fp.epsilon(kind, **ASK) for kind in kinds]
    worst = max(alone, key=lambda bound: bound.upper)
    for order in itertools.permutations(kinds):
        found = fp.epsilon(fp.Parallel(order), **ASK)
        assert found.resolution[0] <= worst.upper and worst.resolution[0] <= found.upper
        assert found.upper == pytest.approx(worst.upper, abs=1e-3)
    assert fp.epsilon(fp.Parallel(kinds[:1]), **ASK).upper == alone[0].upper
    assert fp.epsilon(fp.Parallel((kinds[0],) * 3), **ASK) == alone[0]


def test_a_run_of_kinds_follows_each_kind_through():
    """A unit is of one kind for good: the worst of the sums, no sum of the worst."""
    quiet, loud = fp.Gaussian(noise_multiplier=4.0), fp.Gaussian(noise_multiplier=2.0)
    swapped = fp.Parallel((quiet, loud)) + fp.Parallel((loud, quiet))
    found = fp.epsilon(swapped, **ASK)
    each = fp.epsilon(quiet + loud, **ASK)
    assert found.resolution[0] <= each.upper and each.resolution[0] <= found.upper
    assert found.upper < fp.epsilon(loud * 2, **ASK).resolution[0]


@pytest.mark.parametrize(
    ("mechanisms", "told"),
    [
        ((), "mechanisms must contain at least one mechanism, got ()"),
        ((STEP, 3), "mechanisms must contain only mechanisms, got 'int'"),
        ([STEP, None], "mechanisms must contain only mechanisms, got 'NoneType'"),
    ],
)
def test_kinds_are_mechanisms(mechanisms, told):
    with pytest.raises(fp.ParameterError) as caught:
        fp.Parallel(mechanisms)
    assert str(caught.value) == told


def test_a_fraction_of_no_noise_leaves_no_kinds():
    kinds = fp.Parallel((STEP, fp.Laplace(noise_multiplier=1.0)))
    halved = kinds.rescaled(0.5)
    assert halved == fp.Parallel((replace(STEP, noise_multiplier=1.0),
                                  fp.Laplace(noise_multiplier=0.5)))  # fmt: skip
    assert kinds.rescaled(0.0) is None
    assert (kinds * 3).rescaled(0.0) is None
    assert STEP.sampled(fp.Poisson(0.1)).rescaled(0.0) is None


# Sampled, nested, held


@pytest.mark.parametrize(
    "make",
    [
        lambda: STEP.sampled(fp.Poisson(0.5)).sampled(fp.Poisson(0.5)),
        lambda: (STEP.sampled(fp.Poisson(0.5)) * 3 + STEP).sampled(fp.Everyone()),
        lambda: STEP.sampled(fp.Poisson(0.5), held=3).sampled(fp.Poisson(0.1)),
        lambda: STEP.in_cohort(fp.Poisson(0.5)).sampled(fp.FixedSize(2, population=9)),
        lambda: fp.Parallel((STEP, STEP)).sampled(fp.Poisson(0.5)),
    ],
    ids=range(5),
)
def test_units_are_sampled_once(make):
    with pytest.raises(fp.UnsupportedCombination) as caught:
        make()
    told = str(caught.value)
    assert "the unit is already sampled inside this mechanism" in told
    assert "use .in_cohort(scheme) to sample its client" in told
    assert "Poisson" in told or "Everyone" in told or "FixedSize" in told


@pytest.mark.parametrize("scheme", [0.1, None, "poisson", fp.Poisson, STEP], ids=repr)
@pytest.mark.parametrize("call", ["sampled", "in_cohort", "held"])
def test_a_scheme_is_a_scheme(scheme, call):
    with pytest.raises(fp.ParameterError) as caught:
        if call == "held":
            STEP.sampled(scheme, held=3)
        else:
            getattr(STEP, call)(scheme)
    told = str(caught.value)
    assert told.startswith(f"scheme must be a sampling scheme, got {scheme!r}; ")
    assert told.endswith("pass Poisson(0.01), for example")


HELD = {
    0: "held must be an integer of at least 1, got 0",
    -3: "held must be an integer of at least 1, got -3",
    1.5: "held must be an integer of at least 1, got 1.5",
    MOST_HELD + 1: f"held must be at most {MOST_HELD}, got {MOST_HELD + 1}",
}


@pytest.mark.parametrize("held", HELD)
def test_a_client_holds_a_number_of_records(held):
    with pytest.raises(fp.ParameterError) as caught:
        STEP.sampled(fp.Poisson(0.1), held=held)
    assert str(caught.value) == HELD[held]


OUTSIDE = {
    "clients hold no clients": (
        lambda: CLIENT.sampled(fp.Poisson(0.1), held=2),
        "held=2 counts the records of a client, but the unit of this mechanism is already a "
        "client; leave out held, or make the mechanism with unit='record'",
    ),
    "more than one sum": (
        lambda: (RECORD * 2).sampled(fp.Poisson(0.1), held=2),
        "held=2 records of one client need one Gaussian sum of clipped contributions",
    ),
    "random batches are not Gaussian; account them": (
        lambda: fp.Laplace(noise_multiplier=1.0).sampled(fp.Poisson(0.1), held=5),
        "use group privacy: (eps, delta) becomes (k eps, delta (e^(k eps) - 1)/(e^eps - 1))",
    ),
    "an epoch": (
        lambda: RECORD.sampled(fp.Shuffled(rounds_per_epoch=4), held=2),
        "no theorem covers a client of held=2 records under Shuffled; draw the records with "
        "Poisson, FixedSize, WithReplacement or Everyone",
    ),
    "an allocation": (
        lambda: RECORD.sampled(fp.RandomAllocation(4), held=2),
        "no theorem covers a client of held=2 records under RandomAllocation",
    ),
    "more than there are": (
        lambda: RECORD.sampled(fp.FixedSize(2, population=9), held=10),
        "held must be at most the scheme's population = 9, got 10",
    ),
    "more than a certain draw": (
        lambda: RECORD.sampled(fp.WithReplacement(3, probability=0.3), held=4),
        "held must be at most 1 over the probability of a draw, 0.3, got 4",
    ),
    "a client in a cohort": (
        lambda: CLIENT.in_cohort(fp.Poisson(0.1)),
        "in_cohort draws the clients of a record, but the unit of this mechanism is a "
        "client, got Poisson(probability=0.1); use .sampled(scheme), or unit='record'",
    ),
    "a cohort of clients that hold records": (
        lambda: RECORD.sampled(fp.Poisson(0.1), held=2).in_cohort(fp.Poisson(0.5)),
        "the unit of this mechanism is a client",
    ),
}


@pytest.mark.parametrize("what", OUTSIDE)
def test_what_no_theorem_nests_is_told_with_the_way_out(what):
    make, words = OUTSIDE[what]
    with pytest.raises(fp.errors.FedPrivacyError) as caught:
        make()
    assert words in str(caught.value)


def test_a_cohort_of_everyone_hides_and_tells_nothing():
    inner = RECORD.sampled(fp.Poisson(0.3)) * 3
    ask = {"delta": 1e-5, "adjacency": "zero_out"}
    nested, plain = (fp.epsilon(run, **ask) for run in (inner.in_cohort(fp.Everyone()), inner))
    assert (nested.lower, nested.upper) == (plain.lower, plain.upper) and plain.upper > 0.0
    rarely = fp.epsilon(inner.in_cohort(fp.Poisson(0.5)), **ask)
    assert rarely.upper < plain.resolution[0]


@pytest.mark.parametrize("accountant", ACCOUNTANTS)
def test_a_mechanism_once_is_the_mechanism(accountant):
    for step in (STEP, STEP.sampled(fp.Poisson(0.2)), fp.Laplace(noise_multiplier=2.0)):
        one, other = (fp.epsilon(run, accountant=accountant, **ASK) for run in (step, step * 1))
        assert (one.lower, one.upper) == (other.lower, other.upper)
        assert one.theorems == other.theorems and one.assumptions == other.assumptions


@pytest.mark.parametrize("accountant", ACCOUNTANTS)
def test_every_order_of_three_kinds_has_one_price(accountant):
    kinds = (STEP * 2, STEP.sampled(fp.Poisson(0.2)) * 3, fp.Laplace(noise_multiplier=4.0))
    found = [
        fp.epsilon(a + b + c, accountant=accountant, delta=1e-3, adjacency="zero_out")
        for a, b, c in itertools.permutations(kinds)
    ]
    assert max(one.resolution[0] for one in found) <= min(one.upper for one in found)
    uppers = [one.upper for one in found]
    assert max(uppers) - min(uppers) <= 2e-3 * max(uppers)
    for kind in kinds:
        alone = fp.epsilon(kind, accountant=accountant, delta=1e-3, adjacency="zero_out")
        assert alone.lower <= min(uppers)


class Silent(Mechanism):
    """A mechanism of somebody's own that says only what it must."""

    protects = None

    def loss_under(self, facts):
        return STEP.privacy_loss(facts.adjacency, facts.observer)


def test_what_a_mechanism_does_not_say_is_not_guessed():
    mine = Silent()
    assert mine.traits == Traits() and not any(Traits())
    assert mine.noise_ratios(1.0) == frozenset() and single_uploads(mine) is None
    assert noise_mismatch(mine, shares=3, noise_multiplier=1.0) == ""
    with pytest.raises(fp.UnsupportedCombination) as caught:
        mine.rescaled(0.25)
    told = str(caught.value)
    assert "Silent cannot be accounted with 0.25 of its noise" in told
    assert "of its noise; define its method rescaled, or" in told
    # It may reveal its participants, so no draw hides them.
    ask = {"delta": 1e-5, "adjacency": "zero_out"}
    visible = fp.epsilon(mine.sampled(fp.Poisson(0.2)), **ask)
    hidden = fp.epsilon(STEP.sampled(fp.Poisson(0.2)), **ask)
    assert visible.resolution[0] > hidden.upper
    with pytest.raises(
        fp.UnsupportedCombination, match="WithReplacement has theorems only for one Gaussian sum"
    ):
        fp.epsilon(mine.sampled(fp.WithReplacement(2, population=9)), **ask)
