"""Fields that leave steps, parts of a model or a whole run without the noise of its multiplier."""

from __future__ import annotations

import re

from .draft import Draft
from .fields import Field, plain_name, words_in
from .printed import without_privacy
from .words import PRIVACY, SWITCHES

_NOISE = {"noise", "sigma", "noisy"}
_PRIVATE = PRIVACY | _NOISE
_CLIP = {"clip", "clipping", "clipped", "clipper"}
_CHANGES = re.compile(r"(?:schedul|decay|anneal|dynamic|ramp|adaptive|growth|gamma)")
"""Beginnings of words for a number that changes during a run."""
_FOLLOWS = {"final", "end", "last", "quantile"}
_LEARNING = {"lr", "learning", "weight", "momentum", "ema", "rate"}
_CONSTANT = {"constant", "none", "off", "fixed", "no", "null", "false"}
_LEFT_OUT = {"exclude", "excluded", "excludes", "exclusions", "skip", "skipped", "ignore", "exempt"}
_LEFT_OUT |= {"ignored", "except", "without", "omit", "omitted", "unless"}
_BARE = {"unclipped", "unnoised", "noiseless", "unperturbed"}
_MODEL = {"layers", "layer", "params", "parameters", "param", "modules", "module", "weights"}
_NEGATED = {"disable", "disabled", "no", "remove", "skip", "stop", "bypass", "without"}
_NAMED = {"mode", "modes", "tag", "tags", "flag", "flags", "options", "training", "variant", "hook"}
_NAMED |= {"setting", "regime", "experiment", "callback", "callbacks", "hooks", "target", "class"}
_NAMED |= {"method", "algorithm", "optimizer", "trainer", "strategy", "type", "run", "label"}
_OF_OTHERS = {"baseline", "baselines", "compare", "comparison", "reference", "init", "pretrained"}
_OF_OTHERS |= {"checkpoint", "path", "dir", "dataset", "data", "file", "teacher", "versus", "vs"}
_WITHOUT = re.compile(
    r"(?:^|_)(?:(?:non|not|un)_?(?:private|dp)|(?:no|without|disabled?|remove|skip|bypass)_?(?:dp|privacy|noise|dpsgd)"
    r"|(?:dp|privacy|noise)_(?:off|disabled)|noiseless|noise_?free)(?:_|$)"
)
"""Names of a run without privacy."""


def check(draft: Draft) -> None:
    """Ask for the noise if a field may change it, turn it off, or leave parts without it."""
    if not draft.noise:
        return
    parts = _parts(draft)
    for one in draft.fields.unread():
        off = _off(one, parts) or (_plain_mode(one) if draft.about_the_run(one) else "")
        why = off or _weaker(draft, one, parts)
        named = one.place[-60:] if one.value == {} else str(one)
        if off:
            draft.lasting.append(f"{named}: {off}, whatever is stated")
        if why:
            draft.ask("noise_multiplier", f"{named}: {why}")


def _weaker(draft: Draft, one: Field, parts: dict[str, list[Field]]) -> str:
    """Return why a field may change the noise or leave something without it; else empty."""
    why = "" if draft.of_clients else _changes(one, parts) or _leaves_out(one)
    if not why and one.words & _SPEAKS and without_privacy(str(one.value)[:2000]):
        return "it may say that privacy was off"
    return why


def _parts(draft: Draft) -> dict[str, list[Field]]:
    """Return the fields of every part of a file, by the place of the part."""
    found: dict[str, list[Field]] = {}
    for one in draft.fields.every:
        found.setdefault(re.sub(r"\[\d+\]$", "", one.parent), []).append(one)
    return found


def _set(one: Field, parts: dict[str, list[Field]]) -> bool:
    """Return whether a field is on: a value, or a part that is neither off nor constant."""
    if one.value != {}:
        return not one.empty and not one.said & _CONSTANT
    inside = parts.get(one.place, [])
    off = (each for each in inside if each.name in SWITCHES)
    if any(each.flag is False for each in off):
        return False
    kinds = [each for each in inside if each.name in ("type", "kind", "name", "mode", "schedule")]
    return bool(inside) and not any(each.said & _CONSTANT for each in kinds)


def _changes(one: Field, parts: dict[str, list[Field]]) -> str:
    """Return why a field may change the noise or the clip during the run; else empty."""
    words = one.words
    # A factor of 1 leaves the noise as it is.
    if words & _LEARNING or one.number == 1 or not _set(one, parts):
        return ""
    follows = any(map(_CHANGES.match, words))
    about = words & (_PRIVATE | _CLIP) or words >= {"grad", "norm"}
    if follows and about:
        return "it may change the noise or the clip of later steps"
    if (follows or words & _FOLLOWS) and _inside_the_noise(one):
        return "it may change the noise of later steps"
    return ""


def _inside_the_noise(one: Field) -> bool:
    """Return whether a field is in a part about the noise or the clip, as ``noise: {final: 1}``."""
    part = words_in(re.sub(r"\[\d+\]", "", one.part))
    private = bool(part) and part <= _PRIVATE
    return bool(part & (_NOISE | _CLIP) or (private and one.words & {"dynamic", "adaptive"}))


def _leaves_out(one: Field) -> str:
    words, about = one.words, one.words & (_PRIVATE | _CLIP)
    listed = isinstance(one.value, list | str) and one.flag is None and not one.empty
    if listed and _names_a_part(words) and not one.said & _CONSTANT:
        return "parts of the model may have no noise"
    only = "only" in words and about & {"clip", "clipping"}
    if only and (one.flag or (one.number or 0) > 0):
        return "steps that only clip have no noise"
    return ""


def _names_a_part(words: set[str]) -> bool:
    """Return whether a name is about a part that is left out of the noise or the clip."""
    about = words & (_PRIVATE | _CLIP)
    return bool(
        words & _BARE
        or (about and words & _LEFT_OUT)
        or (about & _CLIP and words & {"no", "non"})
        or ("public" in words and words & _MODEL)
    )


_SPEAKS = {"comment", "comments", "note", "notes", "description", "remark", "remarks"}
"""Names of sentences about a run."""
_MODES = {"mode", "modes", "variant", "regime", "method", "algorithm"}
_SHOWN = {"log", "logging", "output", "display", "print", "format"}
_PLAIN = {"plain", "baseline", "vanilla", "cleartext", "unprotected"}


def _plain_mode(one: Field) -> str:
    """Return why a field names a run that others are compared with, as ``mode: plain``."""
    said = one.said
    plain = said & _PLAIN and said <= _PLAIN | {"sgd", "training", "model", "run", "fedavg"}
    named = one.words & _MODES and not one.place_words & _SHOWN
    return "it may name a run without noise" if named and plain else ""


def _off(one: Field, parts: dict[str, list[Field]]) -> str:
    """Return why a field names a run without privacy, or a part of one that turns it off."""
    words = one.words
    if one.value == {}:
        negated = words & _NEGATED and words & _PRIVATE and _set(one, parts)
        return "it may turn the noise off" if negated else ""
    if one.place_words & _OF_OTHERS or not words & (_NAMED | _PRIVATE):
        return ""
    texts = one.value if isinstance(one.value, list) else [one.value]
    named = next(filter(_names_no_privacy, texts), "")
    compared = words_in(named) & {"vs", "versus"}
    return "it names no privacy" if named and not compared else ""


def _names_no_privacy(text: object) -> bool:
    """Return whether a value is a short text that names a run without privacy."""
    return isinstance(text, str) and len(text) <= 80 and bool(_WITHOUT.search(plain_name(text)))
