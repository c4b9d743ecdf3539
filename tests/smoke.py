"""Checks of an installed package in an environment that contains only this package.

Not a test of pytest: ``make dist`` runs it where the package was installed from its wheel or sdist.
"""

import json
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import fedprivacy as fp


def command(*words: str) -> str:
    """Run the installed command and return what it prints."""
    program = Path(sys.executable).with_name("fedprivacy")
    done = subprocess.run([program, *words], capture_output=True, text=True, check=True)
    return done.stdout


def accounts() -> None:
    """Account, calibrate, audit, report."""
    step = fp.Gaussian(noise_multiplier=1.4, unit="client")
    run = step.sampled(fp.Poisson(1 / 60)) * 180
    bound = fp.epsilon(run, delta=7e-5, adjacency="add_remove")
    assert 0.6301 < bound.lower <= bound.upper < 0.6302, bound
    asked = ["--noise-multiplier", "1.4", "--sampling-probability", "0.0166667", "--rounds", "180"]
    told = json.loads(
        command("epsilon", *asked, "--delta", "7e-5", "--adjacency", "add_remove", "--json")
    )
    assert abs(told["upper"] - bound.upper) < 1e-4, told
    Path("run.toml").write_text(
        'noise_multiplier = 1.4\nrounds = 180\nsampling = "fixed"\ncohort = 100\n'
        'population = 6000\nunit = "client"\nadjacency = "add_remove"\nepsilon = 0.6303\n'
        "delta = 7e-5\n"
    )
    judged = fp.audit("run.toml")
    assert judged.verdict == "FAILS", judged.verdict
    page = fp.report(judged, "page.html").read_text()
    assert ("<svg" in page) != ("pip install &#39;fedprivacy[report]&#39;" in page)
    assert ("<svg" in page) == (find_spec("matplotlib") is not None)


def trains() -> None:
    """Train, on the command line and in Python."""
    asked = ["--method", "dp-fedavg", "--clients", "50", "--rounds", "3", "--epsilon", "8"]
    said = command("train", *asked, "--delta", "1e-3", "--ledger", "run.ledger", "--json")
    assert json.loads(said)["audit"]["verdict"] == "HOLDS", said
    assert fp.audit("run.ledger").verdict == "HOLDS"


if __name__ == "__main__":
    import os

    os.chdir(tempfile.mkdtemp())
    assert "site-packages" in (fp.__file__ or ""), fp.__file__
    accounts()
    if "--train" in sys.argv:
        trains()
    else:
        heavy = [name for name in ("torch", "matplotlib", "sklearn", "flint") if find_spec(name)]
        assert heavy == [], heavy
    print(
        f"fedprivacy {fp.__version__} works",
        "with torch" if "--train" in sys.argv else "without torch",
    )
