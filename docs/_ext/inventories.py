"""Inventories for intersphinx, written here: the site links to others and builds without a network.

Names that the signatures use, and where they are explained.
"""

from __future__ import annotations

import zlib
from pathlib import Path

KNOWN = {
    "python": (
        "https://docs.python.org/3/",
        {
            "py:class": {
                "pathlib.Path": "library/pathlib.html#pathlib.Path",
                "collections.abc.Callable": "library/collections.abc.html#collections.abc.Callable",
                "collections.abc.Mapping": "library/collections.abc.html#collections.abc.Mapping",
                "collections.abc.Sequence": "library/collections.abc.html#collections.abc.Sequence",
                "collections.abc.Iterable": "library/collections.abc.html#collections.abc.Iterable",
                "collections.abc.Collection": (
                    "library/collections.abc.html#collections.abc.Collection"
                ),
                "dict": "library/stdtypes.html#dict",
                "list": "library/stdtypes.html#list",
                "tuple": "library/stdtypes.html#tuple",
                "frozenset": "library/stdtypes.html#frozenset",
                "str": "library/stdtypes.html#str",
                "float": "library/functions.html#float",
                "int": "library/functions.html#int",
                "bool": "library/functions.html#bool",
                "object": "library/functions.html#object",
            },
            "py:exception": {
                "ValueError": "library/exceptions.html#ValueError",
                "OSError": "library/exceptions.html#OSError",
                "Exception": "library/exceptions.html#Exception",
            },
            "py:data": {
                "None": "library/constants.html#None",
                "typing.Any": "library/typing.html#typing.Any",
            },
        },
    ),
    "numpy": (
        "https://numpy.org/doc/stable/",
        {
            "py:class": {
                "numpy.ndarray": "reference/generated/numpy.ndarray.html#numpy.ndarray",
                "numpy.random.Generator": (
                    "reference/random/generator.html#numpy.random.Generator"
                ),
            },
            "py:data": {
                "numpy.typing.ArrayLike": "reference/typing.html#numpy.typing.ArrayLike",
                "numpy.typing.NDArray": "reference/typing.html#numpy.typing.NDArray",
            },
        },
    ),
    "scipy": (
        "https://docs.scipy.org/doc/scipy/",
        {"py:module": {"scipy.stats": "reference/stats.html#module-scipy.stats"}},
    ),
    "torch": (
        "https://docs.pytorch.org/docs/stable/",
        {
            "py:class": {
                "torch.Tensor": "tensors.html#torch.Tensor",
                "torch.device": "tensor_attributes.html#torch.device",
                "torch.nn.Module": "generated/torch.nn.Module.html#torch.nn.Module",
                "torch.Generator": "generated/torch.Generator.html#torch.Generator",
            }
        },
    ),
}


def write(folder: Path) -> dict[str, tuple[str, str]]:
    """Write the inventories and return intersphinx's mapping, which fetches nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    mapping = {}
    for name, (address, kinds) in KNOWN.items():
        lines = [
            f"{thing} {kind} 1 {place} -\n"
            for kind, things in kinds.items()
            for thing, place in things.items()
        ]
        head = f"# Sphinx inventory version 2\n# Project: {name}\n# Version: \n"
        head += "# The remainder of this file is compressed using zlib.\n"
        target = folder / f"{name}.inv"
        target.write_bytes(head.encode() + zlib.compress("".join(lines).encode()))
        mapping[name] = (address, str(target))
    return mapping
