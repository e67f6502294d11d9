"""`horae whatif`: what would have happened under another policy, on another cluster, with other reservations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from horae.cli.live.arguments import key_values
from horae.cli.live.plain import plain
from horae.cli.live.times import moment, now
from horae.cli.live.whatif_table import describe
from horae.cli.output import Output, OutputFormat
from horae.cli.text import examples
from horae.client import Client
from horae.client.user_input import checked
from horae.model.errors import InputError
from horae.service.whatif_models import WhatIfRequest, WhatIfView
from horae.traces.yaml_files import read_text

app = typer.Typer(add_completion=False)
SECONDS = 30.0
_OPTIONS = {  # by field of a request, or of a setup
    "since": "--since", "policy": "--policy", "nodes": "--nodes", "more_nodes": "--more-nodes", "cells": "--cells",
    "virtualClusters": "--cells", "weight": "--weight", "cluster": "--cluster", "round_seconds": "--round-seconds",
}  # fmt: skip


@app.command(
    epilog=examples(
        "horae whatif --policy themis --since 7d",
        "horae whatif --journal run.jsonl --policy tiresias --since 2h",
        "horae whatif --more-nodes 4x8:A100 -o json",
    )
)
def whatif(
    policy: Annotated[
        str | None, typer.Option(help="Another policy, with options as YAML: 'tiresias={limits: [1, 3]}'.")
    ] = None,
    pool: Annotated[str | None, typer.Option(help="The pool that has it; else all.")] = None,
    cluster: Annotated[Path | None, typer.Option(help="Another cluster file.")] = None,
    nodes: Annotated[list[str] | None, typer.Option(help="A quick cluster instead: 20x8:A100. Repeatable.")] = None,
    more_nodes: Annotated[list[str] | None, typer.Option(help="Nodes besides those that there were: 4x8:A100.")] = None,
    cells: Annotated[
        list[str] | None, typer.Option(help="Cells of a tenant instead of its own: nlp:A100.node=2. Repeat for more.")
    ] = None,
    weight: Annotated[list[str] | None, typer.Option(help="The weight of a tenant: nlp=2. Repeat for more.")] = None,
    cadence: Annotated[str | None, typer.Option(help="When policies are asked: events or rounds.")] = None,
    round_seconds: Annotated[float | None, typer.Option(help="Length of a round.")] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            "--at",
            help="The moment from which on it is different: a date, or so long ago, 7d; in a journal a date or a time "
            "of the log, 2h. Else the journal's beginning, or a day ago.",
        ),
    ] = None,
    journal: Annotated[
        Path | None,
        typer.Option(help="A file made with --journal or `horae journal`, or the state folder of a service."),
    ] = None,
    seconds: Annotated[float | None, typer.Option(min=0.1, max=600.0, help="The time budget of the answer.")] = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Tell what would have happened since some past moment if the setup had been another.

    The jobs of the log come again, as long as they really were. Without a change the recorded events are decided again.
    """
    request = _request(policy, pool, cluster, nodes, more_nodes, cells, weight, cadence, round_seconds)
    if journal is None:
        asked = checked(WhatIfRequest, request | {"since": moment(since, "--since", now())})
        with Client(timeout_seconds=2 * (seconds or SECONDS) + 60.0) as client:
            found = client.whatif(asked, seconds=seconds or SECONDS)
    else:
        checked(WhatIfRequest, request)
        found = _offline(journal, request, since, seconds)
    if output is OutputFormat.JSON:
        print(json.dumps(plain(found) if found.is_dated else found.model_dump(), indent=2))
    else:
        print("\n".join(describe(found)))


def _offline(journal: Path, request: dict[str, Any], since: str | None, seconds: float | None) -> WhatIfView:
    from horae.cli.whatif_journal import answer  # noqa: PLC0415  (it imports the scheduler, which the service has)

    try:
        return WhatIfView.model_validate(answer(journal, request, since, seconds))
    except InputError as error:
        if error.file or not error.field or error.field.startswith("-"):
            raise
        raise InputError(error.problem, field=_OPTIONS.get(error.field, ""), remedy=error.remedy) from None


def _request(
    policy: str | None,
    pool: str | None,
    cluster: Path | None,
    nodes: list[str] | None,
    more_nodes: list[str] | None,
    cells: list[str] | None,
    weight: list[str] | None,
    cadence: str | None,
    round_seconds: float | None,
) -> dict[str, Any]:
    """The options as a request; the service checks what they mean."""
    if pool is not None and policy is None:
        raise InputError("is given without --policy", field="--pool", remedy="name the policy that it has")
    found: dict[str, Any] = {"nodes": nodes or [], "more_nodes": more_nodes or []}
    if policy is not None:
        name, options = _named(policy)
        found["policies"] = {pool or "*": {"policy": name, "options": options}}
    if cluster is not None:
        found["cluster"] = read_text(cluster, "name a cluster file")
    found["cells"] = _cells(cells or [])
    found["weights"] = {tenant: _number(text) for tenant, text in key_values(weight, "--weight", "nlp=2").items()}
    if cadence is not None and cadence not in ("events", "rounds"):
        raise InputError(f"is {cadence!r}", field="--cadence", remedy="use events or rounds")
    return found | {"cadence": cadence, "round_seconds": round_seconds}


def _named(text: str) -> tuple[str, dict[str, Any]]:
    from horae.experiments.inputs import named_options  # noqa: PLC0415  (it imports the scheduler)

    return named_options(text, "--policy")


def _cells(words: list[str]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for name, count in key_values(words, "--cells", "nlp:A100.node=2").items():
        tenant, colon, cell = name.partition(":")
        if not (colon and tenant and cell and count.isascii() and count.isdigit()):
            raise InputError(f"is {name}={count}", field="--cells", remedy="write nlp:A100.node=2")
        found.setdefault(tenant, {})[cell] = int(count)
    return found


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"is {text!r}", field="--weight", remedy="write nlp=2") from None
