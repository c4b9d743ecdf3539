"""The runner: wrong, hanging, greedy, crashing and refusing adapters."""

import json

import pytest

import fedprivacy as fp
from fedprivacy.vectors import Adapter, VectorOutcome, cases, run
from tests.common import ROOT
from tests.vectors.adapters import adapter, answering

GAUSSIANS = [case for case in cases(["plain-gaussian"]) if case.ask == "epsilon"]
ONE = next(case for case in GAUSSIANS if case.question["event"]["type"] == "GaussianDpEvent")
OTHER = next(case for case in GAUSSIANS if case.question["event"]["type"] != "GaussianDpEvent")


def outcomes(path, asked=(ONE,), **limits):
    return [result.outcome for result in run(path, asked, **limits)]


def test_a_right_answer_and_a_refusal(tmp_path):
    found = list(run(answering(tmp_path, repr(ONE.upper)), [ONE, OTHER]))
    assert [each.outcome for each in found] == [VectorOutcome.CONTAINED, VectorOutcome.REFUSED]
    assert found[1].detail == "NotImplementedError: only one Gaussian sum"


def test_a_question_without_a_function_is_refused(tmp_path):
    asked = [cases(["attack-risk"])[0]]
    assert outcomes(answering(tmp_path, "1.0"), asked) == [VectorOutcome.REFUSED]


def test_a_wrong_answer_is_found(tmp_path):
    [found] = run(answering(tmp_path, repr(0.99 * ONE.lower)), [ONE])
    assert found.outcome is VectorOutcome.WRONG and found.factor == pytest.approx(0.99)
    assert "which two data sets attain" in found.detail


def test_a_loose_answer_is_counted(tmp_path):
    assert outcomes(answering(tmp_path, repr(2.0 * ONE.upper))) == [VectorOutcome.LOOSE]


def test_the_ends_are_hidden_from_the_adapter(tmp_path):
    assert outcomes(answering(tmp_path, "case['upper']")) == [VectorOutcome.CRASHED]


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("float('nan')", "the answer is NaN"),
        ("'two'", "ValueError: could not convert string to float"),
        ("__import__('os')._exit(3)", "its process died"),
    ],
)
def test_crashes_are_counted_and_the_next_case_is_asked(tmp_path, body, detail):
    found = list(run(answering(tmp_path, body), [ONE, ONE, OTHER]))
    assert [each.outcome for each in found] == [
        VectorOutcome.CRASHED,
        VectorOutcome.CRASHED,
        VectorOutcome.REFUSED,
    ]
    assert found[0].detail.startswith(detail)


def test_a_hanging_adapter_is_stopped(tmp_path):
    path = answering(tmp_path, "__import__('time').sleep(600)")
    expected = [VectorOutcome.SLOW, VectorOutcome.REFUSED]
    assert outcomes(path, [ONE, OTHER], seconds=0.1) == expected


def test_an_adapter_that_computes_for_ever_is_stopped(tmp_path):
    [found] = run(answering(tmp_path, "sum(iter(int, 1))"), [ONE], seconds=0.2)
    assert found.outcome is VectorOutcome.SLOW and found.detail == "no answer in 0.2 s"


def test_a_memory_hog_is_stopped(tmp_path):
    path = answering(tmp_path, "len(bytearray(4 << 30))")
    found = list(run(path, [ONE, OTHER], megabytes=1024))
    assert [each.outcome for each in found] == [VectorOutcome.CRASHED, VectorOutcome.REFUSED]
    assert found[0].detail == "MemoryError"


def test_what_an_adapter_prints_does_not_matter(tmp_path):
    path = answering(tmp_path, f"print('hello') or {ONE.upper!r}")
    assert outcomes(path) == [VectorOutcome.CONTAINED]


def test_bounds_are_judged_on_both_sides(tmp_path):
    def text(ends):
        return f"ANSWERS = 'bounds'\ndef epsilon(case):\n    return {ends}\n"

    good = adapter(tmp_path, text((ONE.lower, ONE.upper)))
    assert outcomes(good) == [VectorOutcome.CONTAINED]
    bad = adapter(tmp_path, text((1.1 * ONE.upper, 1.2 * ONE.upper)))
    assert outcomes(bad) == [VectorOutcome.WRONG]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("def epsilon(case): return 1", "ANSWERS must be one of upper, lower"),
        ("ANSWERS = 'upper'", "must have a function of one of these names"),
        ("ANSWERS = 'upper'\nimport nowhere", "ModuleNotFoundError: No module named 'nowhere'"),
        ("def (", "SyntaxError"),
        ("raise SystemExit(0)", "cannot be imported: SystemExit"),
    ],
)
def test_a_bad_adapter_is_refused_with_the_reason(tmp_path, text, told):
    with pytest.raises(fp.ParameterError, match=r"docs/vectors\.md") as problem:
        Adapter(adapter(tmp_path, text))
    assert told in str(problem.value)


def test_a_missing_adapter_is_refused():
    with pytest.raises(fp.ParameterError, match="be an existing file"):
        Adapter("nowhere.py")


def test_results_are_plain_json(tmp_path):
    [found] = run(answering(tmp_path, "float('inf')"), [ONE])
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["high"] == "inf"


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_the_adapter_of_the_page_is_complete(tmp_path):
    """It answers the plain Gaussian sums, and refuses what has no event."""
    page = (ROOT / "docs" / "vectors.md").read_text(encoding="utf-8")
    path = adapter(tmp_path, page.partition("```python\n")[2].partition("```")[0])
    shuffled = cases(["shuffled"])[0]
    assert outcomes(path, [ONE, GAUSSIANS[1], shuffled]) == [
        VectorOutcome.CONTAINED,
        VectorOutcome.CONTAINED,
        VectorOutcome.REFUSED,
    ]
