"""Pollux's workloads (Qiao et al., OSDI'21). They have no run times: those follow from the profiles beside them.

A job trains at its own batch size, on its own gang, to the end: its run time is the number of iterations that this
takes (of the last epoch that was profiled at that batch size) times the seconds of a step. A gang is packed on nodes of
four GPUs, full nodes first, and each GPU has an equal share of the batch. Where that is larger than any share that was
profiled, gradients are accumulated over equal parts that are not, and only the last part is synchronised.

Between what was profiled, iterations are linear in batch size, both as logarithms, because training takes nearly the
same number of examples at any; seconds of a step are linear in the share of a GPU, and in the GPUs of the gang. Outside
of it nothing is extrapolated: the row is a fault. Only a share below the least takes the seconds of the least, which
are rather too many.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from math import exp, inf, log
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from horae.model.errors import InputError, JobError
from horae.traces.formats import TraceFormat
from horae.traces.readers import published_table
from horae.traces.readers.raw_table import LINE, RawTable, Where, read_raw
from horae.traces.trace import FAULTS_LISTED_MAX, Fault, Trace

NAME, DURATION = "name", "duration_s"  # the second is the column that is added
KIND = ("model", "num_gpu", "batch_size")  # these determine a job's run time
PROFILES = ("profile_placements", "profile_scalability", "profile_validation")
GPUS_PER_NODE = 4

Step = tuple[float, float]  # its seconds, and those of them that synchronise

PLACEMENTS = ("model", "placement", "local_bsz", "step_time", "sync_time")
SCALABILITY = ("model", "num_nodes", "num_replicas", "local_bsz", "step_time", "sync_time")
_PLACEMENT = re.compile("[1-9]+")
_WHOLE = re.compile("[0-9]{1,15}")  # no more digits than a float holds exactly


@dataclass(frozen=True)
class GangProfile:
    """The measurements of one model on one number of GPUs, by a GPU's share of the batch, smallest first."""

    shares: NDArray[np.float64]
    step_seconds: NDArray[np.float64]
    sync_seconds: NDArray[np.float64]  # of a step: spared for all but one part of an accumulated batch

    def seconds(self, share: float) -> float:
        parts = int(np.ceil(share / self.shares[-1]))
        step = float(np.interp(share / parts, self.shares, self.step_seconds))
        sync = float(np.interp(share / parts, self.shares, self.sync_seconds))
        return parts * step - (parts - 1) * sync


@dataclass(frozen=True)
class Profile:
    """One model: the length of its training, and its speed."""

    iterations: Mapping[int, int]  # by batch size
    gangs: Mapping[int, GangProfile]  # by GPUs

    def run_seconds(self, gpus: int, batch_size: int) -> float:
        _check_within("num_gpu", gpus, self.gangs)
        _check_within("batch_size", batch_size, self.iterations)
        if batch_size < gpus:
            raise JobError(f"{batch_size} leaves some of {gpus} GPUs idle", field="batch_size", remedy="use fewer GPUs")
        return self.iterations_at(batch_size) * self._step_seconds(gpus, batch_size / gpus)

    def iterations_at(self, batch_size: int) -> float:
        if batch_size in self.iterations:
            return self.iterations[batch_size]
        sizes = sorted(self.iterations)
        known = [log(self.iterations[size]) for size in sizes]
        return exp(float(np.interp(log(batch_size), np.log(sizes), known)))

    def _step_seconds(self, gpus: int, share: float) -> float:
        """The step time of a gang that was not profiled, between its neighbours with the same share per GPU."""
        below = max(size for size in self.gangs if size <= gpus)
        above = min(size for size in self.gangs if size >= gpus)
        seconds = [self.gangs[size].seconds(share) for size in (below, above)]
        return float(np.interp(gpus, (below, above), seconds)) if below < above else seconds[0]


def read(path: Path, where: Where | None = None) -> Trace:
    """Reads a workload as a trace; one that already has run times is an ordinary table."""
    raw = read_raw(path).where(where)
    if DURATION in raw.columns:
        return published_table.read_table(raw)
    published_table.check_chosen(raw)
    return published_table.read_table(with_durations(raw), {"id": NAME})


def with_durations(raw: RawTable) -> RawTable:
    """The same table with run times; rows without one are faults."""
    raw.require(NAME, *KIND)
    kinds = raw.cells.select(KIND).unique(maintain_order=True)  # far fewer than jobs
    profiles = read_profiles(raw.path)
    derived = {kind: _derive(profiles, *kind) for kind in kinds.iter_rows()}
    found = [(line, derived[tuple(kind)]) for line, *kind in raw.cells.select(LINE, *KIND).iter_rows()]
    faults = [Fault(line, why.field, why.problem, why.remedy) for line, why in found if isinstance(why, JobError)]
    seconds = [None if isinstance(value, JobError) else repr(value) for _, value in found]
    cells = raw.cells.with_columns(pl.Series(DURATION, seconds, pl.String)).filter(pl.col(DURATION).is_not_null())
    listed = (*raw.faults, *faults[:FAULTS_LISTED_MAX])
    return replace(raw, cells=cells, faults=listed, fault_count=raw.fault_count + len(faults))


def read_profiles(workloads: Path) -> Mapping[str, Profile]:
    """Profiles by model, from the files beside the workloads."""
    placements, scalability, validation = (beside(workloads, name) for name in PROFILES)
    steps: dict[str, dict[int, dict[int, Step]]] = {}
    for row, gpus in chain(_packed_placements(placements), _packed_scalability(scalability)):
        shares = steps.setdefault(row.text("model"), {}).setdefault(gpus, {})
        share = row.count("local_bsz")
        if share in shares:
            raise row.wrong("local_bsz", f"keep one row of it with {gpus} GPUs, for it is there twice")
        shares[share] = step_of(row)
    iterations = _read_iterations(validation)
    return {
        model: Profile(iterations[model], {gpus: gang_of(shares) for gpus, shares in steps[model].items()})
        for model in sorted(iterations.keys() & steps.keys())
    }


def _derive(
    profiles: Mapping[str, Profile], model: str | None, num_gpu: str | None, batch_size: str | None
) -> float | JobError:
    """The seconds of a run, or what is wrong with the row."""
    try:
        if model is None or model not in profiles:
            known = ", ".join(profiles) or "none"
            raise JobError(
                f"{_is(model)}, which has no profile", field="model", remedy=f"use a profiled model: {known}"
            )
        return profiles[model].run_seconds(_count("num_gpu", num_gpu), _count("batch_size", batch_size))
    except JobError as error:
        return error


def _count(field: str, text: str | None) -> int:
    count = _whole(text)
    if count < 1:
        raise JobError(_is(text), field=field, remedy="give a whole number of at least 1")
    return count


def _whole(text: str | None) -> int:
    """The integer in a text; -1 if there is none."""
    return int(text) if text is not None and _WHOLE.fullmatch(text) else -1


def _is(text: str | None) -> str:
    return "is empty" if text is None else f"is {text!r}"


def _check_within(field: str, value: int, profiled: Mapping[int, object]) -> None:
    least, most = min(profiled), max(profiled)
    if not least <= value <= most:
        remedy = f"give a number from {least} to {most}, or profile it"
        raise JobError(f"is {value}, outside of what was profiled", field=field, remedy=remedy)


def gang_of(steps: Mapping[int, Step]) -> GangProfile:
    shares = sorted(steps)
    seconds = np.array([steps[share] for share in shares])
    return GangProfile(np.array(shares, float), seconds[:, 0], seconds[:, 1])


# Reading profiles; an error in them concerns all jobs of a model, so it is raised


class _Row(NamedTuple):
    path: Path
    line: int
    cells: Mapping[str, str | None]

    def wrong(self, field: str, remedy: str) -> InputError:
        return InputError(_is(self.cells[field]), file=str(self.path), line=self.line, field=field, remedy=remedy)

    def text(self, field: str) -> str:
        text = self.cells[field]
        if text is None:
            raise self.wrong(field, "give a name")
        return text

    def count(self, field: str, least: int = 1) -> int:
        count = _whole(self.cells[field])
        if count < least:
            raise self.wrong(field, f"give a whole number of at least {least}")
        return count

    def number(self, field: str) -> float:
        value = self._float(field)
        if not 0 <= value < inf:
            raise self.wrong(field, "give a number of at least 0")
        return value

    def _float(self, field: str) -> float:
        try:
            return float(self.cells[field] or "")
        except ValueError:
            return -1.0

    def seconds(self, field: str, most: float = inf) -> float:
        value = self._float(field)
        if not 0 <= value <= most or value == inf:
            limit = "of at least 0" if most == inf else f"from 0 to {most:g}, which is the step"
            raise self.wrong(field, f"give seconds {limit}")
        return value


def beside(workloads: Path, name: str) -> Path:
    for path in (workloads.with_name(f"{name}.csv.gz"), workloads.with_name(f"{name}.csv")):
        if path.is_file():
            return path
    raise JobError(
        "pollux workloads have no run times",
        file=str(workloads),
        field=DURATION,
        remedy=f"they are derived from profiles: put {name}.csv.gz into the same folder",
    )


def rows_of(path: Path, *columns: str) -> Iterator[_Row]:
    raw = read_raw(path)
    raw.require(*columns)
    if raw.faults:
        raise raw.faults[0].error(str(path))
    for cells in raw.cells.select(LINE, *columns).iter_rows(named=True):
        yield _Row(path, cells[LINE], cells)


def _packed_placements(path: Path) -> Iterator[tuple[_Row, int]]:
    """The rows of packed gangs, with their GPUs."""
    for row in rows_of(path, *PLACEMENTS):
        nodes = placement_of(row)
        if nodes == packed(sum(nodes)):
            yield row, sum(nodes)


def placement_of(row: _Row) -> tuple[int, ...]:
    placement = row.text("placement")
    if not _PLACEMENT.fullmatch(placement):
        raise row.wrong("placement", "give one digit a node, its GPUs: 44 for 8 GPUs on two nodes")
    return tuple(sorted(map(int, placement), reverse=True))


def _packed_scalability(path: Path) -> Iterator[tuple[_Row, int]]:
    for row in rows_of(path, *SCALABILITY):
        gpus = row.count("num_replicas")
        if row.count("num_nodes") == -(-gpus // GPUS_PER_NODE):
            yield row, gpus


def packed(gpus: int) -> tuple[int, ...]:
    """GPUs on each node, full nodes first."""
    full, rest = divmod(gpus, GPUS_PER_NODE)
    return (GPUS_PER_NODE,) * full + (rest,) * (rest > 0)


def step_of(row: _Row) -> Step:
    step_seconds = row.seconds("step_time")
    if step_seconds == 0:
        raise row.wrong("step_time", "give seconds above 0")
    return step_seconds, row.seconds("sync_time", most=step_seconds)


def _read_iterations(path: Path) -> Mapping[str, Mapping[int, int]]:
    """By model and batch size: the iterations to the end of the last epoch, for epochs in any order."""
    last: dict[str, dict[int, tuple[int, int]]] = {}
    for row in rows_of(path, "model", "batch_size", "epoch", "iteration"):
        of_model = last.setdefault(row.text("model"), {})
        batch_size, reached = row.count("batch_size"), (row.count("epoch", least=0), row.count("iteration"))
        of_model[batch_size] = max(reached, of_model.get(batch_size, reached))
    return {model: {size: iterations for size, (_, iterations) in of_model.items()} for model, of_model in last.items()}


FORMAT = TraceFormat(
    read, ",", (frozenset({"set", "workload", "num_gpu", "batch_size"}),), "workloads of Pollux, beside its profiles"
)
