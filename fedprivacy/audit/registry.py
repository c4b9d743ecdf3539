"""Entries for the OpenDP and NIST registry of deployments (opendp/deployments-registry-data).

The audit fills in the facts it knows. The deployer must give the rest. An entry is a draft at the
third tier, in YAML, whose strings and numbers are written as in JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import date
from typing import Any

from ..bound import exactly
from ..errors import refuse
from ..relations import Unit
from ..version import VERSION
from .accounting import NOT_COUNTED, Audit
from .statement import (
    EYES,
    NEIGHBOURS,
    formal,
    parts_in_words,
    sampler_in_words,
    trials_counted,
    unit_in_words,
)

PRODUCTS = (
    "Summary statistics",
    "Machine learning model",
    "Dataset",
    "Synthetic data",
    "Interactive API",
    "SQL queries",
)
SECTORS = ("Technology", "Healthcare", "Education", "Government", "Energy", "Finance")
MODELS = ("Local", "Central", "Shuffle", "Federated")

REQUIRED: Mapping[str, str] = {
    "name": "the data product",
    "data_curators": "a list of its publishers",
    "description": "its description",
    "intended_use": "its purpose",
    "data_product_region": "the region that the data describe",
    "publication_date": "YYYY-MM-DD",
    "registry_authors": "a list of the authors of the entry",
}
"""Required fields that no audit knows."""

OPTIONAL: Mapping[str, tuple[str, ...] | None] = {
    "data_product_type": PRODUCTS,
    "data_product_sector": SECTORS,
    "model_name": MODELS,
    "actors": None,
    "data_domain": None,
    "post_processing": None,
    "justification": None,
    "sources": None,
}
"""Optional fields, with their allowed values."""


def entry(found: Audit, deployment: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry as plain values.

    Args:
        found: the audit. Without a certified number, the entry has no privacy parameters.
        deployment: the fields of ``REQUIRED``, and any of ``OPTIONAL``.

    Raises:
        ParameterError: if a field is missing, unknown, or of the wrong form.
    """
    given = _checked(deployment)
    unit = str(found.facts.unit or "unit")
    basic = {
        name: given[name] for name in (*list(REQUIRED)[:6], "data_product_sector") if name in given
    }
    basic["data_product_type"] = given.get("data_product_type", "Machine learning model")
    variant = "Pure DP" if found.bound.given == 0.0 else "Approximate DP"
    fields = {
        "basic": basic,
        "dp_variant": {
            "variant_name": variant,
            "data_domain": given.get("data_domain", f"all data sets of {unit}s"),
            "unprotected_quantities": NOT_COUNTED[2],
        },
        "privacy_loss": {
            "privacy_unit": unit_in_words(found),
            "privacy_unit_details": NEIGHBOURS[found.facts.adjacency].format(unit=unit),
            **_parameters(found),
        },
        "deployment_model": {
            "model_name": given.get("model_name", _model(found)),
            "actors": given.get("actors", f"Attacker: {EYES[found.facts.observer]}."),
        },
        "accounting": {"composition": _composition(found)} | _if_given(given, "post_processing"),
        "implementation": {
            "preprocessing_and_hyperparameter_tuning": _tuning(found),
            "mechanisms": " ".join(f"{text.rstrip('.')}." for text in _mechanisms(found)),
        }
        | _if_given(given, "justification"),
        "administrative": {
            "registry_authors": given["registry_authors"],
            "notes": (
                f"Audited with fedprivacy {VERSION}: {found.statement}, for the claim epsilon "
                f"= {exactly(found.claim[0])} at delta = {exactly(found.claim[1])}. "
                f"{_source(found)}"
            ),
        }
        | _if_given(given, "sources"),
    }
    # The slug is part of an address, so it has only lowercase letters, digits and underscores.
    slug = re.sub("[^a-z0-9]+", "_", str(given["name"]).lower()).strip("_") or "entry"
    return {"url_slug": slug, "status": "Draft", "tier": 3, "deployment": fields}


def _if_given(fields: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {name: fields[name]} if name in fields else {}


def _checked(deployment: Mapping[str, Any]) -> dict[str, Any]:
    fields = dict(deployment)
    for name, what in REQUIRED.items():
        if name not in fields:
            # The first missing field is enough: its message shows how to give the others.
            refuse(f"deployment[{name!r}]", None, f"be given: {what}")
    for name, value in fields.items():
        _check(name, value)
    return fields


def _check(name: str, value: object) -> None:
    if name not in _RULES:
        refuse(f"deployment[{name!r}]", value, f"be one of the fields {', '.join(_RULES)}")
    rule, good = _RULES[name]
    if not good(value):
        refuse(f"deployment[{name!r}]", value, rule)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_names(value: object) -> bool:
    # A string is also a sequence of strings, so only lists and tuples count.
    return isinstance(value, list | tuple) and bool(value) and all(map(_is_text, value))


def _is_date(text: object) -> bool:
    if not isinstance(text, str):
        return False
    try:
        # fromisoformat also accepts other forms, but the registry only this one.
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


_RULES: Mapping[str, tuple[str, Callable[[object], bool]]] = {
    **dict.fromkeys((*REQUIRED, *OPTIONAL), ("be a non-empty string", _is_text)),
    **dict.fromkeys(("data_curators", "registry_authors"), ("be a list of names", _is_names)),
    "publication_date": ("be a date, YYYY-MM-DD", _is_date),
    **{
        name: (f"be one of {', '.join(of)}", of.__contains__) for name, of in OPTIONAL.items() if of
    },
}
"""The rule of each field in words, and its test."""


def _parameters(found: Audit) -> dict[str, Any]:
    # The registry requires numbers. Without a certified one, the field is left out.
    if found.void or found.bound.upper == float("inf"):
        return {}
    low, high = found.bound.ends(6)
    depends = "".join(f", {text}" for text in found.bound.qualified)
    details = (
        f"{formal(found)}{depends}. The certified interval of epsilon at this delta is [{low}, "
        f"{high}]; the parameters above are its upper end."
    )
    # The parameter is the upper end, because the lower end is no guarantee.
    numbers = {"epsilon": float(high), "delta": found.bound.given}
    return {"privacy_parameters": numbers, "privacy_parameters_details": details}


def _composition(found: Audit) -> str:
    if found.void:
        return "No number is certified."
    return f"{found.bound.method}; {'; '.join(found.bound.theorems)}."


def _tuning(found: Audit) -> str:
    trials = trials_counted(found)
    return f"{trials} runs are counted, as stated." if trials else NOT_COUNTED[1]


def _mechanisms(found: Audit) -> list[str]:
    seed = found.facts_recorded.get("seed policy")
    noise = [f"Noise: {seed}"] if seed else []
    return [*parts_in_words(found), f"Sampling: {sampler_in_words(found)}", *noise, NOT_COUNTED[0]]


def _source(found: Audit) -> str:
    check = f", SHA-256 {found.origin.sha256}" if found.origin.sha256 else ""
    # The entry may be read without its audit, so it must state the assumptions itself.
    stated = "; ".join(f"{name} = {value}" for name, value in found.stated.items())
    text = f" Stated by the user but not recorded: {stated}." if stated else ""
    granted = "; ".join(found.granted.values())
    more = f" Assumed by default: {granted}." if granted else ""
    return f"Source: {found.origin.kind}{check}.{text}{more}"


def _model(found: Audit) -> str:
    # With records as units, the model may have been trained centrally; no fact says otherwise.
    return "Federated" if found.facts.unit is Unit.CLIENT else "Central"


def as_yaml(value: Any, indent: str = "") -> str:
    """Return plain values as YAML: mappings and lists in blocks, other values as in JSON."""
    lines = []
    items = value.items() if isinstance(value, Mapping) else ((None, each) for each in value)
    for name, each in items:
        head = f"{indent}- " if name is None else f"{indent}{name}:"
        if isinstance(each, Mapping | list | tuple):
            lines.append(f"{head}\n{as_yaml(each, indent + '  ')}".rstrip("\n"))
        else:
            lines.append(f"{head.rstrip()} {_scalar(each)}")
    return "\n".join(lines) + "\n"


def _scalar(value: Any) -> str:
    """Return a string or a number as YAML; exponents get a decimal point (1.0e-05)."""
    # YAML reads 1e-05 as a string, and 1.0e-05 as a number.
    text = json.dumps(value, ensure_ascii=False)
    bare = isinstance(value, float) and "." not in text
    return text.replace("e", ".0e", 1) if bare and "e" in text else text
