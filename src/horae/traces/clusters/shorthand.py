"""A cluster in shorthand: `20x8`, `20x8:V100`, or `nlp=20x8` for nodes that belong to a tenant."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from horae.model.cluster import Cluster, Node
from horae.model.errors import ClusterError
from horae.model.setup import PoolSpec, Setup
from horae.traces.clusters.file import NODE_GPUS_MAX, RESTART_SECONDS, SPARE

NODES_MAX = 100_000
ACCELERATOR = "gpu"  # where the type is not given
FIELD = "--nodes"
_FORM = re.compile(
    r"(?:(?P<tenant>[^=]+)=)?(?P<nodes>\d{1,9})x(?P<gpus>\d{1,9})(?::(?P<accelerator>[^\s,;:=\x00-\x1f]+))?"
)


class _Group(NamedTuple):
    tenant: str  # "": shared by all tenants
    nodes: int
    gpus: int
    accelerator: str


def is_shorthand(text: str) -> bool:
    return _FORM.fullmatch(text.strip()) is not None


def parse_cluster(texts: Sequence[str], restart_seconds: float = RESTART_SECONDS) -> Setup:
    """The cluster with its pools: one for each tenant that owns nodes, and one for all others."""
    groups = [_group(text) for text in texts]
    names: dict[str, list[str]] = {}  # by tenant
    nodes: list[Node] = []
    for group in groups:
        owned = names.setdefault(group.tenant, [])
        for _ in range(group.nodes):
            owned.append(f"{group.tenant or 'n'}-{len(owned):03}")
            nodes.append(Node(owned[-1], group.accelerator, group.gpus))
    pools = [PoolSpec(name, tenants=(name,), nodes=tuple(owned)) for name, owned in names.items() if name]
    if "" in names:
        pools.append(PoolSpec(SPARE if pools else "all"))
    try:
        return Setup(Cluster("quick", tuple(nodes), restart_seconds), tuple(pools))
    except ClusterError as error:  # nodes of a tenant called n
        raise ClusterError(error.problem, field=FIELD, remedy="give the tenant another name") from None


def _group(text: str) -> _Group:
    found = _FORM.fullmatch(text.strip())
    if found is None:
        raise ClusterError(
            f"{text!r} is no group of nodes",
            field=FIELD,
            remedy="write 20x8, 20x8:V100 or tenant=20x8 (nodes x GPUs)",
        )
    tenant, accelerator = (found["tenant"] or "").strip(), found["accelerator"] or ACCELERATOR
    if tenant == SPARE:
        raise ClusterError(
            f"{SPARE!r} is what the pool of all other nodes is called", field=FIELD, remedy="choose another name"
        )
    return _Group(
        tenant,
        _count(text, "nodes", int(found["nodes"]), NODES_MAX),
        _count(text, "GPUs a node", int(found["gpus"]), NODE_GPUS_MAX),
        accelerator,
    )


def _count(text: str, what: str, number: int, most: int) -> int:
    if not 1 <= number <= most:
        raise ClusterError(f"{text!r} has {number} {what}", field=FIELD, remedy=f"give 1 to {most}")
    return number
