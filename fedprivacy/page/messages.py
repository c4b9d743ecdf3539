"""The messages that change the page: each is one line of JSON.

A message has some of these keys:

- ``put`` and ``html``: the new content of the element with this id.
- ``say``: a sentence for screen readers.
- ``problems``: a sentence for each wrong field; all other marks are removed.
- ``asked``: the fields that a record leaves open.
- ``save``: a file to download: its name, media type and text.
- ``done``: the last message.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .rendering import html

Message = dict[str, Any]


def put(place: str, template: str, **values: Any) -> Message:
    """Return the message that fills a place with a template of ``parts.html``."""
    return {"put": place, "html": html(template, **values)}


def failed(sentence: str) -> Iterator[Message]:
    """Yield the messages of a request that has no answer."""
    yield {"failed": sentence, "say": sentence, "done": True}
