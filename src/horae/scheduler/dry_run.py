"""Dry run: whether a job would start now, and at which other jobs' cost, found on a copy of the scheduler."""

from __future__ import annotations

from typing import TYPE_CHECKING

from horae.model.cluster import Gpu
from horae.model.commands import Start, Stop
from horae.model.events import JobSubmitted, Tick
from horae.model.explanations import Prospect
from horae.model.jobs import Job
from horae.model.plans import Lease, Placement
from horae.model.status import ON_GPUS
from horae.scheduler.jobs import is_loan, loan_of

if TYPE_CHECKING:
    from horae.scheduler.core import Scheduler


def prospect_of(copy: Scheduler, job: Job) -> Prospect:
    """What the next round would do with a job; consumes the copy.

    A known job is examined with its recorded properties.
    """
    if copy.status(job.id) is None:
        copy.handle(JobSubmitted(copy.now, job))
    found = copy.jobs.live.get(job.id)
    if found is None:
        return Prospect(starts=False, reason=copy.why(job.id))
    borrowed = set(copy.jobs.lent)
    for pool in (found[0], copy.pools.open_pool):  # a job without room in its cells may borrow
        if pool is not None:
            pool.wake_at = copy.now
    commands = copy.handle(Tick(copy.now)).commands
    victims = [each.job_id for each in commands if isinstance(each, Stop) and each.job_id != job.id]
    downgraded = [copy.jobs.id_of[loan] for loan in copy.jobs.lent if loan not in borrowed and _has_lease(copy, loan)]
    start = next((each for each in commands if isinstance(each, Start) and job.id in each.job_ids), None)
    return Prospect(
        starts=start is not None or copy.status(job.id) in ON_GPUS,
        guaranteed=_is_guaranteed(copy, job.id),
        gpus=_gpus(copy, job.id),
        shape=None if start is None else start.shape,
        victims=tuple(dict.fromkeys(victims)),
        downgraded=tuple(each for each in downgraded if each != job.id),
        reason=copy.why(job.id),
    )


def _has_lease(copy: Scheduler, loan: int) -> bool:
    return copy.jobs.status(copy.jobs.lent[loan], loan) in ON_GPUS


def _held(copy: Scheduler, job_id: str) -> Lease | Placement | None:
    """The GPUs that a job has, or that are held for it."""
    running = copy.jobs.on_gpus(job_id)
    if running is not None:
        return copy.leases.by_epoch[copy.jobs.epoch(*running)]
    found = copy.jobs.live.get(job_id)
    if found is None:
        return None
    for serial in (found[1], loan_of(found[1])):
        if serial in copy.holds.by_serial:
            return copy.holds.by_serial[serial].placement
    return None


def _gpus(copy: Scheduler, job_id: str) -> tuple[Gpu, ...]:
    held = _held(copy, job_id)
    return () if held is None else copy.ledger.names(held.gpus)


def _is_guaranteed(copy: Scheduler, job_id: str) -> bool:
    held = _held(copy, job_id)
    if held is None or is_loan(held.bundle[0]):
        return False
    tenancy = copy.ledger.tenancy
    return tenancy is None or bool(tenancy.is_virtual[held.gpus[0]])
