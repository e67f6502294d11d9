"""Real processes under a real service: three tenants train, are preempted, resume from checkpoints and finish."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from command_line import horae
from live_service import environment, service, train, wait_for

from horae.client import Client
from horae.service.models import JobView, LeaseView

CLUSTER = """
name: lab
restart_seconds: 1
nodes:
  - {name: "a[0-1]", gpu: A100, gpus: 4}
  - {name: v0, gpu: V100, gpus: 4}
tenants:
  nlp: {weight: 2, policy: max-min, cadence: rounds, round_seconds: 4, cells: {A100.node: 1}}
  vision: {policy: {tiresias: {limits: [30]}}, cadence: rounds, round_seconds: 4, cells: {V100.node: 1}}
spare: {policy: themis, cadence: rounds, round_seconds: 4}
"""
JOBS, STEPS = 30, 20
CELL_GPUS = {"nlp": 4, "vision": 4, "other": 0}


def test_three_tenants_train_are_preempted_resume_and_finish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lab.yaml").write_text(CLUSTER)
    with service(tmp_path, "--config", str(tmp_path / "lab.yaml")) as running, running.client() as client:
        client.submit([_spec(number) for number in range(JOBS)])
        wait_for(client, ["finished"], poll_seconds=1.0)
        jobs = list(client.jobs())
        losses = {_last_line(client, job.id) for job in jobs}
        leases = [lease for job in jobs for lease in client.leases(job.id)]
        monkeypatch.setenv("HORAE_STATE", str(running.state))
        shares = {row["name"]: row for row in json.loads(horae("share", "-o", "json").out)}
        printed = horae("share").out
    assert len(jobs) == JOBS
    assert losses == {_uninterrupted(tmp_path)}, "however often a job was preempted, it ends with the same loss"
    assert len(leases) > JOBS, "none was preempted"
    _check_one_at_a_time(leases)
    for tenant, gpus in CELL_GPUS.items():
        own = [lease for lease in leases if lease.guaranteed and shares[tenant]["name"] == _tenant(lease, jobs)]
        assert _most_at_a_time(own) == gpus, f"{tenant} has work for all of its cells, and gets no more"
        row = shares[tenant]
        assert (row["finished"], row["guaranteed_gpu_hours"] > 0) == (JOBS // 3, gpus > 0)
        assert f"{row['rho_mean']:,.2f}" in printed and f"{row['rho_max']:,.2f}" in printed


def _spec(number: int) -> dict[str, object]:
    tenant = tuple(CELL_GPUS)[number % 3]
    return {"tenant": tenant, "gpus": 1 + number % 2, "run": train(steps=STEPS, pace=0.1), "checkpoint": {}}


def _uninterrupted(folder: Path) -> str:
    command = train(steps=STEPS, pace=0.0).split()
    done = subprocess.run(command, cwd=folder, env=environment(), check=True, capture_output=True, text=True)
    return done.stdout.strip().splitlines()[-1]


def _tenant(lease: LeaseView, jobs: Sequence[JobView]) -> str:
    return next(job.tenant for job in jobs if job.id == lease.job_id)


def _ended(lease: LeaseView) -> float:
    assert lease.ended_at is not None
    return lease.ended_at


def _most_at_a_time(leases: Sequence[LeaseView]) -> int:
    """The most GPUs that these leases held together."""
    held = ((sum(each.gpus for each in leases if each.granted_at <= one.granted_at < _ended(each))) for one in leases)
    return max(held, default=0)


def _check_one_at_a_time(leases: Sequence[LeaseView]) -> None:
    """No GPU was held by two leases at a time."""
    held: dict[str, list[tuple[float, float]]] = {}
    for lease in leases:
        for place in lease.places:
            held.setdefault(place, []).append((lease.granted_at, _ended(lease)))
    for spans in held.values():
        spans.sort()
        assert all(one[1] <= other[0] + 1e-6 for one, other in pairwise(spans))


def _last_line(client: Client, job_id: str) -> str:
    return b"".join(client.logs(job_id)).decode().strip().splitlines()[-1]
