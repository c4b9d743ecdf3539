"""Measure what the privacy options of other programs do, by running them, and write the page.

    python benchmarks/frameworks.py                    measure all, write docs/frameworks.md
    python benchmarks/frameworks.py --only flower pfl  measure some, keep the other results
    python benchmarks/frameworks.py --page             only write the page

Each program is installed in an environment of its own in a temporary folder and removed after its
probe (``probes/NAME.py``) ran. ``--environments DIR`` keeps the environments there and uses those
that exist. The std of noise is measured on 20,000 values or more, so its relative error is below
2 % with probability 0.9999. The intervals of epsilon allow for that.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from papers.pages import put
from tables import table

import fedprivacy as fp

HERE = Path(__file__).parent
PROBES = HERE / "probes"
KEPT = HERE / "results" / "frameworks.json"
TABLE = HERE / "results" / "frameworks.md"
"""The table, which the page includes."""
PAGE = "../frameworks.md"
"""Relative to the papers' pages."""
DELTA = 1e-5
ERROR = 0.02
"""Largest relative error of a measured std."""

TORCH = "torch==2.13.0"
PROGRAMS: dict[str, list[list[str]]] = {
    "flower": [["flwr[simulation]==1.42.0"]],
    "nvflare": [["nvflare==2.9.0", TORCH]],
    "fedml": [["fedml==0.9.6", TORCH]],
    "appfl": [["appfl==1.12.0", TORCH]],
    "fedbiomed": [["fedbiomed==6.4.0", TORCH]],
    "pfl": [["pfl[pytorch]==0.6.0", TORCH]],
    # Its releases for this Python ask for another one; the measured module runs with it.
    "fl4health": [
        ["--no-deps", "--ignore-requires-python", "fl4health==0.4.2"],
        ["flwr==1.7.0", "numpy<2.4", "dp-accounting==0.6.0", "opacus==1.6.0", TORCH],
    ],
    "flsim": [["flsim==0.1.0", TORCH]],
    "openfl": [["openfl==1.9", TORCH]],
    "opacus": [["opacus==1.6.0", TORCH]],
    "tensorflow_privacy": [["tensorflow-privacy==0.9.0"]],
    "jax_privacy": [["jax-privacy==2.0.0"]],
    "optax_dpsgd": [["optax==0.2.8", "jax==0.10.2"]],
    "diffprivlib": [["diffprivlib==0.6.6", "scikit-learn<1.9"]],
}
"""Probe -> arguments of the calls of pip that install its program."""


def main() -> None:
    """Measure, keep the results, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=[*PROGRAMS], default=[*PROGRAMS])
    parser.add_argument("--environments", type=Path, help="folder that keeps the environments")
    parser.add_argument("--page", action="store_true", help="write the page from kept results")
    given = parser.parse_args()
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    if not given.page:
        for name in given.only:
            print(f"{name} ...", flush=True)
            kept[name] = measured(name, given.environments)
            ordered = {each: kept[each] for each in PROGRAMS if each in kept}
            KEPT.write_text(json.dumps(ordered, indent=1) + "\n")
    write(kept)


def measured(name: str, environments: Path | None) -> dict[str, Any]:
    """Return the rows of one program's probe, with our interval for each."""
    with tempfile.TemporaryDirectory() as folder:
        home = (environments or Path(folder)) / name
        python = home / "bin" / "python"
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", home], check=True)
            for arguments in PROGRAMS[name]:
                pip = [python, "-m", "pip", "install", "--quiet", *arguments]
                subprocess.run(pip, check=True, cwd=folder)
        probe = PROBES / f"{name}.py"
        done = subprocess.run(
            [python, probe],
            check=True,
            capture_output=True,
            text=True,
            cwd=folder,
            timeout=900,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        )
    rows = json.loads(done.stdout.splitlines()[-1])
    for row in rows:
        row["epsilon"] = interval(row)
    return {
        "command": f"python benchmarks/frameworks.py --only {name}",
        "measured": datetime.now(UTC).date().isoformat(),
        "rows": rows,
    }


def interval(row: dict[str, Any]) -> list[float] | None:
    """Return the certified epsilon at DELTA, for every std within the error of the measurement."""
    ratio, run = row.pop("ratio"), row.pop("run", None)
    if not ratio:
        return None
    ends = []
    for value, end in ((ratio * (1 + ERROR), "lower"), (ratio * (1 - ERROR), "upper")):
        made = fp.Gaussian(noise_multiplier=value)
        if run is not None:
            made = made.sampled(fp.Poisson(run["sampling_probability"])) * run["rounds"]
        bound = fp.epsilon(made, delta=DELTA, adjacency="add_remove")
        ends.append(float(f"{getattr(bound, end):.4g}"))
    return ends


def write(kept: dict[str, Any]) -> None:
    """Write the table, and the counts on the page."""
    rows = []
    for found in kept.values():
        for row in found["rows"]:
            true = "-" if row["epsilon"] is None else "[{:g}, {:g}]".format(*row["epsilon"])
            cells = [row[key] for key in ("program", "option", "clipped", "noise", "sampled")]
            rows.append([*cells, row["printed"], true, row["needs"]])
    head = ["program", "option", "what is clipped", "measured noise", "who is sampled how"]
    head += ["epsilon that it states", "epsilon measured", "the promise holds with"]
    TABLE.write_text(table(head, [[str(each) for each in row] for row in rows]) + "\n")
    day = max(found["measured"] for found in kept.values())
    programs = len({row[0] for row in rows})
    put(PAGE, "count", f"{len(rows)} options of {programs} programs, measured until {day}.")


if __name__ == "__main__":
    main()
