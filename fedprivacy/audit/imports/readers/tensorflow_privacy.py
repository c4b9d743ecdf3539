"""TensorFlow Privacy (0.9): flags of DP-SGD, and a saved statement of its accountant.

``noise_multiplier`` is the std of the noise in the sum over ``l2_norm_clip``. With
``num_microbatches`` below the batch size, a microbatch is clipped in place of a record, and a
record that is replaced in it moves the sum by two clip norms.
"""

from __future__ import annotations

import math
import re
from typing import Any

from ....relations import Adjacency, Unit
from ..draft import Draft
from ..fields import Fields
from ..words import STEPS, federated, says
from .base import Reader, named

KIND = "TensorFlow Privacy settings"

_MARKS = ("l2_norm_clip", "num_microbatches")

STATEMENT = "DP-SGD performed over"
"""Words that begin a statement of ``compute_dp_sgd_privacy_statement``."""

_STATED = re.compile(
    r"DP-SGD performed over (?P<number_of_examples>\d+) examples with (?P<batch_size>\d+) examples "
    r"per iteration, noise multiplier (?P<noise_multiplier>[\d.eE+-]+) for "
    r"(?P<num_epochs>[\d.eE+-]+) epochs (?P<how>with|without) microbatching",
    re.ASCII,
)


_OLD = re.compile(
    r"DP-SGD with sampling rate = (?P<printed_rate>[\d.eE+-]+)% and noise_multiplier = "
    r"(?P<noise_multiplier>[\d.eE+-]+) iterated over (?P<steps>\d+) steps satisfies differential "
    r"privacy with eps = (?P<epsilon>[\d.eE+-]+) and delta = (?P<delta>[\d.eE+-]+?)\.?(?:\s|$)",
    re.ASCII,
)
"""The line that older versions of the library print, with three digits of the rate."""


def of_statement(text: str) -> dict[str, Any] | None:
    """Return the numbers in a saved statement, by the names of the library's arguments."""
    old = _OLD.search(" ".join(text[:20_000].split()))
    if old is not None:
        return old.groupdict()
    found = _STATED.search(" ".join(text[:20_000].split()))
    if found is None:
        return None
    data: dict[str, Any] = found.groupdict()
    data["used_microbatching"] = data.pop("how") == "with"
    words = " ".join(text[:20_000].split())
    if "add-or-remove-one" in words:
        data["adjacency_of_statement"] = "add-or-remove-one"
    delta = re.search(r"delta = ([\d.]+(?:e[-+]?\d+)?)", words, re.ASCII | re.I)
    return data | ({"delta": delta[1].rstrip(".")} if delta else {})


_SENTENCES = re.compile(
    r"DP-SGD performed over [^.]*?(?:\.\d[^.]*?)*per user\."
    r"|This privacy guarantee protects [^.]*\.|No user-level privacy guarantee [^.]*\."
    r"|(?:Example|User)-level DP with [^:]*:|Epsilon [^:]{0,60}:\s*(?:[\d.]+(?:e-?\d+)?|inf|N/A)"
    r"|\(\*\) Poisson sampling is not usually done[^.]*\."
    r"|The optimal RDP order is [\d.]+\d\.?|The privacy estimate is likely to be improved [^.]*\.",
    re.ASCII,
)
"""Sentences of a statement and of the older line."""


def other_sentences(text: str) -> list[str]:
    """Return the sentences of a text that are in no saved statement."""
    words = " ".join(text.split())
    rest = _SENTENCES.sub("\n", _OLD.sub("\n", words))
    return [each for each in rest.split("\n") if re.search(r"\w", each)]


def _recognises(fields: Fields, data: Any) -> bool:
    # In a federated file the noise may be a client's or the server's.
    stated = {"number_of_examples", "noise_multiplier"} <= fields.names()
    stated |= fields.has("printed_rate")
    other = federated(fields) or says(fields, "embedding")
    # Programs in other frameworks call their clip l2_norm_clip too.
    own = fields.has("num_microbatches", "microbatches") or says(
        fields, "tensorflow", "tf", "keras", "gin"
    )
    return ((fields.has(*_MARKS) and own) or stated) and not other


def _read(fields: Fields, name: str) -> Draft:
    because = named(fields, *_MARKS, "number_of_examples", "printed_rate")
    version = "an older version" if fields.has("printed_rate") else "tensorflow-privacy 0.9"
    tool = f"{KIND} ({version}), {because}"
    draft = Draft(fields, tool, anywhere=False)
    noise = draft.take("noise_multiplier", "noise_multiplier")
    draft.claims(("epsilon", "target_epsilon"), ("delta", "target_delta"))
    size, batch = fields.number("number_of_examples"), fields.number("batch_size")
    epochs = fields.number("num_epochs", "epochs")
    draft.know("unit", Unit.RECORD, "the unit is a record, because DP-SGD clips its gradient")
    if "add" in fields.text("adjacency_of_statement"):
        draft.facts["adjacency"] = Adjacency.ADD_REMOVE
    _microbatches(draft, noise, batch)
    if size and batch and batch <= size:
        per_epoch = math.ceil(size / batch)
        draft.facts["sampling_probability"] = batch / size
        draft.facts["population"] = int(size)
        draft.facts["rounds_per_epoch"] = per_epoch
        if epochs:
            rounds = math.ceil(epochs * size / batch - 1e-9)
            because = f"{epochs:g} epochs of {size:g} records, {batch:g} a batch: {rounds} steps"
            draft.know("rounds", rounds, because)
    if "rounds" not in draft.facts:
        draft.take("rounds", *STEPS, whole=True)
    _printed_rate(draft)
    return draft


def _printed_rate(draft: Draft) -> None:
    """Ask for the rate of an old statement, with the largest one that is printed so."""
    percent = draft.fields.number("printed_rate")
    if percent is not None and 0 < percent <= 100:
        # One unit of the third digit in percent, half of it either way.
        half = 0.5 * 10.0 ** (math.floor(math.log10(percent)) - 2)
        most = min(1.0, float(f"{(percent + half) / 100.0:.6g}"))
        draft.suggested["sampling_probability"] = most
        draft.least_rate = (percent - half) / 100.0 * (1.0 - 1e-9)
        draft.ask("sampling_probability", f"{percent:g}% is rounded: at most {most:g}")


def _microbatches(draft: Draft, noise: Any, batch: Any) -> None:
    fields = draft.fields
    said = fields.all("num_microbatches", "microbatches")
    many, used = (
        fields.number("num_microbatches", "microbatches"),
        fields.flag("used_microbatching"),
    )
    if used or (said and many != batch):
        draft.ask(
            "noise_multiplier",
            f"{noise} in the file is of microbatches: their means are clipped, so a record moves "
            f"the sum by two clip norms; state {noise} / 2 if a record is in one microbatch",
        )


READER = Reader(KIND, _recognises, _read)
