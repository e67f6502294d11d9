"""The process of the loop: `python -m horae.service.loop CONFIG`. It waits until it leads, recovers, and runs."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import IO

import structlog
from sqlalchemy import Engine as Database

from horae.engines.local.engine import LocalEngine
from horae.engines.local.fence import term_on_record
from horae.engines.local.job_files import highest_number
from horae.model.errors import HoraeError, InputError
from horae.service.api.tokens import job_token
from horae.service.changes import changes
from horae.service.child import end_with_parent
from horae.service.clock import LogClock
from horae.service.config import ServiceConfig, load_config
from horae.service.local_jobs import LocalJobs, runs_as_root
from horae.service.loop.loop import Loop
from horae.service.loop.questions import Questions
from horae.service.loop.recovery import begin, rebuild
from horae.service.store.database import StoreUnavailable, TermEnded, open_database, writing
from horae.service.store.leadership import Leadership, Renewal, confirm_lead, raise_term, resign, take_lead
from horae.service.store.log import get_meta, raise_counter
from horae.service.store.migrate import migrate

POLL_SECONDS = 0.2
RENEW_SECONDS = 1.0
EMBEDDED_RENEW_SECONDS = 60.0  # the lock on the state folder is what keeps others away
LOCKED, USAGE_ERROR, TERM_ENDED = 3, 2, 4

log = structlog.get_logger("loop")


def main(path: Path) -> int:
    end_with_parent()
    config = load_config(path)
    lock = _lock(config.state) if config.is_embedded else None
    if config.is_embedded and lock is None:
        return LOCKED
    try:
        database = open_database(config.store)
        migrate(database)
        _run(config, database)
    except InputError as error:
        print(f"horae: {error}", file=sys.stderr)
        return USAGE_ERROR
    except TermEnded as error:
        log.error("the lead is lost", error=str(error))
        return TERM_ENDED
    return 0


def _run(config: ServiceConfig, database: Database) -> None:
    leadership = raise_term(database, _lead(config, database), term_on_record(config.state / "engine"))
    renewal = None if config.is_embedded else Renewal(database, leadership.term)
    clock = LogClock(leadership.last)
    rebuilt = rebuild(database)
    scheduler = begin(database, leadership, config.setup, clock) if rebuilt is None else rebuilt.scheduler
    for problem in () if rebuilt is None else rebuilt.problems:
        log.error("a snapshot cannot be used", problem=problem)
    with writing(database) as connection:
        confirm_lead(connection, leadership.term, clock.read())
        raise_counter(connection, "jobs", highest_number(config.state / "engine"))
        secret = get_meta(connection, "secret") or ""
    url = f"http://{config.host}:{config.port}"

    def contact(job_id: str, epoch: int) -> Mapping[str, str]:
        return {"HORAE_URL": url, "HORAE_TOKEN": job_token(secret, job_id, epoch)}

    engine = LocalEngine(
        config.setup.cluster, config.state / "engine", clock.now, term=leadership.term, contact=contact
    )
    questions = Questions(config.state)
    jobs = LocalJobs(engine, as_submitter=runs_as_root() and bool(config.users))
    renew = EMBEDDED_RENEW_SECONDS if config.is_embedded else RENEW_SECONDS
    loop = Loop(database, leadership, scheduler, 0 if rebuilt is None else rebuilt.seq, jobs, clock, questions, renew)

    def stop(number: int, frame: FrameType | None) -> None:
        loop.stopping = True
        engine.wake()

    def stop_jobs(number: int, frame: FrameType | None) -> None:
        told.append(number)

    told: list[int] = []
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGUSR1, stop_jobs)
    loop.restart(leadership.incarnation, changes(scheduler.present_setup(), config.setup, clock.now()))
    log.info("leads", term=leadership.term, events=0 if rebuilt is None else rebuilt.folded)
    print("ready", flush=True)
    loop.run()
    if told:
        engine.stop_all()
        loop.see_off(lambda: engine.is_running)
    loop.snapshot()
    questions.close()
    engine.close()
    if renewal is not None:
        renewal.close()
    resign(database, leadership.term)


def _lead(config: ServiceConfig, database: Database) -> Leadership:
    """Waits until this process leads. With an embedded store it does at once, because it holds the lock."""
    holder = f"{socket.gethostname()}:{os.getpid()}"
    while True:
        try:
            reading_ = LogClock().read()
            url = f"http://{config.host}:{config.port}"
            found = take_lead(database, holder, url, reading_, at_once=config.is_embedded)
            if found is not None:
                return found
        except StoreUnavailable as error:
            log.error("the store does not answer", error=str(error))
        time.sleep(POLL_SECONDS)


def _lock(state: Path) -> IO[str] | None:
    """The lock on the state folder, or None if another process has it. It is freed when this process ends."""
    file = (state / "loop.lock").open("w")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        return None
    return file


if __name__ == "__main__":
    try:
        sys.exit(main(Path(sys.argv[1])))
    except HoraeError as error:
        sys.exit(f"horae: {error}")
