"""Data sets and models by name, or from the user's own files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..errors import listed, refuse
from ..training.data import FederatedData, digits
from ..training.fashion import fashion_mnist
from ..training.models import ModelFactory, cnn, logistic, mlp
from .own_data import check_model, model_at, read_npz

DATA = ("digits", "fashion-mnist")
"""The data sets with a name. Any other is a file."""

CLIENTS = {"digits": 400, "fashion-mnist": 6000}
"""Default number of clients of a data set."""

MODELS = ("logistic", "mlp", "cnn")
"""The models with a name. Any other is FILE.py:NAME."""


def load_data(
    data: str | FederatedData = "digits",
    *,
    data_dir: str | Path | None = None,
    clients: int | None = None,
    classes_per_client: int | None = None,
    public_records: int | None = None,
) -> FederatedData:
    """Return a data set, split among clients.

    Args:
        data: one of ``DATA``; a file for ``own_data.read_npz``, ending in ".npz"; or data that are
            already loaded and split.
        data_dir: see ``fashion.fashion_mnist``.
        clients: number of clients; None for ``CLIENTS``, or for the owners in a file.
        classes_per_client: None for an even split, else see ``data.partition_by_label``.
        public_records: training records set aside as public, for top-k's mask; None for the data
            set's default.

    Raises:
        ParameterError: unknown data, or a split that the data do not allow.
    """
    if data_dir is not None and data != "fashion-mnist":
        text = data.name if isinstance(data, FederatedData) else data
        refuse("data_dir", str(data_dir), f"be left out, since {text} is not read from a folder")
    split = {"clients": clients, "classes_per_client": classes_per_client}
    aside = {} if public_records is None else {"public": public_records}
    if not isinstance(data, FederatedData):
        return _loaded(data, data_dir, split, aside)
    rule = "be left out, since these data are already split"
    if any(value is not None for value in split.values()):
        refuse(", ".join(split), tuple(split.values()), rule)
    if public_records is not None:
        refuse("public_records", public_records, rule)
    return data


def _loaded(
    data: str, data_dir: str | Path | None, split: dict[str, Any], aside: dict[str, int]
) -> FederatedData:
    if data.endswith(".npz"):
        if aside:
            rule = "be left out for a file, which holds public_features and public_labels"
            refuse("public_records", aside["public"], rule)
        return read_npz(data, **split)
    if data not in DATA:
        refuse("data", data, f"be one of {listed(DATA)}, or a file that ends in .npz")
    classes = split["classes_per_client"]
    count = CLIENTS[data] if split["clients"] is None else split["clients"]
    if data == "digits":
        return digits(clients=count, classes_per_client=classes, **aside)
    return fashion_mnist(data_dir, clients=count, classes_per_client=classes, **aside)


def model_for(model: str | None, data: FederatedData) -> ModelFactory | None:
    """Return the factory of a model for a data set; None for the preset's model.

    Args:
        model: one of ``MODELS``, or a place for ``own_data.model_at``.
        data: the data set.

    Raises:
        ParameterError: an unknown model, or it does not fit the data.
    """
    if model is None:
        return None
    features, classes = data.inputs, data.classes
    if model not in MODELS and ":" not in model:
        refuse("model", model, f"be one of {listed(MODELS)}, or FILE.py:NAME")
    found = {
        "logistic": logistic(features, classes),
        "mlp": mlp(features, classes),
        "cnn": cnn(classes),
    }.get(model) or model_at(model)
    check_model(found, data)
    return found
