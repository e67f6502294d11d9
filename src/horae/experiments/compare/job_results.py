"""The results of single jobs, one row per job, policy and seed, as CSV or Parquet for one's own analysis."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path

import polars as pl

from horae.experiments.compare.run import ComparedRun
from horae.model.errors import InputError
from horae.reports.frames import jobs_frame

OPTION = "--jobs-out"
SUFFIXES = (".parquet", ".csv")
TIMES = ("submitted_at", "started_at", "ended_at")


def check_jobs_file(path: Path) -> None:
    """Finds out before hours of work whether the file can be written."""
    if path.suffix not in SUFFIXES:
        raise InputError("is neither CSV nor Parquet", file=str(path), field=OPTION, remedy="name it .csv or .parquet")
    try:
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        problem = f"cannot be written: {error.strerror}"
        raise InputError(problem, file=str(path), field=OPTION, remedy="name a file in a folder of yours") from None
    if path.is_dir():
        raise InputError("is a folder", file=str(path), field=OPTION, remedy="name a file")


class JobResults:
    """Collects the jobs of runs that pass by."""

    def __init__(self, origin: str = "") -> None:
        """`origin` is the date and time of second 0, where the trace has dates."""
        self._origin = origin
        self._frames: dict[tuple[str, int], pl.DataFrame] = {}  # by label and seed

    def collect(self, runs: Iterable[ComparedRun]) -> Iterator[ComparedRun]:
        for run in runs:
            label, seed = run.task.label, run.task.seed
            names = pl.lit(label).alias("policy"), pl.lit(seed).alias("seed")
            # Other seeds draw days of the trace anew, so that theirs are no dates of its calendar.
            frame = _dated(jobs_frame(run.log), self._origin, known=not seed) if self._origin else jobs_frame(run.log)
            self._frames[label, seed] = frame.select(*names, pl.all())
            yield run

    def frame(self, labels: Sequence[str]) -> pl.DataFrame:
        """All jobs, in the order of these labels; that of arrival depends on the number of processes."""
        order = sorted(self._frames, key=lambda key: (labels.index(key[0]), key[1]))
        return pl.concat([self._frames[key] for key in order])

    def write(self, path: Path, labels: Sequence[str]) -> None:
        frame = self.frame(labels)
        try:
            if path.suffix == ".csv":
                frame.write_csv(path)
            else:
                frame.write_parquet(path)
        except OSError as error:
            problem = f"cannot be written: {error.strerror or error}"
            raise InputError(problem, file=str(path), field=OPTION, remedy="make room for it") from None


def _dated(frame: pl.DataFrame, origin: str, *, known: bool) -> pl.DataFrame:
    """The frame with a date beside each time; null where no date is known."""
    begin = pl.lit(datetime.fromisoformat(origin))
    for name in TIMES:
        date = (begin + pl.duration(seconds=pl.col(name).round())).dt.strftime("%Y-%m-%d %H:%M:%S")
        date = date if known else pl.lit(None, dtype=pl.String)
        frame = frame.insert_column(
            frame.columns.index(name) + 1, frame.select(date.alias(name.replace("_at", "_date"))).to_series()
        )
    return frame
