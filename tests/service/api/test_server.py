"""The API on loopback and on a Unix socket, where the kernel tells who asks."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest
from service.api.harness import SETUP, World

from horae.service import config
from horae.service.api import server
from horae.service.api.context import Context, User, context_of
from horae.service.api.identity import of_peer
from horae.service.api.problems import Refused

SERVE = """
import sys
from pathlib import Path
from horae.service.api.context import Context
from horae.service.api.server import serve
serve(Context(sys.argv[1], Path(sys.argv[2]), own_uid=4242), port=0, uds=Path(sys.argv[3]))
"""
ASK = """
import http.client, socket, sys
connection = http.client.HTTPConnection("horae")
connection.sock = socket.socket(socket.AF_UNIX)
connection.sock.connect(sys.argv[1])
connection.request("GET", "/v1/me")
print(connection.getresponse().read().decode())
"""
NOBODY = 65534


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every user may enter."""
    made = Path(tempfile.mkdtemp())
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


def test_identity_by_peer_credentials() -> None:
    context = Context("", Path(), own_uid=4242, users={"nobody": User("vision", "viewer")})
    assert (of_peer(4242, context).role, of_peer(0, context).role) == ("operator", "operator")
    assert (of_peer(NOBODY, context).tenant, of_peer(NOBODY, context).role) == ("vision", "viewer")
    with pytest.raises(Refused) as problem:  # its jobs would run as user 4242
        of_peer(54321, context)
    assert (problem.value.problem.status, "users:" in str(problem.value.problem.remedy)) == (403, True)
    stranger = of_peer(54321, replace(context, own_uid=0))
    assert (stranger.user, stranger.tenant, stranger.role) == ("54321", "default", "user")


def test_answers_do_not_wait_for_acknowledgements() -> None:
    """Connections inherit it from the listening socket."""
    with server._tcp("127.0.0.1", 0) as listening, socket.create_connection(listening.getsockname()):
        listening.setblocking(True)
        with listening.accept()[0] as accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_settings_come_from_the_configuration(tmp_path: Path) -> None:
    limits = config.Limits(jobs_per_user=3, max_duration=60.0)
    users = {"nobody": config.UserEntry(tenant="vision", role="viewer")}
    context = context_of(config.ServiceConfig(SETUP, tmp_path, "sqlite:///x", limits=limits, users=users))
    assert (context.url, context.limits.jobs_per_user, context.limits.max_duration) == ("sqlite:///x", 3, 60.0)
    assert context.users == {"nobody": User("vision", "viewer")}


def test_one_process_serves_both_and_ends_at_once(world: World, folder: Path) -> None:
    path = folder / "api.sock"
    service = subprocess.Popen(
        [sys.executable, "-c", SERVE, world.url, str(world.state), str(path)], stderr=subprocess.PIPE, text=True
    )
    try:
        assert service.stderr is not None
        first = json.loads(service.stderr.readline())
        address = f"http://{first['addresses'][0]}"
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), base_url="http://horae") as client:
            mine = client.get("/v1/me").json()
            assert mine["via"] == "socket"
            if os.getuid() == 0:
                assert mine["role"] == "operator"
                asked = subprocess.run(
                    ["/usr/bin/python3", "-c", ASK, str(path)], user=NOBODY, capture_output=True, text=True, check=True
                )
                other = json.loads(asked.stdout)
                assert (other["status"], "not a user of this service" in other["detail"]) == (403, True)
            by_token = client.get("/v1/me", headers=world.headers("ann")).json()
            assert (by_token["user"], by_token["via"]) == ("ann", "token")
        assert httpx.get(f"{address}/v1/me").status_code == 401
        assert httpx.get(f"{address}/v1/me", headers=world.headers("bob")).json()["user"] == "bob"
        with httpx.stream("GET", f"{address}/v1/events/stream", headers=world.headers("ann"), timeout=10):
            asked_at = time.monotonic()
            service.send_signal(signal.SIGTERM)
            assert service.wait(20) == 0
            assert time.monotonic() - asked_at < 4, "an open stream does not delay the end"
        assert not path.exists()
    finally:
        service.kill()
        service.wait()
