"""`horae nodes`, `horae node drain`, `horae node resume`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from horae.cli.live.completion import complete_nodes
from horae.cli.live.lists import ListFormat, ListOutput, Watch, print_list
from horae.cli.live.tables import Column
from horae.cli.live.times import ago, local, now, with_time_zone
from horae.cli.text import examples
from horae.client import Client
from horae.model.errors import InputError
from horae.model.safe_text import printable
from horae.service.models import NodeView

nodes_app = typer.Typer(add_completion=False)
drain_app = typer.Typer(add_completion=False)
resume_app = typer.Typer(add_completion=False)

HEALTH = ("healthy", "draining", "failed")
NodeArgument = Annotated[
    list[str], typer.Argument(metavar="NODE", help="Names of nodes.", autocompletion=complete_nodes)
]


def used(node: NodeView) -> int:
    """GPUs with a job."""
    return max(node.gpus - node.free - len(node.unusable), 0)


def _reason(node: NodeView) -> str:
    draining = f"drains {ago(node.drain_at, now())}" if node.drain_at and node.drain_at > now() else ""
    gpus = ", ".join(f"{gpu} {why}" for gpu, why in node.unusable.items())
    return "; ".join(filter(None, (": ".join(filter(None, (draining, node.reason))), gpus)))


NODE_COLUMNS: tuple[Column[NodeView], ...] = (
    Column("NODE", lambda node: node.name),
    Column("TYPE", lambda node: node.gpu_type, is_cut=True),
    Column("USED", lambda node: str(used(node)), is_number=True),
    Column("FREE", lambda node: str(node.free), is_number=True),
    Column("UNUSABLE", lambda node: str(len(node.unusable)), is_number=True),
    Column("GPUS", lambda node: str(node.gpus), is_number=True),
    Column("STATE", lambda node: node.health),
    Column("DRAIN AT", lambda node: local(node.drain_at), is_wide=True),
    Column(
        "UNUSABLE GPUS", lambda node: ", ".join(f"{gpu}: {why}" for gpu, why in node.unusable.items()), is_wide=True
    ),
    Column("JOBS", lambda node: " ".join(node.jobs), is_cut=True),
    Column("REASON", _reason, is_cut=True),
)


@nodes_app.command(epilog=examples("horae nodes", "horae nodes --state draining -o wide", "horae nodes --watch"))
def nodes(
    state: Annotated[str | None, typer.Option(help="'healthy', 'draining' or 'failed' nodes only.")] = None,
    type_: Annotated[str | None, typer.Option("--type", help="Of this GPU type only.")] = None,
    output: ListOutput = ListFormat.TABLE,
    watch: Watch = False,
) -> None:
    """List nodes: their GPUs, their health, and the jobs on them."""
    if state is not None and state not in HEALTH:
        raise InputError(f"{state!r} is no state of a node", field="--state", remedy=f"use {', '.join(HEALTH)}")

    def read() -> Sequence[NodeView]:
        fit = [node for node in client.nodes() if state in (None, node.health)]
        return [node for node in fit if type_ is None or node.gpu_type.casefold() == type_.casefold()]

    with Client() as client:
        print_list(read, NODE_COLUMNS, output, watch, "no nodes")


@drain_app.command(
    epilog=examples("horae node drain n1 --reason 'new driver'", "horae node drain n1 n2 --at '2026-12-01 08:00'")
)
def drain(
    names: NodeArgument,
    at: Annotated[str | None, typer.Option(help="From when on: a date, or a time from now such as 12h.")] = None,
    reason: Annotated[str, typer.Option(help="Why, for everyone to see.")] = "",
) -> None:
    """Start no further jobs on nodes; jobs that run there may finish."""
    with Client() as client:
        for name in names:
            done = client.drain(name, reason, with_time_zone(at))
            print(printable(f"{name}: drain {'applied' if done else 'accepted'}" + (f", from {at}" if at else "")))


@resume_app.command(epilog=examples("horae node resume n1", "horae node resume n1 n2"))
def resume(names: NodeArgument) -> None:
    """Let jobs start again on nodes that were drained."""
    with Client() as client:
        for name in names:
            done = client.resume(name)
            print(printable(f"{name}: resume {'applied' if done else 'accepted'}"))
