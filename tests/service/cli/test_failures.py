"""Services that are away, slow, broken or something else: one line with a remedy, and no job submitted twice."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest
from command_line import horae
from fake_service import FakeService, World, dropped, problem, status

from horae import Client, ServiceError

COMMANDS = ["ls", "show 1", "why 1", "logs 1", "stop 1", "top", "nodes", "tenants ls", "share", "usage", "history",
            "events", "policy set nlp las", "reserve nlp A100.node=1", "token ls", "submit -- x", "run -- x",
            "node drain n1"]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_without_a_service_a_command_says_how_to_start_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.delenv("HORAE_URL", raising=False)
    monkeypatch.setenv("HORAE_STATE", str(tmp_path))
    want = f"no service runs here: there is no {tmp_path}/api.sock; start one with `horae up`, or set HORAE_URL"
    assert horae(*command.split()).complaint.startswith(want)


def test_a_socket_that_a_dead_service_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HORAE_URL", raising=False)
    monkeypatch.setenv("HORAE_STATE", str(tmp_path))
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "api.sock"))
    want = f"no service answers at {tmp_path}/api.sock (Connection refused); start it with `horae up`"
    assert horae("ls").complaint.startswith(want)


@pytest.mark.parametrize(
    ("fault", "want"),
    [
        (
            problem(401, "no valid token was sent"),
            "no valid token was sent; set HORAE_TOKEN to a token of this service",
        ),
        (problem(422, "is 0", field="gpus", remedy="give 1"), "gpus: is 0; give 1"),
        (problem(429, "10 jobs wait"), "10 jobs wait; wait for running jobs to end, or ask an operator"),
        (problem(409, "it\nhas \x1b[1mended", remedy="no"), "it has \\x1b[1mended; no"),
        (status(500), "the service answered 500 Internal Server Error; see the log of the service"),
        (status(404), "the service answered 404 Not Found; "),
        (status(418, b""), "the service answered 418 I'm a Teapot; check the request"),
        (status(200), "answered what this version of Horae cannot read; check the address"),
        (status(200, b'{"items": [{"id": 1}], "next": null}'), "answered what this version of Horae cannot read"),
        (status(200, b'{"items": 7}'), "answered what this version of Horae cannot read"),
        (status(200, b"[null]"), "answered what this version of Horae cannot read"),
        (status(200, b"\xff\xfe"), "answered what this version of Horae cannot read"),
    ],
)
def test_an_answer_that_is_an_error_is_one_line(world: World, fault: object, want: str) -> None:
    world.faults.append(fault)  # type: ignore[arg-type]
    assert want in horae("ls", "--all").complaint


def test_reads_are_retried_once(world: World) -> None:
    world.faults += [status(503)]
    assert horae("nodes").code == 0
    world.faults += [dropped]
    assert horae("nodes").code == 0
    world.faults += [status(503), problem(503, "it starts", remedy="wait")]
    assert horae("nodes").complaint == "it starts; wait"
    assert len(world.requests("GET", "/nodes")) == 6


def test_changes_are_sent_once(world: World) -> None:
    world.faults += [dropped]
    assert "closed the connection; try again" in horae("node", "resume", "n1").complaint
    assert len(world.asked) == 1


def test_a_submission_whose_answer_is_lost_makes_one_job(world: World) -> None:
    world.faults += [dropped, status(503, retry_after="0"), dropped]
    outcome = horae("submit", "--", "python", "train.py")
    assert (outcome.code, outcome.out) == (0, "1\n")
    sent = world.requests("POST", "/jobs")
    assert len(sent) == 4
    assert len({each.headers["idempotency-key"] for each in sent}) == 1
    assert len(world.jobs) == 1
    horae("submit", "--", "python", "train.py")
    assert len(world.jobs) == 2


def test_a_submission_gives_up_after_bounded_delays(world: World, service: FakeService) -> None:
    world.faults += [status(503)] * 20
    slept: list[float] = []
    with Client(state=service.socket.parent, sleep=slept.append) as client, pytest.raises(ServiceError) as caught:
        client.submit({"run": "x"})
    assert caught.value.status == 503
    assert slept == [0.1, 0.2, 0.5, 1.0, 2.0, 4.0]


def test_a_submission_that_is_refused_is_not_sent_again(world: World) -> None:
    world.faults += [problem(422, "is 0", field="gpus", remedy="give 1")]
    assert horae("submit", "--", "x").complaint == "gpus: is 0; give 1"
    assert len(world.asked) == 1


# Where the service is


def test_a_url_with_a_token_comes_before_the_state_folder(
    world: World, service: FakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HORAE_URL", f"unix:{service.socket}")
    monkeypatch.setenv("HORAE_TOKEN", "secret")
    monkeypatch.setenv("HORAE_STATE", "/nowhere")
    assert horae("nodes").code == 0
    assert world.asked[-1].headers["authorization"] == "Bearer secret"
    with Client(state=service.socket.parent) as client:  # a token is for the address that it was given with
        client.nodes()
    assert "authorization" not in world.asked[-1].headers


def test_a_url_in_the_state_folder(
    world: World, service: FakeService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "url").write_text(f"unix:{service.socket}\n")
    (tmp_path / "token").write_text("secret\n")
    monkeypatch.setenv("HORAE_STATE", str(tmp_path))
    assert horae("nodes").code == 0
    assert world.asked[-1].headers["authorization"] == "Bearer secret"


@pytest.mark.parametrize("url", ["example.com", "ftp://x", "http://x:port"])
def test_a_url_that_is_none(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("HORAE_URL", url)
    assert "is no address of a service" in horae("ls").complaint


def test_nothing_listens_at_a_url(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        monkeypatch.setenv("HORAE_URL", f"http://127.0.0.1:{free.getsockname()[1]}")
        monkeypatch.setenv("NO_PROXY", "*")
        assert "Connection refused" in horae("ls").complaint


def test_the_home_folder_is_the_last_resort(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HORAE_URL", "HORAE_STATE", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert f"{tmp_path}/.local/state/horae/api.sock" in horae("ls").complaint
    assert os.environ["HOME"] == str(tmp_path)
