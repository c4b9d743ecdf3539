"""Queries of each library. Every function takes (question, option) and returns (low, high).

``low`` is None if the library gives no lower end. ``option`` is the library's own precision
setting. Libraries are imported inside functions, because one process runs only one library.
"""

import math
from typing import Any

from questions import Question

Ends = tuple[float | None, float]


class CannotSay(Exception):
    """The library has no answer to this question."""


def only_sampled_gaussian(question: Question) -> list[tuple[float, float, int]]:
    """Return (noise, q, count) of every part; refuse anything else."""
    found = []
    for one in question["parts"]:
        kind, *rest = one["scheme"] or ["poisson", 1.0]
        if one["mechanism"] != "gaussian" or kind != "poisson":
            raise CannotSay
        found.append((one["noise"], rest[0], one["count"]))
    if question["adjacency"] != "add_remove":
        raise CannotSay
    return found


def fedprivacy_scheme(scheme: list[Any]) -> Any:
    import fedprivacy as fp

    kind, first, *rest = scheme
    make = {
        "poisson": lambda: fp.Poisson(first),
        "fixed": lambda: fp.FixedSize(first, population=rest[0]),
        "truncated": lambda: fp.TruncatedPoisson(first, population=rest[0], largest=rest[1]),
        "replacement": lambda: fp.WithReplacement(first, population=rest[0]),
        "shuffled": lambda: fp.Shuffled(rounds_per_epoch=first),
        "allocation": lambda: fp.RandomAllocation(rounds_per_epoch=first),
    }
    return make[kind]()


def fedprivacy_round(one: Any, adjacency: str) -> Any:
    import fedprivacy as fp

    if one["mechanism"] == "guarantee":
        return fp.ApproximateDp(guarantees=((one["noise"], 0.0),), adjacency=adjacency)
    make = {"gaussian": fp.Gaussian, "laplace": fp.Laplace}[one["mechanism"]]
    step = make(noise_multiplier=one["noise"])
    return step.sampled(fedprivacy_scheme(one["scheme"])) if one["scheme"] else step


def fedprivacy_run(question: Question) -> list[tuple[Any, int]]:
    adjacency = question["adjacency"]
    return [(fedprivacy_round(one, adjacency), one["count"]) for one in question["parts"]]


def fedprivacy_bound(question: Question, tolerance: float | None, name: str = "pld") -> Any:
    from fedprivacy.accountants import BY_NAME

    account = BY_NAME[name](tolerance=tolerance or 1e-3)
    for round_, count in fedprivacy_run(question):
        account.compose(round_.privacy_loss(question["adjacency"]), count)
    return account.epsilon(question["delta"])


def fedprivacy_epsilon(question: Question, tolerance: float | None) -> Ends:
    return fedprivacy_bound(question, tolerance).resolution


def fedprivacy_rdp(question: Question, _: float | None) -> Ends:
    return None, fedprivacy_bound(question, None, "rdp").upper


def fedprivacy_profile(question: Question, tolerance: float | None) -> Ends:
    """Return the sums of the lower and of the upper ends of all deltas."""
    import fedprivacy as fp

    [(round_, count)] = fedprivacy_run(question)
    found = fp.profile(
        round_ * count,
        epsilons=question["epsilons"],
        adjacency=question["adjacency"],
        tolerance=tolerance or 0.01,
    )
    return float(found.lower.sum()), float(found.upper.sum())


def fedprivacy_attained(question: Question, tolerance: float | None) -> Ends:
    """Return (the end that two named data sets attain, the certified upper end)."""
    bound = fedprivacy_bound(question, tolerance)
    return bound.lower, bound.upper


def fedprivacy_calibrate(question: Question, tolerance: float | None) -> Ends:
    import fedprivacy as fp

    [one] = question["parts"]
    found = fp.calibrate(
        lambda noise: (
            fedprivacy_round(one | {"noise": noise}, question["adjacency"]) * one["count"]
        ),
        epsilon=question["epsilon"],
        delta=question["delta"],
        adjacency=question["adjacency"],
        tolerance=tolerance or 1e-3,
    )
    return None, found.value


def fedprivacy_rounds(question: Question, adaptive: float | None) -> Ends:
    import fedprivacy as fp

    budget = fp.Budget(
        question["epsilon"],
        question["delta"],
        adjacency=question["adjacency"],
        adaptive=bool(adaptive),
    )
    [(round_, count)] = fedprivacy_run(question)
    done = 0
    while done < count and budget.allows(round_):
        budget.spend(round_)
        done += 1
    return None, done


def dp_relation(question: Question) -> Any:
    from dp_accounting.privacy_accountant import NeighboringRelation

    name = {"add_remove": "ADD_OR_REMOVE_ONE", "replace_one": "REPLACE_ONE"}
    return NeighboringRelation[name.get(question["adjacency"], "REPLACE_SPECIAL")]


def dp_event_of(one: Any) -> Any:
    from dp_accounting import dp_event

    noise = one["noise"]
    if one["mechanism"] == "guarantee":
        return dp_event.RandomizedResponseDpEvent(2.0 / (1.0 + math.exp(noise)), 2)
    kinds = {"gaussian": dp_event.GaussianDpEvent, "laplace": dp_event.LaplaceDpEvent}
    step = kinds[one["mechanism"]](noise)
    kind, *rest = one["scheme"] or [None]
    make = {
        None: lambda: step,
        "poisson": lambda: dp_event.PoissonSampledDpEvent(rest[0], step),
        "fixed": lambda: dp_event.SampledWithoutReplacementDpEvent(rest[1], rest[0], step),
        "truncated": lambda: dp_event.TruncatedSubsampledGaussianDpEvent(
            rest[1], rest[0], rest[2], noise
        ),
    }
    if kind not in make:
        raise CannotSay
    return make[kind]()


def dp_accountant(question: Question, kind: str, mesh: float | None) -> Any:
    from dp_accounting import pld, rdp

    relation = dp_relation(question)
    if kind == "rdp":
        return rdp.RdpAccountant(neighboring_relation=relation)
    mesh = mesh or 1e-4
    return pld.PLDAccountant(neighboring_relation=relation, value_discretization_interval=mesh)


def dp_epsilon(question: Question, kind: str, mesh: float | None) -> Ends:
    from dp_accounting.privacy_accountant import UnsupportedEventError

    account = dp_accountant(question, kind, mesh)
    try:
        for one in question["parts"]:
            account.compose(dp_event_of(one), one["count"])
    except UnsupportedEventError as refusal:
        raise CannotSay from refusal
    return None, account.get_epsilon(question["delta"])


def dp_pld(question: Question, mesh: float | None) -> Ends:
    if question["parts"][0]["mechanism"] == "guarantee":
        return dp_guarantees(question, mesh)
    return dp_epsilon(question, "pld", mesh)


def dp_guarantees(question: Question, mesh: float | None) -> Ends:
    """Compose stated guarantees: its PLD can build them, its accountant has no event for that."""
    from dp_accounting.pld import common
    from dp_accounting.pld import privacy_loss_distribution as pld

    [one] = question["parts"]
    stated = common.DifferentialPrivacyParameters(one["noise"], 0.0)
    step = pld.from_privacy_parameters(stated, mesh or 1e-4)
    return None, step.self_compose(one["count"]).get_epsilon_for_delta(question["delta"])


def dp_profile(question: Question, mesh: float | None) -> Ends:
    account, [one] = dp_accountant(question, "pld", mesh), question["parts"]
    account.compose(dp_event_of(one), one["count"])
    return None, float(sum(account.get_delta(question["epsilons"])))


def dp_rdp(question: Question, _: float | None) -> Ends:
    return dp_epsilon(question, "rdp", None)


def dp_both_ends(question: Question, mesh: float | None) -> Ends:
    """Return the numbers of its optimistic and of its pessimistic distribution."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    [(noise, q, count)] = only_sampled_gaussian(question)
    ends = []
    for pessimistic in (False, True):
        step = pld.from_gaussian_mechanism(
            noise,
            sampling_prob=q,
            value_discretization_interval=mesh or 1e-4,
            pessimistic_estimate=pessimistic,
        )
        ends.append(step.self_compose(count).get_epsilon_for_delta(question["delta"]))
    return ends[0], ends[1]


def dp_calibrate(question: Question, kind: str, mesh: float | None) -> Ends:
    import dp_accounting
    from dp_accounting.privacy_accountant import UnsupportedEventError

    [one] = question["parts"]

    def event(noise: float) -> Any:
        return dp_accounting.SelfComposedDpEvent(dp_event_of(one | {"noise": noise}), one["count"])

    try:
        value = dp_accounting.calibrate_dp_mechanism(
            lambda: dp_accountant(question, kind, mesh),
            event,
            question["epsilon"],
            question["delta"],
            tol=1e-3,
        )
    except UnsupportedEventError as refusal:
        raise CannotSay from refusal
    return None, value


def dp_pld_calibrate(question: Question, mesh: float | None) -> Ends:
    return dp_calibrate(question, "pld", mesh)


def dp_rdp_calibrate(question: Question, _: float | None) -> Ends:
    return dp_calibrate(question, "rdp", None)


def dp_rdp_rounds(question: Question, _: float | None) -> Ends:
    account, [one] = dp_accountant(question, "rdp", None), question["parts"]
    return rounds_of(
        question,
        lambda: account.compose(dp_event_of(one)),
        lambda: account.get_epsilon(question["delta"]),
    )


def rounds_of(question: Question, step: Any, ask: Any) -> Ends:
    done = 0
    while done < question["parts"][0]["count"]:
        step()
        if ask() > question["epsilon"]:
            break
        done += 1
    return None, done


def opacus_epsilon(question: Question, kind: str, **precision: float) -> Ends:
    from opacus.accountants import create_accountant

    account = create_accountant(kind)
    account.history = only_sampled_gaussian(question)
    return None, float(account.get_epsilon(question["delta"], **precision))


def opacus_rdp(question: Question, _: float | None) -> Ends:
    return opacus_epsilon(question, "rdp")


def opacus_prv(question: Question, error: float | None) -> Ends:
    return opacus_epsilon(question, "prv", eps_error=error or 0.01)


def opacus_gdp(question: Question, _: float | None) -> Ends:
    return opacus_epsilon(question, "gdp")


def opacus_calibrate(question: Question, kind: str) -> Ends:
    from opacus.accountants.utils import get_noise_multiplier

    [(_, q, count)] = only_sampled_gaussian(question)
    value = get_noise_multiplier(
        target_epsilon=question["epsilon"],
        target_delta=question["delta"],
        sample_rate=q,
        steps=count,
        accountant=kind,
    )
    return None, value


def opacus_rdp_calibrate(question: Question, _: float | None) -> Ends:
    return opacus_calibrate(question, "rdp")


def opacus_prv_calibrate(question: Question, _: float | None) -> Ends:
    return opacus_calibrate(question, "prv")


def opacus_rdp_rounds(question: Question, _: float | None) -> Ends:
    from opacus.accountants import create_accountant

    account, [(noise, q, _count)] = create_accountant("rdp"), only_sampled_gaussian(question)
    return rounds_of(
        question,
        lambda: account.step(noise_multiplier=noise, sample_rate=q),
        lambda: account.get_epsilon(question["delta"]),
    )


def prv_rounds(question: Question) -> list[Any]:
    import prv_accountant as prv

    [first, *_] = question["parts"]
    if first["scheme"] is None and first["mechanism"] == "laplace":
        return [prv.LaplaceMechanism(1.0 / one["noise"]) for one in question["parts"]]
    if first["mechanism"] == "guarantee":
        return [prv.PureDPMechanism(one["noise"]) for one in question["parts"]]
    parts = only_sampled_gaussian(question)
    return [prv.PoissonSubsampledGaussianMechanism(q, noise) for noise, q, _ in parts]


def prv_account(question: Question, error: float | None) -> tuple[Any, list[int]]:
    from prv_accountant import PRVAccountant

    counts = [one["count"] for one in question["parts"]]
    account = PRVAccountant(
        prv_rounds(question),
        eps_error=error or 0.1,
        delta_error=question["delta"] / 1000,
        max_self_compositions=counts,
    )
    return account, counts


def prv_epsilon(question: Question, error: float | None) -> Ends:
    account, counts = prv_account(question, error)
    low, _, high = account.compute_epsilon(question["delta"], counts)
    return float(low), float(high)


def prv_profile(question: Question, error: float | None) -> Ends:
    """Compose once, then evaluate every delta with its own ``compute_delta``."""
    account, counts = prv_account(question, error)
    composed, width = account.compute_composition(counts), account.eps_error
    ends = [0.0, 0.0]
    for epsilon in question["epsilons"]:
        ends[0] += float(composed.compute_delta_estimate(epsilon + width)) - account.delta_error
        ends[1] += float(composed.compute_delta_estimate(epsilon - width)) + account.delta_error
    return ends[0], ends[1]


def prv_calibrate(question: Question, error: float | None) -> Ends:
    from prv_accountant.dpsgd import find_noise_multiplier

    [(_, q, count)] = only_sampled_gaussian(question)
    target = question["epsilon"], question["delta"]
    return None, float(find_noise_multiplier(q, count, *target, eps_error=error or 0.1))


def autodp_round(one: Any) -> Any:
    from autodp import mechanism_zoo as zoo
    from autodp.transformer_zoo import AmplificationBySampling

    make = {
        "gaussian": lambda noise: zoo.GaussianMechanism(sigma=noise),
        "laplace": lambda noise: zoo.LaplaceMechanism(b=noise),
        "guarantee": lambda epsilon: zoo.PureDP_Mechanism(eps=epsilon),
    }
    step = make[one["mechanism"]](one["noise"])
    kind, *rest = one["scheme"] or [None]
    if kind == "poisson":
        # The sharper bound applies to its Gaussian.
        sharper = one["mechanism"] == "gaussian"
        return AmplificationBySampling()(step, rest[0], improved_bound_flag=sharper)
    if kind == "fixed":
        step.neighboring = "replace_one"
        return AmplificationBySampling(PoissonSampling=False)(step, rest[0] / rest[1])
    return step


def autodp_epsilon(question: Question, _: float | None) -> Ends:
    from autodp.transformer_zoo import Composition

    kinds = {one["scheme"] and one["scheme"][0] for one in question["parts"]}
    if question["adjacency"] != "add_remove" and kinds != {"fixed"}:
        raise CannotSay
    # Under replacement, its Laplace would need another noise.
    if question["adjacency"] != "add_remove" and question["parts"][0]["mechanism"] != "gaussian":
        raise CannotSay
    steps = [autodp_round(one) for one in question["parts"]]
    counts = [one["count"] for one in question["parts"]]
    return None, float(Composition()(steps, counts).get_approxDP(question["delta"]))


def autodp_calibrate(question: Question, _: float | None) -> Ends:
    from autodp.calibrator_zoo import generalized_eps_delta_calibrator
    from autodp.mechanism_zoo import SubsampleGaussianMechanism

    [(_, q, count)] = only_sampled_gaussian(question)
    found = generalized_eps_delta_calibrator()(
        SubsampleGaussianMechanism,
        question["epsilon"],
        question["delta"],
        [0.1, 30.0],
        params={"prob": q, "sigma": None, "coeff": count},
        para_name="sigma",
        name="calibrated",
    )
    return None, float(found.params["sigma"])


def riskcal_epsilon(question: Question, mesh: float | None) -> Ends:
    from riskcal.accountants import CTDAccountant

    account = CTDAccountant()
    account.history = only_sampled_gaussian(question)
    return None, account.get_epsilon(delta=question["delta"], grid_step=mesh or 1e-4)


def riskcal_calibrate(question: Question, _: float | None) -> Ends:
    from riskcal.accountants import CTDAccountant
    from riskcal.calibration.blackbox import find_noise_multiplier_for_epsilon_delta

    [(_, q, count)] = only_sampled_gaussian(question)
    value = find_noise_multiplier_for_epsilon_delta(
        accountant=CTDAccountant,
        sample_rate=q,
        num_steps=count,
        epsilon=question["epsilon"],
        delta=question["delta"],
    )
    return None, value


ASK = {
    "fedprivacy": {
        "pld": {
            "epsilon": fedprivacy_epsilon,
            "attained": fedprivacy_attained,
            "calibrate": fedprivacy_calibrate,
            "rounds": fedprivacy_rounds,
            "profile": fedprivacy_profile,
        },
        "rdp": {"epsilon": fedprivacy_rdp},
    },
    "dp-accounting": {
        "PLD": {"epsilon": dp_pld, "calibrate": dp_pld_calibrate, "profile": dp_profile},
        "RDP": {"epsilon": dp_rdp, "calibrate": dp_rdp_calibrate, "rounds": dp_rdp_rounds},
        "PLD, both ends": {"epsilon": dp_both_ends},
    },
    "prv-accountant": {
        "PRV": {"epsilon": prv_epsilon, "calibrate": prv_calibrate, "profile": prv_profile}
    },
    "opacus": {
        "RDP": {
            "epsilon": opacus_rdp,
            "calibrate": opacus_rdp_calibrate,
            "rounds": opacus_rdp_rounds,
        },
        "PRV": {"epsilon": opacus_prv, "calibrate": opacus_prv_calibrate},
        "GDP": {"epsilon": opacus_gdp},
    },
    "autodp": {"RDP": {"epsilon": autodp_epsilon, "calibrate": autodp_calibrate}},
    "riskcal": {"PLD": {"epsilon": riskcal_epsilon, "calibrate": riskcal_calibrate}},
}
"""library -> method -> wanted quantity -> function."""

MODULES = {
    "fedprivacy": ["fedprivacy.accountants", "fedprivacy.questions.calibrate"],
    "dp-accounting": ["dp_accounting.pld", "dp_accounting.rdp"],
    "prv-accountant": ["prv_accountant.dpsgd"],
    "opacus": ["opacus.accountants.utils"],
    "autodp": ["autodp.mechanism_zoo", "autodp.calibrator_zoo", "autodp.transformer_zoo"],
    "riskcal": ["riskcal.accountants", "riskcal.calibration.blackbox"],
}
"""Modules that are imported before the clock starts."""


def answer(library: str, method: str, question: Question, option: float | None) -> Ends:
    """Run the query; raise CannotSay if the library does not support it."""
    wanted = question["wanted"]
    function = ASK[library][method].get(wanted)
    if function is None:
        raise CannotSay
    low, high = function(question, option)
    return low, float(high) if high is not None else math.nan
