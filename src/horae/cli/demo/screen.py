"""The demo while it runs: on a terminal a page that is drawn anew, elsewhere a line now and then."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from horae.cli.demo.snapshot import Snapshot, mean_completion
from horae.cli.live.times import NONE, duration
from horae.model.safe_text import counted, printable
from horae.service.models import EventView, NodeView

COLOURS = ("cyan", "magenta", "yellow", "green")
HIDDEN = ("JobPhase", "JobProgressed", "SpeedRevised", "JobResumable")
EVENTS_SHOWN = 6


def clock(seconds: float) -> str:
    """1:05."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def number(value: float | None, digits: int = 2) -> str:
    return NONE if value is None else f"{value:.{digits}f}"


def line(now: Snapshot) -> str:
    """The state in one line."""
    rho = ", ".join(f"{name} {number(row.rho_mean)}" for name, row in now.shares.items())
    return (
        f"{clock(now.seconds)}  {now.held_gpus} of {now.gpus} GPUs in use, {counted(len(now.running), 'job')} run, "
        f"{len(now.waiting)} wait, {len(now.finished)} finished, {counted(now.preemptions, 'preemption')}; "
        f"rho {rho or NONE}"
    )


def page(now: Snapshot, seconds: float, events: Sequence[EventView]) -> RenderableType:
    """The whole page; `seconds` is how long the demo lasts."""
    heading = Text(f"{clock(now.seconds)} of {clock(seconds)}, Ctrl-C ends it sooner", style="bold")
    legend = Text("A letter per GPU in use: large in its tenant's own cells, small if borrowed", style="dim")
    return Group(heading, Text(), _map(now), legend, Text(), _tenants(now), Text(), _events(now, events))


def colours(now: Snapshot) -> dict[str, str]:
    return {tenant.name: COLOURS[place % len(COLOURS)] for place, tenant in enumerate(now.tenants)}


def _map(now: Snapshot) -> Table:
    """One letter per GPU: the tenant's first one, large in its own cells, small where the GPU is borrowed."""
    found = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    by_type: dict[str, list[NodeView]] = {}
    for node in now.nodes:
        by_type.setdefault(node.gpu_type, []).append(node)
    for gpu_type, nodes in by_type.items():
        found.add_row(gpu_type, *(_node(now, node) for node in nodes))
    return found


def _node(now: Snapshot, node: NodeView) -> Text:
    text, shades = Text(f"{node.name} "), colours(now)
    for index in range(node.gpus):
        job = now.holders.get(f"{node.name}/{index}")
        if job is None:
            text.append("·", style="dim")
        else:
            letter = job.tenant[:1]
            shade = shades.get(job.tenant, "default")
            text.append(
                letter.upper() if job.guaranteed else letter.lower(), f"bold {shade}" if job.guaranteed else shade
            )
    return text


def _tenants(now: Snapshot) -> Table:
    found = Table(box=None, padding=(0, 1, 0, 0), header_style="dim")
    for heading in ("tenant", "policy", "reserved cells"):
        found.add_column(heading, no_wrap=True)
    for heading in ("run", "wait", "done", "GPUs", "rho", "completion"):
        found.add_column(heading, justify="right", no_wrap=True)
    shades = colours(now)
    for tenant in now.tenants:
        jobs, share = now.of(tenant.name), now.shares.get(tenant.name)
        completion = mean_completion(jobs)
        found.add_row(
            Text(tenant.name, style=shades[tenant.name]),
            tenant.policy,
            ", ".join(f"{count} {name}" for name, count in tenant.cells.items()),
            str(sum(job.held_gpus > 0 for job in jobs)),
            str(sum(job.tenant == tenant.name for job in now.waiting)),
            str(sum(job.state == "finished" for job in jobs)),
            f"{tenant.guaranteed_gpus}+{tenant.running_gpus - tenant.guaranteed_gpus}",
            number(share.rho_mean if share else None),
            NONE if completion is None else duration(completion),
        )
    return found


def _events(now: Snapshot, events: Sequence[EventView]) -> Text:
    names = {job.id: job.name for job in now.jobs}
    shown = [event for event in events if event.kind not in HIDDEN][-EVENTS_SHOWN:]
    lines = [f"{names.get(event.job_id or '', event.job_id or '')} {_words(event)}" for event in shown]
    return Text("\n".join(map(printable, lines)), style="dim", overflow="ellipsis", no_wrap=True)


def _words(event: EventView) -> str:
    """The text of an event without the number of the lease, of which each start of a service has others."""
    return event.text.partition(", lease ")[0]
