"""The only module of the golden runs that knows Horae's API: all imports, and every difference between checkouts.

The same file runs against this checkout and against an older or newer one, so differences are found by looking for the
attribute, never by a version. Commands and events are recognised by the names of their classes, which outlive modules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from horae.engines.search.engine import first_jobs
from horae.experiments.simulate import simulate
from horae.model import events
from horae.model.cluster import Cluster, Node
from horae.model.events import BidGiven, Event, Health, JobCancelled, NodeChanged, PolicyChanged, SpeedRevised
from horae.model.jobs import Arrival, Curve, Job, Truth
from horae.model.searches import Method, Search, Trial
from horae.model.setup import Cadence, PoolSpec, RoundRules, Setup
from horae.model.shapes import Option, Shape
from horae.model.speeds import Sharing
from horae.policies.registry import POLICIES

__all__ = [
    "Arrival", "BidGiven", "Cadence", "Cluster", "Curve", "Event", "Health", "Job", "JobCancelled", "Method", "Node",
    "NodeChanged", "Option", "PolicyChanged", "PoolSpec", "RoundRules", "Search", "Setup", "Shape", "Sharing",
    "SpeedRevised", "Trial", "Truth", "first_jobs", "gpus_by_node", "kind", "policy_changed", "policy_of",
    "reservations_changed", "simulate", "without_borrowing",
]  # fmt: skip

# By policy: the policy and the option that select it in checkouts in which it is not a policy of its own.
FORMER = {
    "gandiva-time-slicing": ("gandiva", "own"),
    **{f"themis-{name}": (name, "themis-paper") for name in ("gandiva", "optimus", "slaq", "tiresias")},
}


def kind(value: object) -> str:
    """The name of an event's, a command's or an ending's type."""
    return type(value).__name__


def gpus_by_node(cluster: Cluster, gpus: Any) -> list[tuple[str, int]]:
    """The GPUs of a start as sorted (node name, index within the node).

    A start names them by node, or by their positions in the numbering of the cluster.
    """
    if gpus and hasattr(gpus[0], "node"):
        return sorted((str(each.node), int(each.number)) for each in gpus)
    first = cluster.first_gpu[cluster.node_level]
    nodes = [int(cluster.node_of_gpu[gpu]) for gpu in gpus]
    return sorted((cluster.nodes[node].name, int(gpu - first[node])) for node, gpu in zip(nodes, gpus, strict=True))


def policy_of(name: str, options: Mapping[str, object]) -> tuple[str, dict[str, object]]:
    """The name and the options by which this checkout knows a policy."""
    if name not in FORMER or "gandiva-time-slicing" in POLICIES:
        return name, dict(options)
    former, variant = FORMER[name]
    return former, {"variant": variant, **options}


def policy_changed(at: float, pool: str, name: str, options: Mapping[str, object] | None = None) -> Event:
    return PolicyChanged(at, pool, *policy_of(name, options or {}))


def without_borrowing(setup: Setup) -> Setup:
    """Tenants' jobs stay in their cells, where a setup says anything about that."""
    off: Any = {"borrow": False}
    pools = [replace(pool, **off) if hasattr(pool, "borrow") else pool for pool in setup.pools]
    return replace(setup, pools=tuple(pools))


def reservations_changed(at: float, cells: Mapping[str, Mapping[str, int]]) -> Event:
    """The event by which operators give tenants other cells, by pool."""
    made: Any = getattr(events, "TenantsChanged", None)
    if made is None:
        made = getattr(events, "ReservationsChanged", None)
        return made(at=at, cells=cells)
    change: Any = getattr(events, "TenantChange", None)
    return made(at=at, tenants={name: change(cells=each) for name, each in cells.items()})
