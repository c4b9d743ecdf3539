"""Tests of ``fedprivacy.page.drawing``."""

import re

import pytest

from fedprivacy.page.drawing import Scale, line, points


@pytest.mark.parametrize("high", [1e-300, 1e-9, 0.3, 1.0, 7.0, 1e6, 1e300])
def test_marks_are_few_and_inside(high):
    marks = Scale(0.0, high, 0.0, 100.0).marks()
    assert 2 <= len(marks) <= 6 and marks[0] == 0.0 and max(marks) <= high * (1 + 1e-9)


def test_a_curve_rises_where_its_numbers_rise():
    text = line([1.0, 2.0, 4.0], [0.1, 0.2, 0.3], across="rounds", up="epsilon")
    places = re.search(r'points="([^"]+)"', text)[1].split()
    x, y = zip(*(map(float, each.split(",")) for each in places), strict=True)
    assert list(x) == sorted(x) and list(y) == sorted(y, reverse=True)


@pytest.mark.parametrize("y", [[0.0], [5.0, 5.0], [1e-300, 1e300]])
def test_equal_and_distant_numbers_have_places(y):
    text = points([1.0] * len(y), y, [True] * len(y), across="<a>", up="b")
    assert "nan" not in text and "inf" not in text and "<a>" not in text
    assert text.count("<circle") == len(y)
