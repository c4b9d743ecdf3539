"""Kernels in C++, built on first use with g++, only for this processor."""

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
"""Folder for compiled files, where no other user can place a file with the same name."""
OPTIONS = ["-O3", "-march=native", "-ffp-contract=fast", "-fno-math-errno", "-std=c++17"]


@cache
def compiled(source: str) -> ctypes.CDLL | None:
    """Return a compiled file of this folder, built if necessary; None without g++."""
    if (compiler := shutil.which("g++")) is None:
        return None
    # The meaning of the options with this compiler on this processor: code built for another
    # processor may not run.
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
            # Atomically, because another process may read it.
            fresh.rename(target)
    return ctypes.CDLL(str(target))


def at(tensor: Tensor) -> ctypes.c_void_p:
    """Return the address of a tensor's numbers."""
    assert tensor.is_contiguous() and tensor.is_cpu
    return ctypes.c_void_p(tensor.data_ptr())
