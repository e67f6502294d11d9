"""The environment of a job.

HORAE_JOB, HORAE_EPOCH   its id, and the epoch of its lease
HORAE_URL, HORAE_TOKEN   the service, and a token for this job and epoch only, if the service has an address
HORAE_LEASE_ENDS_AT      Unix time until which it is not displaced; it may run longer
HORAE_GPUS               its GPUs by their position in the cluster, e.g. "3,4"
HORAE_GPU_TYPE           their type
HORAE_LEVEL              the smallest cell that holds them all
HORAE_STEPS_DONE         the step at which to resume
HORAE_STEPS_TOTAL        how many steps there are, if the job was submitted with a number; a job that a search
                         submits is a part of a trial, and knows only from here how far to go
HORAE_CHECKPOINT_DIR     a folder for the checkpoints of this lease. To publish one, write a file such as
                         {"steps": 120, "path": "step-120"} and rename it to `saved.json` in this folder; `path`
                         is a file or a folder inside
HORAE_CHECKPOINT         the newest checkpoint that this job has published, if there is one
HORAE_CONTINUES          the newest checkpoint of the job whose work it continues, if there is one
HORAE_REPORTS            a file to append lines `steps loss` to, with losses above 0, by which searches judge it; a
                         line counts when it has its newline, and what is no report is passed over
CUDA_VISIBLE_DEVICES     its GPUs as CUDA names them: by UUID, or by position where they are emulated
RANK, WORLD_SIZE         0 and 1, or the number of this process and of all processes of the gang
LOCAL_RANK               as RANK, for gangs of several processes only: frameworks that start their own processes
                         take its presence as a sign that it was done for them
MASTER_ADDR, MASTER_PORT where the processes of a gang meet
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite

from horae.engines.local.checkpoints import Checkpoint
from horae.engines.local.job_files import JobFolder
from horae.engines.local.launch import Launch
from horae.engines.local.users import User
from horae.model.commands import Start

# Not for jobs: variables of another job, if this service is one, and those by which systemd addresses a service.
_PRIVATE = ("HORAE_", "NOTIFY_SOCKET", "WATCHDOG_", "LISTEN_", "INVOCATION_ID", "JOURNAL_STREAM", "CREDENTIALS_")
_FOR_OTHER_USERS = ("PATH", "LANG", "LC_", "TZ", "LD_LIBRARY_PATH", "CUDA_HOME")
MARKER = "HORAE_CHECKPOINT_DIR"  # its value is that of one lease only, so it identifies the processes of a job


@dataclass(frozen=True, slots=True)
class Place:
    """Where a lease runs: its folder, its GPUs and its checkpoints."""

    folder: JobFolder
    gpus: str
    devices: str
    newest: Checkpoint | None
    continued: Checkpoint | None
    user: User | None


def environment(
    command: Start, launch: Launch, place: Place, steps_done: float, ends_in_seconds: float, contact: Mapping[str, str]
) -> dict[bytes, bytes]:
    """What all processes of a gang have in common; the supervisor adds the rank of each."""
    common = _inherited(place.user) | dict(launch.environment) | _meeting_point()
    common |= _lease(command, launch, place, steps_done) | _checkpoints(command, place)
    if isfinite(ends_in_seconds):
        # Rounded to seconds, a lease that ends at once would seem to last.
        common["HORAE_LEASE_ENDS_AT"] = f"{time.time() + ends_in_seconds:.3f}"
    common |= contact
    return _encoded(common)


def _lease(command: Start, launch: Launch, place: Place, steps_done: float) -> dict[str, str]:
    found = {
        "HORAE_JOB": launch.job_id,
        "HORAE_EPOCH": str(command.epoch),
        "HORAE_GPUS": place.gpus,
        "HORAE_GPU_TYPE": command.shape.accelerator,
        "HORAE_LEVEL": command.shape.level,
        "HORAE_STEPS_DONE": f"{steps_done:.17g}",  # all digits, but no ".0" to break a shell script
        "HORAE_REPORTS": str(place.folder.reports),
        "CUDA_VISIBLE_DEVICES": place.devices,
    }
    if launch.steps_total is not None:
        found["HORAE_STEPS_TOTAL"] = f"{launch.steps_total:.17g}"
    return found


def _checkpoints(command: Start, place: Place) -> dict[str, str]:
    found = {MARKER: str(place.folder.lease(command.epoch).checkpoint)}
    if place.newest is not None:
        found["HORAE_CHECKPOINT"] = str(place.newest.path)
    if place.continued is not None:
        found["HORAE_CONTINUES"] = str(place.continued.path)
    return found


def _meeting_point() -> dict[str, str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}


def _inherited(user: User | None) -> dict[str, str]:
    """What a job gets from the environment of the service; under another user only what is no secret to that user."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith(_PRIVATE)}
    if user is None:
        return ours
    own = {"HOME": user.home, "USER": user.name, "LOGNAME": user.name, "SHELL": user.shell}
    is_other = user.uid != os.geteuid()
    return {name: value for name, value in ours.items() if not is_other or name.startswith(_FOR_OTHER_USERS)} | own


def _encoded(environment: Mapping[str, str]) -> dict[bytes, bytes]:
    """As bytes; raises ValueError for what no environment can hold."""
    for name, value in environment.items():
        if not name or "=" in name or "\0" in name or "\0" in value:
            raise ValueError(f"no environment can hold the variable {name!r}")
    return {os.fsencode(name): os.fsencode(value) for name, value in environment.items()}
