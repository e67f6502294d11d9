"""A control plane with everything from `deploy/kubernetes` on it, a tenant's account, and the service with its role."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from live_service import Service

from kubernetes.client import ApiError, Client, Json, eventually
from kubernetes.cluster import Cluster
from kubernetes.control_plane import ControlPlane
from kubernetes.manifests import create, documents, listed, one, remove
from kubernetes.objects import job

SYSTEM, ACCOUNT = "horae-system", "horae"
HORAE = f"system:serviceaccount:{SYSTEM}:{ACCOUNT}"
DEFAULTS = "defaults.yaml"
FORBIDDEN = 403
_AUDIT_POLICY = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": [{"level": "Metadata"}]}
_NAMESPACES = "/api/v1/namespaces"
USERS = {"editor": ("namespace-editors",), "tenants-editor": ("namespace-editors", "horae-administrators")}


@dataclass
class Deployed:
    control_plane: ControlPlane
    has_defaults: bool  # the server has policies that change objects
    audit: Path
    client: Client = field(init=False)  # of the administrator
    namespace_editor: Client = field(init=False)
    tenants_editor: Client = field(init=False)  # may also say which namespace belongs to which tenant

    def __post_init__(self) -> None:
        self.client = self.control_plane.client()
        self.namespace_editor, self.tenants_editor = (
            self.control_plane.client(self.control_plane.kubeconfig_for(user, groups)) for user, groups in USERS.items()
        )

    def tenant(self, namespace: str) -> Client:
        """A user of this namespace with the role `edit`, and with no others."""
        path = f"{_NAMESPACES}/{namespace}"
        self.client.post(f"{path}/serviceaccounts", {"metadata": {"name": "researcher"}})
        role = {"kind": "ClusterRole", "name": "edit", "apiGroup": "rbac.authorization.k8s.io"}
        subject = {"kind": "ServiceAccount", "name": "researcher", "namespace": namespace}
        metadata = {"name": "researcher", "namespace": namespace}
        create(self.client, {"kind": "RoleBinding", "metadata": metadata, "roleRef": role, "subjects": [subject]})
        client = self.control_plane.client(self.control_plane.account_kubeconfig(namespace, "researcher"))
        eventually(lambda: not why_refused(client, "GET", f"/apis/batch/v1/namespaces/{namespace}/jobs"))
        return client

    def service(self, folder: Path, *arguments: str, injected: Mapping[str, str] | None = None) -> Service:
        """The service under its own account, configured as in the ConfigMap, in a hurry."""
        folder.mkdir(exist_ok=True)
        text: str = one("ConfigMap", "config.yaml")["data"]["horae.yaml"]
        (folder / "horae.yaml").write_text(
            text.replace("0.0.0.0", "127.0.0.1").replace("round_seconds: 300", "round_seconds: 1")
            + "restart_seconds: 0\nkubernetes: {unreachable: 1s}\n"
        )
        kubeconfig = self.control_plane.account_kubeconfig(SYSTEM, ACCOUNT)
        command = ("--config", str(folder / "horae.yaml"), "--kubeconfig", str(kubeconfig), *arguments)
        return Service(folder / "state", *command, injected=injected)

    def requests(self) -> list[Json]:
        """What the service has asked of the API server."""
        entries = map(json.loads, self.audit.read_text().splitlines())
        return [each for each in entries if each["user"]["username"] == HORAE and "responseStatus" in each]

    @contextmanager
    def without_policies(self) -> Iterator[None]:
        files = ("policies.yaml", DEFAULTS) if self.has_defaults else ("policies.yaml",)
        bindings = [each for each in documents(*files) if each["kind"].endswith("Binding")]
        for each in bindings:
            remove(self.client, each)
        try:
            yield
        finally:
            for each in bindings:
                create(self.client, each)
            self.wait_for_policies()

    def wait_for_policies(self) -> None:
        """The API server uses new policies after a moment, the last of a file last."""
        claim = {"metadata": {"name": "probe", "labels": {"horae.io/tenant": "nlp"}}}
        eventually(lambda: why_refused(self.namespace_editor, "POST", _NAMESPACES, claim))
        if self.has_defaults:
            probe = {**job("probe", suspend=False), "metadata": {"name": "probe"}}
            path = "/apis/batch/v1/namespaces/default/jobs"
            eventually(lambda: self.client.request("POST", path, probe, dryRun="All")["spec"]["suspend"])


@contextmanager
def deployed(binary: Path, folder: Path, *, flags: tuple[str, ...], has_defaults: bool) -> Iterator[Deployed]:
    audit, policy = folder / "audit.jsonl", folder / "audit-policy.json"
    policy.write_text(json.dumps(_AUDIT_POLICY))
    options = (f"--audit-log-path={audit}", f"--audit-policy-file={policy}")
    checks = ("--controllers=validatingadmissionpolicy-status-controller",)  # besides the others
    control_plane = ControlPlane(binary, folder, flags=flags, api_flags=options, controller_flags=checks)
    for user, groups in USERS.items():
        control_plane.kubeconfig_for(user, groups)
    with control_plane as running:
        found = Deployed(running, has_defaults, audit)
        _let_edit_namespaces(found.client, "namespace-editors")
        for each in documents(*(file for file in listed() if has_defaults or file != DEFAULTS)):
            create(found.client, each)
        found.wait_for_policies()
        yield found


def _let_edit_namespaces(client: Client, group: str) -> None:
    rule = {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["*"]}
    create(client, {"kind": "ClusterRole", "metadata": {"name": group}, "rules": [rule]})
    role = {"kind": "ClusterRole", "name": group, "apiGroup": "rbac.authorization.k8s.io"}
    subject = {"kind": "Group", "name": group, "apiGroup": "rbac.authorization.k8s.io"}
    create(client, {"kind": "ClusterRoleBinding", "metadata": {"name": group}, "roleRef": role, "subjects": [subject]})


def why_refused(client: Client, method: str, path: str, body: object = None, kind: str = "") -> str:
    """Why a request is forbidden; "" if it is not. Nothing is changed."""
    try:
        client.request(method, path, body, kind, **({} if method == "GET" else {"dryRun": "All"}))
    except ApiError as error:
        if error.status == FORBIDDEN:
            return error.message
        raise
    return ""


def events(cluster: Cluster, namespace: str, job: str) -> dict[str, str]:
    """What Horae has said about a Job: by reason, the last message."""
    found = cluster.client.items(f"{_NAMESPACES}/{namespace}/events")
    return {each["reason"]: each["message"] for each in found if each["involvedObject"]["name"] == job}
