"""One run of a comparison: a policy, a cluster and one draw of a workload."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from horae.engines.random_failures import fault_plan
from horae.model.events import NodeChanged
from horae.model.jobs import Arrival
from horae.model.setup import Setup


class PolicyChoice(NamedTuple):
    """A policy by its name in the registry, with its options."""

    name: str
    options: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Failures:
    """Random hardware failures; their times are drawn from the seed of the task."""

    days_between_failures: float | None = None  # None: nothing fails
    repair_seconds: float = 3600.0
    checkpoint_seconds: float = 0.0

    def plan(self, setup: Setup, seed: int, arrivals: Sequence[Arrival]) -> list[NodeChanged]:
        if self.days_between_failures is None or not arrivals:
            return []
        until = 2 * arrivals[-1].job.submitted_at
        return fault_plan(setup.cluster, seed, self.days_between_failures, self.repair_seconds, until)


NO_FAILURES = Failures()


@dataclass(frozen=True)
class RunSpec:
    label: str  # of the policy, as the user wrote it
    setup: Setup
    seed: int = 0  # the draw of the workload and of the failures
    failures: Failures = NO_FAILURES

    def __str__(self) -> str:
        return f"{self.label}, seed {self.seed}"


def run_specs(
    setup: Setup, policies: Mapping[str, PolicyChoice | None], seeds: int, failures: Failures = NO_FAILURES
) -> list[RunSpec]:
    """Every policy on every draw, draw by draw, so that a worker keeps only one draw at a time."""
    return [
        RunSpec(label, replace(with_policy(setup, choice), seed=seed), seed, failures)
        for seed in range(seeds)
        for label, choice in policies.items()
    ]


def with_policy(setup: Setup, choice: PolicyChoice | None) -> Setup:
    """The same setup with one policy in every pool; None leaves those that the cluster file configures."""
    if choice is None:
        return setup
    pools = tuple(replace(pool, policy=choice.name, options=choice.options) for pool in setup.pools)
    return replace(setup, pools=pools)
