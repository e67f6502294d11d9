"""The local engine, with shell scripts for jobs: starts, stops, surveys and waiting."""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Iterator
from math import inf
from pathlib import Path

import pytest
from builders import gpus as named
from local_jobs import (
    CLUSTER,
    FIRST,
    FOREVER,
    GPUS,
    SAVE,
    STUBBORN,
    Bench,
    a_bench,
    a_start,
    open_files,
    saving,
    survey,
)
from patience import HANG_SECONDS, wait_until

from horae.engines.engine import Moment
from horae.engines.local.engine import LocalEngine
from horae.engines.local.job_files import folder_name
from horae.engines.local.launch import Launch
from horae.model.commands import Stop, Survey
from horae.model.events import Ending, JobEnded, JobResumable, JobStarted, Phase, Running, Surveyed


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with a_bench(tmp_path) as bench:
        yield bench


def a_job(command: str, name: str = "job", steps_total: float | None = None) -> Launch:
    return Launch(name, command, steps_total=steps_total)


# Starting and ending


def test_a_job_that_exits_with_0_has_finished_with_the_steps_of_its_checkpoint(bench: Bench) -> None:
    engine = bench.engine(a_job(SAVE + "save 12; echo hello; echo world >&2"))
    (started,) = engine.execute([a_start(epoch=4)])
    assert isinstance(started, JobStarted) and started.epoch == 4
    assert bench.the_end(engine)[1:] == ("job", 4, Ending.FINISHED, 12.0, "")
    assert bench.output() == "hello\nworld\n"


def test_half_a_report_of_a_run_that_was_killed_is_not_joined_to_the_next(bench: Bench) -> None:
    engine = bench.engine(a_job('printf "1 0.9\\n1" >> "$HORAE_REPORTS"; exit 1'))
    for epoch in range(2):
        engine.execute([a_start(epoch=epoch)])
        bench.the_end(engine)
    assert bench.folder().reports.read_text() == "1 0.9\n1 cut\n1 0.9\n1"


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("echo fine; echo broken >&2; echo; exit 3", "exit code 3: broken"),
        ("exit 4", "exit code 4"),
        ("kill -SEGV $$", "killed by SIGSEGV"),
        ("kill -KILL $$", "killed by SIGKILL"),
        ("no-such-program", "no-such-program: not found"),
        (" ", "cannot start: the job has no command"),
        ("true\0", "cannot start: the command and the folder of a job cannot contain zero bytes"),
    ],
)
def test_a_job_that_fails_says_why(bench: Bench, command: str, message: str) -> None:
    ended = bench.run(command)
    assert ended.ending is Ending.FAILED
    assert message in ended.message


def test_a_failure_does_not_quote_the_output_of_an_earlier_run(bench: Bench) -> None:
    engine = bench.engine(a_job('[ "$HORAE_EPOCH" = 1 ] || echo early; exit 1'))
    engine.execute([a_start(epoch=0)])
    assert bench.the_end(engine).message == "exit code 1: early"
    engine.execute([a_start(epoch=1)])
    assert bench.the_end(engine).message == "exit code 1"


def test_a_job_whose_folder_is_missing_fails(bench: Bench) -> None:
    ended = bench.run("true", workdir="/no/such/place")
    assert ended.ending is Ending.FAILED
    assert "cannot start" in ended.message and "/no/such/place" in ended.message


def test_a_job_that_was_never_submitted_fails_at_once(bench: Bench) -> None:
    (ended,) = bench.engine().execute([a_start("stranger", steps_done=5.0)])
    assert isinstance(ended, JobEnded)
    assert (ended.ending, ended.steps) == (Ending.FAILED, 5.0)


def test_children_that_a_job_leaves_behind_end_with_it(bench: Bench) -> None:
    assert bench.run("sleep 1000 & (trap '' TERM HUP; sleep 1000) & exit 0").ending is Ending.FINISHED
    assert not bench.processes()


def test_two_jobs_of_a_bundle_run_on_the_same_gpus(bench: Bench) -> None:
    engine = bench.engine(a_job(f'echo "$HORAE_GPUS"; {FOREVER}', "one"), a_job('echo "$HORAE_GPUS"; exit 1', "two"))
    start = a_start("one", "two", gpus=named("a", 1))
    replies = engine.execute([start])
    assert [(type(reply), reply[1:]) for reply in replies] == [(JobStarted, ("one", 0)), (JobStarted, ("two", 0))]
    assert bench.the_end(engine)[1:4] == ("two", 0, Ending.FAILED)
    assert [type(reply) for reply in engine.execute([start])] == [JobStarted, JobEnded]
    bench.ready("one")
    engine.execute([Stop(0, "one", 0.0)])
    assert bench.the_end(engine)[1:4] == ("one", 0, Ending.STOPPED)
    assert [bench.output(name) for name in ("one", "two")] == ["1\n", "1\n"]


def test_a_gang_of_several_processes_ends_with_its_last_one(bench: Bench) -> None:
    tell = (
        'echo "$RANK $LOCAL_RANK $WORLD_SIZE" > rank-$RANK; [ $RANK = 1 ] || while [ ! -e rank-1 ]; do sleep 0.02; done'
    )
    assert bench.run(tell, processes=2).ending is Ending.FINISHED
    assert [(bench.folder().work / f"rank-{rank}").read_text() for rank in range(2)] == ["0 0 2\n", "1 1 2\n"]


def test_a_gang_ends_when_one_of_its_processes_fails(bench: Bench) -> None:
    ended = bench.run("[ $RANK = 1 ] && exit 5; trap '' TERM; sleep 1000", processes=2, grace_seconds=0.1)
    assert (ended.ending, ended.message) == (Ending.FAILED, "exit code 5")
    assert not bench.processes()


def test_a_gang_without_processes_is_refused(bench: Bench) -> None:
    assert bench.run("true", processes=0).message == "cannot start: a gang of 0 processes cannot run"


# Stopping


@pytest.mark.parametrize(
    ("command", "steps_total", "ending"),
    [
        pytest.param(saving(7), 9.0, Ending.STOPPED, id="work is left"),
        pytest.param(saving(7, exit_code=0), 9.0, Ending.STOPPED, id="work is left, exit 0"),
        pytest.param(saving(7, exit_code=0), None, Ending.STOPPED, id="what is left is not known"),
        pytest.param(saving(7, exit_code=0), 7.0, Ending.FINISHED, id="the last step was just done"),
        pytest.param(saving(7, exit_code=1), 7.0, Ending.STOPPED, id="the last step was done, but then it failed"),
        pytest.param(
            'echo {} > "$HORAE_CHECKPOINT_DIR/sdk.json"; ' + saving(7, exit_code=0),
            None,
            Ending.FINISHED,
            id="with the SDK it would exit with 75 if work was left",
        ),
    ],
)
def test_a_job_that_is_told_to_stop_saves_its_work(
    bench: Bench, command: str, steps_total: float | None, ending: Ending
) -> None:
    engine = bench.started(a_job(command, steps_total=steps_total))
    assert not engine.execute([Stop(0, "job", HANG_SECONDS)])
    assert bench.the_end(engine)[1:] == ("job", 0, ending, 7.0, "")


@pytest.mark.parametrize(
    ("sdk", "ending"), [('echo {} > "$HORAE_CHECKPOINT_DIR/sdk.json"; ', Ending.STOPPED), ("", Ending.FAILED)]
)
def test_only_a_job_with_the_sdk_leaves_by_itself_after_saving(bench: Bench, sdk: str, ending: Ending) -> None:
    ended = bench.run(f"{sdk}{SAVE}save 3; exit 75")
    assert (ended.ending, ended.steps) == (ending, 3.0)


def test_a_job_that_ignores_the_signal_is_killed_after_its_grace(bench: Bench) -> None:
    engine = bench.started(a_job(STUBBORN))
    told_at = bench.now
    engine.execute([Stop(0, "job", 0.3)])
    ended = bench.the_end(engine)
    assert ended.ending is Ending.STOPPED
    assert ended.at >= told_at + 0.3
    assert not bench.processes()


def test_a_program_has_time_to_save_although_its_shell_ends_at_once(bench: Bench) -> None:
    engine = bench.started(a_job(f"({saving(9, first='sleep 0.3')}); true"))
    engine.execute([Stop(0, "job", HANG_SECONDS)])
    assert bench.the_end(engine)[3:5] == (Ending.STOPPED, 9.0)


def test_children_that_ignore_the_signal_are_killed_after_the_grace_of_a_job_that_has_left(bench: Bench) -> None:
    engine = bench.started(a_job(f"({STUBBORN}) & trap 'exit 0' TERM; while :; do sleep 0.05; done"))
    engine.execute([Stop(0, "job", 0.3)])
    assert bench.the_end(engine).ending is Ending.STOPPED
    assert not bench.processes()


def test_a_job_that_is_suspended_is_stopped_like_any_other(bench: Bench) -> None:
    engine = bench.started(a_job(f"{SAVE} trap 'save 4; exit 75' TERM; touch ready; kill -STOP $$; {FOREVER}"))
    engine.execute([Stop(0, "job", HANG_SECONDS)])
    assert bench.the_end(engine)[3:5] == (Ending.STOPPED, 4.0)


def test_a_second_stop_does_not_prolong_the_grace(bench: Bench) -> None:
    engine = bench.started(a_job(STUBBORN))
    told_at = bench.now
    engine.execute([Stop(0, "job", 0.3)])
    engine.execute([Stop(0, "job", 2 * HANG_SECONDS)])
    assert bench.the_end(engine).at >= told_at + 0.3


def test_a_second_stop_can_shorten_the_grace(bench: Bench) -> None:
    engine = bench.started(a_job(STUBBORN))
    engine.execute([Stop(0, "job", 2 * HANG_SECONDS)])
    engine.execute([Stop(0, "job", 0.0)])
    assert bench.the_end(engine).ending is Ending.STOPPED


def test_a_grace_may_be_longer_than_what_the_kernel_can_wait_for(bench: Bench) -> None:
    engine = bench.started(a_job(f"trap 'touch told' TERM; {FOREVER}"))
    engine.execute([Stop(0, "job", 40 * 86400.0)])
    wait_until((bench.folder().work / "told").exists)
    engine.execute([Stop(0, "job", 0.0)])
    assert bench.the_end(engine).ending is Ending.STOPPED


def test_a_stop_that_comes_after_the_end_changes_nothing(bench: Bench) -> None:
    engine = bench.engine(a_job("exit 3"))
    engine.execute([a_start()])
    wait_until(lambda: bool(bench.zombies()))  # it has ended, and the engine has not been asked for news yet
    engine.execute([Stop(0, "job", 0.0)])
    ended = bench.the_end(engine)
    assert ended.ending is Ending.FAILED
    (again,) = engine.execute([Stop(0, "job", 0.0)])  # for callers that missed it
    assert again[1:] == ended[1:]


def test_a_stop_of_another_lease_is_ignored(bench: Bench) -> None:
    engine = bench.started(a_job(saving(1)))
    answers = engine.execute([Stop(1, "job", 0.0), Stop(0, "stranger", 0.0)])
    ends = [answer[1:] for answer in answers if isinstance(answer, JobEnded) and answer.job_id == "stranger"]
    assert ends == [("stranger", 0, Ending.STOPPED, 0.0, "")]
    moment = engine.wait(bench.now + 0.2)
    assert moment is not None and not moment.events
    assert bench.processes()


def test_a_start_that_comes_after_its_stop_does_nothing(bench: Bench) -> None:
    engine = bench.engine(a_job(FOREVER))
    (ended,) = engine.execute([Stop(2, "job", 0.0)])
    assert ended[1:] == ("job", 2, Ending.STOPPED, 0.0, "")
    (again,) = engine.execute([a_start(epoch=2)])
    assert again[1:] == ended[1:]
    assert not engine.execute([a_start(epoch=1)])
    assert not bench.processes()


def test_a_start_that_comes_after_its_stop_does_nothing_while_an_older_lease_runs(bench: Bench) -> None:
    engine = bench.started(a_job(saving(1)))
    (ended,) = engine.execute([Stop(1, "job", 0.0)])
    assert ended[1:4] == ("job", 1, Ending.STOPPED)
    engine.execute([a_start(epoch=1)])
    assert [run.epoch for run in survey(engine)] == [0]


def test_all_jobs_can_be_stopped_with_their_own_grace(bench: Bench) -> None:
    engine = bench.started(Launch("one", saving(3), grace_seconds=HANG_SECONDS), Launch("two", STUBBORN))
    engine.stop_all(None)
    assert {event[1:5] for event in bench.ends(engine, 2)} == {
        ("one", 0, Ending.STOPPED, 3.0),
        ("two", 0, Ending.STOPPED, 0.0),
    }


# Commands that come twice or late


def test_a_start_that_comes_twice_is_only_confirmed(bench: Bench) -> None:
    engine = bench.started(a_job(f"echo once; {FOREVER}"))
    (again,) = engine.execute([a_start()])
    assert again[1:] == ("job", 0)
    engine.execute([Stop(0, "job", 0.0)])
    ended = bench.the_end(engine)
    assert bench.output() == "once\n"
    (again,) = engine.execute([a_start()])  # it does not run again
    assert again[1:] == ended[1:]
    assert not bench.processes()


def test_a_start_of_an_older_lease_is_ignored(bench: Bench) -> None:
    engine = bench.engine(a_job("exit 75"))
    engine.execute([a_start(epoch=5)])
    assert not engine.execute([a_start(epoch=4)])
    bench.the_end(engine)
    assert not engine.execute([a_start(epoch=4)])
    assert engine.wait(inf) is None


def test_a_start_of_a_newer_lease_follows_the_end_of_the_former(bench: Bench) -> None:
    engine = bench.started(a_job(STUBBORN))
    assert not engine.execute([a_start(epoch=1), a_start(epoch=1)])
    former, started = bench.next_events(engine)
    assert former[1:4] == ("job", 0, Ending.STOPPED)
    assert started[1:] == ("job", 1)
    assert survey(engine) == (Running("job", 1, FIRST, 0.0),)


def test_a_newer_lease_that_is_stopped_before_the_former_has_ended_does_not_start(bench: Bench) -> None:
    engine = bench.started(a_job(STUBBORN))
    assert not engine.execute([a_start(epoch=1)])
    (ended,) = engine.execute([Stop(1, "job", 0.0)])
    assert ended[1:4] == ("job", 1, Ending.STOPPED)
    former, again = bench.next_events(engine)
    assert (former[1:4], again[1:]) == (("job", 0, Ending.STOPPED), ended[1:])
    assert not bench.processes()


def test_a_job_that_has_finished_is_not_started_again(bench: Bench) -> None:
    engine = bench.engine(a_job(f"echo once; {SAVE} save 3"))
    engine.execute([a_start()])
    bench.the_end(engine)
    (ended,) = engine.execute([a_start(epoch=1)])
    assert ended[1:] == ("job", 1, Ending.FINISHED, 3.0, "")
    (ended,) = engine.execute([Stop(1, "job", 0.0)])
    assert ended[1:] == ("job", 1, Ending.FINISHED, 3.0, "")
    assert bench.output() == "once\n"


def test_a_start_on_a_gpu_of_another_lease_is_lost(bench: Bench) -> None:
    engine = bench.started(a_job(FOREVER, "one"))
    engine.expect(a_job("true", "two"))
    (lost,) = engine.execute([a_start("two", epoch=1)])
    message = "cannot start: GPU a/0 is still in use by another process"  # not by which: it may be another tenant's
    assert lost[1:] == ("two", 1, Ending.LOST, 0.0, message)
    assert engine.execute([a_start("two", epoch=1)])[0][1:] == lost[1:]


# Surveys


def test_a_survey_names_what_runs_and_the_steps_that_are_saved(bench: Bench) -> None:
    engine = bench.started(a_job(f"{SAVE} save 5; {FOREVER}", "one"), a_job(STUBBORN, "two"))
    engine.execute([Stop(0, "two", HANG_SECONDS)])
    assert survey(engine) == (
        Running("one", 0, GPUS[:1], 5.0),
        Running("two", 0, GPUS[1:2], 0.0, Phase.SAVING),
    )


def test_a_survey_is_preceded_by_ends_that_were_not_reported(bench: Bench) -> None:
    engine = bench.engine(a_job("true"))
    engine.execute([a_start()])
    wait_until(lambda: bool(bench.zombies()))
    ended, surveyed = engine.execute([Survey()])
    assert isinstance(ended, JobEnded) and ended.ending is Ending.FINISHED
    assert isinstance(surveyed, Surveyed) and surveyed.running == ()


def test_a_job_that_has_the_sdk_is_reported_once_as_able_to_resume(bench: Bench) -> None:
    sdk = 'echo {} > "$HORAE_CHECKPOINT_DIR/sdk.json"; '
    engine = bench.started(a_job(sdk + FOREVER, "with"), a_job(FOREVER, "without"))
    resumable, _ = engine.execute([Survey()])
    assert isinstance(resumable, JobResumable) and resumable.job_id == "with"
    assert len(survey(engine)) == 2
    engine.execute([Stop(0, "with", 0.0), Stop(0, "without", 0.0)])
    assert [event.ending for event in bench.ends(engine, 2)] == [Ending.STOPPED] * 2


def test_a_job_that_ends_at_once_may_still_have_shown_that_it_resumes(bench: Bench) -> None:
    engine = bench.engine(a_job('echo {} > "$HORAE_CHECKPOINT_DIR/sdk.json"; exit 75'))
    engine.execute([a_start()])
    found = bench.next_events(engine)
    assert [type(event) for event in found] == [JobResumable, JobEnded]


# Waiting


def test_without_news_the_engine_waits_until_the_given_time(bench: Bench) -> None:
    engine = bench.started(a_job(FOREVER))
    until = bench.now + 0.2
    moment = engine.wait(until)
    assert isinstance(moment, Moment) and not moment.events and moment.at >= until
    assert engine.wait(0.0) is not None  # a time that has passed


def test_waiting_takes_no_processor_time(bench: Bench) -> None:
    engine = bench.started(a_job("touch ready; sleep 1000"))
    before = time.process_time()  # of this process alone, however busy the machine is
    engine.wait(bench.now + 0.5)
    assert time.process_time() - before < 0.25


def test_nothing_will_ever_happen_when_nothing_runs(bench: Bench) -> None:
    engine = bench.engine(a_job("true"))
    assert engine.wait(inf) is None
    engine.execute([a_start()])
    assert bench.the_end(engine).ending is Ending.FINISHED
    assert engine.wait(inf) is None


def test_ends_are_noticed_on_systems_without_process_descriptors(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pid: int) -> int:
        raise OSError("not implemented")

    monkeypatch.setattr("os.pidfd_open", refuse)
    engine = bench.started(a_job(saving(2)))
    engine.execute([Stop(0, "job", HANG_SECONDS)])
    assert bench.the_end(engine)[3:5] == (Ending.STOPPED, 2.0)


def test_a_wait_can_be_ended_from_another_thread(bench: Bench) -> None:
    engine = bench.engine()
    engine.wake()
    moment = engine.wait(1e9)  # woken before it waits
    assert moment is not None and moment.events == []
    threading.Timer(0.05, engine.wake).start()
    assert engine.wait(1e9) is not None


def test_a_wait_ends_when_a_watched_descriptor_is_readable(bench: Bench) -> None:
    engine = bench.engine()
    reader, writer = os.pipe()
    engine.watch(reader)
    threading.Timer(0.05, os.write, (writer, b"x")).start()
    moment = engine.wait(inf)
    assert moment is not None and moment.events == []
    assert select.select([reader], [], [], 0)[0]
    engine.unwatch(reader)
    assert engine.wait(inf) is None
    os.close(reader)
    os.close(writer)


# Leaving nothing behind


def test_closing_leaves_jobs_running_and_keeps_no_file_open(bench: Bench) -> None:
    files = open_files()
    with LocalEngine(CLUSTER, bench.directory, lambda: bench.now) as engine:
        engine.expect(a_job(FOREVER))
        engine.execute([a_start()])
        bench.ready()
    assert bench.processes()
    assert open_files() == files
    engine.close()  # twice is once


def test_jobs_that_end_keep_no_file_open(bench: Bench) -> None:
    engine = bench.engine(a_job("exit 1"))
    files = open_files()
    for epoch in range(5):
        engine.execute([a_start(epoch=epoch)])
        bench.the_end(engine)
    assert open_files() == files
    assert not bench.zombies()


NASTY = ["../up", ".", "..", "/etc/passwd", "a/b", "a b'\"$(x)", "line\nbreak", "ü" * 200, "x" * 1000, "\udc80", "%2E"]


def test_every_id_has_a_folder_of_its_own_in_the_directory(tmp_path: Path) -> None:
    names = [folder_name(job_id) for job_id in NASTY]
    assert len(set(names)) == len(NASTY)
    for name in names:
        folder = tmp_path / name
        folder.mkdir()
        assert folder.resolve().parent == tmp_path.resolve()
    assert folder_name("a-plain.name_7") == "a-plain.name_7"


def test_jobs_may_have_any_ids(bench: Bench) -> None:
    engine = bench.engine(*(a_job('printf %s "$HORAE_JOB"', job_id) for job_id in NASTY))
    for job_id in NASTY:
        engine.execute([a_start(job_id)])
        assert bench.the_end(engine)[1:4] == (job_id, 0, Ending.FINISHED)
        assert bench.folder(job_id).output.read_bytes() == os.fsencode(job_id)
