"""Horae shares one GPU cluster between teams that train deep-learning models.

    import horae

    cluster = horae.load_cluster("20x8:V100")
    jobs = horae.load_jobs("jobs.csv", cluster)
    result = horae.simulate(cluster, jobs, "tiresias")
    print(result.jobs)  # a polars data frame
    result.plots()["completion"].savefig("completion.png")

Every name is imported when it is first used, so that `import horae` takes no time.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from horae.api import (
        ComparisonResult,
        Jobs,
        Journal,
        SimulationResult,
        compare,
        load_cluster,
        load_jobs,
        simulate,
    )
    from horae.client import Client
    from horae.model.decisions import Grants, Ranking, Shares
    from horae.model.errors import (
        ClusterError,
        HoraeError,
        InputError,
        JobError,
        JournalError,
        PolicyError,
        ServiceError,
    )
    from horae.model.view import Policy, View
    from horae.policies.conformance import check_policy
    from horae.scheduler.core import Scheduler

__version__ = "0.2.0"

_WHERE = {
    "load_cluster": "horae.api",
    "load_jobs": "horae.api",
    "simulate": "horae.api",
    "compare": "horae.api",
    "Jobs": "horae.api",
    "SimulationResult": "horae.api",
    "ComparisonResult": "horae.api",
    "Scheduler": "horae.scheduler.core",
    "Policy": "horae.model.view",
    "View": "horae.model.view",
    "Ranking": "horae.model.decisions",
    "Shares": "horae.model.decisions",
    "Grants": "horae.model.decisions",
    "check_policy": "horae.policies.conformance",
    "Journal": "horae.api",
    "HoraeError": "horae.model.errors",
    "InputError": "horae.model.errors",
    "ClusterError": "horae.model.errors",
    "JobError": "horae.model.errors",
    "PolicyError": "horae.model.errors",
    "JournalError": "horae.model.errors",
    "Client": "horae.client",
    "ServiceError": "horae.model.errors",
}

__all__ = [
    "load_cluster",
    "load_jobs",
    "simulate",
    "compare",
    "Jobs",
    "SimulationResult",
    "ComparisonResult",
    "Scheduler",
    "Policy",
    "View",
    "Ranking",
    "Shares",
    "Grants",
    "check_policy",
    "Journal",
    "HoraeError",
    "InputError",
    "ClusterError",
    "JobError",
    "PolicyError",
    "JournalError",
    "Client",
    "ServiceError",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'horae' has no attribute {name!r}")
    value = getattr(import_module(_WHERE[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
