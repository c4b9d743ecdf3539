"""FedML: the noise of local differential privacy and of dp_clip.

Only the packages of its differential privacy are imported: the others need torchvision.
"""

import importlib.util
import logging
import sys
from collections import OrderedDict
from importlib.metadata import version
from pathlib import Path
from types import ModuleType, SimpleNamespace

# This file has the name of the package, and its folder comes first on the path.
sys.path.append(sys.path.pop(0))

found = importlib.util.find_spec("fedml")
HOME = Path(found.origin).parent
for name, folder in {
    "fedml": HOME,
    "fedml.core": HOME / "core",
    "fedml.core.common": HOME / "core/common",
}.items():
    package = ModuleType(name)
    package.__path__ = [str(folder)]
    sys.modules[name] = package

import torch  # noqa: E402
from fedml.core.dp.fedml_differential_privacy import FedMLDifferentialPrivacy  # noqa: E402
from fedml.core.dp.frames.dp_clip import DP_Clip  # noqa: E402
from probe import printed, std_of  # noqa: E402

logging.disable(logging.CRITICAL)
SIZE = 40_000


def local(kind):
    args = SimpleNamespace(
        enable_dp=True,
        dp_solution_type="ldp",
        mechanism_type=kind,
        epsilon=1.0,
        delta=1e-5,
        sensitivity=1.0,
    )
    privacy = FedMLDifferentialPrivacy()
    privacy.init(args)
    small, large = (
        privacy.add_local_noise(OrderedDict(w=torch.full((SIZE,), value)))["w"]
        for value in (0.0, 1e6)
    )
    return std_of(small), float(large.mean())


def clip():
    args = SimpleNamespace(
        clipping_norm=1.0,
        noise_multiplier=1.0,
        train_data_num_in_total=100,
        client_num_per_round=10,
        client_num_in_total=100,
    )
    frame = DP_Clip(args)
    model = OrderedDict((name, torch.zeros(SIZE)) for name in ("a", "b", "c"))
    return [std_of(each) for each in frame.add_noise(model, 10.0).values()]


def main():
    name = f"FedML {version('fedml')}"
    rows = []
    for kind in ("gaussian", "laplace"):
        std, mean = local(kind)
        rows.append(
            {
                "program": name,
                "option": f"ldp {kind}, epsilon 1, delta 1e-5, sensitivity 1",
                "clipped": f"nothing: values of 1e6 leave as {mean:.0f}",
                "noise": f"{std:.3f} on each number of the model",
                "sampled": "each client by itself",
                "printed": "none; epsilon is an argument",
                "needs": "a clip that the caller does; the whole epsilon for each array",
                "ratio": None,
            }
        )
    stds = clip()
    rows.append(
        {
            "program": name,
            "option": "dp_clip, noise_multiplier 1, clipping_norm 1, 3 arrays, qw 10",
            "clipped": "update of a client",
            "noise": "on the arrays in turn " + ", ".join(f"{std:.2e}" for std in stds),
            "sampled": "fixed cohorts",
            "printed": "none",
            "needs": "one std for all arrays; each array divides it again",
            "ratio": None,
        }
    )
    printed(rows)


main()
