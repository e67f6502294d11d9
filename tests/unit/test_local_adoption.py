"""What is left when a service, a supervisor or a job is killed, and what the next engine makes of it."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from math import inf
from pathlib import Path

import pytest
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
    contents,
    kill,
    pids,
    saving,
    survey,
)
from patience import HANG_SECONDS, wait_until

from horae.engines.local.engine import LocalEngine
from horae.engines.local.fence import Fence, Fenced
from horae.engines.local.launch import Launch
from horae.engines.local.locks import Locks, is_free
from horae.engines.local.processes import ProcessId, identify, is_running
from horae.engines.local.records import EndMoment, StartRecord, StopRecord, read_record, write_record
from horae.engines.local.spawn import Spawned
from horae.model.commands import Start, Stop
from horae.model.events import Ending, Event, GpuChanged, GpuState, JobEnded, JobStarted, Running

# A child of the job in a session of its own, with an empty environment. It keeps inherited locks whose names contain
# the given word.
ESCAPE = f"""{sys.executable} -c '
import os, sys
if os.fork() == 0:
    os.setsid()
    for name in os.listdir("/proc/self/fd"):
        try:
            link = os.readlink("/proc/self/fd/" + name)
        except OSError:
            continue
        if "/locks/" in link and sys.argv[1] not in link:
            os.close(int(name))
    open("escaped", "w").write(str(os.getpid()))
    os.execve("/bin/sleep", ["sleep", "1000"], {{}})
' """


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with a_bench(tmp_path) as bench:
        yield bench


def supervisor_of(bench: Bench, name: str = "job", epoch: int = 0) -> ProcessId:
    record = read_record(StartRecord, bench.folder(name).lease(epoch).start)
    assert record is not None
    return record.supervisor


def escaped(bench: Bench) -> ProcessId:
    """The child that has left, as soon as it runs its own program."""
    note = bench.folder().work / "escaped"
    wait_until(lambda: note.exists() and bool(note.read_text()))
    pid = int(note.read_text())
    wait_until(lambda: contents(pid, "comm") == b"sleep\n")
    found = identify(pid)
    assert found is not None
    return found


def types(events: list[Event]) -> list[type]:
    return [type(event) for event in events]


# A new service


def test_a_new_engine_finds_what_runs_and_stops_it(bench: Bench) -> None:
    specification = {"id": "job", "more": [1, 2.5, None]}
    bench.started(Launch("job", f"{SAVE} save 2; {saving(3)}", specification=specification)).close()
    engine = bench.engine()
    assert survey(engine) == (Running("job", 0, FIRST, 2.0),)
    assert engine.specification("job") == specification
    assert engine.specification("stranger") is None
    (started,) = engine.execute([a_start()])
    assert isinstance(started, JobStarted)
    engine.execute([Stop(0, "job", HANG_SECONDS)])
    assert bench.the_end(engine)[1:] == ("job", 0, Ending.STOPPED, 3.0, "")
    assert engine.specification("job") is None


def test_cells_and_shapes_of_a_lease_survive(bench: Bench) -> None:
    engine = bench.engine(Launch("job", FOREVER))
    engine.execute([a_start(gpus=GPUS[2:])._replace(cells=("node", "gpu"), epoch=1 << 45)])
    engine.close()
    assert survey(bench.engine()) == (Running("job", 1 << 45, GPUS[2:], 0.0, cells=("node", "gpu")),)


def test_an_end_that_no_service_saw_is_reported_once_it_is_received(bench: Bench) -> None:
    engine = bench.started(Launch("job", "touch ready; while [ ! -e go ]; do sleep 0.02; done; exit 3"))
    supervisor = supervisor_of(bench)
    engine.close()
    (bench.folder().work / "go").touch()
    wait_until(lambda: not is_running(supervisor))
    unlucky = bench.engine()
    first = bench.the_end(unlucky)
    assert first[1:] == ("job", 0, Ending.FAILED, 0.0, "exit code 3")
    unlucky.close()  # it may have died before it wrote the event down
    engine = bench.engine()
    assert bench.the_end(engine)[1:] == first[1:]
    engine.wait(0.0)
    engine.close()
    assert bench.engine().wait(float("inf")) is None


def test_tombstones_and_ends_survive(bench: Bench) -> None:
    engine = bench.engine(Launch("job", "exit 1"))
    engine.execute([a_start(epoch=3)])
    ended = bench.the_end(engine)
    (tombstone,) = engine.execute([Stop(5, "job", 0.0)])
    engine.wait(0.0)
    engine.close()
    engine = bench.engine(Launch("job", FOREVER))
    answers = engine.execute([a_start(epoch=epoch) for epoch in (2, 3, 4, 5)])
    assert [answer[1:] for answer in answers] == [tombstone[1:]]
    (again,) = engine.execute([Stop(3, "job", 0.0)])
    assert again[1:] == ended[1:]
    assert [type(answer) for answer in engine.execute([a_start(epoch=6)])] == [JobStarted]


def test_a_stop_whose_signal_was_not_sent_is_sent_by_the_next_engine(bench: Bench) -> None:
    bench.started(Launch("job", STUBBORN)).close()
    write_record(bench.folder().lease(0).stop, StopRecord(0.1))
    assert bench.the_end(bench.engine())[1:4] == ("job", 0, Ending.STOPPED)


def test_a_start_that_was_cut_short_leaves_nothing(bench: Bench) -> None:
    """As if the service had died before the start was on record, and just after it."""
    engine = bench.engine(Launch("job", FOREVER))
    engine.close()
    (bench.directory / "active" / "0-job").touch()
    lock = Locks(bench.directory / "locks").take_job("other")
    files = bench.folder("other").lease(0)
    files.path.mkdir(parents=True)
    settings = {"folder": os.fsencode(files.path)}
    supervisor = Spawned(settings, [lock], files.supervisor_log)
    os.close(lock)
    record = StartRecord("other", 0, FIRST, (), a_start().shape, 4.0, None, 0.0, boot(), supervisor.process, 0.0)
    write_record(files.start, record)
    (bench.directory / "active" / "0-other").touch()
    os.close(supervisor._go)
    engine = bench.engine()
    message = "the service ended before the job could start"
    assert bench.the_end(engine)[1:] == ("other", 0, Ending.LOST, 4.0, message)
    assert is_free(Locks(bench.directory / "locks").of_job("other"))
    assert [path.name for path in (bench.directory / "active").iterdir()] == ["0-other"]  # until it is received


def test_what_is_left_of_a_start_that_was_cut_short_does_not_count_when_it_is_repeated(bench: Bench) -> None:
    bench.engine()
    files = bench.folder().lease(0)
    files.make()
    files.exit.write_text('{"status": 0, "signal": null, "told": false, "error": "", "ended_at": 1}')
    engine = bench.started(Launch("job", FOREVER))
    kill(supervisor_of(bench).pid)
    assert bench.the_end(engine)[3:] == (Ending.LOST, 0.0, "its supervisor was killed")


def test_a_supervisor_that_fails_says_why(bench: Bench) -> None:
    engine = bench.started(Launch("job", FOREVER))
    files = bench.folder().lease(0)
    Path(f"{files.exit}.new").unlink()
    Path(f"{files.exit}.new").mkdir()
    engine.execute([Stop(0, "job", 0.0)])
    ended = bench.the_end(engine)
    assert ended.ending is Ending.LOST and "its supervisor failed: IsADirectoryError" in ended.message


def boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def test_an_end_is_reported_as_of_when_it_was_though_no_service_ran(bench: Bench) -> None:
    down_seconds = 100 * HANG_SECONDS
    bench.engine(Launch("job", "true")).execute([a_start()])
    bench.engines[0].close()
    exit = bench.folder().lease(0).exit
    wait_until(exit.exists)
    record = json.loads(exit.read_text())
    ended = record["ended_boot_seconds"]
    assert abs(time.clock_gettime(time.CLOCK_BOOTTIME) - ended) < HANG_SECONDS
    exit.write_text(json.dumps(record | {"ended_boot_seconds": ended - down_seconds}))
    engine = LocalEngine(CLUSTER, bench.directory, lambda: bench.now + 2 * down_seconds)
    bench.engines.append(engine)
    found_at = bench.now + 2 * down_seconds
    moment = engine.wait(inf)
    assert moment is not None
    (event,) = (each for each in moment.events if isinstance(each, JobEnded))
    assert abs(found_at - down_seconds - event.at) < HANG_SECONDS
    assert event.ending is Ending.FINISHED


def test_what_has_ended_before_a_boot_ended_at_the_latest_then() -> None:
    since_boot = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert EndMoment("another boot", 5.0, time.time()).seconds_ago() >= since_boot
    earlier = EndMoment("another boot", 5.0, time.time() - since_boot - 500.0).seconds_ago()
    assert since_boot + 500.0 <= earlier < since_boot + 500.0 + HANG_SECONDS
    assert EndMoment(boot(), since_boot + 1e6, 0.0).seconds_ago() == 0.0


def test_a_lease_of_a_former_boot_is_lost(bench: Bench) -> None:
    bench.started(Launch("job", f"{SAVE} save 6; {FOREVER}")).close()
    kill(supervisor_of(bench).pid)
    wait_until(lambda: not bench.processes())
    start = bench.folder().lease(0).start
    start.write_text(start.read_text().replace(boot(), "another boot"))
    assert bench.the_end(bench.engine())[1:] == ("job", 0, Ending.LOST, 6.0, "the machine was restarted")


def test_a_process_that_has_only_the_id_of_a_supervisor_is_left_alone(bench: Bench) -> None:
    bench.started(Launch("job", FOREVER)).close()
    supervisor = supervisor_of(bench)
    kill(supervisor.pid)
    os.waitpid(supervisor.pid, 0)
    with subprocess.Popen(["sleep", "1000"]) as stranger:
        start = bench.folder().lease(0).start
        record = json.loads(start.read_text())
        record["supervisor"]["pid"] = stranger.pid
        start.write_text(json.dumps(record))
        write_record(bench.folder().lease(0).stop, StopRecord(0.0))
        assert bench.the_end(bench.engine())[3] is Ending.LOST
        assert stranger.poll() is None
        stranger.kill()


# A supervisor or a job that is killed


@pytest.mark.parametrize("kept", ["job-", "nothing"])
@pytest.mark.parametrize("away", [False, True], ids=["service there", "service away"])
def test_nothing_of_a_job_survives_its_supervisor_for_long(bench: Bench, kept: str, away: bool) -> None:
    """Without control groups a child must be found by its environment, its session or the lock that it holds."""
    children = f"sleep 1000 & setsid sleep 1001 & env -i sleep 1002 & {ESCAPE if kept == 'job-' else 'true'} {kept}"
    engine = bench.started(Launch("job", f"{SAVE} save 8; {children}; {STUBBORN}"), use_cgroups=False)
    child = escaped(bench) if kept == "job-" else None
    supervisor = supervisor_of(bench)
    if away:
        engine.close()
    kill(supervisor.pid)
    if away:
        engine = bench.engine(use_cgroups=False)
    assert bench.the_end(engine)[1:] == ("job", 0, Ending.LOST, 8.0, "its supervisor was killed")
    assert not bench.processes()
    assert not [pid for pid in pids() if contents(pid, "cmdline") in (b"sleep\x001001\0", b"sleep\x001002\0")]
    assert child is None or not is_running(child)


def test_no_child_can_leave_its_control_group(bench: Bench) -> None:
    engine = bench.started(Launch("job", f"{ESCAPE} nothing; {FOREVER}"))
    record = read_record(StartRecord, bench.folder().lease(0).start)
    child = escaped(bench)
    if record is None or not record.cgroup:
        kill(child.pid)
        pytest.skip("control groups cannot be made here")
    kill(record.supervisor.pid)
    assert bench.the_end(engine).ending is Ending.LOST
    assert not is_running(child)
    assert not Path(record.cgroup).exists()


def test_a_child_that_leaves_ends_with_its_job(bench: Bench) -> None:
    """While the supervisor lives it has all descendants, whatever they do."""
    engine = bench.started(Launch("job", f"{ESCAPE} nothing; {FOREVER}"), use_cgroups=False)
    child = escaped(bench)
    engine.execute([Stop(0, "job", 0.0)])
    assert bench.the_end(engine).ending is Ending.STOPPED
    assert not is_running(child)


def test_a_gpu_whose_lock_is_still_held_is_used_by_others_until_it_is_free(bench: Bench) -> None:
    engine = bench.started(Launch("job", f"{ESCAPE} gpu-; {FOREVER}"), use_cgroups=False)
    child = escaped(bench)
    kill(supervisor_of(bench).pid)
    (foreign,) = bench.next_events(engine)
    assert isinstance(foreign, GpuChanged)
    assert (foreign.gpu, foreign.state) == (FIRST[0], GpuState.FOREIGN)
    assert f"process {child.pid} (sleep)" in foreign.note
    assert survey(engine) == (Running("job", 0, FIRST, 0.0),)  # its GPUs are not free
    kill(child.pid)
    found: list[Event] = []
    while len(found) < 2:
        found += bench.next_events(engine)
    assert {event[1:4] for event in found} == {(FIRST[0], GpuState.USABLE, ""), ("job", 0, Ending.LOST)}


def test_a_job_whose_leader_is_killed_has_failed(bench: Bench) -> None:
    engine = bench.started(Launch("job", f"echo $$ > leader; (setsid sleep 1000 &); {FOREVER}"), use_cgroups=False)
    kill(int((bench.folder().work / "leader").read_text()))
    assert bench.the_end(engine)[3:] == (Ending.FAILED, 0.0, "killed by SIGKILL")
    assert not bench.processes()


# Locks of others


def test_a_start_on_a_gpu_that_another_process_holds_is_lost_and_the_gpu_is_reported(bench: Bench) -> None:
    engine = bench.engine(Launch("job", "true"))
    with Locks(bench.directory / "locks").of_gpu(FIRST[0]).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        (lost,) = engine.execute([a_start()])
        assert lost[1:4] == ("job", 0, Ending.LOST)
        assert "GPU a/0 is still in use by another process" in str(lost)
        assert str(os.getpid()) not in str(lost), "it may be another user's"
        (foreign,) = bench.next_events(engine)
        assert f"GPU a/0 is held by process {os.getpid()} " in str(foreign), "for operators"
        assert foreign[1:3] == (FIRST[0], GpuState.FOREIGN)
        engine.close()
        engine = bench.engine(Launch("job", "true"))
        (again,) = bench.next_events(engine)
        assert again[1:] == (*foreign[1:3], again[-1])
    (usable,) = bench.next_events(engine)
    assert usable[1:] == (FIRST[0], GpuState.USABLE, "")
    assert isinstance(engine.execute([a_start(epoch=1)])[0], JobStarted)
    assert bench.the_end(engine).ending is Ending.FINISHED


def test_a_gpu_that_became_free_while_no_service_ran_is_reported(bench: Bench) -> None:
    with Locks(bench.directory / "locks").of_gpu(GPUS[3]).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        engine = bench.engine()
        (foreign,) = bench.next_events(engine)
        engine.close()
    engine = bench.engine()
    (usable,) = bench.next_events(engine)
    assert (foreign[1:3], usable[1:3]) == ((GPUS[3], GpuState.FOREIGN), (GPUS[3], GpuState.USABLE))
    engine.wait(0.0)
    engine.close()
    assert bench.engine().wait(float("inf")) is None


def test_a_job_whose_lock_another_process_holds_is_not_started(bench: Bench) -> None:
    engine = bench.engine(Launch("job", "true"))
    with Locks(bench.directory / "locks").of_job("job").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        (lost,) = engine.execute([a_start()])
    assert lost[1:4] == ("job", 0, Ending.LOST) and "job job is still in use by another process" in str(lost)


# The fence


def test_an_engine_that_was_replaced_carries_out_nothing(bench: Bench) -> None:
    old = bench.started(Launch("job", FOREVER), Launch("other", FOREVER))
    old.expect(Launch("late", FOREVER))
    new = bench.engine()
    commands: list[Start | Stop] = [Stop(0, "job", 0.0), a_start("late", gpus=GPUS[2:3]), Stop(7, "late", 0.0)]
    for command in commands:
        with pytest.raises(Fenced):
            old.execute([command])
    with pytest.raises(Fenced):
        old.stop_all(0.0)
    assert [run.job_id for run in survey(new)] == ["job", "other"]
    assert not bench.folder("late").path.exists()


def test_a_lower_term_is_refused_and_a_higher_one_takes_over(bench: Bench) -> None:
    old = bench.engine(term=7)
    with pytest.raises(Fenced, match="term 7 is on record"):
        bench.engine(term=6)
    bench.engine(term=8)
    with pytest.raises(Fenced, match="term 8"):
        old.stop_all(0.0)
    bench.directory = bench.directory / "other"  # the last engine of the bench has term 1


def test_a_former_service_that_is_stopped_within_a_command_is_killed(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys; from pathlib import Path; from horae.engines.local.fence import Fence\n"
        "with Fence(Path(sys.argv[1]), 1).held():\n"
        "    os.kill(os.getpid(), signal.SIGSTOP)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path)]) as former:
        wait_until(lambda: b"State:\tT" in contents(former.pid, "status"))
        fence = Fence(tmp_path, 2, patience_seconds=0.1)
        with fence.held():
            assert former.wait(HANG_SECONDS) == -signal.SIGKILL
        fence.close()


def test_a_fence_that_is_held_by_an_unknown_process_is_not_taken(tmp_path: Path) -> None:
    fence = Fence(tmp_path, 1)
    with fence.held(), pytest.raises(Fenced, match="end that process"):
        Fence(tmp_path, 2, patience_seconds=0.1)
    fence.close()


def test_engines_need_no_more_than_the_folder(tmp_path: Path) -> None:
    """A relative folder, and one that does not exist yet."""
    with a_bench(tmp_path / "new" / "deep") as bench:
        assert bench.run("true").ending is Ending.FINISHED
        assert isinstance(bench.engines[0], LocalEngine)
        assert types([*bench.engines[0].execute([a_start()])]) == [JobEnded]
