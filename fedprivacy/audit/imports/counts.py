"""Fields that put the number of noisy sums in doubt, or what the claim is about."""

from __future__ import annotations

import math
import re

from ...relations import Unit
from .draft import Draft
from .fields import Field, as_flag, as_number, of_a_test, words_in
from .words import PER_EPOCH, REAL, federated

EPOCHS: tuple[str, ...] = ("epochs", "num_epochs", "n_epochs", "max_epochs", "num_train_epochs")
EPOCHS += ("total_epochs", "n_epoch", "num_epoch")
_STEPS = ("steps", "num_steps", "n_steps", "train_steps", "num_iterations", "iterations")


def check(draft: Draft) -> None:
    """Ask for the rounds or the claim if a field puts them in doubt."""
    _of_epochs(draft)
    _more_steps(draft)
    for one in draft.fields.every:
        if one.place not in draft.fields.used and not of_a_test(one):
            _only_tried(draft, one)
            _steps_inside(draft, one)
            _of_groups(draft, one)
            _of_models(draft, one)


_TRIED = {"dry_run", "dryrun", "smoke_test", "fast_dev_run", "sanity_check"}


def _only_tried(draft: Draft, one: Field) -> None:
    """Ask for the rounds if a program only tries its settings, for example ``dry_run: true``."""
    on = as_flag(one.value) or (as_number(one.value) or 0) > 0
    if one.name in _TRIED and on:
        why = f"{one} may run fewer steps, or none; state how many ran"
        draft.ask("rounds", why, limits=False)


INSIDE = {"local_steps", "num_local_steps", "local_epochs", "local_iterations", "local_updates"}
INSIDE |= {"inner_steps", "num_inner_steps", "num_passes", "n_passes", "passes"}
INSIDE |= {"steps_per_round", "updates_per_step"}


def _steps_inside(draft: Draft, one: Field) -> None:
    """Ask for the rounds if a step on records may consist of several ones."""
    many = as_number(one.value)
    if draft.facts.get("unit") is Unit.CLIENT or one.name not in INSIDE or (many or 0) <= 1:
        return
    if "rounds" in draft.facts:
        draft.ask("rounds", f"{draft.facts['rounds']} in the file, and {one}: do they count these?")
    elif any(question.name == "rounds" for question in draft.questions):
        draft.ask("rounds", f"{one}: do the rounds count these?")


_GROUPED = {"quant", "quantization", "quantisation", "gptq", "awq", "norm", "grpo", "rollout"}
"""Words of parts whose groups are not of people."""


def _of_groups(draft: Draft, one: Field) -> None:
    """Ask for the claim if the file's one may be for a group of units."""
    size = as_number(one.value)
    named = one.name == "group_size" or words_in(one.name) >= {"group", "privacy"}
    if named and size is not None and size > 1 and not words_in(one.place) & _GROUPED:
        why = f"{one}: an epsilon of a group is not that of one unit, which is judged here"
        draft.ask_claim(why)


_BEST = re.compile(r"\bbest (?:of|among) (?:[2-9]|[1-9]\d)", re.ASCII | re.IGNORECASE)


def _of_models(draft: Draft, one: Field) -> None:
    """Ask for the trials if several models of these data are released."""
    words, many = words_in(one.name), as_number(one.value)
    listed = isinstance(one.value, list) and len(one.value) > 1
    released = bool(words & {"released", "release", "published", "num", "n"})
    models = ("models" in words and released) or one.name in ("ensemble", "ensembles")
    tried = listed and words_in(one.place.rpartition(".")[0]) & {"grid", "sweep", "search"}
    best = isinstance(one.value, str) and _BEST.search(one.value[:200]) is not None
    if (models and (listed or (many or 0) > 1)) or tried or best:
        size = len(one.value) if isinstance(one.value, list) else many or 0
        draft.ask("trials", f"{one}: how many runs were made on these data", size)


def _of_epochs(draft: Draft) -> None:
    """Ask for the rounds if the steps in the file are fewer than those of its epochs."""
    epochs = [one for one in draft.fields.every if one.name in EPOCHS or _epochs_run(one)]
    many = {as_number(one.value) for one in epochs if draft.about_the_run(one)} - {None}
    rounds, rate = (draft.facts.get(name) for name in ("rounds", "sampling_probability"))
    steps = [one for one in draft.fields.used.values() if as_number(one.value) == rounds]
    at = next((one for one in draft.fields.every if one.name in ("epoch", "current_epoch")), None)
    if at is not None and any(one.name in _STEPS for one in steps):
        draft.ask("rounds", f"{steps[0]} at {at}: the steps of all epochs count")
    number = max((value for value in many if value is not None), default=0)
    # A larger share makes fewer rounds; the least one was divided by this factor.
    share = rate or draft.least_rate * 1.05
    if rounds is None and share and draft.facts.get("unit") != Unit.CLIENT:
        draft.least_rounds = (
            0 if federated(draft.fields) else math.floor(0.99 * (number - 1) / share)
        )
    if not many or rounds is None or not steps:
        return
    if rate is None and number > 1 and any(one.name in _STEPS for one in steps):
        draft.ask("rounds", f"{steps[0]} and {epochs[0]}: the steps of all epochs count")
    # The batches of an epoch may be more than the rate makes.
    elif (many_steps := _of_batches(draft, number)) > 1.01 * rounds:
        why = f"{rounds} in the file, where {number:g} epochs make {many_steps:g}"
        draft.ask("rounds", why, many_steps)
    # Both may be true, if the run ended early or the epochs are of something else.
    elif rate and rounds < 0.99 * (number - 1) / rate:
        why = f"{rounds} in the file, where {steps_of(number, rate)}"
        draft.ask("rounds", why, math.floor(0.99 * (number - 1) / rate))
    # A cap of steps replaces the epochs in some trainers, and ends a longer run in others.
    elif rate and number and rounds > 1.01 * (number + 1) / rate and is_cap(steps[0]):
        why = f"{steps[0]} is a cap, where {steps_of(number, rate)}"
        draft.ask("rounds", why, limits=False)


def _of_batches(draft: Draft, epochs: float) -> float:
    """Return the steps that the batches of an epoch make; 0 if the file does not count them."""
    each = draft.fields.number(*PER_EPOCH)
    return 0.0 if each is None or federated(draft.fields) else each * epochs


def _epochs_run(one: Field) -> bool:
    words = words_in(one.name)
    return "epochs" in words and bool(words & REAL) and words <= {"epochs", "num", "n"} | REAL


def is_cap(one: Field) -> bool:
    """Return whether a field limits the steps of a run, and may be larger than their number."""
    return "max" in words_in(one.name)


_COUNTED = {"step", "steps", "iteration", "iterations", "iters", "updates"}
_IN_ALL = REAL | {"total", "num", "n", "max", "train", "training", "optimizer", "global"}
_LATER = {"finetune", "finetuning", "stage", "phase", "second", "extra", "additional"}
"""Words of steps after those of a first part."""
_OTHER_STEPS = {"warmup", "eval", "log", "logging", "save", "every", "local", "per", "epoch"}
_OTHER_STEPS |= {"interval", "accumulation", "decay", "val", "test", "inner", "diffusion", "ppo"}
_OTHER_STEPS |= {"checkpoint", "patience", "scheduler", "client", "acc", "sampling"}


def _more_steps(draft: Draft) -> None:
    """Ask for the rounds if another field counts more steps of the run."""
    rounds = draft.facts.get("rounds")
    if not isinstance(rounds, int | float) or draft.facts.get("unit") is Unit.CLIENT:
        return
    for one in draft.fields.every:
        words, many = words_in(one.name), as_number(one.value)
        if many is None or one.place in draft.fields.used or words & _OTHER_STEPS:
            continue
        later = {word.rstrip("0123456789") for word in words} & _LATER
        more = ((words & _IN_ALL or words <= _COUNTED) and many > rounds) or (later and many > 0)
        counted = words & _COUNTED or words >= {"total", "batches"}
        if counted and more and not of_a_test(one):
            draft.ask("rounds", f"{rounds:g} in the file, and {one}", many)
            return


def steps_of(epochs: float | None, rate: float | None) -> str:
    """Return the number of steps of some epochs, in words."""
    if epochs is None:
        return "how many steps ran"
    if rate is None or not 0 < rate <= 1:
        return f"steps of {epochs:g} epochs: epochs times the batches of one"
    batches = f"{epochs:g} times the batches of one, about {1 / rate:.6g}"
    return f"steps of {epochs:g} epochs: {batches}, are about {epochs / rate:.6g}"
