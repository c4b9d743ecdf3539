"""What the first questions of README visit; readers follow these calls, so their number is held."""

import sys

import pytest

from tests.arrows import ARROWS
from tests.common import ROOT


@pytest.fixture(scope="module")
def walk():
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        import walk
    finally:
        sys.path.pop(0)
    return walk


def above(part):
    """Return the parts that import a part, through others too."""
    found, new = set(), {part}
    while new:
        new = {one for one, needs in ARROWS.items() if needs & new} - found
        found |= new
    return found


@pytest.mark.parametrize(
    "question, most_calls, most_functions, most_files, most_upward",
    [("epsilon", 1900, 345, 46, 4), ("gaussian", 540, 160, 33, 0)],
)
def test_a_question_visits_no_more_than_it_did(
    walk, question, most_calls, most_functions, most_files, most_upward
):
    made = walk.calls(walk.QUESTIONS[question])
    code = {called for _, called in made}
    assert len(made) <= most_calls
    assert sum(not each.co_name.startswith("<") for each in code) <= most_functions
    assert len({each.co_filename for each in code}) <= most_files
    steps = [(walk.part_of(one), walk.part_of(two)) for one, two in made if one is not None]
    assert sum(two in above(one) for one, two in steps) <= most_upward
