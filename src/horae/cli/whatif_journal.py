"""`horae whatif --journal`: the answer from a file, without a service."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from horae.experiments.log_time import LogTime
from horae.forks.recording import BeforeTheLog, read_recording
from horae.forks.request import change_of
from horae.forks.whatif import whatif
from horae.forks.whatif_summary import summarise
from horae.journal import JournalEntry, read_journal
from horae.model.errors import BrokenInvariant, InputError
from horae.model.serialization import Plain
from horae.scheduler import Scheduler
from horae.traces.units import iso_date

STORE = "store.db"
_COPY = "put a whole copy in its place"


def answer(path: Path, request: Mapping[str, Any], since: str | None, seconds: float | None) -> Plain:
    """A journal, or the state folder of a service with its store and archive."""
    ends_at = None if seconds is None else time.monotonic() + seconds
    change = change_of(request)
    scheduler, entries, origin = _log(path)
    at = None if since is None else LogTime(origin).seconds(since, "--since")
    try:
        recording = read_recording(scheduler, entries, at, str(path))
    except BeforeTheLog as error:
        raise InputError(f"{since} {error.problem}", field="--since", remedy=error.remedy) from None
    except InputError as error:
        field = "--since" if error.field == "since" else error.field
        file = "" if error.field == "since" else error.file or str(path)
        raise InputError(error.problem, file=file, line=error.line, field=field, remedy=error.remedy) from None
    except BrokenInvariant as error:
        raise InputError(f"contradicts itself: {error}", file=str(path), remedy="take a whole copy of it") from None
    outcomes = whatif(recording, change, lambda: ends_at is not None and time.monotonic() >= ends_at)
    return summarise(outcomes, origin=_unix(origin), is_dated=bool(origin))


def _unix(origin: str) -> float:
    if not origin:
        return 0.0
    date = datetime.fromisoformat(iso_date(origin))
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()


def _log(path: Path) -> tuple[Scheduler, Iterable[JournalEntry], str]:
    folder = path.parent if path.suffix == ".parquet" else path
    if not folder.is_dir():
        journal = read_journal(path)
        return Scheduler(journal.setup), journal.entries, journal.origin
    state = next((each for each in (folder, folder.parent) if (each / STORE).exists()), None)
    if state is None:
        problem = "has no store, which knows the setup with which the log began"
        raise InputError(problem, file=str(path), field="--journal", remedy="name the state folder of the service")
    return _state_folder(state)


def _state_folder(folder: Path) -> tuple[Scheduler, Iterable[JournalEntry], str]:
    from sqlalchemy.exc import DBAPIError  # noqa: PLC0415  with the service

    from horae.service.api.database import clock  # noqa: PLC0415
    from horae.service.config import ARCHIVE  # noqa: PLC0415
    from horae.service.log_export import log_since  # noqa: PLC0415
    from horae.service.store.database import open_database, reading, sqlite_url  # noqa: PLC0415
    from horae.service.store.migrate import check_schema  # noqa: PLC0415

    file, engine = str(folder / STORE), open_database(sqlite_url(folder / STORE))
    try:
        with reading(engine) as connection:
            check_schema(connection)
            origin = datetime.fromtimestamp(clock(connection).unix(0.0), UTC).isoformat(timespec="milliseconds")
    except InputError as error:
        raise InputError(error.problem, file=file, field="--journal", remedy=error.remedy) from None
    except DBAPIError as error:
        raise InputError(f"cannot be read: {error.orig}", file=file, field="--journal", remedy=_COPY) from None
    part = log_since(engine, folder / ARCHIVE, None)
    return part.scheduler, part.entries, origin
