"""Flower, the Renyi accountant of its servers."""

import json
from importlib.metadata import version

from common import event_of, parts, whole
from flwr.supercore.privacy_accounting import (
    GaussianPrivacyEvent,
    NeighboringRelation,
    PrivacyConfig,
    SamplingMethod,
)
from flwr.supercore.privacy_accounting.rdp_accountant import RdpAccountant

NAME, VERSION, ANSWERS = "Flower", version("flwr"), "upper"
REFUSES = (ValueError,)  # of its own checks
METHODS = {
    None: SamplingMethod.NO_AMPLIFICATION,
    "PoissonSampledDpEvent": SamplingMethod.POISSON,
    "SampledWithoutReplacementDpEvent": SamplingMethod.WITHOUT_REPLACEMENT,
}


def releases(case, event):
    """Return the sampling and the events of a run, which must all be sampled alike."""
    found, kinds = [], set()
    for inner, sampling, count in parts(event):
        if inner["type"] != "GaussianDpEvent":
            raise NotImplementedError("only Gaussian sums")
        kind = sampling and sampling["type"]
        kinds.add(kind)
        if kind == "SampledWithoutReplacementDpEvent":
            size, population = sampling["sample_size"], sampling["source_dataset_size"]
        else:
            size, population = whole(sampling["sampling_probability"] if sampling else 1.0)
        found.append((GaussianPrivacyEvent(inner["noise_multiplier"], size, population), count))
    if len(kinds) > 1 or len({one.population_size for one, _ in found}) > 1:
        raise NotImplementedError("one configuration has one sampling")
    return METHODS[kinds.pop()], found


def account(case, events):
    if case["relation"] == "REPLACE_SPECIAL":
        raise NotImplementedError("it knows two relations")
    found = None
    for method, part in (releases(case, event) for event in events):
        config = PrivacyConfig(
            target_delta=case.get("delta") or 1e-5,
            population_size=part[0][0].population_size,
            neighboring_relation=NeighboringRelation[case["relation"]],
            sampling_method=method,
        )
        state = None if found is None else json.loads(json.dumps(found.state_dict()))
        found = RdpAccountant(config)
        if state is not None:
            found.load_state_dict(state)
        for event, count in part:
            found.compose(event, count)
    return found


def epsilon(case):
    return account(case, [event_of(case)]).get_epsilon(case["delta"])


def delta(case):
    return account(case, [event_of(case)]).get_delta(case["epsilon"])


def resumed(case):
    return account(case, case["pieces"]).get_epsilon(case["delta"])
