"""Error messages of the scripts, in one line."""

import argparse
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import fedprivacy as fp


@contextmanager
def told() -> Iterator[None]:
    """Print a ParameterError as "error: ..." and end with exit status 2."""
    try:
        yield
    except fp.ParameterError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


def at_least(least: int) -> Callable[[str], int]:
    """Return a parser of an integer with a lower limit, as argparse's ``type``."""

    def read(text: str) -> int:
        try:
            found = int(text)
        except ValueError:
            found = least - 1
        if found < least:
            raise argparse.ArgumentTypeError(f"must be an integer of at least {least}: {text}")
        return found

    return read


def hours(text: str) -> float:
    """Read hours, above 0, as argparse's ``type``."""
    found = float(text)
    if not 0.0 < found < math.inf:
        raise argparse.ArgumentTypeError(f"must be hours, above 0: {text}")
    return found
