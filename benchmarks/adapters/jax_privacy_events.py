"""jax_privacy: the events of its experimental module, with the accountants that it names."""

from importlib.metadata import version

import dp_accounting
from common import event_of, one, parts
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from jax_privacy.experimental import accounting

NAME, VERSION, ANSWERS = "jax_privacy events", version("jax_privacy"), "upper"
REFUSES = (dp_accounting.UnsupportedEventError,)


def epsilon(case):
    relation = dp_accounting.NeighboringRelation[case["relation"]]
    inner, sampling, steps = one(list(parts(event_of(case))))
    kind = inner["type"] if sampling is None else sampling["type"]
    account = PLDAccountant(relation)
    if kind == "TruncatedSubsampledGaussianDpEvent":
        event = accounting.truncated_dpsgd_event(
            inner["noise_multiplier"],
            steps,
            sampling_prob=inner["sampling_probability"],
            num_examples=inner["dataset_size"],
            truncated_batch_size=inner["truncated_batch_size"],
        )
    elif inner["type"] != "GaussianDpEvent" or sampling is None:
        raise NotImplementedError("only sampled Gaussian sums")
    elif kind == "PoissonSampledDpEvent":
        rate = sampling["sampling_probability"]
        event = accounting.dpsgd_event(inner["noise_multiplier"], steps, sampling_prob=rate)
    else:
        account = RdpAccountant(neighboring_relation=relation)
        event = accounting.fixed_dpsgd_event(
            inner["noise_multiplier"],
            steps,
            dataset_size=sampling["source_dataset_size"],
            batch_size=sampling["sample_size"],
        )
    return account.compose(event).get_epsilon(case["delta"])
