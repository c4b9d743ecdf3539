"""Compare time, bracket and memory of our answers with the peers', in one run on one thread.

    python benchmarks/accounting.py [--quick | --smoke] [--json FILE]
    python benchmarks/accounting.py --only NAME [NAME ...] [--renew FILE]

All questions take about a quarter of an hour, --quick less than a minute, --smoke seconds. Every
library runs in a separate process. For each question the libraries answer in turn, after a first
call each. Times are medians of processor time (one thread, so a clock on an idle machine shows the
same). --only runs a part or a single row; --renew replaces the same rows in an earlier --json file.
"""

import argparse
import json
import math
import platform
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import questions
from pool import ALL, Answer, Pool, Way
from questions import Question, named
from scan import below, near_misses
from single_rows import OURS, RDP, ROWS
from tables import milliseconds, number, ratio, table

LADDER = [1e-2, 5e-3, 2e-3, 1e-3, 5e-4, 2e-4, 1e-4, 5e-5, 2e-5, 1e-5]
TOLERANCE = 1e-3

DEFAULTS = [
    Way("dp-accounting", "PLD", label="default"),
    *RDP,
    Way("opacus", "PRV", label="default"),
    Way("prv-accountant", "PRV", label="default"),
    Way("riskcal", "PLD", label="default"),
    Way("opacus", "GDP"),
]
PRECISE = [
    Way("dp-accounting", "PLD", 1e-3),
    Way("opacus", "PRV", 5e-4),
    Way("prv-accountant", "PRV", 0.01),
    Way("prv-accountant", "PRV", 5e-4),
]
QUICK = [DEFAULTS[0], *RDP[:2], Way("opacus", "PRV"), Way("opacus", "GDP"), PRECISE[0]]


class Report:
    """Prints tables and keeps their numbers for --json."""

    def __init__(self) -> None:
        self.data: dict[str, Any] = {}

    def add(self, section: str, question: Question, answers: list[Answer]) -> None:
        said = [answer.as_json() for answer in answers if not answer.silent]
        rows = self.data.setdefault(section, [])
        rows.append({"question": named(question), "answers": said})


def rows_of(answers: list[Answer]) -> list[list[str]]:
    """Return a table's rows: the answer, its excess over our lower end, time and ratio."""
    ours = answers[0]
    rows = []
    for answer in answers:
        if answer.silent:
            continue
        if not answer.answered:
            rows.append([answer.way.name, answer.failed])
            continue
        excess = f"{answer.high - ours.low:+.1e}" if ours.low is not None else "-"
        width = f"{answer.high - answer.low:.1e}" if answer.low is not None else "one end"
        times = [milliseconds(answer.seconds), milliseconds(answer.first), str(len(answer.cpu))]
        rows.append([answer.way.name, number(answer.high), excess, width, *times])
        rows[-1].append(ratio(answer.seconds / ours.seconds))
    return rows


HEAD = ["", "upper end", "above our lower end", "bracket", "ms", "first ms", "calls", "x ours"]


def show(report: Report, section: str, question: Question, answers: list[Answer]) -> None:
    report.add(section, question, answers)
    print(f"\n{named(question)}")
    print(table(HEAD, rows_of(answers)))


class Sampled:
    """Section 1: epsilon of the Poisson-sampled Gaussian."""

    def __init__(self, pool: Pool, report: Report, ways: list[Way]) -> None:
        self.pool, self.report, self.ways = pool, report, ways
        self.lost: dict[Way, int] = {}
        """Ways that gave no answer, with their number of rounds; more rounds are not tried."""

    def run(self, settings: list[tuple[float, float, int]], precise: bool) -> None:
        ours = []
        for q, noise, rounds in settings:
            question = questions.poisson(q, noise, rounds)
            ways = [way for way in self.ways if self.lost.get(way, rounds + 1) > rounds]
            answers = self.pool.compare(question, [OURS, *ways])
            for answer in answers:
                if answer.failed:
                    self.lost[answer.way] = rounds
            if precise:
                answers += self._equal(question, answers[0], rounds)
            show(self.report, "sampled", question, answers)
            ours.append((q, noise, rounds, answers[0].seconds))
        self._exponent([(t, s) for q, noise, t, s in ours if (q, noise) == (0.01, 0.8)])

    def _equal(self, question: Question, ours: Answer, rounds: int) -> list[Answer]:
        """Run dp-accounting at the coarsest mesh that is as close as our tolerance."""
        assert ours.low is not None
        found = []
        for mesh in LADDER:
            way = Way("dp-accounting", "PLD", mesh, f"{mesh:g}, coarsest within 1e-3")
            tried = self.pool.compare(question, [way], calls=0)
            if not tried or not tried[0].answered:
                break
            if tried[0].high - ours.low <= TOLERANCE:
                found += self.pool.compare(question, [way])
                break
        if rounds <= 100:
            mesh = 2e-3 / rounds
            both = Way("dp-accounting", "PLD, both ends", mesh, f"{mesh:g}")
            found += self.pool.compare(question, [both], calls=0)
        return found

    def _exponent(self, times: list[tuple[int, float]]) -> None:
        if len(times) < 2:
            return
        rounds, seconds = [math.log(t) for t, _ in times], [math.log(s) for _, s in times]
        slope = statistics.linear_regression(rounds, seconds).slope
        self.report.data["exponent"] = slope
        print(f"\nour time grows like rounds^{slope:.2f} from {times[0][0]:g} to {times[-1][0]:g}")


def calibration(pool: Pool, report: Report, targets: list[Any], ways: list[Way]) -> None:
    """Section 2: the least noise that meets a budget, to 1e-3."""
    for epsilon, delta in targets:
        question = questions.calibration(epsilon, delta)
        answers = pool.compare(question, [OURS, *ways])
        report.add("calibration", question, answers)
        rows = []
        for answer in answers:
            if not answer.answered:
                rows.append([answer.way.name, answer.failed or "-"])
                continue
            check = questions.poisson(0.01, answer.high, 10_000, delta=delta)
            low, high = attained(pool, check)
            kept = "no: at least" if low > epsilon else "yes, at most"
            times = [milliseconds(answer.seconds), milliseconds(answer.first)]
            times.append(ratio(answer.seconds / answers[0].seconds))
            rows.append([answer.way.name, number(answer.high), f"{kept} {high:.5f}", *times])
        print(f"\n{named(question)}")
        head = ["", "noise multiplier", "within the budget", "ms", "first ms", "x ours"]
        print(table(head, rows))


def attained(pool: Pool, question: Question) -> tuple[float, float]:
    """Return (attained lower end, certified upper end) of a question, from our library."""
    [answer] = pool.compare(question | {"wanted": "attained"}, [OURS], calls=0)
    if answer.low is None or answer.high is None:
        return 0.0, math.inf
    return answer.low, answer.high


def others(pool: Pool, report: Report, quick: bool) -> None:
    """Section 3: plain Gaussian, different pairs, fixed-size cohorts, a loop, and single rows."""
    gaussian(pool, report, quick)
    pairs(pool, report, quick)
    cohorts(pool, report, quick)
    training(pool, report, quick)
    if not quick:
        for name in ROWS:
            single(name)(pool, report, quick)


def gaussian(pool: Pool, report: Report, quick: bool) -> None:
    """Measure a Gaussian without sampling."""
    question = questions.epsilon([questions.part(50.0, 10_000)])
    ways = QUICK if quick else DEFAULTS
    show(report, "gaussian", question, pool.compare(question, [OURS, *ways]))


def cohorts(pool: Pool, report: Report, quick: bool) -> None:
    """Measure cohorts of a fixed size under each adjacency."""
    del quick  # the part has few rows
    for adjacency in ("add_remove", "zero_out", "replace_one"):
        question = questions.cohorts(adjacency)
        ways = [OURS, RDP[0], RDP[2]] if adjacency == "replace_one" else [OURS]
        show(report, "cohorts", question, pool.compare(question, ways))


Part = Callable[[Pool, Report, bool], None]


def single(name: str) -> Part:
    """Return the part for a single row."""
    row = ROWS[name]

    def ask(pool: Pool, report: Report, quick: bool) -> None:
        del quick  # one row has no quick version
        answers = pool.compare(row.question, row.ways, limit=row.limit * pool.limit)
        show(report, "single", row.question, answers)

    return ask


def pairs(pool: Pool, report: Report, quick: bool) -> None:
    """Measure many different (noise, q) pairs; slow ways get more time."""
    question = questions.mixed(50 if quick else 1_000)
    ways = [Way("dp-accounting", "PLD", 1e-3), *RDP, Way("opacus", "GDP")]
    if quick:
        ways = [way for way in ways if way in QUICK]
    answers = pool.compare(question, [OURS, *ways], seconds=8.0, limit=4 * pool.limit)
    if not quick:
        answers += pool.compare(question, [DEFAULTS[0], *DEFAULTS[4:6]], calls=0)
    show(report, "mixed", question, answers)


def training(pool: Pool, report: Report, quick: bool) -> None:
    """Measure a loop that checks its budget before every round."""
    del quick  # the part takes seconds
    rows = []
    asked = [
        (OURS, 1_000),
        (Way("fedprivacy", "pld", 1.0, "adaptive"), 500),
        (Way("dp-accounting", "RDP"), 20),
        (Way("opacus", "RDP"), 20),
    ]
    for way, count in asked:
        for answer in pool.compare(questions.rounds(10.0, count), [way], calls=2):
            done = int(answer.high or 1)
            rows.append([way.name, f"{done} rounds", f"{1e3 * answer.seconds / done:.3f}"])
            said = {"way": way.name, "rounds": done, "seconds_each": answer.seconds / done}
            report.data.setdefault("training", []).append(said)
    print("\nDoes one more round fit? Asked before each round, and told.")
    print(table(["", "", "ms a round"], rows))


def memory(pool: Pool, report: Report, settings: list[tuple[float, float, int]]) -> None:
    """Measure the memory of our calls beyond the memory of the import, in a fresh process each."""
    asked = [questions.poisson(*setting) for setting in settings]
    asked += [questions.calibration(8.0, 1e-6), questions.mixed(), questions.cohorts("zero_out")]
    rows = []
    for question in asked:
        resident, traced = pool.memory(question, OURS)
        said = {"question": named(question), "resident_mb": resident, "traced_mb": traced}
        report.data.setdefault("memory", []).append(said)
        rows.append([named(question), f"{resident:.1f}", f"{traced:.1f}"])
    print("\nOur memory in MB: resident beyond import; the most that arrays and objects took")
    print(table(["", "resident", "traced"], rows))
    peaks = sorted(pool.peaks.items(), key=lambda item: item[1])
    report.data["peaks"] = dict(peaks)
    print("\nLargest resident memory beyond import over everything above, in MB")
    print(table(["", "MB"], [[name, f"{grown:.0f}"] for name, grown in peaks]))


def first_calls(pool: Pool, report: Report) -> None:
    """Measure the wall-clock time of the import and the very first call, in a fresh process."""
    rows = []
    for way in [OURS, DEFAULTS[0], DEFAULTS[1], DEFAULTS[2], DEFAULTS[5]]:
        if pool.has(way.library):
            found = pool.cold(questions.poisson(0.01, 0.8, 1_000), way)
            if found:
                rows.append([way.name, *map(milliseconds, found)])
                said = {"way": way.name, "import": found[0], "first": found[1]}
                report.data.setdefault("cold", []).append(said)
    print("\nA fresh process, 1,000 rounds of (0.01, 0.8)")
    print(table(["", "import ms", "first call ms"], rows))


def failures(pool: Pool, report: Report, quick: bool) -> None:
    """Section 4: every answer below a lower end that two named data sets attain."""
    near_misses(pool, quick)
    found = below(pool, lambda question: attained(pool, question))
    report.data["below"] = found
    head = ["", "question", "answer", "attained: at least", "short by"]
    rows = []
    for case in found:
        ends = number(case["said"]), number(case["attained"])
        rows.append([case["way"], case["question"], *ends, f"{case['short']:.2g}"])
    print(table(head, rows))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="dp-accounting and Opacus, a minute")
    parser.add_argument("--smoke", action="store_true", help="one setting, dp-accounting only")
    parser.add_argument("--only", choices=PARTS, nargs="+", metavar="NAME", help=", ".join(PARTS))
    parser.add_argument("--json", type=Path, help="write the numbers there too")
    parser.add_argument("--renew", type=Path, help="with --only: put the rows into this file")
    parser.add_argument("--limit", type=float, default=45.0, help="seconds allowed a call")
    asked = parser.parse_args()
    if asked.renew and not asked.only:
        parser.error("--renew is for the rows of --only; a whole run is kept by --json")
    return asked


def header(pool: Pool, report: Report) -> None:
    versions = {name: found or "absent" for name, found in pool.versions.items()}
    versions["python"] = platform.python_version()
    for library in ("numpy", "scipy"):
        versions[library] = __import__(library).__version__
    report.data["versions"] = versions
    print(", ".join(f"{name} {found}" for name, found in versions.items()))
    print("processor time in milliseconds, one thread, medians; delta 1e-5 where none is named")


def sampled(setting: tuple[float, float, int]) -> Part:
    """Return the part for one sampled Gaussian."""

    def ask(pool: Pool, report: Report, quick: bool) -> None:
        Sampled(pool, report, QUICK if quick else DEFAULTS + PRECISE).run([setting], not quick)

    return ask


def calibrated(target: tuple[float, float]) -> Part:
    """Return the part for the noise of one budget."""

    def ask(pool: Pool, report: Report, quick: bool) -> None:
        ways = CALIBRATED[1:3] if quick else CALIBRATED
        calibration(pool, report, [target], ways)

    return ask


CALIBRATED = [
    Way("dp-accounting", "PLD", 1e-3),
    *RDP,
    Way("opacus", "PRV"),
    DEFAULTS[0],
    Way("riskcal", "PLD"),
    Way("prv-accountant", "PRV", 0.01),
]
PARTS: dict[str, Part] = {
    "pairs": pairs,
    "gaussian": gaussian,
    "cohorts": cohorts,
    "training": training,
    "failures": failures,
    **{f"sampled-{setting[2]}": sampled(setting) for setting in questions.SETTINGS[:6]},
    "sampled-strict": sampled(questions.SETTINGS[6]),
    **{f"calibration-{target[0]:g}": calibrated(target) for target in questions.TARGETS},
    **{name: single(name) for name in ROWS},
}
"""Choices of --only."""


def full(pool: Pool, report: Report, quick: bool) -> None:
    settings = questions.SETTINGS[0:5:2] if quick else questions.SETTINGS
    print("\n1. Epsilon of the sampled Gaussian")
    Sampled(pool, report, QUICK if quick else DEFAULTS + PRECISE).run(settings, not quick)
    print("\n2. Calibration")
    for target in questions.TARGETS[:1] if quick else questions.TARGETS:
        calibrated(target)(pool, report, quick)
    print("\n3. Other questions")
    others(pool, report, quick)
    if not quick:
        memory(pool, report, questions.SETTINGS)
        first_calls(pool, report)
    print("\n4. Answers below an end that is attained")
    failures(pool, report, quick)


def renewed(kept: dict[str, Any], fresh: dict[str, Any]) -> dict[str, Any]:
    """Return the numbers of an earlier run, with rows replaced by those of a later run.

    Rows are matched by their question (or way). Results about the whole run, such as the answers
    that are too small, stay unchanged.

    Raises:
        SystemExit: the versions of two libraries differ, so their times cannot be compared.
    """
    if kept["versions"] != fresh["versions"]:
        raise SystemExit(f"renew all, of one run: {kept['versions']} and {fresh['versions']}")
    together = dict(kept)
    for section, rows in fresh.items():
        if isinstance(rows, list) and section != "below":
            known = {_key(row): row for row in kept.get(section, [])}
            together[section] = list((known | {_key(row): row for row in rows}).values())
    return together


def _key(row: dict[str, Any]) -> str:
    return str(row["question"] if "question" in row else row["way"])


def main() -> None:
    asked, report = arguments(), Report()
    libraries = ALL[:2] if asked.smoke else ALL
    if asked.quick:
        libraries = ["fedprivacy", "dp-accounting", "opacus"]
    with Pool(10.0 if asked.quick else asked.limit, libraries) as pool:
        header(pool, report)
        if asked.smoke:
            Sampled(pool, report, RDP[:1]).run(questions.SETTINGS[:1], False)
        elif asked.only:
            for name in asked.only:
                PARTS[name](pool, report, asked.quick)
        else:
            full(pool, report, asked.quick)
    if asked.renew:
        report.data = renewed(json.loads(asked.renew.read_text(encoding="utf-8")), report.data)
    for file in (asked.json, asked.renew):
        if file:
            file.write_text(json.dumps(report.data, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
