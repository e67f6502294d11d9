"""Users of a control plane: tokens in a file that the API server reads, and kubeconfig files."""

from __future__ import annotations

import json
import secrets
import subprocess
from collections.abc import Iterable
from pathlib import Path

ADMINISTRATOR = "administrator"


class Credentials:
    def __init__(self, folder: Path, server: str, certificate: Path) -> None:
        self.tokens_file = folder / "tokens.csv"
        self.accounts_key = folder / "accounts.key"
        self._folder = folder
        self._server = server
        self._certificate = certificate
        self._users: dict[str, tuple[str, tuple[str, ...]]] = {}  # token and groups
        # Not `genpkey`: the API server does not read an EC key in PKCS #8.
        command = ["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(self.accounts_key)]
        subprocess.run(command, check=True, stdin=subprocess.DEVNULL)

    def add(self, user: str, groups: Iterable[str] = ()) -> bool:
        """Whether the user, with these groups, is new: the API server has to read the file again."""
        known, groups = self._users.get(user), tuple(groups)
        if known is not None and known[1] == groups:
            return False
        self._users[user] = (secrets.token_hex(16) if known is None else known[0], groups)
        self.tokens_file.write_text(
            "".join(f'{token},{name},{name},"{",".join(of)}"\n' for name, (token, of) in self._users.items())
        )
        return True

    def kubeconfig(self, user: str) -> Path:
        """The file of a user that was added."""
        return self.write_kubeconfig(user, self._users[user][0])

    def write_kubeconfig(self, user: str, token: str) -> Path:
        cluster = {"server": self._server, "certificate-authority": str(self._certificate)}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": user, "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": user, "namespace": "default"}}],
        }
        path = self._folder / f"{user.replace(':', '_')}.kubeconfig"
        path.write_text(json.dumps(content, indent=2))  # JSON is YAML
        return path
