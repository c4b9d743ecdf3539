"""Kernels in C++, built when they are asked for: with g++, for this processor alone."""

import ctypes
import hashlib
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from torch import Tensor

HERE = Path(__file__).parent
BUILT = HERE / "progress"
"""Where what is compiled is kept: not where anybody else may put a file of its name."""
OPTIONS = ["-O3", "-march=native", "-ffp-contract=fast", "-fno-math-errno", "-std=c++17"]


@cache
def compiled(source: str) -> ctypes.CDLL | None:
    """Return a compiled file of this folder, built where it is not yet; None without g++."""
    if (compiler := shutil.which("g++")) is None:
        return None
    # What the options come to with this compiler on this processor: what was built for another one
    # may not run.
    asked = [compiler, *OPTIONS, "-###", "-E", "-x", "c++", "/dev/null"]
    options = subprocess.run(asked, check=True, capture_output=True, text=True).stderr
    facts = (HERE / source).read_text(encoding="utf-8") + options
    stem = Path(source).stem
    target = BUILT / f"{stem}-{hashlib.sha256(facts.encode()).hexdigest()[:16]}.so"
    if not target.exists():
        BUILT.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=BUILT) as folder:
            fresh = Path(folder) / target.name
            command = [compiler, *OPTIONS, "-shared", "-fPIC", str(HERE / source), "-o", str(fresh)]
            subprocess.run(command, check=True)
            # All or nothing: another process may look for it.
            fresh.rename(target)
    return ctypes.CDLL(str(target))


def at(tensor: Tensor) -> ctypes.c_void_p:
    """Return where a tensor's numbers are."""
    assert tensor.is_contiguous() and tensor.is_cpu
    return ctypes.c_void_p(tensor.data_ptr())
