"""The conda recipe says what pyproject.toml says."""

import tomllib

import yaml

from tests.common import ROOT

RECIPE = yaml.safe_load((ROOT / "recipe" / "recipe.yaml").read_text(encoding="utf-8"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def spaced(requirements):
    """Return requirements as conda writes them: ``numpy >=1.26``."""
    return [one.replace(">=", " >=") for one in requirements]


def test_the_recipe_has_the_dependencies_of_the_core():
    python = "python >=${{ python_min }}"
    assert RECIPE["requirements"]["run"] == [python, *spaced(PROJECT["dependencies"])]
    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]
    assert RECIPE["requirements"]["host"] == [python, "pip", *spaced(build["requires"])]
    assert f">={RECIPE['context']['python_min']}" == PROJECT["requires-python"]


def test_the_recipe_has_the_facts_of_the_project():
    assert RECIPE["context"]["version"] == PROJECT["version"]
    about = RECIPE["about"]
    assert about["license"] == PROJECT["license"] and about["summary"] == PROJECT["description"]
    assert about["license_file"] == PROJECT["license-files"]
    (command,) = PROJECT["scripts"].items()
    assert RECIPE["build"]["python"]["entry_points"] == [" = ".join(command)]
