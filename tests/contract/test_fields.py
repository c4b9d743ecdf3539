"""Every class that a file can name: the accepted values of each field, and a round trip."""

import json
import math
from dataclasses import fields, replace

import pytest

import fedprivacy as fp
from fedprivacy import factors, loss
from fedprivacy.accountants.base import CURVES
from fedprivacy.errors import LedgerError
from fedprivacy.ledger import REGISTRY
from fedprivacy.mechanisms.base import CohortMechanism, HeldMechanism, SampledMechanism
from fedprivacy.mechanisms.correlated import CorrelatedRow, SampledNoise
from fedprivacy.registry import decode, encode

NO_NUMBERS = ["1", b"1", True, None, math.nan, [1.0], {}, 1j]
RULES = {
    "positive": ("be a finite number above 0", [0.0, -1e-300, math.inf, -math.inf]),
    "not negative": ("be a finite number of at least 0", [-1e-300, math.inf, -1]),
    "natural": ("be an integer of at least 1", [0, -1, 1.5, math.inf]),
    "whole": ("be an integer of at least 0", [-1, 0.5, math.inf]),
    "two": ("be an integer of at least 2", [1, 0, 2.5, -math.inf]),
    "probability": ("be a probability in (0, 1]", [0.0, -0.1, 1.0000000000000002, math.inf]),
    "share": ("lie between 0 and 1", [-1e-9, 1.0000000000000002, math.inf]),
    "moderate": ("be a number from 1e-50 to 1e+50", [0.0, -1.0, 1e51, 1e-51, math.inf]),
    "a mean": ("be a number from 1e-06 to 1e+12", [0.0, -1.0, 1e13, 1e-7, math.inf]),
    "inside": ("lie strictly between 0 and 1", [0.0, 1.0, -0.5, 2, math.inf]),
}
"""Rule -> how a message says it, and numbers that break it; nothing but a number keeps any."""

OPTIONAL = {"at_most", "population", "kept", "separation"}
"""Fields that may be None."""

NOISE = {"noise_multiplier": "positive", "clip_norm": "positive"}
SHARES = NOISE | {
    **dict.fromkeys(("kept", "dimension", "cohort"), "natural"),
    **dict.fromkeys(("missing", "colluding", "absent"), "whole"),
}
# Kept is 0 where all coordinates travel.
WHOLE_NUMBERS = SHARES | {"bits": "two", "kept": "whole"}
GAUSSIAN = fp.Gaussian(noise_multiplier=1.5, unit="client")
SPARSE = fp.SparsifiedPerturbation(
    noise_multiplier=1.5, clip_norm=0.5, kept=4, dimension=12, cohort=9
)
WHOLE = {"noise_multiplier": 2.0, "clip_norm": 1.0, "dimension": 8, "cohort": 5, "bits": 16}
APART = fp.MinimumSeparation(4, at_most=3)
CORRELATED = fp.CorrelatedNoise(
    noise_multiplier=2.0, factor=factors.BufferedToeplitz(2), rounds=12, participation=APART
)
LANGEVIN = fp.FederatedLangevin(
    step_size=0.01,
    temperature=1.0,
    correlation=0.25,
    weight=0.2,
    batch_fraction=1.0,
    gradient_sensitivity=0.5,
)
HAMILTONIAN = fp.FederatedHamiltonian(
    step_size=0.1,
    leapfrog_steps=2,
    correlation=0.25,
    weight=0.2,
    batch_fraction=1.0,
    gradient_sensitivity=0.5,
    gradient_noise_multiplier=2.0,
)
STATED = {"adjacency": "replace_one", "unit": "client"}

KINDS = {
    "AdaptiveClipping": (
        fp.AdaptiveClipping(noise_multiplier=1.0, unit="client"),
        NOISE | {"quantile": "inside", "bits_share": "inside", "clip_learning_rate": "positive"},
    ),
    "ApproximateDp": (fp.ApproximateDp(guarantees=((1.0, 1e-5), (2.0, 1e-9)), **STATED), {}),
    "Banded": (factors.Banded(3, weights=(1.0, 0.5, 0.25)), {"bands": "natural"}),
    "BandedInverse": (factors.BandedInverse(3), {"bands": "natural"}),
    "BufferedToeplitz": (factors.BufferedToeplitz(2), {"buffers": "natural"}),
    "CohortMechanism": (
        CohortMechanism(replace(GAUSSIAN, unit="record"), fp.Poisson(0.5)),
        {},
    ),
    "ConcentratedDp": (fp.ConcentratedDp(rho=0.5, xi=0.1, **STATED), {}),
    "CorrelatedNoise": (CORRELATED, NOISE | {"rounds": "natural"}),
    "CorrelatedRow": (CorrelatedRow(run=CORRELATED, row=3), {"row": "whole"}),
    "DiscreteLaplace": (
        fp.DiscreteLaplace(noise_parameter=0.5, sensitivity=2, unit="record"),
        {"sensitivity": "natural"},
    ),
    "DistributedDiscreteGaussian": (fp.DistributedDiscreteGaussian(**WHOLE), WHOLE_NUMBERS),
    "Everyone": (fp.Everyone(), {}),
    "FederatedHamiltonian": (
        HAMILTONIAN,
        {
            "correlation": "share",
            "weight": "probability",
            "batch_fraction": "probability",
            "gradient_sensitivity": "positive",
            "gradient_noise_multiplier": "not negative",
        },
    ),
    "FederatedLangevin": (
        LANGEVIN,
        {
            "temperature": "positive",
            "correlation": "share",
            "weight": "probability",
            "batch_fraction": "probability",
            "gradient_sensitivity": "positive",
        },
    ),
    "FixedEpochs": (fp.FixedEpochs(4, at_most=3), {"separation": "natural", "at_most": "natural"}),
    "FixedSize": (fp.FixedSize(3, population=9), {"size": "natural", "population": "natural"}),
    "Gaussian": (GAUSSIAN, NOISE),
    "GaussianDp": (fp.GaussianDp(mu=0.5, **STATED), {"mu": "positive"}),
    "HeldMechanism": (
        HeldMechanism(fp.Gaussian(noise_multiplier=2.0), fp.Poisson(0.1), 3),
        {"held": "two"},
    ),
    "Identity": (factors.Identity(), {}),
    "Laplace": (fp.Laplace(noise_multiplier=2.0), NOISE),
    "Matrix": (factors.Matrix(((1.0,), (0.5, 1.0))), {}),
    "MinimumSeparation": (APART, {"separation": "natural", "at_most": "natural"}),
    "MixtureOfGaussians": (
        fp.MixtureOfGaussians(
            standard_deviation=1.0, sensitivities=(0.0, 1.0), probabilities=(0.9, 0.1)
        ),
        {},
    ),
    "HiddenAveraging": (
        fp.HiddenAveraging(
            local_steps=2,
            learning_rate=1.0,
            gradient_norm=1.0,
            smoothness=1.0,
            noise_std=1.0,
            denominator=10.0,
            cohorts=fp.FixedSize(10, 100),
            rounds=7,
        ),
        {
            "local_steps": "natural",
            "learning_rate": "positive",
            "gradient_norm": "positive",
            "smoothness": "positive",
            "server_learning_rate": "positive",
            "noise_std": "positive",
            "denominator": "positive",
            "rounds": "natural",
        },
    ),
    "NoisyGradientDescent": (
        fp.NoisyGradientDescent(step_size=0.1, noise_std=1.0, sensitivity=0.5, steps=7),
        {
            "step_size": "positive",
            "noise_std": "positive",
            "sensitivity": "positive",
            "steps": "natural",
        },
    ),
    "NoisySGD": (
        fp.NoisySGD(
            step_size=1.0,
            noise_std=1.0,
            clip_norm=1.0,
            denominator=10.0,
            batches=fp.FixedSize(10, 100),
            steps=7,
            smoothness=1.0,
        ),
        {
            "step_size": "positive",
            "noise_std": "positive",
            "clip_norm": "positive",
            "denominator": "positive",
            "steps": "natural",
            "smoothness": "positive",
        },
    ),
    "Parallel": (fp.Parallel((GAUSSIAN, fp.Laplace(noise_multiplier=2.0, unit="client"))), {}),
    "Poisson": (fp.Poisson(0.25), {"probability": "probability"}),
    "PoissonTrials": (fp.PoissonTrials(5.0), {"mean": "a mean"}),
    "PrivateSelection": (fp.PrivateSelection(GAUSSIAN, fp.PoissonTrials(3.0)), {}),
    "RandomAllocation": (fp.RandomAllocation(5), {"rounds_per_epoch": "natural"}),
    "RandomizedResponse": (
        fp.RandomizedResponse(chance=0.25, answers=4),
        {"chance": "probability", "answers": "two"},
    ),
    "RenyiDp": (fp.RenyiDp(divergences=((2.0, 0.5), (8.0, 3.0)), **STATED), {}),
    "Restarted": (factors.Restarted(factors.Banded(2), 4), {"every": "natural"}),
    "Run": (GAUSSIAN * 3 + fp.Gaussian(noise_multiplier=4.0, unit="client") * 2, {}),
    "SampledMechanism": (SampledMechanism(GAUSSIAN, fp.FixedSize(3, population=9)), {}),
    "SampledNoise": (
        SampledNoise(
            noise=replace(CORRELATED, participation=fp.FixedEpochs(4)),
            scheme=fp.RandomAllocation(4),
        ),
        {},
    ),
    "Shuffled": (
        fp.Shuffled(5, population=50),
        {"rounds_per_epoch": "natural", "population": "natural"},
    ),
    "SingleParticipation": (fp.SingleParticipation(), {}),
    "Skellam": (fp.Skellam(**WHOLE), WHOLE_NUMBERS),
    "SparsifiedPerturbation": (SPARSE, SHARES),
    "SplittingRun": (
        fp.SplittingRun(
            step_size=0.1,
            noise_scale=1.0,
            sensitivity=0.1,
            strong_convexity=0.5,
            smoothness=1.0,
            penalty=2.0,
            local_steps=3,
            rounds=4,
        ),
        {
            **dict.fromkeys(
                ("step_size", "noise_scale", "sensitivity", "strong_convexity", "penalty"),
                "moderate",
            ),
            **dict.fromkeys(("local_steps", "rounds"), "natural"),
        },
    ),
    "SquareRootToeplitz": (factors.SquareRootToeplitz(), {}),
    "Tree": (factors.Tree(), {}),
    "TruncatedNegativeBinomial": (fp.TruncatedNegativeBinomial(mean=5.0, shape=1.0), {}),
    "TruncatedPoisson": (
        fp.TruncatedPoisson(0.25, population=20, largest=8),
        {"probability": "probability", "population": "natural", "largest": "natural"},
    ),
    "WithReplacement": (
        fp.WithReplacement(3, population=9),
        {"draws": "natural"},
    ),
}
"""Kind -> one of it, and the rule of each field that is a number by itself."""

CASES = [
    pytest.param(kind, name, rule, id=f"{kind}.{name}")
    for kind, (_, rules) in KINDS.items()
    for name, rule in rules.items()
]


def test_every_kind_of_ours_stands_here():
    ours = {name for name, kind in REGISTRY.items() if kind.__module__.startswith("fedprivacy.")}
    assert ours == set(KINDS)
    assert {name: type(one).__name__ for name, (one, _) in KINDS.items()} == {
        name: REGISTRY[name].__name__ for name in KINDS
    }


@pytest.mark.parametrize(("kind", "name", "rule"), CASES)
def test_a_field_says_its_name_its_value_and_its_rule(kind, name, rule):
    one, _ = KINDS[kind]
    words, wrong = RULES[rule]
    for value in [*wrong, *NO_NUMBERS]:
        if value is None and name in OPTIONAL:
            continue
        with pytest.raises(fp.ParameterError) as caught:
            replace(one, **{name: value})
        told = str(caught.value)
        assert told.startswith(f"{name} must {words}, got {value!r}"), told
        if not isinstance(value, int | float) or isinstance(value, bool):
            assert told.endswith("; pass a number")
        if value != value:
            assert told.endswith("; NaN is never accepted")


GDP = loss.Gdp(0.5)


def curve_of(run, adjacency, observer="aggregate"):
    return run.privacy_loss(adjacency, observer).curve


def inside(curve):
    """A curve and all values inside it."""
    yield curve
    for part in curve.components().inside:
        yield from inside(part)


RUNS = [
    (GAUSSIAN.sampled(fp.Poisson(0.1)), "add_remove"),
    (GAUSSIAN.sampled(fp.Poisson(0.1)), "replace_one"),
    (GAUSSIAN.sampled(fp.FixedSize(3, population=9)) * 4, "add_remove"),
    (GAUSSIAN.sampled(fp.FixedSize(3, population=9)) * 4, "zero_out"),
    (GAUSSIAN.sampled(fp.FixedSize(3, population=9)) * 4, "replace_one"),
    (GAUSSIAN.sampled(fp.WithReplacement(3, population=9)), "add_remove"),
    (GAUSSIAN.sampled(fp.WithReplacement(3, population=9)), "zero_out"),
    (GAUSSIAN.sampled(fp.WithReplacement(3, population=9)), "replace_one"),
    (GAUSSIAN.sampled(fp.TruncatedPoisson(0.25, population=20, largest=8)), "replace_one"),
    (GAUSSIAN.sampled(fp.RandomAllocation(5)), "add_remove"),
    (GAUSSIAN.sampled(fp.RandomAllocation(5)), "replace_one"),
    (GAUSSIAN.sampled(fp.Shuffled(5)), "zero_out"),
    (fp.Laplace(noise_multiplier=2.0).sampled(fp.Poisson(0.1)), "add_remove"),
    (fp.RandomizedResponse(chance=0.25, answers=4), "replace_one"),
    (fp.DiscreteLaplace(noise_parameter=0.5), "add_remove"),
    (KINDS["MixtureOfGaussians"][0], "add_remove"),
    (KINDS["Parallel"][0], "add_remove"),
    (KINDS["ApproximateDp"][0], "replace_one"),
    (KINDS["ConcentratedDp"][0], "replace_one"),
    (KINDS["RenyiDp"][0], "replace_one"),
    (KINDS["SampledNoise"][0], "zero_out"),
]
"""Runs whose curves are of every kind that an accountant's state can hold, but those below."""


def _curves():
    found = {}
    for run, adjacency in RUNS:
        for curve in inside(curve_of(run, adjacency)):
            found.setdefault(type(curve).__name__, curve)
    return found


FOUND = _curves()


@pytest.mark.parametrize("name", [*KINDS, *FOUND])
def test_a_record_is_what_it_was(name):
    one, registry = (KINDS[name][0], REGISTRY) if name in KINDS else (FOUND[name], CURVES)
    text = json.dumps(encode(one, registry), allow_nan=False)
    back = decode(json.loads(text), registry)
    assert back == one and hash(back) == hash(one) and type(back) is type(one)
    assert json.dumps(encode(back, registry)) == text


@pytest.mark.parametrize(("kind", "name", "rule"), CASES)
def test_a_changed_field_is_kept(kind, name, rule):
    """A field that a record lost would make two runs one."""
    one, _ = KINDS[kind]
    before = getattr(one, name)
    tried = (
        [before * 0.75, before * 1.25] if isinstance(before, float) else [before + 1, before - 1]
    )
    changed = []
    for value in tried:
        # Some neighbours of a value do not fit the other fields.
        try:
            changed.append(replace(one, **{name: value}))
        except fp.ParameterError as refused:
            assert "must" in str(refused)
    # As many weights as bands.
    assert changed or (kind, name) == ("Banded", "bands")
    for other in changed:
        record = encode(other, REGISTRY)
        assert decode(record, REGISTRY) == other != one
        assert record["fields"][name] == getattr(other, name) != before


@pytest.mark.parametrize("name", [*KINDS, *FOUND])
def test_a_record_without_a_field_or_with_another_is_refused(name):
    one, registry = (KINDS[name][0], REGISTRY) if name in KINDS else (FOUND[name], CURVES)
    whole = encode(one, registry)
    for each in fields(one):
        less = {**whole, "fields": {k: v for k, v in whole["fields"].items() if k != each.name}}
        required = each.default is each.default_factory
        if required:
            with pytest.raises(LedgerError, match=f"lacks its field '{each.name}'"):
                decode(less, registry)
        for wrong in ({"not": "this"}, [[["deep"]]], "\x00"):
            other = {**whole, "fields": {**whole["fields"], each.name: wrong}}
            with pytest.raises(LedgerError) as caught:
                decode(other, registry)
            assert whole["type"] in str(caught.value)
    with pytest.raises(LedgerError, match="no field 'extra'"):
        decode({**whole, "fields": {**whole["fields"], "extra": 1}}, registry)
    for version in (0, 2, "1", None):
        with pytest.raises(LedgerError, match="version"):
            decode({**whole, "version": version}, registry)


@pytest.mark.parametrize(("kind", "name", "rule"), CASES)
def test_a_record_with_a_wrong_number_is_refused_by_the_kind_itself(kind, name, rule):
    """A read value obeys the same rule as a typed value, with the same message."""
    words, wrong = RULES[rule]
    whole = encode(KINDS[kind][0], REGISTRY)
    for value in wrong:
        # JSON has no infinity, and an integer field takes integers.
        if not math.isfinite(value):
            continue
        record = {**whole, "fields": {**whole["fields"], name: value}}
        with pytest.raises(LedgerError) as caught:
            decode(record, REGISTRY)
        told = str(caught.value)
        fits = f"{kind} refuses it: {name} must {words}, got {value!r}"
        assert fits in told or f"{kind}.{name}: must be int" in told, told


def test_no_kind_of_one_family_is_read_as_one_of_another():
    for one, registry, other in ((GAUSSIAN, REGISTRY, CURVES), (GDP, CURVES, REGISTRY)):
        with pytest.raises(LedgerError, match="unknown type"):
            decode(encode(one, registry), other)
