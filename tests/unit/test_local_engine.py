"""The local engine, with shell scripts for jobs. Nothing here depends on how fast the machine is, only how patient."""

from __future__ import annotations

import os
import shlex
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest
from builders import gpus as named
from patience import HANG_SECONDS, wait_until

from horae.engines.engine import Moment
from horae.engines.local.engine import LocalEngine
from horae.engines.local.job_files import folder_name
from horae.model.cluster import Cluster, Gpu, Node
from horae.model.commands import Start, Stop, Survey
from horae.model.events import (
    Ending,
    Event,
    Health,
    JobCancelled,
    JobEnded,
    JobStarted,
    JobSubmitted,
    NodeChanged,
    Running,
    Surveyed,
)
from horae.model.jobs import Arrival, Job, Truth
from horae.model.shapes import Option, Shape

CLUSTER = Cluster("two", (Node("a", "fast", 2), Node("b", "slow", 2)))
SHAPE = Shape("fast", 1, "node")
FIRST = named("a", 0)

FOREVER = "touch ready; while :; do sleep 0.05; done"
STUBBORN = f"trap '' TERM; {FOREVER}"
SAVE = 'echo {steps} > "$HORAE_CHECKPOINT.new"; mv "$HORAE_CHECKPOINT.new" "$HORAE_CHECKPOINT"'


def saving(steps: float, exit_code: int = 75, first: str = ":") -> str:
    """A program that saves when it is told to stop."""
    return f"trap '{first}; {SAVE.format(steps=steps)}; exit {exit_code}' TERM; {FOREVER}"


def a_job(command: str, name: str = "job", *, at: float = 0.0, steps_total: float | None = None) -> Job:
    return Job(name, at, (Option(SHAPE, 1.0),), command=command, steps_total=steps_total)


def a_start(*names: str, epoch: int = 0, gpus: tuple[Gpu, ...] = FIRST, steps_done: float = 0.0) -> Start:
    jobs = names or ("job",)
    return Start(epoch, jobs, gpus, SHAPE, (steps_done,) * len(jobs), (epoch > 0,) * len(jobs))


class Bench:
    """Makes engines, drives them, and closes them when the test is over."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.engines: list[LocalEngine] = []

    def engine(self, *jobs: Job, outside: Iterable[Event] = ()) -> LocalEngine:
        """An engine that has told of all jobs that were submitted by now."""
        engine = self.unheard(*jobs, outside=outside)
        engine.wait(0.0)
        return engine

    def unheard(self, *jobs: Job, outside: Iterable[Event] = ()) -> LocalEngine:
        """An engine that has told of nothing yet."""
        engine = LocalEngine(CLUSTER, jobs, self.directory, outside)
        self.engines.append(engine)
        return engine

    def started(self, *jobs: Job) -> LocalEngine:
        """An engine on which each of these jobs runs, and has come so far as to say that it is ready."""
        engine = self.engine(*jobs)
        for job in jobs:
            assert [type(reply) for reply in engine.execute([a_start(job.id)])] == [JobStarted]
        for job in jobs:
            wait_until((self.folder(job.id) / "ready").exists)
        return engine

    def folder(self, name: str = "job") -> Path:
        return self.directory / folder_name(name)

    def processes(self) -> list[int]:
        """All processes on this machine that a job has left, in its group or not: they know its checkpoint."""
        return [pid for pid in pids() if os.fsencode(self.directory) in contents(pid, "environ")]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    for engine in bench.engines:
        engine.close()
    assert not bench.processes()
    assert not zombies()


def next_events(engine: LocalEngine) -> list[Event]:
    moment = engine.wait(engine.now + HANG_SECONDS)
    assert moment is not None and moment.events, "waited in vain"
    assert all(event.at <= moment.at for event in moment.events)
    return list(moment.events)


def the_end(engine: LocalEngine) -> JobEnded:
    (event,) = next_events(engine)
    assert isinstance(event, JobEnded)
    return event


def survey(engine: LocalEngine) -> tuple[Running, ...]:
    (surveyed,) = engine.execute([Survey()])
    assert isinstance(surveyed, Surveyed)
    return surveyed.running


def pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def contents(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def zombies() -> list[int]:
    """Children of ours that have ended and were not reaped."""
    stats = {pid: contents(pid, "stat").rpartition(b")")[2].split() for pid in pids()}
    return [pid for pid, stat in stats.items() if stat[:2] == [b"Z", str(os.getpid()).encode()]]


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


# Starting and ending


def test_a_job_that_exits_with_0_has_finished_with_the_steps_of_its_checkpoint(bench: Bench) -> None:
    engine = bench.engine(a_job(SAVE.format(steps=12) + "; echo hello; echo world >&2"))
    (started,) = engine.execute([a_start(epoch=4)])
    assert isinstance(started, JobStarted) and started.epoch == 4
    assert the_end(engine)[1:] == ("job", 4, Ending.FINISHED, 12.0, "")
    assert (bench.folder() / "output.log").read_text() == "hello\nworld\n"


def test_a_job_learns_from_its_environment_who_and_where_it_is(bench: Bench) -> None:
    engine = bench.engine(a_job('env > "$HORAE_CHECKPOINT.env"'))
    engine.execute([Start(7, ("job",), named("b", 0, 1), Shape("slow", 2, "node"), (41.0,), (True,))])
    the_end(engine)
    lines = (bench.folder() / "checkpoint.env").read_text().splitlines()
    environment = {name: value for name, _, value in (line.partition("=") for line in lines) if name not in os.environ}
    assert {name: value for name, value in environment.items() if name.startswith(("HORAE", "CUDA"))} == {
        "HORAE_JOB": "job",
        "HORAE_EPOCH": "7",
        "HORAE_GPUS": "2,3",
        "HORAE_GPU_TYPE": "slow",
        "HORAE_LEVEL": "node",
        "HORAE_STEPS_DONE": "41",
        "HORAE_CHECKPOINT": str(bench.folder() / "checkpoint"),
        "HORAE_REPORTS": str(bench.folder() / "reports"),
        "CUDA_VISIBLE_DEVICES": "2,3",
    }


def test_a_job_that_goes_on_with_another_finds_its_checkpoint_and_how_far_to_go(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HORAE_CONTINUES", "HORAE_STEPS_TOTAL"):
        monkeypatch.setenv(name, "ours, as if we were a job as well")
    tell = 'echo "${HORAE_CONTINUES-none} ${HORAE_STEPS_TOTAL-none}" > told; '
    first, second = a_job(tell + SAVE.format(steps=12), "first"), a_job(tell, "second", steps_total=2.5)
    engine = bench.engine(first)
    engine.expect(Arrival(replace(second, continues="first"), Truth(2.5, second.options)))
    engine.expect(Arrival(replace(second, id="third", continues="second"), Truth(2.5, second.options)))
    for name in ("first", "second", "third"):
        engine.execute([a_start(name)])
        assert the_end(engine).ending is Ending.FINISHED
    told = [(bench.folder(name) / "told").read_text().strip() for name in ("first", "second", "third")]
    assert told == ["none none", f"{bench.folder('first')}/checkpoint 2.5", "none 2.5"]


def test_half_a_report_of_a_run_that_was_killed_is_not_joined_to_the_next(bench: Bench) -> None:
    engine = bench.engine(a_job('printf "1 0.9\\n1" >> "$HORAE_REPORTS"; exit 1'))
    for epoch in range(2):
        engine.execute([a_start(epoch=epoch)])
        the_end(engine)
    assert (bench.folder() / "reports").read_text() == "1 0.9\n1 cut\n1 0.9\n1"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("echo fine; echo broken >&2; echo; exit 3", "exit code 3: broken"),
        ("exit 4", "exit code 4"),
        ("kill -SEGV $$", "killed by SIGSEGV"),
        ("no-such-program", "no-such-program: not found"),
        (" ", "cannot start: the job has no command"),
    ],
)
def test_a_job_that_fails_says_why(bench: Bench, command: str, message: str) -> None:
    engine = bench.engine(a_job(command))
    (reply,) = engine.execute([a_start(steps_done=5.0)])
    ended = reply if isinstance(reply, JobEnded) else the_end(engine)
    assert (ended.ending, ended.steps) == (Ending.FAILED, 5.0)
    assert message in ended.message


def test_a_failure_does_not_quote_the_output_of_an_earlier_run(bench: Bench) -> None:
    engine = bench.engine(a_job('[ "$HORAE_EPOCH" = 1 ] || echo early; exit 1'))
    engine.execute([a_start(epoch=0)])
    assert the_end(engine).message == "exit code 1: early"
    engine.execute([a_start(epoch=1)])
    assert the_end(engine).message == "exit code 1"


def test_a_job_whose_directory_is_missing_fails_at_once(bench: Bench) -> None:
    job = Job("job", 0.0, (Option(SHAPE, 1.0),), command="true", workdir="/no/such/place")
    (ended,) = bench.engine(job).execute([a_start()])
    assert isinstance(ended, JobEnded) and ended.ending is Ending.FAILED
    assert "/no/such/place" in ended.message


def test_a_job_that_nobody_submitted_fails_at_once(bench: Bench) -> None:
    (ended,) = bench.engine().execute([a_start("stranger")])
    assert isinstance(ended, JobEnded) and ended.ending is Ending.FAILED


@pytest.mark.parametrize("checkpoint", ["", "nonsense", "nan", "inf", "-3", "6"])
def test_a_checkpoint_that_says_nothing_new_loses_nothing(bench: Bench, checkpoint: str) -> None:
    engine = bench.engine(a_job(f'echo "{checkpoint}" > "$HORAE_CHECKPOINT"'))
    engine.execute([a_start(steps_done=7.5)])
    assert the_end(engine).steps == 7.5


def test_children_that_a_job_leaves_behind_end_with_it(bench: Bench) -> None:
    engine = bench.engine(a_job("sleep 1000 & (trap '' TERM HUP; sleep 1000) & exit 0"))
    engine.execute([a_start()])
    assert the_end(engine).ending is Ending.FINISHED
    assert not bench.processes()


def test_two_jobs_of_a_bundle_run_on_the_same_gpus(bench: Bench) -> None:
    engine = bench.engine(a_job('echo "$HORAE_GPUS"', "one"), a_job('echo "$HORAE_GPUS"; exit 1', "two"))
    replies = engine.execute([a_start("one", "two", gpus=named("a", 1))])
    assert [(type(reply), reply[1:]) for reply in replies] == [(JobStarted, ("one", 0)), (JobStarted, ("two", 0))]
    ended = [event for _ in range(2) if (moment := engine.wait(inf)) for event in moment.events]
    assert {event.job_id: event.ending for event in ended if isinstance(event, JobEnded)} == {
        "one": Ending.FINISHED,
        "two": Ending.FAILED,
    }
    assert [(bench.folder(name) / "output.log").read_text() for name in ("one", "two")] == ["1\n", "1\n"]


# Stopping


@pytest.mark.parametrize(
    ("command", "steps_total", "ending"),
    [
        pytest.param(saving(7), 9.0, Ending.STOPPED, id="work is left"),
        pytest.param(saving(7, exit_code=0), 9.0, Ending.STOPPED, id="work is left, exit 0"),
        pytest.param(saving(7, exit_code=0), None, Ending.STOPPED, id="nobody knows what is left"),
        pytest.param(saving(7, exit_code=0), 7.0, Ending.FINISHED, id="the last step was just done"),
        pytest.param(saving(7, exit_code=1), 7.0, Ending.STOPPED, id="the last step was done, but then it failed"),
    ],
)
def test_a_job_that_is_told_to_stop_saves_its_work(
    bench: Bench, command: str, steps_total: float | None, ending: Ending
) -> None:
    engine = bench.started(a_job(command, steps_total=steps_total))
    assert not engine.execute([Stop(0, "job", HANG_SECONDS)])
    assert the_end(engine)[1:] == ("job", 0, ending, 7.0, "")


def test_a_job_that_ignores_the_signal_is_killed_after_its_grace(bench: Bench) -> None:
    engine = bench.started(a_job(STUBBORN))
    told_at = engine.now
    engine.execute([Stop(0, "job", 0.3)])
    ended = the_end(engine)
    assert ended.ending is Ending.STOPPED
    assert ended.at >= told_at + 0.3
    assert not bench.processes()


def test_a_program_has_time_to_save_although_its_shell_ends_at_once(bench: Bench) -> None:
    engine = bench.started(a_job(f"({saving(9, first='sleep 0.3')}); true"))
    engine.execute([Stop(0, "job", HANG_SECONDS)])
    assert the_end(engine)[3:5] == (Ending.STOPPED, 9.0)


def test_children_that_ignore_the_signal_are_killed_after_the_grace_of_a_job_that_has_left(bench: Bench) -> None:
    engine = bench.started(a_job(f"({STUBBORN}) & trap 'exit 0' TERM; while :; do sleep 0.05; done"))
    engine.execute([Stop(0, "job", 0.3)])
    assert the_end(engine).ending is Ending.STOPPED
    assert not bench.processes()


def test_a_second_stop_does_not_prolong_the_grace(bench: Bench) -> None:
    engine = bench.started(a_job(STUBBORN))
    told_at = engine.now
    engine.execute([Stop(0, "job", 0.3)])
    engine.execute([Stop(0, "job", 2 * HANG_SECONDS)])
    assert the_end(engine).at >= told_at + 0.3


def test_a_stop_that_comes_after_the_end_changes_nothing(bench: Bench) -> None:
    engine = bench.engine(a_job("exit 3"))
    engine.execute([a_start()])
    wait_until(lambda: bool(zombies()))  # it has ended, and nobody has asked for news yet
    engine.execute([Stop(0, "job", 0.0)])
    ended = the_end(engine)
    assert ended.ending is Ending.FAILED
    assert engine.execute([Stop(0, "job", 0.0)]) == [ended]  # for those who missed it


def test_a_stop_of_another_lease_is_ignored(bench: Bench) -> None:
    engine = bench.started(a_job(saving(1)))
    answers = engine.execute([Stop(1, "job", 0.0), Stop(0, "stranger", 0.0)])
    ends = [answer[1:] for answer in answers if isinstance(answer, JobEnded) and answer.job_id == "stranger"]
    assert ends == [("stranger", 0, Ending.STOPPED, 0.0, "")]
    moment = engine.wait(engine.now + 0.2)
    assert moment is not None and not moment.events
    assert bench.processes()


def test_a_start_that_comes_after_its_stop_does_nothing(bench: Bench) -> None:
    engine = bench.engine(a_job(FOREVER))
    (ended,) = engine.execute([Stop(2, "job", 0.0)])
    assert ended[1:] == ("job", 2, Ending.STOPPED, 0.0, "")
    assert engine.execute([a_start(epoch=2)]) == [ended]
    assert not engine.execute([a_start(epoch=1)])
    assert not bench.processes()


def test_a_start_that_comes_after_its_stop_does_nothing_while_an_older_lease_runs(bench: Bench) -> None:
    engine = bench.started(a_job(saving(1)))
    (ended,) = engine.execute([Stop(1, "job", 0.0)])
    assert ended[1:4] == ("job", 1, Ending.STOPPED)
    engine.execute([a_start(epoch=1)])
    assert [run.epoch for run in survey(engine)] == [0]


# Commands that come twice or late


def test_a_start_that_comes_twice_is_only_confirmed(bench: Bench) -> None:
    engine = bench.started(a_job(f"echo once; {FOREVER}"))
    (again,) = engine.execute([a_start()])
    assert again[1:] == ("job", 0)
    engine.execute([Stop(0, "job", 0.0)])
    ended = the_end(engine)
    assert (bench.folder() / "output.log").read_text() == "once\n"
    assert engine.execute([a_start()]) == [ended]  # it does not run again
    assert not bench.processes()


def test_a_start_of_an_older_lease_is_ignored(bench: Bench) -> None:
    engine = bench.engine(a_job("exit 75"))
    engine.execute([a_start(epoch=5)])
    assert not engine.execute([a_start(epoch=4)])
    the_end(engine)
    assert not engine.execute([a_start(epoch=4)])
    assert engine.wait(inf) is None


def test_a_start_of_a_newer_lease_ends_the_former_run(bench: Bench) -> None:
    engine = bench.started(a_job(STUBBORN))
    former, started = engine.execute([a_start(epoch=1)])
    assert former[1:4] == ("job", 0, Ending.STOPPED)
    assert started[1:] == ("job", 1)
    assert survey(engine) == (Running("job", 1, FIRST, 0.0),)


def test_a_job_that_has_finished_is_not_started_again(bench: Bench) -> None:
    engine = bench.engine(a_job(f"echo once; {SAVE.format(steps=3)}"))
    engine.execute([a_start()])
    the_end(engine)
    (ended,) = engine.execute([a_start(epoch=1)])
    assert ended[1:] == ("job", 1, Ending.FINISHED, 3.0, "")
    assert (bench.folder() / "output.log").read_text() == "once\n"


# Surveys and faults


def test_a_survey_names_what_runs_and_the_steps_that_are_safe(bench: Bench) -> None:
    engine = bench.started(a_job(f"{SAVE.format(steps=5)}; {FOREVER}", "one"), a_job(FOREVER, "two"))
    assert survey(engine) == (Running("one", 0, FIRST, 5.0), Running("two", 0, FIRST, 0.0))


def test_a_node_that_fails_takes_its_jobs_with_it(bench: Bench) -> None:
    outside = [NodeChanged(0.2, "elsewhere", Health.FAILED), NodeChanged(0.2, "b", Health.FAILED)]
    engine = bench.unheard(outside=outside)
    for job in (a_job(STUBBORN, "victim"), a_job(FOREVER, "survivor")):
        engine.expect(Arrival(job, Truth(1.0, job.options)))
    engine.execute([a_start("victim", gpus=named("b", 1), steps_done=5.0), a_start("survivor", gpus=named("a", 1))])
    elsewhere, failed, lost = next_events(engine)
    assert lost[1:5] == ("victim", 0, Ending.LOST, 5.0)
    assert [elsewhere, failed] == outside
    assert survey(engine) == (Running("survivor", 0, named("a", 1), 0.0),)


# Waiting


def test_jobs_and_outside_events_come_when_they_are_due(bench: Bench) -> None:
    outside: list[Event] = [JobCancelled(0.1, "x"), JobSubmitted(0.05, a_job("true", "other"))]
    later = a_job("true", at=0.15)
    engine = bench.unheard(later, outside=outside)
    heard: list[Event] = []
    while (moment := engine.wait(inf)) is not None:
        heard.extend(moment.events)
    assert heard == [outside[1], outside[0], JobSubmitted(0.15, later)]
    assert isinstance(engine.execute([a_start("other")])[0], JobStarted)
    assert the_end(engine).ending is Ending.FINISHED


def test_without_news_the_engine_waits_until_the_given_time(bench: Bench) -> None:
    engine = bench.started(a_job(FOREVER))
    until = engine.now + 0.2
    moment = engine.wait(until)
    assert isinstance(moment, Moment) and not moment.events and moment.at >= until
    assert engine.wait(0.0) is not None  # a time that has passed


def test_waiting_takes_no_processor_time(bench: Bench) -> None:
    engine = bench.started(a_job("touch ready; sleep 1000"))
    before = time.process_time()  # of this process alone, however busy the machine is
    engine.wait(engine.now + 0.5)
    assert time.process_time() - before < 0.25


def test_nothing_will_ever_happen_when_nothing_runs_and_nobody_comes(bench: Bench) -> None:
    engine = bench.engine(a_job("true"))
    assert engine.wait(inf) is None
    engine.execute([a_start()])
    assert the_end(engine).ending is Ending.FINISHED
    assert engine.wait(inf) is None


def test_ends_are_noticed_on_systems_without_process_descriptors(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int) -> int:
        raise OSError("not implemented")

    monkeypatch.setattr("os.pidfd_open", refuse)
    engine = bench.engine(a_job("sleep 0.1"))
    engine.execute([a_start()])
    assert the_end(engine).ending is Ending.FINISHED


# Leaving nothing behind


def test_closing_kills_everything_and_keeps_no_file_open(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    files = open_files()
    with bench.started(a_job(STUBBORN, "one"), a_job(f"sleep 1000 & {FOREVER}", "two")) as engine:
        engine.execute([Stop(0, "one", 1000.0)])
        assert bench.processes()
    assert not bench.processes()
    assert not zombies()
    assert open_files() == files
    engine.close()  # twice is once


def test_jobs_that_end_keep_no_file_open(bench: Bench) -> None:
    engine = bench.engine(a_job("exit 1"))
    files = open_files()
    for epoch in range(5):
        engine.execute([a_start(epoch=epoch)])
        the_end(engine)
    assert open_files() == files
    assert not zombies()


NASTY = ["../up", ".", "..", "/etc/passwd", "a/b", "a b'\"$(x)", "line\nbreak", "ü" * 200, "x" * 1000, "\udc80", "%2E"]


def test_every_id_has_a_folder_of_its_own_in_the_directory(tmp_path: Path) -> None:
    names = [folder_name(job_id) for job_id in NASTY]
    assert len(set(names)) == len(NASTY)
    for name in names:
        folder = tmp_path / name
        folder.mkdir()
        assert folder.resolve().parent == tmp_path.resolve()
    assert folder_name("a-plain.name_7") == "a-plain.name_7"


@pytest.mark.parametrize("job_id", NASTY)
def test_a_job_may_have_any_id(bench: Bench, job_id: str) -> None:
    engine = bench.engine(a_job('printf %s "$HORAE_JOB"', job_id))
    engine.execute([a_start(job_id)])
    assert the_end(engine).ending is Ending.FINISHED
    assert (bench.folder(job_id) / "output.log").read_bytes() == os.fsencode(job_id)


# The example program


def trainer(options: str) -> str:
    return f"{shlex.quote(sys.executable)} -m horae.engines.local.example_trainer {options}"


def test_the_trainer_finishes_at_the_speed_of_its_gpus(bench: Bench) -> None:
    engine = bench.engine(a_job(trainer("--steps 30 --steps-per-second 0.001 --speed slow=1 --speed fast=1000")))
    engine.execute([a_start()])
    assert the_end(engine)[3:] == (Ending.FINISHED, 30.0, "")


def test_the_trainer_resumes_where_it_was_stopped(bench: Bench) -> None:
    engine = bench.engine(a_job(trainer("--steps 100000 --steps-per-second 100"), steps_total=100_000.0))
    engine.execute([a_start(steps_done=50_000.0)])
    wait_until((bench.folder() / "checkpoint").exists)
    engine.execute([Stop(0, "job", HANG_SECONDS)])
    ended = the_end(engine)
    assert ended.ending is Ending.STOPPED
    assert 50_000 < ended.steps < 100_000
    engine.execute([a_start(epoch=1, steps_done=0.0)])
    wait_until(lambda: f"step {ended.steps:.0f} of 100000" in (bench.folder() / "output.log").read_text())


def test_the_trainer_has_nothing_to_do_when_all_is_done(bench: Bench) -> None:
    engine = bench.engine(a_job(trainer("--steps 5 --steps-per-second 0.001")))
    engine.execute([a_start(steps_done=5.0)])
    assert the_end(engine)[3:5] == (Ending.FINISHED, 5.0)


@pytest.mark.parametrize("options", ["--steps-per-second 0", "--steps-per-second 1 --speed fast"])
def test_the_trainer_refuses_what_is_no_speed(bench: Bench, options: str) -> None:
    engine = bench.engine(a_job(trainer(f"--steps 5 {options}")))
    engine.execute([a_start()])
    ended = the_end(engine)
    assert ended.ending is Ending.FAILED and "exit code 2" in ended.message


@pytest.mark.parametrize("curve", ["1,2", "1,0,0.1", "-1,1,0.1", "a,b,c"])
def test_the_trainer_refuses_what_is_no_curve(bench: Bench, curve: str) -> None:
    engine = bench.engine(a_job(trainer(f"--steps 5 --steps-per-second 1 --loss={curve}")))
    engine.execute([a_start()])
    ended = the_end(engine)
    assert ended.ending is Ending.FAILED
    assert curve in ended.message


def test_a_wait_can_be_ended_from_another_thread(tmp_path: Path) -> None:
    with LocalEngine(CLUSTER, (), tmp_path) as engine:
        engine.wake()
        moment = engine.wait(1e9)  # woken before it waits
        assert moment is not None and moment.events == []
        threading.Timer(0.05, engine.wake).start()
        assert engine.wait(1e9) is not None
