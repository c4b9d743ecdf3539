"""autodp: Renyi divergences, and its f-DP of one Gaussian."""

from importlib.metadata import version

from autodp import mechanism_zoo as zoo
from autodp.transformer_zoo import AmplificationBySampling, Composition
from common import event_of, parts

NAME, VERSION, ANSWERS = "autodp", version("autodp"), "upper"


def step(case, inner, sampling):
    # The sensitivity is the caller's: 2 C under replacement.
    noise = inner.get("noise_multiplier", 0.0) / (2.0 if case["relation"] == "REPLACE_ONE" else 1.0)
    if inner["type"] == "GaussianDpEvent":
        made = zoo.GaussianMechanism(sigma=noise)
    elif inner["type"] == "LaplaceDpEvent":
        made = zoo.LaplaceMechanism(b=noise)
    else:
        raise NotImplementedError(f"no {inner['type']}")
    kind = None if sampling is None else sampling["type"]
    if kind == "SampledWithoutReplacementDpEvent":
        if case["relation"] != "REPLACE_ONE":
            raise NotImplementedError("its theorem is about replacement")
        made.neighboring = "replace_one"
        rate = sampling["sample_size"] / sampling["source_dataset_size"]
        return AmplificationBySampling(PoissonSampling=False)(made, rate)
    if kind == "PoissonSampledDpEvent":
        if case["relation"] != "ADD_OR_REMOVE_ONE":
            raise NotImplementedError("its theorem is about adding and removing")
        gaussian = inner["type"] == "GaussianDpEvent"
        rate = sampling["sampling_probability"]
        return AmplificationBySampling()(made, rate, improved_bound_flag=gaussian)
    return made


def run(case):
    found = list(parts(event_of(case)))
    steps = [step(case, inner, sampling) for inner, sampling, _ in found]
    counts = [count for *_, count in found]
    return steps[0] if counts == [1] else Composition()(steps, counts)


def epsilon(case):
    return run(case).get_approxDP(case["delta"])
