"""Pollux's full profiles of steps and of training, where run times alone are not enough."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from horae_evaluation.pollux.workloads import (
    PLACEMENTS,
    PROFILES,
    SCALABILITY,
    Step,
    beside,
    placement_of,
    rows_of,
    step_of,
)


class Measured(NamedTuple):
    """One row of the step profiles, for any placement of the gang."""

    model: str
    nodes: int
    gpus: int
    placement: tuple[int, ...]  # GPUs on each node, most first; empty where only the number of nodes is known
    share: int
    step: Step


class Noise(NamedTuple):
    """One epoch of a profile of training."""

    model: str
    batch_size: int
    epoch: int
    progress: float  # in steps of the least batch size, from the beginning
    grad_sqr: float
    grad_var: float


def read_measured(workloads: Path) -> Iterator[Measured]:
    """Every placement that was profiled, including those that are not packed."""
    for row in rows_of(beside(workloads, PROFILES[0]), *PLACEMENTS):
        placement = placement_of(row)
        yield Measured(
            row.text("model"), len(placement), sum(placement), placement, row.count("local_bsz"), step_of(row)
        )
    for row in rows_of(beside(workloads, PROFILES[1]), *SCALABILITY):
        nodes, gpus = row.count("num_nodes"), row.count("num_replicas")
        yield Measured(row.text("model"), nodes, gpus, (), row.count("local_bsz"), step_of(row))


def read_noise(workloads: Path) -> Iterator[Noise]:
    for row in rows_of(beside(workloads, PROFILES[2]), *Noise._fields):
        of_epoch = row.text("model"), row.count("batch_size"), row.count("epoch", least=0)
        yield Noise(*of_epoch, row.number("progress"), row.number("grad_sqr"), row.number("grad_var"))
