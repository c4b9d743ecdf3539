"""The name that ``registry`` had before; what imports it goes on working."""

from .registry import registered as recorded

__all__ = ["recorded"]
