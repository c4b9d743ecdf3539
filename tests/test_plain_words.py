"""Prose and messages stay plain: few marks, and short sentences, in every room."""

import ast

import pytest

from tests.plain_words import (
    marked,
    measured,
    messages,
    messages_of_code,
    prose,
    prose_of_code,
    prose_of_page,
    sentence_lengths,
)

PLAIN = 1.0
"""Marks per 1,000 words that a room may have."""

BUDGET = {"examples": 1.5}
"""Rooms that may have more; lower a number when a room gets better."""

MEAN, NEARLY_ALL = 16, 32
"""Words of a sentence: the mean of a room, and the limit for 95 % of them."""


def test_every_room_keeps_its_budget():
    over = {
        room: round(1000.0 * marks / words, 2)
        for room, (marks, words) in measured().items()
        if marks > 1 and 1000.0 * marks / words > BUDGET.get(room, PLAIN)
    }
    assert not over, f"reword these rooms (python tests/plain_words.py shows all): {over}"


def test_no_message_has_a_mark():
    over = {room: found for room, texts in messages().items() if (found := marked(texts))}
    assert not over, f"reword these messages: {over}"


@pytest.mark.parametrize("kind", [messages, prose], ids=["messages", "prose"])
def test_sentences_of_every_room_are_short(kind):
    for room, texts in kind().items():
        lengths = sentence_lengths(texts)
        assert sum(lengths) <= MEAN * len(lengths), room
        assert lengths[int(0.95 * (len(lengths) - 1))] <= NEARLY_ALL, room


def test_code_is_no_prose():
    page = "Text `such a`\n\n```python\nsuch a\n```\n\n| such a |\n"
    assert "such a" not in prose_of_page(page)
    code = 'def f():\n    """Return ``such a``."""\n    return "told"  # why\n'
    assert prose_of_code(code).split() == ["Return", "X.", "why"]


def test_messages_are_the_strings_that_are_not_docstrings():
    code = (
        'def f(told):\n    """Return it as told."""\n    raise E(f"be {told} of two, " "as told")\n'
    )
    assert messages_of_code(ast.parse(code)) == ["be X of two, as told"]
    assert marked(["be X of two, as told", "be one of two"]) == ["be X of two, as told"]
    assert sentence_lengths(["one two three; four five six seven", "a short"]) == [3, 4]
