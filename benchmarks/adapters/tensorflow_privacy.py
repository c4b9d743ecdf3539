"""TensorFlow Privacy: the numbers of its statement, from its file, which needs no TensorFlow."""

import importlib.util
from importlib.metadata import distribution, version

from common import one, sampled_gaussians

NAME, VERSION, ANSWERS = "TensorFlow Privacy", version("tensorflow-privacy"), "upper"
NAMED = "tensorflow_privacy/privacy/analysis/compute_dp_sgd_privacy_lib.py"
SPEC = importlib.util.spec_from_file_location(
    "statement", distribution("tensorflow-privacy").locate_file(NAMED)
)
STATEMENT = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(STATEMENT)


def epsilon(case):
    if (case.get("run") or {}).get("type") in ("Run", "HeldMechanism"):
        return users(case)
    noise, rate, steps = one(sampled_gaussians(case))
    return STATEMENT._compute_dp_sgd_example_privacy(
        steps * rate,
        noise,
        case["delta"],
        used_microbatching=False,
        poisson_subsampling_probability=rate,
    )


def users(case):
    run, steps = case["run"], 1
    if run["type"] == "Run" and len(run["fields"]["parts"]) == 1:
        [[run, steps]] = run["fields"]["parts"]
    scheme = run["fields"].get("scheme", {})
    fits = run["type"] == "HeldMechanism" and scheme["type"] == "Poisson"
    if not fits or case["adjacency"] != "add_remove":
        raise NotImplementedError("only users whose records are drawn independently")
    rate = scheme["fields"]["probability"]
    return STATEMENT._compute_dp_sgd_user_privacy(
        steps * rate,
        run["fields"]["inner"]["fields"]["noise_multiplier"],
        case["delta"],
        run["fields"]["held"],
        used_microbatching=False,
        poisson_subsampling_probability=rate,
    )
