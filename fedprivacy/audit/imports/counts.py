"""Fields that put the number of noisy sums in doubt, or what the claim is about."""

from __future__ import annotations

import math
import re

from .draft import Draft
from .fields import Field, of_a_test, words_in
from .words import EPOCHS, PER_EPOCH, REAL, federated

_STEPS = ("steps", "num_steps", "n_steps", "train_steps", "num_iterations", "iterations")


def check(draft: Draft) -> None:
    """Ask for the rounds or the claim if a field puts them in doubt."""
    _of_epochs(draft)
    _more_steps(draft)
    for one in draft.fields.every:
        if not draft.fields.read(one) and not of_a_test(one):
            _only_tried(draft, one)
            _steps_inside(draft, one)
            _of_groups(draft, one)
            _of_models(draft, one)


_TRIED = {"dry_run", "dryrun", "smoke_test", "fast_dev_run", "sanity_check"}


def _only_tried(draft: Draft, one: Field) -> None:
    """Ask for the rounds if a program only tries its settings, for example ``dry_run: true``."""
    on = one.flag or (one.number or 0) > 0
    if one.name in _TRIED and on:
        why = f"{one} may run fewer steps, or none; state how many ran"
        draft.ask("rounds", why, limits=False)


INSIDE = {"local_steps", "num_local_steps", "local_epochs", "local_iterations", "local_updates"}
INSIDE |= {"inner_steps", "num_inner_steps", "num_passes", "n_passes", "passes"}
INSIDE |= {"steps_per_round", "updates_per_step"}


def _steps_inside(draft: Draft, one: Field) -> None:
    """Ask for the rounds if a step on records may consist of several ones."""
    many = one.number
    if draft.of_clients or one.name not in INSIDE or (many or 0) <= 1:
        return
    if "rounds" in draft.facts:
        draft.ask("rounds", f"{draft.facts['rounds']} in the file, and {one}: do they count these?")
    elif any(question.name == "rounds" for question in draft.questions):
        draft.ask("rounds", f"{one}: do the rounds count these?")


_GROUPED = {"quant", "quantization", "quantisation", "gptq", "awq", "norm", "grpo", "rollout"}
"""Words of parts whose groups are not of people."""


def _of_groups(draft: Draft, one: Field) -> None:
    """Ask for the claim if the file's one may be for a group of units."""
    size = one.number
    named = one.name == "group_size" or one.words >= {"group", "privacy"}
    if named and size is not None and size > 1 and not one.place_words & _GROUPED:
        why = f"{one}: an epsilon of a group is not that of one unit, which is judged here"
        draft.ask_claim(why)


_BEST = re.compile(r"\bbest (?:of|among) (?:[2-9]|[1-9]\d)", re.ASCII | re.IGNORECASE)


def _of_models(draft: Draft, one: Field) -> None:
    """Ask for the trials if several models of these data are released."""
    size = len(one.value) if isinstance(one.value, list) else one.number or 0
    released = one.words & {"released", "release", "published", "num", "n"}
    models = ("models" in one.words and released) or one.name in ("ensemble", "ensembles")
    listed = isinstance(one.value, list) and words_in(one.parent) & {"grid", "sweep", "search"}
    best = isinstance(one.value, str) and _BEST.search(one.value[:200])
    if ((models or listed) and size > 1) or best:
        draft.ask("trials", f"{one}: how many runs were made on these data", size)


def _of_epochs(draft: Draft) -> None:
    """Ask for the rounds if the steps in the file are fewer than those of its epochs."""
    fields, rounds, rate = draft.fields, draft.rounds, draft.rate
    steps = [one for one in fields.used.values() if one.number == rounds]
    counted = any(one.name in _STEPS for one in steps)
    if counted:
        _at_an_epoch(draft, steps[0])
    epochs = list(filter(_counts_epochs, fields.every))
    known = [one.number for one in epochs if draft.about_the_run(one) and one.number is not None]
    if rounds is None:
        _note_least(draft, max(known, default=0), rate)
    elif known and steps:
        most = max(known)
        if rate is None and most > 1 and counted:
            draft.ask("rounds", f"{steps[0]} and {epochs[0]}: the steps of all epochs count")
        else:
            _beside_epochs(draft, steps[0], rounds, most, rate)


def _at_an_epoch(draft: Draft, steps: Field) -> None:
    """Ask for the rounds if the steps in the file are those at some epoch."""
    every = draft.fields.every
    at = next((one for one in every if one.name in ("epoch", "current_epoch")), None)
    if at is not None:
        draft.ask("rounds", f"{steps} at {at}: the steps of all epochs count")


def _note_least(draft: Draft, epochs: float, rate: float | None) -> None:
    """Note the least number of rounds that the epochs make, if the file does not state it."""
    # A larger share makes fewer rounds; the least one was divided by this factor.
    share = rate or draft.least_rate * 1.05
    if share and not draft.of_clients:
        draft.least_rounds = 0 if federated(draft.fields) else math.floor(_least(epochs, share))


def _least(epochs: float, rate: float) -> float:
    """Return the least number of steps that some epochs make."""
    return 0.99 * (epochs - 1) / rate


def _beside_epochs(
    draft: Draft, steps: Field, rounds: float, epochs: float, rate: float | None
) -> None:
    """Ask for the rounds if the epochs of the file make another number of steps."""
    batches = _of_batches(draft, epochs)
    # The batches of an epoch may be more than the rate makes.
    if batches > 1.01 * rounds:
        why = f"{rounds} in the file, where {epochs:g} epochs make {batches:g}"
        draft.ask("rounds", why, batches)
    # Both may be true, if the run ended early or the epochs are of something else.
    elif rate and rounds < _least(epochs, rate):
        why = f"{rounds} in the file, where {steps_of(epochs, rate)}"
        draft.ask("rounds", why, math.floor(_least(epochs, rate)))
    # A cap of steps replaces the epochs in some trainers, and ends a longer run in others.
    elif rate and epochs and rounds > 1.01 * (epochs + 1) / rate and "max" in steps.words:
        why = f"{steps} is a cap, where {steps_of(epochs, rate)}"
        draft.ask("rounds", why, limits=False)


def _of_batches(draft: Draft, epochs: float) -> float:
    """Return the steps that the batches of an epoch make; 0 if the file does not count them."""
    each = draft.fields.number(*PER_EPOCH)
    return 0.0 if each is None or federated(draft.fields) else each * epochs


def _counts_epochs(one: Field) -> bool:
    """Return whether a field counts the epochs of the run, also by a name such as epochs_run."""
    words = one.words
    run = "epochs" in words and bool(words & REAL) and words <= {"epochs", "num", "n"} | REAL
    return run or one.name in EPOCHS


_COUNTED = {"step", "steps", "iteration", "iterations", "iters", "updates"}
_IN_ALL = REAL | {"total", "num", "n", "max", "train", "training", "optimizer", "global"}
_LATER = {"finetune", "finetuning", "stage", "phase", "second", "extra", "additional"}
"""Words of steps after those of a first part."""
_OTHER_STEPS = {"warmup", "eval", "log", "logging", "save", "every", "local", "per", "epoch"}
_OTHER_STEPS |= {"interval", "accumulation", "decay", "val", "test", "inner", "diffusion", "ppo"}
_OTHER_STEPS |= {"checkpoint", "patience", "scheduler", "client", "acc", "sampling"}


def _more_steps(draft: Draft) -> None:
    """Ask for the rounds if another field counts more steps of the run."""
    rounds = draft.rounds
    if isinstance(rounds, int | float) and not draft.of_clients:
        more = next((one for one in draft.fields.unread() if _counts_more(one, rounds)), None)
        if more is not None:
            draft.ask("rounds", f"{rounds:g} in the file, and {more}", more.number or 0)


def _counts_more(one: Field, rounds: float) -> bool:
    """Return whether a field counts more steps than some, or steps of a later part."""
    words, many = one.words, one.number
    if many is None or words & _OTHER_STEPS or of_a_test(one):
        return False
    later = many > 0 and {word.rstrip("0123456789") for word in words} & _LATER
    more = many > rounds and (words & _IN_ALL or words <= _COUNTED)
    return bool((words & _COUNTED or words >= {"total", "batches"}) and (later or more))


def steps_of(epochs: float | None, rate: float | None) -> str:
    """Return the number of steps of some epochs, in words."""
    if epochs is None:
        return "how many steps ran"
    if rate is None or not 0 < rate <= 1:
        return f"steps of {epochs:g} epochs: epochs times the batches of one"
    batches = f"{epochs:g} times the batches of one, about {1 / rate:.6g}"
    return f"steps of {epochs:g} epochs: {batches}, are about {epochs / rate:.6g}"
