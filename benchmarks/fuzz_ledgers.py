"""Fuzz ledgers: a damaged one gives no traceback, no hang, and no HOLDS without the original's.

Usage: fuzz_ledgers.py [--inputs N] [--seed S]. Bytes are flipped, removed and inserted, lines are
swapped, repeated and lost, and files are truncated. In half of the cases the chain of checksums is
recomputed, as by a forger. A ledger that is truncated between lines counts its rounds and is open,
so no claim holds. A *forged* ledger may have any content, so only errors and time are checked.
"""

import argparse
import random
import signal
import sys
import tempfile
import time
from hashlib import sha256
from pathlib import Path

import fedprivacy as fp
from fedprivacy.ledger.lines import CHECK, TAIL, body_of

MOST_SECONDS = 2.0
FAILING, HOLDING = (0.05, 1e-5), (50.0, 1e-5)


def originals(folder):
    """Return the bytes of a few ledgers, closed and open, and whether their claim holds."""
    step = fp.Gaussian(noise_multiplier=2.0, unit="client").sampled(fp.Poisson(0.1))
    smp = fp.SparsifiedPerturbation(
        noise_multiplier=2.0, clip_norm=1.0, kept=3, dimension=9, cohort=4, missing=1
    ).sampled(fp.FixedSize(4, population=40))
    made = []
    for name, (one, claim, close, facts) in enumerate(
        (
            (step, HOLDING, True, {}),
            (step, FAILING, True, {}),
            (smp, HOLDING, False, {}),
            (smp, HOLDING, True, {"seed_policy": "fixed"}),
        )
    ):
        path = folder / f"original{name}"
        given = {"unit": "client", "adjacency": "zero_out", "claim": claim} | facts
        with fp.Ledger.create(path, plan=one * 4, **given) as ledger:
            for _ in range(4):
                number = ledger.intent(one, clip_norm=1.0, noise_std=2.0)
                ledger.done(number, cohort=4, arrived=4, refused=0, noise_std=2.0, denominator=4.0)
            if close:
                ledger.close()
        made.append((path.read_bytes(), fp.audit(path).verdict == "HOLDS"))
    return made


def damaged(text, rng):
    """Return the bytes with one to three kinds of damage, and whether the chain was recomputed."""
    for _ in range(rng.randint(1, 3)):
        lines = text.splitlines(keepends=True) or [b""]
        at, other = rng.randrange(len(lines)), rng.randrange(len(lines))
        place = rng.randrange(len(text) + 1)
        match rng.randrange(8):
            case 0:
                text = text[:place] + bytes([rng.randrange(256)]) + text[place + 1 :]
            case 1:
                text = text[:place]
            case 2:
                text = text[:place] + text[place + rng.randint(1, 40) :]
            case 3:
                text = text[:place] + rng.randbytes(rng.randint(1, 20)) + text[place:]
            case 4:
                lines[at], lines[other] = lines[other], lines[at]
                text = b"".join(lines)
            case 5:
                text = b"".join([*lines[:at], lines[other], *lines[at:]])
            case 6:
                text = b"".join(lines[:at] + lines[at + 1 :])
            case 7:
                number = str(rng.choice([0, -1, 2**63, 1e308, 1e-308, "NaN", "1e999", "[[[["]))
                text = text.replace(b"2.0", number.encode(), rng.randint(1, 3))
    forged = rng.random() < 0.5
    return (chained(text) if forged else text), forged


def chained(text):
    """Return the lines with correct checksums."""
    before, made = "", []
    for line in text.splitlines(keepends=True):
        if len(line) <= TAIL + 1 or body_of(line, before) is not None:
            made.append(line)
            before = line[-67:-3].decode("latin-1") if len(line) > TAIL else before
            continue
        body = line[: -TAIL - 1]
        before = sha256(before.encode() + body).hexdigest()
        made.append(body + CHECK + before.encode() + b'"}\n')
    return b"".join(made)


def judge(path, text, held, forged):
    """Return the fault in the audit of one damaged ledger; empty without a fault."""
    path.write_bytes(text)
    begun = time.process_time()
    try:
        found = fp.audit(path)
    except fp.errors.FedPrivacyError:
        found = None
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    spent = time.process_time() - begun
    if spent > MOST_SECONDS:
        return f"took {spent:.1f} s"
    if found is not None and found.verdict == "HOLDS" and not held and not forged:
        return "HOLDS, which the original does not"
    return ""


def fuzz(inputs, seed, folder):
    """Return the failures over a number of inputs, each with its seed."""
    sources, failures = originals(folder), []
    signal.signal(signal.SIGPROF, hung)
    for number in range(inputs):
        rng = random.Random(f"{seed} {number}")
        text, held = rng.choice(sources)
        changed, forged = damaged(text, rng)
        # Processor time: other work on the machine does not count.
        signal.setitimer(signal.ITIMER_PROF, 60)
        try:
            told = judge(folder / "damaged", changed, held, forged)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
        if told:
            failures.append(f"input {number} of seed {seed}: {told}")
    return failures


def hung(*_):
    """Stop an audit that takes too long."""
    raise TimeoutError("does not end within a minute")


def main():
    """Fuzz, print, and exit with 1 if anything failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        failures = fuzz(given.inputs, given.seed, Path(folder))
    for failure in failures:
        print(failure)
    print(f"{given.inputs} damaged ledgers, {len(failures)} failures")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
