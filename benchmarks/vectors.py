"""Makes and checks the test vectors: `fedprivacy/vectors/cases.json`.

python benchmarks/vectors.py write       answer every question again
python benchmarks/vectors.py certify     prove the ends by the stand-alone checker (long)
python benchmarks/vectors.py check       our accountant on every case: `make vectors`
"""

import argparse
import json
import math
import resource
import subprocess
import sys
import tempfile
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import check_certificate
import vector_questions

import fedprivacy as fp
from fedprivacy.errors import ConversionError, FedPrivacyError
from fedprivacy.integrations.dp_runs import relation_of, to_event
from fedprivacy.integrations.dp_states import plain
from fedprivacy.mechanisms import CorrelatedNoise, HeldMechanism, Mechanism, SampledMechanism
from fedprivacy.registry import KINDS, encode
from fedprivacy.vectors import cases, ours
from fedprivacy.vectors.cases import PATH, VERSION, document
from fedprivacy.vectors.command import main as command

NEIGHBOURS = {
    "add_remove": "one unit added or removed",
    "zero_out": "one unit replaced by zeros",
    "replace_one": "one unit replaced by another",
}
NO_PROOF = "the stand-alone checker proves an epsilon or a delta"
UNTRIED = {"none": "not tried"}
SECONDS = 10
"""Processor time that the stand-alone checker may take."""
CHECKER = Path(check_certificate.__file__)


def count(number: float) -> str:
    return f"{number:,}" if isinstance(number, int) else f"{number!r}"


def in_words(run: Mechanism) -> str:
    """Return a run in words."""
    if isinstance(run, SampledMechanism | HeldMechanism):
        held = f", a user holds at most {run.held} units" if hasattr(run, "held") else ""
        return f"{in_words(run.inner)} of units drawn by {drawn(run.scheme)}{held}"
    values = {
        name: value
        for name, value in encode(run, KINDS)["fields"].items()
        if value is not None and name not in ("clip_norm", "adjacency", "observer", "sparsifier")
    }
    if isinstance(run, fp.Gaussian | fp.Laplace):
        return f"a {type(run).__name__} sum with noise multiplier {run.noise_multiplier!r}"
    facts = ", ".join(f"{name} {shown(value)}" for name, value in values.items() if value)
    return f"{type(run).__name__} ({facts})"


def repeated(part: Mechanism, n: int) -> str:
    epoch = isinstance(getattr(part, "scheme", None), fp.Shuffled | fp.RandomAllocation)
    if n == 1:
        return f"one epoch of {in_words(part)}" if epoch else in_words(part)
    return f"{count(n)} {'epochs' if epoch else 'rounds'} of {in_words(part)}"


def shown(value: Any) -> str:
    if isinstance(value, dict):
        inside = ", ".join(f"{k} {shown(v)}" for k, v in value["fields"].items() if v)
        return f"{value['type']}({inside})"
    return str(value)


def drawn(scheme: Any) -> str:
    inside = ", ".join(f"{k} {v!r}" for k, v in vars(scheme).items() if v and k[0] != "_")
    return f"{type(scheme).__name__} ({inside})"


def asked_in_words(given: dict[str, Any]) -> str:
    names = {"epsilon": "epsilon", "delta": "delta", "fpr": "false-positive rate"}
    at = ", ".join(f"{word} {given[k]!r}" for k, word in names.items() if k in given)
    what = {
        "power": "largest true-positive rate of an attack at",
        "advantage": "largest advantage of an attack",
        "noise_multiplier": "least noise multiplier for",
        "resumed": "epsilon after saving and resuming between the pieces, at",
    }.get(given["ask"], f"{given['ask']} at")
    return f"{what} {at}".strip()


def written(run: Mechanism, adjacency: str, observer: str = "aggregate") -> dict[str, Any]:
    """Return a run as dp-accounting's event, or as a ledger writes it if no event says it."""
    # Its event would be one Gaussian, whose sensitivity is already the answer.
    correlated = isinstance(run, CorrelatedNoise)
    try:
        if not correlated:
            return {"event": plain(to_event(run, adjacency=adjacency, observer=observer))}
    except ConversionError:
        pass
    return {"event": None, "run": encode(run, KINDS)}


def without_noise(event: Any) -> Any:
    """Return an event with null for every noise multiplier."""
    if not isinstance(event, dict):
        return event
    return {k: None if k == "noise_multiplier" else without_noise(v) for k, v in event.items()}


def question(family: str, number: int, given: dict[str, Any]) -> dict[str, Any]:
    """Return a question as plain JSON values."""
    given = dict(given)
    run, adjacency = given.pop("run"), given.pop("adjacency")
    observer, tags = given.pop("observer", "aggregate"), given.pop("tags")
    said = written(run, adjacency, observer)
    words = ", then ".join(repeated(part, n) for part, n in run.sequence())
    if given["ask"] == "noise_multiplier":
        said["event"] = without_noise(said["event"])
        words = words.replace("noise multiplier 1.0", "the noise multiplier")
    if "pieces" in given:
        pieces = [
            ", then ".join(repeated(*part) for part in one.sequence()) for one in given["pieces"]
        ]
        words = "; ".join(f"piece {i}: {piece}" for i, piece in enumerate(pieces, 1))
        given["pieces"] = [written(piece, adjacency)["event"] for piece in given["pieces"]]
    seen = "" if observer == "aggregate" else f"; the observer is {observer}"
    return {
        "id": f"{family}-{number:03}",
        "family": family,
        **given,
        **said,
        "adjacency": adjacency,
        "relation": relation_of(adjacency).name,
        "observer": observer,
        "words": f"{words}; {NEIGHBOURS[adjacency]}{seen}; {asked_in_words(given)}",
        "tags": list(tags),
    }


def theorems(case: dict[str, Any]) -> list[str]:
    """Return the theorems behind a case's ends."""
    filled = case
    if case["ask"] == "noise_multiplier":
        filled = case | {"event": ours.filled(case["event"], 1.0)}
    return list(ours.run_of(filled).privacy_loss(case["adjacency"], case["observer"]).theorems)


def end(value: float) -> Any:
    return "inf" if math.isinf(value) else value


def answered(case: dict[str, Any]) -> dict[str, Any]:
    """Return a case with its ends."""
    try:
        low, high = getattr(ours, case["ask"])(case)
    except FedPrivacyError as refusal:
        raise SystemExit(f"{case['id']}: {case['words']}: {refusal}") from refusal
    width = 0.0 if low == high else (high - low) / high if math.isfinite(high) else math.inf
    tight = end(float(f"{Decimal(width):.1e}") if width else 0.0)
    proved = UNTRIED if case["ask"] in ("epsilon", "delta") else {"none": NO_PROOF}
    ends = {"lower": end(low), "upper": end(high), "tightness": tight}
    return case | ends | {"theorems": theorems(case), "certificate": proved}


def questions() -> list[dict[str, Any]]:
    return [
        question(family, number, given)
        for family, asks in vector_questions.FAMILIES.items()
        for number, given in enumerate(asks(), 1)
    ]


def save(found: list[dict[str, Any]]) -> None:
    """Write the file, with one line for each case."""
    known = list(dict.fromkeys(one for case in found for one in case["theorems"]))
    lines = [
        json.dumps(case | {"theorems": [known.index(one) for one in case["theorems"]]})
        for case in found
    ]
    head = {"format": "fedprivacy vectors", "version": VERSION, "theorems": known}
    text = json.dumps(head, indent=1).removesuffix("\n}")
    PATH.write_text(text + ',\n "cases": [\n' + ",\n".join(lines) + "\n ]\n}\n", encoding="utf-8")


def write(families: list[str]) -> int:
    """Answer all questions; keep the answers and proofs of questions that did not change."""
    known = document()["theorems"] if PATH.exists() else []
    old = {case.id: case.question for case in cases()} if PATH.exists() else {}
    found, begun = [], time.time()
    for case in questions():
        before = old.get(case["id"], {})
        same = all(before.get(name) == value for name, value in case.items())
        if same and case["family"] not in families:
            found.append(before | {"theorems": [known[i] for i in before["theorems"]]})
            continue
        case = answered(case)
        print(f"{case['id']}: [{case['lower']}, {case['upper']}]", flush=True)
        if same and all(before[name] == case[name] for name in ("lower", "upper")):
            case["certificate"] = before["certificate"]
        found.append(case)
    save(found)
    print(f"{len(found)} cases, {time.time() - begun:.0f} s")
    return 0


def limited() -> None:
    """Limit the processor time of a process that is about to start."""
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))


def proof(case: dict[str, Any]) -> dict[str, Any]:
    """Return whether the stand-alone checker proves a case, or why there is no proof."""
    ask = {"epsilon": fp.epsilon, "delta": fp.delta}[case["ask"]]
    given = {name: case[name] for name in ("epsilon", "delta") if name in case}
    try:
        bound = ask(ours.run_of(case), **given, **ours.facts(case))
        document = bound.certificate()
    except FedPrivacyError as refusal:
        return {"none": str(refusal)}
    if (bound.lower, bound.upper) != (float(case["lower"]), float(case["upper"])):
        if "stated guarantees" in case["tags"]:
            return {"none": "the lower end is that of the stated guarantee's pair"}
        return {"none": "the ends are those of an earlier answer"}
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(document, file)
        file.flush()
        try:
            done = subprocess.run(
                [sys.executable, CHECKER, file.name],
                capture_output=True,
                text=True,
                timeout=20 * SECONDS,
                preexec_fn=limited,
            )
        except subprocess.TimeoutExpired:
            done = None
        if done is None or done.returncode < 0:
            return {"none": f"the stand-alone checker takes more than {SECONDS} s"}
    told = done.stdout.replace(file.name, "").strip(" :\n")
    if done.returncode == 1:
        print(f"WRONG: {case['id']}: {told}", flush=True)
    if done.returncode:
        return {"none": f"the stand-alone checker says: {told.splitlines()[-1]}"[:200]}
    return {"proved": True}


def certify(families: list[str]) -> int:
    """Prove the ends of every case that was not tried, and keep the result."""
    known = document()["theorems"]
    found = [
        case.question | {"theorems": [known[i] for i in case.question["theorems"]]}
        for case in cases()
    ]
    for number, case in enumerate(found):
        # Named families are tried again, unless they are proved.
        untried = case["certificate"] == UNTRIED and not families
        again = case["family"] in families and "none" in case["certificate"]
        if untried or (again and case["certificate"] != {"none": NO_PROOF}):
            case["certificate"] = proof(case)
            print(case["id"], case["certificate"], flush=True)
        if number % 50 == 49:
            save(found)
    save(found)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["write", "certify", "check"])
    parser.add_argument("--family", action="append", default=[])
    options = parser.parse_args()
    if options.what == "write":
        return write(options.family)
    if options.what == "certify":
        return certify(options.family)
    return command(["run", "--adapter", "fedprivacy.vectors.ours"])


if __name__ == "__main__":
    sys.exit(main())
