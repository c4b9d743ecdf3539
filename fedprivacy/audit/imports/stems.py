"""Fields whose names are about privacy and that no reader understands: each one is a doubt.

A word of a name begins with a stem, such as ``clip`` or ``step``. The field is in doubt unless all
other words of its name are known with this stem, or one of them says that it is about something
else, for example a log. A field with no value, or one that is off, is never in doubt.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from ...relations import Unit
from . import batches, words
from .counts import EPOCHS
from .draft import Draft, tiny
from .fields import Field, as_flag, as_number, empty, of_a_test, value_words, words_in


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


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


_SHOWN = _set(
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
        _set(
            "type mode method style fn function strategy norm l2 flat ghost enable enabled use"
            " gradient gradients grad grads value bound threshold sample example record user client"
            " update updates per dp max by in with is do should apply num no skip none norms decay"
            " schedule scheduler adaptive quantile target"
        ),
        _SHOWN | _set("model vit text embed embedding embeddings score ppo range reward ratio"),
        "concerns the clip and is not understood here",
    ),
    Stem(
        "noise_multiplier",
        re.compile(r"(?:n?on|un|anti)?(?:l|c)?dp(?:sgd)?$|(?:non|un)?priva|differential|opacus"),
        _set(
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
        _SHOWN | _set("parallel ddp zero fsdp tp pp mesh repo repository host ip"),
        "concerns privacy and is not understood here",
    ),
    Stem(
        "rounds",
        re.compile(
            r"steps?$|rounds?$|epochs?$|iters?$|iterations?$|updates$|restart|reset|abort|unaccounted"
            r"|uncounted|truncated|crash|attempts?$|continued"
        ),
        _set(""),
        _SHOWN
        | _set(
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
        _set(
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
        | _set(
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
_OTHER_STRONG = _set(
    "warm cosine lr scheduler max timeout download connection optimizer hidden policy loss weight"
    " weights image text augment augmentation tree trees xgboost boosting metric accuracy acc"
)

_COUNTERS = _set(
    "step steps epoch epochs iteration iterations iter iters round rounds update updates global"
    " current last final best completed done total actual num n max finished trained at server"
    " number of training train run opt optimizer planned executed performed ran state trainer"
    " logged logical budget expected start grad gradient"
)
"""Words of numbers that count a run while it goes, and count against it only if larger."""
_EPOCH = {"epoch", "epochs"}
_KNOWN_NAMES = {*words.NOISE, *words.UNCLEAR, *words.EPSILON, *words.DELTA, *words.ROUNDS}
_KNOWN_NAMES |= {*words.STEPS, *words.RATE, *words.PER_EPOCH, *words.CLIENT_RATE, *words.COHORT}
_KNOWN_NAMES |= {*words.POPULATION, *words.BATCH, *words.RECORDS, *words.CLIPS, *EPOCHS}
_KNOWN_NAMES |= {"num_steps_per_round", "sampled_clients", "logged_rounds", "printed_rate"}
_OF_RECORDS = {"sampling_probability"}

_SAID = _set(
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
_SWITCH = _set("use enable enabled apply active on is with training mode train make run")


def check(draft: Draft) -> None:
    """Ask for the facts that a field puts in doubt by the stem of its name."""
    if not draft.facts.get("noise_multiplier") and "rounds" not in draft.facts:
        return
    of_clients = draft.facts.get("unit") is Unit.CLIENT
    for one in draft.fields.unread():
        off = empty(one.value) or as_flag(one.value) is False
        if off or of_a_test(one) or one.name in _KNOWN_NAMES:
            continue
        for stem in STEMS:
            if of_clients and stem.fact in _OF_RECORDS:
                continue
            if _in_doubt(one, stem, draft, of_clients=of_clients):
                batches.doubt(draft, stem.fact, f"{one} {stem.why}")
                break


def _in_doubt(one: Field, stem: Stem, draft: Draft, *, of_clients: bool) -> bool:
    named = words_in(one.name)
    if stem.fact in _OF_RECORDS and as_number(one.value) == 1:
        return False
    stems = {word for word in named if stem.begins.match(word)}
    # Some words are about privacy wherever they are.
    strong = any(map(_STRONG.match, named)) and not words_in(one.place) & _OTHER_STRONG
    if strong and stems:
        return True
    if not stems or words_in(one.place) & stem.elsewhere:
        return False
    if stem.fact == "rounds":
        return _counts_more(one, named, draft, of_clients=of_clients)
    if named - stems - stem.known:
        return True
    # A bare switch says yes, or how; any other text may limit it.
    number = as_number(one.value) is not None or as_flag(one.value) is not None
    switch = named - stems <= _SWITCH or bool(stems & {"clip", "clipping"})
    if number or not switch or not isinstance(one.value, str):
        return False
    return stem.fact == "noise_multiplier" and not value_words(one) <= _SAID


_WHOLE = re.compile(r"(?<![\w.])\d{1,12}(?![\w.])")


def _counts_more(one: Field, named: set[str], draft: Draft, *, of_clients: bool) -> bool:
    """Return whether a field may count steps beyond those of the file."""
    if of_clients and not named & {"round", "rounds"}:
        return False
    if as_flag(one.value) is not None and not isinstance(one.value, int | float):
        return bool(named & {"restart", "restarted", "reset"})
    rounds: float | None = draft.facts.get("rounds")
    number = as_number(one.value)
    if not named <= _COUNTERS or rounds is None:
        return number is None or number > 0
    # A text such as 1000/1800 counts by its largest number.
    numbers = [float(each) for each in _WHOLE.findall(str(one.value))] if number is None else []
    most = max(numbers, default=0.0) if number is None else float(number)
    if named & {"start"} and most > 1:
        return True
    if not named & _EPOCH:
        return most > rounds
    rate: float = draft.facts.get("sampling_probability") or math.inf
    return 0.99 * (most - 1) / rate > rounds


_SEVERAL: tuple[set[str], ...] = ({"seeds"}, {"folds"}, {"trials"}, {"cv"}, {"bagging"}, {"hpo"})
_SEVERAL += ({"num", "models"}, {"n", "models"}, {"ensemble"}, {"n", "estimators"}, {"retrain"})
_SEVERAL += ({"population", "based"}, {"completions"}, {"cron"}, {"cronjob"}, {"best", "of"})
_SEVERAL += ({"sweep", "id"}, {"parent", "run"}, {"trained", "models"}, {"candidates"})
_SEVERAL += ({"budget", "renewal"}, {"retraining"}, {"parallelism"}, {"nested", "cv"}, {"tuning"})
_LISTS = _set("lr learning_rate lrs learning_rates weight_decay momentum dropout hidden_dim")
_RUNS = re.compile(r"(?:^|[._])(?:runs|trials|seeds|folds|experiments|replicates|models)\[1\]")
_CRON = re.compile(r"(?:[\d*/,-]+ ){4}[\d*/,-]+|@(?:daily|hourly|weekly|monthly)")
_MIXING = _set(
    "mixup cutmix gnn gcn graphsage gat contrastive infonce simclr ntxent supcon triplet moco byol"
    " manifoldmix"
)
_OUT = re.compile(r"publish|releas|export|raw$|expos|shar(?:e|ed|ing)$|dump|upload")
_RELEASED = _set(
    "logits gradients gradient grads grad features embeddings activations updates statistics"
    " predictions scores histogram histograms labels representations votes hessian"
)
_SAVED = {"save", "saved", "log", "logged", "store", "write"}
_SINGLE = {"sample", "example", "record", "unclipped"}
_BEGUN_AGAIN = _set("resumed restarted continued interrupted preempted requeued truncated aborted")
_UNWEIGHTED = {"uniform", "user", "users", "none", "equal", "constant", "no", "unweighted"}
_FOLLOWS_DATA = re.compile(r"(?:^|_)(?:stop|until|halt)_(?:when|if|on|at|once)_")


def others(draft: Draft) -> None:
    """Ask about several runs, other releases, records that are mixed, and another epsilon."""
    claim, of_clients = draft.facts.get("epsilon"), draft.facts.get("unit") is Unit.CLIENT
    for one in draft.fields.every:
        named, said = words_in(one.name), value_words(one)
        if _RUNS.search(one.place) or _several(one, named, said):
            draft.ask("trials", f"{one}: how many runs were made on these data")
        if one.name in words.EPSILON or named & {"epsilon", "eps"}:
            _claim(draft, one, claim)
        if one.name in ("accountant", "accounting") and said - _SAID:
            batches.doubt(draft, "rounds", f"{one} is no accountant that is known here")
        begun = ({"warm", "start"}, {"init", "from"}, {"tuned", "from"})
        if any(named >= each for each in begun) and not empty(one.value):
            batches.doubt(draft, "rounds", f"{one}: earlier steps on these data count too")
        if one.name in ("poisson", "poisson_sampling") and said and as_flag(one.value) is None:
            batches.doubt(draft, "sampling_probability", f"{one} is no plain answer")
        if _FOLLOWS_DATA.search(one.name) and not empty(one.value):
            batches.doubt(draft, "rounds", f"{one}: the number of steps may follow the data")
        if one.place in draft.fields.used or of_a_test(one):
            continue
        why = _not_clipped(one, named, said, of_clients=of_clients)
        if why:
            batches.doubt(draft, "noise_multiplier", f"{one}: {why}")
        again = named & {"status", "state", "phase"} and said & _BEGUN_AGAIN
        if again:
            batches.doubt(draft, "rounds", f"{one}: other steps may count too")


def _not_clipped(one: Field, named: set[str], said: set[str], *, of_clients: bool) -> str:
    """Return why more than a clipped and noisy sum may be released; else empty."""
    if of_clients:
        weighted = named & {"weighting", "weighted"} and not said & _UNWEIGHTED
        weighted = weighted and not empty(one.value) and "uniform" not in named
        return "weights may change what a client contributes" if weighted else ""
    out = any(map(_OUT.match, named)) or (named & _SAVED and named & _SINGLE)
    if out and named & _RELEASED and not empty(one.value):
        return "something else than the noisy sums may be released"
    distilled = any(each.startswith(("distill", "teacher")) for each in named)
    distilled = distilled and bool(one.value) and not as_number(one.value)
    if distilled or _mixes(one, named | said, f"{one.name}_{'_'.join(sorted(said))}"):
        return "a record may enter by other ways than its clipped gradient"
    per_record = one.name in ("per_sample", "per_example", "per_record")
    if per_record and as_flag(one.value) is False:
        return "the clip may not be one of each record"
    return ""


def _several(one: Field, named: set[str], said: set[str]) -> bool:
    number = as_number(one.value)
    if one.name in _LISTS and isinstance(one.value, list) and len({*map(str, one.value)}) > 1:
        return True
    if isinstance(one.value, str) and one.name in ("schedule", "cron", "interval"):
        return bool(_CRON.fullmatch(one.value.strip()))
    if one.name == "kind" and said & {"cronjob", "cron"}:
        return True
    if not any(named >= each for each in _SEVERAL) or empty(one.value):
        return False
    if isinstance(one.value, list) and len(one.value) == 1:
        return False
    # A text such as 1-5 names several; one number counts.
    return number is None or number > 1


def _mixes(one: Field, every: set[str], text: str) -> bool:
    if empty(one.value) or words_in(one.name) & {"dataset", "data", "name", "project", "path"}:
        return False
    return bool(every & _MIXING) or "info_nce" in text or "nt_xent" in text


def _claim(draft: Draft, one: Field, claim: float | None) -> None:
    """Ask for the epsilon if the file has another, larger one, or one of some units."""
    number = as_number(one.value)
    privately = draft.about_the_run(one) and not tiny(one)
    if claim is None or not privately:
        return
    other = one.name not in words.EPSILON and one.value == {}
    if other or (number is not None and number > 1.01 * claim):
        draft.ask_claim(f"{one}, where another epsilon is {claim:g}")
