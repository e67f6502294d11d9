"""The files of `deploy/kubernetes`, applied as kubectl does it: one object after the other, by the API."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import yaml

from kubernetes.client import Client, Json

DEPLOY = Path(__file__).parents[2] / "deploy" / "kubernetes"
_RBAC, _ADMISSION = "apis/rbac.authorization.k8s.io/v1", "apis/admissionregistration.k8s.io/v1"
_PATHS = {
    "Namespace": "api/v1/namespaces",
    "ServiceAccount": "api/v1/{}/serviceaccounts",
    "Service": "api/v1/{}/services",
    "ConfigMap": "api/v1/{}/configmaps",
    "Secret": "api/v1/{}/secrets",
    "Pod": "api/v1/{}/pods",
    "Job": "apis/batch/v1/{}/jobs",
    "Deployment": "apis/apps/v1/{}/deployments",
    "StatefulSet": "apis/apps/v1/{}/statefulsets",
    "PodDisruptionBudget": "apis/policy/v1/{}/poddisruptionbudgets",
    "ClusterRole": f"{_RBAC}/clusterroles",
    "ClusterRoleBinding": f"{_RBAC}/clusterrolebindings",
    "RoleBinding": f"{_RBAC}/{{}}/rolebindings",
    "ValidatingAdmissionPolicy": f"{_ADMISSION}/validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": f"{_ADMISSION}/validatingadmissionpolicybindings",
    "MutatingAdmissionPolicy": f"{_ADMISSION}/mutatingadmissionpolicies",
    "MutatingAdmissionPolicyBinding": f"{_ADMISSION}/mutatingadmissionpolicybindings",
}


def documents(*files: str) -> Iterator[Json]:
    for file in files:
        yield from yaml.safe_load_all((DEPLOY / file).read_text())


def listed() -> list[str]:
    """The files that `kubectl apply -k` would apply."""
    (customization,) = documents("kustomization.yaml")
    return list(customization["resources"])


def one(kind: str, *files: str) -> Json:
    (found,) = (each for each in documents(*files) if each["kind"] == kind)
    return found


def path_of(document: Json) -> str:
    """Where objects of its kind, in its namespace, are created."""
    namespace = document["metadata"].get("namespace", "")
    return "/" + _PATHS[document["kind"]].format(f"namespaces/{namespace}")


def create(client: Client, document: Json) -> Json:
    return client.request("POST", path_of(document), document, fieldValidation="Strict")


def remove(client: Client, document: Json) -> None:
    client.delete(f"{path_of(document)}/{document['metadata']['name']}")
