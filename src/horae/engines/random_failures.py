"""Hardware failures: a schedule of failures and repairs, drawn from a seed."""

from __future__ import annotations

from random import Random

from horae.model.cluster import Cluster
from horae.model.errors import InputError
from horae.model.events import Health, NodeChanged

FAILURES_MAX = 1_000_000  # a bound, so that a typo does not fill the memory


def fault_plan(
    cluster: Cluster, seed: int, days_between_failures: float, repair_seconds: float, until: float
) -> list[NodeChanged]:
    """Events in which every node fails at random, on average once per so many days of uptime,
    with a fixed repair time."""
    if not days_between_failures > 0:
        raise InputError(f"is {days_between_failures}", field="days_between_failures", remedy="give a positive number")
    if not repair_seconds >= 0:
        raise InputError(f"is {repair_seconds}", field="repair_seconds", remedy="give 0 or more")
    expected = len(cluster.nodes) * until / (days_between_failures * 86400 + repair_seconds)
    if expected > FAILURES_MAX:
        raise InputError(
            f"some {expected:.2g} failures are more than the {FAILURES_MAX:,} that can be planned",
            field="days_between_failures",
            remedy="let nodes live longer",
        )
    events: list[NodeChanged] = []
    for node in cluster.nodes:
        # A separate random stream per node: adding a node to the file does not change the failures of this one.
        random = Random(f"{seed}/{node.name}")
        now = random.expovariate(1 / (days_between_failures * 86400))
        while now < until:
            events.append(NodeChanged(now, node.name, Health.FAILED))
            events.append(NodeChanged(now + repair_seconds, node.name, Health.HEALTHY))
            now += repair_seconds + random.expovariate(1 / (days_between_failures * 86400))
    return sorted(events, key=lambda event: event.at)
