"""Sentences of a file that put its facts in doubt: comments, notes, captions and lines of a log.

No number is taken from a sentence. A sentence with a word of privacy and a negation, a change or
another number than the file's makes the fact that it is about a question, which quotes it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ...outputs import printable
from .fields import NUMBER, Field, Fields, as_number, words_in

KEY = "remarks of the file"
"""Name under which the sentences of a file are passed on with its values."""


class Doubt(NamedTuple):
    """A fact in doubt, with the sentence that doubts it.

    Attributes:
        fact: the fact, as ``Question`` names it.
        text: the sentence.
        why: what it may mean.
    """

    fact: str
    text: str
    why: str

    def __str__(self) -> str:
        return printable(f"{self.text[:160]!r}: {self.why}")


class Known(NamedTuple):
    """Numbers of a file, which a sentence may repeat.

    Attributes:
        noises: the numbers about the noise and the clip.
        rounds: the number of noisy sums; None if unknown.
        epsilon: the epsilon that the file claims; None if unknown.
        epochs: the largest number of epochs in the file; 0 if there is none.
    """

    noises: frozenset[float] = frozenset()
    rounds: float | None = None
    epsilon: float | None = None
    epochs: float = 0.0


def known_in(fields: Iterable[Field], facts: Mapping[str, Any]) -> Known:
    """Return the numbers that the sentences of a file may repeat."""
    noises, epochs = set(), 0.0
    for one in fields:
        number = as_number(one.value)
        words = words_in(one.place)
        if number and words & _OF_NOISE:
            noises.add(float(number))
        if number and words_in(one.name) & {"epoch", "epochs"}:
            epochs = max(epochs, float(number))
    rounds = facts.get("rounds")
    return Known(frozenset(noises), rounds, facts.get("epsilon"), epochs)


_OF_NOISE = {"noise", "sigma", "std", "stddev", "clip", "clipping", "norm", "multiplier", "z"}

_NUMBER = rf"(?<![\w.])({NUMBER.pattern})(?![\w%]|\.\d)"
_PRIVATE = re.compile(
    r"\b(?:noise|noisy|sigma|clip\w*|dp|ldp|dp-?sgd|priva\w*|nonpriv\w*|differential\w*|opacus"
    r"|max_grad_norm|(?:\w+_)?noise_\w+|(?:\w+_)?(?:dp|clip|clipping|privacy)(?:_\w+)?)\b"
)
_AGAINST = re.compile(
    r"\b(?:no|not|non|without|never|none|nothing|off|disabl\w*|deactivat\w*|skip\w*|bypass\w*"
    r"|remov\w*|omit\w*|exclud\w*|except|ignor\w*|lower\w*|reduc\w*|decreas\w*|decay\w*|chang\w*"
    r"|overrid\w*|overwr\w*|overrul\w*|replac\w*|instead|only|until|rais\w*|increas\w*|actual\w*"
    r"|wrong\w*|bugs?|fail\w*|broken|missing|partial\w*|partly|half|halv\w*|doubl\w*|raw|un\w+ed"
    r"|switch\w*|stop\w*|drop\w*|forg[eo]t\w*|lost|mistake\w*|reset\w*|relax\w*|weak\w*|zero"
    r"|anneal\w*|adapt\w*|kein\w*|ohne|nicht|nein|sans|sin|senza)\b|n't\b|->|=>"
)
_NOISE_IS = re.compile(
    r"\b(?:\w*noise\w*|sigma|multiplier|clip(?:ping)?[ _](?:norm|bound|threshold|value)"
    rf"|max_grad_norm)\b[^\d\n]{{0,40}}?{_NUMBER}"
)
_HARMLESS = re.compile(
    r"secure rng|secure[_ ]mode|drop_last|optimal order|warm restart|scheduler|learning rate"
    r"|not required|non-full backward|noise_?multiplier is not|no bound on number of"
)
"""Sentences that libraries print in every run, and of other settings."""
_REFERENCES = re.compile(
    r"\b(?:section|sec|figure|fig|table|tab|equation|eq|issue|chapter|page|version|theorem|lemma"
    r"|appendix|line|opacus|torch|python)\.? ?#?v?\d[\d.]*|#\d+|\b(?:https?://|arxiv)\S*"
    r"|\b(?:19|20)\d\d(?:-\d\d){0,2}\b|[<>]=? ?0(?![.\d])|\badd(?:/|_or_| or |_)remove\b"
)
"""Places in texts, dates, and a name of an adjacency."""
_OFF_SWITCHES = re.compile(r"\b\w+=(?:false|none|null)\b|\bshuffle=true\b")
"""Arguments of calls, which the readers of fields know."""
_AGAIN = re.compile(
    r"\b(?:resum(?:e|ed|es|ing|ption)|restart\w*|restor(?:ed|ing)|continu(?:ed|ing)"
    r"|truncat\w*|unaccounted|uncounted|abort\w*|crash\w*|requeue\w*|preempt\w*|oom|re-?run"
    r"|re-?train\w*|rolled back)\b"
)
_RUN = re.compile(r"\b(?:step|epoch|round|iteration|train\w*|run|checkpoint|account\w*|job)s?\b")
_ACCOUNT = re.compile(r"\b(?:accountant|accounting|accounted)\b")
_FRESH = re.compile(r"\b(?:starts?|started|restart\w*|fresh|new|reset\w*|zeroed|from 0|at 0)\b")
_MORE = re.compile(
    r"\b(?:more|extra|additional|further)\b[^.\n]{0,12}\b(?:steps|epochs|rounds|iterations)\b"
)
_STEPS = re.compile(
    r"\b(?:step|round|iteration)s?[ :=]{1,3}(?:\d{1,12}/)?(\d{1,12})\b"
    r"|(?<![\w.,])(\d{1,12}) (?:steps|rounds|iterations|updates)\b"
)
_EPOCHS = re.compile(r"(?<![\w.,])(\d{1,9}) epochs\b|\bepochs?[ :=]{1,3}(?:\d{1,9}/)?(\d{1,9})\b")
_COUNT = r"(?:[2-9]|\d{2,9}|two|three|four|five|six|seven|eight|nine|ten|several|many|multiple)"
_TRIALS = re.compile(
    r"\b(?:run|trial|seed|fold|attempt|repeat|repetition|member)s? \d{1,6} ?(?:of|/) ?\d{1,6}\b"
    rf"|\b(?:best|mean|median|average|averaged|worst) (?:of|over) (?:the |all )?{_COUNT}\b"
    rf"|\b{_COUNT} (?:other |different |random |independent |more )?"
    r"(?:runs|trials|seeds|folds|repetitions|restarts|models|tries|attempts|repeats|times)\b"
    r"|\b(?:grid search|hyper-?parameter (?:search|tuning|sweep)|cross-?validat\w*"
    r"|population.based|ensemble|bagging)\b"
    r"|\b(?:daily|weekly|nightly|hourly|monthly|every (?:day|week|night|hour|month))\b"
)
_OTHER_DRAWS = re.compile(
    r"\b(?:shuffl\w*|without replacement|with replacement|sequential\w*|in order|approximat\w*"
    r"|not poisson|fixed[ -]size|oversampl\w*|upsampl\w*|duplicat\w*|balanced|percent)\b"
)
_DRAWN = re.compile(r"\b(?:batch\w*|sampl\w*|records?|data|examples?|loader|poisson)\b")
_OF_USERS = re.compile(
    r"\b(?:each|every|per|one|some)\s(?:\w+\s){0,2}?(?:user|patient|person|client|author|speaker"
    rf"|household|customer|device|subject)s?\b[^.\n]{{0,60}}\b{_COUNT}\b"
)
_EPSILON = re.compile(rf"(?:\b(?:epsilon|eps)\b|\u03b5)[^\d\n]{{0,25}}?{_NUMBER}")
_OPTION = re.compile(
    r"--(?:no|non|disable|without|skip|remove)[-_]?(?:dp|privacy|private|noise|clip\w*|opacus)\b"
)


def doubt_in(sentence: str, known: Known) -> Doubt | None:
    """Return the fact that a sentence puts in doubt, or None."""
    text = " ".join(sentence.split())
    low = _REFERENCES.sub(" ", _OFF_SWITCHES.sub(" ", text.lower()))
    if _HARMLESS.search(low):
        return None
    noise = "it may say that the noise or the clip was another one"
    if _OPTION.search(low) or (_PRIVATE.search(low) and _AGAINST.search(low)):
        return Doubt("noise_multiplier", text, noise)
    if any(float(number) not in known.noises for number in _NOISE_IS.findall(low)):
        return Doubt("noise_multiplier", text, noise)
    if _OF_USERS.search(low):
        why = "the noise is relative to the clip of one record"
        return Doubt("noise_multiplier", text, why)
    if _more(low, known):
        return Doubt("rounds", text, "it may say that other steps count too")
    if _TRIALS.search(low):
        return Doubt("trials", text, "how many runs were made on these data")
    if _OTHER_DRAWS.search(low) and _DRAWN.search(low):
        return Doubt("sampling_probability", text, "it may say that batches were drawn otherwise")
    larger = [float(number) for number in _EPSILON.findall(low)]
    if known.epsilon is not None and max(larger, default=0.0) > 1.01 * known.epsilon:
        return Doubt("claim_epsilon", text, "it may say that another epsilon was spent")
    return None


def _more(low: str, known: Known) -> bool:
    """Return whether a sentence is about steps that the file may not count."""
    if (_AGAIN.search(low) and _RUN.search(low)) or _MORE.search(low):
        return True
    if _ACCOUNT.search(low) and (_AGAINST.search(low) or _FRESH.search(low)):
        return True
    steps = max((float(one or other) for one, other in _STEPS.findall(low)), default=0.0)
    epochs = max((float(one or other) for one, other in _EPOCHS.findall(low)), default=0.0)
    most = math.inf if known.rounds is None else known.rounds
    return steps > most or epochs > (known.epochs or math.inf)


def doubts_in(texts: Iterable[str | Doubt], known: Known) -> list[Doubt]:
    """Return the doubts in the sentences of texts, the first one of each fact."""
    found: dict[str, Doubt] = {}
    for text in texts:
        if isinstance(text, Doubt):
            found.setdefault(text.fact, text)
            continue
        for sentence in _SENTENCES.split(text):
            doubt = doubt_in(sentence, known)
            if doubt is not None:
                found.setdefault(doubt.fact, doubt)
    return list(found.values())


_SENTENCES = re.compile(r"\n|(?<=[.;!?])\s")


def texts_of(one: Field) -> list[str]:
    """Return the texts of a field that may hold a sentence."""
    values = one.value if isinstance(one.value, list) else [one.value]
    return [f"{one.name}: {each}" for each in values if isinstance(each, str) and " " in each]


_COMMENT = re.compile(r"(?:^|(?<=\s))(?:#+|//|;(?=\s*\w)|%(?=\s))(?!!)(.*)$")
_BLOCKS = (("<!--", "-->"), ("/*", "*/"))
_BEFORE = re.compile(r"\s*[-\"'\[(]*([A-Za-z][\w.-]{0,60})[\"']?\s*[:=]")
_SETTINGS = re.compile(r"\w\s{0,9}=(?!=)|\w['\"]\s{0,9}:|--[A-Za-z]")
MAX_SENTENCE = 2000
"""Longest line of a text that is looked at whole, in characters; a longer one overlaps itself."""
_STEP = 1500


def comments_in(text: str) -> list[str]:
    """Return the comments of a text, each with the name that is set on its line."""
    found = []
    for line in text.splitlines():
        comment = _COMMENT.search(line)
        if comment is not None:
            said = comment[1].strip()
            before = _BEFORE.match(line[: comment.start()])
            found.append(f"{before[1]}: {said}" if before else said)
    return [each for each in [*found, *_blocks(text)] if each]


def _blocks(text: str) -> Iterator[str]:
    """Yield the comments that may go over several lines."""
    for begin, end in _BLOCKS:
        start = text.find(begin)
        while start >= 0 and (stop := text.find(end, start + len(begin))) >= 0:
            yield " ".join(text[start + len(begin) : stop].split())
            start = text.find(begin, stop + len(end))


def lines_in(text: str) -> list[str]:
    """Return the lines of a log or of prose; lines of settings are read by others."""
    lines = (line for line in text.splitlines() if line)
    cut = (line[at : at + MAX_SENTENCE] for line in lines for at in range(0, len(line), _STEP))
    return [line for line in cut if len(_SETTINGS.findall(line)) < 3]


def with_remarks(
    runs: list[tuple[str, Any]], texts: Sequence[str | Doubt]
) -> list[tuple[str, Any]]:
    """Return the runs of a file with those of its sentences that put one of them in doubt."""
    # A sentence may be about another run, or count the runs.
    known = known_in(Fields([data for _, data in runs]).every, {"epsilon": math.inf})
    doubtful = [text for text in texts if {each.fact for each in doubts_in([text], known)} - _RUNS]
    if not doubtful:
        return runs
    return [
        (name, {**data, KEY: doubtful} if isinstance(data, Mapping) else data)
        for name, data in runs
    ]


_RUNS = {"trials"}


def apart(values: Any) -> tuple[Any, list[str | Doubt]]:
    """Return plain values without the sentences of their file, and these."""
    own = values.get(KEY) if isinstance(values, Mapping) else None
    if not isinstance(own, list) or not all(isinstance(each, str | Doubt) for each in own):
        return values, []
    return {key: value for key, value in values.items() if key != KEY}, own
