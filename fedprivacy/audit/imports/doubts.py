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

from . import batches, counts, remarks, scripts, stems, sweeps, switches, unclear
from .draft import Draft, refuse_unauditable
from .fields import DEFAULT, Field, Fields, as_number, of_a_test, plain_name, words_in
from .vocabulary import OF_DATA, words_of
from .words import CLIPS, NOISE, PRIVACY, STEPS, SWITCHES, is_infinite, says

_PRIVATE = PRIVACY | {"opacus", "noise"}
_OFF = {"none", "off", "disabled", "disable", "no", "nodp", "nonprivate", "non", "without", "never"}
_OFF |= {"false", "null", "noiseless"}
_NEGATIONS = words_of("disable disabled no non without off skip bypass dont false")
_NOT_PRIVATE = {"nonprivate", "nondp", "unprivate"}
_PARTLY = {"start", "begin", "after", "every", "interval", "until", "stop", "end", "warmup"}
_METHODS = {"mechanism", "algorithm", "method", "defense", "defence"}
_ASIDE = {"scheduler", "schedule", "secure", "rng", "seed", "poisson", "adaptive", "layer", "log"}
_ASIDE |= {"accountant", "accounting", "verbose", "ghost", "shared", "decay", "alphas", "secagg"}
_ASIDE |= {"epsilon", "delta", "eps", "budget", "target", "generator", "logging", "aggregation"}
_ASIDE |= {"batch", "empty", "save", "store", "sampling"}
_OF_OTHERS = words_of("repo hub report label labels augmentation dropout image input inputs")
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
_CLIPS = words_of(
    """
    max_grad_norm max_per_sample_grad_norm per_sample_max_grad_norm per_example_max_grad_norm
    l2_norm_clip clip_norm clipping_norm clipping_bound clipping_value max_norm
    """
)
_NO_CLIP = 1e4
"""Norm from which a clip is one in name only: noise in proportion to it would hide everything."""
_OF_RECORDS = {"per_sample_max_grad_norm", "per_example_max_grad_norm", "max_per_sample_grad_norm"}

_TRIALS = {"trials", "runs", "seeds", "repeats", "repeat", "repetitions", "folds", "kfold"}
_TRIALS |= {"replicates", "replications", "restarts", "teachers"}
_MANY_RUNS = {"max_evals", "trial_count", "ensemble_size", "k_fold", "n_fold", "num_fold"}
_MANY_RUNS |= {"cross_validation", "cv", "fold", "bootstrap", "bootstraps", "retrain", "retrains"}
_NO_TRIALS = words_of("warm lr scheduler cosine per every dir id timeout keep patience between")
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


_SOME = words_of("layers layer params parameters modules fraction portion subset only part")
_BATCH_CLIPS = {"gradient_clip_val", "grad_clip", "gradient_clip", "gradient_clipping"}
_BATCH_CLIPS |= {"clip_grad_norm", "grad_clip_norm", "clip_gradients", "clip_grad"}
_REPEATS = {"oversample", "oversampling", "upsample", "upsampling", "smote"}
_PER_USER = re.compile(r"(?:^|_)per_(?:user|client|patient|person|device|author|subject)\b")

_BATCH_NORM = re.compile(r"batch_?norm")


def _of_records(draft: Draft, one: Field) -> None:
    """Ask for the noise if the clip of one record may not bound what a record changes."""
    if draft.of_clients or one.empty or draft.fields.read(one):
        return
    why = _of_other_records(draft.fields, one)
    if why:
        draft.ask("noise_multiplier", f"{one}: {why}")


def _of_other_records(fields: Fields, one: Field) -> str:
    """Return why a record may change more than its clipped and noisy gradient; else empty."""
    words = one.words
    if words & _PRIVATE and words & _SOME:
        return "parts of the model may have no noise"
    if _is_factor(one):
        return "it may change the noise of later steps"
    if one.name in _BATCH_CLIPS and not fields.has(*CLIPS, *_CLIPS):
        return "it may clip the mean of a batch in place of each record"
    if words & _REPEATS:
        return "a record may be there several times"
    if _PER_USER.search(one.name) or ("contributions" in words and one.number != 1):
        return "the noise is relative to the clip of one record"
    if _BATCH_NORM.search(plain_name(f"{one.name} {str(one.value)[:200] if one.said else 0}")):
        return "batch normalisation mixes the records of a batch"
    return ""


def _is_factor(one: Field) -> bool:
    """Return whether a field is a factor or a schedule in a part about privacy."""
    factor = "multiplier" in one.words and "noise" not in one.words and one.place_words & _PRIVATE
    scheduled = one.words & _PRIVATE and one.words & {"schedule", "scheduler"}
    return bool(factor or (scheduled and not one.said & {"constant", "none"}))


def _shuffled(draft: Draft) -> None:
    """Note the field that shuffles the records, which contradicts another stated sampling."""
    if draft.of_clients:
        return
    draft.shuffles = _first(draft.fields, without_poisson)
    # Opacus replaces a loader that shuffles by one that draws Poisson batches.
    if draft.shuffles is None and not says(draft.fields, "opacus"):
        draft.shuffles = _first(draft.fields, _shuffles)


def _shuffles(one: Field) -> bool:
    """Return whether a field says that batches are drawn in an order, or by another sampler."""
    named = "shuffle" in one.words and one.flag
    drawn = one.place_words & _DRAWS and not one.place_words & {"model", "layer", "net"}
    text = one.value[:400] if isinstance(one.value, str) else ""
    found = named or (drawn and _orders(one)) or _SHUFFLES.search(text)
    return bool(found) and not of_a_test(one)


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
    said = one.said if one.flag is None else set()
    said |= one.words if one.flag else set()
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
    words = field.words | field.said
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
    words, said = one.words, one.said
    if (words | said) & _LAPLACE:
        return not one.empty and "smoothing" not in words
    # Votes of teachers and a perturbed objective have no clipped sums of gradients.
    votes = "pate" in said or ("perturbation" in said and said & {"objective", "output"})
    if votes and words & (_METHODS | _KINDS):
        return True
    # A noise_scheduler that is exponential changes the std of Gaussian noise.
    return bool(words & _KINDS and said & _OTHERS) and not words & _ASIDE


def _is_shared(one: Field) -> bool:
    words = one.words | one.said | words_in(str(one.value)[:200].lower())
    stem = any(word.removeprefix("dp").startswith("ftrl") for word in words)
    stem = stem or words >= {"dp", "mf"} or "dpmf" in words
    return one.flag is not False and bool(words & _SHARED or stem)


def switched_off(fields: Fields) -> Field | None:
    """Return the field that turns the privacy of the run off, or None."""
    for one in fields.every:
        words = one.words
        # A switch is about privacy by its own name, or by the name of its part of the file.
        part = words_in(one.part)
        if not one.place_words & _PRIVATE or part & {"scheduler", "schedule", "decay"}:
            continue
        if (words | part) & _OF_OTHERS:
            continue
        flag = one.flag
        if flag is False and (words & SWITCHES or words <= _PRIVATE | {"is", "with"}):
            return one
        if flag is True and words & _NEGATIONS:
            return one
    return None


def _perhaps_off(draft: Draft, one: Field) -> None:
    """Ask for the noise if a field may turn it off, for example ``noise_type: none``."""
    if one.words & _ASIDE or draft.fields.read(one) or draft.noise == 0:
        return
    off = _names_no_privacy(one)
    # A number such as dp_start_step leaves steps without noise.
    partly = one.words & _PRIVATE and one.words & _PARTLY and (one.number or 0) > 0
    if off or partly:
        draft.ask("noise_multiplier", f"{one} may turn the noise or the clip off")
    # One of local and central noise may be off where the other one is on.
    if off and not _of_trainer(one) and not one.words & _ONE_OF_TWO:
        draft.lasting.append(f"{one} may turn the noise or the clip off, whatever is stated")


def _names_no_privacy(one: Field) -> bool:
    """Return whether a field about privacy may turn it off."""
    words, private = one.words, bool(one.words & _PRIVATE)
    if one.flag is False and private and not words & _NEGATIONS:
        return True
    if (one.flag is not False and says_off(one)) or (words & _NOT_PRIVATE and not one.empty):
        return True
    # In privacy = null the name says everything.
    named = bool(words & {"engine", "optimizer"}) or words <= PRIVACY
    return one.value is None and private and named


def _of_trainer(one: Field) -> bool:
    """Return whether a field may be about a trainer's own clip of the mean, which may be off."""
    return bool(one.words & {"grad", "gradient", "gradients"}) and not one.place_words & _PRIVATE


_ONE_OF_TWO = {"local", "ldp", "central", "cdp", "client", "server", "global"}


def says_off(one: Field) -> bool:
    """Return whether a field names no privacy, no mechanism or no clip, in words."""
    words, said = one.words, one.said
    about = one.place_words & (_PRIVATE | _CLIPPING) or words & _METHODS
    return bool(about and said & _OFF and said <= _OFF | _PRIVATE | {"training", "sgd"})


def clip_off(one: Field) -> bool:
    """Return whether a field turns the clip off, for example ``clipping: {enabled: false}``."""
    words, flag = one.words, one.flag
    part, about = one.place_words & _CLIPPING, words & _CLIPPING
    if flag is True:
        return bool(words & _NEGATIONS and (part or about))
    # A clip that is not adaptive or not by layer is a clip.
    if one.place_words & {"adaptive", "layer", "schedule", "scheduler", "decay"}:
        return False
    said = one.said
    none = bool(said) and said <= {"none", "off", "disabled", "no", "null"}
    switch = about or (part and words & (SWITCHES | (_TYPES if none else set())))
    return bool((flag is False or none) and switch)


def without_poisson(one: Field) -> bool:
    """Return whether a field says that batches are not drawn so: ``poisson_sampling: false``."""
    words, flag = one.words, one.flag
    if words & {"loss", "nll", "regression", "glm", "noise", "image", "data"} or flag is None:
        return False
    part = words_in(one.part)
    switch = "poisson" in words or ("poisson" in part and words & SWITCHES)
    return bool(switch and flag is bool(words & _NEGATIONS))


def _clip(draft: Draft, one: Field) -> None:
    """Ask for the noise if contributions are not clipped to one fixed norm."""
    if clip_off(one):
        why = "it holds for clipped contributions only"
        if not _of_trainer(one):
            draft.unclipped = one
    elif _of_a_clip(one) and ((one.number or 0) >= _NO_CLIP or is_infinite(one.value)):
        why = "a norm this large leaves contributions unclipped; state the noise over another norm"
    else:
        why = "" if draft.fields.read(one) or one.empty else _other_clip(one)
    if why and draft.noise != 0:
        draft.ask("noise_multiplier", f"{one}: {why}")


def _other_clip(one: Field) -> str:
    """Return why a field names another clip than one of whole contributions; else empty."""
    # In clipping = {type = per_layer} the part says what the type is of.
    words, part = one.words, words_in(one.part)
    about = _names_a_clip(words, part)
    every = words | one.said
    if about and every & _BY_COORDINATE:
        return "a clip of values is not one of norms"
    if _names_a_norm(words):
        other = str(one.value).strip().lower() in _OTHER_NORMS
        return "the clip is of another norm" if other else ""
    if (about or "per" in words) and _names_layers(one):
        return "the norm of all layers together counts"
    if _follows_the_data(one, about=about):
        return "a norm that follows the data may cost more"
    if one.name == "sensitivity" and one.number != 1:
        return "the noise over the clip norm counts, whatever sensitivity it was computed for"
    return ""


def _names_a_clip(words: set[str], part: set[str]) -> bool:
    return bool(words & _CLIPPING or (words & _TYPES and part & _CLIPPING))


def _names_layers(one: Field) -> bool:
    every = one.words | one.said
    return not every.isdisjoint({"layer", "layerwise", "param"}) and "all" not in one.said


def _follows_the_data(one: Field, *, about: bool) -> bool:
    """Return whether a clip norm is a quantile of the data, or adaptive if it is about a clip."""
    words = one.words
    quantile = "quantile" in words and not words.isdisjoint(_CLIPPING | {"unclipped"})
    every = words | one.said | words_in(one.part)
    return quantile or (about and not every.isdisjoint({"adaptive", "auto"}))


def _names_a_norm(words: set[str]) -> bool:
    """Return whether a name is about the kind of a norm, such as norm_type or clip_order."""
    ordered = words & {"ord", "order"} and words & (_CLIPPING | {"norm"})
    return bool(ordered) or words >= {"norm", "type"}


def _of_a_clip(one: Field) -> bool:
    """Return whether a field is a clip norm, also with a word more: ``max_grad_norm_actual``."""
    return one.name in _CLIPS or one.words >= {"max", "grad", "norm"}


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
    words = one.words
    return one.name in _MANY_RUNS or bool(words & _TRIALS and not words & _NO_TRIALS)


def _microbatches(draft: Draft, one: Field) -> None:
    """Ask for the noise if parts of a batch are clipped in place of records."""
    named = one.words & {"microbatch", "microbatches"} and _size(one.value) is not None
    # Parts of one record are records.
    named = named and (one.name, one.value) != ("microbatch_size", 1)
    if named and not draft.fields.read(one):
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
    return bool({word.rstrip("0123456789") for word in words_in(place)} & _PARTS)


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
    begun = one.name in _BEGUN and (one.number or 0) > 1
    resumed = one.words & {"resume", "resumed"} and not one.empty
    if "rounds" in draft.facts and (begun or (resumed and one.value != "never")):
        draft.ask("rounds", f"{one}: the steps before a resumption count too")


def _of_users(draft: Draft, one: Field) -> None:
    """Ask for the noise if the file is about all records of a user, and its clip about one."""
    named = one.name in _UNITS or one.words & {"level", "unit", "granularity"}
    flagged = "level" in one.words and one.words & _MANY and one.flag
    if not flagged and not (named and one.said & _MANY):
        return
    if not draft.of_clients:
        why = f"{one}, but the noise is relative to the clip of one record"
        draft.ask("noise_multiplier", why)


def _noise(draft: Draft) -> None:
    """Ask for the noise if its clip is not one norm, or if another noise is not understood."""
    clips = [one for one in draft.fields.every if one.name in CLIPS or _of_a_clip(one)]
    if any(one.name in _OF_RECORDS for one in clips):
        # A trainer's own max_grad_norm then clips the noisy mean, which costs nothing.
        clips = [one for one in clips if one.name != "max_grad_norm"]
    if not draft.of_clients:
        _one_norm(draft, clips)
    loose = _no_norms(draft.fields, [one for one in clips if one.name in _CLIPS])
    if loose and draft.noise:
        draft.ask("noise_multiplier", f"{loose[0]} is no norm that a contribution is clipped to")
    for one in _understood_by_nobody(draft):
        draft.ask("noise_multiplier", f"{one} concerns the noise and is not understood here")
        return


def _one_norm(draft: Draft, clips: list[Field]) -> None:
    """Ask for the noise if its clips have different norms."""
    norms = {number: one for one in clips if (number := one.number) is not None}
    if len(norms) > 1 and draft.noise:
        several = " and ".join(map(str, list(norms.values())[:2]))
        why = f"{several}: state the noise over the norm that bounds the sum"
        draft.ask("noise_multiplier", why)


def _no_norms(fields: Fields, clips: list[Field]) -> list[Field]:
    """Return the clips that are not one norm: other values, different norms, and absent ones."""
    # Opacus takes one norm for every layer as a list.
    by_layer = any("layer" in one.words | one.said for one in fields.every)
    lists = [one for one in clips if isinstance(one.value, list)]
    known = [*lists, *(one for one in clips if (one.number or 0) > 0)]
    absent = [one for one in clips if one.value is None]
    loose = [one for one in clips if one.value is not None and one not in known]
    differing = [one for one in lists if len({*map(str, one.value)}) > 1]
    return [*loose, *([] if by_layer else differing), *([] if known else absent)]


_PARTS_OF_MODELS = {"embedding", "embeddings", "activation", "activations", "feature", "features"}
_PARTS_OF_MODELS |= {"logits", "label", "labels", "hidden", "representation", "prompt", "input"}
_PARTS_OF_MODELS |= {"smashed", "cut", "representations", "embeds", "latents"}


def _not_on_gradients(draft: Draft) -> None:
    """Ask for the noise if it is on something else than a clipped gradient or update."""
    for one in draft.fields.used.values():
        about = words_in(one.parent) & _PARTS_OF_MODELS
        if one.name in NOISE and about and draft.noise:
            why = f"{one} is of {' and '.join(sorted(about))}; state the noise of a clipped sum"
            draft.ask("noise_multiplier", why)
            return


def _understood_by_nobody(draft: Draft) -> Iterable[Field]:
    for one in draft.fields.unread():
        words, said = one.words, one.said
        if said and (said <= _NORMAL or (words & _SCHEDULES and said <= _STEADY)):
            continue
        aside = "seed" in words or one.place_words & OF_DATA
        if words & _NOISY and not one.empty and not aside:
            yield one


_SCHEDULES = {"schedule", "scheduler", "scheduling", "decay", "annealing"}
_STEADY = {"constant", "fixed", "none", "off", "no", "flat", "schedule", "scheduler"}
"""Words of a noise that does not change during a run."""
_NORMAL = {"gaussian", "normal", "gauss", "mechanism", "noise"}
"""Words of the noise that a multiplier describes."""
