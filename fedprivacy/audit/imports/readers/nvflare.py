"""NVFlare (2.9): a job's client configuration with privacy filters, or the record of SVTPrivacy.

``PercentilePrivacy`` cuts values and adds no noise. ``SVTPrivacy`` selects a part of the values and
adds Laplace noise to them. Its record ``svt_privacy_budget`` states the epsilon of a call, and
``svt_privacy_accountant`` adds the calls. No theorem here covers the selection.
"""

from __future__ import annotations

from typing import Any

from ..draft import Draft, refuse_unauditable
from ..fields import Fields
from .base import Reader, named

KIND = "NVFlare configuration"

_FILTERS = ("task_result_filters", "task_data_filters")
_RECORDS = ("svt_privacy_budget", "svt_privacy_accountant")


_CLASSES = ("SVTPrivacy", "PercentilePrivacy")


def of_text(text: str) -> dict[str, Any] | None:
    """Return the privacy filters that a job in HOCON names; None for other text."""
    if "task_result_filters" not in text and "task_data_filters" not in text:
        return None
    return {_FILTERS[0]: [{"name": name} for name in _CLASSES if name in text]}


def _recognises(fields: Fields, data: Any) -> bool:
    job = fields.has("executors") and fields.has("tasks", "format_version", "workflows")
    return job or fields.has(*_FILTERS, *_RECORDS, "min_responses_required")


def _read(fields: Fields, name: str) -> Draft:
    tool = f"{KIND} (nvflare 2.9), {named(fields, *_FILTERS, *_RECORDS, 'executors')}"
    # A job may name the filter by its class or by the path of the class.
    filters = [
        str(field.value).rpartition(".")[2] for field in fields.all("name", "path", "class_path")
    ]
    if fields.has(*_RECORDS):
        spent = fields.number("epsilon_total", "privacy_spent", "total_epsilon")
        total = "" if spent is None else f"of epsilon {spent:g} "
        refuse_unauditable(
            name,
            tool,
            f"its own account {total}adds what SVTPrivacy counts, and no theorem here covers the "
            "selection of the values",
        )
    if "SVTPrivacy" in filters:
        settings = {key: fields.number(key) for key in ("fraction", "epsilon", "noise_var")}
        fraction, epsilon, noise = (
            default if value is None else value
            for value, default in zip(settings.values(), (0.1, 0.1, 0.1), strict=True)
        )
        refuse_unauditable(
            name,
            tool,
            f"SVTPrivacy costs {epsilon:g} for the choice and {fraction * noise:g} for each value "
            "of the model (fraction * noise_var), by its own account and for every call; look for "
            "svt_privacy_budget in the results. No theorem here covers the selection",
        )
    if "PercentilePrivacy" in filters:
        refuse_unauditable(
            name, tool, "PercentilePrivacy cuts values and adds no noise, so no epsilon holds"
        )
    draft = Draft(fields, tool)
    if not fields.has("noise_multiplier"):
        refuse_unauditable(
            name, tool, "it has no filter whose noise is known here, and no noise_multiplier"
        )
    draft.ask(
        "noise_multiplier", "NVFlare passes it to code of the job; state the noise of the sum"
    )
    fields.all("noise_multiplier", "target_delta", "delta")
    draft.take("rounds", "num_rounds", whole=True)
    draft.claims(("epsilon", "target_epsilon"), ("delta", "target_delta"))
    return draft


READER = Reader(KIND, _recognises, _read)
