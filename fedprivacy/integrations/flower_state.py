"""The state of Flower's privacy accountants (1.35 and later), as in ``state_dict()``."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

_Count = Annotated[int, msgspec.Meta(ge=1, le=10**15)]
_Positive = Annotated[float, msgspec.Meta(gt=0)]
_Delta = Annotated[float, msgspec.Meta(gt=0, lt=1)]


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``PrivacyConfig``."""

    target_delta: _Delta
    population_size: _Count
    neighboring_relation: Literal["add-or-remove-one", "replace-one"]
    sampling_method: Literal["poisson", "without-replacement", "no-amplification"]
    max_epsilon: _Positive | None = None


class Event(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``GaussianPrivacyEvent``."""

    noise_multiplier: Annotated[float, msgspec.Meta(ge=0)]
    sample_size: _Count
    population_size: _Count


class EventCount(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An event and its number of compositions."""

    event: Event
    count: _Count


class AccountantState(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The accountant's state."""

    schema_version: Literal[1]
    backend: str
    config: Config
    compositions: list[EventCount]
    orders: list[float] = []
