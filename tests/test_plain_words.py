"""Prose and messages stay plain: budgets of marks for every room, which only go down."""

import pytest

from tests.plain_words import (
    marked,
    measured,
    messages,
    messages_of_code,
    prose_of_code,
    prose_of_page,
    sentence_lengths,
)

PLAIN = 1.5
"""Marks per 1,000 words that ordinary prose has."""

BUDGET: dict[str, float] = {}
"""Marks per 1,000 words of rooms that are not yet plain; lower a number when a room gets better."""

MARKED = {
    "fedprivacy/audit": 10,
    "fedprivacy/integrations": 3,
    "fedprivacy/loss": 6,
    "fedprivacy/sampling": 2,
}
"""Messages with a mark, in rooms that still have some; lower a number when a room gets better."""

MEAN, NEARLY_ALL = 16, 32
"""Words of a sentence of a message: the mean of a room, and the limit for 95 % of them."""


def test_every_room_keeps_its_budget():
    over = {
        room: round(1000.0 * marks / words, 2)
        for room, (marks, words) in measured().items()
        if marks > 1 and 1000.0 * marks / words > BUDGET.get(room, PLAIN)
    }
    assert not over, f"reword these rooms (python tests/plain_words.py shows all): {over}"


def test_messages_of_every_room_keep_their_budget():
    found = {room: marked(texts) for room, texts in messages().items()}
    over = {room: texts for room, texts in found.items() if len(texts) > MARKED.get(room, 0)}
    assert not over, f"reword these messages: {over}"


@pytest.mark.parametrize("room", sorted(messages()))
def test_sentences_of_messages_are_short(room):
    lengths = sentence_lengths(messages()[room])
    assert sum(lengths) <= MEAN * len(lengths)
    assert lengths[int(0.95 * (len(lengths) - 1))] <= NEARLY_ALL


def test_code_is_no_prose():
    page = "Text `such a`\n\n```python\nsuch a\n```\n\n| such a |\n"
    assert "such a" not in prose_of_page(page)
    code = 'def f():\n    """Return ``such a``."""\n    return "told"  # why\n'
    assert prose_of_code(code).split() == ["Return", "X.", "why"]


def test_messages_are_the_strings_that_are_not_docstrings():
    code = (
        'def f(told):\n    """Return it as told."""\n    raise E(f"be {told} of two, " "as told")\n'
    )
    assert messages_of_code(code) == ["be X of two, as told"]
    assert marked(["be X of two, as told", "be one of two"]) == ["be X of two, as told"]
    assert sentence_lengths(["one two three; four five six seven", "a short"]) == [3, 4]
