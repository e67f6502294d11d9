"""What jobs of the local engine are told and what they write: environment, checkpoints, output; and full disks."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from math import inf
from pathlib import Path

import pytest
from builders import gpus as named
from local_jobs import FOREVER, GPUS, SAVE, Bench, a_bench, a_start, saving
from patience import HANG_SECONDS, wait_until

from horae.engines.local.checkpoints import newest_published, published
from horae.engines.local.job_files import JobFolder
from horae.engines.local.launch import Launch
from horae.engines.local.records import ExitRecord, read_record
from horae.model.commands import Start, Stop
from horae.model.events import Ending, JobEnded, JobStarted
from horae.model.jobs import Job
from horae.model.shapes import Option, Shape


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with a_bench(tmp_path) as bench:
        yield bench


def environment(bench: Bench) -> dict[str, str]:
    """What a job that ran `env` was told and did not inherit."""
    lines = [line.partition("=") for line in bench.output().splitlines()]
    return {name: value for name, _, value in lines if os.environ.get(name) != value}


# The environment


def test_a_job_is_told_who_and_where_it_is(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HORAE_CONTINUES", "HORAE_STEPS_TOTAL", "HORAE_PASSWORD", "NOTIFY_SOCKET"):
        monkeypatch.setenv(name, "ours")
    launch = Launch("job", "env", environment={"OWN": "value", "HORAE_JOB": "a lie"}, steps_total=2.5)
    engine = bench.engine(launch, contact=lambda job_id, epoch: {"HORAE_TOKEN": f"{job_id} {epoch}"})
    ends_at = time.time() + 1000.0 - bench.now
    engine.execute([Start(7, ("job",), named("b", 0, 1), Shape("slow", 2, "node"), (41.0,), (True,), 1000.0)])
    bench.the_end(engine)
    told = environment(bench)
    for shell in ("PWD", "OLDPWD", "SHLVL", "_"):
        told.pop(shell, None)
    assert abs(float(told.pop("HORAE_LEASE_ENDS_AT")) - ends_at) < HANG_SECONDS
    assert 0 < int(told.pop("MASTER_PORT")) < 65536
    assert told == {
        "OWN": "value",
        "HORAE_JOB": "job",
        "HORAE_EPOCH": "7",
        "HORAE_TOKEN": "job 7",
        "HORAE_GPUS": "2,3",
        "HORAE_GPU_TYPE": "slow",
        "HORAE_LEVEL": "node",
        "HORAE_STEPS_DONE": "41",
        "HORAE_STEPS_TOTAL": "2.5",
        "HORAE_CHECKPOINT_DIR": str(bench.folder().lease(7).checkpoint),
        "HORAE_REPORTS": str(bench.folder().reports),
        "CUDA_VISIBLE_DEVICES": "2,3",
        "RANK": "0",
        "WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
    }


@pytest.mark.parametrize("name", ["", "A=B", "zero\0"])
def test_a_variable_that_cannot_be_is_refused(bench: Bench, name: str) -> None:
    ended = bench.run("true", environment={name: "x"})
    assert ended.ending is Ending.FAILED and "no environment can hold" in ended.message


def test_a_job_that_continues_another_finds_its_checkpoint(bench: Bench) -> None:
    tell = 'echo "${HORAE_CONTINUES-none} ${HORAE_STEPS_TOTAL-none}"; '
    engine = bench.engine(
        Launch("first", f"{tell}{SAVE} save 12"),
        Launch("second", tell, continues="first", steps_total=2.5),
        Launch("third", tell, continues="second"),
    )
    for name in ("first", "second", "third"):
        engine.execute([a_start(name)])
        assert bench.the_end(engine).ending is Ending.FINISHED
    told = [bench.output(name).strip() for name in ("first", "second", "third")]
    assert told == ["none none", f"{bench.folder('first').lease(0).checkpoint}/state 2.5", "none none"]


def test_a_launch_has_what_a_job_says() -> None:
    job = Job("id", 1.0, (Option(Shape("fast", 1, "node"), 1.0),), command="run", workdir="/w", grace_seconds=3.0)
    launch = Launch.of(job)
    assert (launch.job_id, launch.command, launch.workdir, launch.grace_seconds) == ("id", "run", "/w", 3.0)
    assert launch.specification["id"] == "id"


# Checkpoints


def test_the_newest_checkpoint_is_handed_on_and_older_ones_are_deleted(bench: Bench) -> None:
    command = f'{SAVE} echo "${{HORAE_CHECKPOINT-none}}"; [ $HORAE_EPOCH = 1 ] || save $HORAE_EPOCH; exit 1'
    engine = bench.engine(Launch("job", command))
    folder = bench.folder()
    for epoch in range(4):
        engine.execute([a_start(epoch=epoch)])
        assert bench.the_end(engine).steps == (0.0, 0.0, 2.0, 3.0)[epoch]
    states = [str(folder.lease(epoch).checkpoint / "state") for epoch in range(4)]
    assert bench.output().split() == ["none", states[0], states[0], states[2]]
    assert folder.epochs() == [3]
    wait_until(lambda: [path.name for path in folder.leases.iterdir()] == ["3"])


def test_a_job_that_finishes_keeps_the_newest_checkpoint_only(bench: Bench) -> None:
    engine = bench.engine(
        Launch("job", f"{SAVE} [ $HORAE_EPOCH = 3 ] && exit 0; [ $HORAE_EPOCH = 1 ] && save 1; exit 1")
    )
    for epoch in range(4):
        engine.execute([a_start(epoch=epoch)])
        ended = bench.the_end(engine)
    assert (ended.ending, ended.steps) == (Ending.FINISHED, 1.0)
    assert bench.folder().epochs() == [1, 3]
    checkpoint = newest_published(bench.folder())
    assert checkpoint is not None and checkpoint.path.read_text() == "1\n"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "7",
        "[]",
        "[" * 10_000,
        '{"steps": 7}',
        '{"steps": NaN, "path": "state"}',
        '{"steps": Infinity, "path": "state"}',
        '{"steps": 1e999, "path": "state"}',
        f'{{"steps": 1{"0" * 400}, "path": "state"}}',
        '{"steps": -3, "path": "state"}',
        '{"steps": true, "path": "state"}',
        '{"steps": "7", "path": "state"}',
        '{"steps": 7, "path": 7}',
        '{"steps": 7, "path": ""}',
        '{"steps": 7, "path": "."}',
        '{"steps": 7, "path": ".."}',
        '{"steps": 7, "path": "../other"}',
        '{"steps": 7, "path": "/etc/passwd"}',
        '{"steps": 7, "path": "missing"}',
        '{"steps": 7, "path": "link"}',
        '{"steps": 7, "path": "zero\\u0000"}',
        '{"steps": 7, "path": "state"}' + " " * (1 << 20),
    ],
    ids=lambda text: text[:40],
)
def test_an_unsound_publication_counts_as_none(tmp_path: Path, text: str) -> None:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "state").touch()
    (tmp_path / "other").touch()
    (folder / "link").symlink_to("/etc/passwd")
    (folder / "saved.json").write_text(text)
    assert published(folder, 0) is None


def test_a_sound_publication_names_a_file_or_a_folder(tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "saved.json").write_text('{"steps": 7, "path": "deep/er"}')
    found = published(tmp_path, 3)
    assert found is not None and (found.epoch, found.steps, found.path) == (3, 7.0, tmp_path / "deep" / "er")


@pytest.mark.parametrize("thing", ["mkfifo", "mkdir", "ln -s /dev/zero"])
def test_other_things_in_the_place_of_a_publication_count_as_none(bench: Bench, thing: str) -> None:
    engine = bench.engine(Launch("job", f'{thing} "$HORAE_CHECKPOINT_DIR/saved.json"; rm -f "$HORAE_REPORTS"; exit 1'))
    for epoch in range(2):
        engine.execute([a_start(epoch=epoch, steps_done=7.5)])
        assert bench.the_end(engine)[3:5] == (Ending.FAILED, 7.5)


def test_a_job_that_removes_its_folders_only_loses_its_checkpoints(bench: Bench) -> None:
    engine = bench.engine(Launch("job", f'{SAVE} save 3; rm -r "$HORAE_CHECKPOINT_DIR" ../work ../reports; exit 1'))
    for epoch in range(2):
        engine.execute([a_start(epoch=epoch)])
        assert bench.the_end(engine)[3:] == (Ending.FAILED, 0.0, "exit code 1")


# Output


def outputs(bench: Bench) -> bytes:
    folder = bench.folder()
    (older,) = folder.path.glob("output.log.*")
    return older.read_bytes() + folder.output.read_bytes()


def test_output_is_limited_and_its_end_is_kept(bench: Bench) -> None:
    write = "import sys; sys.stdout.buffer.write(bytes(range(256)) * 400); print(); print('the end')"
    ended = bench.run(f'{sys.executable} -c "{write}"; exit 1', output_bytes_max=10_000)
    assert ended.message == "exit code 1: the end"
    found = outputs(bench)
    assert 5_000 <= len(found) <= 10_000
    written = bytes(range(256)) * 400 + b"\nthe end\n"
    assert written.endswith(found)
    (older,) = bench.folder().path.glob("output.log.*")
    assert older.name == f"output.log.{len(written) - len(found)}", "the position of its first byte"


def test_output_that_cannot_be_written_is_dropped_and_does_not_stop_the_job(bench: Bench) -> None:
    bench.folder().output.mkdir(parents=True)
    ended = bench.run("echo one; echo two; exit 1")
    assert ended.message == "exit code 1: two"
    record = read_record(ExitRecord, bench.folder().lease(0).exit)
    assert record is not None and record.dropped_bytes == 8


def test_output_to_a_descriptor_that_outlives_the_job_does_not_hold_it_up(bench: Bench) -> None:
    assert bench.run("exec >&- 2>&-; sleep 0.05").ending is Ending.FINISHED


# Disks and users


def test_a_start_that_cannot_be_recorded_is_lost(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = bench.engine(Launch("job", FOREVER))

    def full(*arguments: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("horae.engines.local.starter.write_record", full)
        (lost,) = engine.execute([a_start()])
        assert lost[1:] == ("job", 0, Ending.LOST, 0.0, "cannot start: [Errno 28] No space left on device")
        assert not bench.processes() and not bench.supervisors()
        assert engine.wait(inf) is None
        patch.setattr("horae.engines.local.engine.write_record", full)
        assert not engine.execute([Stop(4, "job", 0.0)])  # a tombstone that is not durable is none
    assert [type(reply) for reply in engine.execute([a_start(epoch=1)])] == [JobStarted]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "none", folder], check=False, capture_output=True
    )
    if mounted.returncode != 0:
        pytest.skip("only root can mount a small disk")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


def test_a_full_disk_stops_no_job_and_loses_no_end(small_disk: Path) -> None:
    with a_bench(small_disk) as bench:
        noisy = "touch ready; while [ ! -e go ]; do sleep 0.02; done; echo some output; exit 3"
        engine = bench.started(Launch("noisy", noisy), Launch("calm", saving(5, exit_code=9)))
        (bench.folder("calm").lease(0).checkpoint / "new").write_bytes(b" " * 100)
        filler = (small_disk / "filler").open("wb", buffering=0)
        with pytest.raises(OSError, match="No space left"):
            while True:
                filler.write(bytes(4096))
        engine.expect(Launch("late", "true"))
        (late,) = engine.execute([a_start("late", gpus=GPUS[2:3])])
        assert late[1:4] == ("late", 0, Ending.LOST) and "No space left" in str(late)
        (bench.folder("noisy").work / "go").symlink_to("/")  # needs no space
        assert bench.the_end(engine)[1:] == ("noisy", 0, Ending.FAILED, 0.0, "exit code 3: some output")
        engine.execute([Stop(0, "calm", HANG_SECONDS)])
        assert bench.the_end(engine)[1:4] == ("calm", 0, Ending.STOPPED)
        filler.close()
        (small_disk / "filler").unlink()
        engine.execute([a_start("late", epoch=1, gpus=GPUS[2:3])])
        assert bench.the_end(engine).ending is Ending.FINISHED


def test_a_user_that_does_not_exist_is_refused(bench: Bench) -> None:
    ended = bench.run("true", user="no-such-user")
    assert (ended.ending, ended.message) == (
        Ending.FAILED,
        "cannot start: there is no user 'no-such-user' on this machine",
    )


def test_the_own_user_needs_no_rights(bench: Bench) -> None:
    ended = bench.run("id -un", user=pwd.getpwuid(os.geteuid()).pw_name)
    assert ended.ending is Ending.FINISHED


@pytest.fixture
def public_folder() -> Iterator[Path]:
    if os.geteuid() != 0:
        pytest.skip("only root can run jobs as another user")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)
        yield Path(folder) / "engine"


def test_a_job_of_another_user_has_its_own_files_and_no_others(
    public_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "of the service")
    with a_bench(public_folder) as bench:
        tell = 'id -un; echo "$USER $HOME ${SECRET-none}"; pwd; echo 1 0.5 >> "$HORAE_REPORTS"; umask; '
        spy = "cat ../leases/0/start.json ../../../fence ../leases/0/exit.json.new 2>/dev/null; ls .. 2>/dev/null; "
        ended = bench.run(f"{tell}{spy}{SAVE} save 4; touch mine", user="nobody")
        assert (ended.ending, ended.steps) == (Ending.FINISHED, 4.0)
        folder = bench.folder()
        home = pwd.getpwnam("nobody").pw_dir
        assert bench.output().splitlines()[:3] == ["nobody", f"nobody {home} none", str(folder.work)]
        assert len(bench.output().splitlines()) == 4
        assert folder.reports.read_text() == "1 0.5\n"
        assert {path.owner() for path in (folder.work / "mine", folder.output, folder.lease(0).checkpoint)} == {
            "nobody"
        }
        assert {path.owner() for path in (folder.path, folder.leases, folder.lease(0).start)} == {"root"}


def test_records_can_be_read_by_other_programs(bench: Bench) -> None:
    ended = bench.run(f"{SAVE} save 1")
    files = JobFolder.of(bench.directory, "job").lease(0)
    assert isinstance(ended, JobEnded)
    assert json.loads(files.exit.read_text())["status"] == 0
    assert json.loads(files.start.read_text())["gpus"] == ["a/0"]
    assert json.loads(files.ended.read_text())["ending"] == "finished"
