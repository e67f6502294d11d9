"""Evaluates surveys of the engine, and adopts leases that are found running and were not known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import inf

from horae.cells.binding import CellBinding
from horae.model.arrays import Ints
from horae.model.cluster import Gpu
from horae.model.commands import Stop
from horae.model.events import (
    Ending,
    Event,
    JobEnded,
    JobPhase,
    JobProgressed,
    JobStarted,
    LeaseAdopted,
    Phase,
    Running,
    Surveyed,
)
from horae.model.job_table import NONE
from horae.model.jobs import Job
from horae.model.notices import AdoptionRefused, Notice, UnknownRun
from horae.model.plans import Placement
from horae.model.reasons import Won
from horae.model.shapes import Shape
from horae.model.status import Signal
from horae.scheduler import accounting
from horae.scheduler.gpu_ledger import GpuLedger
from horae.scheduler.hardware import Hardware
from horae.scheduler.holds import Holds
from horae.scheduler.jobs import JobRegistry, loan_of
from horae.scheduler.leases import Leases
from horae.scheduler.loans import Loans
from horae.scheduler.pool import Pool
from horae.scheduler.pool_set import PoolSet
from horae.scheduler.unacknowledged import Outbox


class Surveys:
    def __init__(
        self,
        pools: PoolSet,
        ledger: GpuLedger,
        jobs: JobRegistry,
        leases: Leases,
        holds: Holds,
        loans: Loans,
        hardware: Hardware,
        outbox: Outbox,
        tell: Callable[[Notice], None],
    ) -> None:
        self._pools = pools
        self._ledger = ledger
        self._jobs = jobs
        self._leases = leases
        self._holds = holds
        self._loans = loans
        self._hardware = hardware
        self._outbox = outbox
        self._tell = tell
        # Nothing is started before a survey of that time or later has reported what runs; inf: not requested yet.
        self.awaited_since = -inf
        self.asked_at = -inf  # when such a survey was last requested
        self.seen_at: dict[tuple[str, int], float] = {}  # by run that should have ended: when it was last seen

    @property
    def awaited(self) -> bool:
        return self.awaited_since > -inf

    def facts(self, event: Surveyed) -> list[Event]:
        """The survey's facts about known leases, as events. It says nothing about leases that began after it."""
        running = {(run.job_id, run.epoch): run for run in event.running}
        found: list[Event] = []
        rows = [(pool, row) for pool in self._pools for _, row in sorted(pool.table.row.items())]
        for pool, row in rows:
            epoch, job_id = int(pool.table.epoch[row]), pool.table.ids[row]
            if epoch == NONE:
                continue
            run = running.get((job_id, epoch))
            if run is not None:
                found += _seen(run, event.at)
            elif pool.table.confirmed_at[row] < event.at:
                found.append(JobEnded(event.at, job_id, epoch, Ending.LOST, 0.0, "not found by a survey"))
        return found

    def expect(self, event: Surveyed, now: float) -> None:
        """Blocks the GPUs of unknown runs, before anything else in the survey releases GPUs."""
        for run in event.running:
            if not self._is_news(run, event.at) or (run.job_id, run.epoch) in self._ledger.squatters:
                continue
            self._ledger.set_squatter((run.job_id, run.epoch), run.gpus)
            self._hardware.refresh(run.gpus, now)
            if run.job_id in self._jobs.live:  # it runs: it must not be started on the GPUs held for it
                serial = self._jobs.live[run.job_id][1]
                self._holds.release(serial, now)
                self._holds.release(loan_of(serial), now)

    def _is_news(self, run: Running, at: float) -> bool:
        """Whether a run is unknown: it was never known, or the survey was taken after the job last left its GPUs."""
        if self._jobs.current(run.job_id, run.epoch) is not None:
            return False
        return self._leases.is_unknown(run.epoch) or at > self._left_at(run.job_id)

    def settle(self, event: Surveyed, now: float) -> None:
        """Resolves unknown runs: those of pending jobs are adopted, others are stopped or left alone."""
        self.awaited_since = -inf if event.at >= self.awaited_since else self.awaited_since
        running = {(run.job_id, run.epoch) for run in event.running}
        for key in [key for key in dict.fromkeys((*self.seen_at, *self._ledger.squatters)) if key not in running]:
            if event.at > self.seen_at.get(key, -inf):  # an older survey says nothing about it
                self.gone(key, now)
        by_epoch: dict[int, list[Running]] = {}
        for run in sorted(event.running, key=lambda run: (run.epoch, run.job_id)):
            if self._is_news(run, event.at):
                by_epoch.setdefault(run.epoch, []).append(run)
        for epoch, runs in by_epoch.items():
            if self._leases.is_unknown(epoch) and all(self._is_waiting(run.job_id) for run in runs):
                steps = tuple(run.steps for run in runs)
                job_ids = tuple(run.job_id for run in runs)
                found = LeaseAdopted(event.at, epoch, job_ids, runs[0].gpus, steps, cells=runs[0].cells)
                self.adopt(found, now)
            else:
                for run in runs:
                    self._leave_alone(run, event.at, now)

    def _is_waiting(self, job_id: str) -> bool:
        return job_id in self._jobs.live and self._jobs.on_gpus(job_id) is None

    def _left_at(self, job_id: str) -> float:
        """When a job last left its GPUs, as far as known: a survey taken before that is outdated."""
        found = self._jobs.live.get(job_id)
        if found is not None:
            pool, serial = found
            return float(pool.table.queued_at[pool.table.row[serial]])
        if job_id in self._jobs.suspended:
            return float(self._jobs.suspended[job_id].carried["queued_at"][0])
        ended = self._jobs.ended.get(job_id)
        return -inf if ended is None else ended.at

    def _leave_alone(self, run: Running, at: float, now: float) -> None:
        """Blocks the GPUs of a run that should have ended, or is not ours, until it is gone."""
        key = (run.job_id, run.epoch)
        if key not in self.seen_at:
            self._tell(UnknownRun(run.job_id, run.epoch, run.gpus))
        if key not in self._ledger.squatters:
            self._ledger.set_squatter(key, run.gpus)
            self._hardware.refresh(run.gpus, now)
        self.seen_at[key] = max(at, self.seen_at.get(key, -inf))
        unacknowledged = self._outbox.unacknowledged
        if self._jobs.is_known(run.job_id) and not unacknowledged.is_open(Stop, run.epoch, run.job_id):
            self._outbox.send(Stop(run.epoch, run.job_id, self._grace_seconds(run.job_id)), now)

    def _grace_seconds(self, job_id: str) -> float:
        if job_id in self._jobs.suspended:
            return self._jobs.suspended[job_id].job.grace_seconds
        found = self._jobs.live.get(job_id)
        return 0.0 if found is None else self._jobs.job(found[1]).grace_seconds

    def gone(self, run: tuple[str, int], now: float) -> None:
        """Unblocks the GPUs of a run that should have ended and now has."""
        gpus = self._ledger.squatters.get(run, ())
        self.seen_at.pop(run, None)
        self._outbox.unacknowledged.ended(run[1], run[0])
        self._ledger.set_squatter(run, ())
        self._hardware.refresh(gpus, now)
        if run[0] in self._jobs.live:  # it may start now, and its pools need not be those of the GPUs
            pool, serial = self._jobs.live[run[0]]
            pool.touch(now)
            self._jobs.lent.get(loan_of(serial), pool).touch(now)

    # Adoption

    def adopt(self, event: LeaseAdopted, now: float) -> None:
        """Adopts a lease that runs and was not known, on the GPUs that it has."""
        known = [self._jobs.current(job_id, event.epoch) is not None for job_id in event.job_ids]
        if all(known) or not self._leases.is_unknown(event.epoch):
            return  # a duplicate, or a lease that has ended
        problem = self._problem(event)
        if not problem:
            self._release_holds(event, now)
        placement = None if problem else self._placement(event, now)
        if placement is None:
            self._tell(AdoptionRefused(event.epoch, event.job_ids, problem or "no job accepts these GPUs"))
            for job_id in event.job_ids:
                self._leave_alone(Running(job_id, event.epoch, event.gpus, 0.0), event.at, now)
            return
        pool = self._jobs.where(placement.serial)
        for job_id in event.job_ids:
            self.gone((job_id, event.epoch), now)
        for serial in placement.bundle:
            self._loans.drop(serial, now)
        self._leases.note(event.epoch)
        self._leases.occupy(pool, event.epoch, placement, now)
        for serial, steps in zip(placement.bundle, event.steps, strict=True):
            self._jobs.signal(pool, serial, Signal.ACKNOWLEDGE, now)
            accounting.confirm(pool, serial, event.at, now)
            accounting.report(pool, serial, steps, event.at)
        if pool.spec.reserves and len(placement.bundle) == 1 and not self._ledger.is_in_cells(placement.gpus):
            self._loans.release_cells(pool, placement.serial, now)
        self._hardware.refresh(event.gpus, now)

    def _release_holds(self, event: LeaseAdopted, now: float) -> None:
        """Releases holds of these jobs or on these GPUs; this precedes the binding of cells, which it could undo."""
        _, held_for = self._ledger.on(event.gpus)
        mine = [self._jobs.live[job_id][1] for job_id in event.job_ids]
        for serial in (*held_for.tolist(), *mine, *map(loan_of, mine)):
            self._holds.release(serial, now)
        if self._pools.has_quotas:  # the hold counted on a part of the quota that this lease uses
            self._holds.release_all(now)

    def _problem(self, event: LeaseAdopted) -> str:
        """Why a lease cannot be adopted; empty if it can."""
        if not event.gpus or len(set(event.gpus)) < len(event.gpus):
            return "its GPUs are none, or named twice"
        missing = [str(gpu) for gpu in event.gpus if not self._ledger.real_cluster.has(gpu)]
        if missing:
            return f"there is no GPU {', '.join(missing)}"
        pools = set()
        for job_id in event.job_ids:
            found = self._jobs.live.get(job_id)
            if found is None:
                return f"job {job_id} was not submitted, or has ended"
            running = self._jobs.on_gpus(job_id)
            if running is not None:
                return f"job {job_id} has lease {self._jobs.epoch(*running)}"
            pools.add(found[0].index)
        if len(pools) > 1 or len(event.job_ids) not in (1, 2):
            return "its jobs are not of one pool"
        epochs = self._ledger.on(event.gpus)[0].tolist()
        squatting = self._ledger.squatters.items()
        epochs += [
            epoch for (_, epoch), gpus in squatting if epoch != event.epoch and not set(gpus).isdisjoint(event.gpus)
        ]
        return f"lease {epochs[0]} is on its GPUs" if epochs else ""

    def _placement(self, event: LeaseAdopted, now: float) -> Placement | None:
        layout, found = self._pools.layout, [self._jobs.live[job_id] for job_id in event.job_ids]
        pool = found[0][0]
        shape = _obtained(self._ledger, event.gpus)
        options = [_option(pool, serial, shape, self._ledger.cluster.levels) for _, serial in found]
        if shape is None or NONE in options:
            return None
        real = layout.real.positions(event.gpus)
        positions = real if layout.tenancy is None else layout.tenancy.wide_of(real)
        if layout.tenancy is not None and pool.spec.reserves and event.guaranteed:
            job = pool.table.jobs[pool.table.row[found[0][1]]]
            adopt = partial(layout.tenancy.adopt, pool.spec.name, real, job.pinned, (), job.members, event.cells)
            own = adopt()
            if own is None and self._outrank(pool, job, layout.tenancy, adopt, now):
                own = adopt()
            positions = positions if own is None else own
        partner = (found[1][1], options[1]) if len(found) > 1 else (NONE, NONE)
        return Placement(found[0][1], options[0], shape, positions, (), 0.0, Won(0), *partner)

    def _outrank(
        self, pool: Pool, job: Job, tenancy: CellBinding, adopt: Callable[[], Ints | None], now: float
    ) -> bool:
        """Downgrades jobs of lower priority, which keep running, if the tenant's cells can cover this job instead."""
        table = pool.table
        lower = [
            (table.jobs[row].priority, -int(table.epoch[row]), serial)
            for serial, row in table.row.items()
            if table.epoch[row] != NONE and table.jobs[row].priority < job.priority
        ]
        chosen = [serial for *_, serial in sorted(lower) if self._loans.can_downgrade(pool, serial)]
        gpus = {serial: self._leases.by_epoch[self._jobs.epoch(pool, serial)].gpus for serial in chosen}

        def suffices(serials: Sequence[int]) -> bool:
            with tenancy.trial():
                for serial in serials:
                    tenancy.claim(gpus[serial], claimed=False)
                return adopt() is not None

        if not chosen or not suffices(chosen):
            return False
        for serial in reversed(chosen):  # those of the highest priority regain their guarantee first
            rest = [each for each in chosen if each != serial]
            chosen = rest if suffices(rest) else chosen
        for serial in chosen:
            self._loans.downgrade(pool, serial, now)
        return True


def _seen(run: Running, at: float) -> list[Event]:
    """A survey that finds a run confirms its start, or the phase of its start, and its progress."""
    if run.phase in (Phase.RUNNING, Phase.SAVING):
        return [JobStarted(at, run.job_id, run.epoch), JobProgressed(at, run.job_id, run.epoch, run.steps)]
    return [JobPhase(at, run.job_id, run.epoch, run.phase)]


def _obtained(ledger: GpuLedger, gpus: Sequence[Gpu]) -> Shape | None:
    """The shape of a set of GPUs; None where they are of several types."""
    cluster = ledger.real_cluster
    positions = cluster.positions(gpus)
    for level, cell in zip(cluster.levels, cluster.cell_of_gpu, strict=True):
        if len(set(cell[positions].tolist())) == 1:
            return Shape(cluster.nodes[int(cluster.node_of_gpu[positions[0]])].accelerator, len(gpus), level)
    return None


def _option(pool: Pool, serial: int, shape: Shape | None, levels: Sequence[str]) -> int:
    """The first option of a job under which it may run like that; a looser placement than it accepts counts, too."""
    if shape is None:
        return NONE
    options = pool.table.jobs[pool.table.row[serial]].options
    alike = [index for index, option in enumerate(options) if option.shape[:2] == shape[:2]]
    for index in alike:
        level = options[index].shape.level
        if level in levels and levels.index(shape.level) <= levels.index(level):
            return index
    return alike[0] if alike else NONE
