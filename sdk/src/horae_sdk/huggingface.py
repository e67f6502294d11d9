"""The Trainer of Hugging Face transformers under Horae.

    callback = HoraeCallback()
    trainer = Trainer(..., callbacks=[callback])
    trainer.train(resume_from_checkpoint=callback.checkpoint)

Not a subclass of TrainerCallback, so that importing this module does not import transformers: the Trainer only calls
methods named `on_...` with its arguments, state and control, of which the attributes used here are part of its
documented interface.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any, Callable

from horae_sdk._run import PREEMPTED, Run, init


class HoraeCallback:
    """Reports steps and loss, has the Trainer save when a checkpoint is due, and leaves when told to.

    Every checkpoint of the Trainer, also one of its own schedule, is copied to where Horae keeps them: the Trainer may
    delete or overwrite its own at any time.
    """

    def __init__(self, run: Run | None = None) -> None:
        self.run = init() if run is None else run
        self._carried_out: object = None  # the last announcement that was
        self._leave = False

    @property
    def checkpoint(self) -> str | None:
        """For `trainer.train(resume_from_checkpoint=...)`."""
        return None if self.run.checkpoint is None else str(self.run.checkpoint)

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        self.run.report(step=state.global_step)
        return control

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        step = state.global_step
        self.run.report(step=step)
        announced = self.run.agree_to_save(step)
        if announced is not None and announced != self._carried_out:
            self._carried_out = announced
            control.should_save = True  # the Trainer saves before it looks whether to stop
            if announced.leave:
                self._leave = control.should_training_stop = True
        return control

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any) -> Any:
        loss = (logs or {}).get("loss")
        if loss is not None:
            self.run.report(loss=loss)
        return control

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        """Publish what the Trainer has saved."""
        _wait_for_all_ranks()
        if self.run.rank == 0:
            folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            shutil.copytree(str(folder), str(self.run.checkpoint_dir), dirs_exist_ok=True)
        self.run.saved(state.global_step)
        return control

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        """Leave instead of going on with what follows training, unless training is complete."""
        if self._leave and state.global_step < state.max_steps:
            raise SystemExit(PREEMPTED)
        return control

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Do nothing in all other events, also in those that later versions of transformers add."""
        if name.startswith("on_"):
            return lambda *_, **__: None
        raise AttributeError(name)


def _wait_for_all_ranks() -> None:
    """Wait until every rank has written its part of a checkpoint, where PyTorch connects several."""
    distributed = getattr(sys.modules.get("torch"), "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        distributed.barrier()
