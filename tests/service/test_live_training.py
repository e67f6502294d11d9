"""Real processes under a real service: three tenants train, are preempted, resume from checkpoints and finish."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from live_service import Service, service, train, wait_for

from horae.client import Client

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
JOBS = 12


def test_three_tenants_train_are_preempted_resume_and_finish(tmp_path: Path) -> None:
    (tmp_path / "lab.yaml").write_text(CLUSTER)
    with service(tmp_path, "--config", str(tmp_path / "lab.yaml")) as running:
        client = running.client()
        specs = [_spec(number) for number in range(JOBS)]
        client.submit(specs)
        wait_for(client, ["finished"])
        jobs = list(client.jobs())
        losses = {_last_line(client, job.id) for job in jobs}
        assert len(jobs) == JOBS
        assert len(losses) == 1, "however often a job was preempted, it ends with the loss of an uninterrupted run"
        rows = {row.name: row for row in client.share()}
        assert {"nlp", "vision", "other"} <= set(rows)
        assert all(row.rho_mean is not None and row.finished == JOBS // 3 for row in rows.values())
        _check_leases(running)


def _spec(number: int) -> dict[str, object]:
    tenant = ("nlp", "vision", "other")[number % 3]
    command = train(steps=20, pace=0.1)
    return {"name": f"job-{number}", "tenant": tenant, "gpus": 1 + number % 2, "run": command, "checkpoint": {}}


def _check_leases(running: Service) -> None:
    """No GPU was held by two leases at a time."""
    held: dict[str, list[tuple[float, float]]] = {}
    client = running.client()
    for job in client.jobs():
        for lease in client.leases(job.id):
            assert lease.ended_at is not None
            for place in lease.places:
                held.setdefault(place, []).append((lease.granted_at, lease.ended_at))
    for spans in held.values():
        spans.sort()
        assert all(one[1] <= other[0] + 1e-6 for one, other in pairwise(spans))


def _last_line(client: Client, job_id: str) -> str:
    return b"".join(client.logs(job_id)).decode().strip().splitlines()[-1]
