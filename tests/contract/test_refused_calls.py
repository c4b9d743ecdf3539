"""Refusals of functions: the name, the value, the rule and the solution, row by row."""

import math
from dataclasses import replace

import numpy as np
import pytest

import fedprivacy as fp
from fedprivacy import errors, factors
from fedprivacy.audit.attacks import _of_bound, _scorer
from fedprivacy.errors import FedPrivacyError
from fedprivacy.questions.calibrate import calibrate
from fedprivacy.runs.pareto import pareto
from fedprivacy.sampling.scheme import among, cohort_of
from fedprivacy.theory.gaussian import AffineMap, as_vectors
from fedprivacy.theory.targets import GaussianTarget

STEP = fp.Gaussian(noise_multiplier=1.0, unit="client")
RUN = STEP.sampled(fp.Poisson(0.1)) * 5
SPACED = fp.MinimumSeparation(4, at_most=3)
NOISE = {
    "noise_multiplier": 2.0,
    "factor": factors.BufferedToeplitz(2),
    "rounds": 12,
    "participation": SPACED,
}
CORRELATED = fp.CorrelatedNoise(**NOISE)
WHOLE = {"noise_multiplier": 2.0, "clip_norm": 1.0, "dimension": 8, "cohort": 5, "bits": 16}
GENERATOR = np.random.default_rng(0)
PAIR = {"adjacency": "replace_one", "unit": "client"}


def whole(**changed):
    return fp.DistributedDiscreteGaussian(**{**WHOLE, **changed})


class Drawing:
    """A user-defined scheme that draws the given units."""

    def __init__(self, drawn, population=None):
        self.drawn, self.population = drawn, population

    def draw(self, population, generator):
        return np.asarray(self.drawn)


def refusing(message):
    """A run that no value suits."""

    def run(value):
        raise fp.UnsupportedCombination(message)

    return run


BUDGET = {"epsilon": 1.0, "delta": 1e-5, "adjacency": "add_remove"}
# The call, and the whole message; "..." matches any text.
CALLS = {
    # errors
    "a number that is a text": (
        lambda: errors.positive(size="2"),
        "size must be a finite number above 0, got '2'; pass a number",
    ),
    "a number that is none": (
        lambda: errors.closed_unit(share=math.nan),
        "share must lie between 0 and 1, got nan; NaN is never accepted",
    ),
    "a number beyond the doubles": (
        lambda: errors.positive(size=10**400),
        "size must be a finite number above 0, got 1000...",
    ),
    "a way out of one's own": (
        lambda: errors.positive("buy more", size=-1),
        "size must be a finite number above 0, got -1; buy more",
    ),
    "a number below a range": (
        lambda: errors.between(2, 3)(size=1.5),
        "size must be a number from 2 to 3, got 1.5",
    ),
    "nearly 1 of a half-open range": (
        lambda: errors.half_open_unit(share=1),
        "share must be in [0, 1), got 1",
    ),
    "a number that is moderate or 0": (
        lambda: errors.moderate_or_zero(size=1e-60),
        "size must be 0 or a number from 1e-50 to 1e+50, got 1e-60",
    ),
    "too many": (
        lambda: errors.count(records=10**16),
        "records must be an integer of at most 1e15, got 10000000000000000",
    ),
    "a word that is none": (
        lambda: errors.member(fp.Unit, unit="person"),
        "unit must be one of 'client' or 'record', got 'person'",
    ),
    # factors
    "a matrix of texts": (
        lambda: factors.Matrix([["a"]]),
        "array must be numbers of shape (n, n), got 'list'",
    ),
    "a matrix that is not square": (
        lambda: factors.Matrix(np.ones((2, 3))),
        "array must have shape (n, n), got (2, 3)",
    ),
    "a matrix that is symmetric": (
        lambda: factors.Matrix(np.ones((2, 2))),
        "array must be lower triangular, got 'entries above the diagonal'; pass L of C = Q L "
        "with Q orthogonal",
    ),
    "weights of another number": (
        lambda: factors.Banded(3, weights=(1.0, 0.5)),
        "weights must have length bands = 3, got 2",
    ),
    "weights that begin with 0": (
        lambda: factors.Banded(2, weights=(0.0, 1.0)),
        "weights must begin above 0, got 0.0; C must have an inverse",
    ),
    "more bands than rounds apart": (
        lambda: fp.CorrelatedNoise(**{**NOISE, "factor": factors.Banded(6)}),
        "bands must be at most the separation 4, since a unit's columns must not share rows, "
        "got 6; use fewer bands, a larger separation, or SquareRootToeplitz",
    ),
    "a factor that has nothing to choose": (
        lambda: factors.optimised(factors.Identity(), rounds=8, participation=SPACED),
        "factor must be Banded or BufferedToeplitz, got Identity(); optimised_matrix ...",
    ),
    "a restart of what is none": (
        lambda: factors.Restarted("Banded", 4),
        "factor must be a factor of fedprivacy.factors that is not Restarted, got 'Banded'; ...",
    ),
    "a restart of a restart": (
        lambda: factors.Restarted(factors.Restarted(factors.Banded(2), 4), 4),
        "factor must be a factor of fedprivacy.factors that is not Restarted, got ...",
    ),
    "blocks that are longer than the run": (
        lambda: fp.CorrelatedNoise(**{**NOISE, "factor": factors.Restarted(factors.Banded(2), 50)}),
        "every must be at most rounds = 12, got 50; or use the factor without Restarted",
    ),
    "units that may be apart": (
        lambda: fp.SingleParticipation(apart="yes"),
        "apart must be True or False, got 'yes'",
    ),
    # correlated noise
    "rounds that no memory holds": (
        lambda: fp.CorrelatedNoise(**{**NOISE, "rounds": 10**12}),
        "rounds must be at most ...; split the run; runs compose",
    ),
    "correlation by what is no factor": (
        lambda: fp.CorrelatedNoise(**{**NOISE, "factor": 3}),
        "factor must be a factor of fedprivacy.factors, got 3; pass "
        "fp.factors.BufferedToeplitz(4), for example",
    ),
    "participation that is no rule": (
        lambda: fp.CorrelatedNoise(**{**NOISE, "participation": 4}),
        "participation must be a rule of participation, got 4; pass "
        "fp.MinimumSeparation(100), for example",
    ),
    "half of a mask": (
        lambda: replace(CORRELATED, kept=3),
        "kept, dimension must be given together, got (3, None)",
    ),
    "a mask for noise that keeps all": (
        lambda: CORRELATED.contribution(np.ones(4), np.array([0, 1])),
        "mask must ...got 'given'; pass kept and dimension",
    ),
    "a row of what is no run": (
        lambda: replace(CORRELATED.row(0), run=STEP),
        "run must be a CorrelatedNoise, got 'Gaussian'",
    ),
    "a row behind the last": (
        lambda: CORRELATED.row(12),
        "row must be ..., got 12; start a new run, which is accounted in addition to this one",
    ),
    # mechanisms
    "a mask for a sum of all coordinates": (
        lambda: STEP.contribution(np.ones(3), np.array([0])),
        "mask must be None, since Gaussian keeps every coordinate, got 'given'",
    ),
    "a mask where the clip norm adapts": (
        lambda: fp.AdaptiveClipping(noise_multiplier=1.0, unit="client").contribution(
            np.ones(3), np.array([0])
        ),
        "mask must be None, since AdaptiveClipping keeps every coordinate, got 'given'",
    ),
    "Laplace noise on a vector": (
        lambda: fp.Laplace(noise_multiplier=1.0).contribution(np.ones(3)),
        "update must be one number, got (3,); use Gaussian for vectors",
    ),
    "Laplace noise on a sum of vectors": (
        lambda: fp.Laplace(noise_multiplier=1.0).release(np.ones(3)),
        "value must be one number, got (3,); use Gaussian for vectors",
    ),
    "kinds of what is no mechanism": (
        lambda: fp.Parallel((STEP, fp.Poisson(0.1))),
        "mechanisms must contain only mechanisms, got 'Poisson'",
    ),
    "whole numbers of an odd clip norm": (
        lambda: whole(clip_norm=1e300),
        "clip_norm must be from ...",
    ),
    "whole numbers of too many bits": (
        lambda: whole(bits=200),
        "bits must be at most ..., got 200",
    ),
    "a rotation that is perhaps": (
        lambda: whole(rotated=1),
        "rotated must be True or False, got 1",
    ),
    "sums that often wrap": (
        lambda: whole(overflow=0.5),
        "overflow must be at most 0.1, got 0.5; a sum that wraps around is lost",
    ),
    "a coarse grid": (
        lambda: whole(granularity=1e6),
        "granularity must give each share a std of at least 0.125 granularities, not "
        "8.94427e-07, got 1000000.0; use a finer one, which takes 5 bits",
    ),
    "a grid that is too fine": (
        lambda: whole(granularity=1e-9),
        "bits must be at least 35 at granularity = 1e-09, got 16; or use a coarser ...",
    ),
    "an update without a norm": (
        lambda: whole().contribution(np.full(8, 1e308)),
        "update must have a finite norm, got 'norm inf'; leave out this update",
    ),
    "whole numbers kept that are no number": (
        lambda: whole(kept=None),
        "kept must be an integer of at least 0, got None; pass a number",
    ),
    "more kept than there are": (
        lambda: whole(kept=9),
        "kept must be at most dimension = 8, got 9",
    ),
    "noise of a generator that is none": (
        lambda: STEP.release(np.zeros(2), generator=3),
        "generator must be a numpy.random.Generator, got 3",
    ),
    "trials of different units": (
        lambda: fp.PrivateSelection(STEP, fp.PoissonTrials(2.0), (replace(STEP, unit="record"),)),
        "others must ..., got ['client', 'record']; account for each unit separately",
    ),
    "a trial that is no mechanism": (
        lambda: fp.PrivateSelection(3, fp.PoissonTrials(2.0)),
        "base must be a mechanism, got 3; pass Gaussian(noise_multiplier=1.0) * 10",
    ),
    "a shape that is the Poisson law's": (
        lambda: fp.TruncatedNegativeBinomial(mean=2.0, shape=math.inf),
        "shape must be a number from -0.9 to 1000, got inf; use ...",
    ),
    # schemes
    "a scheme that draws a mask": (
        lambda: cohort_of(Drawing([True, False]), 2, GENERATOR),
        "Drawing.draw must return integers, one per draw, got 'bool of shape (2,)'; pass "
        "np.flatnonzero(mask) for a mask",
    ),
    "a scheme that draws fractions": (
        lambda: cohort_of(Drawing([0.5]), 2, GENERATOR),
        "Drawing.draw must return integers, one per draw, got 'float64 of shape (1,)'; pass ...",
    ),
    "a scheme that draws a table": (
        lambda: cohort_of(Drawing([[0, 1]]), 2, GENERATOR),
        "Drawing.draw must return integers, one per draw, got 'int64 of shape (1, 2)'; pass ...",
    ),
    "a scheme that draws strangers": (
        lambda: cohort_of(Drawing([0, 2]), 2, GENERATOR),
        "Drawing.draw must return numbers from 0 to 1, got [0, 2]",
    ),
    "a scheme that draws what is before the first": (
        lambda: cohort_of(Drawing([-1]), 2, GENERATOR),
        "Drawing.draw must return numbers from 0 to 1, got [-1]",
    ),
    "a scheme that draws one client twice": (
        lambda: cohort_of(Drawing([1, 1]), 2, GENERATOR),
        "Drawing.draw must return each client at most once, got [1, 1]; set repeats=True if ...",
    ),
    "another population than a scheme's own": (
        lambda: among(Drawing([0], population=5), 9),
        "population must equal the scheme's population = 5, got 9",
    ),
    "fewer clients than were accounted for": (
        lambda: among(fp.FixedSize(3, population=9), 8),
        "population must equal the scheme's population = 9, got 8",
    ),
    "a cohort of more than may come": (
        lambda: fp.FixedSize(3, population=9).among_free(2),
        "cohort must be at most 2, the number of clients that may take part now, got 3; draw "
        "fewer clients, or allow a smaller separation",
    ),
    "rows from another population": (
        lambda: fp.FixedSize(3, population=9).draw_rows(2, 10, GENERATOR),
        "population must equal the scheme's population = 9, got 10",
    ),
    "replacement from another population": (
        lambda: fp.WithReplacement(3, population=9).draw(10, GENERATOR),
        "population must equal the scheme's population = 9, got 10",
    ),
    "a truncated cohort of another population": (
        lambda: fp.TruncatedPoisson(0.1, population=9, largest=3).draw(10, GENERATOR),
        "population must equal the scheme's population = 9, got 10",
    ),
    "replacement from two populations": (
        lambda: fp.WithReplacement(3, population=9, probability=0.1),
        "population, probability must be given one without the other, got (9, 0.1)",
    ),
    "replacement from none": (
        lambda: fp.WithReplacement(3),
        "population, probability must be given one without the other, got (None, None)",
    ),
    # questions
    "settings that are none": (
        lambda: fp.pareto(None, delta=1e-5, adjacency="add_remove"),
        "runs must be a mapping or pairs, got 'NoneType'; pass {label: mechanism, ...}, "
        "for example",
    ),
    "epsilon of what is no mechanism": (
        lambda: fp.epsilon(3, delta=1e-5, adjacency="add_remove"),
        "run must have a privacy loss, got 'int'; pass a mechanism, such as "
        "Gaussian(noise_multiplier=1.0)",
    ),
    "a domain that is upside down": (
        lambda: calibrate(lambda z: RUN, domain=(2.0, 1.0), **BUDGET),
        "domain must be (smallest, largest) with 0 <= smallest < largest, got (2.0, 1.0)",
    ),
    "a domain below 0": (
        lambda: calibrate(lambda z: RUN, domain=(-1.0, 1.0), **BUDGET),
        "domain must be (smallest, largest) with 0 <= smallest < largest, got (-1.0, 1.0)",
    ),
    "epsilons that are letters": (
        lambda: fp.profile(RUN, epsilons="12", adjacency="add_remove"),
        "epsilons must be a sequence of numbers, got '12'",
    ),
    "epsilons of rows of other lengths": (
        lambda: fp.profile(RUN, epsilons=[[1.0], [1.0, 2.0]], adjacency="add_remove"),
        "epsilons must be a sequence of numbers, got [[1.0], [1.0, 2.0]]",
    ),
    "epsilons of two axes": (
        lambda: fp.profile(RUN, epsilons=[[1.0]], adjacency="add_remove"),
        "epsilons must be a sequence of numbers, got [[1.0]]",
    ),
    "a certificate of a bare bound": (
        lambda: replace(
            fp.epsilon(RUN, delta=1e-2, adjacency="add_remove"), evidence=None
        ).certificate(),
        "certificate needs the run of the bound, but this bound of ... contains none; compute...",
    ),
    "a claim below 0": (
        lambda: fp.epsilon(STEP, delta=1e-2, adjacency="add_remove").verdict(-1.0),
        "claim must be a number of at least 0, got -1.0",
    ),
    "a claim that is a text": (
        lambda: fp.epsilon(STEP, delta=1e-2, adjacency="add_remove").verdict("8"),
        "claim must be a number of at least 0, got '8'",
    ),
    "settings that are no pairs": (
        lambda: pareto([RUN], delta=1e-5, adjacency="add_remove"),
        "runs must be a mapping, or (label, source) pairs, got ...",
    ),
    # audits
    "an audit without a claim": (
        lambda: fp.audit(RUN, adjacency="add_remove"),
        "claim must be (epsilon, delta), got None; the source states no claim: give epsilon and "
        "delta (--claim EPSILON,DELTA)",
    ),
    "an audit without neighbours": (
        lambda: fp.audit(RUN, claim=(1.0, 1e-5)),
        "adjacency must be given, got None; the mechanism does not state how neighbouring "
        "data sets differ; pass one of add_remove, zero_out, replace_one",
    ),
    "a canary without a direction": (
        lambda: _scorer([[0.0, 0.0]], 1, fp.Observer.AGGREGATE),
        "directions must be finite and nonzero, got 'a row'",
    ),
    "directions of other canaries": (
        lambda: _scorer([[1.0, 0.0]], 2, fp.Observer.AGGREGATE),
        "directions must have shape (2, d), with one row per canary, got (1, 2)",
    ),
    "a claim about another number": (
        lambda: _of_bound(
            fp.delta(STEP, epsilon=1.0, adjacency="add_remove"), None, fp.Observer.AGGREGATE
        ),
        "claim must be a bound on epsilon, got 'delta'; use fp.epsilon, not fp.delta",
    ),
    "a claim at another delta": (
        lambda: _of_bound(
            fp.epsilon(STEP, delta=1e-2, adjacency="add_remove"), 1e-3, fp.Observer.AGGREGATE
        ),
        "delta must equal the claim's, 0.01, got 0.001; leave delta out",
    ),
    "a claim about the last release alone": (
        lambda: _of_bound(
            fp.epsilon(STEP, delta=1e-2, adjacency="add_remove", observer="final"),
            None,
            fp.Observer.AGGREGATE,
        ),
        "observer must be 'final', as the claim's, got 'aggregate'; the claim covers no "
        "other observer",
    ),
    # theory
    "a vector of texts": (
        lambda: as_vectors(mean="a"),
        "mean must be an array of numbers, got 'a'",
    ),
    "a vector of nothing": (
        lambda: as_vectors(mean=[]),
        "mean must have at least one entry along its last axis, got []",
    ),
    "centres on a line": (
        lambda: GaussianTarget(hessians=np.eye(2), centres=np.zeros(2)),
        "centres must have shape (N, d), got (2,)",
    ),
    "a Hessian that falls": (
        lambda: GaussianTarget(hessians=-np.eye(2)[None], centres=np.zeros((1, 2))),
        "eigenvalues of the hessians must be above 0, got ...",
    ),
    "hessians of other clients": (
        lambda: GaussianTarget(hessians=np.eye(2)[None], centres=np.zeros((2, 2))),
        "hessians must have shape (2, 2, 2), got (1, 2, 2)",
    ),
    "a map that does not contract": (
        lambda: AffineMap(matrix=np.eye(1), offset=np.zeros(1), noise=np.eye(1)).stationary(),
        "step must have a spectral radius below 1, got 1.0; take smaller steps",
    ),
}


def fits(told, wanted):
    """Whether a message is the expected one, where "..." matches any text."""
    at = 0
    parts = wanted.split("...")
    for part in parts:
        found = told.find(part, at)
        if found < 0 or (part is parts[0] and found):
            return False
        at = found + len(part)
    return wanted.endswith("...") or at == len(told)


def test_dots_stand_for_anything_and_nothing_else():
    assert fits("a must be 1, got 2", "a must be 1, got 2")
    assert fits("a must be 1, got 2; go", "a must ...; go")
    assert not fits("a must be 1, got 2; go", "a must be 1, got 2")
    assert not fits("the a must be 1", "a must be 1")


@pytest.mark.parametrize("what", CALLS)
def test_what_is_refused_says_all_four(what):
    call, wanted = CALLS[what]
    with pytest.raises(fp.ParameterError) as caught:
        call()
    told = str(caught.value)
    assert fits(told, wanted), told
    assert isinstance(caught.value, ValueError) and isinstance(caught.value, FedPrivacyError)
