"""How a lease has ended, from its records."""

from __future__ import annotations

import signal
import time

from horae.engines.local import processes
from horae.engines.local.checkpoints import newest_published
from horae.engines.local.job_files import JobFolder, LeaseFolder
from horae.engines.local.records import EndMoment, EndRecord, ExitRecord, StartRecord, read_record
from horae.engines.local.untrusted_files import is_regular, read_bytes
from horae.model.events import Ending

_MESSAGE_CHARACTERS_MAX = 400
LEFT_AFTER_SAVING = 75  # EX_TEMPFAIL of sysexits.h: try again later


def end_of(start: StartRecord, folder: JobFolder) -> EndRecord:
    """The end of a lease of which nothing runs any more."""
    files = folder.lease(start.epoch)
    exit = read_record(ExitRecord, files.exit)
    steps = saved_steps(start, folder)
    ending, message = _ending(start, files, exit, steps)
    return EndRecord(start.job_id, start.epoch, ending, steps, message, _moment(start, exit))


def _moment(start: StartRecord, exit: ExitRecord | None) -> EndMoment | None:
    """When a lease ended, as its supervisor has recorded it; without a record, a reboot tells that it was before."""
    if exit is not None and exit.ended_boot_seconds is not None:
        return EndMoment(start.boot_id, exit.ended_boot_seconds, float(exit.ended_at))
    return None if start.boot_id == processes.boot_id() else EndMoment(start.boot_id, 0.0, time.time())


def saved_steps(start: StartRecord, folder: JobFolder) -> float:
    """The saved steps. Unsound checkpoints count as no progress, and saved progress never decreases."""
    checkpoint = newest_published(folder)
    return start.steps_at_start if checkpoint is None else max(checkpoint.steps, start.steps_at_start)


def _ending(start: StartRecord, files: LeaseFolder, exit: ExitRecord | None, steps: float) -> tuple[Ending, str]:
    if exit is None:
        was_restarted = start.boot_id != processes.boot_id()
        return Ending.LOST, "the machine was restarted" if was_restarted else _supervisor_failure(files)
    if exit.never_started:
        return Ending.LOST, "the service ended before the job could start"
    if exit.error:
        return Ending.FAILED, f"cannot start: {exit.error}"
    if exit.is_left:
        return Ending.FAILED, "its terminal was closed"
    can_resume = is_regular(files.sdk)
    if exit.told:
        # Programs that save when they are told to stop may well exit with 0; those with the SDK do not.
        is_complete = can_resume or (start.steps_total is not None and steps >= start.steps_total)
        return (Ending.FINISHED if exit.status == 0 and is_complete else Ending.STOPPED), ""
    if exit.status == 0:
        return Ending.FINISHED, ""
    if exit.status == LEFT_AFTER_SAVING and can_resume:
        return Ending.STOPPED, ""
    return Ending.FAILED, complaint(exit)


def _supervisor_failure(files: LeaseFolder) -> str:
    """Why a supervisor has left no record of the end: it was killed, or it says what was wrong."""
    lines = (read_bytes(files.supervisor_log) or b"").decode(errors="replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    return f"its supervisor failed: {last}"[:_MESSAGE_CHARACTERS_MAX] if last else "its supervisor was killed"


def complaint(exit: ExitRecord) -> str:
    """Why a job failed: how its leader ended, and the last line of its output."""
    end = f"exit code {exit.status}" if exit.signal is None else f"killed by {_signal_name(exit.signal)}"
    return f"{end}: {exit.last_line}" if exit.last_line else end


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
