"""Why answers of other libraries are wrong, each with the shortest script that shows it.

Every script was run with the version that the page names, and every cause was checked without this
package: `benchmarks/vector_proofs.py`.
"""

from typing import Any

CAUSES: dict[str, tuple[str, str]] = {
    "Replacement moves a sum by 2 C": (
        "The Renyi accountants count C under every relation. A caller who passes the noise over 2 C"
        " gets bounds that hold. Known as "
        "[differential-privacy#378](https://github.com/google/differential-privacy/issues/378).",
        """
from dp_accounting import GaussianDpEvent, NeighboringRelation
from dp_accounting.rdp import RdpAccountant

account = RdpAccountant(neighboring_relation=NeighboringRelation.REPLACE_ONE)
print(account.compose(GaussianDpEvent(1.0)).get_epsilon(1e-5))  # 4.7285; exact 9.9973
""",
    ),
    "A central limit theorem is not a bound": (
        "The constructor of Opacus's GDP accountant warns of this.",
        """
from opacus.accountants import create_accountant

account = create_accountant("gdp")
account.history = [(0.5, 0.01, 1)]
print(account.get_epsilon(1e-5))  # 0.2426; at least 3.0253
""",
    ),
    "A mu without its regret": (
        "gdpnum gives a mu and a regret, the error of the curve of this mu. Epsilon at a small"
        " delta lies beyond the rates that the mu was fitted to.",
        """
from gdpnum import CTDAccountant

account = CTDAccountant()
account.history = [(0.5, 0.01, 1000)]
print(account.get_mu_and_regret())  # mu 1.90: epsilon 9.39 at 1e-5; at least 13.36
""",
    ),
    "Power at small false-positive rates": (
        "riskcal and gdpnum take error rates from a distribution of losses on a lattice with cut"
        " tails. Coarser lattices are right here.",
        """
from riskcal.accountants import CTDAccountant

account = CTDAccountant()
account.history = [(1.0, 1.0, 1)]
print(1.0 - account.get_beta(alpha=1e-8))  # 1.2e-11; exact 1.994e-6
""",
    ),
    "An allowance that is too small": (
        "Opacus's PRV accountant adds .01 to an estimate. At this delta its error is larger.",
        """
from opacus.accountants import create_accountant

account = create_accountant("prv")
account.history = [(1.0, 0.01, 1000)]
print(account.get_epsilon(1e-12))  # 3.9131; exact 3.9143
""",
    ),
    "One answer of many": (
        "`PLDAccountant` composes a `RandomizedResponseDpEvent` once, whatever its count.",
        """
from dp_accounting import NeighboringRelation, RandomizedResponseDpEvent, SelfComposedDpEvent
from dp_accounting.pld import PLDAccountant

account = PLDAccountant(NeighboringRelation.REPLACE_ONE)
event = SelfComposedDpEvent(RandomizedResponseDpEvent(0.5, 2), 10)
print(account.compose(event).get_epsilon(1e-5))  # 1.0987; exact 10.9859
""",
    ),
    "Noise scale and its inverse": (
        "pfl's PRV accountant passes the scale b of Laplace noise, and prv-accountant takes 1 / b.",
        """
from pfl.privacy.privacy_accountant import PRVPrivacyAccountant

found = PRVPrivacyAccountant(10, 1.0, "laplace", delta=1e-5, noise_parameter=0.5)
print(found.epsilon)  # 5.006; at least 19.98
""",
    ),
}
UNKNOWN = "Not explained yet"
DOUBLED = {"dp_accounting_rdp", "flower_rdp", "autodp_rdp", "jax_privacy_events", "opendp_measures"}


def cause_of(adapter: str, case: Any) -> str:
    """Return the title of the cause of a wrong answer."""
    question = case.question
    if adapter in DOUBLED and question["relation"] == "REPLACE_ONE":
        return "Replacement moves a sum by 2 C"
    if adapter == "opacus_gdp":
        return "A central limit theorem is not a bound"
    if adapter == "gdpnum_mu":
        return "A mu without its regret"
    if question["ask"] == "power":
        return "Power at small false-positive rates"
    if adapter == "dp_accounting_pld" and "RandomizedResponse" in str(question["event"]):
        return "One answer of many"
    if adapter == "pfl_prv" and "Laplace" in question["words"]:
        return "Noise scale and its inverse"
    if adapter == "opacus_prv":
        return "An allowance that is too small"
    return UNKNOWN


def told(cause: str) -> str:
    """Return the words and the script of a cause."""
    text, script = CAUSES.get(cause, ("", ""))
    return f"{text}\n\n```python\n{script.strip()}\n```" if script else text
