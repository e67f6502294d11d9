"""How the local engine runs a job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

from horae.model.jobs import Job
from horae.model.serialization import Plain, to_plain

OUTPUT_BYTES_MAX = 64 << 20
DETACHED_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Launch:
    job_id: str
    command: str  # for the shell
    workdir: str = ""  # "": a folder of its own, which the engine makes
    environment: Mapping[str, str] = field(default_factory=dict)
    grace_seconds: float = 0.0  # from SIGTERM to SIGKILL, where the signal does not come from the engine
    steps_total: float | None = None
    continues: str = ""  # the job with whose checkpoint it begins
    processes: int = 1  # of the gang: each runs the command, with a RANK of its own
    user: str = ""  # the Unix user as which it runs; "": the user of the service
    output_bytes_max: int = OUTPUT_BYTES_MAX
    has_terminal: bool = False  # else its input is empty and its output goes to a file only
    detached_seconds: float = DETACHED_SECONDS  # for so long it goes on while no program is attached to its terminal
    duration_seconds_max: float = inf  # of all its runs together; the service enforces it
    specification: Plain = None  # recorded with each lease, so that a run found later can be adopted

    @classmethod
    def of(cls, job: Job) -> Launch:
        """The launch of a job with the service's user, environment and limits."""
        return cls(
            job.id,
            job.command,
            job.workdir,
            grace_seconds=job.grace_seconds,
            steps_total=job.steps_total,
            continues=job.continues,
            specification=to_plain(job),
        )
