"""Readers of other programs' configurations: one file for each program.

A reader knows one program's field names and what they mean there. The first reader that recognises
a file reads it. ``generic`` recognises every file with a noise, and is the last one.
"""

from __future__ import annotations

from . import (
    appfl,
    deployments,
    fedbiomed,
    fedml,
    fl4health,
    flower_app,
    flsim,
    generic,
    jax_privacy,
    nvflare,
    opacus_settings,
    openfl,
    our_output,
    pfl,
    tensorflow_federated,
    tensorflow_privacy,
)
from .base import Reader

__all__ = ["READERS", "Reader"]

READERS: tuple[Reader, ...] = (
    our_output.READER,
    deployments.READER,
    flower_app.READER,
    nvflare.READER,
    fl4health.READER,
    fedml.READER,
    flsim.READER,
    appfl.READER,
    openfl.READER,
    fedbiomed.READER,
    pfl.READER,
    tensorflow_federated.READER,
    tensorflow_privacy.READER,
    jax_privacy.READER,
    *opacus_settings.READERS,
    generic.READER,
)
"""Every reader in the order of trial; the generic one is the last."""
