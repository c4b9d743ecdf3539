"""Sources of randomness for a release."""

from __future__ import annotations

import math
import os
from typing import Any

import numpy as np

from ..errors import refuse
from .tensors import is_tensor, loaded_torch


class _SystemSeed(np.random.bit_generator.ISpawnableSeedSequence):
    """Fills a generator's full state with the operating system's bits, and keeps no copy."""

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> Any:
        """Return ``n_words`` fresh words."""
        return np.frombuffer(os.urandom(n_words * np.dtype(dtype).itemsize), dtype)

    def spawn(self, n_children: int) -> list[Any]:
        """Return ``n_children`` sources of fresh words."""
        return [self] * n_children


def system_seed() -> Any:
    """Return a seed for a numpy generator that uses the operating system's bits."""
    return _SystemSeed()


def private_generator() -> np.random.Generator:
    """Return a generator seeded by the operating system, as every private release needs."""
    return np.random.Generator(np.random.PCG64DXSM(system_seed()))


def drawn_from(generator: np.random.Generator | None) -> np.random.Generator:
    """Return the generator, or a private one for None.

    Raises:
        ParameterError: ``generator`` is not a NumPy generator.
    """
    if generator is None:
        return private_generator()
    if not isinstance(generator, np.random.Generator):
        way_out = "pass np.random.default_rng(seed), or leave it out"
        refuse("generator", generator, "be a NumPy generator", way_out)
    return generator


def norm(value: Any) -> float:
    """Return the Euclidean norm of an array or tensor; infinite or NaN if an entry is.

    Squares of single precision neither overflow nor underflow in double. Doubles are scaled.
    """
    if isinstance(value, np.ndarray) and value.itemsize < 8:
        return float(np.linalg.norm(value.reshape(-1).astype(np.float64)))
    if not isinstance(value, np.ndarray) and not value.is_floating_point():
        value = value.double()
    if not isinstance(value, np.ndarray) and value.element_size() < 8:
        torch = loaded_torch()
        return float(torch.linalg.vector_norm(value, dtype=torch.float64))
    largest = float(abs(value).max()) if len(value.reshape(-1)) else 0.0
    if largest == 0.0 or not math.isfinite(largest):
        return largest
    scaled = value.reshape(-1) / largest
    return largest * math.sqrt(float((scaled * scaled).sum()))


def is_finite(value: Any) -> bool:
    """Return whether every entry of an array or tensor is finite."""
    if not len(value.reshape(-1)):
        return True
    # NaN and infinity pass through min or max, and no mask array is needed.
    ends = (value.min(), value.max()) if isinstance(value, np.ndarray) else value.aminmax()
    return all(math.isfinite(float(end)) for end in ends)


def readable(name: str, value: Any) -> Any:
    """Return a caller's numbers as an array, or as a detached tensor.

    Raises:
        ParameterError: they are not real numbers, or not all present: complex, masked, sparse,
            nested, quantised, of eight bits a number, or on the meta device.
    """
    if not is_tensor(value):
        return _array(name, value)
    check_readable(name, value)
    plain = value.detach().resolve_neg()
    # Types shorter than single precision lack many torch functions.
    short = plain.is_floating_point() and plain.element_size() < 4
    return plain.float() if short else plain


def _array(name: str, value: Any) -> np.ndarray:
    try:
        array = np.asarray(value)
    # An object may have its own conversion, which may raise any exception.
    except Exception as error:
        refuse(name, type(value).__name__, f"be numbers ({type(error).__name__}: {error})")
    # The numbers under a mask still exist and would be released.
    masked = isinstance(value, np.ma.MaskedArray)
    if masked or array.dtype.kind not in "fiu" or array.dtype.itemsize > 8:
        found = "a masked array" if masked else str(array.dtype)
        refuse(name, found, "be real numbers of at most double precision")
    return array


def check_readable(name: str, value: Any) -> None:
    """Refuse a tensor or an array under the same conditions as ``readable``."""
    if not is_tensor(value):
        _array(name, value)
        return
    torch = loaded_torch()
    # Fast path for the usual case, because every step runs this check.
    real = value.dtype is torch.float64 or value.dtype is torch.float32
    if real and value.is_cpu and value.layout is torch.strided and not value.is_nested:
        return
    found = {
        "complex": value.is_complex(),
        "nested": value.is_nested,
        "quantised": value.is_quantized,
        "sparse": value.layout is not torch.strided,
        "on the meta device": value.is_meta,
        "of eight bits a number": value.is_floating_point() and value.element_size() == 1,
    }
    kinds = [kind for kind, so in found.items() if so]
    if kinds:
        refuse(name, f"a tensor that is {kinds[0]}", "be a dense tensor of real numbers")
