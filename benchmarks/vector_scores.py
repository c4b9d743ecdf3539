"""Asks accountants of other libraries the test vectors, and writes the page of their scores.

    python benchmarks/vector_scores.py run --environments PREFIX [--adapter NAME ...]
    python benchmarks/vector_scores.py prove
    python benchmarks/vector_scores.py page

An environment is a folder PREFIX + name with the libraries of `ENVIRONMENTS`; they cannot all be in
one. `run` keeps the results in `results/vectors.json`, `prove` refutes wrong answers without the
package, and `page` writes `results/vectors.md`.
"""

import argparse
import json
import math
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from vector_causes import cause_of, told
from vector_proofs import proof

from fedprivacy.vectors import Adapter, Result, VectorOutcome, cases

HERE = Path(__file__).parent
KEPT, PAGE = HERE / "results" / "vectors.json", HERE / "results" / "vectors.md"
ENVIRONMENTS = {
    "dp_accounting_pld": "acc",
    "dp_accounting_rdp": "acc",
    "opacus_rdp": "opacus",
    "opacus_prv": "opacus",
    "opacus_gdp": "opacus",
    "prv": "acc",
    "autodp_rdp": "acc",
    "riskcal_ctd": "acc",
    "gdpnum_ctd": "acc",
    "gdpnum_mu": "acc",
    "pld_accounting": "pldacc",
    "jax_privacy_training": "jax",
    "jax_privacy_events": "jax",
    "tensorflow_privacy": "tf",
    "pfl_pld": "pfl",
    "pfl_prv": "pfl",
    "pfl_rdp": "pfl",
    "flower_rdp": "flower",
    "diffprivlib_budget": "diffprivlib",
    "opendp_measures": "opendp",
}
"""Adapter -> environment."""
GAUSSIAN = ("plain-gaussian", "poisson-gaussian")
ASKED = {
    "jax_privacy_training": ("fixed-size", "user-level"),
    "jax_privacy_events": ("fixed-size",),
    "gdpnum_ctd": ("attack-risk",),
    "gdpnum_mu": (*GAUSSIAN, "extreme-delta", "attack-risk"),
    "pfl_pld": ("plain-laplace",),
    "pfl_prv": ("plain-laplace", "poisson-gaussian", "extreme-delta"),
    "pfl_rdp": ("plain-laplace", "poisson-laplace", "calibration"),
    "prv": (*GAUSSIAN, "plain-laplace", "extreme-delta"),
    "riskcal_ctd": (*GAUSSIAN, "extreme-delta", "attack-risk"),
}
"""Adapter -> families, for slow accountants and those that pass all else on to dp-accounting."""
BAD = (VectorOutcome.WRONG, VectorOutcome.CRASHED, VectorOutcome.SLOW)
FAMILIES = list(dict.fromkeys(case.family for case in cases()))


def summary(about: dict[str, Any], results: list[Result]) -> dict[str, Any]:
    """Return what is kept of the results of one adapter."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    loosest: dict[str, float] = defaultdict(float)
    for each in results:
        counts[each.case.family][each.outcome] += 1
        if each.outcome is VectorOutcome.LOOSE:
            loosest[each.case.family] = max(loosest[each.case.family], each.factor or 0.0)
    return {
        "about": {name: about[name] for name in ("name", "version", "answers")},
        "families": {family: dict(found) for family, found in counts.items()},
        "loosest": {k: "inf" if math.isinf(v) else float(f"{v:.3g}") for k, v in loosest.items()},
        "bad": [each.to_dict() for each in results if each.outcome in BAD],
    }


def ask(name: str, python: str, seconds: float, families: list[str]) -> dict[str, Any]:
    with Adapter(str(HERE / "adapters" / f"{name}.py"), python=python, seconds=seconds) as adapter:
        results = [adapter.ask(case) for case in cases(families or ASKED.get(name, ()))]
        return summary(adapter.described, results)


def run(names: list[str], prefix: str, seconds: float, families: list[str]) -> None:
    for name in names or list(ENVIRONMENTS):
        python = f"{prefix}{ENVIRONMENTS[name]}/bin/python"
        if not Path(python).exists():
            print(f"{name}: no {python}, skipped")
            continue
        found = ask(name, python, seconds, families)
        kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
        kept[name] = merged(kept[name], found) if families and name in kept else found
        KEPT.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
        print(name, sum(map(Counter, found["families"].values()), Counter()), flush=True)


def merged(before: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """Return all results of an adapter after some families were asked again.

    Raises:
        SystemExit: the results are those of different versions.
    """
    if before["about"] != found["about"]:
        raise SystemExit(f"{before['about']} and {found['about']}: ask all families again")
    again = {case.id for case in cases() if case.family in found["families"]}
    known = {name: before[name] for name in before}
    for name in ("families", "loosest"):
        rest = {k: v for k, v in before[name].items() if k not in found["families"]}
        known[name] = {k: both[k] for both in [rest | found[name]] for k in FAMILIES if k in both}
    kept = [each for each in before["bad"] if each["id"] not in again]
    places = {case.id: at for at, case in enumerate(cases())}
    known["bad"] = sorted(kept + found["bad"], key=lambda each: places[each["id"]])
    return known


def number(value: Any) -> str:
    return value if isinstance(value, str) else f"{value:.6g}"


def row(*cells: object) -> str:
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def totals(kept: dict[str, Any]) -> list[str]:
    lines = [row("accountant", "version", "asked", *VectorOutcome)]
    lines += [row(*["---"] * (3 + len(VectorOutcome)))]
    for found in kept.values():
        counts = sum(map(Counter, found["families"].values()), Counter())
        about = found["about"]
        kind = " (estimates)" if about["answers"] == "estimate" else ""
        cells = (counts[each] for each in VectorOutcome)
        lines.append(row(about["name"] + kind, about["version"], counts.total(), *cells))
    return lines


def by_family(kept: dict[str, Any]) -> list[str]:
    """Return answered questions by family: contained of answered, with what else there was."""
    lines = [row("family", "cases", "answers"), row("---", "---", "---")]
    sizes = Counter(case.family for case in cases())
    for family in FAMILIES:
        cells = [
            cell
            for found in kept.values()
            if (cell := scored(found["about"]["name"], found, family))
        ]
        lines.append(row(family, sizes[family], "; ".join(cells) or "no accountant"))
    return lines


def scored(name: str, found: dict[str, Any], family: str) -> str:
    counts = found["families"].get(family, {})
    answered = sum(counts.values()) - counts.get(VectorOutcome.REFUSED, 0)
    if not answered:
        return ""
    more = [f"{counts[each]} {each}" for each in BAD if counts.get(each)]
    if counts.get(VectorOutcome.LOOSE):
        worst = found["loosest"][family]
        factor = "infinite" if worst == "inf" else f"up to {worst:.3g} times"
        more.append(f"{counts[VectorOutcome.LOOSE]} loose, {factor}")
    inside = f" ({', '.join(more)})" if more else ""
    return f"{name} {counts.get(VectorOutcome.CONTAINED, 0)} of {answered}{inside}"


def wrong_answers(kept: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return (adapter, result) of every wrong answer."""
    found = [(name, each) for name, about in kept.items() for each in about["bad"]]
    return [(name, each) for name, each in found if each["outcome"] == VectorOutcome.WRONG]


def prove() -> None:
    """Refute every wrong answer without the package, and keep the refutation."""
    known, found = {case.id: case for case in cases()}, {}
    for name, each in wrong_answers(json.loads(KEPT.read_text(encoding="utf-8"))):
        if not each.get("proof") and "high" in each:
            refuted = proof(known[each["id"]], float(each["high"]))
            found[name, each["id"], each["high"]] = refuted
            print(name, each["id"], refuted or "not refuted", flush=True)
    # Read again: a run may have added results meanwhile.
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    for name, each in wrong_answers(kept):
        if (name, each["id"], each.get("high")) in found:
            each["proof"] = found[name, each["id"], each["high"]]
    KEPT.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def by_cause(kept: dict[str, Any]) -> dict[str, list[tuple[str, dict[str, Any]]]]:
    """Return the wrong answers by their cause."""
    known = {case.id: case for case in cases()}
    groups: dict[str, list[tuple[str, dict[str, Any]]]] = defaultdict(list)
    for name, each in wrong_answers(kept):
        groups[cause_of(name, known[each["id"]])].append((name, each))
    return groups


def causes(kept: dict[str, Any]) -> list[str]:
    """Return for each cause the accountants and the number of their wrong answers."""
    lines = [row("cause", "wrong answers"), row("---", "---")]
    for cause, found in by_cause(kept).items():
        counts = Counter(kept[name]["about"]["name"] for name, _ in found)
        lines.append(row(cause, ", ".join(f"{name} {n}" for name, n in counts.items())))
    return lines


def wrong(kept: dict[str, Any]) -> list[str]:
    """Return the wrong answers by their cause, each with a script."""
    known, lines = {case.id: case for case in cases()}, []
    for cause, found in by_cause(kept).items():
        lines += ["", f"**{cause}.** {told(cause)}", ""]
        lines += [row("accountant", "case", "question", "answer", "certified", "refuted by")]
        lines += [row(*["---"] * 6)]
        for name, each in found:
            asked, about = known[each["id"]].question, kept[name]["about"]
            answer = each.get("high", each.get("low"))
            ends = f"{number(asked['lower'])} to {number(asked['upper'])}"
            cells = (each["id"], asked["words"], number(answer), ends, each.get("proof", ""))
            lines.append(row(about["name"], *cells))
    return lines


def page() -> None:
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    kept = {name: kept[name] for name in ENVIRONMENTS if name in kept}
    lines = [
        "<!-- totals: written by a script -->",
        *totals(kept),
        "<!-- end of totals -->",
        "",
        "<!-- families: written by a script -->",
        *by_family(kept),
        "<!-- end of families -->",
        "",
        "<!-- causes: written by a script -->",
        *causes(kept),
        "<!-- end of causes -->",
        "",
        "<!-- wrong: written by a script -->",
        *wrong(kept),
        "<!-- end of wrong -->",
    ]
    PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["run", "prove", "page"])
    parser.add_argument("--environments", default="env-vectors-")
    parser.add_argument("--adapter", action="append", default=[], choices=list(ENVIRONMENTS))
    parser.add_argument("--family", action="append", default=[])
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    if options.what == "run":
        run(options.adapter, options.environments, options.seconds, options.family)
    if options.what == "prove":
        prove()
    page()
    return 0


if __name__ == "__main__":
    sys.exit(main())
