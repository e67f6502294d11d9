"""`horae cluster`: shows or converts a cluster file, of Horae or HiveD."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from horae.cells.allocator import CellAllocator
from horae.cells.binding import CellBinding
from horae.cli.text import examples
from horae.experiments.inputs import cluster_of
from horae.model.chain_layout import ChainLayout
from horae.model.errors import ClusterError, InputError
from horae.model.safe_text import counted
from horae.model.setup import PoolSpec
from horae.reports.cluster_tree import draw
from horae.traces.clusters.hived import HivedConfig, is_hived, read_hived
from horae.traces.clusters.hived_conversion import converted
from horae.traces.clusters.node_table import is_node_table

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Look at a cluster file.",
    epilog=examples("horae cluster show lab.yaml", "horae cluster convert hived.yaml --write lab.yaml"),
)


@app.command("show", epilog=examples("horae cluster show lab.yaml", "horae cluster show hived.yaml"))
def show(
    file: Annotated[Path, typer.Argument(help="A cluster file (YAML), ours or HiveD's, or a table of nodes (CSV).")],
) -> None:
    """Draw the tree of cells, and which tenant owns what."""
    if not is_node_table(file) and is_hived(file):
        _show_hived(_checked(file))
        return
    setup = cluster_of(file)
    print(draw(setup.cluster))
    layout = CellBinding(setup.cluster, setup.pools).layout
    for pool in setup.pools:
        lent = any(each.reserves for each in setup.pools) and not pool.reserves
        print(f"pool {pool.name}: {pool.policy}, {'what is idle' if lent else _owned(pool, layout)}")


def _owned(pool: PoolSpec, layout: ChainLayout) -> str:
    if pool.reserves:
        cells = [f"{count} x {name}{_split(pool, name, layout)}" for name, count in pool.cells.items()]
        return ", ".join([*cells, *(f"pinned {name} ({place})" for name, place in pool.pinned.items())])
    return f"{counted(len(pool.nodes), 'node')} of its own" if pool.nodes else "all other nodes"


def _split(pool: PoolSpec, name: str, layout: ChainLayout) -> str:
    """How cells that exist in several chains are divided among them."""
    chains, split = layout.territory.chains, layout.named[pool.name][name]
    if name.rpartition(".")[0].lower() in (chains[kind.chain].name.lower() for kind in split) or not split:
        return ""
    return f" ({', '.join(f'{count} of {chains[kind.chain].name}' for kind, count in split.items())})"


@app.command(
    "convert", epilog=examples("horae cluster convert hived.yaml", "horae cluster convert hived.yaml --write lab.yaml")
)
def convert(
    file: Annotated[Path, typer.Argument(help="A configuration of HiveD's (YAML).")],
    write: Annotated[Path | None, typer.Option(help="Write it here instead of printing it.")] = None,
) -> None:
    """Turn a configuration of HiveD's into a cluster file."""
    if not is_hived(file):
        raise InputError("is no configuration of HiveD's", file=str(file), remedy="name one with a physicalCluster")
    text = converted(_checked(file), file)
    if write is None:
        print(text, end="")
    else:
        write.write_text(text, encoding="utf-8")


def _checked(file: Path) -> HivedConfig:
    """A HiveD configuration, after checking that its virtual clusters fit."""
    config = read_hived(file)
    try:
        CellAllocator(config.territory)
    except ClusterError as error:
        raise error.located(file=str(file)) from None
    return config


def _show_hived(config: HivedConfig) -> None:
    print(draw(config.cluster))
    for name, virtual in config.virtual_clusters.items():
        cells = [f"{count} x {cell_type}" for cell_type, count in virtual.cells]
        print(f"virtual cluster {name}: {', '.join([*cells, *(f'pinned {pin}' for pin in virtual.pinned)])}")
