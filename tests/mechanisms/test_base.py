"""Mechanisms: the algebra, and releases that have the accounted law."""

import math

import numpy as np
import pytest

import fedprivacy as fp

SETTING = {
    "noise_multiplier": 2.0,
    "clip_norm": 0.5,
    "kept": 40,
    "dimension": 400,
    "cohort": 25,
}


def sparse(**changed):
    return fp.SparsifiedPerturbation(**{**SETTING, **changed})


def as_array(values):
    return np.asarray(values, dtype=np.float64)


def as_tensor(values):
    return pytest.importorskip("torch").tensor(np.asarray(values), dtype=float_of_torch())


def float_of_torch():
    return pytest.importorskip("torch").float64


BOTH = pytest.mark.parametrize("kind", [as_array, as_tensor])


@BOTH
def test_contributions_never_exceed_the_clip_norm(kind):
    generator = np.random.default_rng(6)
    for exponent in np.linspace(-12, 12, 60):
        update = kind(generator.normal(size=400) * 10.0**exponent)
        kept = np.asarray(sparse().contribution(update, sparse().draw_mask(generator)))
        assert np.linalg.norm(kept) <= 0.5 * (1 + 1e-12)


@BOTH
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_non_finite_update_is_refused(kind, bad):
    values = np.zeros(400)
    values[7] = bad
    for call in (
        lambda: sparse(kept=400).release(kind(values)),
        lambda: sparse().contribution(kind(values), np.arange(40)),
        lambda: fp.Gaussian(noise_multiplier=1.0).release(kind(values)),
    ):
        with pytest.raises(fp.ParameterError, match=r"finite"):
            call()


@pytest.mark.parametrize("shape", [(399,), (1, 400), ()])
def test_a_wrong_shape_is_refused(shape):
    with pytest.raises(fp.ParameterError, match=r"update must have shape \(400,\)"):
        sparse().contribution(np.zeros(shape), np.arange(40))
    with pytest.raises(fp.ParameterError, match=r"mask must have shape \(40,\)"):
        sparse().contribution(np.zeros(400), np.arange(39))


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.float16, np.int64])
def test_a_contribution_never_exceeds_its_norm_by_a_rounding(kind):
    step = sparse(kept=400, clip_norm=0.7)
    generator = np.random.default_rng(3)
    for scale in (1.0, 30.0, 1e4):
        update = (scale * generator.normal(size=400)).astype(kind)
        kept = step.contribution(update).astype(np.longdouble)
        assert np.sqrt((kept**2).sum()) <= 0.7
    update = as_tensor(30.0 * generator.normal(size=400)).float()
    kept = step.contribution(update).double().numpy().astype(np.longdouble)
    assert 0.6999 < np.sqrt((kept**2).sum()) <= 0.7


@BOTH
def test_huge_entries_are_clipped_though_their_norm_overflows(kind):
    step = sparse(kept=400)
    kept = np.asarray(step.contribution(kind(np.full(400, 1.5e308))))
    assert np.linalg.norm(kept) == pytest.approx(step.clip_norm, rel=2.0**-19)


def test_units_do_not_add():
    client, record = (fp.Gaussian(noise_multiplier=1.0, unit=u) for u in fp.Unit)
    assert client.protects is fp.Unit.CLIENT and record.protects is fp.Unit.RECORD
    for call in (lambda: client + record, lambda: sparse() + record, lambda: record * 2 + client):
        with pytest.raises(fp.ParameterError, match=r"unit must agree"):
            call()
    unsaid = fp.Gaussian(noise_multiplier=1.0)
    assert (unsaid + client).protects is fp.Unit.CLIENT
    assert (unsaid * 2).protects is None


def test_the_unit_reaches_the_bound_and_no_number():
    bounds = [
        fp.epsilon(fp.Gaussian(noise_multiplier=1.0, unit=u), delta=1e-5, adjacency="zero_out")
        for u in ("client", "record", None)
    ]
    assert [bound.unit for bound in bounds] == [fp.Unit.CLIENT, fp.Unit.RECORD, None]
    assert len({bound.upper for bound in bounds}) == 1


def test_the_algebra_of_runs():
    a, b = fp.Gaussian(noise_multiplier=1.0), fp.Gaussian(noise_multiplier=2.0)
    assert (a * 2) * 3 == a * 6 == 6 * a == 2 * (3 * a)
    assert a + a == a * 2
    assert (a + b) * 2 == a * 2 + b * 2
    assert (a + b) + a == a * 2 + b
    assert hash(a * 2) == hash(a + a)
    assert a.sampled(fp.Poisson(0.5)) == a.sampled(fp.Poisson(0.5))


def test_mechanisms_are_values():
    with pytest.raises(AttributeError):
        fp.Gaussian(noise_multiplier=1.0).noise_multiplier = 2.0
    with pytest.raises(TypeError):
        fp.Gaussian(1.0)


CLIENT = fp.Gaussian(noise_multiplier=1.0, unit="client")
RECORD = fp.Gaussian(noise_multiplier=1.0, unit="record")


def test_what_runs_in_a_cohort_is_about_records():
    unsaid, scheme = fp.Gaussian(noise_multiplier=1.0), fp.FixedSize(9, population=10)
    for inner in (unsaid, RECORD):
        run = inner.in_cohort(scheme)
        assert run.protects is fp.Unit.RECORD
        for adjacency in fp.Adjacency:
            bound = fp.epsilon(run, delta=1e-5, adjacency=adjacency, observer="server")
            assert bound.unit is fp.Unit.RECORD
    with pytest.raises(fp.ParameterError, match="unit must agree"):
        unsaid.in_cohort(scheme) + CLIENT
