"""The service under load: submissions while the loop decides over 10,000 queued and 2,000 running jobs.

The processes are those of `horae up`, with SQLite and durable commits; only the machine is a table (`live_loop.py`),
because no single machine runs 2,000 jobs. Each figure is taken over HTTP, by raw sockets, so that the client costs
little. Submit to start is measured with real processes, by `horae up` as it is.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median

from bench import dashboard, futures, recovery
from bench.cases import Result, loop_seconds
from bench.parts import CLUSTER_PAGE, ETA, RECOVERY, SUBMIT_TO_START, UNDER_LOAD
from horae.client import Client
from horae.model.setup import Setup
from horae.service.config import ServiceConfig, configure
from horae.service.up import Child, prepare_state

RUNNING, QUEUED = 2000, 10_000
CONNECTIONS = 8
LOAD_SECONDS = 10.0
ROUND_SECONDS = 5.0
HANGS_SECONDS = 300.0
SLOWEST = '{"slowest_decision": true}'  # a question to the loop: also the slowest decision since it was asked last
JOB = {"name": "bench", "run": "python train.py --lr 0.1", "workdir": "/tmp", "gpus": 1, "checkpoint": {}}
if os.geteuid() == 0:
    JOB["user"] = "nobody"  # with a token, not even operators submit jobs that run as root


@dataclass(frozen=True)
class Figures(Result):
    """One run under load. `seconds` and `jobs` are of the submissions one by one."""

    text: str  # the figures, as they are printed


@dataclass(frozen=True)
class Answers:
    """What the clients of a load saw."""

    jobs: int
    seconds: float
    latencies: list[float]

    def p99(self) -> float:
        return sorted(self.latencies)[int(0.99 * (len(self.latencies) - 1))]

    def __str__(self) -> str:
        return (
            f"{self.jobs / self.seconds:,.0f} per second, median {1000 * median(self.latencies):.0f} ms, "
            f"p99 {1000 * self.p99():.0f} ms"
        )


def under_load() -> Result:
    """Submissions one by one and in bulk, the slowest decision meanwhile, `ls`, and the memory of all processes."""
    with tempfile.TemporaryDirectory() as folder, table_service(Path(folder) / "state") as (config, children):
        token = (config.state / "token").read_text().strip()
        submit = partial(load, config.port, token)
        fill(submit, config)
        memory = sum(memory_mib(child.process.pid) for child in children if child.process is not None)
        listed = [get(config.port, token, "/v1/jobs?limit=100") for _ in range(20)]
        before = status(config.state, SLOWEST)  # the maximum begins anew
        single = submit(1, LOAD_SECONDS)
        bulk = submit(100, LOAD_SECONDS / 2)
        after = status(config.state, SLOWEST)
    decisions = after["decisions"] - before["decisions"]
    text = (
        f"one by one {single}; in requests of 100 {bulk}; slowest of {decisions:,} decisions over up to "
        f"{after['live_jobs']:,} jobs {after['slowest_decision_seconds']:.2f} s; before the load a page of 100 jobs "
        f"{1000 * median(listed):.0f} ms and {memory:.0f} MB in all processes"
    )
    return Figures(single.jobs, single.seconds, memory, loop_seconds(), text)


def submit_to_start() -> Result:
    """From the request to the job's first line of output, on an idle machine: the median of ten jobs."""
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder) / "state"
        command = [sys.executable, "-m", "horae", "up", "--state", str(state), "--emulate", "1x8:A100", "--port", "0"]
        service = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        try:
            assert service.stdout is not None
            for line in service.stdout:
                if b"submit" in line:
                    break
            times = [_start_seconds(Client(state=state), Path(folder) / f"{number}.started") for number in range(10)]
        finally:
            service.terminate()
            service.wait()
    text = f"median {1000 * median(times):.0f} ms, slowest {1000 * max(times):.0f} ms, wanted under 300"
    return Figures(10, median(times), 0.0, loop_seconds(), text)


def load(port: int, token: str, jobs_per_request: int, seconds: float, *, requests_max: int = sys.maxsize) -> Answers:
    """Each of eight connections sends a request as soon as the one before is answered, up to so many in all.

    Requests that are under way when the time is over are left: a service may drop those of clients that have gone.
    """
    request = _request("POST", "/v1/jobs", token, JOB if jobs_per_request == 1 else [JOB] * jobs_per_request)
    selector, latencies = selectors.DefaultSelector(), list[float]()
    began = time.perf_counter()
    for _ in range(CONNECTIONS):
        connection = _connect(port)
        connection.sendall(request)
        selector.register(connection, selectors.EVENT_READ, [time.perf_counter(), b""])
    while len(latencies) < requests_max and time.perf_counter() < began + seconds:
        for key, _ in selector.select(1.0):
            connection, sent = _socket_of(key), key.data
            sent[1] += connection.recv(1 << 16)
            if not _is_complete(sent[1]):
                continue
            assert sent[1].startswith(b"HTTP/1.1 201"), sent[1][:1000]
            now = time.perf_counter()
            latencies.append(now - sent[0])
            sent[:] = now, b""
            if len(latencies) + CONNECTIONS <= requests_max:
                connection.sendall(request)
    elapsed = time.perf_counter() - began
    for key in list(selector.get_map().values()):
        _socket_of(key).close()
    return Answers(len(latencies) * jobs_per_request, elapsed, latencies)


def _socket_of(key: selectors.SelectorKey) -> socket.socket:
    assert isinstance(key.fileobj, socket.socket)
    return key.fileobj


@contextmanager
def table_service(state: Path, file: Path | None = None) -> Iterator[tuple[ServiceConfig, tuple[Child, Child]]]:
    """The loop over a table, and the API; as `horae up` starts them. Without a file there are 2,000 GPUs."""
    prepare_state(state)
    config = configure(state, file, [] if file else [f"{RUNNING // 8}x8:A100"], [], None, _free_port())
    config = _with_rounds(config)
    path = state / "config.json"
    config.save(path)
    loop = Child("loop", ["bench.live_loop", str(path)], lambda child: child.has_said("ready"))
    api = Child("api", ["horae.service.api", str(path)], lambda _: _is_open(config.port))
    try:
        for child in (loop, api):
            child.start()
        for child in (loop, api):
            child.let_go()
            child.wait_until_ready(lambda: False)
        yield config, (loop, api)
    finally:
        for child in (api, loop):
            child.stop()


def _with_rounds(config: ServiceConfig) -> ServiceConfig:
    """Short rounds, so that the loop decides several times under the load."""
    pools = tuple(replace(pool, round_seconds=ROUND_SECONDS) for pool in config.setup.pools)
    setup: Setup = replace(config.setup, pools=pools)
    return replace(config, setup=setup)


def fill(submit: Callable[..., Answers], config: ServiceConfig) -> None:
    submit(100, HANGS_SECONDS, requests_max=(RUNNING + QUEUED) // 100)
    until(lambda: status(config.state)["live_jobs"] >= RUNNING + QUEUED)
    time.sleep(2 * ROUND_SECONDS)


def _start_seconds(client: Client, path: Path) -> float:
    began = time.perf_counter()
    client.submit({"run": f"touch {path}", "gpus": 1, "name": "quick"})
    until(path.exists, 0.002)
    return time.perf_counter() - began


def until(is_true: Callable[[], object], pause: float = 0.1) -> None:
    ends_at = time.monotonic() + HANGS_SECONDS
    while not is_true():
        assert time.monotonic() < ends_at, "nothing happens any more"
        time.sleep(pause)


def status(state: Path, question: str = "{}") -> dict[str, float]:
    """What the loop says about itself."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(str(state / "loop.sock"))
        connection.sendall(f"{question}\n".encode())
        text = b""
        while not text.endswith(b"\n"):
            text += connection.recv(1 << 16)
    found: dict[str, float] = json.loads(text)
    return found


def get(port: int, token: str, path: str) -> float:
    """The seconds of one request."""
    seconds, text = answer(port, token, path)
    assert text.split()[1] == b"200", text[:1000]
    return seconds


def answer(port: int, token: str, path: str) -> tuple[float, bytes]:
    """The seconds of one request, and the whole answer."""
    with _connect(port) as connection:
        began = time.perf_counter()
        connection.sendall(_request("GET", path, token))
        text = b""
        while not _is_complete(text):
            text += connection.recv(1 << 20)
        return time.perf_counter() - began, text


def _request(method: str, path: str, token: str, content: object = None) -> bytes:
    body = b"" if content is None else json.dumps(content).encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n"
    return f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def _is_complete(answer: bytes) -> bool:
    head, end, body = answer.partition(b"\r\n\r\n")
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    return bool(end) and len(body) >= int(lengths[0].split(b":")[1])


def _connect(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def memory_mib(pid: int) -> float:
    """The memory that a process has for itself, and its share of what it shares."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


CASES: dict[str, Callable[[], Result]] = {
    UNDER_LOAD: under_load,
    SUBMIT_TO_START: submit_to_start,
    RECOVERY: recovery.measure,
    ETA: futures.eta_under_load,
    CLUSTER_PAGE: dashboard.cluster_page,
}
