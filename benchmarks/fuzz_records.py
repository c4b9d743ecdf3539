"""Fuzz every importer with changed files: only typed errors, in time, and sound verdicts.

    python benchmarks/fuzz_records.py --seconds 3600 --cases 50000

Each case takes one of the records of ``tests/traces``, changes it at random, and imports
it as an audit does. It passes if the result is an error of this package, or a record with at least
one round with the noise in the file. A claim that one such round breaks must not hold. Reading a
case may take at most two seconds of processor time. Reading and auditing it may take twenty
seconds, with a claim far below every number that an audit compares it with. Cases are numbered: a
second call continues after the last case, and ``--only KIND:NUMBER`` repeats one.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import re
import resource
import struct
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

import fedprivacy as fp
from fedprivacy.audit import imports
from fedprivacy.errors import FedPrivacyError
from fedprivacy.mechanisms.clear import WithoutNoise

HERE = Path(__file__).parent
RECORDS = HERE.parent / "tests" / "traces"
RESULTS = HERE / "results" / "fuzz_records.json"
SLOW = 2.0
"""Limit of processor seconds for a case."""
SLOW_AUDIT = 20.0
"""Limit of processor seconds for a case with a full audit: a tiny claim is expensive to check."""
BLOCK = 250
AUDITED = 40
"""One of this many imported cases is audited in full."""
PICKLED = re.compile(rb"G(?=.{8})", re.S)
CLAIM = (1e-9, 1e-12)
"""A claim that a single round with little loss already breaks: the original's verdict is FAILS."""
MEMORY = 6 * 2**30

STATEMENT = {
    "noise_multiplier": 1.4,
    "rounds": 180,
    "sampling": "fixed",
    "cohort": 100,
    "population": 6000,
    "missing_shares": 3,
    "adjacency": "zero_out",
}


def originals() -> dict[str, bytes]:
    """Return the original file of each kind."""
    found = {
        name: (RECORDS / name).read_bytes()
        for name in ("opacus_rdp.json", "opacus.pt", "flower.json", "event.json", "event_list.json")
    }
    for name in ("fixed.csv", "shuffled.jsonl"):
        found[name] = b"\n".join((RECORDS / name).read_bytes().splitlines()[:30])
    found["statement.json"] = json.dumps(STATEMENT).encode()
    lines = (f"{name} = {value!r}" for name, value in STATEMENT.items())
    found["statement.toml"] = "\n".join(lines).encode()
    return found


ODD = [
    b"NaN",
    b"Infinity",
    b"-1",
    b"1e999",
    b"null",
    b"true",
    b'""',
    b"[]",
    b"{}",
    b"\x00",
    b"\xff",
]
SIGNS = b'{}[],:"\n =#abcx\x00'


def changed(data: bytes, chance: random.Random) -> bytes:
    """Return the data changed in a few places, without a new digit next to another digit."""
    for _ in range(chance.randint(1, 3)):
        start = chance.randrange(len(data) + 1)
        end = min(len(data), start + chance.choice([1, 1, 2, 5, 40]))
        match chance.randrange(9):
            case 0:
                data = data[:start] + data[end:]
            case 1:
                data = data[:end] + data[start:end] + data[end:]
            case 2:
                data = data[:start] + bytes([chance.choice(SIGNS)]) + data[start:]
            case 3:
                data = data[:start]
            case 4:
                place = chance.randrange(len(data) + 1)
                data = data[:start] + data[place : place + 20] + data[end:]
            case 5:
                data = data[:start] + chance.choice(ODD) + data[end:]
            case 6 | 7:
                places = [place for place, sign in enumerate(data) if chr(sign) in "0123456789"]
                place = chance.choice(places or [0])
                data = data[:place] + str(chance.randrange(10)).encode() + data[place + 1 :]
            case _:
                opening = chance.choice([b"[", b'{"a":'])
                data = data[:start] + opening * chance.choice([3, 70, 5000]) + data[start:]
    return data


def facts_of(kind: str) -> dict[str, Any]:
    """Return the facts that are stated in addition to a record."""
    facts: dict[str, Any] = {"adjacency": "zero_out"}
    return facts | ({"sampling": "poisson"} if kind.startswith("opacus") else {})


def tried(kind: str, number: int, data: bytes, path: Path) -> str:
    """Return the result of a case: "refused", "read", "audited", or a description of its fault."""
    path.write_bytes(data)
    began = time.process_time()
    try:
        record = imports.read(path)
        made = imports.assemble(record, imports.Stated(**facts_of(kind)))
        told = _priced(made.run, data)
        if not told and number % AUDITED == 0:
            found = fp.audit(record, claim=CLAIM, **facts_of(kind))
            told = "HOLDS" if found.verdict == "HOLDS" else "audited"
    except FedPrivacyError as error:
        told = "refused" if len(str(error)) < 1000 else "an error of more than 1,000 characters"
    except MemoryError:
        told = "out of memory"
    except Exception:
        told = traceback.format_exc(limit=-3)
    spent = time.process_time() - began
    most = SLOW_AUDIT if told == "audited" else SLOW
    return f"{spent:.1f} seconds" if spent > most else told or "read"


def _priced(run: Any, data: bytes) -> str:
    """Return the fault in a record's account; empty without a fault."""
    texts = re.findall(rb"[0-9.]+(?:[eE][-+]?\d+)?", data)
    numbers = [float(t) for t in texts if t.strip(b".eE+-") and t.count(b".") < 2]
    # A pickle stores its floats in eight bytes after a G, where a changed bit gives another number.
    binary = (struct.unpack(">d", data[m.end() : m.end() + 8])[0] for m in PICKLED.finditer(data))
    numbers += [value for value in binary if math.isfinite(value)]
    quietest = max([1.0, *numbers])
    for part, count in run.sequence():
        inner = getattr(part, "inner", part)
        # A noise of 0 in the file has no multiplier.
        if count >= 1 and isinstance(inner, WithoutNoise) and 0.0 in numbers:
            continue
        noise = inner.traits.sum_multiplier
        if count < 1 or noise is None or not 0.0 < noise <= quietest:
            return f"{count} rounds of noise {noise}, where the file says at most {quietest}"
    return ""


def load(path: Path) -> dict[str, Any]:
    """Return the results so far."""
    if path.exists():
        found: dict[str, Any] = json.loads(path.read_text())
        return found
    return {kind: {"cases": 0, "failures": []} for kind in originals()}


def run(seconds: float, cases: int, path: Path) -> dict[str, Any]:
    """Continue with every kind in turn until the time or the cases are used up."""
    results, files = load(path), originals()
    until = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        while time.monotonic() < until:
            kind = min(results, key=lambda name: results[name]["cases"])
            if results[kind]["cases"] >= cases:
                break
            _block(kind, files[kind], results[kind], Path(folder) / "record")
            draft = path.with_suffix(".part")
            draft.write_text(json.dumps(results, indent=1) + "\n")
            draft.replace(path)
    return results


def _block(kind: str, data: bytes, result: dict[str, Any], path: Path) -> None:
    for number in range(result["cases"], result["cases"] + BLOCK):
        told = tried(kind, number, changed(data, random.Random(f"{kind}:{number}")), path)
        known = told if told in ("refused", "read", "audited") else "failed"
        result[known] = result.get(known, 0) + 1
        if known == "failed" and len(result["failures"]) < 20:
            result["failures"].append([number, told])
    result["cases"] += BLOCK


def main() -> None:
    """Fuzz; exit with 1 if any case failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--cases", type=int, default=50_000)
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--only", help="KIND:NUMBER of one case to be shown")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.only:
        kind, number = given.only.rsplit(":", 1)
        data = changed(originals()[kind], random.Random(given.only))
        with tempfile.TemporaryDirectory() as folder:
            print(data[:3000], tried(kind, int(number), data, Path(folder) / "record"), sep="\n")
        return
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    results = run(given.seconds, given.cases, given.output)
    for kind, found in results.items():
        print(kind, {name: value for name, value in found.items() if name != "failures"})
        for number, told in found["failures"]:
            print(f"  {kind}:{number}: {told}")
    raise SystemExit(any(found["failures"] for found in results.values()))


if __name__ == "__main__":
    main()
