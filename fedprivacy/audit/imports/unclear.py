"""Entries of a file that no reader understands: fields with unknown names, and sentences.

A verdict needs that every entry of a file is understood. Entries that are not are listed, and the
user confirms that the stated facts account for them, by a code that is made from these entries.
"""

from __future__ import annotations

import math
import re
from typing import Any

from ...sampling.scheme import TableScheme
from . import words
from .draft import Claim, Draft, name_of, tiny
from .fields import Field, absent, of_a_test, plain_name
from .passes import round_share
from .sentences import Known, is_clear, known_in, unclear_in
from .stems import STEMS as FAMILIES
from .stems import Stem
from .trace import Sampling, Stated
from .vocabulary import COUNTING, OF_DATA, QUALIFIERS, SHOWN, SUBJECTS, words_of

LOOSE = 3.0
"""Factor by which the accountant of another program may be loose."""
MAX_LENGTH = 160
"""Longest part of a sentence that is quoted."""
_NOISES = {*words.NOISE, *words.UNCLEAR}


def of_draft(draft: Draft, stated: Stated, claim: Claim) -> list[str]:
    """Return the entries of a draft that are not understood, and that no question is about.

    They are listed as if only the file gave facts, so that the list stays the same whatever the
    user states. It is empty if all entries are understood with the stated facts.
    """
    judged = draft.facts.get("epsilon") if claim is None or claim[0] is None else claim[0]
    facts = dict(draft.facts)
    for name in ("rounds", "noise_multiplier"):
        facts.setdefault(name, getattr(stated, name))
    if isinstance(stated.sampling, TableScheme):
        facts["sampling_probability"] = round_share(stated.sampling)
    drawn = name_of(stated.sampling) or draft.sampling
    every, own = draft.fields.every, draft.facts.get("epsilon")
    known = known_in(every, facts, judged and LOOSE * judged)
    # Opacus replaces a loader that shuffles by one that draws Poisson batches.
    shuffled = drawn in (Sampling.SHUFFLED, Sampling.EVERYONE) or words.says(draft.fields, "opacus")
    known = known._replace(shuffled=shuffled)
    if not _spent(draft, judged) and not _entries(draft, known):
        return []
    strict = known_in(every, draft.facts, own and LOOSE * own, unknown=0.0)
    return [*_spent(draft, judged), *_entries(draft, strict)]


def _entries(draft: Draft, known: Known) -> list[str]:
    others = [draft.shuffles, draft.unclipped, *(draft.enlarged or ())[:1]]
    about = [one.why for one in draft.questions if not one.name.startswith("claim")]
    quoted = " ".join([*about, *draft.lasting, *map(str, others)])
    fields = [str(one) for one in draft.fields.unread() if not _is_clear(one, known)]
    said = [*unclear_in(draft.texts, known), *draft.lines]
    quotes = (repr(each[:MAX_LENGTH]) for each in said)
    found = dict.fromkeys([*fields, *quotes])
    return [*_elsewhere(draft), *(each for each in found if not _is_quoted(each, quoted))]


_PASSES = {*words.STEPS, *words.EPOCHS, *words.ROUNDS}


def _known_part(one: Field) -> bool:
    """Return whether the part of a file that has a field is known by name."""
    known = words.PRIVACY | {"counted"}
    return of_a_test(one) or all(_is_known(word) or word in known for word in _words(_part(one)))


_AMBIGUOUS = {"uniform", "random", "iid", "sampler", "sampling", "batch", "default", "standard"}
"""Words for a sampling that the user is asked about anyway."""


def _elsewhere(draft: Draft) -> list[str]:
    """Return fields that a reader knows by name, but whose place or text it does not."""
    found: list[Field] = []
    for strange in (_other_noise, _other_sampling, _other_clip):
        found += [one for one in draft.fields.used.values() if strange(draft, one)]
    found = [one for one in found if one != draft.shuffles]
    found += [one for one in draft.fields.every if _other_steps(draft, one)]
    return [str(one) for one in found if not one.empty or one.number == 0]


def _other_noise(draft: Draft, one: Field) -> bool:
    return one.name in _NOISES and not draft.about_the_run(one)


def _other_sampling(draft: Draft, one: Field) -> bool:
    if one.name not in words.SAMPLING or not isinstance(one.value, str):
        return False
    unknown = words.sampling_in(one.value) is None and not {*_words(one.value)} <= _AMBIGUOUS
    return unknown and draft.about_the_run(one)


def _other_clip(draft: Draft, one: Field) -> bool:
    text = isinstance(one.value, str) and one.number is None and one.flag is None
    return bool(text and one.words & {"clip", "clipping"}) and not _restates(one, Known())


def _other_steps(draft: Draft, one: Field) -> bool:
    return one.name in _PASSES and not draft.about_the_run(one) and not _known_part(one)


_NAMED = re.compile(r"'?[-\s\"'\\]*([A-Za-z][\w.-]{2,60})[\"'\\]*\s?[=:]")


def _is_quoted(entry: str, quoted: str) -> bool:
    """Return whether a question is about an entry already."""
    name = _NAMED.match(entry) if entry.startswith(("'", '"')) else None
    return entry in quoted or (name is not None and f"{plain_name(name[1])} =" in quoted)


_PLANNED = {"target", "max", "maximum", "budget", "limit", "planned", "per"}


def _spent(draft: Draft, judged: float | None) -> list[str]:
    """Return the fields with an epsilon above the judged one, which the run may have spent."""
    if judged is None:
        return []
    return [
        str(one)
        for one in draft.fields.every
        if one.words & {"epsilon", "eps"}
        and not one.place_words & _PLANNED
        and draft.about_the_run(one)
        and not tiny(one)
        and (one.number or 0.0) > LOOSE * judged
    ]


_CURVES = words_of(
    """
    acc accuracy attempts best epoch eps epsilon loss lr spent time
    """
)


def name_is_clear(name: str) -> bool:
    """Return whether a column of a table of rounds is known to be about something else."""
    named = _words(name)
    if plain_name(name) in NAMES:
        return True
    known = all(_is_known(word) or word in _CURVES for word in named)
    return known and any(word in SUBJECTS or word in _CURVES for word in named)


def _part(one: Field) -> str:
    """Return the name of the part of a file that a field is in; empty for the whole file."""
    return re.sub(r"\[\d+\]", "", one.parent).rpartition(".")[2]


def _words(name: str) -> list[str]:
    """Return the words of a name without numbers: layer1 is a layer."""
    bare = (word.rstrip("0123456789") or word for word in plain_name(name).split("_"))
    return [word for word in bare if word and not word.isdecimal()]


NAMES = words_of(
    """
    adam_epsilon alphas c d_model ddp_timeout delta_error do_eval do_train dp_library drop_last
    eps_error grad_norm gradient_checkpointing group_norm init is_secure_generator layer_norm
    layer_norm_eps max_length max_norm max_retries n negative_samples nhead nodes noise_seed
    norm_first norm_layer num_participants num_parties num_sanity_val_steps number orders
    participants parties per_example_max_grad_norm per_sample_max_grad_norm ray_scope rdp_alphas
    rdp_orders release_checkpoints reload_dataloaders_every_n_epochs rms_norm rms_norm_eps run
    run_id run_name run_tag runs_dir sample_text save_on_each_node secure_mode secure_rng
    target_modules target_port top_k trial_id trial_name user users value weighting
    """
)
"""Names that are known whole, although a word of them is not."""
_COUNTS = words_of(
    """
    accum accumulation devices folds gpus microbatch microbatches models nodes nproc passes
    processes repeat repeats replicas restarts runs seeds trials update world
    """
)
"""Words of counts: one of a kind is one run, one device or one batch."""
_OTHERS = {"hub", "repo", "report", "label", "labels", "image", "input", "inputs"}
"""Words of fields that are about other noise or other secrets."""
_SOURCES = {"on", "from", "data", "dataset", "corpus"}
_OUTPUTS = {"logits", "gradients", "grads", "embeddings", "activations", "predictions"}
_NOT_SWITCHES = (
    words.SWITCHES
    | words.PRIVACY
    | {"noise", "noisy", "poisson", "sigma", "std", "gaussian", "clipping", "clip", "secure"}
)


def _is_clear(one: Field, known: Known) -> bool:
    """Return whether a field is understood, or known to be about something else."""
    if _scales_data(one):
        return True
    if one.name in _NOISES and one.number not in (None, known.noise):
        return known.noise is None
    if one.name in words.KNOWN or isinstance(one.value, dict) or absent(one.value):
        return True
    named = _words(one.name)
    if not named:
        # The parts of a list or of a schedule have the name of the whole.
        whole = _part(one)
        return not whole or _name_is_clear(one, _words(whole), shown=False)
    if one.name in NAMES:
        return _value_is_clear(one, named, known)
    return _name_is_understood(one, named, known)


def _scales_data(one: Field) -> bool:
    """Return whether a field is a mean or a std that inputs are scaled by."""
    return bool({*_words(one.name)} & {"mean", "std"} and one.place_words & OF_DATA)


def _name_is_understood(one: Field, named: list[str], known: Known) -> bool:
    """Return whether a field is understood by a family of words, or else word by word."""
    families = [each for each in FAMILIES if any(map(each.begins.match, named))]
    # ``stems`` has looked at it, or it is about another part of the program.
    if families:
        return all(_fits(each, named, one.place_words) for each in families)
    # ``_spent`` and ``stems`` look at every epsilon.
    return not {*named}.isdisjoint({"epsilon", "eps"}) or _is_known_field(one, named, known)


def _follows_data(one: Field, named: list[str]) -> bool:
    """Return whether a field may depend on the data, or release more of them, by known words."""
    said, place = {*_words(str(one.value)[:80])}, one.place_words
    if "pretrained" in named and {*named} & _SOURCES:
        return True
    saved = {*named} & {"save", "export", "dump", "log"} and {*named} & _OUTPUTS
    if (saved and one.flag) or (place & {"stop", "halt"} and place & {"when", "if"}):
        return True
    trained = bool(said & {"train", "training"})
    return trained and ({"early", "stopping"} <= place or "from" in named)


def _is_known_field(one: Field, named: list[str], known: Known) -> bool:
    named = [word for word in named if not (known.shuffled and word.startswith("shuffl"))]
    if not named:
        return True
    if _follows_data(one, named):
        return False
    # A part that is off changes no fact. One of a kind is one run.
    if _is_off(one, named) or ({*named} & (_COUNTS | COUNTING) and _is_single(one)):
        return True
    if one.name in ("t", "num_batches"):
        return known.rounds >= (one.number or math.inf)
    shown = of_a_test(one) or bool({*_words(one.place)} & SHOWN)
    if not _name_is_clear(one, named, shown=shown):
        return _restates(one, known)
    return _value_is_clear(one, named, known)


def _is_single(one: Field) -> bool:
    """Return whether a field counts one thing, or lists one."""
    return one.number == 1 or (isinstance(one.value, list) and len(one.value) == 1)


_DENIED = {"no", "without", "disable", "disabled", "off", "false", "adaptive"}


def _is_off(one: Field, named: list[str]) -> bool:
    """Return whether a field turns a part off that is no switch of privacy."""
    if one.flag is not False and one.number != 0:
        return False
    others = {*named} & _OTHERS or (one.flag is False and one.place_words & _DENIED)
    return bool(others) or not {*_words(one.place)} & _NOT_SWITCHES


def _fits(family: Stem, named: list[str], place: set[str]) -> bool:
    """Return whether a name of a family of words is understood."""
    if not place & family.elsewhere:
        return True
    rest = {word for word in named if not family.begins.match(word)}
    return all(map(_is_known, rest - family.elsewhere - family.known - {"gradient", "grad"}))


def _restates(one: Field, known: Known) -> bool:
    """Return whether a text has only words that restate settings, such as mechanism: gaussian."""
    if not isinstance(one.value, str) or one.number is not None:
        return False
    if one.name in ("accountant", "accounting") and one.flag is None:
        return {*_words(one.value)} <= _ACCOUNTANTS
    if one.flag is not None or {*_words(one.value)} <= _BARE:
        return False
    if {*_words(one.value)} <= _CONSTANT:
        return bool({*_words(one.name)} & _KINDS)
    return is_clear(f"privacy {one.name} {one.value}", known)


_KINDS = {"schedule", "scheduler", "type", "kind", "mode", "clip", "clipping"}
_ACCOUNTANTS = words_of(
    """
    accountant gdp moments none opacus pld prv rdp renyi zcdp
    """
)
_CONSTANT = {"constant", "fixed", "static", "flat"}
_BARE = {"sgd", "adam", "none", "basic", "simple", "local", "standard"}
"""Words that may name a run without privacy."""


def _is_known(word: str) -> bool:
    return word in SUBJECTS or word in QUALIFIERS or (len(word) == 1 and word not in "cqz")


def _name_is_clear(one: Field, named: list[str], *, shown: bool) -> bool:
    if not shown and {*named} & COUNTING:
        return False
    if not all(map(_is_known, named)):
        return False
    if any(word in SUBJECTS for word in named):
        return True
    # A name such as type completes the name of its part.
    place = _part(one)
    parent = _words(place)
    if plain_name(place) in words.KNOWN:
        return True
    if any(word in SUBJECTS for word in parent):
        return all(map(_is_known, parent))
    if parent and words.PRIVACY & {*parent}:
        return one.flag is True and {*named} <= words.SWITCHES
    return False


def _value_is_clear(one: Field, named: list[str], known: Known) -> bool:
    if "seed" in named:
        return one.number is not None or bool(_SEED.match(str(one.value)))
    if {*named} & SHOWN or ("order" in named and one.place_words & {"model", "layer", "net"}):
        return True
    if {*named} & {"state", "status"} and {*_words(str(one.value)[:80])} <= _ENDED:
        return True
    return all(is_clear(text, known, free=True) for text in _texts(one.value))


_SEED = re.compile(r"an integer of|\$\{?\w+\}?$|true$|false$|auto$", re.IGNORECASE)
_ENDED = {"finished", "complete", "completed", "crashed", "failed", "killed", "success", "done"}
"""Words for a run that ended; one that crashed released fewer sums."""


def _texts(value: Any) -> list[str]:
    values = value if isinstance(value, list) else [value]
    return [each for each in values if isinstance(each, str)]
