"""What the engine tells a job: environment variables, read once."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, Mapping, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Environment:
    job: str | None  # the name of the job; None outside of Horae
    epoch: int  # which start of the job this is
    url: str | None  # of the service; None where it cannot be reached
    token: str | None = field(repr=False)
    lease_ends_at: float | None  # Unix time until which the job is not preempted
    steps_done: float  # over all earlier epochs, up to the checkpoint that this epoch resumes from
    steps_total: float | None
    checkpoint_dir: Path | None  # a folder of this epoch only
    checkpoint: Path | None  # the newest published checkpoint of an earlier epoch
    gpu_type: str | None
    rank: int
    world_size: int

    @classmethod
    def read(cls, variables: Mapping[str, str]) -> Environment:
        """The values of these variables; those of Horae count only if HORAE_JOB is among them."""
        ours = variables if variables.get("HORAE_JOB") else {}
        return cls(
            job=_value(ours, "HORAE_JOB", str),
            epoch=_value(ours, "HORAE_EPOCH", int) or 0,
            url=_value(ours, "HORAE_URL", str),
            token=_value(ours, "HORAE_TOKEN", str),
            lease_ends_at=_value(ours, "HORAE_LEASE_ENDS_AT", float),
            steps_done=_value(ours, "HORAE_STEPS_DONE", float) or 0.0,
            steps_total=_value(ours, "HORAE_STEPS_TOTAL", float),
            checkpoint_dir=_value(ours, "HORAE_CHECKPOINT_DIR", Path),
            checkpoint=_value(ours, "HORAE_CHECKPOINT", Path),
            gpu_type=_value(ours, "HORAE_GPU_TYPE", str),
            rank=_value(variables, "RANK", int) or 0,
            world_size=_value(variables, "WORLD_SIZE", int) or 1,
        )


def _value(variables: Mapping[str, str], name: str, kind: Callable[[str], T]) -> T | None:
    """The value of a variable; None where it is absent or empty."""
    text = variables.get(name)
    if not text:
        return None
    try:
        return kind(text)
    except ValueError:
        raise ValueError(f"the environment variable {name} is {text!r}, which is not a number") from None
