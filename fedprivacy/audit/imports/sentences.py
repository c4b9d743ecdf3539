"""Sentences of a file: which ones only restate its settings, or are about something else.

A sentence is clear if it has no word about privacy, or if all of its words restate settings and all
of its numbers are those of the file. Every other sentence must be looked at, see ``unclear``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from typing import Any, NamedTuple

from .fields import NUMBER, Field, as_number, numbers_in, plain_name
from .vocabulary import (
    FUNCTION,
    HARD,
    NEGATIONS,
    NEUTRAL,
    PROGRESS,
    QUALIFIERS,
    STRONG,
    SUBJECTS,
    SUSPECT,
    WEAK,
    words_of,
)

MAX_SENTENCES = 30_000
"""Largest number of sentences that are looked at in one file."""


class Known(NamedTuple):
    """Numbers of a file, which a sentence may repeat.

    Attributes:
        noises: the numbers about the noise and the clip.
        noise: the noise multiplier; None if unknown.
        rounds: the number of noisy sums; infinite if unknown.
        epochs: the largest number of epochs that the run can have.
        epsilon: the epsilon that is judged; infinite if unknown.
        numbers: all numbers of the file.
        several: whether the file is about several runs, which a sentence may count.
        shuffled: whether units were shuffled, or all took part.
        names: the names of the file's fields, which are judged as fields.
    """

    noises: frozenset[float] = frozenset()
    noise: float | None = None
    rounds: float = math.inf
    epochs: float = math.inf
    epsilon: float = math.inf
    numbers: frozenset[float] = frozenset()
    several: bool = False
    shuffled: bool = False
    names: frozenset[str] = frozenset()


_OF_NOISE = words_of("noise sigma std stddev clip clipping norm multiplier z c")


def known_in(
    fields: Iterable[Field],
    facts: Mapping[str, Any],
    claim: float | None,
    unknown: float = math.inf,
) -> Known:
    """Return the numbers that the sentences of a file may repeat.

    Args:
        fields: the fields of the file.
        facts: the known facts of the run.
        claim: the largest epsilon that may be mentioned; None if unknown.
        unknown: number in place of unknown ones; 0 for the strictest reading.
    """
    fields, noises, every, epochs = list(fields), set(), set(), 0.0
    for one in fields:
        numbers = _confirmed_by(one)
        every |= numbers
        if one.place_words & _OF_NOISE:
            noises |= numbers
        if one.words & {"epoch", "epochs"} and one.number:
            epochs = max(epochs, *numbers)
    rounds = float(facts.get("rounds") or unknown)
    rate = facts.get("sampling_probability")
    # A run has at least one step an epoch.
    made = rounds if rate is None else 1.0 + 1.01 * rounds * float(rate)
    every |= {float(each) for each in facts.values() if isinstance(each, int | float)}
    if rate:
        every.add(float(math.ceil(1.0 / float(rate))))
    return Known(
        noises=frozenset(noises),
        noise=facts.get("noise_multiplier"),
        rounds=rounds,
        epochs=max(epochs, made),
        epsilon=unknown if claim is None else float(claim),
        numbers=frozenset(every),
        names=frozenset(one.name for one in fields),
    )


def _confirmed_by(one: Field) -> set[float]:
    """Return the numbers of a field; those of a sentence would only confirm themselves."""
    if isinstance(one.value, str) and one.number is None:
        return set()
    return {float(each) for each in numbers_in(one.value)}


_REFERENCES = re.compile(
    r"\b(?:section|sec|figure|fig|table|tab|equation|eq|issue|chapter|page|theorem|lemma"
    r"|appendix|line|opacus|torch|python|version|v)\.? ?#?v?\d[\d.]*|#\d+|\b(?:https?://|arxiv|doi)\S*"
    r"|\b(?:19|20)\d\d(?:[-/.]\d\d){0,2}(?:[ t_]\d\d[:.]\d\d(?:[:.]\d\d)?(?:[.,]\d+)?z?)?\b"
    r"|\b\d\d[/.]\d\d[/.](?:19|20)\d\d\b|\b\d\d?:\d\d(?::\d\d)?(?:[.,]\d+)?\b"
    r"|\b0x[0-9a-f]+\b|[<>]=? ?0(?![.\d])"
)
"""Places in texts, dates and times."""
_PRINTED = re.compile(
    r"no round[ _]timeout|warm restarts?|over the clip(?:ping)? norm|echo off|finished after"
    r"|secure rng turned off|perfectly fine|optimal order is the largest alpha.*|drop last"
    r"|non-full backward.*|submitted batch job|^wandb: (?:run data|syncing|synced|view).*"
    r"|\bout of\b(?= )|cuda out of memory|no bound on number of|deprecat\w* *warning.*"
    r"|future warning.*|noise_?multiplier is not|uniform with replacement sampler"
    r"|sbatch --(?:time|mem|cpus|partition|gres|job|output|error)"
)
"""Words that libraries print in every run."""
_TOKEN = re.compile(
    rf"(?P<part>\d{{1,12}})\s?(?:/|of|out of)\s?(?P<whole>\d{{1,12}})(?!\w|\.\d)"
    rf"|(?<![\w.])(?P<number>{NUMBER.pattern})(?P<unit>[km%])?(?![\w]|\.\d)"
    r"|(?P<word>[^\W\d_][^\W_]*)",
)
_NOTHING = (SUBJECTS - SUSPECT) | {"decay", "warmup", "dropout", "schedule", "resume", "sweep"}
_NOTHING |= {"weight", "bias", "augmentation", "restart", "tuning", "search", "checkpoint"}
_PER = re.compile(
    r"\b(?:steps|batches|rounds|clients|users) per (?:round|epoch)\b"
    r"|\bper[- ](?:example|sample|record)\b|\bfixed (?=clip)"
)
_ONE_RUN = re.compile(
    r"\b(?:this is )?the only run\b|sbatch --(?:nodes|ntasks)=1\b|"
    r"\b(?:run|trial|seed|fold) 1 ?(?:/|of) ?1\b|\b(?:single|one) run\b|\brun once\b"
)
_OVER = re.compile(r"\bstart(?:s|ed|ing)? over\b")
_LEVEL = re.compile(r"^[\W\d]*(?:debug|info|warn|warning|error)\b(?!\W*mode)")
_GROUP_NORM = re.compile(
    r"\bgroup ?norm (?:instead of|in place of) batchnorm\w*"
    r"|\bbatchnorm\w* (?:was |is )?replaced by group ?norm"
    r"|\breplaced batchnorm\w*( \d+)?(?: ?d)? by group ?norm|\bno batchnorm\w*"
)
_NOT_SO = re.compile(r"\b(?:no|not|without|non)[ _-](\w+)(?!\w)")
_ENDS_IN_NUMBER = re.compile(r"(?<=[A-Za-z]{3})(?=\d)")
_PRINTED_NUMBER = re.compile(r"\b(?:np\.|numpy\.|torch\.)?(?:float|int|tensor) ?\d*\(")
_IDENTIFIER = re.compile(r"[^\W\d]\w*")


@lru_cache(maxsize=10_000)
def _apart(name: str) -> str:
    return plain_name(name).replace("_", " ") or name


def _plain(text: str) -> str:
    """Return a text in lower case, with the words of its names apart."""
    text = _ENDS_IN_NUMBER.sub(" ", text)
    text = _PRINTED_NUMBER.sub("(", text)
    low = _IDENTIFIER.sub(lambda one: _apart(one[0]), text)
    low = _PRINTED.sub(" ", _REFERENCES.sub(" ", low.lower()))
    # A missing decay changes no fact, but missing noise does.
    low = _OVER.sub("restart", _LEVEL.sub(" ", low)).replace("world size", "worldsize")
    low = _GROUP_NORM.sub(" ", low.replace("batch norm", "batchnorm"))
    low = _NOT_SO.sub(lambda one: "" if one[1] in _NOTHING else one[0], low)
    return _ONE_RUN.sub(" ", _PER.sub(" perround ", low))


_NOISE = frozenset(["noise", "multiplier", "sigma", "std", "stddev", "clip", "clipping", "norm"])
_STEPS = words_of("step steps iter iters iteration iterations update updates round rounds it")
_EPOCHS = frozenset(("epoch", "epochs"))
_EPSILON = frozenset(("epsilon", "eps"))
_COUNTERS = _STEPS | _EPOCHS
_SETTINGS = NEUTRAL | QUALIFIERS | PROGRESS
_NAMED = _NOISE | _STEPS | _EPOCHS | _EPSILON
_ANY = frozenset(("delta", "alphas", "orders", "order", "alpha"))
_COUNTED = words_of("run trial seed fold model attempt rank process gpu node")
_INDEXED = frozenset(["client", "user", "server", "worker", "seed"])
_ORDER = frozenset(("shuffle", "shuffled", "shuffles", "shuffling"))
_RUNS = frozenset(["two", "three", "four", "five"]) | frozenset(
    ["run", "runs", "trial", "trials", "seed", "seeds", "sweep", "grid", "search", "experiments"]
)


def is_clear(sentence: str, known: Known, *, free: bool = False) -> bool:
    """Return whether a sentence only restates settings, or is about something else.

    Args:
        sentence: the sentence.
        known: the numbers of its file.
        free: whether other words than known ones may be there, for example in a title.
    """
    text = _plain(" ".join(sentence.split()))
    tokens = list(_TOKEN.finditer(text))
    words = [one["word"] for one in tokens if one["word"]]
    if _has_other_numbers(tokens, known):
        return False
    kinds = {_about(word) for word in words}
    strong = "strong" in kinds
    if not strong and "weak" not in kinds:
        return True
    if not _are_known(words, known, strong=strong, free=free):
        return False
    return all(
        _agrees(owner, number, known, strong=strong)
        for owner, number in _numbers(tokens)
        if not free or owner in _NAMED
    )


def _are_known(words: list[str], known: Known, *, strong: bool, free: bool) -> bool:
    """Return whether the words of a sentence restate settings, and negate none about privacy."""
    if strong and not NEGATIONS.isdisjoint(words):
        return False
    allowed = _allowed(strong=strong, several=known.several, shuffled=known.shuffled)
    unknown = [word for word in words if not _known(word, allowed)]
    return not any(map(_about, unknown)) and (free or not unknown)


def _has_other_numbers(tokens: list[re.Match[str]], known: Known) -> bool:
    """Return whether a number is infinite, or counts something that its file does not."""
    wholes = (float(one["whole"]) for one in tokens if one["whole"])
    if any(not _counted(whole, "", known) for whole in wholes):
        return True
    return any(math.isinf(number) for _, number in _numbers(tokens))


@lru_cache(maxsize=10_000)
def _about(word: str) -> str:
    """Return whether a word is about privacy, about a run, or about something else."""
    if word in SUBJECTS and word not in SUSPECT:
        return ""
    return "strong" if STRONG.match(word) else "weak" if WEAK.match(word) else ""


@cache
def _allowed(*, strong: bool, several: bool, shuffled: bool) -> frozenset[str]:
    """Return the words that a sentence may have; fewer if it is about privacy."""
    found = NEUTRAL | FUNCTION | PROGRESS | ((SUBJECTS | QUALIFIERS) - SUSPECT)
    found |= frozenset() if strong else SUSPECT - HARD
    return found | (_RUNS if several else frozenset()) | (_ORDER if shuffled else frozenset())


def _known(word: str, allowed: frozenset[str]) -> bool:
    return word in allowed or len(word) == 1 or word.rstrip("0123456789") in allowed


def _numbers(tokens: list[re.Match[str]]) -> Iterator[tuple[str, float]]:
    """Yield each number with the word that it belongs to; empty if there is none."""
    owner = ""
    for at, one in enumerate(tokens):
        if one["word"]:
            owner = one["word"] if one["word"] not in FUNCTION else owner
            continue
        after = tokens[at + 1]["word"] if at + 1 < len(tokens) else ""
        close = after in _COUNTERS
        if one["whole"]:
            # The third of five runs is not the only one.
            if owner in _COUNTED and float(one["whole"]) > 1:
                yield owner, math.inf
            yield (after if close else owner), float(one["whole"])
            continue
        factor = {"k": 1e3, "m": 1e6, "%": 0.01}.get(one["unit"] or "", 1.0)
        yield (after if close else owner), factor * float(one["number"])


def _agrees(owner: str, number: float, known: Known, *, strong: bool) -> bool:
    """Return whether a number of a sentence is that of the file."""
    if owner in _NOISE:
        return number in known.noises
    if owner in _EPSILON:
        # A smaller one is added to a divisor by an optimizer.
        return number <= 1.01 * known.epsilon or number < 1e-4
    if owner in _COUNTERS:
        return _counted(number, owner, known)
    if (
        owner in _ANY
        or owner in _INDEXED
        or (owner in PROGRESS and not strong)
        or (owner and owner not in _SETTINGS)
    ):
        return True
    return number in known.numbers or number in (0.0, 1.0)


def _counted(number: float, owner: str, known: Known) -> bool:
    """Return whether a counter of a run stays within the numbers of the file."""
    if owner in _EPOCHS:
        return number <= known.epochs
    return number <= known.rounds or number in known.numbers


def unclear_in(texts: Iterable[str], known: Known) -> list[str]:
    """Return the sentences of texts that must be looked at, each one once."""
    found: dict[str, None] = {}
    seeds: set[str] = set()
    many = 0
    for text in texts:
        for sentence in _SENTENCES.split(text):
            plain = " ".join(sentence.split())
            if plain in found or not plain or _is_field(plain, known):
                continue
            many += 1
            if many > MAX_SENTENCES:
                return [*found, f"more than {MAX_SENTENCES} sentences"]
            before = len(seeds)
            seeds.update(_SEED.findall(plain.lower()))
            # Several seeds are several runs.
            again = len(seeds) > max(before, 1) and not known.several
            if again or not is_clear(plain, known):
                found[plain] = None
    return list(found)


_SEED = re.compile(r"\bseed(?: set to)?[ :=]{1,3}(\d{1,12})\b")


_ASSIGNMENT = re.compile(r"[-\s\"']*([A-Za-z][\w.-]{0,60})[\"']?\s?[=:]\s?([^\s=:]{1,60}?)[,;]?")


def _is_field(sentence: str, known: Known) -> bool:
    """Return whether a sentence is a setting that the file's fields have, with its value."""
    found = _ASSIGNMENT.fullmatch(sentence)
    if found is None or plain_name(found[1]) not in known.names:
        return False
    number = as_number(found[2])
    return number is None or float(number) in known.numbers


_SENTENCES = re.compile(r"\n|(?<=[.;!?])\s")
