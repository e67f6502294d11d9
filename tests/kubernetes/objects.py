"""Nodes and Jobs for tests: say what matters, leave out the rest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubernetes.client import Json

H100 = "NVIDIA-H100-80GB-HBM3"
A100 = "NVIDIA-A100-SXM4-80GB"


def node(
    name: str,
    gpus: int = 8,
    product: str = H100,
    rack: str = "",
    *,
    cpus: str = "96",
    memory: str = "1Ti",
    pods: int = 110,
    broken_gpus: int = 0,
    labels: Mapping[str, str] | None = None,
) -> Json:
    """A simulated node; `broken_gpus` are in its capacity and not allocatable."""
    capacity = {"cpu": cpus, "memory": memory, "pods": str(pods), "nvidia.com/gpu": str(gpus)}
    allocatable = {**capacity, "nvidia.com/gpu": str(gpus - broken_gpus)}
    names = {"horae.test/simulated": "true", "kubernetes.io/hostname": name, "nvidia.com/gpu.product": product}
    racks = {"topology.kubernetes.io/rack": rack} if rack else {}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {**names, **racks, **(labels or {})}},
        "status": {"capacity": capacity, "allocatable": allocatable},
    }


def nodes(count: int, gpus: int = 8, product: str = H100, racks: int = 0, prefix: str = "node") -> list[Json]:
    """Equal nodes node-00, node-01, …; with `racks`, in that many racks of neighbours."""
    return [
        node(f"{prefix}-{index:02d}", gpus, product, f"rack-{index * racks // count}" if racks else "")
        for index in range(count)
    ]


def pod(
    name: str = "",
    gpus: int = 0,
    *,
    annotations: Mapping[str, str] | None = None,
    image: str = "training",
    container: Mapping[str, Any] | None = None,
    grace_seconds: int = 30,
    **spec: Any,
) -> Json:
    """A pod of one container; further fields of its specification as they are, `nodeName` for instance."""
    resources = {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {}
    main = {"name": "main", "image": image, "resources": resources, **(container or {})}
    fixed = {"restartPolicy": "Never", "terminationGracePeriodSeconds": grace_seconds, "containers": [main]}
    metadata = {"annotations": dict(annotations or {}), **({"name": name} if name else {})}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {**fixed, **spec}}


def job(
    name: str,
    pods: int = 1,
    gpus: int = 8,
    *,
    annotations: Mapping[str, str] | None = None,
    pod_annotations: Mapping[str, str] | None = None,
    image: str = "training",
    container: Mapping[str, Any] | None = None,
    grace_seconds: int = 30,
    scheduler: str = "horae",
    suspend: bool = True,
    backoff_limit: int = 0,
    **spec: Any,
) -> Json:
    """An indexed Job of that many pods with that many GPUs each; further fields of its specification as they are."""
    each = pod(
        gpus=gpus,
        annotations=pod_annotations,
        image=image,
        container=container,
        grace_seconds=grace_seconds,
        schedulerName=scheduler,
    )
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "annotations": dict(annotations or {})},
        "spec": {
            "suspend": suspend,
            "completionMode": "Indexed",
            "completions": pods,
            "parallelism": pods,
            "backoffLimit": backoff_limit,
            "podReplacementPolicy": "Failed",
            "template": {"metadata": each["metadata"], "spec": each["spec"]},
            **spec,
        },
    }


def training(steps: float, speed: str) -> dict[str, str]:
    """Annotations of a Job or of its pods: `training(1000, "H100=3.1;A100=1.4")`."""
    return {"horae.test/work": "training", "horae.io/steps": f"{steps:g}", "horae.io/speed": speed}


def real(*command: str, **environment: str) -> dict[str, Any]:
    """The container of a Job with the pod annotation `horae.test/real: "true"`."""
    return {"command": list(command), "env": [{"name": key, "value": value} for key, value in environment.items()]}
