"""jax_privacy: the accountants of its training, with distributions of losses."""

from importlib.metadata import version

from common import event_of, one, parts, whole
from jax_privacy import accounting

NAME, VERSION, ANSWERS = "jax_privacy training", version("jax_privacy"), "upper"
TRAINING = accounting.DpsgdTrainingAccountant(dp_accountant_config=accounting.PldAccountantConfig())
USERS = accounting.DpsgdTrainingUserLevelAccountant(
    dp_accountant_config=accounting.PldAccountantConfig()
)
POISSON = accounting.SamplingMethod.POISSON
FIXED = accounting.SamplingMethod.FIXED_BATCH_SIZE


def epsilon(case):
    if (case.get("run") or {}).get("type") in ("Run", "HeldMechanism"):
        return users(case)
    inner, sampling, steps = one(list(parts(event_of(case))))
    kind = inner["type"] if sampling is None else sampling["type"]
    rest = {"sampling_method": POISSON}
    if kind == "TruncatedSubsampledGaussianDpEvent":
        if case["adjacency"] != "zero_out":
            raise NotImplementedError("the number of records is public")
        size, population = whole(inner["sampling_probability"])
        population = inner["dataset_size"]
        size = round(inner["sampling_probability"] * population)
        if size / population != inner["sampling_probability"]:
            raise NotImplementedError("only whole batches")
        rest["truncated_batch_size"] = inner["truncated_batch_size"]
    elif inner["type"] != "GaussianDpEvent":
        raise NotImplementedError("only Gaussian sums")
    elif kind == "SampledWithoutReplacementDpEvent":
        size, population = sampling["sample_size"], sampling["source_dataset_size"]
        rest["sampling_method"] = FIXED
    elif case["adjacency"] == "replace_one":
        raise NotImplementedError("Poisson batches are for other adjacencies")
    else:
        size, population = whole(1.0 if sampling is None else sampling["sampling_probability"])
    params = accounting.DpParams(
        noise_multipliers=inner["noise_multiplier"],
        num_samples=population,
        delta=case["delta"],
        batch_size=size,
        **rest,
    )
    return TRAINING.compute_epsilon(steps, params)


def users(case):
    run, steps = case["run"], 1
    if run["type"] == "Run" and len(run["fields"]["parts"]) == 1:
        [[run, steps]] = run["fields"]["parts"]
    if run["type"] != "HeldMechanism":
        raise NotImplementedError("no accountant for this run")
    scheme = run["fields"]["scheme"]
    if scheme["type"] == "Poisson":
        if case["adjacency"] == "replace_one":
            raise NotImplementedError("Poisson batches are for other adjacencies")
        (size, population), method = whole(scheme["fields"]["probability"]), POISSON
    else:
        size, population = scheme["fields"]["size"], scheme["fields"]["population"]
        method = FIXED
    params = accounting.DpParams(
        noise_multipliers=run["fields"]["inner"]["fields"]["noise_multiplier"],
        num_samples=population,
        delta=case["delta"],
        batch_size=size,
        examples_per_user=run["fields"]["held"],
        sampling_method=method,
    )
    return USERS.compute_epsilon(steps, params)
