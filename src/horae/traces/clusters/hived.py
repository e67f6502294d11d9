"""Reads HiveD's configuration (Zhao et al., OSDI'20) unchanged: cell types, physical cells and virtual clusters.

A cell of a node-level type becomes a node, named by its address; the types below it become levels inside the node, the
cell above it its rack, and types above that levels of their own names. HiveD has one chain per top-level type, Horae
one per GPU type: `chains` maps top-level types to nodes. Fields that are not about cells are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from horae.model.chains import CellKind, Chain, Pin, Reservation, Territory
from horae.model.cluster import RACK, Cluster, Node
from horae.model.errors import ClusterError
from horae.traces.job_row import GPUS_MAX
from horae.traces.yaml_files import TEXT_BYTES_MAX, YamlFile, read_yaml


def _list(value: object) -> object:
    """The list, or an empty one where the file has a key without a value."""
    return [] if value is None else value


Count = Annotated[int, Field(gt=0)]
Text = Annotated[str, BeforeValidator(lambda value: str(value) if isinstance(value, int) else value)]
Place = tuple[str | int, ...]  # in the file


class CellType(BaseModel):
    childCellType: Text = ""  # noqa: N815  (names as in the file)
    childCellNumber: Count = 1  # noqa: N815
    isNodeLevel: bool = False  # noqa: N815


class PhysicalCell(BaseModel):
    model_config = ConfigDict(extra="forbid")

    cellType: Text = ""  # noqa: N815
    cellAddress: Text = ""  # noqa: N815
    pinnedCellId: Text = ""  # noqa: N815
    cellChildren: Annotated[list[PhysicalCell], BeforeValidator(_list)] = []  # noqa: N815


class PhysicalCluster(BaseModel):
    cellTypes: dict[str, CellType]  # noqa: N815
    physicalCells: Annotated[list[PhysicalCell], Field(min_length=1)]  # noqa: N815


class VirtualCell(BaseModel):
    cellType: Text  # noqa: N815
    cellNumber: Annotated[int, Field(ge=0)]  # noqa: N815


class PinnedCellName(BaseModel):
    pinnedCellId: Text  # noqa: N815


class VirtualClusterEntry(BaseModel):
    virtualCells: Annotated[list[VirtualCell], BeforeValidator(_list)] = []  # noqa: N815
    pinnedCells: Annotated[list[PinnedCellName], BeforeValidator(_list)] = []  # noqa: N815


class HivedFile(BaseModel):
    physicalCluster: PhysicalCluster  # noqa: N815
    virtualClusters: dict[str, VirtualClusterEntry] = {}  # noqa: N815


@dataclass(frozen=True)
class VirtualCluster:
    cells: tuple[tuple[str, int], ...]  # (type as in the file, e.g. 3-K80-NODE.K80-NODE; number of cells)
    pinned: tuple[str, ...]


@dataclass(frozen=True)
class PinnedCell:
    cell_type: str
    address: str  # from the top-level cell down, with / between
    nodes: tuple[str, ...]  # that it holds, or the one that holds it


@dataclass(frozen=True)
class HivedConfig:
    cluster: Cluster
    chains: Mapping[str, tuple[str, ...]]  # by top-level cell type: nodes
    virtual_clusters: Mapping[str, VirtualCluster]
    pinned: Mapping[str, PinnedCell]
    territory: Territory
    machines: tuple[
        tuple[str, ...], ...
    ]  # by chain and node: its address; several chains may have cells of one machine
    gpu_addresses: tuple[tuple[tuple[str, ...], ...], ...]  # by chain and node: of its GPUs, in our order


class _Cell(NamedTuple):
    """A physical cell with omitted fields filled in."""

    cell_type: str
    address: str
    path: str
    pinned: str
    place: Place
    children: tuple[_Cell, ...]


def is_hived(path: Path) -> bool:
    """Whether a YAML file is a HiveD configuration, by the one field that all of them have."""
    try:
        with path.open("rb") as file:
            head = file.read(TEXT_BYTES_MAX)
        return re.search(rb"^physicalCluster\s*:", head, re.MULTILINE) is not None
    except OSError:
        return False


def read_hived(path: Path) -> HivedConfig:
    file = read_yaml(path, HivedFile)
    types = file.value.physicalCluster.cellTypes
    for name in types:
        _chain(file, name, "physicalCluster", "cellTypes", name)
    tops = [
        _filled(file, cell, cell.cellType, index, "", ("physicalCluster", "physicalCells", index))
        for index, cell in enumerate(file.value.physicalCluster.physicalCells)
    ]
    names = _names(file, tops)
    try:
        groups = _group_names(tops)
        cluster = Cluster("hived", tuple(node for top in tops for node in _nodes(file, top, names, groups)))
    except ClusterError as error:
        raise file.place(error, "physicalCluster", "physicalCells") from None
    pinned = _pinned(file, tops, names)
    chains: dict[str, tuple[str, ...]] = {}
    for top in tops:
        chains[top.cell_type] = (*chains.get(top.cell_type, ()), *_node_names(top, names))
    clusters = _virtual_clusters(file, set(pinned))
    return HivedConfig(cluster, chains, clusters, pinned, *_territory(file, tops, names, clusters))


def _chain(file: YamlFile[HivedFile], cell_type: str, *place: str | int) -> list[tuple[str, int]]:
    """The types from this one down to a GPU, each with its number of GPUs."""
    types = file.value.physicalCluster.cellTypes
    names, name = [cell_type], cell_type
    while name in types:
        name = types[name].childCellType
        if not name or name in names:
            problem = f"type {cell_type!r} never comes down to a GPU"
            raise file.place(ClusterError(problem, remedy="give each type the type of its children"), *place)
        names.append(name)
    sizes = [1]
    for parent in reversed(names[:-1]):
        sizes.append(sizes[-1] * types[parent].childCellNumber)
        if sizes[-1] > GPUS_MAX:
            problem = f"type {parent!r} has more than {GPUS_MAX:,} GPUs"
            raise file.place(ClusterError(problem, remedy="give fewer children"), *place)
    return list(zip(names, reversed(sizes), strict=True))


def _filled(
    file: YamlFile[HivedFile], cell: PhysicalCell, cell_type: str, number: int, prefix: str, place: Place
) -> _Cell:
    """Fills in omitted fields as HiveD does: children by their types, addresses by counting within node or top cell."""
    if not cell_type:
        raise file.place(ClusterError("has no cellType", remedy="name one of cellTypes"), *place)
    if cell.cellType not in ("", cell_type):
        problem = f"is a {cell.cellType}, where a {cell_type} should be"
        raise file.place(ClusterError(problem, remedy="leave it out, or fix it"), *place, "cellType")
    address = cell.cellAddress or str(number)
    kind = file.value.physicalCluster.cellTypes.get(cell_type)
    children: list[_Cell] = []
    if kind is None and cell.cellChildren:
        problem = f"{cell_type!r} has no children"
        raise file.place(ClusterError(problem, remedy="add it to cellTypes, or drop them"), *place, "cellChildren")
    if kind is not None:
        given = cell.cellChildren or [PhysicalCell() for _ in range(kind.childCellNumber)]
        if len(given) != kind.childCellNumber:
            problem = f"has {len(given)} children, where a {cell_type} has {kind.childCellNumber}"
            raise file.place(ClusterError(problem, remedy="list all of them"), *place, "cellChildren")
        first = 0 if kind.isNodeLevel else number * kind.childCellNumber
        for index, child in enumerate(given):
            below = (*place, "cellChildren", index)
            children.append(_filled(file, child, kind.childCellType, first + index, f"{prefix}{address}/", below))
    return _Cell(cell_type, address, prefix + address, cell.pinnedCellId, place, tuple(children))


def _names(file: YamlFile[HivedFile], tops: list[_Cell]) -> dict[Place, str]:
    """The cells that are nodes, by their places, with a name for each.

    The name is the address, with the GPU type where a machine has several: each of them is a separate node in Horae.
    """
    found = [node for top in tops for node in _node_cells(file, top)]
    types: dict[str, set[str]] = {}
    for cell, accelerator in found:
        types.setdefault(cell.address, set()).add(accelerator)
    return {
        cell.place: f"{cell.address}:{accelerator}" if len(types[cell.address]) > 1 else cell.address
        for cell, accelerator in found
    }


def _node_cells(file: YamlFile[HivedFile], cell: _Cell) -> Iterator[tuple[_Cell, str]]:
    """The nodes inside a cell, each with its GPU type."""
    types = file.value.physicalCluster.cellTypes
    if cell.cell_type not in types:
        remedy = "set isNodeLevel: true for one type of its chain"
        raise file.place(ClusterError("is in no node", remedy=remedy), *cell.place)
    if not types[cell.cell_type].isNodeLevel:
        for child in cell.children:
            yield from _node_cells(file, child)
        return
    _, *inner, (accelerator, _) = _chain(file, cell.cell_type, *cell.place)
    if any(types[name].isNodeLevel for name, _ in inner):
        problem = f"type {cell.cell_type!r} is a node that holds nodes"
        raise file.place(ClusterError(problem, remedy="set isNodeLevel for one type of a chain"), *cell.place)
    yield cell, accelerator


def _group_names(tops: list[_Cell]) -> dict[Place, str]:
    """By place, a name for each cell: its path, with a number where addresses coincide."""
    found: dict[Place, str] = {}
    taken: dict[str, int] = {}
    for cell, _ in (inside for top in tops for inside in _walk(top, {})):
        number = taken[cell.path] = taken.get(cell.path, -1) + 1
        found[cell.place] = f"{cell.path}#{number}" if number else cell.path
    return found


def _nodes(
    file: YamlFile[HivedFile],
    cell: _Cell,
    names: Mapping[Place, str],
    groups: Mapping[Place, str],
    above: tuple[tuple[str, str], ...] = (),
) -> Iterator[Node]:
    """The nodes inside a cell; `above` are the cells that hold it: (type, name), finest first."""
    if cell.place in names:
        (_, gpus), *inner, (accelerator, _) = _chain(file, cell.cell_type, *cell.place)
        levels = tuple((level_above(kind, index), name) for index, (kind, name) in enumerate(above))
        yield Node(names[cell.place], accelerator, gpus, levels=tuple(reversed(inner)), above=levels)
        return
    for child in cell.children:
        yield from _nodes(file, child, names, groups, ((cell.cell_type, groups[cell.place]), *above))


def level_above(cell_type: str, number: int) -> str:
    """Horae's name for a level above nodes; `number` counts these levels from 0."""
    return cell_type if number else RACK


def _node_names(cell: _Cell, names: Mapping[Place, str]) -> Iterator[str]:
    return (names[inner.place] for inner, _ in _walk(cell, names) if inner.place in names)


def _pinned(file: YamlFile[HivedFile], tops: list[_Cell], names: Mapping[Place, str]) -> dict[str, PinnedCell]:
    pinned: dict[str, PinnedCell] = {}
    for cell, node in (found for top in tops for found in _walk(top, names)):
        if cell.pinned in pinned:
            problem = f"{cell.pinned!r} is taken by {pinned[cell.pinned].address}"
            raise file.place(ClusterError(problem, remedy="choose another"), *cell.place, "pinnedCellId")
        if cell.pinned:
            nodes = (node,) if node else tuple(_node_names(cell, names))
            pinned[cell.pinned] = PinnedCell(cell.cell_type, cell.path, nodes)
    return pinned


def _territory(
    file: YamlFile[HivedFile],
    tops: list[_Cell],
    names: Mapping[Place, str],
    clusters: Mapping[str, VirtualCluster],
) -> tuple[Territory, tuple[tuple[str, ...], ...], tuple[tuple[tuple[str, ...], ...], ...]]:
    """The same as chains of equal cells, one for each type of top-level cell."""
    types = file.value.physicalCluster.cellTypes
    by_type: dict[str, list[_Cell]] = {}
    for top in tops:
        by_type.setdefault(top.cell_type, []).append(top)
    chains, machines, addresses = [], [], []
    pins: list[Pin] = []
    for index, (name, cells) in enumerate(by_type.items()):
        down = [step for step, _ in _chain(file, name, *cells[0].place)]
        up = tuple(reversed(down))
        fanout = (1, *(types[step].childCellNumber for step in up[1:]))
        nodes = [cell for top in cells for cell, _ in _walk(top, names) if cell.place in names]
        node_level = up.index(nodes[0].cell_type)
        chains.append(Chain(name, up[0], up, fanout, tuple(names[cell.place] for cell in nodes), node_level))
        machines.append(tuple(cell.address for cell in nodes))
        addresses.append(tuple(tuple(_leaves(cell)) for cell in nodes))
        for top_index, top in enumerate(cells):
            pins += _pins(top, len(down) - 1, top_index, index, fanout)
    return Territory(tuple(chains), _reservations(chains, clusters), tuple(pins)), tuple(machines), tuple(addresses)


def _leaves(cell: _Cell) -> Iterator[str]:
    if not cell.children:
        yield cell.address
    for child in cell.children:
        yield from _leaves(child)


def _pins(cell: _Cell, level: int, number: int, chain: int, fanout: tuple[int, ...]) -> Iterator[Pin]:
    if cell.pinned:
        yield Pin(cell.pinned, CellKind(chain, level), number)
    for index, child in enumerate(cell.children):
        yield from _pins(child, level - 1, number * fanout[level] + index, chain, fanout)


def _reservations(chains: list[Chain], clusters: Mapping[str, VirtualCluster]) -> tuple[Reservation, ...]:
    numbers = {chain.name: index for index, chain in enumerate(chains)}
    found = []
    for tenant, cluster in clusters.items():
        cells: dict[CellKind, int] = {}
        for path, count in cluster.cells:
            names = path.split(".")
            chain = numbers[names[0]]
            kind = CellKind(chain, chains[chain].types.index(names[-1]))
            cells[kind] = cells.get(kind, 0) + count
        found.append(Reservation(tenant, cells, cluster.pinned))
    return tuple(found)


def _walk(cell: _Cell, names: Mapping[Place, str], node: str = "") -> Iterator[tuple[_Cell, str]]:
    """This cell and all inside it, each with the node that holds it, if there is one."""
    node = names.get(cell.place, node)
    yield cell, node
    for child in cell.children:
        yield from _walk(child, names, node)


def _virtual_clusters(file: YamlFile[HivedFile], pinned: set[str]) -> dict[str, VirtualCluster]:
    clusters = {}
    for name, entry in file.value.virtualClusters.items():
        for index, cell in enumerate(entry.virtualCells):
            _check_path(file, cell.cellType, "virtualClusters", name, "virtualCells", index, "cellType")
        for index, pin in enumerate(entry.pinnedCells):
            if pin.pinnedCellId not in pinned:
                error = ClusterError(f"there is no pinned cell {pin.pinnedCellId!r}", remedy="pin it in physicalCells")
                raise file.place(error, "virtualClusters", name, "pinnedCells", index, "pinnedCellId")
        cells = tuple((cell.cellType, cell.cellNumber) for cell in entry.virtualCells)
        clusters[name] = VirtualCluster(cells, tuple(pin.pinnedCellId for pin in entry.pinnedCells))
    return clusters


def _check_path(file: YamlFile[HivedFile], path: str, *place: str | int) -> None:
    """Checks a path TOP or TOP.….TYPE: from a type of physical cells down to one inside it."""
    tops = {cell.cellType for cell in file.value.physicalCluster.physicalCells}
    names = path.split(".")
    if names[0] not in tops:
        problem = f"there is no physical cell of type {names[0]!r}"
        raise file.place(ClusterError(problem, remedy=f"begin with one of {', '.join(sorted(tops))}"), *place)
    inside = [name for name, _ in _chain(file, names[0], *place)]
    positions = [inside.index(name) if name in inside else -1 for name in names]
    if -1 in positions or positions != sorted(positions):
        problem = f"{path!r} does not lead from a cell to one inside it"
        raise file.place(ClusterError(problem, remedy=f"go down from {' to '.join(inside)}"), *place)
