"""Metrics for Prometheus: sums over all tenants, which name no job, app, user or tenant."""

from __future__ import annotations

import time
from typing import Any

from fastapi import APIRouter, Response
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from sqlalchemy import Connection, func, select

from horae.service.api.job_views import ON_GPUS
from horae.service.api.routes.jobs import All, Who
from horae.service.store.schema import inbox, jobs, nodes, notices

router = APIRouter(tags=["service"])
QUANTILES = (0.5, 0.9, 0.99, 1.0)
_DECISIONS = {
    "decision_seconds": "Duration of the last decision",
    "slowest_decision_seconds": "Duration of the longest decision since metrics were last read",
}
_RHO_JOBS = 10_000  # the latest finished jobs, whose rho is shown


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def metrics(who: Who, all_: All) -> Response:
    """Jobs by state, GPUs by type, quantiles of rho, and how far the scheduler is behind."""
    told = await all_.loop.ask_if_quick({"slowest_decision": True}, 1.0)
    registry = await all_.read(lambda connection: _collect(connection, told))
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)


def _collect(connection: Connection, told: dict[str, Any]) -> CollectorRegistry:
    registry = CollectorRegistry()

    def gauge(name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"horae_{name}", text, labels, registry=registry)

    by_state = gauge("jobs", "Jobs by state", "state")
    for state, count in connection.execute(select(jobs.c.state, func.count()).group_by(jobs.c.state)):
        by_state.labels(state).set(count)
    all_gpus = gauge("gpus", "GPUs of healthy nodes by type", "type")
    healthy = select(nodes.c.gpu_type, func.sum(nodes.c.gpus)).where(nodes.c.health == "healthy")
    for kind, count in connection.execute(healthy.group_by(nodes.c.gpu_type)):
        all_gpus.labels(kind).set(count)
    used = gauge("gpus_used", "GPUs that jobs hold, by type", "type")
    held = select(jobs.c.held_type, func.sum(jobs.c.held_gpus)).where(jobs.c.state.in_(ON_GPUS), jobs.c.held_gpus > 0)
    for kind, count in connection.execute(held.group_by(jobs.c.held_type)):
        used.labels(kind).set(count)
    _rho(connection, gauge("rho", "Finish-time fairness of the latest finished jobs", "quantile"))
    oldest, waiting = connection.execute(select(func.min(inbox.c.wall), func.count())).one()
    gauge("inbox_requests", "Requests that the scheduler has not applied").set(waiting)
    gauge("inbox_lag_seconds", "Age of the oldest of them").set(max(0.0, time.time() - oldest) if oldest else 0.0)
    unsent = select(func.count(), func.max(notices.c.attempts)).where(notices.c.delivered_at.is_(None))
    count, attempts = connection.execute(unsent).one()
    gauge("notices_undelivered", "Notices that webhooks have not accepted").set(count)
    gauge("notices_attempts_max", "Failed attempts of the one that failed most often").set(attempts or 0)
    gauge("scheduler_up", "Whether the scheduler answers").set(bool(told))
    for name, text in _DECISIONS.items():
        if isinstance(told.get(name), int | float):
            gauge(name, text).set(told[name])
    return registry


def _rho(connection: Connection, gauge: Gauge) -> None:
    latest = select(jobs.c.rho).where(jobs.c.state == "finished").order_by(jobs.c.number.desc()).limit(_RHO_JOBS)
    values = sorted(value for value in connection.scalars(latest) if value is not None)
    for quantile in QUANTILES if values else ():
        gauge.labels(f"{quantile:g}").set(values[min(len(values) - 1, int(quantile * len(values)))])
