"""Server-sent events, as in the standard of HTML: `id:` and `data:` lines, a blank line after each event."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple


class SentEvent(NamedTuple):
    id: str
    data: str  # "": nothing happened; the position after which a new connection is to go on has moved


def sent_events(lines: Iterable[str]) -> Iterator[SentEvent]:
    """The events of a stream; comments, by which a service keeps a connection open, are left out."""
    last_id, told_id, data = "", "", list[str]()
    for line in lines:
        if not line:
            if data or last_id != told_id:
                yield SentEvent(last_id, "\n".join(data))
            told_id, data = last_id, []
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            data.append(value)
        elif name == "id":
            last_id = value
