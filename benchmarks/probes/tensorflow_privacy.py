"""TensorFlow Privacy: the statement of its accountant, for one run with two batch draws.

Only the module of the accountant is imported: the package needs an estimator of old TensorFlow.
"""

import importlib.util
import re
import sys
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

# This file has the name of the package, and its folder comes first on the path.
sys.path.append(sys.path.pop(0))

from probe import printed

home = Path(importlib.util.find_spec("tensorflow_privacy").origin).parent
for name in ("", "privacy", "privacy/analysis"):
    package = ModuleType(".".join(["tensorflow_privacy", *filter(None, name.split("/"))]))
    package.__path__ = [str(home / name)]
    sys.modules[package.__name__] = package

from tensorflow_privacy.privacy.analysis import compute_dp_sgd_privacy_lib as lib  # noqa: E402


def main():
    text = lib.compute_dp_sgd_privacy_statement(
        number_of_examples=60_000,
        batch_size=256,
        num_epochs=15,
        noise_multiplier=1.1,
        delta=1e-5,
        used_microbatching=False,
    )
    print(text)
    numbers = re.findall(r":\s+([\d.]+)\s*$", text, re.M)
    printed(
        [
            {
                "program": f"TensorFlow Privacy {version('tensorflow_privacy')}",
                "option": "statement: 60,000 records, batches of 256, 15 epochs, z 1.1",
                "clipped": "gradient of a record (of a microbatch with num_microbatches)",
                "noise": "z clip norms on the sum, as stated",
                "sampled": "shuffled batches of tf.data, by default",
                "printed": f"{' and '.join(numbers)}: each record once an epoch, and Poisson",
                "needs": "the second one needs Poisson batches; both add_remove",
                "ratio": 1.1,
                "run": {"sampling_probability": 256 / 60_000, "rounds": 3516},
            }
        ]
    )


main()
