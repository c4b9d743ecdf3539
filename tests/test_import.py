"""The cost of `import fedprivacy`, and its public names."""

import inspect
import os
import subprocess
import sys
import types

import pytest

import fedprivacy
import fedprivacy as fp

HEAVY = [
    "torch",
    "matplotlib",
    "pandas",
    "dp_accounting",
    "sklearn",
    "arviz_stats",
    "jinja2",
]
COUNTED = """
import sys
calls = [0]
def count(frame, event, argument):
    calls[-1] += event == 'call'
sys.setprofile(count)
import numpy, scipy.special
calls.append(0)
import fedprivacy
fedprivacy.Gaussian
sys.setprofile(None)
print(calls[1] / calls[0])
"""
"""Calls of Python functions beside those of what has to be imported anyway: the same each time."""


def run(code: str, cache: str | None = None) -> str:
    """Run code in a fresh interpreter, byte code kept under ``cache``; return what it printed."""
    settings = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE" or not cache}
    settings |= {"PYTHONPYCACHEPREFIX": cache} if cache else {}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=settings)
    return done.stdout


def test_nothing_heavy_is_imported():
    code = "import sys, fedprivacy as fp; fp.Gaussian; print('\\n'.join(sys.modules))"
    modules = set(run(code).split())
    heavy = [name for name in [*HEAVY, "scipy.stats"] if name in modules]
    assert heavy == []


def test_import_adds_little_to_numpy_and_scipy_special(tmp_path):
    run(COUNTED, str(tmp_path))  # writes the byte code
    assert float(run(COUNTED, str(tmp_path))) < 0.8


@pytest.mark.parametrize("what", ["import fedprivacy", "from fedprivacy.cli.group import cli"])
def test_what_computes_is_imported_when_it_is_used(what):
    assert run(f"import sys; {what}; print('numpy' in sys.modules)") == "False\n"


def test_modules_work_without_the_package_being_used_before(tmp_path):
    """Names in files and names of attacked loops are found whatever was imported before."""
    with fp.Ledger.create(tmp_path / "run.ledger", unit="client", adjacency="zero_out") as ledger:
        ledger.intent(fp.Laplace(noise_multiplier=2.0), clip_norm=1.0, noise_std=2.0)
    path = str(tmp_path / "run.ledger")
    read = f"from fedprivacy.ledger import Ledger; print(len(Ledger.open({path!r}).rounds))"
    assert run(read) == "1\n"
    asked = (
        "from fedprivacy.audit.canaries import plant_named\n"
        "try: plant_named('nothing', None)\n"
        "except ValueError as problem: print(problem)"
    )
    assert "fed-plt" in run(asked)


def test_all_is_what_is_public():
    # Some names are imported when they are first used.
    for name in fedprivacy.__all__:
        assert getattr(fedprivacy, name) is not None
    submodules = {
        name
        for name, value in vars(fedprivacy).items()
        if isinstance(value, types.ModuleType) and name not in fedprivacy.__all__
    }
    public = {name for name in vars(fedprivacy) if not name.startswith("_")} - submodules
    assert sorted(public | {n for n in fedprivacy.__all__ if n.startswith("_")}) == sorted(
        fedprivacy.__all__
    )
    assert len(set(fedprivacy.__all__)) == len(fedprivacy.__all__)
    assert set(fedprivacy.__all__) <= set(dir(fedprivacy))


def test_a_room_that_has_the_name_of_a_function_is_both():
    import fedprivacy.audit as room

    assert inspect.ismodule(room) and room is fp.audit and room.planted
    judged = fp.audit(fp.Gaussian(noise_multiplier=2.0), claim=(5.0, 1e-5), adjacency="zero_out")
    assert judged.verdict == "HOLDS"
    assert inspect.signature(fp.audit) == inspect.signature(room.audit)


def test_training_is_loaded_when_it_is_used_or_says_what_it_needs():
    asked = "import fedprivacy as fp; fp.training"
    hidden = f"import sys; sys.modules['torch'] = None; {asked}"
    done = subprocess.run([sys.executable, "-c", hidden], capture_output=True, text=True)
    last = done.stderr.strip().splitlines()[-1]
    assert last == "AttributeError: training needs torch; pip install 'fedprivacy[train]'"
    pytest.importorskip("torch")
    late = asked.replace("; ", "; import sys; assert 'torch' not in sys.modules; ")
    subprocess.run([sys.executable, "-c", f"{late}.digits"], check=True)


def test_a_system_without_posix_locks_imports_and_reads(tmp_path):
    """As on Windows, where ``fcntl`` does not exist; records are read and numbers computed."""
    with fp.Ledger.create(tmp_path / "run.ledger", unit="client", adjacency="zero_out") as ledger:
        ledger.close()
    asked = (
        "import sys; sys.modules['fcntl'] = None; import fedprivacy as fp; "
        f"assert fp.Ledger.open({str(tmp_path / 'run.ledger')!r}).closed; "
        "assert fp.epsilon(fp.Gaussian(noise_multiplier=2.0), delta=1e-5, adjacency='zero_out')"
    )
    subprocess.run([sys.executable, "-c", asked], check=True)
