"""Every refusal names the parameter, its value and the rule."""

import math

import numpy as np
import pytest

import fedprivacy as fp
from fedprivacy.accountants import ACCOUNTANTS, PldAccountant

STEP = fp.Gaussian(noise_multiplier=1.0)
RUN = STEP.sampled(fp.Poisson(0.1)) * 5
SPARSE = {
    "noise_multiplier": 1.0,
    "clip_norm": 1.0,
    "kept": 5,
    "dimension": 10,
    "cohort": 4,
}

HUGE = 10**400
NOT_POSITIVE = [
    0,
    HUGE,
    0.0,
    -1.0,
    math.nan,
    math.inf,
    -math.inf,
    "1.0",
    b"1",
    True,
    False,
    None,
    [1.0],
]
NOT_INTEGERS = [0, HUGE, -3, 2.5, math.nan, math.inf, "3", True, None, [3], 1e400]
NOT_PROBABILITIES = [0, 0.0, -0.1, 1.0000001, 2, math.nan, math.inf, "0.5", True, None, {}]
NOT_DELTAS = [-1e-9, 1.0000001, 1.5, math.nan, math.inf, "1e-5", True, None]
NOT_EPSILONS = [-1e-9, -1, math.nan, math.inf, "1", True, None]


def refused(name, value, call):
    """Whether the call raises ParameterError with the parameter's name and value."""
    with pytest.raises(fp.ParameterError) as caught:
        call()
    message = str(caught.value)
    assert name in message
    assert repr(value) in message
    assert "must" in message
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("value", NOT_POSITIVE, ids=repr)
@pytest.mark.parametrize("name", ["noise_multiplier", "clip_norm"])
def test_numbers_above_zero(name, value):
    refused(name, value, lambda: fp.Gaussian(**{"noise_multiplier": 1.0, name: value}))
    refused(name, value, lambda: fp.SparsifiedPerturbation(**{**SPARSE, name: value}))


@pytest.mark.parametrize("value", NOT_INTEGERS, ids=repr)
@pytest.mark.parametrize("name", ["kept", "dimension", "cohort"])
def test_whole_numbers(name, value):
    refused(name, value, lambda: fp.SparsifiedPerturbation(**{**SPARSE, name: value}))


@pytest.mark.parametrize("value", NOT_INTEGERS[1:], ids=repr)
@pytest.mark.parametrize("name", ["missing", "colluding"])
def test_lost_shares(name, value):
    refused(name, value, lambda: fp.SparsifiedPerturbation(**SPARSE, **{name: value}))


@pytest.mark.parametrize("value", NOT_INTEGERS, ids=repr)
def test_sizes_and_counts(value):
    refused("size", value, lambda: fp.FixedSize(value, population=10))
    refused("population", value, lambda: fp.FixedSize(1, population=value))
    refused("population", value, lambda: fp.TruncatedPoisson(0.1, population=value, largest=1))
    refused("largest", value, lambda: fp.TruncatedPoisson(0.1, population=9, largest=value))
    refused("count", value, lambda: STEP * value)
    refused("count", value, lambda: RUN * value)
    refused("count", value, lambda: PldAccountant().compose(RUN.privacy_loss("zero_out"), value))


@pytest.mark.parametrize("value", NOT_PROBABILITIES, ids=repr)
def test_probabilities(value):
    refused("probability", value, lambda: fp.Poisson(value))
    refused("probability", value, lambda: fp.TruncatedPoisson(value, population=9, largest=2))


@pytest.mark.parametrize("value", NOT_DELTAS, ids=repr)
def test_deltas(value):
    refused("delta", value, lambda: fp.epsilon(RUN, delta=value, adjacency="zero_out"))
    refused("delta", value, lambda: fp.Budget(epsilon=1, delta=value, adjacency="zero_out"))
    refused(
        "delta",
        value,
        lambda: fp.calibrate(lambda s: RUN, epsilon=1, delta=value, adjacency="zero_out"),
    )
    for kind in ACCOUNTANTS.values():
        account = kind().compose(RUN.privacy_loss("zero_out"))
        refused("delta", value, lambda account=account: account.epsilon(value))


@pytest.mark.parametrize("value", NOT_EPSILONS, ids=repr)
def test_epsilons(value):
    if value != math.inf:  # delta(inf) is the mass at infinite loss
        refused("epsilon", value, lambda: fp.delta(RUN, epsilon=value, adjacency="zero_out"))
    refused("epsilon", value, lambda: fp.Budget(epsilon=value, delta=0.1, adjacency="zero_out"))
    refused(
        "epsilon",
        value,
        lambda: fp.calibrate(lambda s: RUN, epsilon=value, delta=0.1, adjacency="zero_out"),
    )


@pytest.mark.parametrize("value", NOT_POSITIVE, ids=repr)
def test_tolerances(value):
    ask = {"delta": 1e-5, "adjacency": "zero_out"}
    refused("tolerance", value, lambda: fp.epsilon(RUN, tolerance=value, **ask))
    refused("tolerance", value, lambda: PldAccountant(tolerance=value))
    refused(
        "tolerance", value, lambda: fp.calibrate(lambda s: RUN, epsilon=1, tolerance=value, **ask)
    )


NAMES = ["", "remove", "ADD_REMOVE", "add-remove", None, 3, math.nan]


@pytest.mark.parametrize("value", NAMES, ids=repr)
def test_unknown_names_are_told_the_known_ones(value):
    def ask(**changed):
        facts = {"adjacency": "zero_out", "observer": "aggregate", "accountant": "pld", **changed}
        return lambda: fp.epsilon(RUN, delta=1e-5, **facts)

    refused("adjacency", value, ask(adjacency=value))
    refused("observer", value, ask(observer=value))
    refused("accountant", value, ask(accountant=value))
    for name, known in (("adjacency", "add_remove"), ("observer", "server"), ("accountant", "rdp")):
        with pytest.raises(fp.ParameterError, match=f"{name} must be one of .*'{known}'"):
            ask(**{name: value})()
    with pytest.raises(fp.ParameterError, match=r"unit must be one of 'client' or 'record'"):
        fp.Gaussian(noise_multiplier=1.0, unit=value or "person")
    with pytest.raises(fp.ParameterError, match=r"sparsifier must be one of"):
        fp.SparsifiedPerturbation(**SPARSE, sparsifier=value)


def test_there_is_no_default_adjacency():
    with pytest.raises(TypeError, match=r"adjacency"):
        fp.epsilon(RUN, delta=1e-5)


def test_sizes_that_do_not_fit_each_other():
    with pytest.raises(fp.ParameterError, match=r"kept must be at most dimension = 10, got 11"):
        fp.SparsifiedPerturbation(**{**SPARSE, "kept": 11})
    with pytest.raises(fp.ParameterError, match=r"size must be at most population = 10, got 11"):
        fp.FixedSize(11, population=10)
    with pytest.raises(fp.ParameterError, match=r"missing . colluding must be below cohort = 4"):
        fp.SparsifiedPerturbation(**SPARSE, missing=2, colluding=2)
    with pytest.raises(fp.ParameterError, match=r"cohort must equal the scheme's size = 5, got 4"):
        fp.SparsifiedPerturbation(**SPARSE).sampled(fp.FixedSize(5, population=10))
    with pytest.raises(fp.ParameterError, match=r"population must equal .* = 10, got 11"):
        fp.FixedSize(5, population=10).draw(11, np.random.default_rng(1))
    with pytest.raises(fp.ParameterError, match=r"population must equal .* = 10, got 9"):
        fp.TruncatedPoisson(0.5, population=10, largest=6).draw(9, np.random.default_rng(1))


def test_a_way_out_is_named():
    with pytest.raises(
        fp.UnsupportedCombination, match=r"topped_up=True.*or sample with FixedSize"
    ):
        fp.SparsifiedPerturbation(**SPARSE).sampled(fp.Poisson(0.1))
    with pytest.raises(fp.UnsupportedCombination, match=r"use \.in_cohort"):
        RUN.sampled(fp.Poisson(0.5))
    with pytest.raises(fp.UnsupportedCombination, match=r"list of participants.*these are covered"):
        fp.epsilon(RUN, delta=1e-5, adjacency="add_remove", observer="server")
    client, record = (fp.Gaussian(noise_multiplier=1.0, unit=u) for u in ("client", "record"))
    with pytest.raises(fp.ParameterError, match=r"unit must agree .*account .* separately"):
        client + record


def test_adding_something_else_is_a_type_error():
    for other in (1, None, "mechanism"):
        with pytest.raises(TypeError):
            STEP + other


@pytest.mark.parametrize("claim", [-0.1, math.nan])
def test_claims_are_checked(claim):
    bound = fp.epsilon(STEP, delta=1e-5, adjacency="zero_out")
    with pytest.raises(fp.ParameterError, match=r"claim"):
        bound.verdict(claim)


@pytest.mark.parametrize("domain", [(1.0, 1.0), (2.0, 1.0), (-1.0, 1.0), (math.nan, 1.0)])
def test_domains_are_checked(domain):
    with pytest.raises(fp.ParameterError, match=r"domain must be .smallest, largest."):
        fp.calibrate(
            lambda s: fp.Gaussian(noise_multiplier=s),
            epsilon=1,
            delta=1e-5,
            adjacency="zero_out",
            domain=domain,
        )


def test_profiles_check_every_epsilon():
    refused("epsilon", -1.0, lambda: fp.profile(RUN, epsilons=[1.0, -1.0], adjacency="zero_out"))


def test_numbers_of_numpy_are_numbers():
    made = fp.Gaussian(noise_multiplier=np.float32(1.5))
    assert type(made.noise_multiplier) is float
    assert fp.FixedSize(np.int64(3), population=np.int32(9)) == fp.FixedSize(3, population=9)
    assert (STEP * np.int64(4)) == STEP * 4


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(
            lambda: fp.epsilon(RUN, delta=1e-5, adjacency="zero_out", accountant=["pld"]),
            id="accountant in a list",
        ),
        pytest.param(lambda: STEP.sampled("Poisson"), id="scheme by name"),
        pytest.param(lambda: STEP.sampled(None), id="no scheme"),
        pytest.param(lambda: STEP.in_cohort(0.5), id="cohort by probability"),
        pytest.param(lambda: fp.epsilon(None, delta=1e-5, adjacency="zero_out"), id="no run"),
        pytest.param(lambda: PldAccountant().compose(STEP), id="mechanism instead of its loss"),
        pytest.param(
            lambda: fp.epsilon(STEP, delta=1e-5, adjacency="zero_out").verdict("8"), id="claim"
        ),
        pytest.param(
            lambda: fp.profile(RUN, epsilons="12", adjacency="zero_out"), id="epsilons as text"
        ),
        pytest.param(
            lambda: fp.calibrate(
                lambda s: RUN, epsilon=1, delta=0.1, adjacency="zero_out", domain=("a", "b")
            ),
            id="domain of strings",
        ),
        pytest.param(
            lambda: fp.calibrate(lambda s: s, epsilon=1, delta=0.1, adjacency="zero_out"),
            id="make_run gives no run",
        ),
    ],
)
def test_wrong_kinds_of_arguments(call):
    with pytest.raises(fp.errors.FedPrivacyError):
        call()
