"""Bad calls of dp-accounting's interface: one plain line, of a type that its callers catch.

Each call is made here and to dp-accounting itself. Where that refuses on purpose, ours is an
instance of the same type.
"""

import math
import re
import subprocess
import sys
from types import SimpleNamespace

import attr
import dp_accounting as dpa
import numpy as np
import pytest
from dp_accounting.pld import pld_privacy_accountant, privacy_loss_distribution
from dp_accounting.rdp import rdp_privacy_accountant

from fedprivacy.errors import ParameterError
from fedprivacy.integrations import dp_accounting as ours

ADD = dpa.NeighboringRelation.ADD_OR_REMOVE_ONE
ONE = dpa.NeighboringRelation.REPLACE_ONE
GAUSS = dpa.GaussianDpEvent(1.0)
THEIRS = SimpleNamespace(
    **{name: value for name, value in vars(privacy_loss_distribution).items() if name[0] != "_"},
    PLDAccountant=pld_privacy_accountant.PLDAccountant,
    RdpAccountant=rdp_privacy_accountant.RdpAccountant,
)
UNSUPPORTED = dpa.UnsupportedEventError
BOTH = "make both with fedprivacy.integrations.dp_accounting"


@attr.s(frozen=True, slots=True, auto_attribs=True)
class Unknown(dpa.DpEvent):
    """An event that nobody knows."""

    level: float = 1.0


def foreign():
    return privacy_loss_distribution.from_gaussian_mechanism(1.0)


def certified_one():
    return ours.from_gaussian_mechanism(1.0)


def pld(m, *arguments, **named):
    return m.PLDAccountant(*arguments, **named).compose(GAUSS)


def rdp(m, *arguments, **named):
    return m.RdpAccountant(*arguments, **named).compose(GAUSS)


def gauss(m, *arguments, **named):
    return m.from_gaussian_mechanism(*(arguments or (1.0,)), **named)


# Name: the call, the type of the refusal, and words of its line.
CALLS = {
    # events
    "an unknown event": (
        lambda m: m.PLDAccountant().compose(Unknown()),
        UNSUPPORTED,
        "no loss is known for a Unknown; these events are supported: 'GaussianDpEvent'",
    ),
    "an unknown event within another": (
        lambda m: m.RdpAccountant().compose(dpa.ComposedDpEvent([GAUSS, Unknown()])),
        UNSUPPORTED,
        r"no loss is known for a Unknown; .* caused by subevent Unknown\(level=1.0\)",
    ),
    "a sample of an unknown event": (
        lambda m: m.RdpAccountant().compose(dpa.PoissonSampledDpEvent(0.1, Unknown())),
        UNSUPPORTED,
        "no loss is known for a Unknown",
    ),
    "an event that says that it is unsupported": (
        lambda m: m.PLDAccountant().compose(dpa.UnsupportedDpEvent()),
        UNSUPPORTED,
        "no loss is known for a UnsupportedDpEvent",
    ),
    "a sample of a sample": (
        lambda m: m.PLDAccountant().compose(
            dpa.PoissonSampledDpEvent(0.1, dpa.PoissonSampledDpEvent(0.1, GAUSS))
        ),
        UNSUPPORTED,
        "the unit is already sampled inside this mechanism",
    ),
    "randomised response with units that come and go": (
        lambda m: m.PLDAccountant(ADD).compose(dpa.RandomizedResponseDpEvent(0.1, 3)),
        UNSUPPORTED,
        "got add_remove; account for replace_one or zero_out",
    ),
    "a tree with units that come and go": (
        lambda m: m.RdpAccountant(neighboring_relation=ADD).compose(
            dpa.SingleEpochTreeAggregationDpEvent(1.0, [1])
        ),
        UNSUPPORTED,
        "not for 'add_remove'; account under 'zero_out'",
    ),
    "draws with replacement": (
        lambda m: m.PLDAccountant(ONE).compose(dpa.SampledWithReplacementDpEvent(100, 10, GAUSS)),
        UNSUPPORTED,
        "no loss is known for a SampledWithReplacementDpEvent: ",
    ),
    "noise below 0": (
        lambda m: m.PLDAccountant().compose(dpa.GaussianDpEvent(-1.0)),
        ValueError,
        "noise_multiplier must be a finite number of at least 0, got -1.0",
    ),
    "noise that is no number": (
        lambda m: m.PLDAccountant().compose(dpa.GaussianDpEvent("much")),
        UNSUPPORTED,
        "noise_multiplier must be a finite number of at least 0, got 'much'; pass a number",
    ),
    "a probability of 2": (
        lambda m: m.PLDAccountant().compose(dpa.PoissonSampledDpEvent(2.0, GAUSS)),
        ValueError,
        r"sampling_probability must be a probability in \(0, 1\], got 2.0",
    ),
    "an event no times, in an event": (
        lambda m: m.RdpAccountant().compose(dpa.SelfComposedDpEvent(GAUSS, 0)),
        ValueError,
        "count must be an integer of at least 1, got 0",
    ),
    "an event no times": (
        lambda m: m.PLDAccountant().compose(GAUSS, 0),
        ValueError,
        "`count` must be positive. Found 0",
    ),
    "an event half a time": (
        lambda m: m.PLDAccountant().compose(GAUSS, 0.5),
        TypeError,
        "`count` must be an integer",
    ),
    "a name in place of an event": (
        lambda m: m.RdpAccountant().compose("gaussian"),
        TypeError,
        "`event` must be `DpEvent`. Found <class 'str'>",
    ),
    # accountants
    "a relation by its name": (
        lambda m: m.PLDAccountant("add"),
        ValueError,
        "neighboring_relation must be one of NeighboringRelation's 'ADD_OR_REMOVE_ONE'",
    ),
    "a lattice without spacing": (
        lambda m: pld(m, ADD, -1.0).get_epsilon(1e-5),
        ValueError,
        "value_discretization_interval must be a finite number above 0, got -1.0",
    ),
    "an order below 1": (
        lambda m: rdp(m, [0.5, 2.0]),
        ValueError,
        r"orders must be one or more numbers of at least 1, got \[0.5, 2.0\]",
    ),
    "no order": (
        lambda m: rdp(m, []).get_epsilon(1e-5),
        ValueError,
        r"orders must be one or more numbers of at least 1, got \[\]",
    ),
    "orders in words": (
        lambda m: m.RdpAccountant(["two"]),
        ValueError,
        r"orders must be a number or an array of numbers, got \['two'\]",
    ),
    "a delta of 2": (
        lambda m: pld(m).get_epsilon(2.0),
        ValueError,
        "target_delta must lie between 0 and 1, got 2.0",
    ),
    "several deltas": (
        lambda m: pld(m).get_epsilon([1e-5, 1e-6]),
        ValueError,
        "target_delta must lie between 0 and 1, .*; pass a number",
    ),
    "no delta": (
        lambda m: rdp(m).get_epsilon(None),
        ValueError,
        "target_delta must lie between 0 and 1, got None; pass a number",
    ),
    "an epsilon below 0": (
        lambda m: rdp(m).get_delta(-1.0),
        ValueError,
        "target_epsilon must be a number of at least 0, got -1.0",
    ),
    "an optimal order for an epsilon below 0": (
        lambda m: rdp(m).get_delta_and_optimal_order(-1.0),
        ValueError,
        "Epsilon cannot be negative. Found -1.0",
    ),
    "a false-positive rate of 2": (
        lambda m: gauss(m).get_true_positive_rates(2.0),
        ValueError,
        "false_positive_rates must lie between 0 and 1, got 2.0",
    ),
    "false-positive rates in words": (
        lambda m: gauss(m).get_true_positive_rates("half"),
        ValueError,
        "false_positive_rates must be a number or an array of numbers, got 'half'",
    ),
    "a mu from a rate of 0": (
        lambda m: gauss(m).get_gdp_parameter_estimate(np.array([0.0])),
        ValueError,
        r"false_positive_rates must begin in \(0, 1/2\], got 0.0",
    ),
    # distributions, and dp-accounting's own among them
    "ours with theirs": (lambda m: certified_one().compose(foreign()), ValueError, BOTH),
    "theirs with ours": (lambda m: foreign().compose(certified_one()), ValueError, BOTH),
    "theirs with ours, asked before": (
        lambda m: foreign().validate_composable(certified_one()),
        ValueError,
        BOTH,
    ),
    "theirs with ours, for a delta": (
        lambda m: foreign().get_delta_for_epsilon_for_composed_pld(certified_one(), 1.0),
        ValueError,
        BOTH,
    ),
    "masses of ours with masses of theirs": (
        lambda m: certified_one()._pmf_remove.compose(foreign()._pmf_remove),
        ValueError,
        BOTH,
    ),
    "masses of theirs with masses of ours": (
        lambda m: foreign()._pmf_remove.compose(certified_one()._pmf_remove),
        ValueError,
        BOTH,
    ),
    "a distribution of given masses": (
        lambda m: ours.PrivacyLossDistribution(foreign()._pmf_remove),
        UNSUPPORTED,
        "use from_gaussian_mechanism and its like, or dp_accounting's own class",
    ),
    "a distribution with an event": (
        lambda m: certified_one().compose(GAUSS),
        ValueError,
        f"dp_event.GaussianDpEvent, which has no certificate; {BOTH}",
    ),
    "two relations": (
        lambda m: certified_one().compose(gauss(ours, neighboring_relation=ONE)),
        ValueError,
        "ADD_OR_REMOVE_ONE and REPLACE_ONE; make both with the same neighboring_relation",
    ),
    "two estimates": (
        lambda m: gauss(m).compose(gauss(m, 1.0, pessimistic_estimate=False)),
        ValueError,
        "stimation types (differ|are different)",
    ),
    "a mixture": (
        lambda m: certified_one().compute_mixture(foreign(), 0.5),
        UNSUPPORTED,
        "has no certified composition here; for truncated samples use from_truncated",
    ),
    "a distribution no times": (
        lambda m: gauss(m).self_compose(0),
        ValueError,
        "num_times must be an integer of at least 1, got 0",
    ),
    "an epsilon that is NaN": (
        lambda m: gauss(m).get_delta_for_epsilon(math.nan),
        ValueError,
        "epsilon must be a number .* got nan; NaN is never accepted",
    ),
    "epsilons in two lengths": (
        lambda m: gauss(m).get_delta_for_epsilon([[1.0], [1.0, 2.0]]),
        ValueError,
        "epsilon must be a number or an array of numbers",
    ),
    # constructors
    "no standard deviation": (
        lambda m: gauss(m, 0.0),
        ValueError,
        "standard_deviation must be a finite number above 0, got 0.0",
    ),
    "no sensitivity": (
        lambda m: gauss(m, 1.0, sensitivity=0),
        ValueError,
        "sensitivity must be a finite number above 0, got 0",
    ),
    "a sample below 0": (
        lambda m: gauss(m, 1.0, sampling_prob=-0.1),
        ValueError,
        r"sampling_prob must be a probability in \(0, 1\], got -0.1",
    ),
    "a constructor's relation by its name": (
        lambda m: gauss(m, 1.0, neighboring_relation="add"),
        ValueError,
        "neighboring_relation must be ADD_OR_REMOVE_ONE or",
    ),
    "no Laplace noise": (
        lambda m: m.from_discrete_laplace_mechanism(0.0),
        ValueError,
        "parameter must be a finite number above 0, got 0.0",
    ),
    "truncated noise": (
        lambda m: m.from_discrete_gaussian_mechanism(1.0, truncation_bound=-3),
        ValueError,
        "for a sampled sum use fedprivacy.DistributedDiscreteGaussian",
    ),
    "one answer": (
        lambda m: m.from_randomized_response(0.5, 1),
        ValueError,
        "num_buckets must be an integer of at least 2, got 1",
    ),
    "answers with units that come and go": (
        lambda m: m.from_randomized_response(0.5, 3, neighboring_relation=ADD),
        ValueError,
        "neighboring_relation must be REPLACE_ONE or REPLACE_SPECIAL",
    ),
    "a pair in place of parameters": (
        lambda m: m.from_privacy_parameters((1.0, 1e-5)),
        ValueError,
        "must be dp_accounting.pld.common.DifferentialPrivacyParameters, got",
    ),
    "a sensitivity without a probability": (
        lambda m: m.from_mixture_gaussian_mechanism(1.0, [1.0, 2.0], [1.0]),
        ValueError,
        r"sampling_probs must have one entry for each of the 2 sensitivities, got \[1.0\]",
    ),
    "nobody to sample": (
        lambda m: m.from_truncated_subsampled_gaussian_mechanism(0, 0.1, 10, 1.0),
        ValueError,
        "dataset_size must be an integer of at least 1, got 0",
    ),
    # a block of certified answers
    "a block within a block": (
        lambda m: within_another(),
        ParameterError,
        r"certified\(\) is open already; use one block",
    ),
    "a report to a name": (
        lambda m: ours.certified("report.txt").__enter__(),
        ParameterError,
        "out must be an open text file or None, got 'report.txt'",
    ),
}

ACCIDENTS = (AttributeError, OverflowError, TypeError)
"""What dp-accounting raises where it checks nothing; its checks of types are in backticks."""


def within_another():
    with open("/dev/null", "w") as out, ours.certified(out), ours.certified(out):
        pass


def refusal(call, module):
    try:
        call(module)
    except Exception as error:
        return error
    return None


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("what", CALLS)
def test_a_bad_call_is_refused_in_one_plain_line_of_a_known_type(what):
    call, kind, words = CALLS[what]
    found = refusal(call, ours)
    assert isinstance(found, kind), found
    assert re.search(words, str(found)) and "\n" not in str(found)
    theirs = refusal(call, THEIRS)
    by_accident = isinstance(theirs, ACCIDENTS) and "`" not in str(theirs)
    assert theirs is None or by_accident or isinstance(found, type(theirs)), theirs


def test_a_script_that_is_not_there_is_told_in_one_line():
    command = [sys.executable, "-m", "fedprivacy.integrations.dp_accounting", "nowhere.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("'nowhere.py' is not a script; usage: python -m")
    assert done.stderr.count("\n") == 1
