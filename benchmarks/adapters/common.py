"""What the adapters share: events from JSON, and the parts of a run."""

import math
import pickle
from fractions import Fraction


def event_of(case, event=None):
    """Return the JSON event of a case; refuse a run that no event says."""
    event = event or case["event"]
    if event is None:
        raise NotImplementedError("no event of dp-accounting says this run")
    return event


def filled(event, value):
    """Return an event with a value for the noise multiplier that is asked for."""
    if not isinstance(event, dict):
        return event
    return {
        k: value if k == "noise_multiplier" and v is None else filled(v, value)
        for k, v in event.items()
    }


def built(event):
    """Return dp-accounting's object of a JSON event."""
    from dp_accounting import dp_event

    if isinstance(event, list):
        return [built(each) for each in event]
    if not isinstance(event, dict):
        return event
    kind = getattr(dp_event, event["type"], None)
    if kind is None:
        raise NotImplementedError(f"this version has no {event['type']}")
    return kind(**{name: built(value) for name, value in event.items() if name != "type"})


def parts(event, count=1):
    """Yield (innermost event, sampling event or None, count) of a run's parts."""
    if event["type"] == "ComposedDpEvent":
        for each in event["events"]:
            yield from parts(each, count)
    elif event["type"] == "SelfComposedDpEvent":
        yield from parts(event["event"], count * event["count"])
    elif "event" in event:
        yield event["event"], event, count
    else:
        yield event, None, count


def sampled_gaussians(case, event=None, relations=("ADD_OR_REMOVE_ONE",)):
    """Return (noise multiplier, sampling probability, count) of the parts; refuse all else."""
    if case["relation"] not in relations:
        raise NotImplementedError("it knows one relation")
    found = []
    for inner, sampling, count in parts(event_of(case, event)):
        known = sampling is None or sampling["type"] == "PoissonSampledDpEvent"
        if inner["type"] != "GaussianDpEvent" or not known:
            raise NotImplementedError("only Gaussian sums with Poisson sampling")
        rate = 1.0 if sampling is None else sampling["sampling_probability"]
        found.append((inner["noise_multiplier"], rate, count))
    return found


def sampled_sums(event):
    """Yield ("gaussian" or "laplace", noise multiplier, probability, count); refuse all else."""
    for inner, sampling, count in parts(event):
        name = {"GaussianDpEvent": "gaussian", "LaplaceDpEvent": "laplace"}.get(inner["type"])
        if name is None or (sampling and sampling["type"] != "PoissonSampledDpEvent"):
            raise NotImplementedError("only Gaussian and Laplace sums with Poisson sampling")
        rate = sampling["sampling_probability"] if sampling else 1.0
        yield name, inner["noise_multiplier"], rate, count


def one(found):
    """Return the only part."""
    if len(found) != 1:
        raise NotImplementedError("only rounds that are all alike")
    return found[0]


def whole(rate):
    """Return a number of units and of the population with the given rate."""
    near = Fraction(rate).limit_denominator(10**7)
    if not math.isclose(near, rate, rel_tol=1e-12):
        raise NotImplementedError("only rates of whole numbers")
    return near.numerator, near.denominator


def from_dp_accounting(make):
    """Return the functions of an adapter for one of dp-accounting's accountants."""
    import dp_accounting

    def accountant(case):
        return make(dp_accounting.NeighboringRelation[case["relation"]])

    def epsilon(case):
        return accountant(case).compose(built(event_of(case))).get_epsilon(case["delta"])

    def delta(case):
        return accountant(case).compose(built(event_of(case))).get_delta(case["epsilon"])

    def resumed(case):
        account = accountant(case)
        for piece in case["pieces"]:
            account = pickle.loads(pickle.dumps(account)).compose(built(piece))
        return account.get_epsilon(case["delta"])

    def noise_multiplier(case):
        return dp_accounting.calibrate_dp_mechanism(
            lambda: accountant(case),
            lambda value: built(filled(event_of(case), value)),
            case["epsilon"],
            case["delta"],
            tol=1e-3,
        )

    return epsilon, delta, resumed, noise_multiplier


def opacus_functions(kind):
    """Return the functions of an adapter for one of Opacus's accountants."""
    from opacus.accountants import create_accountant
    from opacus.accountants.utils import get_noise_multiplier

    def record(account, found):
        # As its `step` keeps them: equal neighbours are one entry.
        for noise, rate, count in found:
            *_, last = account.history or [(None, None, 0)]
            if last[:2] == (noise, rate):
                account.history[-1] = (noise, rate, last[2] + count)
            elif kind == "gdp" and account.history:
                raise NotImplementedError("its step refuses another noise or rate")
            else:
                account.history.append((noise, rate, count))

    def epsilon(case):
        account = create_accountant(kind)
        record(account, sampled_gaussians(case))
        try:
            return account.get_epsilon(case["delta"])
        except ValueError as refusal:
            if "Floating point errors" not in str(refusal):
                raise
            raise NotImplementedError(str(refusal)) from refusal

    def resumed(case):
        account = create_accountant(kind)
        for piece in case["pieces"]:
            state = account.state_dict()
            account = create_accountant(kind)
            # An empty history cannot be loaded.
            if state["history"]:
                account.load_state_dict(state)
            record(account, sampled_gaussians(case, piece))
        return account.get_epsilon(case["delta"])

    def noise_multiplier(case):
        _, rate, steps = one(sampled_gaussians(case))
        return get_noise_multiplier(
            target_epsilon=case["epsilon"],
            target_delta=case["delta"],
            sample_rate=rate,
            steps=steps,
            accountant=kind,
            epsilon_tolerance=1e-3 * case["epsilon"],
        )

    return epsilon, resumed, noise_multiplier


def pfl_functions(kind):
    """Return the names of an adapter for one of pfl's accountants."""
    from importlib.metadata import version

    from pfl.privacy import privacy_accountant

    make = getattr(privacy_accountant, f"{kind}PrivacyAccountant")

    def account(case, **given):
        if case["relation"] != "ADD_OR_REMOVE_ONE":
            raise NotImplementedError("it knows one relation")
        if not 0.0 < case.get("delta", 0.5) < 1.0:
            raise NotImplementedError("delta must lie in (0, 1)")
        name, noise, rate, count = one(list(sampled_sums(event_of(case))))
        if kind == "PRV" and name == "laplace" and rate < 1.0:
            raise NotImplementedError("this accountant samples Gaussian sums")
        if noise is not None:
            given["noise_parameter"] = noise
        try:
            return make(count, rate, name, **given)
        # Its other errors are not about the question.
        except ValueError as refusal:
            if "Floating point errors" not in str(refusal):
                raise
            raise NotImplementedError(str(refusal)) from refusal

    def epsilon(case):
        return account(case, delta=case["delta"]).epsilon

    def delta(case):
        if case["epsilon"] == 0.0:
            raise NotImplementedError("an epsilon of 0 means that none is given")
        return account(case, epsilon=case["epsilon"]).delta

    def noise_multiplier(case):
        return account(case, epsilon=case["epsilon"], delta=case["delta"]).noise_parameter

    answers = "estimate" if kind == "PRV" else "upper"
    return f"pfl {kind}", version("pfl"), answers, epsilon, delta, noise_multiplier
