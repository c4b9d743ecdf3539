"""Adapters that misbehave, for the tests of the runner."""

import textwrap

GAUSSIAN = """
    ANSWERS = "upper"

    def epsilon(case):
        event = case["event"]
        if event is None or event["type"] != "GaussianDpEvent":
            raise NotImplementedError("only one Gaussian sum")
        return {body}
"""


def adapter(folder, text):
    """Return the path of a new adapter."""
    path = folder / "mine.py"
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return str(path)


def answering(folder, body):
    """Return the path of an adapter that answers one Gaussian sum with an expression."""
    return adapter(folder, GAUSSIAN.format(body=body))
