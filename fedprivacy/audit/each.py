"""Audits of several runs: rows of one file, a list of states, or the files of a folder."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

from ..errors import ConversionError, FedPrivacyError, LedgerError, count, positive, refuse
from . import imports
from .accounting import Audit, audit
from .imports import Origin
from .imports.assembling import scheme_of
from .imports.content import beginning, digest
from .imports.fields import Fields, as_number, plain_name
from .imports.questions import MissingFacts
from .imports.trace import Rounds, Sampling, Stated
from .sources import given_claim

SUFFIXES = (
    ".json",
    ".jsonl",
    ".ndjson",
    ".yaml",
    ".yml",
    ".toml",
    ".csv",
    ".tsv",
    ".pt",
    ".ledger",
)
"""Suffixes of the files that a search of a folder opens."""
MAX_FILES = 1000
"""Largest number of files of a folder that are opened."""
MAX_DEPTH = 8
"""Deepest folder inside the searched one."""


@dataclass(frozen=True)
class RunAudit:
    """One of several runs.

    Attributes:
        name: row, place in the file, or path in the folder.
        audit: the audit; None if the run could not be judged.
        refused: why it could not be judged; empty if it was.
    """

    name: str
    audit: Audit | None
    refused: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        found = None if self.audit is None else self.audit.to_dict()
        return {"name": self.name, "audit": found, "refused": self.refused}

    def __str__(self) -> str:
        if self.audit is None:
            return f"{self.name}: not judged: {self.refused}"
        return f"{self.name}: {self.audit}"


def each(source: Any, **facts: Any) -> list[RunAudit]:
    """Audit every run of a source by itself.

    Args:
        source: a file with several runs, a folder, or a list of sources. The runs of a file are the
            rows of a table of settings, the entries of a list, or the states of several
            accountants. A folder is searched for records; files that hold no record are left out. A
            folder ``params`` of MLflow is one run.
        facts: the named arguments of ``audit``, the same for every run.

    Returns:
        One entry for each run, in the order of the source.

    Raises:
        ParameterError: if the source is not one of these.
        LedgerError: if a file cannot be read.
        ConversionError: if the format of the file is not supported.
    """
    if isinstance(source, list | tuple):
        named = [(_name(each, at), each) for at, each in enumerate(source, start=1)]
        why = _apart([_values(each, facts) for each in source], facts)
        if why is not None:
            return [RunAudit(name, None, why) for name, _ in named]
        return [_one(name, each, facts) for name, each in named]
    if not isinstance(source, str | PathLike):
        refuse("source", type(source).__name__, "be a file, a folder or a list of sources")
    path = Path(source)
    if path.is_dir():
        return _of_folder(path, facts)
    return _rows(path, "", facts) or [_one(path.name, path, facts)]


def _of_folder(path: Path, facts: Mapping[str, Any]) -> list[RunAudit]:
    files = [*_files(path)]
    runs = [_one(str(at.relative_to(path)), settings, facts) for at, settings in _tracked(path)]
    runs += [found for file in files for found in _of_file(file, path, facts)]
    why = _apart([_values(file, facts) for file in files], facts)
    return runs if why is None else [RunAudit(each.name, None, why) for each in runs]


def _name(source: Any, at: int) -> str:
    return Path(source).name if isinstance(source, str | PathLike) else f"source {at}"


def _one(name: str, source: Any, facts: Mapping[str, Any]) -> RunAudit:
    try:
        return RunAudit(name, audit(source, **facts))
    except FedPrivacyError as error:
        return RunAudit(name, None, str(error))


def _rows(path: Path, prefix: str, facts: Mapping[str, Any]) -> list[RunAudit]:
    """Return the audits of a file with several runs; empty if it is about one run."""
    if imports.is_ledger(beginning(path)):
        return []
    runs = imports.several(path)
    if (why := _apart([data for _, data in runs], facts)) is not None:
        return [RunAudit(f"{prefix}{name}", None, why) for name, _ in runs]
    apart = _different([data for _, data in runs])
    return [_row(path, f"{prefix}{name}", data, facts, apart) for name, data in runs]


_RECORDS = ("dataset", "n_train", "num_train", "train_size", "examples")
_WORDS = {
    "noise_multiplier": ("noise", "sigma", "std", "stddev", "multiplier", "scale"),
    "rounds": ("round", "step", "epoch", "iteration", "batch", *_RECORDS),
    "population": ("population", "clients", "users", "size", *_RECORDS),
    "sampling": ("sampling", "sample", "batch", "lot_", "cohort", "per_round", "frac", *_RECORDS),
}
"""Fact -> words of fields. One answer cannot give it for runs that differ in these fields."""


def _values(source: Any, facts: Mapping[str, Any]) -> Any:
    """Return the plain values of a source, to compare it with others; None if it has none."""
    if isinstance(source, Mapping):
        return source
    if not isinstance(source, str | PathLike) or not any(facts.get(each) for each in _WORDS):
        return None
    try:
        path = Path(source)
        return None if imports.is_ledger(beginning(path)) else imports.values_of(path)
    except FedPrivacyError:
        return None


def _apart(runs: list[Any], facts: Mapping[str, Any]) -> str | None:
    """Return why one answer cannot serve all runs; None if it can."""
    for fact, words in _WORDS.items():
        # The name of a sampling takes its numbers from each run.
        if facts.get(fact) is None or isinstance(facts[fact], str):
            continue
        places = _places(runs, words)
        if places:
            # A scheme is stated by its number.
            number = _OF_SCHEMES.get(type(facts[fact]).__name__, fact)
            return (
                f"{fact} must be left out if the runs differ in {places}, got {facts[fact]}; add a "
                f"field stated_{number} to each run, or audit them one by one"
            )
    return None


_OF_SCHEMES = {"Poisson": "sampling_probability", "FixedSize": "cohort"}
_OF_SCHEMES |= {"WithReplacement": "cohort", "Shuffled": "rounds_per_epoch"}


def _places(runs: list[Any], words: tuple[str, ...]) -> str:
    """Return the differing fields with one of these words; empty if the runs agree."""
    seen: dict[tuple[str, ...], str] = {}
    for data in runs:
        about = [
            one
            for one in Fields(data).every
            if any(word in one.name for word in words)
            and as_number(one.value) is not None
            and not one.name.startswith(_STATED)
        ]
        if about:
            seen.setdefault(tuple(sorted(str(one.value) for one in about)), about[0].place)
    return ", ".join([*dict.fromkeys(seen.values())][:4]) if len(seen) > 1 else ""


def _different(runs: list[Any]) -> dict[str, str]:
    """Return the differing fields by fact; one answer cannot give this fact for all runs."""
    places = {fact: _places(runs, words) for fact, words in _WORDS.items()}
    places |= dict.fromkeys(_DRAWN, places["sampling"])
    return {fact: place for fact, place in places.items() if place}


_STATED = "stated_"
"""Beginning of the fields of a run that state a fact for this run only."""
_DRAWN = ("sampling_probability", "cohort", "population", "rounds_per_epoch")
_OWN = ("noise_multiplier", "rounds", *_DRAWN)


def _answered(data: Any, facts: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return a run without its fields ``stated_...``, and the user's statements with them."""
    if not isinstance(data, Mapping):
        return data, dict(facts)
    own = _stated_in(data, facts)
    rest = {key: value for key, value in data.items() if plain_name(key)[7:] not in own}
    given = dict(facts)
    if "rounds" in own:
        given["rounds"] = count(rounds=own["rounds"])
    if "noise_multiplier" in own:
        given["noise_multiplier"] = positive(noise_multiplier=own["noise_multiplier"])
    drawn = {name: own[name] for name in _DRAWN if name in own}
    # The numbers of a sampling need its name, which is a question otherwise.
    if drawn and facts.get("sampling") is not None:
        name = str(facts["sampling"]).replace("_", "-")
        if name not in [*Sampling]:
            way_out = "pass sampling='poisson', for example (--sampling)"
            refuse("sampling", facts["sampling"], "be a name with these fields", way_out)
        drawn["rate"] = drawn.pop("sampling_probability", None)
        drawn["per_epoch"] = drawn.pop("rounds_per_epoch", None)
        given["sampling"] = scheme_of(Rounds(1.0, Sampling(name), **drawn))
    return rest, given


def _stated_in(data: Mapping[Any, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the numbers of the fields ``stated_...``, by fact."""
    own: dict[str, Any] = {}
    for key, value in data.items():
        name = plain_name(key).removeprefix(_STATED)
        if name not in _OWN or not plain_name(key).startswith(_STATED):
            continue
        own[name] = as_number(value)
        if own[name] is None:
            refuse(str(key), value, "be a number")
        if name not in _DRAWN and facts.get(name) is not None:
            refuse(name, facts[name], f"be left out with a field {key}")
    return own


def _row(
    path: Path, name: str, data: Any, given: Mapping[str, Any], apart: Mapping[str, str]
) -> RunAudit:
    by = str(given.get("auditor", ""))

    def origin(kind: str) -> Origin:
        return Origin.imported(kind, f"{path.name}, {name}", digest(path), by)

    try:
        data, facts = _answered(data, given)
        names = Stated.__dataclass_fields__.keys() & facts.keys()
        stated = Stated(**{each: facts[each] for each in names})
        claim = given_claim(facts.get("claim"))
        trace = imports.read_data(data, origin, f"{path.name}, {name}", stated, claim)
        # The draft of a row already has the user's answers.
        rest = {key: value for key, value in facts.items() if key not in _ANSWERS}
        found = audit(trace, **rest)
    except FedPrivacyError as error:
        told = str(error).removeprefix(f"{path.name}, {name}: ")
        return RunAudit(name, None, told + _in_columns(error, apart))
    answered = {key: str(facts[key]) for key in _ANSWERS if facts.get(key) is not None}
    return RunAudit(name, replace(found, stated={**found.stated, **answered}))


def _in_columns(error: Exception, apart: Mapping[str, str]) -> str:
    """Return the columns that state the missing facts of differing runs; empty if they agree."""
    asked = {one.name for one in error.questions} if isinstance(error, MissingFacts) else set()
    asked |= {"sampling_probability"} if "sampling" in asked else set()
    facts = [fact for fact in _OWN if fact in asked and fact in apart]
    if not facts:
        return ""
    places = ", ".join(dict.fromkeys(apart[fact] for fact in facts))
    columns = ", ".join(f"{_STATED}{fact}" for fact in facts)
    return f". The runs differ in {places}: state these facts in a column each: {columns}"


_ANSWERS = ("rounds", "noise_multiplier")


def _files(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder that may be records, by name."""
    count = 0
    for place, folders, files in os.walk(folder):
        here = Path(place)
        # Hidden folders hold no records of a run, and often very many files.
        folders[:] = sorted(name for name in folders if name[0] != "." or name == _HYDRA)
        if len(here.relative_to(folder).parts) >= MAX_DEPTH:
            folders.clear()
        for name in sorted(files):
            if not name.lower().endswith(SUFFIXES) and name not in _NAMES:
                continue
            # Hydra writes the whole configuration next to its parts.
            if here.name == _HYDRA and "config.yaml" in files and name != "config.yaml":
                continue
            count += 1
            if count > MAX_FILES:
                refuse("source", str(folder), f"hold at most {MAX_FILES} files to look at")
            yield here / name


_HYDRA = ".hydra"
"""Folder of Hydra for the configuration of a run."""
_NAMES = ("MLproject",)
"""Names of records without a suffix."""
_LARGEST = 6000
"""Largest file of one setting that MLflow writes, in bytes."""


def _tracked(folder: Path) -> Iterator[tuple[Path, dict[str, str]]]:
    """Yield the runs that MLflow tracked in a folder: one file for each setting, in ``params``."""
    places = [folder] if folder.name == "params" else []
    for depth in range(1, 5):
        places += sorted(folder.glob("*/" * (depth - 1) + "params"))
    for place in places[:MAX_FILES]:
        files = sorted(each for each in place.iterdir() if each.is_file()) if place.is_dir() else []
        if not 0 < len(files) <= MAX_FILES or any(file.suffix in SUFFIXES for file in files):
            continue
        settings = {
            file.name: beginning(file, _LARGEST).decode("utf-8", "replace").strip()
            for file in files
        }
        if imports.is_configuration(settings):
            yield place, settings


def _of_file(path: Path, folder: Path, facts: Mapping[str, Any]) -> list[RunAudit]:
    """Return the audits of a file of a folder; empty if the file is no record."""
    name = str(path.relative_to(folder))
    try:
        rows = _rows(path, f"{name}, ", facts)
        if rows:
            return rows
        if not imports.is_ledger(beginning(path)) and not imports.is_record(path):
            return []
    except (ConversionError, LedgerError):
        return []
    return [_one(name, path, facts)]
