"""What a recorder knows of the cluster: its GPUs as columns, who may use them, and the least that a job can take."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf

import numpy as np

from horae.model.arrays import Ints
from horae.model.cells import Gpu
from horae.model.jobs import Job
from horae.model.layout import layout_of
from horae.model.pools import PoolOfJob, Setup
from horae.model.shapes import Option
from horae.reports.log import ClusterColumns


class Site:
    def __init__(self, setup: Setup) -> None:
        cluster = setup.cluster
        self.accelerator = {name: index for index, name in enumerate(cluster.accelerators)}
        self._pool_of_job = PoolOfJob(setup.pools)
        first = cluster.first_gpu[cluster.node_level].tolist()
        self._first_gpu = {node.name: first[index] for index, node in enumerate(cluster.nodes)}
        owner = {name: index for index, pool in enumerate(setup.pools) for name in pool.nodes}
        apart = [bool(pool.nodes or pool.reserves or pool.quota) for pool in setup.pools]
        rest = apart.index(False) if False in apart else -1
        node = cluster.node_of_gpu
        accelerator = np.array([self.accelerator[each.accelerator] for each in cluster.nodes])[node]
        pool = np.array([owner.get(each.name, rest) for each in cluster.nodes])[node]
        counts = self._counts(setup, accelerator, pool)
        self.columns = ClusterColumns(
            accelerators=cluster.accelerators,
            pools=tuple(each.name for each in setup.pools),
            accelerator=accelerator,
            node=node,
            pool=pool,
            price_per_hour=np.array([each.price_per_hour for each in cluster.nodes])[node],
            pool_gpus=counts[:-1],
        )
        self._gpus = [dict(zip(cluster.accelerators, row, strict=True)) for row in counts.tolist()]

        self._nowhere = [inf] * len(self.accelerator)
        self.kept_max = max((max(row.kept) for row in setup.sharing), default=1.0)
        self.kept_together_max = max((sum(row.kept) for row in setup.sharing), default=1.0)

    def _counts(self, setup: Setup, accelerator: Ints, pool: Ints) -> Ints:
        """By pool and accelerator: GPUs that it may use at a time. The last row is that of no pool."""
        counts = np.zeros((len(setup.pools) + 1, len(self.accelerator)), dtype=np.int64)
        np.add.at(counts, (pool, accelerator), 1)
        counts[-1] = 0
        reserving = [each for each in setup.pools if each.reserves]
        layout = layout_of(
            setup.cluster,
            {each.name: each.cells for each in reserving},
            {each.name: each.pinned for each in reserving},
        )
        reserved = {each.tenant: dict(each.cells) for each in layout.territory.reservations}
        tenant_of = {name: each.tenant for each in layout.territory.reservations for name in each.pinned}
        for pin in layout.territory.pins:
            cells = reserved[tenant_of[pin.name]]
            cells[pin.kind] = cells.get(pin.kind, 0) + 1
        for index, each in enumerate(setup.pools):
            for name, gpus in each.quota.items():
                counts[index, self.accelerator[name]] = gpus
            for kind, count in reserved.get(each.name, {}).items():
                chain = layout.territory.chains[kind.chain]
                counts[index, self.accelerator[chain.accelerator]] += count * chain.gpus[kind.level]
        return counts

    def pool_of(self, job: Job) -> int:
        """-1: no pool serves it."""
        pool = self._pool_of_job.find(job)
        return -1 if pool is None else pool

    def positions(self, gpus: Iterable[Gpu]) -> list[int]:
        return [self._first_gpu[node] + number for node, number in gpus]

    def least(self, steps: float, options: Sequence[Option], pool: int) -> tuple[float, list[float]]:
        """The least seconds for so much work in this pool, and by accelerator the least GPU-seconds."""
        gpus_of = self._gpus[pool]
        fastest_seconds = inf
        least_gpu_seconds = self._nowhere.copy()
        for (accelerator, gpus, _), speed in options:
            if gpus <= gpus_of.get(accelerator, 0):
                seconds = steps / speed
                if not seconds >= fastest_seconds:  # so that an unknown time stays unknown
                    fastest_seconds = seconds
                index = self.accelerator[accelerator]
                if not seconds * gpus >= least_gpu_seconds[index]:
                    least_gpu_seconds[index] = seconds * gpus
        return fastest_seconds, least_gpu_seconds
