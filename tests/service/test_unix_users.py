"""A service of root: every job runs as the Unix user that submitted it, also where the configuration lists none."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from live_service import Service, wait_for

NOBODY = 65534
SUBMIT = """
import http.client, json, socket, sys
connection = http.client.HTTPConnection("horae")
connection.sock = socket.socket(socket.AF_UNIX)
connection.sock.connect(sys.argv[1])
connection.request("POST", "/v1/jobs", json.dumps({"run": sys.argv[2]}), {"Content-Type": "application/json"})
print(connection.getresponse().read().decode())
"""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can run jobs as another user")


@pytest.fixture
def running() -> Iterator[Service]:
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    before = os.umask(0o077)  # as many machines set it for root
    service = Service(folder / "state", "--emulate", "1x2:A100")
    service.port = 0  # any that is free
    try:
        service.start()
        yield service
    finally:
        os.umask(before)
        service.end()
        shutil.rmtree(folder)


def test_jobs_run_as_their_submitters(running: Service) -> None:
    command = "id -u; touch mine && echo made; cat ../../../../token"
    asked = subprocess.run(
        ["/usr/bin/python3", "-c", SUBMIT, str(running.state / "api.sock"), command],
        user=NOBODY, group=NOBODY, capture_output=True, text=True, check=True,
    )  # fmt: skip
    (theirs,) = json.loads(asked.stdout)["ids"]
    client = running.client()
    mine = client.submit({"run": "id -u; echo $HOME; echo $HORAE_URL"})
    wait_for(client, ("finished", "failed"))
    jobs = running.state / "engine" / "jobs"
    first = (jobs / theirs / "output.log").read_text()
    assert first.splitlines()[:2] == [str(NOBODY), "made"]
    assert "denied" in first, "the operator's token is not theirs"
    assert (jobs / theirs / "output.log").stat().st_mode & 0o777 == 0o600
    url = (running.state / "url").read_text().strip()
    assert (jobs / mine[0] / "output.log").read_text().splitlines() == ["0", pwd.getpwuid(0).pw_dir, url]
    assert httpx.get(f"{url}/healthz").status_code == 200, "jobs reach the API at the port that was chosen"
    assert url in running.log.read_text()
    assert client.job(theirs).user == "nobody"
