"""Refusals of mechanisms, schemes, factors and theorems, with values and solutions."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest

import fedprivacy as fp
from fedprivacy import factors, loss
from fedprivacy.errors import FedPrivacyError, LedgerError
from fedprivacy.factors.workload import Workload
from fedprivacy.mechanisms.base import Mechanism
from fedprivacy.mechanisms.exact_normals import StoredDraws, fresh_words
from fedprivacy.mechanisms.rounded import NORMAL, grid_for
from fedprivacy.registry import Registry, decode, registered
from fedprivacy.sampling.clients import SeparateProbabilities, WeightedDraws
from fedprivacy.theory.gaussian import Normal
from fedprivacy.theory.hidden_state import hidden_state_factor, varying_steps_factor
from fedprivacy.theory.splitting_privacy import PrivateSplitting, server_or_final
from fedprivacy.theory.targets import GaussianTarget
from tests.contract.test_refused_calls import fits

GENERATOR = np.random.default_rng(0)
STEP = fp.Gaussian(noise_multiplier=1.0)
RECORD = replace(STEP, unit="record")
LAPLACE = fp.Laplace(noise_multiplier=1.0)
WHOLE = {"noise_multiplier": 2.0, "clip_norm": 1.0, "dimension": 8, "cohort": 5, "bits": 16}
SPARSE = {"noise_multiplier": 1.5, "clip_norm": 1.0, "kept": 4, "dimension": 12, "cohort": 5}
STATED = {"adjacency": "replace_one", "unit": "client"}
POINT = ((1.0, 1e-6),)
MIXTURE = {"standard_deviation": 1.0, "sensitivities": (0.0, 1.0), "probabilities": (0.9, 0.1)}
NOISE = {
    "noise_multiplier": 2.0,
    "factor": factors.Banded(2),
    "rounds": 12,
    "participation": fp.FixedEpochs(4),
}
DESCENT = {"step_size": 0.1, "noise_std": 1.0, "sensitivity": 0.5, "steps": 7}
CURVED = {"strong_convexity": 1.0, "smoothness": 4.0}
LANGEVIN = {
    "step_size": 0.01,
    "temperature": 1.0,
    "correlation": 0.25,
    "weight": 0.2,
    "batch_fraction": 1.0,
    "gradient_sensitivity": 0.5,
}
PLT = {
    "sensitivity": 0.1,
    "strong_convexity": 0.5,
    "smoothness": 1.0,
    "penalty": 2.0,
    "step_size": 0.1,
    "noise_scale": 1.0,
    "local_steps": 3,
    "rounds": 4,
}
BOX = {"hessians": np.array([np.eye(2)] * 2), "centres": np.zeros((2, 2))}


def sparse(**changed):
    return fp.SparsifiedPerturbation(**{**SPARSE, **changed})


def whole(**changed):
    return fp.DistributedDiscreteGaussian(**{**WHOLE, **changed})


def mixture(**changed):
    return fp.MixtureOfGaussians(**{**MIXTURE, **changed})


def correlated(**changed):
    return fp.CorrelatedNoise(**{**NOISE, **changed})


def described(kind, **changed):
    return kind(**{**STATED, **changed})


class Blank(Mechanism):
    """A user-defined mechanism that states only its loss."""

    protects = None

    def loss_under(self, facts):
        return STEP.privacy_loss(facts.adjacency, facts.observer)


class Stubborn:
    """A value whose conversion to an array raises what it likes."""

    def __array__(self, *_, **__):
        raise RuntimeError("not today")


# The call, and the whole message; "..." matches any text.
VALUES = {
    # stated guarantees
    "guarantees of one number": (
        lambda: described(fp.ApproximateDp, guarantees=(1.0, 2.0)),
        "guarantees must be one or more pairs of numbers, got (1.0, 2.0); pass "
        "guarantees=((1.0, 1e-6),), for example",
    ),
    "guarantees of three numbers": (
        lambda: described(fp.ApproximateDp, guarantees=((1.0, 1e-6, 2),)),
        "guarantees must be one or more pairs of numbers, got ((1.0, 1e-06, 2),); pass ...",
    ),
    "no guarantee": (
        lambda: described(fp.ApproximateDp, guarantees=()),
        "guarantees must be one or more pairs of numbers, got (); pass ...",
    ),
    "too many guarantees": (
        lambda: described(fp.ApproximateDp, guarantees=[(i / 9, 1e-6) for i in range(2001)]),
        "guarantees must be at most 2000, got '2001 pairs'; leave some out",
    ),
    "an epsilon beyond all": (
        lambda: described(fp.ApproximateDp, guarantees=((501.0, 1e-6),)),
        "epsilon must be at most 500, got 501.0; leave out this guarantee",
    ),
    "a delta that everything keeps": (
        lambda: described(fp.ApproximateDp, guarantees=((1.0, 1.0),)),
        "delta must be below 1, got 1.0; leave it out, since every mechanism satisfies it",
    ),
    "no divergence": (
        lambda: described(fp.RenyiDp, divergences=None),
        "divergences must be one or more pairs of numbers, got None; pass divergences=((2.0, "
        "0.1), (8.0, 0.5)), for example",
    ),
    "an order of 1": (
        lambda: described(fp.RenyiDp, divergences=((1.0, 0.1),)),
        "order must be above 1, got 1.0; leave out this order",
    ),
    "an infinite order": (
        lambda: described(fp.RenyiDp, divergences=((math.inf, 0.1),)),
        "order must be a finite number above 0, got inf; an infinite order is pure DP; state "
        "ApproximateDp(guarantees=((epsilon, 0.0),), ...)",
    ),
    "an infinite divergence": (
        lambda: described(fp.RenyiDp, divergences=((2.0, math.inf),)),
        "divergence must be a finite number of at least 0, got inf; leave out this order",
    ),
    "a concentration of nothing": (
        lambda: described(fp.ConcentratedDp, rho=0.0),
        "rho, xi must not both be below 1e-30, got (0.0, 0.0)",
    ),
    "a concentration of everything": (
        lambda: described(fp.ConcentratedDp, rho=1e10, xi=1.0),
        "rho, xi must be at most 1e9, got (10000000000.0, 1.0); a larger one has no meaning",
    ),
    "a concentration below 0": (
        lambda: described(fp.ConcentratedDp, rho=1.0, xi=-1.0),
        "xi must be a finite number of at least 0, got -1.0; leave out the guarantee",
    ),
    "a guarantee about the last release": (
        lambda: described(fp.GaussianDp, mu=1.0, observer="final"),
        "observer must be 'aggregate' or 'server', got 'final'; a guarantee covers a whole release",
    ),
    "a zero where nothing is zeroed": (
        lambda: described(fp.GaussianDp, mu=1.0, zeroed_is_absent=True),
        "zeroed_is_absent must be False unless adjacency is 'zero_out', got True; it applies "
        "only to zero_out, not to 'replace_one'",
    ),
    # mixtures
    "moves that are one number": (
        lambda: mixture(sensitivities=1.0),
        "sensitivities must be a sequence of one or more numbers, got 1.0",
    ),
    "no chance": (
        lambda: mixture(probabilities=()),
        "probabilities must be a sequence of one or more numbers, got ()",
    ),
    "a move below 0": (
        lambda: mixture(sensitivities=(0.0, -1.0)),
        "sensitivities must be a finite number of at least 0, got -1.0",
    ),
    "a chance too many": (
        lambda: mixture(probabilities=(0.8, 0.1, 0.1)),
        "probabilities must have one entry per sensitivity, got (0.8, 0.1, 0.1)",
    ),
    "chances that miss some": (
        lambda: mixture(probabilities=(0.8, 0.1)),
        "probabilities must add up to 1, got (0.8, 0.1)",
    ),
    "moves of nobody": (
        lambda: mixture(sensitivities=(0.0, 0.0)),
        "sensitivities must have at least one entry above 0, got (0.0, 0.0)",
    ),
    "too many moves": (
        lambda: mixture(
            sensitivities=tuple(map(float, range(10**5))), probabilities=(1e-5,) * 10**5
        ),
        "sensitivities must have at most ... different values, got '100000 numbers'",
    ),
    # Fed-SMP's shares
    "more kept than there are": (
        lambda: sparse(kept=13),
        "kept must be at most dimension = 12, got 13",
    ),
    "a cohort of another size": (
        lambda: sparse().sampled(fp.FixedSize(4, population=9)),
        "cohort must equal the scheme's size = 4, got 5",
    ),
    "a cohort of other draws": (
        lambda: sparse().sampled(fp.WithReplacement(4, population=9)),
        "cohort must equal the scheme's draws = 4, got 5",
    ),
    "without an honest share there is no noise": (
        lambda: sparse(missing=3, colluding=2),
        "missing + colluding must be below cohort = 5, got 5; without an honest share there "
        "is no noise",
    ),
    "colluders of noise that is topped up": (
        lambda: sparse(topped_up=True, colluding=1),
        "colluding must be 0 if the noise is topped up, got 1; the colluders' part of the ...",
    ),
    "an update of another length": (
        lambda: sparse().contribution(np.ones(3), np.arange(4)),
        "update must have shape (12,), got (3,)",
    ),
    "an update that is not finite": (
        lambda: sparse().contribution(np.full(12, np.nan), np.arange(4)),
        "update must be finite, got 'a non-finite entry'; leave out the update of this client",
    ),
    "a mask of another length": (
        lambda: sparse().contribution(np.ones(12), np.arange(3)),
        "mask must have shape (4,), got (3,); pass the kept indices",
    ),
    "a mask of fractions": (
        lambda: sparse().contribution(np.ones(12), np.arange(4.0)),
        "mask must contain integers, got dtype('float64'); pass the kept indices as int64",
    ),
    "a mask behind the end": (
        lambda: sparse().contribution(np.ones(12), np.array([0, 1, 2, 12])),
        "mask must contain indices from 0 to 11, got (0, 12)",
    ),
    "a mask with one place twice": (
        lambda: sparse().contribution(np.ones(12), np.array([0, 1, 1, 2])),
        "mask must contain every index at most once, got 'an index twice'; pass the kept indices",
    ),
    # integer noise
    "a norm of many whole numbers": (
        lambda: whole(granularity=1e-8, bits=40, cohort=1, dimension=1, noise_multiplier=0.01),
        "granularity must be at least clip_norm / 3.35544e+07, got 1e-08; increase it",
    ),
    "noise of many whole numbers": (
        lambda: whole(granularity=1e-4, bits=40, noise_multiplier=1e3),
        "granularity must give the noise a std of at most 4.1943e+06 granularities, not "
        "1e+07, got 0.0001; use a coarser one, which takes fewer bits",
    ),
    "a sum of another length": (
        lambda: whole(seed=3).decoded(np.zeros(5)),
        "total must have shape (8,), got (5,)",
    ),
    "a sum of fractions": (
        lambda: whole(seed=3).decoded(np.full(8, 0.5)),
        "total must contain integers, got 'other entries'; pass the sum of the clients' messages",
    ),
    "a sum that is no number": (
        lambda: whole(seed=3).decoded(np.full(8, np.nan)),
        "total must contain integers, got 'other entries'; pass the sum of the clients' messages",
    ),
    # answers and counts
    "an answer that there is not": (
        lambda: fp.RandomizedResponse(chance=0.5, answers=3).release(np.array([0, 3])),
        "value must contain integers from 0 to 2, got array([0, 3])",
    ),
    "an answer between two": (
        lambda: fp.RandomizedResponse(chance=0.5, answers=3).release(0.5),
        "value must contain integers from 0 to 2, got array(0.5)",
    ),
    "a sum between two counts": (
        lambda: fp.DiscreteLaplace(noise_parameter=1.0).release(np.array([0.5])),
        "value must contain integers, got 'float64'; round contributions first",
    ),
    "numbers behind a mask": (
        lambda: STEP.release(np.ma.masked_array([1.0, 2.0], [True, False])),
        "value must be real numbers of at most double precision, got 'a masked array'",
    ),
    "complex numbers": (
        lambda: STEP.release(np.array([1j])),
        "value must be real numbers of at most double precision, got 'complex128'",
    ),
    "words": (
        lambda: STEP.release(np.array(["a"])),
        "value must be real numbers of at most double precision, got '<U1'",
    ),
    "a value that does not like to be one": (
        lambda: STEP.release(Stubborn()),
        "value must be numbers (RuntimeError: not today), got 'Stubborn'",
    ),
    # uploads
    "half of a curvature": (
        lambda: fp.NoisyGradientDescent(**DESCENT, strong_convexity=1.0),
        "strong_convexity, smoothness must be given together or not at all, got (1.0, None)",
    ),
    "the other half": (
        lambda: fp.FederatedLangevin(**LANGEVIN, smoothness=4.0),
        "strong_convexity, smoothness must be given together or not at all, got (None, 4.0)",
    ),
    "sizes of other steps": (
        lambda: fp.FederatedLangevin(**{**LANGEVIN, "step_size": (0.1, 0.2)}, steps=3),
        "step_size must be one size or one per step, 3 in all, got '2 sizes'",
    ),
    "too many steps": (
        lambda: fp.FederatedLangevin(**LANGEVIN, steps=10**6 + 1),
        "steps must be at most 1,000,000, got 1000001; upload more often",
    ),
    "noise beyond the doubles": (
        lambda: fp.NoisyGradientDescent(
            **{**DESCENT, "noise_std": 1e300, "sensitivity": 1e-300}
        ).privacy_loss("replace_one"),
        "noise over sensitivity must be finite, got inf; rescale both",
    ),
    # correlated noise
    "a factor whose columns are long": (
        lambda: correlated(factor=factors.Banded(2, weights=(1e50, 1e50))),
        "sensitivity must be from 1e-50 to 1e+50, got (...); divide the factor by its diagonal",
    ),
    "a matrix of other rounds": (
        lambda: correlated(factor=factors.Matrix(np.eye(3))),
        "rounds must equal the size of the matrix, 3, got 12",
    ),
    "more rows than a matrix has": (
        lambda: factors.Matrix(np.eye(3)).matrix(4),
        "rounds must be at most the size of the matrix, 3, got 4",
    ),
    "weights that are a word": (
        lambda: factors.Banded(2, weights="ab"),
        "weights must be a sequence of numbers, got 'ab'",
    ),
    "weights that are none": (
        lambda: factors.Banded(1, weights=()),
        "weights must be one or more finite numbers, got ()",
    ),
    "weights that are not finite": (
        lambda: factors.Banded(2, weights=(1.0, math.nan)),
        "weights must be one or more finite numbers, got (1.0, nan)",
    ),
    "weights beyond all": (
        lambda: factors.Banded(2, weights=(1.0, -1e60)),
        "weights must be at most 1e+50 in absolute value, got 1e+60",
    ),
    "rates that are no numbers": (
        lambda: Workload(rates=3.0).matrix(2),
        "rates must be a sequence of numbers, got 3.0",
    ),
    # randomness
    "bits that are none": (
        lambda: StoredDraws(NORMAL, bits=7),
        "bits must return bytes, got 7; use reproducible_bits for a public seed",
    ),
    "bits that are too few": (
        lambda: fresh_words(lambda count: b"\0" * (count - 1), 2),
        "bits must return the requested 16 bytes, got <function ...",
    ),
    "bits that are words": (
        lambda: fresh_words(lambda count: "0" * count, 2),
        "bits must return the requested 16 bytes, got <function ...",
    ),
    # schemes
    "chances of other clients": (
        lambda: SeparateProbabilities((0.5, 1.0)).draw(3, GENERATOR),
        "population must equal the number of chances, 2, got 3",
    ),
    "weights of other clients": (
        lambda: WeightedDraws(2, (0.5, 0.5)).draw(3, GENERATOR),
        "population must equal the number of weights, 2, got 3",
    ),
    **{
        f"half a unit for {scheme}": (
            lambda scheme=scheme: scheme.draw(2.5, GENERATOR),
            "population must be an integer of at least 0, got 2.5",
        )
        for scheme in (fp.Poisson(0.5), fp.Everyone(), fp.FixedSize(1, population=2))
    },
    "less than nobody": (
        lambda: fp.Everyone().draw(-1, GENERATOR),
        "population must be an integer of at least 0, got -1",
    ),
    "less than nobody, drawn apart": (
        lambda: fp.Poisson(0.5).draw(-1, GENERATOR),
        "population must be an integer of at least 0, got -1",
    ),
    **{
        f"no generator for {type(scheme).__name__}": (
            lambda draw=draw: draw(2, None),
            "generator must be a NumPy generator, got None; pass np.random.default_rng()",
        )
        for scheme, draw in (
            *(
                (s, s.draw)
                for s in (fp.Poisson(0.5), fp.Everyone(), SeparateProbabilities((0.5, 1.0)))
            ),
            *((s, s.draw) for s in (fp.FixedSize(1, population=2), WeightedDraws(2, (0.5, 0.5)))),
            *((s, s.draw) for s in (fp.WithReplacement(3, population=2),)),
            *((s, s.draw) for s in (fp.TruncatedPoisson(0.1, population=2, largest=1),)),
            *((s, s.epoch) for s in (fp.Shuffled(2), fp.RandomAllocation(2))),
        )
    },
    "a chance of nothing": (
        lambda: SeparateProbabilities((0.5, 0.0)),
        "chance must be a probability in (0, 1], got 0.0",
    ),
    "an epoch of other units": (
        lambda: fp.Shuffled(3, population=9).epoch(10, GENERATOR),
        "population must equal the scheme's population = 9, got 10",
    ),
    "a cohort of more than everybody": (
        lambda: fp.FixedSize(10, population=9),
        "size must be at most population = 9, got 10",
    ),
    # theory
    "a covariance of another size": (
        lambda: Normal(mean=np.zeros(2), covariance=np.eye(3)),
        "covariance must have shape (2, 2), got (3, 3)",
    ),
    "a law that diverged": (
        lambda: Normal(mean=np.array([math.inf]), covariance=np.eye(1)),
        "mean, covariance must be finite, got 'an entry that is not finite'; use smaller steps",
    ),
    "weights of three clients for two": (
        lambda: GaussianTarget(**BOX, weights=np.full(3, 1 / 3)),
        "weights must be 2 numbers above 0, got array([...",
    ),
    "a weight of nothing": (
        lambda: GaussianTarget(**BOX, weights=np.array([1.0, 0.0])),
        "weights must be 2 numbers above 0, got array([1., 0.])",
    ),
    "weights of half": (
        lambda: GaussianTarget(**BOX, weights=np.array([0.25, 0.25])),
        "weights must sum to 1, got 0.5; divide them by their sum",
    ),
    "steps of nothing": (
        lambda: varying_steps_factor([], []),
        "sizes must have one entry per slope, 0 (at least 1), got '0 sizes'",
    ),
    "a gap of more than all": (
        lambda: hidden_state_factor(1.0000001, 3),
        "gap must be at most 1, got 1.0000001",
    ),
    "somebody else": (
        lambda: server_or_final("aggregate"),
        "observer must be one of 'server' or 'final', got 'aggregate'",
    ),
    "a loss more convex than smooth": (
        lambda: PrivateSplitting(**{**PLT, "strong_convexity": 2.0}),
        "strong_convexity must be at most 1, got 2.0",
    ),
    "a step that does not contract": (
        lambda: PrivateSplitting(**{**PLT, "step_size": 1.4}),
        "step_size must be below 2 / (smoothness + 1 / penalty) = 1.33333, got 1.4",
    ),
}


def says(case, kind):
    """Raise unless a call is refused by an error of this kind, in these words."""
    call, wanted = case
    with pytest.raises(kind) as caught:
        call()
    assert fits(str(caught.value), wanted), str(caught.value)
    return caught.value


@pytest.mark.parametrize("what", VALUES)
def test_a_value_that_is_refused_is_named_with_its_rule(what):
    says(VALUES[what], fp.ParameterError)


def priced(run, adjacency, observer="aggregate"):
    return lambda: fp.epsilon(run(), delta=1e-3, adjacency=adjacency, observer=observer)


MANY = fp.FixedEpochs(4, at_most=2)

# Combinations without a theorem, and their whole messages.
COMBINATIONS = {
    "another adjacency than was stated": (
        priced(lambda: described(fp.GaussianDp, mu=1.0), "zero_out"),
        "GaussianDp was stated for adjacency='replace_one', not for 'zero_out'; account under "
        "'replace_one', or state a guarantee for the other adjacency: GaussianDp(..., "
        "adjacency='zero_out')",
    ),
    "a guarantee that the server does not keep": (
        priced(
            lambda: described(fp.ApproximateDp, guarantees=POINT, observer="aggregate"),
            "replace_one",
            "server",
        ),
        "this ApproximateDp was stated for observers who do not see the participants, not "
        "for the server; account for observer='aggregate', or state it with "
        "observer='server' if it holds for an observer who sees the participants",
    ),
    "moves of which two are not told": (
        priced(mixture, "replace_one"),
        "MixtureOfGaussians states how one unit changes the sum, not the direction between "
        "the changes of two units, got replace_one; account for add_remove or zero_out",
    ),
    "a drawn move that is drawn": (
        lambda: mixture().sampled(fp.Poisson(0.1)),
        "the unit is already sampled inside this mechanism, got Poisson(probability=0.1); "
        "use .in_cohort(scheme) to sample its client",
    ),
    "replaced slots of what is not one sum": (
        priced(
            lambda: fp.DiscreteLaplace(noise_parameter=1.0).sampled(fp.Poisson(0.1)), "replace_one"
        ),
        "T1 needs an absent unit to lose at most as much as a replaced one, which ... does not "
        "state (zeroed_is_absent, zeroing_replaces); sample it with FixedSize under "
        "replace_one, or account for observer='server', without amplification",
    ),
    "what leaving out loses is not known": (
        priced(lambda: described(fp.GaussianDp, mu=1.0).sampled(fp.Poisson(0.1)), "zero_out"),
        "the loss of an absent unit is not known for this mechanism: GaussianDp was stated ...",
    ),
    "several draws of what is not one sum": (
        priced(lambda: LAPLACE.sampled(fp.WithReplacement(3, population=9)), "zero_out"),
        "WithReplacement has theorems only for one Gaussian sum of clipped contributions, got "
        "Laplace(noise_multiplier=1.0, ...; use Poisson or FixedSize for this mechanism",
    ),
    "draws of nobody else": (
        priced(lambda: STEP.sampled(fp.WithReplacement(3, population=1)), "add_remove"),
        "WithReplacement can draw only this unit, got ...; account for zero_out",
    ),
    "a cohort that nobody else fills": (
        priced(lambda: STEP.sampled(fp.FixedSize(9, population=9)), "add_remove"),
        "a cohort of the whole population (...) cannot be filled from a data set with one unit "
        "less, so FixedSize has no add_remove here. These are covered: ...",
    ),
    "records without which no cohort is filled": (
        priced(lambda: RECORD.sampled(fp.FixedSize(8, population=9), held=2), "add_remove"),
        "without the client's records, a cohort cannot be filled (size above population - "
        "held), so FixedSize has no add_remove here; account for zero_out or replace_one, or "
        "use smaller cohorts",
    ),
    "one round of an epoch": (
        lambda: fp.RandomAllocation(4).draw(9, GENERATOR),
        "RandomAllocation draws 4 rounds together from 9 units; use epoch(population, generator)",
    ),
    "one batch of a shuffle": (
        lambda: fp.Shuffled(4).draw(9, GENERATOR),
        "Shuffled draws 4 rounds together from 9 units; use epoch(population, generator)",
    ),
    "who is on the list": (
        priced(lambda: STEP.sampled(fp.Poisson(0.1)), "add_remove", "server"),
        "Poisson has no theorem for adjacency=add_remove, observer=server (the list of "
        "participants shows membership); these are ...",
    ),
    "records of a client in correlated noise": (
        lambda: correlated().sampled(fp.Poisson(0.1), held=3),
        "no theorem covers held=3 records of one client in correlated noise; sample "
        "Gaussian(noise_multiplier=...) in every round",
    ),
    "somebody who leaves correlated noise": (
        priced(correlated, "add_remove"),
        "CorrelatedNoise has no theorem for add_remove, since the removal of a unit moves "
        "others to other rounds, as under Shuffled. Account for zero_out or replace_one, or "
        "state that no unit moves (participation with apart=True), ...",
    ),
    "one round's noise of many": (
        lambda: correlated().noise(np.zeros(3)),
        "the noise of one round depends on the rounds before; draw it with "
        "stream.begin(like), then stream.draw(memory) once per round",
    ),
    "a unit that came too soon": (
        priced(lambda: correlated().row(0, separation=3), "zero_out"),
        "a unit took part again after 3 rounds, or None times, more than FixedEpochs(... allows",
    ),
    "a unit that came too often": (
        priced(lambda: correlated(participation=MANY).row(0, participations=3), "zero_out"),
        "a unit took part again after None rounds, or 3 times, more than FixedEpochs(... allows",
    ),
    "epochs that a shuffle does not amplify": (
        lambda: correlated().sampled(fp.Shuffled(4)),
        "Shuffled(... with FixedEpochs(... and Banded has no amplification theorem; account "
        "the run without .sampled, or change it: these are covered: RandomAllocation(b) with "
        "...",
    ),
    "groups that move with who is there": (
        priced(lambda: correlated().sampled(fp.Poisson(0.5)), "add_remove"),
        "cyclic sampling has no theorem for add_remove unless the group of a unit does not "
        "depend on other units; use FixedEpochs(b, apart=True) and Poisson, got ...",
    ),
    "gradients that are not for leaving": (
        priced(lambda: fp.NoisyGradientDescent(**DESCENT), "zero_out"),
        "NoisyGradientDescent covers only adjacency='replace_one' (its sensitivity is that "
        "of a replaced record), not 'zero_out'",
    ),
    "a quadratic of no curvature": (
        lambda: fp.NoisyGradientDescent(**DESCENT).quadratic,
        "a quadratic attains T6 only with strong_convexity and smoothness and without radius, "
        "got (None, None, None)",
    ),
    "one whole number without a secure sum": (
        lambda: whole().single_uploads(),
        "without secure aggregation, a client's upload has only its own share of the noise; "
        "account DistributedDiscreteGaussian with cohort=1 and noise_multiplier=0.894427",
    ),
    "kinds that do not line up": (
        priced(
            lambda: fp.Parallel((STEP, LAPLACE)) + fp.Parallel((STEP, LAPLACE, LAPLACE * 2)),
            "zero_out",
        ),
        "rounds for [2, 3] kinds of units do not compose; let every round list the same kinds in "
        "the same order",
    ),
    "the worst of two kinds": (
        lambda: loss.AnyOf((loss.Gdp(1.0), loss.Gdp(2.0))).tails(np.zeros(1)),
        "the worst of 2 kinds of units has no curve, so it cannot be sampled, selected or mixed; "
        "apply the operation inside each kind of Parallel, or query one kind at a time",
    ),
    "kinds that share a draw": (
        priced(
            lambda: fp.Parallel(
                (
                    STEP.sampled(fp.FixedSize(3, population=9)),
                    LAPLACE.sampled(fp.FixedSize(3, population=9)),
                )
            ),
            "add_remove",
        ),
        "kinds with the same scheme may share a draw, and the slot of an ...",
    ),
    "a selection that shows every trial": (
        priced(lambda: fp.PrivateSelection(STEP, fp.PoissonTrials(3.0)), "zero_out", "server"),
        "PrivateSelection releases only the best trial, but observer='server' sees the "
        "participants and results of all trials; account for ...",
    ),
    "a release of nothing but a promise": (
        lambda: Blank().rescaled(2.0),
        "Blank cannot be accounted with 2 of its noise; define its method rescaled, or "
        "account the round manually",
    ),
}


@pytest.mark.parametrize("what", COMBINATIONS)
def test_what_no_theorem_covers_says_what_works(what):
    # No value is wrong by itself.
    assert not isinstance(says(COMBINATIONS[what], fp.UnsupportedCombination), ValueError)


CURVES = {
    "mu below 0": (lambda: loss.Gdp(-1.0), "Gdp: mu must be at least 0, got -1.0"),
    "mu that is none": (lambda: loss.Gdp(math.nan), "Gdp: mu must be at least 0, got nan"),
    "a chance of 1": (
        lambda: loss.Sampled(loss.Gdp(1.0), 1.0),
        r"Sampled: q = 1.0 must be in \(0, 1\); at 1 it is the inner curve",
    ),
    "an order of one half": (
        lambda: loss.RenyiPoints(((0.5, 1.0),)),
        r"RenyiPoints: orders must be finite and above 1, got \[0.5\]",
    ),
    "a divergence below 0": (
        lambda: loss.RenyiPoints(((2.0, -1.0),)),
        r"RenyiPoints: divergences must be finite, at least 0, got \[-1.0\]",
    ),
    "rounds that are none": (
        lambda: loss.Allocated(1.0, 0),
        "Allocated: rounds must be at least 1, got 0",
    ),
    "an infinite allocation": (
        lambda: loss.Allocated(math.inf, 3),
        "Allocated: mu must be finite and at least 0, got inf",
    ),
}


@pytest.mark.parametrize("what", CURVES)
def test_a_curve_that_is_none_is_never_made(what):
    call, words = CURVES[what]
    with pytest.raises(ValueError, match=words):
        call()


# The registry of what files can hold


def test_only_frozen_dataclasses_are_registered():
    @dataclass
    class Loose(Mechanism):
        size: float = 1.0

    class Plain:
        pass

    for kind in (Loose, Plain):
        with pytest.raises(fp.ParameterError) as caught:
            registered(kind)
        told = str(caught.value)
        assert "be a frozen dataclass" in told and kind.__name__ in told
        assert told.endswith("put @registered above @dataclass(frozen=True)")


def test_a_name_is_registered_once():
    with pytest.raises(fp.ParameterError) as caught:

        @registered
        @dataclass(frozen=True)
        class Gaussian(Mechanism):
            size: float = 1.0

    told = str(caught.value)
    assert told.startswith("kind must ") and "'" in told and "Gaussian" in told
    assert told.endswith("rename it; fedprivacy.mechanisms.gaussian.Gaussian has this name")


def test_a_registry_knows_its_own_kinds_only():
    schemes = Registry(lambda kind: hasattr(kind, "amplify"))
    assert schemes["Poisson"] is fp.Poisson and "Gaussian" not in schemes
    with pytest.raises(KeyError, match="Gaussian"):
        schemes["Gaussian"]
    record = {"type": "Gaussian", "version": 1, "fields": {"noise_multiplier": 1.0}}
    with pytest.raises(LedgerError, match="unknown type 'Gaussian'"):
        decode(record, schemes)


def test_a_file_of_a_factor_holds_one(tmp_path):
    path = tmp_path / "factor.json"
    factors.save(factors.Banded(2), path)
    assert factors.load(path) == factors.Banded(2)
    for text, words in {
        "{": "factor must be a JSON file, got ",
        "[]": "factor must have format 'fedprivacy factor 1'",
        '{"format": "other"}': "factor must have format 'fedprivacy factor 1'",
    }.items():
        path.write_text(text)
        with pytest.raises(fp.ParameterError) as caught:
            factors.load(path)
        assert str(caught.value).startswith(words) and "factor.json" in str(caught.value)
    path.write_text(
        '{"format": "fedprivacy factor 1", "factor": {"type": "Poisson", "version": 1, '
        '"fields": {"probability": 0.5}}}'
    )
    with pytest.raises(FedPrivacyError, match="Poisson"):
        factors.load(path)


@pytest.mark.parametrize("std", [1e-3, 1.0, 3e10])
@pytest.mark.parametrize("clip_norm", [1e-6, 1.0, 5.0])
def test_a_grid_is_a_power_of_two_far_below_noise_and_contributions(std, clip_norm):
    for places in (1, 20, 30):
        grid = grid_for(std, clip_norm, places)
        assert math.frexp(grid)[0] == 0.5
        # Never finer than requested, and coarser only to keep the larger below 2^32 spacings.
        fine = min(std, clip_norm) * 2.0**-places
        assert 0.5 * fine <= grid <= max(2.0 * fine, max(std, clip_norm) * 2.0**-31)
        assert max(std, clip_norm) / grid <= 2.0**32


@pytest.mark.parametrize("places", [0, 31, 1.5, -3])
def test_places_of_a_grid_are_few(places):
    with pytest.raises(fp.ParameterError) as caught:
        grid_for(1.0, 1.0, places)
    assert str(caught.value) == f"places must be an integer from 1 to 30, got {places}"
