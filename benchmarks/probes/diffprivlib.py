"""diffprivlib: noise of two Gaussian mechanisms, and its composition of 100 pure steps."""

import sys
import warnings
from importlib.metadata import version

# This file has the name of the package, and its folder comes first on the path.
sys.path.append(sys.path.pop(0))

from diffprivlib.accountant import BudgetAccountant
from diffprivlib.mechanisms import Gaussian, GaussianAnalytic
from probe import printed, std_of

warnings.filterwarnings("ignore")


def main():
    rows = []
    for kind in (Gaussian, GaussianAnalytic):
        made = kind(epsilon=1.0, delta=1e-5, sensitivity=1.0, random_state=1)
        std = std_of([made.randomise(0.0) for _ in range(20_000)])
        rows.append(
            {
                "program": f"diffprivlib {version('diffprivlib')}",
                "option": f"{kind.__name__}(epsilon 1, delta 1e-5, sensitivity 1)",
                "clipped": "nothing: sensitivity is an argument",
                "noise": f"{std:.3f}",
                "sampled": "-",
                "printed": "epsilon 1",
                "needs": "a change of at most the sensitivity",
                "ratio": std,
            }
        )
    account = BudgetAccountant(slack=1e-6)
    for _ in range(100):
        account.spend(0.1, 0.0)
    rows[0]["printed"] += f"; 100 steps of 0.1 with slack 1e-6: {account.total()[0]:.4f}"
    printed(rows)


main()
