"""The process that answers a `whatif`: `python -m horae.service.whatif`, the question on standard input.

It reads the log from the store and the archive, with the lowest priority, and ends by itself at its time budget. Its
answer says what is wrong with the question.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, select

from horae.forks.recording import read_recording
from horae.forks.request import change_of
from horae.forks.whatif import whatif
from horae.forks.whatif_summary import summarise
from horae.model.errors import BrokenInvariant, InputError
from horae.model.serialization import Plain
from horae.service.api.database import LogClock, clock
from horae.service.child import end_with_parent
from horae.service.log_export import log_since
from horae.service.store.database import open_database, reading
from horae.service.store.schema import events

NICE = 19
DAY_SECONDS = 86_400.0
EARLY_SECONDS = 1.0  # a moment so close to the beginning of the log means it: its Unix time is not exact
LATE_SECONDS = 60.0  # after its time budget, the process is ended by its own alarm


def answer(engine: Engine, archive: Path, request: Mapping[str, Any], seconds: float, tenant: str | None) -> Plain:
    """`tenant`: the one whose jobs are shown; None: all."""
    ends_at = time.monotonic() + seconds
    change = change_of(request)
    with reading(engine) as connection:
        times = clock(connection)
        last = connection.scalar(select(events.c.at).order_by(events.c.seq.desc()).limit(1))
    if last is None:
        raise InputError("nothing has happened yet", field="since", remedy="ask again when jobs have run")
    since = _since(request.get("since"), times, float(last))
    part = log_since(engine, archive, since)
    recording = read_recording(part.scheduler, part.entries, since, "events")
    outcomes = whatif(recording, change, lambda: time.monotonic() >= ends_at)
    return summarise(outcomes, only=tenant, origin=times.unix(recording.since) - recording.since, is_dated=True)


def _since(unix: float | None, times: LogClock, last: float) -> float | None:
    """A time of the log; None: from its beginning."""
    if unix is None:
        return last - DAY_SECONDS if last > DAY_SECONDS else None
    since = times.log(unix)
    if since < -EARLY_SECONDS:
        raise InputError("is before the first event", field="since", remedy="name a later moment, or none")
    return since if since > EARLY_SECONDS else None


def main() -> None:
    end_with_parent()
    question = json.load(sys.stdin)
    os.nice(NICE)
    signal.alarm(int(question["seconds"] + LATE_SECONDS))
    try:
        found = answer(
            open_database(question["store"]), Path(question["archive"]), question["request"], question["seconds"],
            question["tenant"],
        )  # fmt: skip
        json.dump({"answer": found}, sys.stdout)
    except InputError as error:
        json.dump({"problem": error.problem, "field": error.field, "remedy": error.remedy}, sys.stdout)
    except BrokenInvariant as error:
        json.dump({"problem": f"the log cannot be continued under this change: {error}"}, sys.stdout)


if __name__ == "__main__":
    main()
