"""Kueue beside a control plane, without containers: its process, its definitions and webhooks, and a queue per tenant.

HORAE_KUEUE names a folder with the program `kueue` and its sources in `src`, from which the definitions are taken:
`make -C tools/kueue build` makes it.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import httpx
import yaml
from kubernetes.client import ApiError, Client, Json, condition, eventually
from kubernetes.control_plane import ControlPlane, free_ports
from kubernetes.processes import Process

QUEUE = "training"
_VERSION = "kueue.x-k8s.io/v1beta2"
_WEBHOOKS = {"job", "clusterqueue", "resourceflavor", "workload", "cohort", "localqueue"}


@contextmanager
def kueue(plane: ControlPlane, folder: Path, tenants: Sequence[str], gpus: int) -> Iterator[None]:
    """Runs it, with fair sharing between queues of equal nominal quota, which lend what they do not use."""
    named = os.environ.get("HORAE_KUEUE")
    if not named:
        raise SystemExit("set HORAE_KUEUE to the folder that `make -C tools/kueue build` makes")
    source, client = Path(named) / "src" / "config" / "components", plane.client()
    folder.mkdir()
    _define(client, source / "crd" / "bases")
    client.post("/api/v1/namespaces", {"metadata": {"name": "kueue-system"}})
    webhooks, health = free_ports(2)
    certificate = _certificate(folder)
    process = Process(
        "kueue", _command(Path(named), folder, webhooks, health), folder / "kueue.log", _environment(plane, folder)
    )
    process.start()
    try:
        eventually(lambda: _is_ready(health), process.check)
        _install_webhooks(client, source / "webhook" / "manifests.yaml", webhooks, certificate)
        _make_queues(client, tenants, gpus)
        yield
        process.check()
    finally:
        process.kill()


def _define(client: Client, folder: Path) -> None:
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    for file in sorted(folder.glob("*.yaml")):
        definition = yaml.load(file.read_text(), yaml.CSafeLoader)
        client.post(path, definition)
    eventually(lambda: all(condition(each, "Established") for each in client.items(path)) or None)


def _certificate(folder: Path) -> str:
    """Makes one for webhooks on loopback; returns it in base64."""
    files = ["-keyout", str(folder / "tls.key"), "-out", str(folder / "tls.crt")]
    options = ["-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=kueue"]
    extension = ["-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run(["openssl", "req", *options, *extension, *files], check=True, capture_output=True)
    return base64.b64encode((folder / "tls.crt").read_bytes()).decode()


def _command(kueue: Path, folder: Path, webhooks: int, health: int) -> list[str]:
    configuration = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "namespace": "kueue-system",
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"port": webhooks, "host": "127.0.0.1", "certDir": str(folder)},
        "internalCertManagement": {"enable": False},
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"qps": 500, "burst": 1000},
        "controller": {"groupKindConcurrency": {"Job.batch": 5, "Workload.kueue.x-k8s.io": 5}},
        "integrations": {"frameworks": ["batch/job"]},
        "fairSharing": {"preemptionStrategies": ["LessThanOrEqualToFinalShare", "LessThanInitialShare"]},
    }
    file = folder / "kueue.json"
    file.write_text(json.dumps(configuration))
    return [str(kueue / "kueue"), f"--config={file}", "--feature-gates=VisibilityOnDemand=false"]


def _environment(plane: ControlPlane, folder: Path) -> dict[str, str]:
    return {**os.environ, "KUBECONFIG": str(plane.kubeconfig), "KUEUE_METRICS_CERTS": str(folder)}


def _is_ready(port: int) -> bool:
    return httpx.get(f"http://127.0.0.1:{port}/readyz", timeout=5.0, trust_env=False).is_success


def _install_webhooks(client: Client, manifests: Path, port: int, certificate: str) -> None:
    """Those of Jobs and of Kueue's own objects; the API server reaches them by address instead of by a Service."""
    for found in yaml.safe_load_all(manifests.read_text()):
        kept = [each for each in found["webhooks"] if each["name"].removesuffix(".kb.io")[1:] in _WEBHOOKS]
        for each in kept:
            path = each["clientConfig"]["service"]["path"]
            each["clientConfig"] = {"url": f"https://127.0.0.1:{port}{path}", "caBundle": certificate}
        plural = f"{found['kind'].lower()}s"
        client.post(f"/apis/admissionregistration.k8s.io/v1/{plural}", {**found, "webhooks": kept})


def _make_queues(client: Client, tenants: Sequence[str], gpus: int) -> None:
    _create(client, "", "ResourceFlavor", "gpus", {})
    for index, tenant in enumerate(tenants):
        quota = gpus // len(tenants) + (index < gpus % len(tenants))
        _create(client, "", "ClusterQueue", tenant, _cluster_queue(quota))
        _create(client, f"/namespaces/{tenant}", "LocalQueue", QUEUE, {"clusterQueue": tenant})
    path = f"/apis/{_VERSION}/clusterqueues"
    eventually(lambda: all(condition(each, "Active") for each in client.items(path)) or None)


def _cluster_queue(gpus: int) -> Json:
    flavor = {"name": "gpus", "resources": [{"name": "nvidia.com/gpu", "nominalQuota": gpus}]}
    return {
        "cohortName": "cluster",
        "namespaceSelector": {},
        "preemption": {"reclaimWithinCohort": "Any", "withinClusterQueue": "Never"},
        "resourceGroups": [{"coveredResources": ["nvidia.com/gpu"], "flavors": [flavor]}],
    }


def _create(client: Client, scope: str, kind: str, name: str, spec: Json) -> None:
    """Tries again while the API server does not have the webhooks yet."""
    path, body = f"/apis/{_VERSION}{scope}/{kind.lower()}s", {"apiVersion": _VERSION, "kind": kind, "spec": spec}

    def created() -> bool:
        try:
            client.post(path, {**body, "metadata": {"name": name}})
        except ApiError as error:
            if error.status != httpx.codes.CONFLICT:
                raise
        return True

    eventually(created)
