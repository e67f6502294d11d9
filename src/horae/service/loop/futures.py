"""Questions about the future: each is answered by a copy of the loop's process, which runs the state forward.

The copy costs the loop a few milliseconds. It has nothing of the loop's but the memory and the connection of the
question: descriptors are closed, so that no lock outlives the loop, and it ends without any clean-up. It does not use
the store, because SQLite cannot be used in a copy of a process that has it open: the API sends what is known of past
jobs with the question.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import structlog
from sqlalchemy import Connection, select

from horae.forks.beliefs import Beliefs, PastJob
from horae.forks.eta import Draw, draw
from horae.forks.eta import summarise as summarise_draws
from horae.forks.forward import Watch
from horae.forks.plan import future
from horae.forks.plan import summarise as summarise_futures
from horae.forks.present import Present
from horae.forks.processes import run_all
from horae.model.errors import HoraeError
from horae.model.jobs import Job
from horae.model.reasons import Refusal
from horae.model.serialization import Plain, from_plain, to_plain
from horae.model.setup import Setup
from horae.scheduler import Scheduler
from horae.service.child import end_with_parent
from horae.service.job_file import to_job
from horae.service.models import ENDED, JobSpec
from horae.service.store.schema import jobs

log = structlog.get_logger("loop")
AT_A_TIME = 2
DRAWS, DRAWS_MAX = 20, 200
SECONDS, SECONDS_MAX = 2.0, 60.0
SHARE = 0.85  # of the time budget is spent on draws; the rest is for the question and the answer to arrive
DRAW_SHARE = 0.2  # of the time budget; a draw that has taken longer is left once the job has started
SUMMING_UP_SECONDS = 1.0
TOO_SHORT = "no answer within the time budget; allow more with --seconds"
LATE_SECONDS = 30.0  # after its time budget, a copy is killed by its own alarm
PAST_JOBS = 1000
_LONG = ("run", "env", "sweep", "workdir", "after", "array")
NICE = 10


class Futures:
    def __init__(self) -> None:
        self._copies: set[int] = set()

    def begin(self, client: socket.socket, question: dict[str, Any], scheduler: Scheduler, now: float) -> str:
        """Hands the question and its connection over to a copy of this process; returns why not, or nothing."""
        self.reap()
        if len(self._copies) >= AT_A_TIME:
            return "busy"
        pid = os.fork()
        if pid:
            self._copies.add(pid)
            return ""
        try:
            _be_apart(client, _seconds(question))
            _reply(client, _answer(question, scheduler, now))
        except BaseException:  # there is nothing above that may catch it: this is a copy of the whole process
            log.exception("a question about the future failed")
        finally:
            os._exit(0)

    def close(self) -> None:
        """Ends all copies; their questions remain without an answer."""
        for pid in self._copies:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            with suppress(ChildProcessError):
                os.waitpid(pid, 0)
        self._copies.clear()

    def reap(self) -> None:
        """Forgets the copies that have ended."""
        for pid in list(self._copies):
            with suppress(ChildProcessError):
                if not os.waitpid(pid, os.WNOHANG)[0]:
                    continue
            self._copies.discard(pid)


def is_about_the_future(question: dict[str, Any]) -> bool:
    return "eta" in question or "plan" in question


def _be_apart(client: socket.socket, seconds: float) -> None:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        signal.signal(number, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    signal.alarm(int(seconds + LATE_SECONDS))
    kept = client.fileno()
    os.closerange(3, kept)
    os.closerange(kept + 1, os.sysconf("SC_OPEN_MAX"))
    end_with_parent()
    os.nice(NICE)


def _reply(client: socket.socket, answer: Plain) -> None:
    client.settimeout(LATE_SECONDS)
    with suppress(OSError):
        client.sendall(json.dumps(answer).encode() + b"\n")


class _Question(NamedTuple):
    scheduler: Scheduler
    present: Present
    beliefs: Beliefs
    draws: int
    ends_at: float  # of the time for draws, by time.monotonic


def _answer(question: dict[str, Any], scheduler: Scheduler, now: float) -> Plain:
    try:
        ends_at = time.monotonic() + SHARE * _seconds(question)
        scheduler.now = max(scheduler.now, now)
        past = _past(json.loads(question.get("past", "[]")), scheduler.present_setup())
        present = Present.of(scheduler)
        beliefs = Beliefs(past, present.running())
        beliefs.prepare()
        asked = _Question(scheduler, present, beliefs, min(int(question.get("draws", DRAWS)), DRAWS_MAX), ends_at)
        if "eta" in question:
            return _eta(asked, str(question["eta"]))
        return _plan(asked, from_plain(Job, question["plan"]))
    except (HoraeError, ValueError, TypeError, KeyError) as error:
        return {"problem": str(error)}


def _eta(asked: _Question, job_id: str) -> Plain:
    scheduler, ends_at = asked.scheduler, asked.ends_at
    if job_id not in scheduler.jobs.live:
        status = scheduler.status(job_id)
        return {"problem": f"{job_id} is not in the queue" if status is None else f"{job_id} is {status.name.lower()}"}
    draw_seconds = DRAW_SHARE * (ends_at - time.monotonic())

    def one(seed: int) -> Plain:
        is_late = _until(time.monotonic() + draw_seconds)
        return to_plain(draw(scheduler, job_id, asked.beliefs, seed, _until(ends_at), is_late, present=asked.present))

    runs = scheduler.jobs.on_gpus(job_id) is not None
    found = _run_all(asked, [partial(one, seed) for seed in range(asked.draws)])
    draws = [Draw(**_numbers(each)) for each in found if each is not None]
    answer = summarise_draws(job_id, scheduler.now, draws, runs=runs)
    return {"problem": TOO_SHORT} if answer is None else {"eta": to_plain(answer)}


def _plan(asked: _Question, job: Job) -> Plain:
    scheduler = asked.scheduler
    job = replace(job, submitted_at=scheduler.now)
    refusal = _refusal(scheduler, job)
    if refusal:
        return {"refused": refusal}

    def one(new: Job | None, seed: int) -> Plain:
        seen = future(scheduler, new, asked.beliefs, seed, _until(asked.ends_at), present=asked.present)
        return {"started": seen.started, "ended": seen.ended, "shapes": seen.shapes}

    tasks: list[Callable[[], Plain]] = [
        partial(one, new, seed) for seed in range(max(asked.draws // 2, 1)) for new in (None, job)
    ]
    found = [None if each is None else Watch(**each) for each in _run_all(asked, tasks)]
    pairs = [(one, other) for one, other in zip(found[::2], found[1::2], strict=True) if one and other]
    if not pairs:
        return {"problem": TOO_SHORT}
    return {"plan": to_plain(summarise_futures(job.id, scheduler.now, pairs, len(tasks) // 2 - len(pairs)))}


def _run_all(asked: _Question, tasks: Sequence[Callable[[], Plain]]) -> list[Plain | None]:
    return run_all(tasks, _workers(), asked.ends_at + SUMMING_UP_SECONDS, asked.ends_at)


def _refusal(scheduler: Scheduler, job: Job) -> str:
    """Why the job could never run, or nothing; found in a copy, because asking submits it."""

    def ask() -> Plain:
        reason = scheduler.prospect(job).reason
        return str(reason) if isinstance(reason, Refusal) else ""

    return run_all([ask], 1, time.monotonic() + SECONDS_MAX)[0] or ""


def past_jobs(connection: Connection) -> str:
    """The latest jobs that ran and have ended, to be sent with a question."""
    ended = select(jobs.c.id, jobs.c.spec, jobs.c.user, jobs.c.submitted_at, jobs.c.run_seconds).where(
        jobs.c.state.in_(sorted(ENDED)), jobs.c.run_seconds > 0
    )
    rows = connection.execute(ended.order_by(jobs.c.number.desc()).limit(PAST_JOBS))
    known = ({**row._mapping, "spec": _short(row.spec)} for row in rows)
    return json.dumps(list(known), separators=(",", ":"))


def _short(spec: str) -> dict[str, Any]:
    """The fields of a job file that say what a job needs; commands and variables may be long."""
    found: dict[str, Any] = json.loads(spec)
    return {**{name: value for name, value in found.items() if name not in _LONG}, "run": "-"}


def _past(rows: list[dict[str, Any]], setup: Setup) -> list[PastJob]:
    """Past jobs in order of submission; those of a former cluster or version are left out."""
    found: list[PastJob] = []
    for row in rows:
        with suppress(HoraeError, ValueError):
            spec = JobSpec.model_validate(row["spec"])
            job = to_job(spec, row["id"], row["user"], setup, row["submitted_at"])
            found.append(PastJob(job, row["run_seconds"]))
    return sorted(found, key=lambda each: each.job.submitted_at)


def _until(ends_at: float) -> Callable[[], bool]:
    return lambda: time.monotonic() >= ends_at


def _workers() -> int:
    return max(len(os.sched_getaffinity(0)), 1)


def _seconds(question: dict[str, Any]) -> float:
    return min(max(float(question.get("seconds", SECONDS)), 0.1), SECONDS_MAX)


def _numbers(plain: Plain) -> dict[str, Any]:
    """Infinite times are texts in plain data."""
    return {name: float(value) if isinstance(value, str) else value for name, value in plain.items()}
