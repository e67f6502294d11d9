"""`horae eta` among 10,000 queued and 2,000 running jobs: its answers, and how long it holds the loop up.

The loop is held up while it makes a copy of itself. A question of another kind, sent right behind, waits for that. Once
the copy runs, it competes for processors, and each page of memory that the loop changes is copied first: both show in
the time that a decision takes, which is measured with and without copies that run.
"""

from __future__ import annotations

import json
import socket
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from statistics import median

from bench import service
from bench.cases import Result, loop_seconds

QUESTIONS = 6
BUDGET_SECONDS = 2.0
HELD_UP_SECONDS = 0.05


def eta_under_load() -> Result:
    with (
        tempfile.TemporaryDirectory() as folder,
        service.table_service(Path(folder) / "state") as (config, _),
        ThreadPoolExecutor(1) as asking,
    ):
        token = (config.state / "token").read_text().strip()
        service.fill(partial(service.load, config.port, token), config)
        places = [service.RUNNING + 1 + number * service.QUEUED // QUESTIONS for number in range(QUESTIONS)]
        alone = [_decision(config.state, config.port, token) for _ in range(QUESTIONS)]
        answers, beside, held_up = list[tuple[float, bytes]](), list[float](), list[float]()
        for place in places:
            held_up.append(_held_up(config.state, place))
            asked = asking.submit(service.answer, config.port, token, f"/v1/jobs/{place}/eta?seconds={BUDGET_SECONDS}")
            time.sleep(BUDGET_SECONDS / 4)  # the copy runs
            beside.append(_decision(config.state, config.port, token))
            answers.append(asked.result())
    text = (
        f"{_answers(answers)}; the loop is "
        f"held up for {_ms(median(held_up))} (slowest {_ms(max(held_up))}), wanted under {_ms(HELD_UP_SECONDS)}; "
        f"a decision takes {_ms(median(beside))} meanwhile, {_ms(median(alone))} without"
    )
    return service.Figures(QUESTIONS, median(held_up), 0.0, loop_seconds(), text)


def _answers(found: list[tuple[float, bytes]]) -> str:
    """How long they took, and how many possible futures each of those with a time comes from."""
    seconds = [each for each, _ in found]
    told = [json.loads(text.partition(b"\r\n\r\n")[2]) for _, text in found if text.split()[1] == b"200"]
    draws = sorted(each["draws"] - each["cut_off"] for each in told)
    estimated = sum(each["estimated"] for each in told)
    return (
        f"answers after {median(seconds):.2f} s (slowest {max(seconds):.2f}), budget {BUDGET_SECONDS:g}; "
        f"{len(told)} of {len(found)} with times, of {draws[0]} to {draws[-1]} possible futures, "
        f"in {estimated} of all {sum(draws)} with an estimated end"
        if told
        else f"no answer within {max(seconds):.2f} s"
    )


def _held_up(state: Path, job: int) -> float:
    """How much longer the loop takes to say how it is if it has to answer another question first, in seconds."""
    before = min(_seconds(lambda: service.status(state)) for _ in range(5))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(str(state / "loop.sock"))
        service.status(state)  # the connection is accepted
        connection.sendall(json.dumps({"eta": str(job), "seconds": 0.1, "draws": 1}).encode() + b"\n")
        found = _seconds(lambda: service.status(state))
        while connection.recv(1 << 16):
            pass
    return max(found - before, 0.0)


def _seconds(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def _decision(state: Path, port: int, token: str) -> float:
    """The seconds of a decision that a new job leads to."""
    before = service.status(state)["decision_seconds"]
    service.load(port, token, 1, service.HANGS_SECONDS, requests_max=1)
    service.until(lambda: service.status(state)["decision_seconds"] != before, 0.01)
    return service.status(state)["decision_seconds"]


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms"
