"""Server-sent events, as in the standard of HTML: `id:` and `data:` lines, a blank line after each event."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple


class SentEvent(NamedTuple):
    id: str
    data: str


def sent_events(lines: Iterable[str]) -> Iterator[SentEvent]:
    """The events of a stream; comments, by which a service keeps a connection open, are left out."""
    last_id, data = "", list[str]()
    for line in lines:
        if not line:
            if data:
                yield SentEvent(last_id, "\n".join(data))
            data = []
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            data.append(value)
        elif name == "id":
            last_id = value
