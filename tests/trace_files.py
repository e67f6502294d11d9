"""Small trace files for tests, and what is said about them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from horae.model.errors import InputError
from horae.traces.trace import Trace

SACCT = "JobID|User|Account|Partition|Submit|Start|End|State|AllocTRES|ReqTRES|ElapsedRaw|Timelimit"
HELIOS = "job_id,user,vc,jobname,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue"
OPENB = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time"
DAY = "2020-09-01"


def write(folder: Path, data: str | bytes, name: str = "jobs.txt") -> Path:
    path = folder / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def complaint(call: Callable[[], object]) -> str:
    with pytest.raises(InputError) as caught:
        call()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def faults(trace: Trace) -> list[tuple[int, str, str]]:
    assert all(fault.remedy for fault in trace.faults)
    assert trace.fault_count == len(trace.faults)
    assert all(str(fault.error(trace.source)).startswith(f"{trace.source}:{fault.line}: ") for fault in trace.faults)
    return [(fault.line, fault.field, fault.problem) for fault in trace.faults]


def column(trace: Trace, name: str) -> list[Any]:
    return trace.table[name].to_list()
