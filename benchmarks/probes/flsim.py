"""FLSim: noise of its Gaussian privacy engine on an average, and the epsilon that it logs.

Only the modules of the noise are imported: others have defaults that Python 3.11 refuses.
"""

import importlib.util
import logging
import sys
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

# This file has the name of the package, and its folder comes first on the path.
sys.path.append(sys.path.pop(0))

home = Path(importlib.util.find_spec("flsim").submodule_search_locations[0])
for name in ("common", "utils", "utils/fl"):
    package = ModuleType(f"flsim.{name.replace('/', '.')}")
    package.__path__ = [str(home / name)]
    sys.modules[package.__name__] = package

import torch  # noqa: E402
from flsim.privacy.common import PrivacySetting  # noqa: E402
from flsim.privacy.privacy_engine import GaussianPrivacyEngine  # noqa: E402
from flsim.privacy.user_update_clip import UserUpdateClipper  # noqa: E402
from probe import printed, std_of  # noqa: E402

logging.disable(logging.CRITICAL)
WIDE = 200


def main():
    setting = PrivacySetting(noise_multiplier=1.0, clipping_value=1.0, target_delta=1e-5)
    engine = GaussianPrivacyEngine(setting, users_per_round=10, num_total_users=100)
    model = torch.nn.Linear(WIDE, WIDE, bias=False)
    engine.attach(model)
    torch.nn.init.zeros_(model.weight)
    # The server passes the clip over the sum of the weights, here 10.
    engine.add_noise(model, 1.0 / 10)
    std = std_of(model.weight.detach())
    torch.nn.init.constant_(model.weight, 3.0)
    UserUpdateClipper().clip(model, max_norm=1.0)
    norm = float(model.weight.norm()) / 10
    engine.steps = 100
    spent = engine.get_privacy_spent()
    printed(
        [
            {
                "program": f"FLSim {version('flsim')}",
                "option": "noise_multiplier 1, clipping_value 1, 10 of 100 users, 100 rounds",
                "clipped": "weighted update of a user, one norm over all arrays",
                "noise": f"{std:.4f} on the average; one user moves it by {norm:.4f}",
                "sampled": "by the active user selector: uniform, in turn, or fixed",
                "printed": f"{spent.epsilon:.4f} (RDP, for Poisson sampling at 0.1)",
                "needs": "Poisson sampling, add_remove, a public sum of weights",
                "ratio": std / norm,
                "run": {"sampling_probability": 0.1, "rounds": 100},
            }
        ]
    )


main()
