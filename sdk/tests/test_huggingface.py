"""The callback, called as the Trainer of transformers calls its callbacks."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import horae_sdk as horae
import pytest
from horae_sdk.huggingface import HoraeCallback
from sdk_jobs import Job

EVENTS = ("on_init_end", "on_epoch_begin", "on_step_begin", "on_pre_optimizer_step", "on_evaluate", "on_epoch_end")


class Trainer:
    """The loop of the Trainer: the order of its events, and what it does with its control."""

    def __init__(self, callback: Any, output: Path, max_steps: int = 6, rank: int = 0) -> None:
        self.callback, self.rank = callback, rank
        self.args = SimpleNamespace(output_dir=str(output))
        self.state = SimpleNamespace(global_step=0, max_steps=max_steps)
        self.control = SimpleNamespace(should_save=False, should_training_stop=False)
        self.saves: list[int] = []

    def event(self, name: str, **more: Any) -> None:
        result = getattr(self.callback, name)(self.args, self.state, self.control, model=None, **more)
        self.control = self.control if result is None else result

    def begin(self, resume_from_checkpoint: str | None = None) -> None:
        if resume_from_checkpoint:
            self.state.global_step = int((Path(resume_from_checkpoint) / "state").read_text())
        for name in EVENTS:
            self.event(name)
        self.event("on_train_begin")

    def step(self) -> bool:
        """Do one step; return whether training goes on."""
        self.state.global_step += 1
        self.event("on_step_end")
        self.event("on_log", logs={"loss": 1.0 / self.state.global_step})
        if self.control.should_save:
            self.save()
        return not self.control.should_training_stop and self.state.global_step < self.state.max_steps

    def save(self) -> None:
        self.control.should_save = False
        folder = Path(self.args.output_dir) / f"checkpoint-{self.state.global_step}"
        folder.mkdir(parents=True, exist_ok=True)
        if self.rank == 0:
            (folder / "state").write_text(str(self.state.global_step))
        self.saves.append(self.state.global_step)
        self.event("on_save")

    def train(self, resume_from_checkpoint: str | None = None, before: Callable[[int], None] = lambda _: None) -> None:
        self.begin(resume_from_checkpoint)
        before(self.state.global_step + 1)
        while self.step():
            before(self.state.global_step + 1)
        self.event("on_train_end")


def terminate_before(wanted: int) -> Callable[[int], None]:
    return lambda step: os.kill(os.getpid(), signal.SIGTERM) if step == wanted else None


def test_a_whole_training_ends_by_itself(in_job: Job) -> None:
    trainer = Trainer(HoraeCallback(), in_job.folder / "output")
    trainer.train()
    assert trainer.state.global_step == 6
    assert not trainer.saves


def test_a_training_that_is_asked_to_leave_saves_and_leaves_and_the_next_one_resumes(in_job: Job) -> None:
    trainer = Trainer(HoraeCallback(), in_job.folder / "output")
    with pytest.raises(SystemExit) as left:
        trainer.train(before=terminate_before(3))
    assert left.value.code == horae.PREEMPTED
    assert trainer.saves == [3]
    assert in_job.saved["steps"] == 3

    callback = HoraeCallback()
    again = Trainer(callback, in_job.folder / "output")
    again.train(resume_from_checkpoint=callback.checkpoint)
    assert again.state.global_step == 6


def test_checkpoints_of_the_trainers_own_schedule_are_published_too(in_job: Job) -> None:
    callback = HoraeCallback()
    trainer = Trainer(callback, in_job.folder / "output")
    trainer.begin()
    trainer.step()
    trainer.save()
    (in_job.folder / "output/checkpoint-1/state").unlink()  # as the Trainer deletes old ones
    assert callback.checkpoint
    assert (Path(callback.checkpoint) / "state").read_text() == "1"


def test_a_checkpoint_is_saved_when_its_time_has_come(in_job: Job) -> None:
    trainer = Trainer(HoraeCallback(horae.init(every=0)), in_job.folder / "output", max_steps=3)
    trainer.train()
    assert trainer.saves == [1, 2, 3]
    assert in_job.saved["steps"] == 3


def test_a_signal_during_a_save_is_carried_out_after_the_next_step(in_job: Job) -> None:
    trainer = Trainer(HoraeCallback(), in_job.folder / "output")
    trainer.begin()
    trainer.step()
    os.kill(os.getpid(), signal.SIGTERM)
    trainer.save()
    assert not trainer.step()
    assert in_job.saved["steps"] == 2
    with pytest.raises(SystemExit):
        trainer.event("on_train_end")


def test_a_complete_training_does_not_leave_as_preempted(in_job: Job) -> None:
    trainer = Trainer(HoraeCallback(), in_job.folder / "output")
    trainer.train(before=terminate_before(6))
    assert in_job.saved["steps"] == 6


@pytest.mark.parametrize("first", [0, 1], ids=["rank 0 finishes each step first", "rank 1 finishes each step first"])
def test_all_ranks_save_and_stop_after_the_same_step(in_job: Job, monkeypatch: pytest.MonkeyPatch, first: int) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    trainers = []
    for rank in (0, 1):
        monkeypatch.setenv("RANK", str(rank))
        trainers.append(Trainer(HoraeCallback(), in_job.folder / "output", rank=rank))
        trainers[-1].begin()
    os.kill(os.getpid(), signal.SIGTERM)
    order = [trainers[first], trainers[1 - first]]
    goes_on = [[trainer.step() for trainer in order] for _ in range(2)]
    assert goes_on == [[True, True], [False, False]]
    assert [trainer.saves for trainer in trainers] == [[2], [2]]
    assert in_job.saved["steps"] == 2


def test_ranks_wait_for_each_other_before_a_checkpoint_is_published(
    in_job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[bool] = []
    distributed = SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: True,
        barrier=lambda: waits.append((in_job.checkpoint_dir / "saved.json").exists()),
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(distributed=distributed))
    trainer = Trainer(HoraeCallback(), in_job.folder / "output")
    trainer.begin()
    trainer.step()
    trainer.save()
    assert waits == [False]


def test_an_attribute_that_is_no_event_is_an_error() -> None:
    with pytest.raises(AttributeError):
        HoraeCallback().nothing  # noqa: B018
