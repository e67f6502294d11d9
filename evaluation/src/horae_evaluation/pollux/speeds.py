"""Speeds of Pollux's models for any placement of a gang, and an engine that uses them.

The scheduler knows a gang by its number of GPUs and whether it is in one node. The profiles know on how many nodes it
was, and up to four nodes how many GPUs it had on each. So the scheduler's estimates are those of a packed gang, and the
true speed follows from the GPUs allocated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np

from horae.engines.engine import Engine, Moment
from horae.engines.simulated import SimulatedEngine
from horae.model.cluster import Cluster
from horae.model.commands import Command, Start
from horae.model.events import Event
from horae.model.jobs import Arrival, Truth
from horae.model.shapes import Option
from horae_evaluation.pollux.profiles import Noise, read_measured, read_noise
from horae_evaluation.pollux.workloads import GangProfile, Step, gang_of

Key = TypeVar("Key")
Placement = tuple[int, ...]  # GPUs on each node, most first


@dataclass(frozen=True)
class Steps:
    """The seconds per step of one model."""

    exact: Mapping[Placement, GangProfile]
    by_nodes: Mapping[int, Mapping[int, GangProfile]]  # by nodes and GPUs, for any distribution over the nodes

    def in_parts_of(self, share_max: int) -> Steps:
        """The same, where no GPU takes more of a batch at once: the rest is accumulated."""
        by_nodes = {nodes: _all_cut(gangs, share_max) for nodes, gangs in self.by_nodes.items()}
        return Steps(_all_cut(self.exact, share_max), {nodes: gangs for nodes, gangs in by_nodes.items() if gangs})

    def seconds(self, placement: Placement, batch_size: int) -> float:
        """The seconds of a step: as profiled, or else interpolated linearly in GPUs and then in nodes."""
        gpus = sum(placement)
        share = max(batch_size / gpus, 1.0)
        if placement in self.exact:
            return self.exact[placement].seconds(share)
        nodes = sorted(self.by_nodes)
        return float(np.interp(len(placement), nodes, [self._on_nodes(count, gpus, share) for count in nodes]))

    def _on_nodes(self, nodes: int, gpus: int, share: float) -> float:
        gangs = self.by_nodes[nodes]
        sizes = sorted(gangs)
        return float(np.interp(gpus, sizes, [gangs[size].seconds(share) for size in sizes]))


def read_steps(workloads: Path) -> Mapping[str, Steps]:
    """Steps by model. Repeated measurements are averaged."""
    exact: dict[str, dict[Placement, dict[int, list[Step]]]] = {}
    by_nodes: dict[str, dict[int, dict[int, dict[int, list[Step]]]]] = {}
    for row in read_measured(workloads):
        if row.placement:
            shares = exact.setdefault(row.model, {}).setdefault(row.placement, {})
            shares.setdefault(row.share, []).append(row.step)
        shares = by_nodes.setdefault(row.model, {}).setdefault(row.nodes, {}).setdefault(row.gpus, {})
        shares.setdefault(row.share, []).append(row.step)
    return {
        model: Steps(
            {placement: _mean(shares) for placement, shares in exact.get(model, {}).items()},
            {nodes: {gpus: _mean(shares) for gpus, shares in gangs.items()} for nodes, gangs in of_model.items()},
        )
        for model, of_model in by_nodes.items()
    }


def _all_cut(gangs: Mapping[Key, GangProfile], share_max: int) -> Mapping[Key, GangProfile]:
    """The gangs with smaller shares, without those for which no such share was profiled."""
    found = {}
    for key, gang in gangs.items():
        kept = gang.shares <= share_max
        if kept.any():
            found[key] = GangProfile(gang.shares[kept], gang.step_seconds[kept], gang.sync_seconds[kept])
    return found


def read_noise_steps(workloads: Path) -> Mapping[tuple[str, int], float]:
    """By model and batch size: the steps of a whole training by its gradient noise.

    A step at M times the least batch size is worth (v + s) / (v / M + s) of its steps, with s and v the squared norm
    and the variance of the gradient in that epoch (Qiao et al., section 3.1); `progress` counts in those.
    """
    rows: dict[tuple[str, int], list[Noise]] = {}
    for row in read_noise(workloads):
        rows.setdefault((row.model, row.batch_size), []).append(row)
    least = {model: min(size for name, size in rows if name == model) for model, _ in rows}
    found = {}
    for (model, batch_size), epochs in rows.items():
        scale, before, steps = batch_size / least[model], 0.0, 0.0
        for row in sorted(epochs, key=lambda each: each.epoch):
            total = row.grad_var + row.grad_sqr
            worth = total / (row.grad_var / scale + row.grad_sqr) if total else 1.0
            steps += (row.progress - before) / worth
            before = row.progress
        found[model, batch_size] = steps
    return found


def _mean(shares: Mapping[int, Sequence[Step]]) -> GangProfile:
    means = {share: np.mean(steps, axis=0).tolist() for share, steps in shares.items()}
    return gang_of({share: (step, sync) for share, (step, sync) in means.items()})


class PlacedEngine:
    """A wrapper of a simulated engine in which each start runs at the speed of the nodes allocated.

    The inner engine charges a restart to a job that resumes. `start_seconds` is charged to the first start as well, as
    additional steps at the speed that it has there.
    """

    def __init__(
        self,
        engine: Engine,
        cluster: Cluster,
        arrivals: Sequence[Arrival],
        steps: Mapping[str, Steps],
        batch_sizes: Mapping[str, int],
        start_seconds: float = 0.0,
    ) -> None:
        if not isinstance(engine, SimulatedEngine):
            raise TypeError("only a simulated engine can be told true speeds")
        self._engine = engine
        self._arrivals = {arrival.job.id: arrival for arrival in arrivals}
        self._steps = steps
        self._batch_sizes = batch_sizes  # by job
        self._start_seconds = start_seconds
        self._extra: dict[str, float] = {}  # by job: steps equivalent to the duration of its first start

    def wait(self, until: float) -> Moment | None:
        return self._engine.wait(until)

    def execute(self, commands: Sequence[Command]) -> Sequence[Event]:
        for command in commands:
            if isinstance(command, Start):
                for job_id in command.job_ids:
                    self._engine.expect(self._placed(self._arrivals[job_id], command))
        return self._engine.execute(commands)

    def _placed(self, arrival: Arrival, start: Start) -> Arrival:
        counts = Counter(gpu.node for gpu in start.gpus)
        placement = tuple(sorted(counts.values(), reverse=True))
        seconds = self._steps[arrival.job.model].seconds(placement, self._batch_sizes[arrival.job.id])
        extra = self._extra.setdefault(arrival.job.id, self._start_seconds / seconds)
        return replace(arrival, truth=Truth(arrival.truth.steps_total + extra, (Option(start.shape, 1 / seconds),)))
