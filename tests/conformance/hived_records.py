"""Histories recorded from HiveD's own code, and where the GPUs they name lie in the cells of a configuration."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from conformance.hived_protocol import Member, Request

from horae.traces.clusters.hived import HivedConfig, read_hived

FOLDER = os.environ.get("HORAE_CONFORMANCE", "")
HIVED = Path(FOLDER) / "hived"

Gpu: TypeAlias = tuple[int, int]  # chain and number in it
Cell: TypeAlias = tuple[int, int, int]  # chain, level and number


@cache
def histories() -> dict[str, dict[str, Any]]:
    if not FOLDER:
        return {}
    with gzip.open(HIVED / "histories.json.gz") as file:
        return {each["name"]: each for each in json.load(file)["scenarios"]}


@cache
def config_of(path: str) -> HivedConfig:
    return read_hived(HIVED / "configs" / Path(path).name)


def request_of(spec: Mapping[str, Any]) -> Request:
    group = spec["affinityGroup"]
    return Request(
        name=group["name"],
        tenant=spec["virtualCluster"],
        members=tuple(each["leafCellNumber"] for each in group["members"] for _ in range(each["podNumber"])),
        priority=spec["priority"],
        accelerator=spec["leafCellType"],
        pinned_cell=spec["pinnedCellId"],
        is_lazy=spec["lazyPreemptionEnable"],
    )


def member_of(expect: Mapping[str, Any]) -> Member:
    return Member(expect["cellChain"], expect["node"], tuple(str(each) for each in expect["leafCellIsolation"]))


@dataclass
class Life:
    """A gang from its first step to the one at which it is gone."""

    gang: str
    first: int
    last: int
    members: list[Member] = field(default_factory=list)  # that were bound, each once


def lives(steps: Sequence[Mapping[str, Any]]) -> list[Life]:
    living: dict[str, Life] = {}
    found: list[Life] = []
    for index, step in enumerate(steps):
        expect = step["expect"]
        for gang in [gang for gang in living if gang not in expect["groupStates"]]:
            living.pop(gang).last = index
        for gang in expect["groupStates"]:
            if gang not in living:
                living[gang] = Life(gang, index, len(steps))
                found.append(living[gang])
        if expect.get("result") == "bind":
            life, member = living[step["spec"]["affinityGroup"]["name"]], member_of(expect)
            if member not in life.members:
                life.members.append(member)
    return found


class Geometry:
    """Where GPUs lie in the cells of a configuration."""

    def __init__(self, config: HivedConfig) -> None:
        self.config = config
        self.chains = {chain.name: index for index, chain in enumerate(config.territory.chains)}

    def gpus(self, member: Member) -> frozenset[Gpu]:
        """By chain and number in it."""
        index = self.chains[member.chain]
        chain, node = self.config.territory.chains[index], self.config.machines[index].index(member.node)
        addresses = self.config.gpu_addresses[index][node]
        return frozenset((index, node * chain.node_gpus + addresses.index(each)) for each in member.gpus)

    def cells(self, member: Member, cell_type: str) -> set[Cell]:
        """The cells of a type that its GPUs lie in: chain, level and number."""
        index = self.chains[member.chain]
        chain = self.config.territory.chains[index]
        level = chain.types.index(cell_type)
        return {(index, level, gpu // chain.gpus[level]) for _, gpu in self.gpus(member)}

    def cell_gpus(self, cell: Cell) -> frozenset[Gpu]:
        index, level, number = cell
        size = self.config.territory.chains[index].gpus[level]
        return frozenset((index, gpu) for gpu in range(number * size, (number + 1) * size))

    def span(self, member: Member) -> int:
        """GPUs of the smallest cell that holds a member."""
        chain = self.config.territory.chains[self.chains[member.chain]]
        numbers = [gpu for _, gpu in self.gpus(member)]
        return min(size for size in chain.gpus if len({gpu // size for gpu in numbers}) == 1)

    def types_of(self, tenant: str, member: Member, pinned_cell: str) -> list[str]:
        """The tenant's types of cells that could hold a member, in the order of the configuration: nodes first."""
        if pinned_cell:
            return [self.config.pinned[pinned_cell].cell_type]
        chain = self.config.territory.chains[self.chains[member.chain]]
        names = [path.split(".") for path, count in self.config.virtual_clusters[tenant].cells if count]
        found = [name[-1] for name in names if name[0] == member.chain]
        fit = [name for name in found if len(self.cells(member, name)) == 1]
        return sorted(dict.fromkeys(fit), key=lambda name: chain.types.index(name) < chain.node_level)

    def quota(self, tenant: str, chain: str, cell_type: str) -> int:
        cells = self.config.virtual_clusters[tenant].cells
        return sum(
            count for path, count in cells if path.split(".")[0] == chain and path.rpartition(".")[2] == cell_type
        )

    def broken_promise(self, used: Mapping[str, set[Cell]]) -> str:
        """Which reservation no longer holds when tenants use these cells, besides pinned ones; "" if all do."""
        taken: set[Gpu] = set()
        pinned = {pin for cluster in self.config.virtual_clusters.values() for pin in cluster.pinned}
        for pin in self.config.territory.pins:
            if pin.name in pinned:
                taken |= self.cell_gpus((*pin.kind, pin.cell))
        for tenant, cells in used.items():
            for cell in cells:
                gpus = self.cell_gpus(cell)
                if taken & gpus:
                    return f"a cell of {tenant} overlaps another one"
                taken |= gpus
        for index, chain in enumerate(self.config.territory.chains):
            promised = 0  # GPUs in unused cells of this level and above
            for level in reversed(range(len(chain.types))):
                for tenant in self.config.virtual_clusters:
                    count = len([cell for cell in used.get(tenant, ()) if cell[:2] == (index, level)])
                    unused = self.quota(tenant, chain.name, chain.types[level]) - count
                    if unused < 0:
                        return f"{tenant} uses more cells {chain.types[level]} than it has"
                    promised += unused * chain.gpus[level]
                size = chain.gpus[level]
                busy = {gpu // size for number, gpu in taken if number == index}
                if (chain.cells(level) - len(busy)) * size < promised:
                    return f"too few cells {chain.types[level]} are left for what was promised"
        return ""

    def guess(self, gpus: int, near: Sequence[Member], taken: frozenset[Gpu]) -> Member | None:
        """GPUs for a member that was never bound: on a node of the gang if possible, as close together as possible."""
        index = self.chains[near[0].chain]
        chain, machines = self.config.territory.chains[index], self.config.machines[index]
        nodes = [machines.index(each.node) for each in near]
        for node in dict.fromkeys([*nodes, *range(len(machines))]):
            for size in chain.gpus[: chain.node_level + 1]:
                for start in range(0, chain.node_gpus, size):
                    free = [
                        bit for bit in range(start, start + size) if (index, node * chain.node_gpus + bit) not in taken
                    ]
                    if len(free) >= gpus:
                        addresses = self.config.gpu_addresses[index][node]
                        return Member(near[0].chain, machines[node], tuple(addresses[bit] for bit in free[:gpus]))
        return None
