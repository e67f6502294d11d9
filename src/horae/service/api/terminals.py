"""The terminals of interactive jobs, which their supervisors keep on the machine where they run."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

from horae.engines.local.job_files import JobFolder, LeaseFolder
from horae.engines.local.records import ExitRecord, read_record
from horae.service import terminal_messages as messages
from horae.service.api.log_files import TAIL_BYTES_MAX, JobOutput
from horae.service.api.problems import Refused
from horae.service.api.services import Services

INPUT_BYTES_MAX = 1 << 16  # of one request
OPEN_SECONDS_MAX = 10.0  # for a supervisor that has just been started
INPUT_SECONDS_MAX = 10.0
POLL_SECONDS = 0.05
LOOK_SECONDS = 0.5  # how often an idle stream looks whether the service is stopping

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def lease_of(state: Path, job_id: str, epoch: int | None) -> LeaseFolder:
    """The folder of a lease, or of the latest one of a job that does not run."""
    job = JobFolder.of(state / "engine", job_id)
    known = job.epochs()
    if epoch is None and known:
        epoch = known[-1]
    if epoch not in known:
        raise Refused(
            409,
            f"the terminal of job {job_id} is not on this machine",
            remedy="attach on the machine where it runs",
        )
    return job.lease(epoch)


async def open_terminal(lease: LeaseFolder) -> Streams | None:
    """A connection to the terminal of a lease; None if it has ended."""
    ends_at = asyncio.get_running_loop().time() + OPEN_SECONDS_MAX
    while True:
        try:
            return await _connect(lease.terminal)
        except OSError:
            if read_record(ExitRecord, lease.exit) is not None:
                return None
        if asyncio.get_running_loop().time() >= ends_at:
            raise Refused(503, "the terminal does not answer", remedy="try again", headers={"Retry-After": "1"})
        await asyncio.sleep(POLL_SECONDS)


async def _connect(path: Path) -> Streams:
    """Addresses of sockets are limited to 107 bytes; the folder's descriptor makes any path short enough."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        return await asyncio.open_unix_connection(f"/proc/self/fd/{folder}/{path.name}")
    finally:
        os.close(folder)


async def shown(all_: Services, streams: Streams, position: int) -> AsyncIterator[bytes]:
    """The messages of a terminal from this byte of its output on, until the job ends or the caller leaves."""
    reader, writer = streams
    try:
        writer.write(messages.attach(position))
        while not all_.memory.get("stopping"):
            try:
                data = await asyncio.wait_for(reader.read(1 << 16), LOOK_SECONDS)
            except TimeoutError:
                continue
            except ConnectionError:
                return
            if not data:
                return
            yield data
    finally:
        writer.close()


async def ended(state: Path, job_id: str, lease: LeaseFolder, position: int) -> AsyncIterator[bytes]:
    """The same messages for a lease that has ended: what is on record of it."""
    record = read_record(ExitRecord, lease.exit)
    if len(JobFolder.of(state / "engine", job_id).epochs()) == 1:  # all leases of a job share one file
        rest = JobOutput(state, job_id).read(position, TAIL_BYTES_MAX)
        yield messages.at_position(position) + messages.output(rest)
    if record is not None and not record.never_started:
        failed = 127 if record.error else record.status or 0
        yield messages.end(128 + record.signal if record.signal is not None else failed)


async def send_input(streams: Streams, data: bytes) -> None:
    """Hands messages to a terminal; returns when it has taken them."""
    reader, writer = streams
    try:
        writer.write(data)
        writer.write_eof()
        await asyncio.wait_for(reader.read(), INPUT_SECONDS_MAX)
    except (TimeoutError, ConnectionError):
        raise Refused(503, "the terminal does not answer", remedy="try again", headers={"Retry-After": "1"}) from None
    finally:
        writer.close()
