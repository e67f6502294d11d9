"""A Kubernetes control plane on loopback: etcd, API server and controllers, without containers and nodes.

Its parts are killed, paused and restarted by tests, and its data is set back to an older copy.
"""

from __future__ import annotations

import random
import shutil
import socket
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal, Self, get_args

import httpx
from patience import HANG_SECONDS

from kubernetes.client import Client
from kubernetes.credentials import ADMINISTRATOR, Credentials
from kubernetes.processes import Process

Part = Literal["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"]
PARTS: tuple[Part, ...] = get_args(Part)
CONTROLLERS = (
    "clusterrole-aggregation-controller",  # gives the roles admin, edit and view their rules
    "disruption-controller",
    "garbage-collector-controller",
    "job-controller",
    "namespace-controller",
    "node-lifecycle-controller",
    "pod-garbage-collector-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-controller",
    "serviceaccount-token-controller",
    "taint-eviction-controller",
    "ttl-after-finished-controller",
)


class ControlPlane:
    """Runs between `start` and `stop`, or as a context.

    `flags` are for all parts of Kubernetes (`--emulated-version=1.34`, `--feature-gates=...`), `api_flags` for the API
    server, `controller_flags` for the controllers and `scheduler_flags` for kube-scheduler only.
    """

    def __init__(
        self,
        binary: Path,
        folder: Path,
        *,
        flags: Sequence[str] = (),
        api_flags: Sequence[str] = (),
        controller_flags: Sequence[str] = (),
        scheduler_flags: Sequence[str] = (),
        with_scheduler: bool = False,
    ) -> None:
        self.binary = binary
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._etcd, self._peer, self._api, self._controllers, self._scheduler = free_ports(5)
        self._data = folder / "etcd"
        self._certificate = folder / "certificates" / "apiserver.crt"
        self._credentials = Credentials(folder, self.url, self._certificate)
        self._credentials.add(ADMINISTRATOR, ["system:masters"])
        self.kubeconfig = self._credentials.kubeconfig(ADMINISTRATOR)
        commands: dict[Part, tuple[str, ...]] = {
            "etcd": self._etcd_flags(),
            "kube-apiserver": (*self._api_flags(), *flags, *api_flags),
            "kube-controller-manager": (*self._controller_flags(), *flags, *controller_flags),
        }
        if with_scheduler:
            commands["kube-scheduler"] = (*self._scheduler_flags(), *flags, *scheduler_flags)
        self._parts = {
            part: Process(part, (str(binary), part, *command), folder / f"{part}.log")
            for part, command in commands.items()
        }

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._api}"

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def client(self, kubeconfig: Path | None = None) -> Client:
        return Client(kubeconfig or self.kubeconfig)

    def start(self, *parts: Part) -> None:
        """Starts these parts, or all that do not run, and returns when they are ready."""
        for part in PARTS:
            if part in self._parts and (part in parts or not parts):
                self._parts[part].start()
                self._wait_for(part)

    def kill(self, *parts: Part) -> None:
        """Ends these parts with SIGKILL."""
        for part in parts:
            self._parts[part].kill()

    def restart(self, *parts: Part) -> None:
        self.kill(*parts)
        self.start(*parts)

    def pause(self, part: Part) -> None:
        """Stops a part with SIGSTOP: its connections stay open, and it does not answer."""
        self._parts[part].pause()

    def resume(self, part: Part) -> None:
        self._parts[part].resume()

    def stop(self) -> None:
        self.kill(*reversed(tuple(self._parts)))

    def backup(self) -> Path:
        """A copy of etcd's data as it is now."""
        copy = self.folder / f"etcd-copy-{time.time_ns()}"
        self.pause("etcd")  # the copy is what a killed etcd would have left
        try:
            shutil.copytree(self._data, copy)
        finally:
            self.resume("etcd")
        return copy

    def restore(self, copy: Path) -> None:
        """Sets the cluster back to a copy.

        All parts are started anew, as is documented for a restoration of etcd: they know versions of objects that are
        in the future of the copy. Clients are not told, they have to notice.
        """
        self.stop()
        shutil.rmtree(self._data)
        shutil.copytree(copy, self._data)
        self.start()

    def kubeconfig_for(self, user: str, groups: Iterable[str] = ()) -> Path:
        """The kubeconfig file of a further user.

        The API server reads its users when it starts: one that runs is restarted when the user is new.
        """
        if self._credentials.add(user, groups) and self._parts["kube-apiserver"].is_running:
            self.restart("kube-apiserver")
        return self._credentials.kubeconfig(user)

    def account_token(self, namespace: str, account: str, seconds: int = 3600) -> str:
        """A token of a service account by TokenRequest, as a pod of that account has it."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
        answer = self.client().post(path, {**request, "spec": {"expirationSeconds": seconds}})
        return str(answer["status"]["token"])

    def account_kubeconfig(self, namespace: str, account: str) -> Path:
        token = self.account_token(namespace, account)
        return self._credentials.write_kubeconfig(f"system:serviceaccount:{namespace}:{account}", token)

    def check(self) -> None:
        """Raises ProcessEnded if a part has ended by itself."""
        for part in self._parts.values():
            part.check()

    def answers(self, part: Part) -> bool:
        """Whether it says that it is ready."""
        addresses: dict[Part, str] = {
            "etcd": f"http://127.0.0.1:{self._etcd}/health",
            "kube-apiserver": f"{self.url}/readyz",
            "kube-controller-manager": f"https://127.0.0.1:{self._controllers}/healthz",
            "kube-scheduler": f"https://127.0.0.1:{self._scheduler}/healthz",
        }
        try:
            # These addresses need no user, and it is not in question which program answers on loopback.
            return httpx.get(addresses[part], verify=False, timeout=5.0, trust_env=False).is_success
        except httpx.HTTPError:
            return False

    def _wait_for(self, part: Part) -> None:
        give_up_at = time.monotonic() + HANG_SECONDS
        while not self.answers(part):
            self.check()
            if time.monotonic() > give_up_at:
                raise TimeoutError(f"{part} does not become ready: read {self._parts[part].log}")
            time.sleep(0.05)

    def _etcd_flags(self) -> tuple[str, ...]:
        clients, peers = f"http://127.0.0.1:{self._etcd}", f"http://127.0.0.1:{self._peer}"
        return (
            f"--data-dir={self._data}",
            f"--listen-client-urls={clients}",
            f"--advertise-client-urls={clients}",
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=default={peers}",
            "--unsafe-no-fsync",
            "--log-level=warn",
        )

    def _api_flags(self) -> tuple[str, ...]:
        key = self._credentials.accounts_key
        return (
            f"--etcd-servers=http://127.0.0.1:{self._etcd}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._api}",
            f"--cert-dir={self._certificate.parent}",
            f"--token-auth-file={self._credentials.tokens_file}",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={key}",
            f"--service-account-signing-key-file={key}",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--endpoint-reconciler-type=none",
        )

    def _controller_flags(self) -> tuple[str, ...]:
        return (
            f"--kubeconfig={self.kubeconfig}",
            f"--controllers={','.join(CONTROLLERS)}",
            f"--service-account-private-key-file={self._credentials.accounts_key}",
            f"--root-ca-file={self._certificate}",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._controllers}",
            f"--cert-dir={self.folder / 'controllers'}",
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
            "--node-monitor-grace-period=1h",  # simulated nodes renew no leases: a test breaks one by its condition
        )

    def _scheduler_flags(self) -> tuple[str, ...]:
        return (
            f"--kubeconfig={self.kubeconfig}",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._scheduler}",
            f"--cert-dir={self.folder / 'scheduler'}",
        )


def free_ports(count: int) -> tuple[int, ...]:
    """Not of those that the kernel gives to clients: a client that tries to reach a server that is down could be given
    the server's port."""
    ports: list[int] = []
    for port in random.SystemRandom().sample(range(10_000, 32_000), 1_000):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        ports.append(port)
        if len(ports) == count:
            return tuple(ports)
    raise RuntimeError("no ports are free")
