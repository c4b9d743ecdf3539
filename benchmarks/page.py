"""Time until a changed plan has its answer on the page, over HTTP as a browser asks.

    python benchmarks/page.py

Prints milliseconds from the request to the interval, and to the last part of the answer: the median
and the largest of several changes of the example.
"""

import contextlib
import json
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from http.client import HTTPConnection

from fedprivacy.page.forms import EXAMPLE

CHANGES = {
    "the example": [{"noise_multiplier": str(1 + i / 10)} for i in range(10)],
    "sampling": [{"sampling": name} for name in ("poisson", "fixed", "truncated", "everyone")],
    "neighbours": [{"adjacency": name} for name in ("add_remove", "zero_out", "replace_one")],
    "fixed, zero_out": [{"sampling": "fixed", "adjacency": "zero_out"}] * 3,
    "attacker": [{"observer": name} for name in ("aggregate", "server", "final")],
    "rounds": [{"rounds": str(10**i)} for i in range(7)],
    "delta": [{"delta": f"1e-{i}"} for i in range(3, 13)],
    "a budget": [{"knows": "budget", "epsilon": str(2**i)} for i in range(5)],
    "a wrong field": [{"rounds": "0"}] * 3,
}
"""Kind of change -> the changed fields of each question."""
PAUSE = 0.5
"""Seconds between an answer and the next change: a person reads."""


@contextlib.contextmanager
def served() -> Iterator[str]:
    """Yield the address of a page."""
    command = [sys.executable, "-m", "fedprivacy", "page"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        found = re.search(r"http://\S+", process.stdout.readline())
        assert found is not None
        try:
            yield found[0]
        finally:
            process.terminate()


def asked(address: str, fields: dict[str, str]) -> tuple[float, float]:
    """Return the milliseconds to the interval, and to the end of the answer."""
    host, _, path = address.removeprefix("http://").partition("/")
    headers = {"Origin": f"http://{host}", "Sec-Fetch-Site": "same-origin"}
    body = json.dumps({"fields": fields, "files": []}) + "\n"
    begun = time.perf_counter()
    connection = HTTPConnection(host)
    connection.request("POST", f"/{path}ask/plan", body, headers)
    first = None
    for line in connection.getresponse():
        if first is None and '"plan-answer"' in line.decode():
            first = time.perf_counter()
    connection.close()
    assert first is not None, fields
    return 1e3 * (first - begun), 1e3 * (time.perf_counter() - begun)


def main() -> None:
    """Ask every question, and print the times."""
    with served() as address:
        asked(address, EXAMPLE)
        print("milliseconds: median and largest to the interval; to the end of the answer")
        for kind, changes in CHANGES.items():
            times = []
            for changed in changes:
                time.sleep(PAUSE)
                times.append(asked(address, {**EXAMPLE, **changed}))
            first, whole = zip(*times, strict=True)
            told = [f"{f(each):7.0f}" for each in (first, whole) for f in (statistics.median, max)]
            print(f"{kind:18}", *told)


if __name__ == "__main__":
    main()
