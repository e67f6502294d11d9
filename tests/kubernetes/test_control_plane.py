"""The control plane that the tests of the Kubernetes engine run on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from patience import wait_until

from kubernetes.client import ApiError, Client, eventually
from kubernetes.control_plane import ControlPlane
from kubernetes.processes import ProcessEnded

NAMESPACES = "/api/v1/namespaces"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
STARTS_AND_SLEEPS = """
import sys, time
from pathlib import Path
from kubernetes.processes import Process
sleeper = Process("sleeper", ["sleep", "100000"], Path(sys.argv[1]))
sleeper.start()
print(sleeper.pid, flush=True)
time.sleep(100000)
"""


def test_a_program_ends_with_the_test_that_has_started_it(tmp_path: Path) -> None:
    command = [sys.executable, "-c", STARTS_AND_SLEEPS, str(tmp_path / "log")]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as test:
        assert test.stdout is not None
        sleeper = Path(f"/proc/{int(test.stdout.readline())}")
        assert sleeper.exists()
        test.send_signal(signal.SIGKILL)
    wait_until(lambda: not sleeper.exists())


@pytest.mark.kubernetes
def test_users_and_service_accounts_may_do_what_roles_allow_them(control_plane: ControlPlane) -> None:
    administrator = control_plane.client()
    administrator.post(NAMESPACES, {"metadata": {"name": "accounts"}})
    eventually(lambda: administrator.find(f"{NAMESPACES}/accounts/serviceaccounts/default"))
    alice = control_plane.client(control_plane.kubeconfig_for("alice", ["users"]))
    account = control_plane.client(control_plane.account_kubeconfig("accounts", "default"))
    assert not _may_list_pods(alice) and not _may_list_pods(account)
    subject = {"kind": "Group", "name": "users", "apiGroup": "rbac.authorization.k8s.io"}
    role = {"kind": "ClusterRole", "name": "view", "apiGroup": "rbac.authorization.k8s.io"}
    binding = {"metadata": {"name": "readers"}, "roleRef": role, "subjects": [subject]}
    administrator.post(f"{RBAC}/namespaces/accounts/rolebindings", binding)
    assert eventually(lambda: _may_list_pods(alice))
    assert not _may_list_pods(account)
    administrator.delete(f"{NAMESPACES}/accounts")


def _may_list_pods(client: Client) -> bool:
    try:
        client.pods("accounts")
    except ApiError as error:
        assert error.reason == "Forbidden"
        return False
    return True


@pytest.mark.kubernetes
def test_older_versions_are_emulated(control_plane_binary: Path, tmp_path: Path) -> None:
    with ControlPlane(control_plane_binary, tmp_path, flags=["--emulated-version=1.34"]) as older:
        assert older.client().get("/version")["emulationMinor"] == "34"


@pytest.mark.kubernetes
def test_a_part_that_ends_by_itself_names_its_log(control_plane_binary: Path, tmp_path: Path) -> None:
    misconfigured = ControlPlane(control_plane_binary, tmp_path, api_flags=["--no-such-flag"])
    with pytest.raises(ProcessEnded, match=r"kube-apiserver has ended with 1: read .*kube-apiserver\.log"):
        misconfigured.__enter__()
    assert not misconfigured.answers("etcd")


@pytest.mark.kubernetes
def test_data_are_set_back_to_an_older_copy(control_plane: ControlPlane) -> None:
    client = control_plane.client()
    client.post(NAMESPACES, {"metadata": {"name": "before"}})
    copy = control_plane.backup()
    client.post(NAMESPACES, {"metadata": {"name": "after"}})
    control_plane.restore(copy)
    assert client.find(f"{NAMESPACES}/before") is not None
    assert client.find(f"{NAMESPACES}/after") is None
    client.delete(f"{NAMESPACES}/before")


@pytest.mark.kubernetes
def test_a_part_that_is_paused_does_not_answer_until_it_is_resumed(control_plane: ControlPlane) -> None:
    client = control_plane.client()
    control_plane.pause("kube-apiserver")
    assert not control_plane.answers("kube-apiserver")
    control_plane.resume("kube-apiserver")
    assert eventually(lambda: client.find(f"{NAMESPACES}/default"))
