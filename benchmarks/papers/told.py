"""What a script refuses, told in one line."""

import sys
from collections.abc import Iterator
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
