"""Checkpoints: what is published, and that a crash at any point loses none."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import horae_sdk as horae
import pytest
from sdk_jobs import Job, finish


def save(run: horae.Run, step: int, text: str = "weights") -> Path:
    folder = run.checkpoint_dir
    (folder / "part").mkdir()
    (folder / "part/weights").write_text(text)
    (folder / "step").write_text(str(step))
    run.saved(step)
    return folder


def test_init_says_that_the_job_can_resume(in_job: Job) -> None:
    horae.init().close()
    assert json.loads((in_job.checkpoint_dir / "sdk.json").read_text()) == {"sdk": horae.__version__}
    assert sorted(path.name for path in in_job.checkpoint_dir.iterdir()) == ["sdk.json"]


def test_outside_of_horae_a_run_makes_no_folder_before_it_saves(tmp_path: Path) -> None:
    run = horae.init()
    assert not run.resumed
    assert not list(tmp_path.iterdir())
    save(run, 3)
    assert run.checkpoint == tmp_path / "checkpoints/save-000001"
    again = horae.init()
    assert again.resumed
    assert again.checkpoint == run.checkpoint


def test_variables_of_horae_count_only_within_a_job(in_job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HORAE_JOB")
    save(horae.init(checkpoints="mine"), 1)
    assert Path("mine/saved.json").exists()
    assert not in_job.checkpoint_dir.exists()


def test_a_save_is_published_under_its_steps_and_older_ones_are_deleted(in_job: Job) -> None:
    run = horae.init()
    first = save(run, 10)
    assert in_job.saved == {"steps": 10, "path": first.name}
    second = save(run, 20)
    assert in_job.saved == {"steps": 20, "path": second.name}
    assert run.checkpoint == second
    assert not run.resumed, "there was no checkpoint when the run began"
    assert sorted(path.name for path in in_job.checkpoint_dir.iterdir()) == ["save-000002", "saved.json", "sdk.json"]


def test_files_of_others_in_the_folder_are_kept(in_job: Job) -> None:
    run = horae.init()
    (in_job.checkpoint_dir / "notes").mkdir()
    save(run, 10)
    assert (in_job.checkpoint_dir / "notes").exists()


def test_the_folder_of_the_next_save_is_empty_and_stays_the_same_until_it_is_saved(in_job: Job) -> None:
    run = horae.init()
    folder = run.checkpoint_dir
    (folder / "half").write_text("of a save that a crash interrupts")
    assert run.checkpoint_dir == folder
    again = horae.init()
    assert again.checkpoint is None
    assert again.checkpoint_dir != folder
    assert not list(again.checkpoint_dir.iterdir())
    save(again, 5)
    assert not folder.exists()


def test_a_checkpoint_of_an_earlier_epoch_is_used_until_there_is_one_of_this_epoch(
    in_job: Job, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HORAE_CHECKPOINT", str(tmp_path / "epoch-0/save-000007"))
    run = horae.init()
    assert run.resumed
    assert run.checkpoint == tmp_path / "epoch-0/save-000007"
    newest = save(run, 30)
    assert run.checkpoint == newest == horae.init().checkpoint


@pytest.mark.parametrize("written", [False, True], ids=["no folder was asked for", "the folder is empty"])
def test_nothing_is_published_where_nothing_was_saved(in_job: Job, written: bool) -> None:
    run = horae.init()
    first = save(run, 10)
    if written:
        assert run.checkpoint_dir
    with pytest.raises(ValueError, match="nothing was saved"):
        run.saved(20)
    assert horae.init().checkpoint == first


def test_a_damaged_record_is_an_error_with_a_remedy(in_job: Job) -> None:
    save(horae.init(), 10)
    (in_job.checkpoint_dir / "saved.json").write_text("{")
    with pytest.raises(ValueError, match="delete it"):
        horae.init()


def test_steps_may_be_numbers_of_other_libraries(in_job: Job) -> None:
    import numpy as np  # noqa: PLC0415  (the package itself knows no such library)

    run = horae.init()
    (run.checkpoint_dir / "x").write_text("x")
    run.saved(np.int64(7))
    assert in_job.saved["steps"] == 7


def test_links_and_pipes_in_a_checkpoint_do_no_harm(in_job: Job) -> None:
    run = horae.init()
    (run.checkpoint_dir / "nowhere").symlink_to("/does/not/exist")
    os.mkfifo(run.checkpoint_dir / "pipe")
    run.saved(1)
    assert in_job.saved["steps"] == 1


def test_everything_is_durable_before_it_is_published(in_job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order of calls decides what a power failure leaves: contents, names, then the record and its name."""
    run = horae.init()
    calls: list[str] = []
    opened: dict[int, str] = {}
    real_open, real_sync, real_replace = os.open, os.fsync, os.replace

    def open_file(path: str, *arguments: Any, **options: Any) -> int:
        descriptor = real_open(path, *arguments, **options)
        opened[descriptor] = Path(path).name
        return descriptor

    def sync(descriptor: int) -> None:
        calls.append(f"sync {opened[descriptor].split('.')[0]}")
        real_sync(descriptor)

    def replace(source: str, target: str) -> None:
        calls.append(f"publish {Path(target).name}")
        real_replace(source, target)

    monkeypatch.setattr(os, "open", open_file)
    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "replace", replace)
    save(run, 1)
    assert calls == [
        "sync weights", "sync part", "sync step", "sync save-000001", "sync epoch-1",
        "sync saved", "publish saved.json", "sync epoch-1",
    ]  # fmt: skip


CRASHES = """
    import builtins, json, os, shutil, sys
    from pathlib import Path
    import horae_sdk as horae

    CALLS = "open write fsync replace rename mkdir unlink rmdir remove close scandir lstat".split()

    def crash_at(n):
        # The process ends at the n-th call of the operating system: before it, or in the middle of a write.
        left = n
        def wrap(call, name):
            def wrapped(*arguments, **options):
                nonlocal left
                left -= 1
                if left == 0:
                    if name == "write":
                        call(arguments[0], arguments[1][: len(arguments[1]) // 2])
                    os._exit(9)
                return call(*arguments, **options)
            return wrapped
        for name in CALLS:
            setattr(os, name, wrap(getattr(os, name), name))
        # Deleting must go through the calls above, also where the standard library prefers descriptors.
        shutil._use_fd_functions = False

    def save(run, step):
        (run.checkpoint_dir / "part").mkdir()
        (run.checkpoint_dir / "part/weights").write_text("x" * step)
        (run.checkpoint_dir / "step").write_text(str(step))

    def one(n, folder):
        os.environ["HORAE_CHECKPOINT_DIR"] = str(folder)
        run = horae.init()
        save(run, 10); run.saved(10)
        save(run, 20)
        crash_at(n)
        run.saved(20)
        os._exit(0)

    found, n, status = [], 0, 9
    while status == 9:
        n += 1
        folder = Path(f"crash-{n}").absolute()
        child = os.fork()
        if child == 0:
            try:
                one(n, folder)
            finally:
                os._exit(1)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        os.environ["HORAE_CHECKPOINT_DIR"] = str(folder)
        run = horae.init()
        step = int((run.checkpoint / "step").read_text())
        record = json.loads((folder / "saved.json").read_text())
        whole = (run.checkpoint / "part/weights").read_text() == "x" * step and record["steps"] == step
        save(run, 30); run.saved(30)  # the next process goes on
        folders = [path.name for path in folder.iterdir() if path.is_dir()]
        found.append([status, step, whole, folders == [run.checkpoint.name]])
    print(json.dumps(found))
"""


def test_a_crash_between_any_two_calls_leaves_the_old_or_the_new_checkpoint(job: Job) -> None:
    status, output, errors = finish(job.start(CRASHES))
    assert status == 0, errors
    found = json.loads(output)
    assert len(found) > 25, "a save makes many calls"
    assert [status for status, *_ in found] == [9] * (len(found) - 1) + [0]
    steps = [step for _, step, _, _ in found]
    assert steps == sorted(steps)
    assert set(steps) == {10, 20}
    assert all(whole for _, _, whole, _ in found)
    assert all(clean for *_, clean in found), "the next save deletes what a crash left behind"
