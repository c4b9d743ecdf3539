"""Fields of a configuration that put its facts in doubt: each one ends in a question or a refusal.

A reader takes facts by name. Another field of the same file may contradict them: it turns the noise
off, names another kind of noise, gathers several batches into a step, or counts several runs. Such
a field never changes a number. It makes the fact a question, which the user answers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import chain
from typing import Any

from ...relations import Unit
from . import batches, counts, remarks, scripts, stems, sweeps, switches, unclear
from .draft import Draft, refuse_unauditable
from .fields import DEFAULT, Field, Fields, as_flag, as_number, of_a_test, plain_name
from .fields import empty as _empty
from .fields import value_words as _value_words
from .fields import words_in as _words
from .vocabulary import OF_DATA
from .words import CLIPS, NOISE, PRIVACY, STEPS, SWITCHES, is_infinite, says

_PRIVATE = PRIVACY | {"opacus", "noise"}
_OFF = {"none", "off", "disabled", "disable", "no", "nodp", "nonprivate", "non", "without", "never"}
_OFF |= {"false", "null", "noiseless"}
_NEGATIONS = {"disable", "disabled", "no", "non", "without", "off", "skip", "bypass", "dont"}
_NEGATIONS |= {"false"}
_NOT_PRIVATE = {"nonprivate", "nondp", "unprivate"}
_PARTLY = {"start", "begin", "after", "every", "interval", "until", "stop", "end", "warmup"}
_METHODS = {"mechanism", "algorithm", "method", "defense", "defence"}
_ASIDE = {"scheduler", "schedule", "secure", "rng", "seed", "poisson", "adaptive", "layer", "log"}
_ASIDE |= {"accountant", "accounting", "verbose", "ghost", "shared", "decay", "alphas", "secagg"}
_ASIDE |= {"epsilon", "delta", "eps", "budget", "target", "generator", "logging", "aggregation"}
_ASIDE |= {"batch", "empty", "save", "store", "sampling"}
_OF_OTHERS = {"repo", "hub", "report", "label", "labels", "augmentation", "dropout", "image"}
_OF_OTHERS |= {"input", "inputs"}
_ASIDE |= _OF_OTHERS
"""Words of fields in a part about privacy whose absence does not turn the noise off."""

_NOISY = {"noise", "sigma", "std", "stddev", "noisy"}
_SHARED = {"ftrl", "bandmf", "blt", "toeplitz", "banded", "tree", "factorization", "correlated"}
_SHARED |= {"dpftrl", "matfac", "dpmatfac", "bandinvmf", "bnmf"}
"""Words for noise that several rounds share."""
_KINDS = {"mechanism", "noise", "distribution", "perturbation", "perturb", "mech"}
_OTHERS = {"exponential", "staircase", "geometric", "student", "cauchy", "uniform", "skellam"}
_OTHERS |= {"binomial", "gumbel", "randomized", "randomised", "response", "discrete", "svt"}
_LAPLACE = {"laplace", "laplacian"}

_CLIPPING = {"clip", "clipping", "clipped"}
_TYPES = {"type", "mode", "method", "strategy", "kind", "style", "name"}
_BY_COORDINATE = {"value", "linf", "inf", "coordinate", "coordinatewise", "elementwise"}
_OTHER_NORMS = {"1", "l1", "inf", "linf", "infinity", "max", "value", "elementwise", "l_inf"}
_CLIPS: tuple[str, ...] = (
    "max_grad_norm",
    "max_per_sample_grad_norm",
    "per_sample_max_grad_norm",
    "per_example_max_grad_norm",
    "l2_norm_clip",
    "clip_norm",
    "clipping_norm",
)
_CLIPS += ("clipping_bound", "clipping_value", "max_norm")
_NO_CLIP = 1e4
"""Norm from which a clip is one in name only: noise in proportion to it would hide everything."""
_OF_RECORDS = {"per_sample_max_grad_norm", "per_example_max_grad_norm", "max_per_sample_grad_norm"}

_TRIALS = {"trials", "runs", "seeds", "repeats", "repeat", "repetitions", "folds", "kfold"}
_TRIALS |= {"replicates", "replications", "restarts", "teachers"}
_MANY_RUNS = {"max_evals", "trial_count", "ensemble_size", "k_fold", "n_fold", "num_fold"}
_MANY_RUNS |= {"cross_validation", "cv", "fold", "bootstrap", "bootstraps", "retrain", "retrains"}
_NO_TRIALS = {
    "warm",
    "lr",
    "scheduler",
    "cosine",
    "per",
    "every",
    "dir",
    "id",
    "timeout",
    "keep",
    "patience",
    "between",
}
_BEGUN = {"start_step", "start_epoch", "initial_step", "start_iteration", "step_offset"}
_UNITS = {"group_by", "group_key", "group_column", "privacy_key", "privacy_id", "entity"}
_UNITS |= {"unit", "privacy_unit", "granularity", "privacy_level", "dp_level", "protection"}
_MANY = {"user", "users", "client", "clients", "patient", "patients", "group", "groups", "device"}
_MANY |= {"person", "persons", "individual", "individuals", "author", "household", "site"}
_MANY |= {"node", "nodes", "graph", "subject", "subjects", "speaker", "account", "customer"}


def check(draft: Draft, name: str, texts: Iterable[str | remarks.Doubt] = ()) -> None:
    """Refuse a draft whose noise no multiplier describes, and ask for the facts in doubt.

    Args:
        draft: the draft.
        name: name of the file, for messages.
        texts: sentences of the file outside its fields, for example comments.

    Raises:
        ConversionError: if the noise is off, of another kind than Gaussian, or shared by rounds.
    """
    off = switched_off(draft.fields)
    if off is not None:
        refuse_unauditable(name, draft.tool, f"{off} turns its noise off")
    many = sweeps.swept(draft.fields)
    if many:
        refuse_unauditable(name, draft.tool, sweeps.why(many))
    shared = _first(draft.fields, _is_shared)
    if shared is not None:
        why = f"{shared} names noise that rounds share, which no multiplier describes"
        refuse_unauditable(name, draft.tool, why)
    other = other_noise(draft.fields)
    if other is not None:
        refuse_unauditable(name, draft.tool, why_not_gaussian(other))
    for one in draft.fields.every:
        for question in (
            _clip,
            _trials,
            _microbatches,
            _resumed,
            _of_users,
            _of_records,
            _perhaps_off,
        ):
            question(draft, one)
    switches.check(draft)
    _shuffled(draft)
    _parts(draft)
    batches.check(draft)
    counts.check(draft)
    _noise(draft)
    _not_on_gradients(draft)
    _defaults(draft)
    stems.check(draft)
    stems.others(draft)
    _sentences(draft, texts)


def _sentences(draft: Draft, texts: Iterable[str | remarks.Doubt]) -> None:
    """Ask for the facts that lines of a script put in doubt, and keep the other sentences."""
    values = (one.value for one in draft.fields.every if isinstance(one.value, str))
    commands = chain.from_iterable(scripts.doubts_in(text) for text in values if " -" in text)
    for text in chain(texts, commands):
        if isinstance(text, remarks.Doubt) and text.fact == "reviewed":
            draft.lines.append(text.text)
        elif isinstance(text, remarks.Doubt):
            batches.doubt(draft, text.fact, str(text))
        else:
            draft.texts.append(text)
    for one in draft.fields.unread():
        draft.texts += remarks.texts_of(one, named=one.name not in unclear.NAMES)


def _defaults(draft: Draft) -> None:
    """Ask for the facts whose numbers in the file are defaults, which a run may replace."""
    for fact, names in (("noise_multiplier", NOISE), ("rounds", STEPS)):
        for one in draft.fields.used.values():
            if one.name in names and one.place.endswith(DEFAULT) and fact in draft.facts:
                draft.ask(fact, f"{one} is a default; state the number of the run")


_SOME = {"layers", "layer", "params", "parameters", "modules", "fraction", "portion", "subset"}
_SOME |= {"only", "part"}
_BATCH_CLIPS = {"gradient_clip_val", "grad_clip", "gradient_clip", "gradient_clipping"}
_BATCH_CLIPS |= {"clip_grad_norm", "grad_clip_norm", "clip_gradients", "clip_grad"}
_REPEATS = {"oversample", "oversampling", "upsample", "upsampling", "smote"}
_PER_USER = re.compile(r"(?:^|_)per_(?:user|client|patient|person|device|author|subject)\b")

_BATCH_NORM = re.compile(r"batch_?norm")


def _of_records(draft: Draft, one: Field) -> None:
    """Ask for the noise if the clip of one record may not bound what a record changes."""
    if draft.facts.get("unit") is Unit.CLIENT or _empty(one.value):
        return
    words, said, why = _words(one.name), _value_words(one), ""
    if words & _PRIVATE and words & _SOME:
        why = "parts of the model may have no noise"
    elif ("multiplier" in words and "noise" not in words and _words(one.place) & _PRIVATE) or (
        words & {"schedule", "scheduler"} and words & _PRIVATE and not said & {"constant", "none"}
    ):
        why = "it may change the noise of later steps"
    elif one.name in _BATCH_CLIPS and not draft.fields.has(*CLIPS, *_CLIPS):
        why = "it may clip the mean of a batch in place of each record"
    elif words & _REPEATS:
        why = "a record may be there several times"
    elif _PER_USER.search(one.name) or (words & {"contributions"} and as_number(one.value) != 1):
        why = "the noise is relative to the clip of one record"
    elif _BATCH_NORM.search(plain_name(f"{one.name} {str(one.value)[:200] if said else 0}")):
        why = "batch normalisation mixes the records of a batch"
    if why and one.place not in draft.fields.used:
        draft.ask("noise_multiplier", f"{one}: {why}")


def _shuffled(draft: Draft) -> None:
    """Note the field that shuffles the records, which contradicts another stated sampling."""
    if draft.facts.get("unit") is Unit.CLIENT:
        return
    draft.shuffles = _first(draft.fields, without_poisson)
    # Opacus replaces a loader that shuffles by one that draws Poisson batches.
    if draft.shuffles is not None or says(draft.fields, "opacus"):
        return
    for one in draft.fields.every:
        named = "shuffle" in _words(one.name) and as_flag(one.value)
        text = str(one.value)[:400] if isinstance(one.value, str) else ""
        places = _words(one.place)
        drawn = places & _DRAWS and not places & {"model", "layer", "net"} and _orders(one)
        if (named or drawn or _SHUFFLES.search(text)) and not of_a_test(one):
            draft.shuffles = one
            return


_DRAWS = {"sampling", "sampler", "selector", "selection", "batching", "bins", "order", "ordering"}
_DRAWS |= {"subsampling", "sample", "participation"}
_ORDERS: tuple[set[str], ...] = (
    {"sequential"},
    {"cyclic"},
    {"round", "robin"},
    {"bins"},
    {"truncated", "poisson"},
)
_ORDERS += ({"min", "sep"}, {"minsep"}, {"separation"}, {"in", "order"}, {"fixed", "order"})
_ORDERS += ({"streaming"}, {"permutation"}, {"cycle"})


def _orders(one: Field) -> bool:
    """Return whether a field about drawing names an order, bins or a limit: no Poisson draws."""
    said = _value_words(one) if as_flag(one.value) is None else set()
    said |= _words(one.name) if as_flag(one.value) else set()
    return any(said >= order for order in _ORDERS)


_SHUFFLES = re.compile(
    r"\bshuffle\s*=\s*True\b|\b(?:Weighted|Subset)?(?:Random|Sequential|Distributed)Sampler\b",
    re.ASCII,
)


def other_noise(fields: Fields) -> Field | None:
    """Return the field that names noise of another kind than Gaussian, or None."""
    return _first(fields, _is_other)


def why_not_gaussian(field: Field) -> str:
    """Return why a file with noise of another kind is not audited."""
    words = _words(field.name) | _value_words(field)
    name = next((name for kinds, name in _ACCOUNTED if words >= kinds), "")
    why = f"{field} is not Gaussian noise, which an audit of settings assumes"
    if not name:
        return f"{why}; no mechanism here accounts it"
    return f"{why}; account it in Python, for example fp.epsilon(fp.{name}(...) * rounds, ...)"


_ACCOUNTED: tuple[tuple[set[str], str], ...] = (
    ({"discrete", "laplace"}, "DiscreteLaplace"),
    ({"geometric"}, "DiscreteLaplace"),
    ({"laplace"}, "Laplace"),
    ({"laplacian"}, "Laplace"),
    ({"skellam"}, "Skellam"),
    ({"discrete", "gaussian"}, "DistributedDiscreteGaussian"),
    ({"randomized", "response"}, "RandomizedResponse"),
    ({"randomised", "response"}, "RandomizedResponse"),
)
"""Words for a mechanism -> its class here."""


def _first(fields: Fields, wanted: Any) -> Field | None:
    return next((one for one in fields.every if wanted(one)), None)


def _is_other(one: Field) -> bool:
    words, said = _words(one.name), _value_words(one)
    if (words | said) & _LAPLACE:
        return not _empty(one.value) and "smoothing" not in words
    # Votes of teachers and a perturbed objective have no clipped sums of gradients.
    votes = "pate" in said or ("perturbation" in said and said & {"objective", "output"})
    if votes and words & (_METHODS | _KINDS):
        return True
    # A noise_scheduler that is exponential changes the std of Gaussian noise.
    return bool(words & _KINDS and said & _OTHERS) and not words & _ASIDE


def _is_shared(one: Field) -> bool:
    words = _words(one.name) | _value_words(one) | _words(str(one.value)[:200].lower())
    stem = any(word.removeprefix("dp").startswith("ftrl") for word in words)
    stem = stem or words >= {"dp", "mf"} or "dpmf" in words
    return as_flag(one.value) is not False and bool(words & _SHARED or stem)


def switched_off(fields: Fields) -> Field | None:
    """Return the field that turns the privacy of the run off, or None."""
    for one in fields.every:
        words = _words(one.name)
        # A switch is about privacy by its own name, or by the name of its part of the file.
        part = _words(one.place.rpartition(".")[0].rpartition(".")[2])
        if not _words(one.place) & _PRIVATE or part & {"scheduler", "schedule", "decay"}:
            continue
        if (words | part) & _OF_OTHERS:
            continue
        flag = as_flag(one.value)
        if flag is False and (words & SWITCHES or words <= _PRIVATE | {"is", "with"}):
            return one
        if flag is True and words & _NEGATIONS:
            return one
    return None


def _perhaps_off(draft: Draft, one: Field) -> None:
    """Ask for the noise if a field may turn it off, for example ``noise_type: none``."""
    words = _words(one.name)
    if words & _ASIDE or one.place in draft.fields.used or draft.facts.get("noise_multiplier") == 0:
        return
    if as_flag(one.value) is False:
        off = bool(words & _PRIVATE) and not words & _NEGATIONS
    else:
        off = says_off(one)
    off = off or (bool(words & _NOT_PRIVATE) and not _empty(one.value))
    # In privacy = null the name says everything.
    parts = words & {"engine", "optimizer"} or words <= PRIVACY
    off = off or (one.value is None and bool(words & _PRIVATE and parts))
    # A number such as dp_start_step leaves steps without noise.
    steps = as_number(one.value) if words & _PRIVATE and words & _PARTLY else None
    if off or (steps is not None and steps > 0):
        draft.ask("noise_multiplier", f"{one} may turn the noise or the clip off")
    # A trainer has its own clip of the mean, which may be off.
    trainers = words & {"grad", "gradient", "gradients"} and not _words(one.place) & _PRIVATE
    # One of local and central noise may be off where the other one is on.
    if off and not trainers and not words & _ONE_OF_TWO:
        draft.lasting.append(f"{one} may turn the noise or the clip off, whatever is stated")


_ONE_OF_TWO = {"local", "ldp", "central", "cdp", "client", "server", "global"}


def says_off(one: Field) -> bool:
    """Return whether a field names no privacy, no mechanism or no clip, in words."""
    words, said = _words(one.name), _value_words(one)
    about = _words(one.place) & (_PRIVATE | _CLIPPING) or words & _METHODS
    return bool(about and said & _OFF and said <= _OFF | _PRIVATE | {"training", "sgd"})


def clip_off(one: Field) -> bool:
    """Return whether a field turns the clip off, for example ``clipping: {enabled: false}``."""
    words, flag = _words(one.name), as_flag(one.value)
    part, about = _words(one.place) & _CLIPPING, words & _CLIPPING
    if flag is True:
        return bool(words & _NEGATIONS and (part or about))
    # A clip that is not adaptive or not by layer is a clip.
    if _words(one.place) & {"adaptive", "layer", "schedule", "scheduler", "decay"}:
        return False
    said = _value_words(one)
    none = bool(said) and said <= {"none", "off", "disabled", "no", "null"}
    switch = about or (part and words & (SWITCHES | (_TYPES if none else set())))
    return bool((flag is False or none) and switch)


def without_poisson(one: Field) -> bool:
    """Return whether a field says that batches are not drawn so: ``poisson_sampling: false``."""
    words, flag = _words(one.name), as_flag(one.value)
    if words & {"loss", "nll", "regression", "glm", "noise", "image", "data"} or flag is None:
        return False
    part = _words(one.place.rpartition(".")[0].rpartition(".")[2])
    switch = "poisson" in words or ("poisson" in part and words & SWITCHES)
    return bool(switch and flag is bool(words & _NEGATIONS))


def _clip(draft: Draft, one: Field) -> None:
    """Ask for the noise if contributions are not clipped to one fixed norm."""
    words, said = _words(one.name), _value_words(one)
    about, why = bool(words & _CLIPPING), ""
    norm = as_number(one.value)
    # In clipping = {type = per_layer} the part says what the type is of.
    part = one.place.rpartition(".")[0].rpartition(".")[2]
    about = about or bool(words & _TYPES and _words(part) & _CLIPPING)
    if clip_off(one):
        why = "it holds for clipped contributions only"
        # A trainer has its own clip of the mean, which may be off.
        if not words & {"grad", "gradient", "gradients"} or _words(one.place) & _PRIVATE:
            draft.unclipped = one
    elif _of_a_clip(one) and ((norm is not None and norm >= _NO_CLIP) or is_infinite(one.value)):
        why = "a norm this large leaves contributions unclipped; state the noise over another norm"
    elif one.place in draft.fields.used or _empty(one.value):
        return
    elif about and (words | said) & _BY_COORDINATE:
        why = "a clip of values is not one of norms"
    elif words >= {"norm", "type"} or (words & {"ord", "order"} and words & (_CLIPPING | {"norm"})):
        if str(one.value).strip().lower() in _OTHER_NORMS:
            why = "the clip is of another norm"
    elif (
        (words | said) & {"layer", "layerwise", "param"}
        and "all" not in said
        and (about or "per" in words)
    ):
        why = "the norm of all layers together counts"
    elif (about and (words | said | _words(part)) & {"adaptive", "auto"}) or (
        "quantile" in words and words & {"unclipped", "clipped", "clip", "clipping"}
    ):
        why = "a norm that follows the data may cost more"
    elif one.name == "sensitivity" and as_number(one.value) != 1:
        why = "the noise over the clip norm counts, whatever sensitivity it was computed for"
    if why and draft.facts.get("noise_multiplier") != 0:
        draft.ask("noise_multiplier", f"{one}: {why}")


def _of_a_clip(one: Field) -> bool:
    """Return whether a field is a clip norm, also with a word more: ``max_grad_norm_actual``."""
    return one.name in _CLIPS or _words(one.name) >= {"max", "grad", "norm"}


def _size(value: Any) -> float | int | None:
    return len(value) if isinstance(value, list) else as_number(value)


def _trials(draft: Draft, one: Field) -> None:
    many = _size(one.value)
    listed = isinstance(one.value, list) and one.name in ("seed", "random_seed", "random_state")
    if (_counts_runs(one) or listed) and many is not None and many > 1:
        draft.ask("trials", f"{one}: how many runs were made on these data", many)


def trials_in(fields: Fields) -> Field | None:
    """Return the field that counts several runs on the same data, or None."""
    many = filter(_counts_runs, fields.every)
    return next((one for one in many if (_size(one.value) or 0) > 1), None)


def _counts_runs(one: Field) -> bool:
    words = _words(one.name)
    return one.name in _MANY_RUNS or bool(words & _TRIALS and not words & _NO_TRIALS)


def _microbatches(draft: Draft, one: Field) -> None:
    """Ask for the noise if parts of a batch are clipped in place of records."""
    named = _words(one.name) & {"microbatch", "microbatches"} and _size(one.value) is not None
    # Parts of one record are records.
    named = named and (one.name, one.value) != ("microbatch_size", 1)
    if named and one.place not in draft.fields.used:
        why = f"{one}: with microbatches a record moves the sum by two clip norms"
        draft.ask("noise_multiplier", why)


_PARTS = {"optimizer", "optimizers", "generator", "discriminator", "encoder", "decoder", "actor"}
_PARTS |= {"critic", "group", "groups", "layer", "layers", "module", "modules", "head", "backbone"}
_PARTS |= {"phase", "phases", "stage", "stages", "pretrain", "pretraining", "finetune"}
_PARTS |= {"warmup", "main", "initial", "cooldown"}
_PARTS |= {"finetuning", "enc", "dec", "teacher", "student", "segment", "segments", "curriculum"}
_PARTS |= {"part", "parts", "block", "blocks", "progressive", "schedule", "history", "epoch"}
_PARTS |= {"period", "periods", "chunk", "chunks", "cycle", "cycles"}


def is_part(place: object) -> bool:
    """Return whether a place of a file is a part of one run, for example one of two optimizers."""
    return bool({word.rstrip("0123456789") for word in _words(place)} & _PARTS)


_ROW = re.compile(r"\[\d+\]\.")


def _parts(draft: Draft) -> None:
    """Ask for the rounds if several parts of one run release noisy sums."""
    every = draft.fields.every
    rows = [one for one in every if one.name in NOISE]
    # The rows of one list are parts of a run, since a list of runs was split before.
    noisy = [one for one in rows if is_part(one.place) or _ROW.search(one.place)]
    if len({one.place for one in noisy}) > 1:
        draft.ask("rounds", f"{noisy[0]} and {noisy[1]}: the noisy sums of all parts count")


def _resumed(draft: Draft, one: Field) -> None:
    begun = one.name in _BEGUN and (as_number(one.value) or 0) > 1
    resumed = _words(one.name) & {"resume", "resumed"} and not _empty(one.value)
    if "rounds" in draft.facts and (begun or (resumed and one.value != "never")):
        draft.ask("rounds", f"{one}: the steps before a resumption count too")


def _of_users(draft: Draft, one: Field) -> None:
    """Ask for the noise if the file is about all records of a user, and its clip about one."""
    named = one.name in _UNITS or _words(one.name) & {"level", "unit", "granularity"}
    flagged = "level" in _words(one.name) and _words(one.name) & _MANY and as_flag(one.value)
    if not flagged and not (named and _value_words(one) & _MANY):
        return
    if draft.facts.get("unit") != Unit.CLIENT:
        why = f"{one}, but the noise is relative to the clip of one record"
        draft.ask("noise_multiplier", why)


def _noise(draft: Draft) -> None:
    """Ask for the noise if the file has another field on noise that is not understood."""
    clips = [one for one in draft.fields.every if one.name in CLIPS or _of_a_clip(one)]
    if any(one.name in _OF_RECORDS for one in clips):
        # A trainer's own max_grad_norm then clips the noisy mean, which costs nothing.
        clips = [one for one in clips if one.name != "max_grad_norm"]
    of_records = draft.facts.get("unit") is not Unit.CLIENT
    norms = {as_number(one.value): one for one in clips} if of_records else {}
    norms.pop(None, None)
    if len(norms) > 1 and draft.facts.get("noise_multiplier"):
        several = " and ".join(map(str, list(norms.values())[:2]))
        why = f"{several}: state the noise over the norm that bounds the sum"
        draft.ask("noise_multiplier", why)
    clips = [one for one in clips if one.name in _CLIPS]
    loose = [one for one in clips if one.value is not None and not _is_norm(one.value)]
    by_layer = any("layer" in _words(one.name) | _value_words(one) for one in draft.fields.every)
    loose += [one for one in clips if _listed(one.value) and not by_layer]
    loose += [one for one in clips if one.value is None and not any(map(_norm_in, clips))]
    if loose and draft.facts.get("noise_multiplier"):
        draft.ask("noise_multiplier", f"{loose[0]} is no norm that a contribution is clipped to")
    for one in _understood_by_nobody(draft):
        draft.ask("noise_multiplier", f"{one} concerns the noise and is not understood here")
        return


_PARTS_OF_MODELS = {"embedding", "embeddings", "activation", "activations", "feature", "features"}
_PARTS_OF_MODELS |= {"logits", "label", "labels", "hidden", "representation", "prompt", "input"}
_PARTS_OF_MODELS |= {"smashed", "cut", "representations", "embeds", "latents"}


def _not_on_gradients(draft: Draft) -> None:
    """Ask for the noise if it is on something else than a clipped gradient or update."""
    for one in draft.fields.used.values():
        about = _words(one.place.rpartition(".")[0]) & _PARTS_OF_MODELS
        if one.name in NOISE and about and draft.facts.get("noise_multiplier"):
            why = f"{one} is of {' and '.join(sorted(about))}; state the noise of a clipped sum"
            draft.ask("noise_multiplier", why)
            return


def _understood_by_nobody(draft: Draft) -> Iterable[Field]:
    for one in draft.fields.unread():
        words, said = _words(one.name), _value_words(one)
        if said and (said <= _NORMAL or (words & _SCHEDULES and said <= _STEADY)):
            continue
        aside = "seed" in words or _words(one.place) & OF_DATA
        if words & _NOISY and not _empty(one.value) and not aside:
            yield one


_SCHEDULES = {"schedule", "scheduler", "scheduling", "decay", "annealing"}
_STEADY = {"constant", "fixed", "none", "off", "no", "flat", "schedule", "scheduler"}
"""Words of a noise that does not change during a run."""
_NORMAL = {"gaussian", "normal", "gauss", "mechanism", "noise"}
"""Words of the noise that a multiplier describes."""


def _is_norm(value: Any) -> bool:
    # Opacus takes one norm for every layer as a list.
    if isinstance(value, list):
        return True
    number = as_number(value)
    return number is not None and number > 0


def _listed(value: Any) -> bool:
    return isinstance(value, list) and len({*map(str, value)}) > 1


def _norm_in(field: Field) -> bool:
    return field.value is not None and _is_norm(field.value)
