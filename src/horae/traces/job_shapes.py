"""The shapes that a job accepts, with their speeds: the meaning of `level`, `slowdown`, `speed` etc. in a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from pydantic import ValidationError

from horae.model.cluster import CLUSTER, NODE, RACK, Cluster
from horae.model.errors import JobError
from horae.model.shapes import Option, Shape
from horae.traces.gpu_names import find_types
from horae.traces.job_row import ANY, JobRow
from horae.traces.yaml_files import first_complaint

NODES_NAMED_MAX = 8  # in an error's remedy


class Speeds(Protocol):
    """Training speeds of models, from tables or fitted curves."""

    def steps_per_second(self, model: str, shape: Shape) -> float | None:
        """The speed of a model in a shape. None: unknown. 0: it does not fit there."""


class RequestedShapes(NamedTuple):
    """Everything that determines a job's shapes, from its row; None where the row has no value."""

    gpus: int
    gpu_type: str | None = None
    speed: str | None = None
    true_speed: str | None = None
    level: str | None = None
    slowdown: str | None = None
    member_gpus: int | None = None
    members: str | None = None
    nodes: str | None = None
    model: str | None = None


class JobShapes(NamedTuple):
    believed: tuple[Option, ...]
    true: tuple[Option, ...]
    member_gpus: int
    members: tuple[int, ...]
    nodes: tuple[str, ...]
    unknown_model: str  # a model without known speeds; all speeds are then 1, which is right for run times only


def shapes(
    wish: RequestedShapes,
    cluster: Cluster,
    speeds: Speeds | None,
    whole_nodes: bool,
    aliases: Mapping[str, str] | None = None,
) -> JobShapes:
    """The shapes of a job; errors name the field that asks for something the cluster does not have.

    `aliases`: by a name of a GPU type in the trace, that of the cluster.
    """
    row = _named_as_here(_row(wish), cluster, aliases)
    true = None if row.true_speed is None else _by_type(row.true_speed, cluster, "true_speed")
    believed = () if speeds is None or wish.speed or not wish.model else _of_model(row, cluster, speeds)
    types = list(dict.fromkeys(option.shape.accelerator for option in believed))
    is_known = bool(types)
    if not types:
        by_type = _by_type(row.speed, cluster, "speed")
        types = _types(row, cluster, by_type)
        believed = _options(row, cluster, types, by_type, "speed")
    true_options = believed if true is None else _options(row, cluster, types, true, "true_speed")
    member_gpus = row.member_gpus if wish.member_gpus or not whole_nodes else _whole_nodes(row, cluster, types)
    members, nodes = tuple(row.members), _nodes(row, cluster)
    return JobShapes(believed, true_options, member_gpus, members, nodes, "" if is_known or wish.speed else row.model)


def _row(wish: RequestedShapes) -> JobRow:
    given = {name: value for name, value in wish._asdict().items() if value is not None}
    try:
        return JobRow.model_validate({"submit": 0, **given})
    except ValidationError as error:
        details, problem, remedy = first_complaint(error)
        raise JobError(problem, field=str(details["loc"][0]), remedy=remedy) from None


def _named_as_here(row: JobRow, cluster: Cluster, aliases: Mapping[str, str] | None) -> JobRow:
    """The row with GPU types named as the cluster names them; names that it does not have stay as they are."""

    def here(name: str) -> tuple[str, ...]:
        return (name,) if name == ANY else find_types(name, cluster.accelerators, aliases) or (name,)

    def by_type(numbers: dict[str, float]) -> dict[str, float]:
        return {kind: number for name, number in numbers.items() for kind in here(name)}

    changes: dict[str, object] = {"gpu_type": [kind for name in row.gpu_type for kind in here(name)]}
    changes["speed"] = by_type(row.speed)
    if row.true_speed is not None:
        changes["true_speed"] = by_type(row.true_speed)
    return row.model_copy(update=changes)


def _nodes(row: JobRow, cluster: Cluster) -> tuple[str, ...]:
    """The nodes named by the row; unknown ones are kept, because they may join, but one must exist."""
    if row.nodes and not any(name in cluster.node_index for name in row.nodes):
        known = ", ".join(list(cluster.node_index)[:NODES_NAMED_MAX])
        remedy = f"use nodes of the cluster: {known}{', ...' if len(cluster.nodes) > NODES_NAMED_MAX else ''}"
        raise JobError(f"there is no node {row.nodes[0]!r} in the cluster", field="nodes", remedy=remedy)
    return tuple(row.nodes)


def _by_type(speed: dict[str, float], cluster: Cluster, field: str) -> dict[str, float]:
    if list(speed) == [ANY]:
        return dict.fromkeys(cluster.accelerators, speed[ANY])
    return {name: speed[name] for name in _known_types(speed, cluster, field)}


def _known_types(names: Iterable[str], cluster: Cluster, field: str) -> list[str]:
    """The named types without duplicates. Types that the cluster lacks are ignored, as long as one remains."""
    asked = list(dict.fromkeys(names))
    known = [name for name in asked if name in cluster.accelerators]
    if asked and not known:
        raise JobError(
            f"GPU type {asked[0]!r} is not in the cluster", field=field, remedy=f"use {', '.join(cluster.accelerators)}"
        )
    return known


def _check_level(name: str, cluster: Cluster, field: str) -> None:
    if name not in cluster.levels:
        known = ", ".join(cluster.levels)
        raise JobError(f"there is no level {name!r} in the cluster", field=field, remedy=f"use {known}")


def _preferred(row: JobRow, cluster: Cluster) -> list[str]:
    return _known_types(row.gpu_type, cluster, "gpu_type")


def _types(row: JobRow, cluster: Cluster, speed: dict[str, float]) -> list[str]:
    """The GPU types accepted, in order of preference: as in the row, else all with a speed, fastest first."""
    ranked = sorted(cluster.accelerators, key=lambda name: -speed.get(name, 0.0))
    return _preferred(row, cluster) or [name for name in ranked if name in speed]


def _options(
    row: JobRow, cluster: Cluster, types: list[str], speed: dict[str, float], field: str
) -> tuple[Option, ...]:
    for name in types:
        if name not in speed:
            raise JobError(f"is missing for GPU type {name!r}", field=field, remedy="add it, or drop the type")
    return tuple(option for name in types for option in _slowed(row, cluster, name, speed[name]))


def _widest(row: JobRow, cluster: Cluster, accelerator: str) -> int:
    """The index of the largest level that may hold the gang."""
    if row.level:
        _check_level(row.level, cluster, "level")
    fits_node = row.gpus <= cluster.largest_cell[cluster.node_level][accelerator]
    return cluster.levels.index(row.level or (NODE if fits_node else CLUSTER))


def _slowed(row: JobRow, cluster: Cluster, accelerator: str, speed: float) -> list[Option]:
    """The accepted shapes of one type, finest first: several only where the job is slower in a larger cell."""
    widest = _widest(row, cluster, accelerator)
    for name in row.slowdown:
        _check_level(name, cluster, "slowdown")
    slowdown, by_level = 1.0, {}
    for level, name in enumerate(cluster.levels[: widest + 1]):
        slowdown = max(slowdown, row.slowdown.get(name, 1.0))
        # A cell too small for the gang is not an option; the widest is kept even then, to be rejected with a reason.
        if level == widest or cluster.largest_cell[level][accelerator] >= row.gpus:
            by_level[level] = speed / slowdown
    return _distinct(row, cluster, accelerator, by_level)


def _distinct(row: JobRow, cluster: Cluster, accelerator: str, by_level: dict[int, float]) -> list[Option]:
    """Drops redundant levels: of levels with equal speed the widest is enough,
    because what fits a finer one fits there."""
    levels = sorted(by_level)
    return [
        Option(Shape(accelerator, row.gpus, cluster.levels[level]), by_level[level])
        for level, wider in zip(levels, [*levels[1:], None], strict=False)
        if wider is None or by_level[level] != by_level[wider]
    ]


def _of_model(row: JobRow, cluster: Cluster, speeds: Speeds) -> tuple[Option, ...]:
    """Shapes and speeds from tables, fastest type first unless the row states an order;
    empty if the model is unknown."""
    types = _preferred(row, cluster)
    found = {name: _levels_of_model(row, cluster, speeds, name) for name in types or cluster.accelerators}
    known = {name: options for name, options in found.items() if options is not None}
    if known and not any(known.values()):
        where = ", ".join(known)
        raise JobError(f"{row.model!r} does not fit on {row.gpus} x {where}", field="model", remedy="ask for more GPUs")
    fitting = [options for options in known.values() if options]
    if not types:
        fitting.sort(key=lambda options: -options[0].steps_per_second)
    return tuple(option for options in fitting for option in options)


def _levels_of_model(row: JobRow, cluster: Cluster, speeds: Speeds, accelerator: str) -> list[Option] | None:
    """Speeds from the node up to the widest level allowed; None where the type is unknown."""
    widest = _widest(row, cluster, accelerator)
    if row.slowdown:
        speed = _speed(row, cluster, speeds, accelerator, min(widest, cluster.node_level))
        return None if speed is None else _slowed(row, cluster, accelerator, speed) if speed else []
    fits_node = row.gpus <= cluster.largest_cell[cluster.node_level][accelerator]
    finest = min(widest, cluster.node_level if fits_node else cluster.node_level + 1)
    asked = {level: _speed(row, cluster, speeds, accelerator, level) for level in range(finest, widest + 1)}
    if all(speed is None for speed in asked.values()):
        return None
    slowest, by_level = float("inf"), {}
    for level, speed in asked.items():
        if speed:
            slowest = by_level[level] = min(slowest, speed)  # a larger cell is never faster than one inside it
    return _distinct(row, cluster, accelerator, by_level)


def _speed(row: JobRow, cluster: Cluster, speeds: Speeds, accelerator: str, level: int) -> float | None:
    """The speed at this level, else at the next wider one, where no job is faster."""
    for number, name in enumerate(cluster.levels[level:], start=level):
        if number > cluster.node_level and name not in (RACK, CLUSTER):
            continue  # speed tables know no other level above nodes, and would take it for one inside a node
        speed = speeds.steps_per_second(row.model, Shape(accelerator, row.gpus, name))
        if speed is not None:
            return speed
    return None


def _whole_nodes(row: JobRow, cluster: Cluster, types: list[str]) -> int:
    """The member size of a gang larger than a node: a node of the smallest kind accepted."""
    nodes = [cluster.largest_cell[cluster.node_level][name] for name in types]
    return min(node for node in nodes) if row.gpus > min(nodes) else 1
