"""Prose stays plain: a budget of marks for every room, which only goes down."""

from tests.plain_words import measured, prose_of_code, prose_of_page

PLAIN = 1.5
"""Marks per 1,000 words that ordinary prose has."""

BUDGET: dict[str, float] = {}
"""Marks per 1,000 words of rooms that are not yet plain; lower a number when a room gets better."""


def test_every_room_keeps_its_budget():
    over = {
        room: round(1000.0 * marks / words, 2)
        for room, (marks, words) in measured().items()
        if marks > 1 and 1000.0 * marks / words > BUDGET.get(room, PLAIN)
    }
    assert not over, f"reword these rooms (python tests/plain_words.py shows all): {over}"


def test_code_is_no_prose():
    page = "Text `such a`\n\n```python\nsuch a\n```\n\n| such a |\n"
    assert "such a" not in prose_of_page(page)
    code = 'def f():\n    """Return ``such a``."""\n    return "told"  # why\n'
    assert prose_of_code(code).split() == ["Return", "X.", "why"]
