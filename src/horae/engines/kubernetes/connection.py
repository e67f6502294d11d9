"""How the API server is reached: from a kubeconfig file, or from within a pod by its service account."""

from __future__ import annotations

import base64
import json
import os
import ssl
import subprocess
import tempfile
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import yaml

from horae.model.errors import InputError

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_EXEC_SECONDS = 60.0
_EXEC_VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
_UNAUTHORIZED = 401


@dataclass(frozen=True)
class Connection:
    url: str
    context: ssl.SSLContext | bool
    auth: httpx.Auth | None


def in_cluster() -> Connection | None:
    """The connection of a pod, or None outside of a cluster."""
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT")
    if not host or not port or not (ACCOUNT / "token").exists():
        return None
    bracketed = f"[{host}]" if ":" in host else host
    context = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
    return Connection(f"https://{bracketed}:{port}", context, TokenFile(ACCOUNT / "token"))


def connect(kubeconfig: Path | None = None, context: str | None = None) -> Connection:
    """The connection that a kubeconfig file describes; without one, the pod's, KUBECONFIG, or ~/.kube/config."""
    if kubeconfig is None:
        inside = in_cluster()
        if inside is not None:
            return inside
    path = kubeconfig or Path(os.environ.get("KUBECONFIG") or "~/.kube/config").expanduser()
    return read_kubeconfig(path, context)


def read_kubeconfig(path: Path, context: str | None = None) -> Connection:
    """Errors name the file, the field and the remedy."""
    file = _File(path)
    name = context or file.tree.get("current-context")
    if not name:
        raise InputError("names no context", file=str(path), field="current-context", remedy="name one, or --context")
    chosen = file.entry("contexts", "context", str(name))
    cluster = file.entry("clusters", "cluster", str(chosen.get("cluster")))
    user = file.entry("users", "user", str(chosen["user"])) if chosen.get("user") else {}
    server = cluster.get("server")
    if not isinstance(server, str) or not server.startswith(("https://", "http://")):
        raise InputError("is no address", file=str(path), field="clusters.server", remedy="give https://HOST:PORT")
    return Connection(server.rstrip("/"), _trust(file, cluster, user), _auth(file, user))


class _File:
    """A kubeconfig file; relative paths in it are relative to its folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.tree: dict[str, Any] = yaml.safe_load(path.read_text()) or {}
        except OSError as error:
            remedy = "give --kubeconfig FILE, or run in a pod with a service account"
            raise InputError(f"cannot be read: {error.strerror}", file=str(path), remedy=remedy) from None
        except (yaml.YAMLError, UnicodeDecodeError):
            self.tree = {}
        if not isinstance(self.tree, dict) or not self.tree:
            raise InputError("is no kubeconfig file", file=str(path), remedy="give one that kubectl can read")

    def entry(self, kinds: str, kind: str, name: str) -> dict[str, Any]:
        entries = self.tree.get(kinds)
        for each in entries if isinstance(entries, list) else []:
            if isinstance(each, dict) and each.get("name") == name and isinstance(each.get(kind), dict):
                return each[kind]
        raise InputError(f"has no {kind} {name!r}", file=str(self.path), field=kinds, remedy=f"add it under {kinds}")

    def data(self, entry: Mapping[str, Any], name: str) -> bytes | None:
        """The content of `name`, a path, or of `name`-data, which is in base64."""
        inline, path = entry.get(f"{name}-data"), entry.get(name)
        try:
            if inline:
                return base64.b64decode(inline)
            return None if not path else (self.path.parent / str(path)).read_bytes()
        except (OSError, ValueError) as error:
            raise InputError(f"cannot be read: {error}", file=str(self.path), field=name, remedy="correct it") from None


def _trust(file: _File, cluster: Mapping[str, Any], user: Mapping[str, Any]) -> ssl.SSLContext | bool:
    authority = file.data(cluster, "certificate-authority")
    context = ssl.create_default_context(cadata=None if authority is None else authority.decode())
    if cluster.get("insecure-skip-tls-verify"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    certificate, key = file.data(user, "client-certificate"), file.data(user, "client-key")
    if certificate is not None and key is not None:
        with tempfile.TemporaryDirectory() as folder:  # only files can be loaded
            pair = Path(folder, "certificate"), Path(folder, "key")
            for path, content in zip(pair, (certificate, key), strict=True):
                path.touch(mode=0o600)
                path.write_bytes(content)
            context.load_cert_chain(*pair)
    return context


def _auth(file: _File, user: Mapping[str, Any]) -> httpx.Auth | None:
    if user.get("tokenFile"):
        return TokenFile(file.path.parent / str(user["tokenFile"]))
    if user.get("token"):
        return _Token(str(user["token"]))
    if user.get("exec"):
        return ExecToken(user["exec"], str(file.path))
    if user.get("username") and user.get("password"):
        return httpx.BasicAuth(str(user["username"]), str(user["password"]))
    return None


class _Token(httpx.Auth):
    def __init__(self, token: str) -> None:
        self._token = token

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        request.headers["Authorization"] = f"Bearer {self._token}"
        yield request


class _Renewed(httpx.Auth):
    """A token that is fetched again when the server no longer accepts it."""

    def __init__(self) -> None:
        self._token = ""

    def fetch(self) -> str:
        raise NotImplementedError

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        self._token = self._token or self.fetch()
        request.headers["Authorization"] = f"Bearer {self._token}"
        response = yield request
        if response.status_code == _UNAUTHORIZED:
            self._token = self.fetch()
            request.headers["Authorization"] = f"Bearer {self._token}"
            yield request


class TokenFile(_Renewed):
    """The token of a service account, which the kubelet renews in its file."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def fetch(self) -> str:
        return self._path.read_text().strip()


class ExecToken(_Renewed):
    """A token that a program prints, as cloud providers have it."""

    def __init__(self, given: Mapping[str, Any], file: str) -> None:
        super().__init__()
        if given.get("apiVersion") not in _EXEC_VERSIONS:
            problem = f"is {given.get('apiVersion')}"
            raise InputError(problem, file=file, field="exec.apiVersion", remedy=f"use {_EXEC_VERSIONS[0]}")
        self._command = [str(given.get("command")), *map(str, given.get("args") or ())]
        self._environment = {str(each["name"]): str(each["value"]) for each in given.get("env") or ()}
        self._version = str(given["apiVersion"])

    def fetch(self) -> str:
        asked = {"apiVersion": self._version, "kind": "ExecCredential", "spec": {"interactive": False}}
        environment = {**os.environ, **self._environment, "KUBERNETES_EXEC_INFO": json.dumps(asked)}
        answer = subprocess.run(
            self._command, env=environment, stdout=subprocess.PIPE, check=True, timeout=_EXEC_SECONDS
        )
        return str(json.loads(answer.stdout)["status"]["token"])
