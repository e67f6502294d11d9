"""SIGTERM means "save and leave", in real processes."""

from __future__ import annotations

import signal
import threading
from pathlib import Path

import horae_sdk as horae
import pytest
from sdk_jobs import Job, finish

# A line on standard input lets the script do one step: signals come exactly where the test wants them.
SCRIPT = """
    import itertools, signal, sys
    import horae_sdk as horae

    def wait(word):
        print(word)
        sys.stdin.readline()

    run = horae.init()
    for step, batch in run.steps(itertools.count(), total=5):
        wait(f"in {step}")
        if run.checkpoint_due():
            (run.checkpoint_dir / "state").write_text(str(step))
            run.saved(step)
            wait(f"saved {step}")
    wait("end")
"""


class Script:
    """A running script that stops at each word that it prints."""

    def __init__(self, job: Job, script: str = SCRIPT) -> None:
        self.process = job.start(script)

    def reaches(self, *words: str) -> Script:
        for number, word in enumerate(words):
            if number:
                self.goes_on()
            assert self.process.stdout
            line = self.process.stdout.readline().strip()
            assert line == word, (line, word, self.errors() if not line else "")
        return self

    def goes_on(self) -> Script:
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self

    def gets(self, number: signal.Signals) -> Script:
        self.process.send_signal(number)
        return self

    def ends(self) -> int:
        self.goes_on()
        return finish(self.process)[0]

    def errors(self) -> str:
        assert self.process.stderr
        return self.process.stderr.read()


def test_a_run_that_is_not_asked_to_leave_ends_by_itself(job: Job) -> None:
    script = Script(job).reaches("in 1", "in 2", "in 3", "in 4", "in 5", "end")
    assert script.ends() == 0
    assert not (job.checkpoint_dir / "saved.json").exists()


def test_it_saves_in_the_same_step_and_leaves_before_the_next(job: Job) -> None:
    script = Script(job).reaches("in 1", "in 2").gets(signal.SIGTERM).goes_on().reaches("saved 2")
    assert script.ends() == horae.PREEMPTED
    assert job.saved["steps"] == 2


def test_it_leaves_at_once_where_the_signal_comes_after_a_save(job: Job) -> None:
    script = Script(job, SCRIPT.replace("init()", "init(every=0)")).reaches("in 1", "saved 1").gets(signal.SIGTERM)
    assert script.ends() == horae.PREEMPTED
    assert job.saved["steps"] == 1


def test_it_leaves_at_once_where_the_signal_comes_before_the_first_step(job: Job) -> None:
    script = Script(job, SCRIPT.replace("for step", "wait('begin')\n    for step")).reaches("begin")
    assert script.gets(signal.SIGTERM).ends() == horae.PREEMPTED
    assert not (job.checkpoint_dir / "saved.json").exists()


def test_a_run_that_is_complete_ends_by_itself_although_it_was_asked_to_leave(job: Job) -> None:
    script = Script(job).reaches("in 1", "in 2", "in 3", "in 4", "in 5").gets(signal.SIGTERM).goes_on()
    assert script.reaches("saved 5", "end").ends() == 0
    assert job.saved["steps"] == 5


def test_it_goes_on_until_it_has_saved(job: Job) -> None:
    script = Script(job, SCRIPT.replace("run.checkpoint_due()", "step == 4 and run.checkpoint_due()"))
    script.reaches("in 1").gets(signal.SIGTERM).goes_on().reaches("in 2", "in 3", "in 4", "saved 4")
    assert script.ends() == horae.PREEMPTED


def test_a_second_signal_ends_the_process(job: Job) -> None:
    script = Script(job).reaches("in 1").gets(signal.SIGTERM).goes_on().reaches("saved 1")
    script.gets(signal.SIGTERM)
    assert finish(script.process)[0] == -signal.SIGTERM
    assert job.saved["steps"] == 1


@pytest.mark.parametrize("previous", ["print('cleaned')", "(print('cleaned'), sys.exit(3))"])
def test_a_previous_handler_is_called_but_cannot_prevent_the_save(job: Job, previous: str) -> None:
    handler = f"signal.signal(signal.SIGTERM, lambda *_: {previous})\n    run = horae.init()"
    script = Script(job, SCRIPT.replace("run = horae.init()", handler)).reaches("in 1")
    script.gets(signal.SIGTERM).goes_on().reaches("cleaned").reaches("saved 1")
    assert script.ends() == horae.PREEMPTED


def test_processes_that_the_script_forks_end_as_usual(job: Job) -> None:
    status, output, errors = finish(
        job.start("""
            import multiprocessing, time
            import horae_sdk as horae

            run = horae.init()
            child = multiprocessing.get_context("fork").Process(target=time.sleep, args=(10_000,))
            child.start()
            child.terminate()
            child.join()
            print(child.exitcode, run.leaving)
        """)
    )
    assert (status, output) == (0, "-15 False\n"), errors


def test_off_the_main_thread_no_handler_is_installed() -> None:
    before = signal.getsignal(signal.SIGTERM)
    runs: list[horae.Run] = []
    thread = threading.Thread(target=lambda: runs.append(horae.init()))
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGTERM) == before
    assert not runs[0].leaving
    runs[0].close()


def test_a_closed_run_gives_the_signal_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    run = horae.init()
    assert signal.getsignal(signal.SIGTERM) != before
    run.close()
    assert signal.getsignal(signal.SIGTERM) == before


RANKS = """
    import itertools, os, time
    from pathlib import Path
    import horae_sdk as horae

    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])

    def synchronise(step):  # as an all-reduce: no rank finishes a step before every rank began it
        Path(f"step-{step}-{rank}").touch()
        while not all(Path(f"step-{step}-{other}").exists() for other in range(world)):
            time.sleep(0.002)

    run = horae.init()
    print("ready")
    for step, batch in run.steps(itertools.count()):
        synchronise(step)
        if run.checkpoint_due():
            assert rank == 0
            (run.checkpoint_dir / "state").write_text(str(step))
            run.saved(step)
"""


@pytest.mark.parametrize("signalled", [(1, 0), (0,)], ids=str)
def test_every_rank_leaves_after_the_same_step(job: Job, signalled: tuple[int, ...]) -> None:
    ranks = [Job(job.folder, variables={"RANK": str(rank), "WORLD_SIZE": "2"}).start(RANKS) for rank in range(2)]
    for process in ranks:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
    for rank in signalled:
        ranks[rank].send_signal(signal.SIGTERM)
    assert [finish(process)[0] for process in ranks] == [horae.PREEMPTED] * 2
    last = job.saved["steps"]
    assert (job.folder / f"step-{last + 1}-0").exists(), "one step later every rank knows"
    assert not list(job.folder.glob(f"step-{last + 2}-*"))


def test_other_ranks_write_nothing_that_is_kept(in_job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    run = horae.init(every=0)
    assert not run.checkpoint_due()
    (run.checkpoint_dir / "state").write_text("x")
    run.saved(3)
    assert run.checkpoint is None
    assert not list(in_job.checkpoint_dir.iterdir())


def test_what_ranks_of_an_earlier_run_announced_is_forgotten(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints/ranks.json").write_text('{"step": 1, "leave": true}')
    run = horae.init()
    assert [step for step, _ in run.steps(range(3))] == [1, 2, 3]
