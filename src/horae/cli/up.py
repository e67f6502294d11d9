"""`horae up`: the service on this machine, in one command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from horae.cli.text import examples

if TYPE_CHECKING:
    from horae.model.cluster import Node

app = typer.Typer(add_completion=False)


_CONFIG = Path("horae.yaml")
EngineName = Literal["local", "kubernetes"]


@app.command(
    epilog=examples("horae up", "horae up --emulate 1x8:A100 --emulate 1x4:V100", "horae up --config horae.yaml")
)
def up(
    config: Annotated[
        Path | None, typer.Option(help="Nodes, tenants, limits, users; else horae.yaml here, if there is one.")
    ] = None,
    state: Annotated[Path | None, typer.Option(help="The folder of the service; else HORAE_STATE.")] = None,
    emulate: Annotated[list[str] | None, typer.Option(help="Emulated GPUs: 1x8:A100 is a node with eight.")] = None,
    store: Annotated[
        str | None,
        typer.Option(envvar="HORAE_STORE", help="postgresql://...; else as in the file: a file in the state folder."),
    ] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65535, help="The API's port on this machine.")] = None,
    standby: Annotated[bool, typer.Option(help="Wait until the present leader is gone; needs PostgreSQL.")] = False,
    engine: Annotated[EngineName | None, typer.Option(help="Where jobs run; else as in the file: local.")] = None,
    kubeconfig: Annotated[Path | None, typer.Option(help="The Kubernetes cluster; else as in the file.")] = None,
    stop_jobs: Annotated[bool, typer.Option(help="At the end, stop jobs with their grace; else they run on.")] = False,
) -> None:
    """Run the service: schedule jobs on this machine until Ctrl-C. Jobs outlive it, and the next one adopts them.

    Changes of the configuration file are applied while it runs; `horae health` tells if one cannot be.
    """
    # The service takes a second to import.
    from horae.model.errors import InputError  # noqa: PLC0415
    from horae.service.config import KubernetesEntry, ServiceConfig, configure, default_state  # noqa: PLC0415
    from horae.service.local_jobs import detected_nodes  # noqa: PLC0415
    from horae.service.up import run  # noqa: PLC0415

    folder = (state or default_state()).expanduser().absolute()
    file = config or (_CONFIG if _CONFIG.exists() else None)
    detected = [] if emulate or engine == "kubernetes" else detected_nodes()

    def discover(entry: KubernetesEntry) -> list[Node]:
        from horae.service.kubernetes.discovery import nodes_of  # noqa: PLC0415

        if kubeconfig is not None:
            entry.kubeconfig = kubeconfig.absolute()
        return nodes_of(entry)

    def read() -> ServiceConfig:
        emulated = list(emulate or ())
        return configure(folder, file, emulated, detected, store, port, engine=engine, discover=discover)

    chosen = read()
    if standby and chosen.is_embedded:
        remedy = "give --store postgresql://..."
        raise InputError("needs a store that two processes share", field="--standby", remedy=remedy)
    run(
        chosen,
        standby=standby,
        stop_jobs=stop_jobs,
        tell=lambda line: print(line, flush=True),
        file=file and file.absolute(),
        read=read,
    )
