"""HiveD's virtual clusters as pools of ours: cells by the names of our chains, and pinned cells by their places."""

from __future__ import annotations

from horae.model.cells import GPU, NODE, Cluster
from horae.model.chains import Chain, Pin
from horae.model.errors import ClusterError
from horae.model.layout import layout_of
from horae.model.pools import PoolSpec
from horae.traces.readers.hived_config import HivedConfig, level_above

SPARE = "spare"


def hived_pools(config: HivedConfig) -> tuple[Cluster, tuple[PoolSpec, ...]]:
    """The cluster, a pool for each virtual cluster that has cells, and one for all other work.

    Whether the cells fit together is not checked here. A virtual cluster that cannot be a tenant, or a pinned cell that
    two of them have, is a ClusterError.
    """
    chains, pins = config.territory.chains, {pin.name: pin for pin in config.territory.pins}
    ours = {node: chain.name for chain in layout_of(config.cluster, {}).territory.chains for node in chain.nodes}
    owner: dict[str, str] = {}
    pools = []
    for reservation in config.territory.reservations:
        cells: dict[str, int] = {}
        for kind, count in reservation.cells.items():
            if count:  # two chains of HiveD's may be one of ours
                chain = chains[kind.chain]
                name = f"{ours[chain.nodes[0]]}.{level_name(chain, kind.level)}"
                cells[name] = cells.get(name, 0) + count
        for pin in reservation.pinned:
            if pin in owner:
                problem = f"pinned cell {pin!r} is given to {owner[pin]!r} and to {reservation.tenant!r}"
                raise ClusterError(problem, field="virtualClusters", remedy="give it to one, once")
            owner[pin] = reservation.tenant
        pinned = {name: _place(config, pins[name]) for name in reservation.pinned}
        if reservation.tenant == SPARE:
            problem = f"virtual cluster {SPARE!r} has the name of the pool for all other work"
            raise ClusterError(problem, field="virtualClusters", remedy="choose another name")
        if cells or pinned:
            tenants = (reservation.tenant,)
            pools.append(PoolSpec(reservation.tenant, tenants=tenants, cells=cells, pinned=pinned))
    return config.cluster, (*pools, PoolSpec(SPARE))


def level_name(chain: Chain, level: int) -> str:
    """Our name of a level of one of HiveD's chains."""
    if level > chain.node_level:
        return level_above(chain.types[level], level - chain.node_level - 1)
    return NODE if level == chain.node_level else GPU if level == 0 else chain.types[level]


def first_node(config: HivedConfig, pin: Pin) -> str:
    chain = config.territory.chains[pin.kind.chain]
    return chain.nodes[chain.cell_in(0, pin.cell * chain.gpus[pin.kind.level], chain.node_level)]


def _place(config: HivedConfig, pin: Pin) -> str:
    chain, level, node = config.territory.chains[pin.kind.chain], pin.kind.level, first_node(config, pin)
    if level == chain.node_level:
        return node
    name = level_name(chain, level)
    if level > chain.node_level:
        return f"{name}/{dict(config.cluster.nodes[config.cluster.node_index[node]].groups)[name]}"
    return f"{node}/{name}/{pin.cell % (chain.node_gpus // chain.gpus[level])}"
