"""A light install: its commands without the extras, and its dependencies."""

import subprocess
import sys
import tomllib

from tests.common import ROOT

CORE = {
    "numpy",
    "scipy",
    "dp-accounting",
    "msgspec",
    "pyyaml",
    "portalocker",
    "click",
    "jinja2",
}


def ran(*words):
    command = [sys.executable, str(ROOT / "tests" / "light_core.py"), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_every_command_without_the_extras_works_or_names_its_extra():
    done = ran("--hide")
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert done.stdout == "every command works, or names its extra\n"


def test_the_core_has_no_further_dependency():
    """A new one has to be worth its size, see the page about installing."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {one.partition(">=")[0] for one in project["dependencies"]} == CORE
