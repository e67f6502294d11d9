"""`horae top`: the cluster on one screen."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import typer

from horae.cli.live.job_columns import JOB_COLUMNS, LIVE
from horae.cli.live.lists import Watch, shown
from horae.cli.live.nodes import used
from horae.cli.live.plain import plain
from horae.cli.live.tables import Column, table, terminal_width
from horae.cli.live.tenants import TENANT_COLUMNS
from horae.cli.live.times import duration
from horae.cli.output import Output, OutputFormat
from horae.cli.text import examples
from horae.client import Client
from horae.service.models import JobView, NodeView, TenantView

app = typer.Typer(add_completion=False)
BAR_CELLS = 20
JOBS_MAX = 20
QUEUED = ("submitted", "waiting", "pending", "holding", "suspended")


@dataclass(frozen=True)
class TypeUse:
    """The GPUs of one type."""

    gpu_type: str
    used: int
    free: int
    out: int  # on failed or draining nodes, unhealthy, or used by others

    @property
    def total(self) -> int:
        return self.used + self.free + self.out


def _bar(each: TypeUse) -> str:
    filled = round(BAR_CELLS * each.used / each.total) if each.total else 0
    return "#" * filled + "." * (BAR_CELLS - filled)


TYPE_COLUMNS: tuple[Column[TypeUse], ...] = (
    Column("TYPE", lambda each: each.gpu_type),
    Column("USED", lambda each: f"{each.used:,}/{each.total:,}", is_number=True),
    Column("", _bar),
    Column("FREE", lambda each: f"{each.free:,}", is_number=True),
    Column("OUT", lambda each: f"{each.out:,}", is_number=True),
)


@app.command(epilog=examples("horae top", "horae top --watch"))
def top(output: Output = OutputFormat.TABLE, watch: Watch = False) -> None:
    """Show GPUs by type, the queue, tenants and running jobs."""
    with Client() as client:

        def text() -> str:
            nodes, tenants, jobs = client.nodes(), client.tenants(), list(client.jobs(state=LIVE))
            if output is OutputFormat.JSON:
                return json.dumps(plain({"nodes": nodes, "tenants": tenants, "jobs": jobs}), indent=2)
            return "\n".join(screen(nodes, tenants, jobs))

        shown(text, watch)


def screen(nodes: Sequence[NodeView], tenants: Sequence[TenantView], jobs: Sequence[JobView]) -> list[str]:
    """The lines of the screen."""
    width = terminal_width()
    lines = table(by_type(nodes), TYPE_COLUMNS, width) if nodes else ["no nodes"]
    queue = [job for job in jobs if job.state in QUEUED]
    running = sorted((job for job in jobs if job.state not in QUEUED), key=lambda job: -job.held_gpus)
    lines += ["", _queue(queue)]
    if tenants:
        lines += ["", *table(tenants, [column for column in TENANT_COLUMNS if not column.is_wide], width)]
    if running:
        columns = [column for column in JOB_COLUMNS if not column.is_wide]
        lines += ["", *table(running[:JOBS_MAX], columns, width)]
        if len(running) > JOBS_MAX:
            lines.append(f"and {len(running) - JOBS_MAX:,} more running jobs")
    return lines


def by_type(nodes: Sequence[NodeView]) -> list[TypeUse]:
    """Used, free and other GPUs of each type; GPUs that are free on a node that takes no jobs are out."""
    found: dict[str, TypeUse] = {}
    for node in nodes:
        before = found.get(node.gpu_type, TypeUse(node.gpu_type, 0, 0, 0))
        busy, free = used(node), node.free if node.health == "healthy" else 0
        out = max(node.gpus - busy - free, 0)
        found[node.gpu_type] = TypeUse(node.gpu_type, before.used + busy, before.free + free, before.out + out)
    return list(found.values())


def _queue(queue: Sequence[JobView]) -> str:
    if not queue:
        return "queue: empty"
    waits = max(job.wait_seconds for job in queue)
    gpus = sum(job.gpus for job in queue)
    return f"queue: {len(queue):,} jobs for {gpus:,} GPUs; the longest wait is {duration(waits)}"
