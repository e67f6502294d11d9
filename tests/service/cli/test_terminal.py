"""What the terminal sees: watching, following, Ctrl-C, completion, the widths of tables, and quick help."""

from __future__ import annotations

import fcntl
import os
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from command_line import horae
from fake_service import FakeService, World, dropped, status
from patience import HANG_SECONDS, wait_until

from horae.cli.live.completion import within
from horae.cli.live.tables import Column, cut, table
from horae.cli.live.times import ago, duration, local, moment
from horae.client.event_stream import SentEvent, sent_events
from horae.service.models import EventView, NodeView


@contextmanager
def command(*words: str) -> Iterator[subprocess.Popen[str]]:
    """A command in a process of its own, which a test can interrupt."""
    started = subprocess.Popen(
        [sys.executable, "-m", "horae", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ},
    )
    try:
        yield started
    finally:
        started.kill()
        started.communicate()


def on_terminal(columns: int, *words: str) -> str:
    """What a command writes to a terminal of this width."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with subprocess.Popen([sys.executable, "-m", "horae", *words], stdout=theirs, env={**os.environ}) as started:
        os.close(theirs)
        assert started.wait(HANG_SECONDS) == 0
    text = os.read(ours, 100_000).decode()
    os.close(ours)
    return text


def interrupted(started: subprocess.Popen[str]) -> tuple[int, str, str]:
    started.send_signal(signal.SIGINT)
    out, err = started.communicate(timeout=HANG_SECONDS)
    return started.returncode, out, err


def test_eighty_columns_cut_no_number(world: World) -> None:
    numbers = {"number": 123456, "rho": 12345.678, "wait_seconds": 987654.0, "gpus": 1024, "held_gpus": 1024}
    names = {"name": "a-very-long-name-of-a-job", "user": "maximiliane", "tenant": "computer-vision"}
    world.add(**numbers, **names, state="running", places=["n1/0"], run_seconds=200.0)
    lines = on_terminal(80, "ls", "--all").splitlines()
    assert [len(line) <= 80 for line in lines] == [True, True], lines
    for number in ("123456", "1024/1024", "12,345.68", "11d 10h", "3m 20s"):
        assert number in lines[1]
    assert "a-ver…" in lines[1]


def test_watch_goes_on_until_ctrl_c(world: World) -> None:
    world.add()
    world.faults += [status(200, b'{"user": "ada", "role": "user", "tenant": "", "via": "socket"}')]
    with command("ls", "--watch") as started:
        wait_until(lambda: len(world.requests("GET", "/jobs")) >= 3)  # two are printed, whatever the third does
        code, out, err = interrupted(started)
    assert (code, err) == (0, "")
    assert out.count("ID  NAME") >= 2


def test_watching_survives_a_service_that_is_started_anew(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = iter([None, None])

    def sleep(seconds: float) -> None:
        if seconds > 1 and next(looks, "done") == "done":
            raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", sleep)
    world.faults += [status(503), status(503)]
    outcome = horae("nodes", "--watch")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.splitlines() == [
        "the service answered 503 Service Unavailable; see the log of the service",
        "no nodes",
        "no nodes",
    ]


def test_ctrl_c_while_waiting_leaves_the_job_running(world: World) -> None:
    world.faults += [status(201, b'{"ids": ["1"]}')]
    world.add(state="running")
    with command("submit", "--wait", "--", "sleep", "9") as started:
        wait_until(lambda: len(world.requests("GET", "/jobs/1")) >= 2)
        code, out, err = interrupted(started)
    assert (code, out) == (130, "1\n")
    assert err == "horae: interrupted; the job goes on: `horae stop 1` would stop it\n"
    assert world.jobs["1"].state == "running"


def test_ctrl_c_stops_an_interactive_job(world: World) -> None:
    world.faults += [status(201, b'{"ids": ["1"]}')]
    world.add(state="running")
    with command("run", "--", "bash") as started:
        wait_until(lambda: len(world.requests("GET", "/jobs/1")) >= 2)
        code, out, err = interrupted(started)
    assert (code, out) == (1, "")
    assert "horae: stopping 1; Ctrl-C again leaves it" in err
    assert world.jobs["1"].state == "cancelled"


def test_events_are_followed_over_broken_connections(world: World, service: FakeService) -> None:
    from horae import Client  # noqa: PLC0415

    def event(seq: int) -> EventView:
        return EventView(seq=seq, at=0.0, kind="x", job_id=None, tenant=None, text="")

    world.events = [event(seq) for seq in (1, 2)]

    def sleep(seconds: float) -> None:
        del seconds
        world.events.append(event(world.events[-1].seq + 1))

    with Client(state=service.socket.parent, sleep=sleep) as client:
        found = client.events(follow=True)
        assert [next(found).seq for _ in range(2)] == [1, 2]
        assert [next(found).seq for _ in range(3)] == [3, 4, 5]
        world.faults += [dropped]
        assert next(found).seq == 6
    streams = world.requests("GET", "/events/stream")
    assert [each.headers["last-event-id"] for each in streams][:4] == ["2", "2", "3", "4"]


def test_output_is_followed_over_broken_connections(world: World, service: FakeService) -> None:
    from horae import Client  # noqa: PLC0415

    world.add(state="finished")
    world.output["1"] = b"one two three four five"
    world.faults += [dropped, status(503)]
    with Client(state=service.socket.parent, sleep=lambda seconds: None) as client:
        assert b"".join(client.logs("1", follow=True)) == world.output["1"]


def test_server_sent_events() -> None:
    lines = [
        ": hello",
        "",
        "id: 1",
        "event: x",
        "data: a",
        "data:b",
        "",
        "id: 2",
        "",
        "",
        "data: c",
        "",
        "data: unfinished",
    ]
    assert list(sent_events(lines)) == [SentEvent("1", "a\nb"), SentEvent("2", ""), SentEvent("2", "c")]


# Completion


def complete(words: str, position: int) -> list[str]:
    """What the shell gets for the last word of a command line."""
    asked = {"_HORAE_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(position)}
    before = dict(os.environ)
    os.environ.update(asked)
    try:
        outcome = horae()
    finally:
        os.environ.clear()
        os.environ.update(before)
    assert outcome.err == ""
    return outcome.out.split()


def test_the_shell_completes_jobs_and_nodes(world: World) -> None:
    world.add(number=17, name="bert")
    world.add(number=18, name="gpt")
    world.add(number=19, name="be\x1b[31m")
    assert complete("horae show be", 2) == ["bert"]
    assert complete("horae logs 1", 2) == ["19", "18", "17"]
    assert complete("horae stop bert g", 3) == ["gpt"]
    world.nodes = [
        NodeView(
            name="a1", gpu_type="A", gpus=1, free=1, health="healthy", reason="", drain_at=None, jobs=[], unusable={}
        )
    ]
    assert complete("horae node drain a", 3) == ["a1"]
    assert complete("horae tenants ", 2) == ["ls", "set", "plan"]


def test_completion_is_silent_without_a_service(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.faults += [status(500), status(200)]
    assert complete("horae show b", 2) == []
    assert complete("horae show b", 2) == []
    monkeypatch.setenv("HORAE_STATE", "/nowhere")
    assert complete("horae show b", 2) == []


def test_completion_does_not_wait() -> None:
    began = time.monotonic()

    def never() -> list[str]:
        time.sleep(60)
        return ["late"]

    assert within(0.01, never) == []
    assert time.monotonic() - began < 30


# Help


@pytest.mark.parametrize(("words", "more"), [(["--help"], ["pydantic"]), (["token", "--help"], [])])
def test_help_imports_no_library_of_the_client(words: list[str], more: list[str]) -> None:
    heavy = ("httpx", "rich", "yaml", "numpy", *more)  # typer imports pydantic for commands with options
    script = (
        "import sys; sys.argv = ['horae', *sys.argv[1:]]\n"
        "from horae.cli.main import run\n"
        "try: run()\nexcept SystemExit: pass\n"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True, check=True)
    assert answer.stdout.splitlines()[-1] == "[]"


# Words


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "-"), (float("inf"), "-"), (-5, "0s"), (0.4, "0s"), (59.9, "59s"), (725, "12m 05s"), (7500, "2h 05m"),
     (273600, "3d 04h"), (864000000, "10,000d 00h")],
)  # fmt: skip
def test_durations(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("at", "text"),
    [(None, "-"), (1e9, "now"), (1e9 - 45, "45 s ago"), (1e9 - 200, "3 min ago"), (1e9 - 7300, "2 h ago"),
     (1e9 - 90000, "1 day ago"), (1e9 - 300000, "3 days ago"), (1e9 + 90, "in 1 min"), (1e18, "9999-12-31 23:46:40")],
)  # fmt: skip
def test_times_from_now(world: World, at: float | None, text: str) -> None:
    del world  # for its time zone
    assert ago(at, 1e9) == text


def test_moments(world: World) -> None:
    del world
    assert moment(None, "--since", 1e9) is None
    assert moment("2h", "--since", 1e9) == 1e9 - 7200
    assert moment("2001-09-09 01:46:40", "--since", 0.0) == 1e9
    assert moment("2001-09-09T03:46:40+02:00", "--since", 0.0) == 1e9
    assert local(1e9) == "2001-09-09 01:46:40"


def test_tables_cut_words_from_the_widest() -> None:
    columns: list[Column[tuple[str, str, str]]] = [
        Column("NAME", lambda row: row[0], is_cut=True),
        Column("N", lambda row: row[1], is_number=True),
        Column("WHY", lambda row: row[2], is_cut=True),
    ]
    rows = [("模型训练模型", "1,000", "no room for it"), ("b", "2", "")]
    assert table(rows, columns) == [
        "NAME              N  WHY",
        "模型训练模型  1,000  no room for it",
        "b                 2",
    ]
    assert table(rows, columns, 20) == ["NAME        N WHY", "模型训… 1,000 no ro…", "b           2"]
    assert table(rows, columns, 5)[1] == "模…  1,000 no…"
    assert [cut("模型训练", width) for width in (8, 7, 4, 1)] == ["模型训练", "模型训…", "模…", "…"]
