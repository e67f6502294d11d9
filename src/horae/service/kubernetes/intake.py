"""New Jobs of the cluster become submissions, by the same checks and tables as those of the API."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import Engine as Database

from horae.engines.kubernetes.engine import Found
from horae.engines.kubernetes.objects import JobObject
from horae.engines.kubernetes.pod_gangs import GroupObject
from horae.model.errors import JobError
from horae.model.setup import Setup
from horae.service.api.context import Context
from horae.service.api.database import clock
from horae.service.api.identity import Identity
from horae.service.api.limits import QueuedJobs
from horae.service.api.problems import Refused
from horae.service.api.setup_reader import SetupReader
from horae.service.api.submission_writes import Submission
from horae.service.api.submissions import Checker, ModelOf, prepare, read_speeds
from horae.service.api.writer import put_in_inbox
from horae.service.kubernetes.job_specs import spec_of
from horae.service.kubernetes.pod_specs import spec_of_pods
from horae.service.models import JobSpec
from horae.service.store.database import reading, writing

CANCELLED = "JobCancelled"


class Accepted(NamedTuple):
    uid: str
    job_id: str


class Rejected(NamedTuple):
    uid: str
    problem: str


class Intake:
    def __init__(self, database: Database, context: Context) -> None:
        self._database = database
        self._context = context
        self._queued = QueuedJobs(context)
        self._setups = SetupReader()
        self._checker: tuple[str, Checker] | None = None

    def submit(self, found: Sequence[Found]) -> list[Accepted | Rejected]:
        """Writes new Jobs to the inbox, all in one transaction. A Job that was submitted before keeps its id."""
        results: list[Accepted | Rejected] = []
        waiting: list[tuple[str, Submission]] = []
        with reading(self._database) as connection:
            known, now = self._setups.read(connection), clock(connection)
            if self._checker is None or self._checker[0] != known.version:
                self._checker = known.version, Checker(known.setup)
            for each in found:
                try:
                    spec = self._spec(each, known.setup)
                    who = Identity(each.job.namespace, "user", spec.tenant or "", via="cluster")
                    speeds = read_speeds(connection, {ModelOf(spec.tenant or "", spec.model)})
                    groups = prepare([spec], who, self._checker[1], now, speeds, self._context)
                    waiting.append((each.job.uid, Submission(groups, who, self._queued, each.job.uid, [_bare(spec)])))
                except (JobError, Refused) as error:
                    results.append(Rejected(each.job.uid, _text(error)))
        if waiting:
            results += self._write(waiting)
        return results

    def _spec(self, found: Found, setup: Setup) -> JobSpec:
        if isinstance(found.job, JobObject):
            return spec_of(found.job, found.raw, found.tenants)
        assert isinstance(found.job, GroupObject)
        return spec_of_pods(found.job, found.tenants, setup, found.nodes_with)

    def _write(self, waiting: Sequence[tuple[str, Submission]]) -> list[Accepted | Rejected]:
        with writing(self._database) as connection:
            answers = Submission.together(connection, [submission for _, submission in waiting])
        return [
            Rejected(uid, _text(answer)) if isinstance(answer, Refused) else Accepted(uid, answer[0])
            for (uid, _), answer in zip(waiting, answers, strict=True)
        ]

    def cancel(self, gone: Mapping[str, str]) -> None:
        """Cancels jobs whose Job is gone."""
        with writing(self._database) as connection:
            for job_id, reason in gone.items():
                payload = {"event": CANCELLED, "at": 0.0, "job_id": job_id, "reason": reason, "grace_seconds": None}
                put_in_inbox(connection, CANCELLED, json.dumps(payload) + "\n", time.time())


def _bare(spec: JobSpec) -> JobSpec:
    """What an idempotency key stands for: a Job is the same whatever its owner has changed in it since."""
    return JobSpec(run=spec.run, workload=spec.workload)


def _text(error: JobError | Refused) -> str:
    """One line: the field, what is wrong with it, and the remedy."""
    if isinstance(error, JobError):
        return str(error)
    problem = error.problem
    text = f"{problem.field}: {problem.detail}" if problem.field else str(problem.detail)
    return f"{text}; {problem.remedy}" if problem.remedy else text
