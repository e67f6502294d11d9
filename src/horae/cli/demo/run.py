"""The course of the demo: it starts the service, submits jobs at their times, watches, and tells what happened."""

from __future__ import annotations

import signal
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from rich.console import Console
from rich.live import Live

from horae.cli.demo.closing import closing
from horae.cli.demo.questions import Questions, outcomes
from horae.cli.demo.screen import line, page
from horae.cli.demo.service import DemoService, demo_service
from horae.cli.demo.snapshot import Snapshot, take, used_seconds
from horae.cli.demo.workload import CLUSTER, DemoJob, draw_jobs
from horae.client import Client
from horae.client.connection import NOT_ANSWERED
from horae.model.errors import ServiceError
from horae.service.models import EventView

LOOK_SECONDS = 1.0  # between two looks at the service
LINE_SECONDS = 10.0  # between two lines where the output is no terminal
DRAIN_SHARE = 0.2  # of the time, at its end, without new jobs: most of those that run can end
EVENTS_KEPT = 50
ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run(seconds: float, console: Console) -> None:
    """Runs the demo for so long, or until it is told to end."""
    with _told_to_end() as is_ended, demo_service(CLUSTER) as service:
        console.print(f"Starting `horae up` in {service.folder} on emulated GPUs ...", soft_wrap=True)
        if not service.wait_until_ready(is_ended):
            console.print("Ended before it has begun.")
            return
        _greet(service, console)
        with Client(state=service.state) as client:
            demo = Demo(service, client, seconds, console)
            try:
                demo.watch(is_ended)
                demo.tell()
            finally:
                demo.close()
        console.print("Ending the service and its jobs ...")
    console.print(
        "Nothing of it is left. Next: `horae up` on your own GPUs, or `horae demo --simulated`.", soft_wrap=True
    )


@contextmanager
def _told_to_end() -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C was pressed or this process was told to end: from here on that is no error, and interrupts
    neither a request nor the clean-up."""
    told: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        told.append(number)

    former = {number: signal.signal(number, note) for number in ENDINGS}
    try:
        yield lambda: bool(told)
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def _greet(service: DemoService, console: Console) -> None:
    console.print(
        f"\n  dashboard  {service.url}\n"
        f"  token      {service.token}\n"
        f"  commands   HORAE_STATE={service.state} horae ls   (or top, why, eta, plan)\n",
        soft_wrap=True,
        highlight=False,
        markup=False,
    )


class Demo:
    def __init__(self, service: DemoService, client: Client, seconds: float, console: Console) -> None:
        self._service = service
        self._client = client
        self._seconds = seconds
        self._console = console
        self._questions = Questions(service.state)
        self._stream = draw_jobs()
        self._next: DemoJob = next(self._stream)
        self._events: deque[EventView] = deque(maxlen=EVENTS_KEPT)
        self._last_event = 0
        self._began_at = time.monotonic()
        self._last: Snapshot | None = None

    def watch(self, is_ended: Callable[[], bool]) -> None:
        """Submits jobs and shows the state, until the time is over."""
        told_at = -LINE_SECONDS
        with Live(console=self._console, auto_refresh=False, transient=True) as live:
            while True:
                looked_at = time.monotonic()
                now = self._look()
                if now is not None and self._console.is_terminal:
                    live.update(page(now, self._seconds, self._events), refresh=True)
                elif now is not None and now.seconds >= told_at + LINE_SECONDS:
                    self._console.print(line(now), soft_wrap=True, highlight=False)
                    told_at = now.seconds
                self._pause(looked_at + LOOK_SECONDS, is_ended)
                if is_ended() or self._elapsed >= self._seconds:
                    return

    def tell(self) -> None:
        """The closing table."""
        last = self._look()
        last = self._last if last is None else last
        if last is None:
            self._console.print("The service has not answered in this time.")
            return
        jobs = {job.id: job for job in last.jobs}
        found = outcomes(self._questions.answers, jobs, time.time())
        used = used_seconds(self._client)
        self._console.print(closing(last, used, self._questions.answers, found), highlight=False)

    def close(self) -> None:
        self._questions.close()

    @property
    def _elapsed(self) -> float:
        return time.monotonic() - self._began_at

    def _look(self) -> Snapshot | None:
        """The state of the service, after the jobs that are due were submitted; None while it is started anew."""
        self._service.check()
        try:
            self._submit()
            self._last = take(self._client, self._elapsed)
            for event in self._client.events(since=self._last_event):
                self._events.append(event)
                self._last_event = max(self._last_event, event.seq)
        except ServiceError as error:
            self._service.check()
            if error.status not in NOT_ANSWERED:
                raise
            return None
        self._questions.ask(self._last)
        return self._last

    def _submit(self) -> None:
        due: list[DemoJob] = []
        while self._next.arrives_at <= min(self._elapsed, (1.0 - DRAIN_SHARE) * self._seconds):
            due.append(self._next)
            self._next = next(self._stream)
        if due:
            self._client.submit([job.spec for job in due])

    def _pause(self, until: float, is_ended: Callable[[], bool]) -> None:
        while not is_ended() and (left := min(until, self._began_at + self._seconds) - time.monotonic()) > 0:
            time.sleep(min(left, 0.1))
