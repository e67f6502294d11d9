"""One pool at run time: its jobs, its policy, its apps, and when it decides next."""

from __future__ import annotations

from itertools import dropwhile
from math import inf, nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from horae.mechanism.turns import BY_PRIORITY, Standing, bounded_debts, in_company, pairs_held, time_targets
from horae.model.arrays import Bools, Floats, Ints
from horae.model.cluster import Cluster
from horae.model.decisions import Decision, Grants, Pairs, Ranking, Shares
from horae.model.errors import PolicyError
from horae.model.job_table import NONE, JobTable
from horae.model.plans import Round, RoundPlan
from horae.model.reasons import Never
from horae.model.setup import Cadence, PoolSpec
from horae.model.shapes import Demand, Shape
from horae.model.status import CANCELLING, HOLDING, PENDING, STOPPING
from horae.model.view import Auctioneer, Policy, View
from horae.scheduler.apps import AppLedger
from horae.scheduler.auctions import Auction
from horae.scheduler.gpu_ledger import GpuLedger
from horae.scheduler.interning import InternedShapes
from horae.scheduler.invariants import check_decision
from horae.scheduler.placer import Placer
from horae.solvers.solution import Unsolved

_NOTHING: Ints = np.empty(0, dtype=np.int64)


class Pool:
    def __init__(self, index: int, spec: PoolSpec, policy: Policy, gpus: Bools) -> None:
        self.index = index
        self.spec = spec
        self.policy = policy
        self.auctioneer = policy if isinstance(policy, Auctioneer) else None
        self.gpus = gpus
        self.open_gpus = gpus  # the subset on which new jobs may start
        self.table = JobTable()
        self._option_shapes: dict[int, tuple[int, ...]] = {}  # by demand
        self.fits: dict[int, tuple[bool, ...]] = {}  # by demand and option: whether it fits the empty pool
        self.unsettled = 0  # jobs that wait or will wait: for a decision, for others to leave, or to leave themselves
        self.capacity: Ints = np.empty(0, dtype=np.int64)  # by accelerator: usable GPUs
        self._shape_accelerator: Ints = _NOTHING
        self._counted = 0  # how often the capacity was counted
        self._sized = (0, 0)  # for how many shapes, and at which count, the accelerators were computed
        self.cpus = self.memory_bytes = inf  # of the usable nodes
        self.dirty = False  # an event occurred since the last decision
        self.wake_at = inf
        self.decided_at = -inf
        self.found_ending: frozenset[int] = frozenset()  # leases that were about to end before the last decision
        self.shared_at = 0.0  # when the shares in force were computed
        self.pair_seconds: Floats = np.empty(0)  # by pair of these shares: time on shared GPUs since then
        self.paired_at = 0.0  # when that was last counted
        self.pair_serials: tuple[Ints, Ints] = (_NOTHING, _NOTHING)
        self.unsolved = ""  # why older shares are still in force, if they are
        self.memory: object = None  # plain data of the last decision, for the next one
        self.retry_at = inf  # when to decide again without an event: a start was postponed, or cells were declined
        self.newcomers: list[int] = []  # serials of jobs submitted since the last decision
        self.newcomers_at = inf  # when waiting jobs may start on free GPUs, if the pool admits jobs between rounds
        self._undo: list[tuple[NDArray[Any], NDArray[Any]]] = []  # columns before the last decision
        self.asked = False  # whether the last decision was a new one of the policy
        self.decision: Decision | None = None
        self.plan = RoundPlan()
        self.round: Round | None = None  # the last
        self._claimants: frozenset[int] | None = None  # of that round; computed on first use
        self.apps = AppLedger()
        self.auction: Auction | None = None

    def count_capacity(self, ledger: GpuLedger) -> None:
        cluster = ledger.cluster
        self._counted += 1
        self.open_gpus = self.gpus & ledger.open
        self.capacity = np.add.reduceat(self.open_gpus, cluster.first_gpu[-1][:-1], dtype=np.int64)
        if self.spec.quota:
            quota = [self.spec.quota.get(name, 0) for name in cluster.accelerators]
            self.capacity = np.minimum(self.capacity, quota)
        self.capacity.flags.writeable = False
        is_open = np.zeros(len(cluster.nodes), dtype=bool)
        is_open[cluster.node_of_gpu[self.open_gpus]] = True
        self.cpus = float(cluster.node_cpus[is_open].sum())
        self.memory_bytes = float(cluster.node_memory_bytes[is_open].sum())

    def accelerator_of(self, shapes: InternedShapes) -> Ints:
        """By shape: its accelerator, NONE where the pool now has too few GPUs of it."""
        if self._sized != (len(shapes.all), self._counted):
            known = shapes.accelerator != NONE
            fits = known & (shapes.gpus <= np.append(self.capacity, 0)[shapes.accelerator])
            self._shape_accelerator = np.where(fits, shapes.accelerator, NONE)
            self._shape_accelerator.flags.writeable = False
            self._sized = (len(shapes.all), self._counted)
        return self._shape_accelerator

    def move(self, spec: PoolSpec, gpus: Bools, ledger: GpuLedger, now: float) -> None:
        """Switches the pool to other GPUs, with the same jobs."""
        self.spec, self.gpus = spec, gpus
        self.fits.clear()
        self._option_shapes.clear()
        if isinstance(self.decision, Shares):
            self.decision = self.decision._replace(evidence=None)  # its prices refer to the former GPU types
        self.count_capacity(ledger)
        self.touch(now)

    def mask_options(self, serial: int, shapes: tuple[int, ...], fits: tuple[bool, ...]) -> None:
        """Masks options that the pool can never hold: a policy must not reserve time for them.

        The shape that a job runs in is kept, even if the pool has changed.
        """
        table, row = self.table, self.table.row[serial]
        held = table.option[row]
        table.shape[row, : len(shapes)] = [
            shape if may or option == held else NONE
            for option, (shape, may) in enumerate(zip(shapes, fits, strict=True))
        ]

    def leaving_epochs(self) -> list[int]:
        """Leases of jobs that were told to leave."""
        count = self.table.count
        status = self.table.status[:count]
        return self.table.epoch[:count][(status == STOPPING) | (status == CANCELLING)].tolist()

    def holding_serials(self) -> list[int]:
        """Jobs without GPUs for which GPUs are held."""
        count = self.table.count
        return self.table.serial[:count][self.table.status[:count] == HOLDING].tolist()

    def quota_left(self, ledger: GpuLedger) -> dict[str, int] | None:
        """By GPU type: how many more GPUs a pool with a quota may use, beyond those it has and those held for it."""
        if not self.spec.quota:
            return None
        left = dict(self.spec.quota)
        table, count = self.table, self.table.count
        epochs = table.epoch[:count]
        leaving = np.isin(ledger.holder, epochs[epochs != NONE])  # counted as long as its own jobs are there
        mine = np.isin(ledger.held_for, table.serial[:count]) & ~leaving
        for name, (start, stop) in ledger.cluster.chain_gpus.items():
            left[name] = left.get(name, 0) - int(np.count_nonzero(mine[start:stop]))
        for row in np.flatnonzero(table.epoch[:count] != NONE).tolist():
            shape = self.table.jobs[row].options[table.option[row]].shape
            left[shape.accelerator] = left.get(shape.accelerator, 0) - int(table.held_gpus[row])
        return left

    def never(self, number: int, demand: Demand, placer: Placer) -> Never | None:
        """Why no job of this demand can ever run here; None if one can. Computed once per demand."""
        if any(self.fitting(number, demand, placer)):
            return None
        shape = demand.shapes[0]
        return Never(self.spec.name, shape, placer.largest(self.gpus, demand, shape))

    def fitting(self, number: int, demand: Demand, placer: Placer) -> tuple[bool, ...]:
        """By option: whether a job of this demand could have it if the pool were empty; computed once per demand."""
        fits = self.fits.get(number)
        if fits is None:
            fits = tuple([self._could_ever_fit(demand, shape, placer) for shape in demand.shapes])
            self.fits[number] = fits
        return fits

    def _could_ever_fit(self, demand: Demand, shape: Shape, placer: Placer) -> bool:
        if self.spec.quota and shape.gpus > self.spec.quota.get(shape.accelerator, 0):
            return False
        return placer.could_ever_fit(self.gpus, demand, shape)

    def option_shapes(self, number: int, demand: Demand, shapes: InternedShapes, placer: Placer) -> tuple[int, ...]:
        """By option of a demand: the number of its shape, NONE where the pool can never hold it."""
        found = self._option_shapes.get(number)
        if found is None:
            fits = self.fitting(number, demand, placer)
            found = tuple(
                [shapes.number(shape) if may else NONE for shape, may in zip(demand.shapes, fits, strict=True)]
            )
            self._option_shapes[number] = found
        return found

    def take_over(self, policy: Policy, now: float) -> None:
        """Switches to a new policy, which begins without the former one's decision and debts."""
        self.policy, self.decision, self.shared_at = policy, None, now
        self.auctioneer = policy if isinstance(policy, Auctioneer) else None
        table, count = self.table, self.table.count
        table.target[:count] = table.deficit[:count] = 0.0
        table.isolated_base[:count] = self.table.view(now).isolated_seconds
        table.isolated_speed[:count] = 0.0
        table.received_mark[:count] = self.table.view(now).received_seconds
        self.touch(now)

    def decide(self, view: View) -> Decision:
        """Calls the policy, unless its shares still stand: then only the round derived from them is new."""
        self.asked = False
        if isinstance(self.decision, Shares):
            if not self.dirty and view.now < self.decision.stands_until:
                return self.decision
            if view.now < self.shared_at + self.spec.rules.reconsider_seconds:
                return self.carried(view)
        try:
            decision = self.policy.decide(view)
        except Unsolved as error:
            self.unsolved = str(error)
            return self._with_newcomers(self.carried(view), view)
        except Exception as error:  # a policy may be third-party code
            raise PolicyError(
                f"policy {self.policy.name!r} failed at {view.now:g} s: {type(error).__name__}: {error}",
                field="policy",
                remedy="fix it; horae.policies.check_policy helps",
            ) from error
        self.unsolved = ""
        self.asked = True
        check_decision(decision, view, self.policy.name)
        self.note(decision, view)
        return decision

    def carried(self, view: View) -> Shares:
        """The shares in force for the present jobs; jobs submitted since have none yet."""
        fraction, pairs = view.jobs.target.copy(), self._pairs_of_now()
        if pairs is not None:
            fraction = np.maximum(fraction - in_company(pairs, pairs.fraction, fraction.shape), 0.0)
        again_at = max(self.shared_at + self.spec.rules.reconsider_seconds, view.now + self.spec.round_seconds)
        return Shares(fraction, again_at, pairs)

    def _with_newcomers(self, shares: Shares, view: View) -> Shares:
        """Allows any shape to jobs without a share; the mechanism finds out what is left for them."""
        accepted = view.jobs.shape >= 0
        nothing = ~(view.jobs.target > 0).any(axis=1, keepdims=True) & accepted
        part = 1 / np.maximum(accepted.sum(axis=1, keepdims=True), 1)
        return shares._replace(fraction=np.where(nothing, part, shares.fraction))

    def _pairs_of_now(self) -> Pairs | None:
        """The pairs in force of which both jobs are still there, by their present rows."""
        if not isinstance(self.decision, Shares) or self.decision.pairs is None:
            return None
        row, pairs = self.table.row, self.decision.pairs
        first = np.array([row.get(serial, NONE) for serial in self.pair_serials[0].tolist()], dtype=np.int64)
        second = np.array([row.get(serial, NONE) for serial in self.pair_serials[1].tolist()], dtype=np.int64)
        both = (first != NONE) & (second != NONE)
        self.pair_serials = (self.pair_serials[0][both], self.pair_serials[1][both])
        self.pair_seconds = self.pair_seconds[both]
        return Pairs(
            first[both], second[both], pairs.first_option[both], pairs.second_option[both], pairs.fraction[both]
        )

    def note(self, decision: Decision, view: View) -> None:
        """Records the consequences of a new decision: targets and debts, and attained service that restarts."""
        table, count = self.table, self.table.count
        self.memory = decision.memory
        self._undo = [(column, column[:count].copy()) for column in self._noted_columns(decision)]
        if isinstance(decision, Shares):
            received = view.jobs.received_seconds
            elapsed = view.now - self.shared_at
            deficit = view.jobs.deficit + view.jobs.target * elapsed - (received - view.jobs.received_mark)
            table.deficit[:count] = bounded_debts(deficit, view.jobs, self.spec.rules, self.spec.round_seconds)
            table.target[:count] = time_targets(decision)
            table.received_mark[:count] = received
            self.shared_at = self.paired_at = view.now
            if decision.pairs is not None:
                self.pair_seconds = np.zeros(len(decision.pairs.first))
                self.pair_serials = view.jobs.serial[decision.pairs.first], view.jobs.serial[decision.pairs.second]
            if decision.isolated_speed is not None:
                table.isolated_base[:count] = view.jobs.isolated_seconds
                table.isolated_mark[:count] = view.jobs.steps_done
                table.isolated_speed[:count] = decision.isolated_speed
        elif isinstance(decision, Ranking) and len(decision.promoted):
            rows = decision.promoted
            table.service_mark[rows] = view.jobs.service_gpu_seconds[rows]

    def _noted_columns(self, decision: Decision) -> tuple[NDArray[Any], ...]:
        table = self.table
        if isinstance(decision, Shares):
            isolated = (table.isolated_base, table.isolated_mark, table.isolated_speed)
            kept = () if decision.isolated_speed is None else isolated
            return (table.deficit, table.target, table.received_mark, *kept)
        return (table.service_mark,) if isinstance(decision, Ranking) and len(decision.promoted) else ()

    def close_apps(self, decision: Decision, plan: RoundPlan) -> None:
        """Bars apps that paid for what they won from winning more for a while; apps that won nothing have not paid."""
        if not isinstance(decision, Grants) or not len(decision.closed_apps):
            return
        serials = [placement.serial for placement in plan.placements] + [serial for serial, _ in plan.extensions]
        served = self.table.app[[self.table.row[serial] for serial in serials]]
        self.apps.close(np.intersect1d(decision.closed_apps, served), decision.closed_until)

    def fold(self, view: View, decision: Decision, *, is_new: bool, unsolved: str) -> None:
        """Takes a decision from a record instead of calling the policy; the resulting state is the same."""
        self.asked, self.unsolved = is_new, unsolved
        if is_new:
            self.note(decision, view)
        elif decision is not self.decision and isinstance(decision, Shares):
            self._pairs_of_now()  # carried-over shares omit pairs of which one job has left

    def reject(self, now: float) -> None:
        """Undoes a decision that could not be carried out; the next one is due a round later."""
        for column, before in self._undo:
            column[: len(before)] = before
        self._undo.clear()
        self.dirty = False
        self.decided_at = now
        boundary = self.spec.boundary_after(now)
        self.wake_at = boundary if self.spec.cadence is Cadence.ROUNDS else now + self.spec.round_seconds

    def standing(self, view: View, decision: Decision) -> Standing:
        """The present state of the shares in force, and the recent time of pairs on shared GPUs."""
        if not isinstance(decision, Shares):
            return BY_PRIORITY
        rules = self.spec.rules
        if decision.pairs is not None:
            self.pair_seconds = self.pair_seconds + pairs_held(decision.pairs, view.jobs) * (view.now - self.paired_at)
            self.paired_at = view.now
        shape_turn = _NOTHING
        if rules.type_order:
            known = {name: turn for turn, name in enumerate(rules.type_order)}
            turn = [known.get(name, len(known)) for name in view.accelerators]  # types not named come last
            shape_turn = np.array(turn)[view.shape_accelerator]
        return Standing(rules, self.spec.round_seconds, view.now - self.shared_at, self.pair_seconds, shape_turn)

    def name_newcomers(self, plan: RoundPlan, cluster: Cluster, now: float) -> Round:
        """Names the jobs that start between two rounds; the last decision stays in force.

        Jobs that go on waiting are left out: there may be thousands, each time that a job arrives.
        """
        started = [serial for placement in plan.placements for serial in placement.bundle]
        rows = np.array([self.table.row[serial] for serial in started], dtype=np.int64)
        job_ids, serials = tuple(self.table.ids[row] for row in rows.tolist()), np.array(started, dtype=np.int64)
        return Round(now, self.spec.name, Ranking(rows), plan, rows, job_ids, serials, cluster, is_new=False)

    def name_round(self, view: View, decision: Decision, plan: RoundPlan, cluster: Cluster) -> Round:
        """Stores a decision and its plan with job ids, while row numbers are still valid."""
        if isinstance(decision, Ranking) and decision.tier is None and decision.allowed is None:
            rows = decision.order
            job_ids = tuple(map(self.table.ids.__getitem__, rows.tolist()))
        else:
            rows, job_ids = np.arange(len(view.jobs)), tuple(self.table.ids)
        serials = view.jobs.serial[rows]
        self.round = Round(
            view.now, self.spec.name, decision, plan, rows, job_ids, serials, cluster, self.asked, self.unsolved
        )
        self._claimants = None
        return self.round

    def claimants(self) -> frozenset[int]:
        """Serials of the jobs to which the last decision allocates anything."""
        if self._claimants is None:
            self._claimants = frozenset() if self.round is None else _claimants(self.round)
        return self._claimants

    def ranked(self) -> list[int]:
        """Serials of live jobs in the order of the last decision; none where it gives shares."""
        round_ = self.round
        if round_ is None or isinstance(round_.decision, Shares):
            return []
        decision = round_.decision
        order = decision.order if isinstance(decision, Ranking) else np.append(decision.row, decision.rest.order)
        serials = dict(zip(round_.rows.tolist(), round_.serials.tolist(), strict=True))
        return [serial for row in dict.fromkeys(order.tolist()) if (serial := serials[row]) in self.table.row]

    def line(self) -> list[int]:
        """Serials of waiting jobs from the head of the queue on, where no job may overtake it; otherwise none."""
        head = self.plan.head
        if head is None:
            return []
        ids, status, row = self.table.ids, self.table.status, self.table.row
        waiting = [serial for serial in self.ranked() if status[row[serial]] == PENDING]
        return list(dropwhile(lambda serial: ids[row[serial]] != head.head, waiting))

    def leave_app(self, serial: int, now: float, *, is_finished: bool) -> None:
        """Removes a job from its app, with all or some of its work done."""
        table, row = self.table, self.table.row[serial]
        job = self.table.jobs[row]
        if is_finished:
            self.apps.leave(job, now)
            return
        left = nan if job.steps_total is None else max(job.steps_total - float(table.steps_base[row]), 0.0)
        mine = np.flatnonzero(table.app[: self.table.count] == table.app[row]).tolist()
        others = [self.table.jobs[other] for other in mine if other != row]
        self.apps.drop(job, now, job.gpus * left / job.options[0].steps_per_second, others)

    def welcome(self, serial: int, now: float) -> None:
        """Registers a job that has arrived."""
        self.newcomers.append(serial)
        self.touch(now)

    def forget_newcomers(self) -> None:
        self.newcomers.clear()
        self.newcomers_at = inf

    # When to decide

    @property
    def is_at_rest(self) -> bool:
        """Whether a decision could change nothing: if no job waits, all jobs keep their GPUs.

        Shares, elastic sizes and leases are the exceptions: a lease that expires is renewed, so that a job that arrives
        later finds it renewed. So are decisions with memory: a policy that keeps books must see what happens.
        """
        if self.unsettled:
            return False
        if isinstance(self.decision, Grants):
            return not (self.decision.resizes or self.decision.leases)
        return isinstance(self.decision, Ranking) and self.decision.memory is None

    def touch(self, now: float) -> None:
        """Schedules a decision after an event that may change it."""
        self.dirty = True
        if self.is_at_rest:
            self.wake_at = inf
            return
        if self.spec.admits_between_rounds and self.spec.cadence is Cadence.ROUNDS:
            self.newcomers_at = min(self.newcomers_at, now)
        self.look_at(now)

    def look_at(self, at: float) -> None:
        """Schedules a decision at this time, or at the next boundary of a round."""
        if self.spec.cadence is not Cadence.EVENTS:
            at = self.spec.boundary(at)
            if at <= self.decided_at:
                at = self.spec.boundary_after(self.decided_at)
        self.wake_at = min(self.wake_at, at)

    def settle(self, now: float, stands_until: float, contest_at: float) -> None:
        """Sets the next wake-up after a decision: the time when the decision might change without an event."""
        self.forget_newcomers()
        self.dirty = False
        self.decided_at = now
        if self.spec.cadence is Cadence.EVENTS:
            # Priorities that change continuously are evaluated once per round, or jobs would take turns as often as
            # their
            # protection allows; where the order is stable, a contestable job is contested at once.
            next_look_at = now + self.spec.round_seconds
            self.wake_at = next_look_at if stands_until <= next_look_at else min(stands_until, contest_at)
        else:
            # A moment early is harmless; a round late is not.
            changes_at = self.spec.boundary(min(stands_until, contest_at) - 1e-6 - self.spec.lateness(now))
            self.wake_at = max(changes_at, self.spec.boundary_after(now))
        if self.is_at_rest:
            self.wake_at = inf
        if self.retry_at <= now:
            self.wake_at = now  # cells that a job has declined go to the next job at once
        elif self.retry_at < inf:
            self.look_at(self.retry_at)
        self.retry_at = inf


def _claimants(round_: Round) -> frozenset[int]:
    """Serials of the jobs to which a round's decision allocates anything."""
    if isinstance(round_.decision, Ranking) and len(round_.rows) != len(round_.decision.order):
        return frozenset(round_.serials[round_.decision.order].tolist())  # the round has all rows in their order
    if not isinstance(round_.decision, Shares):
        return frozenset(round_.serials.tolist())
    return frozenset(round_.serials[(time_targets(round_.decision) > 0).any(axis=1)].tolist())
