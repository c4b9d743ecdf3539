"""Fields whose names are about privacy and that no reader understands: each one is a doubt.

A word of a name begins with a stem, such as ``clip`` or ``step``. The field is in doubt unless all
other words of its name are known with this stem, or one of them says that it is about something
else, for example a log. A field with no value, or one that is off, is never in doubt.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import NamedTuple

from . import batches, words
from .draft import Draft, tiny
from .fields import Field, of_a_test
from .vocabulary import words_of


class Stem(NamedTuple):
    """Words that put one fact in doubt.

    Attributes:
        fact: the fact, as ``Question`` names it.
        begins: the beginnings of these words.
        known: other words of names that are understood next to them.
        elsewhere: words of names and places that are about something else.
        why: what the field may mean.
    """

    fact: str
    begins: re.Pattern[str]
    known: frozenset[str]
    elsewhere: frozenset[str]
    why: str


_SHOWN = words_of(
    "log logging logs eval evaluation val valid validation test save saving checkpoint checkpoints"
    " ckpt print display report plot viz vis wandb tensorboard path dir file name version url image"
    " images cache tokenizer generation generate decoding metric metrics summary early stopping"
    " scheduler lr warmup scaler ema swa profiler prefetch"
)
"""Words of settings that release no noisy sum and draw no batch."""

STEMS = (
    Stem(
        "noise_multiplier",
        re.compile(r"(?:un)?clip"),
        words_of(
            "type mode method style fn function strategy norm l2 flat ghost enable enabled use"
            " gradient gradients grad grads value bound threshold sample example record user client"
            " update updates per dp max by in with is do should apply num no skip none norms decay"
            " schedule scheduler adaptive quantile target"
        ),
        _SHOWN | words_of("model vit text embed embedding embeddings score ppo range reward ratio"),
        "concerns the clip and is not understood here",
    ),
    Stem(
        "noise_multiplier",
        re.compile(r"(?:n?on|un|anti)?(?:l|c)?dp(?:sgd)?$|(?:non|un)?priva|differential|opacus"),
        words_of(
            "accountant accounting engine mode type mechanism algorithm method library framework"
            " backend seed generator secure rng budget epsilon eps delta target level unit notion"
            " guarantee definition alphas orders poisson sampling clip clipping noise multiplier"
            " norm sgd adam adamw adagrad optimizer training train learning setting settings config"
            " params args trainer id strategy with is enable enabled use apply active on add make"
            " ed sigma std rate sample batch size max grad strength data dataset key max spent rho"
            " steps step rounds epochs class loader wrapper model models adjacency relation of"
            " federated fl server client central local global example record user mu zcdp gdp rdp"
            " and final total achieved layer layers per parallel physical memory manager not no"
            " l2 value true threshold bound probability by in algo variant optim expected logical"
            " microbatches microbatch num accumulation shuffle degree lot protected protection"
            " notes note comment description order release released conversion composition"
            " tolerance error upper lower"
        ),
        _SHOWN | words_of("parallel ddp zero fsdp tp pp mesh repo repository host ip"),
        "concerns privacy and is not understood here",
    ),
    Stem(
        "rounds",
        re.compile(
            r"steps?$|rounds?$|epochs?$|iters?$|iterations?$|updates$|restart|reset|abort|unaccounted"
            r"|uncounted|truncated|crash|attempts?$|continued"
        ),
        words_of(""),
        _SHOWN
        | words_of(
            "every per freq frequency interval intervals size patience decay annealing milestones"
            " accumulation accumulate accum acc cosine warm momentum timeout local inner client"
            " clients diffusion sampling inference batches batch ppo horizon unroll rollout"
            " fraction fit min duration time seconds average avg shared bn norm id index offset"
            " reporting length decimals digits history_size rate cooldown hold refresh sync grace"
            " minimum weights k policy"
            " uuid number_of_retries download connection between nonprivate"
        ),
        "it may count steps, and is not understood here",
    ),
    Stem(
        "sampling_probability",
        re.compile(
            r"(?:sub|re|over|up|under)?sampl(?:e|ed|er|ing)$|batch$|poisson|replacement$|copies$"
            r"|copy$|duplicat|repeat|repeats$|balanced$"
        ),
        words_of(
            "size sizes type mode method scheme strategy rate probability ratio fraction seed use"
            " enable enabled physical max micro train training num total virtual logical expected"
            " effective lot per device gpu node core epoch first norm random uniform distributed"
            " poisson sampling sampler batch dp with without replacement accumulation steps default"
            " worker workers drop last data loader generator secure client clients size_per mean"
            " count counts sample example examples grad mini global average min number of auto"
            " find length optimize optimizer q prob is by clip group true user users algorithm"
            " pad full n round minibatch the cohort fixed name class on max_grad_norm private"
            " kind population records record in fit level bound step gather public"
        ),
        _SHOWN
        | words_of(
            "audio every voice negative negatives temperature weights down image stable prompt"
            " top text"
            " penalty no_repeat ngram beam noise frequency calibration interpolate mel window hz"
            " resample upsample downsample shard shards task load queue do file buffer model gym"
            " grpo hessian ece submission"
        ),
        "it may say that batches were drawn otherwise",
    ),
)

_STRONG = re.compile(
    r"restart|reset|abort|unaccounted|uncounted|truncated$|crash|continued$"
    r"|copies$|duplicat|oversampl|replacement$|balanced$|subsample$|percent"
)
_OTHER_STRONG = words_of(
    "warm cosine lr scheduler max timeout download connection optimizer hidden policy loss weight"
    " weights image text augment augmentation tree trees xgboost boosting metric accuracy acc"
)

_COUNTERS = words_of(
    "step steps epoch epochs iteration iterations iter iters round rounds update updates global"
    " current last final best completed done total actual num n max finished trained at server"
    " number of training train run opt optimizer planned executed performed ran state trainer"
    " logged logical budget expected start grad gradient"
)
"""Words of numbers that count a run while it goes, and count against it only if larger."""
_KNOWN_NAMES = words.KNOWN | {"num_steps_per_round", "sampled_clients", "logged_rounds"}
_KNOWN_NAMES |= {"printed_rate"}

_SAID = words_of(
    "true yes on enabled enable active sgd adam adamw dp dpsgd ldp cdp gaussian central local"
    " opacus tensorflow tf jax pytorch torch record example sample user client level rdp prv gdp"
    " pld moments analytical zcdp accountant renyi strong high add remove engine make private"
    " privacy differential differentially with flat l2 global norm fixed constant per hooks"
    " functorch ghost static"
    " standard default gradient gradients update updates all layer layers layerwise training fl"
    " federated fedavg poisson epsilon delta server normal mechanism noise and basic example"
    " automatic uniform random none off no record records dpfedavg dpadam item instance data"
    " subject"
)
"""Words of a value that says how contributions are made private or clipped."""
_SWITCH = words_of("use enable enabled apply active on is with training mode train make run")


def check(draft: Draft) -> None:
    """Ask for the facts that a field puts in doubt by the stem of its name."""
    if not draft.noise and "rounds" not in draft.facts:
        return
    for one in draft.fields.unread():
        if one.empty or one.flag is False or of_a_test(one) or one.name in _KNOWN_NAMES:
            continue
        stem = next((stem for stem in STEMS if _in_doubt(one, stem, draft)), None)
        if stem is not None:
            batches.doubt(draft, stem.fact, f"{one} {stem.why}")


def _in_doubt(one: Field, stem: Stem, draft: Draft) -> bool:
    if stem.fact == "sampling_probability" and (draft.of_clients or one.number == 1):
        return False
    stems = {word for word in one.words if stem.begins.match(word)}
    if not stems:
        return False
    if _doubtful_anywhere(one):
        return True
    if one.place_words & stem.elsewhere:
        return False
    if stem.fact == "rounds":
        return _counts_more(one, draft)
    if one.words - stems - stem.known:
        return True
    return stem.fact == "noise_multiplier" and _limits_a_switch(one, stems)


def _doubtful_anywhere(one: Field) -> bool:
    """Return whether a name is about privacy wherever it is, as ``restarts``."""
    return any(map(_STRONG.match, one.words)) and not one.place_words & _OTHER_STRONG


def _limits_a_switch(one: Field, stems: set[str]) -> bool:
    """Return whether the text of a switch may limit it: it says neither yes nor how."""
    switch = one.words - stems <= _SWITCH or not stems.isdisjoint({"clip", "clipping"})
    answered = one.number is not None or one.flag is not None
    return switch and isinstance(one.value, str) and not answered and not one.said <= _SAID


_WHOLE = re.compile(r"(?<![\w.])\d{1,12}(?![\w.])")


def _counts_more(one: Field, draft: Draft) -> bool:
    """Return whether a field may count steps beyond those of the file."""
    named, rounds, number = one.words, draft.rounds, one.number
    if draft.of_clients and not named & {"round", "rounds"}:
        return False
    if one.flag is not None and not isinstance(one.value, int | float):
        return bool(named & {"restart", "restarted", "reset"})
    if not named <= _COUNTERS or rounds is None:
        return number is None or number > 0
    most = _largest_in(one)
    if "start" in named and most > 1:
        return True
    if named & {"epoch", "epochs"}:
        most = 0.99 * (most - 1) / (draft.rate or math.inf)
    return bool(most > rounds)


def _largest_in(one: Field) -> float:
    """Return the largest number of a field; a text such as 1000/1800 has several."""
    number = one.number
    numbers = map(float, _WHOLE.findall(str(one.value))) if number is None else [number]
    return max(numbers, default=0.0)


_SEVERAL: tuple[set[str], ...] = ({"seeds"}, {"folds"}, {"trials"}, {"cv"}, {"bagging"}, {"hpo"})
_SEVERAL += ({"num", "models"}, {"n", "models"}, {"ensemble"}, {"n", "estimators"}, {"retrain"})
_SEVERAL += ({"population", "based"}, {"completions"}, {"cron"}, {"cronjob"}, {"best", "of"})
_SEVERAL += ({"sweep", "id"}, {"parent", "run"}, {"trained", "models"}, {"candidates"})
_SEVERAL += ({"budget", "renewal"}, {"retraining"}, {"parallelism"}, {"nested", "cv"}, {"tuning"})
_LISTS = words_of("lr learning_rate lrs learning_rates weight_decay momentum dropout hidden_dim")
_RUNS = re.compile(r"(?:^|[._])(?:runs|trials|seeds|folds|experiments|replicates|models)\[1\]")
_CRON = re.compile(r"(?:[\d*/,-]+ ){4}[\d*/,-]+|@(?:daily|hourly|weekly|monthly)")
_MIXING = words_of(
    "mixup cutmix gnn gcn graphsage gat contrastive infonce simclr ntxent supcon triplet moco byol"
    " manifoldmix"
)
_OUT = re.compile(r"publish|releas|export|raw$|expos|shar(?:e|ed|ing)$|dump|upload")
_RELEASED = words_of(
    "logits gradients gradient grads grad features embeddings activations updates statistics"
    " predictions scores histogram histograms labels representations votes hessian"
)
_SAVED = {"save", "saved", "log", "logged", "store", "write"}
_SINGLE = {"sample", "example", "record", "unclipped"}
_BEGUN_AGAIN = words_of(
    "resumed restarted continued interrupted preempted requeued truncated aborted"
)
_UNWEIGHTED = {"uniform", "user", "users", "none", "equal", "constant", "no", "unweighted"}
_FOLLOWS_DATA = re.compile(r"(?:^|_)(?:stop|until|halt)_(?:when|if|on|at|once)_")


def others(draft: Draft) -> None:
    """Ask about several runs, other releases, records that are mixed, and another epsilon."""
    claim = draft.facts.get("epsilon")
    for one in draft.fields.every:
        if _RUNS.search(one.place) or _several(one):
            draft.ask("trials", f"{one}: how many runs were made on these data")
        if one.name in words.EPSILON or one.words & {"epsilon", "eps"}:
            _claim(draft, one, claim)
        for fact, why in _by_name(one):
            batches.doubt(draft, fact, f"{one}{why}")
        if not draft.fields.read(one) and not of_a_test(one):
            _of_unread(draft, one)


def _of_unread(draft: Draft, one: Field) -> None:
    """Ask for the facts that a field puts in doubt, if no reader looked it up."""
    why = _of_clients(one) if draft.of_clients else _not_clipped(one)
    if why:
        batches.doubt(draft, "noise_multiplier", f"{one}: {why}")
    if one.words & {"status", "state", "phase"} and one.said & _BEGUN_AGAIN:
        batches.doubt(draft, "rounds", f"{one}: other steps may count too")


_EARLIER: tuple[set[str], ...] = ({"warm", "start"}, {"init", "from"}, {"tuned", "from"})


def _by_name(one: Field) -> Iterator[tuple[str, str]]:
    """Yield the facts that a field puts in doubt by its whole name, each with the reason."""
    if one.name in ("accountant", "accounting") and one.said - _SAID:
        yield "rounds", " is no accountant that is known here"
    if any(one.words >= each for each in _EARLIER) and not one.empty:
        yield "rounds", ": earlier steps on these data count too"
    if one.name in ("poisson", "poisson_sampling") and one.said and one.flag is None:
        yield "sampling_probability", " is no plain answer"
    if _FOLLOWS_DATA.search(one.name) and not one.empty:
        yield "rounds", ": the number of steps may follow the data"


def _of_clients(one: Field) -> str:
    """Return why a client may contribute more than its clipped update; else empty."""
    weighted = one.words & {"weighting", "weighted"} and not one.said & _UNWEIGHTED
    if weighted and not one.empty and "uniform" not in one.words:
        return "weights may change what a client contributes"
    return ""


def _not_clipped(one: Field) -> str:
    """Return why more than a clipped and noisy sum may be released; else empty."""
    if _releases_more(one):
        return "something else than the noisy sums may be released"
    distilled = any(each.startswith(("distill", "teacher")) for each in one.words)
    if (distilled and one.value and not one.number) or _mixes(one):
        return "a record may enter by other ways than its clipped gradient"
    if one.name in ("per_sample", "per_example", "per_record") and one.flag is False:
        return "the clip may not be one of each record"
    return ""


def _releases_more(one: Field) -> bool:
    """Return whether a field releases or saves values of the model or of single records."""
    named = one.words
    out = any(map(_OUT.match, named)) or (named & _SAVED and named & _SINGLE)
    return bool(out and named & _RELEASED and not one.empty)


def _several(one: Field) -> bool:
    """Return whether a field counts or lists several runs."""
    if _lists_values(one) or (one.name == "kind" and one.said & {"cronjob", "cron"}):
        return True
    if isinstance(one.value, str) and one.name in ("schedule", "cron", "interval"):
        return bool(_CRON.fullmatch(one.value.strip()))
    if one.empty or not any(one.words >= each for each in _SEVERAL):
        return False
    # A text such as 1-5 names several; one number counts.
    single = isinstance(one.value, list) and len(one.value) == 1
    return not single and (one.number is None or one.number > 1)


def _lists_values(one: Field) -> bool:
    """Return whether a field lists different values of a setting that one run has once."""
    listed = one.name in _LISTS and isinstance(one.value, list)
    return listed and len({*map(str, one.value)}) > 1


def _mixes(one: Field) -> bool:
    """Return whether a field names a method that mixes records, or compares them."""
    if one.empty or one.words & {"dataset", "data", "name", "project", "path"}:
        return False
    text = f"{one.name}_{'_'.join(sorted(one.said))}"
    return bool((one.words | one.said) & _MIXING) or "info_nce" in text or "nt_xent" in text


def _claim(draft: Draft, one: Field, claim: float | None) -> None:
    """Ask for the epsilon if the file has another, larger one, or one of some units."""
    number = one.number
    privately = draft.about_the_run(one) and not tiny(one)
    if claim is None or not privately:
        return
    other = one.name not in words.EPSILON and one.value == {}
    if other or (number is not None and number > 1.01 * claim):
        draft.ask_claim(f"{one}, where another epsilon is {claim:g}")
