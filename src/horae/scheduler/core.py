"""`Scheduler.handle(event)`: events change the state, a `Tick` makes the pools that are due decide."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from math import inf, isfinite
from types import MappingProxyType
from typing import Any

from horae.mechanism.admit import admit
from horae.mechanism.claims import claim, next_contest_at, rotates, tries_everything
from horae.mechanism.pass_input import PassInput
from horae.model.arrays import Bools, Ints
from horae.model.commands import CallForBids, Survey
from horae.model.decisions import Decision
from horae.model.effects import Effects
from horae.model.errors import BrokenInvariant, HoraeError
from horae.model.events import (
    BidGiven,
    ClusterChanged,
    CurveRevised,
    Event,
    GpuChanged,
    JobCancelled,
    JobHeld,
    JobReleased,
    JobResumable,
    JobSubmitted,
    NodeChanged,
    PolicyChanged,
    SchedulerRestarted,
    SpeedRevised,
    TenantsChanged,
    Tick,
)
from horae.model.explanations import Explanation, Prospect
from horae.model.job_table import ALL, NONE
from horae.model.jobs import Job
from horae.model.notices import DecisionRejected, Notice
from horae.model.plans import Reaction, Round, RoundPlan
from horae.model.reasons import AwaitsDecision, BehindHead, NoRoom, Reason, Suspended
from horae.model.serialization import Plain
from horae.model.setup import Setup
from horae.model.speeds import SharingTable
from horae.model.status import Status
from horae.model.view import View
from horae.scheduler.administration import Administration
from horae.scheduler.auctions import Auctions, hear, heard
from horae.scheduler.dry_run import prospect_of
from horae.scheduler.dump import dump, present_setup, restore, setup_of
from horae.scheduler.engine_events import EngineEvents
from horae.scheduler.execution import Execution
from horae.scheduler.explain import Scene, blocker, explain
from horae.scheduler.gpu_ledger import GpuLedger
from horae.scheduler.hardware import Hardware
from horae.scheduler.holds import Holds
from horae.scheduler.intake import Intake
from horae.scheduler.interning import Interned, KeptSpeeds
from horae.scheduler.invariants import check_plan
from horae.scheduler.jobs import JobRegistry, home_of, loan_of
from horae.scheduler.leases import Leases
from horae.scheduler.loans import Loans
from horae.scheduler.newcomers import longest_waiting_first
from horae.scheduler.placer import Placer
from horae.scheduler.pool import Pool
from horae.scheduler.pool_set import PoolSet
from horae.scheduler.recorded_decisions import Record, Rejected
from horae.scheduler.surveys import Surveys
from horae.scheduler.unacknowledged import Outbox, Unacknowledged
from horae.scheduler.user_requests import UserRequests

_NOTHING = Reaction((), ())
_NO_EPOCHS: frozenset[int] = frozenset()
_NOT_HELD: Mapping[int, Ints] = MappingProxyType({})


class Scheduler:
    """The pure core: `handle(event)` applies a fact or decides, and answers with commands for the engine."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.now = 0.0
        self.ignored = 0  # events that were late, duplicated or about an unknown job
        self.pools = PoolSet(setup)
        layout = self.pools.layout
        self.ledger = GpuLedger(layout.real, layout.cluster, layout.tenancy)
        self.placer = Placer(self.ledger)
        self.interned = Interned(layout.cluster, setup.tenant_weights)
        sharing = SharingTable(setup.sharing)
        self._kept = KeptSpeeds(sharing)
        self.jobs = JobRegistry()
        self.unacknowledged = Unacknowledged(setup.acknowledge_seconds, setup.survey_seconds)
        self._outbox = Outbox(self.unacknowledged)
        self.leases = Leases(self.ledger, self.jobs, self._outbox, self.interned.demands, sharing, setup.incarnation)
        self.holds = Holds(self.ledger, self.jobs, self.leases, setup.acknowledge_seconds)
        self.auctions = Auctions(setup.bid_seconds)
        self._rounds: list[Round] = []
        self._notices: list[Notice] = []
        self._recorded: Record | None = None
        tell = self._notices.append
        self._intake = Intake(self.interned, self.placer, self.jobs)
        self.loans = Loans(self.pools, self.ledger, self.jobs, self.leases, self.holds, self._intake)
        self._execution = Execution(self.ledger, self.jobs, self.leases, self.holds, self.loans)
        self.hardware = Hardware(self.pools, self.ledger, self.jobs, self.leases, self.holds)
        self.administration = Administration(
            setup,
            self.pools,
            self.ledger,
            self.placer,
            self.interned,
            self.jobs,
            self.leases,
            self.holds,
            self._intake,
            self.loans,
            self.hardware,
            tell,
        )
        self.surveys = Surveys(
            self.pools, self.ledger, self.jobs, self.leases, self.holds, self.loans, self.hardware, self._outbox, tell
        )
        self.hardware.absent(setup.absent_nodes)
        self.pools.count_capacity(self.ledger)
        self._facts = EngineEvents(
            self.pools,
            self.jobs,
            self.leases,
            self.holds,
            self.loans,
            self.surveys,
            self.administration,
            self.unacknowledged,
            tell,
            start_seconds=setup.start_seconds,
            acknowledge_seconds=setup.acknowledge_seconds,
        )
        requests = UserRequests(
            self.pools, self.jobs, self.leases, self.holds, self.loans, self._intake, self.administration
        )
        # Handlers by event. They return whether it took effect, or was late, duplicated or about an unknown job.
        self._handlers: dict[type, Callable[[Any, float], bool]] = {
            JobSubmitted: requests.on_submitted,
            JobCancelled: requests.on_cancelled,
            JobHeld: requests.on_held,
            JobReleased: requests.on_released,
            JobResumable: requests.on_resumable,
            **self._facts.handlers,
            NodeChanged: self.hardware.on_node,
            GpuChanged: self.hardware.on_gpu,
            ClusterChanged: self.administration.on_cluster,
            PolicyChanged: self.administration.on_policy,
            TenantsChanged: self.administration.on_tenants,
            BidGiven: self._on_bid,
            CurveRevised: self._on_curve,
            SpeedRevised: self._on_speed,
            SchedulerRestarted: self._on_restarted,
            Tick: self._on_tick,
        }

    def handle(self, event: Event, effects: Effects | None = None) -> Reaction:
        """Applies an event. With its recorded effects, decisions are taken from the record and no policy is called."""
        if effects is not None and effects.is_void:
            return _NOTHING
        self.now = max(self.now, event.at)
        if effects is not None:
            self._recorded = Record(effects, self.ledger)
        if not self._handlers[type(event)](event, self.now):
            self.ignored += 1
        self._recorded = None
        if self.pools.has_cells:
            self.pools.recount(self.ledger, self.now)
        if not self._outbox.commands and not self._rounds and not self._notices:
            return _NOTHING
        reaction = Reaction(self._outbox.take(), tuple(self._rounds), tuple(self._notices))
        self._rounds.clear()
        self._notices.clear()
        return reaction

    @property
    def next_wakeup_at(self) -> float:
        """When the scheduler needs a `Tick`, if no event comes before."""
        if self.surveys.awaited:
            return self.surveys.asked_at + self.setup.acknowledge_seconds
        wake_at = self.unacknowledged.due_at(busy=self._is_busy())
        for pool in self.pools.all:
            wake_at = min(wake_at, pool.wake_at, pool.newcomers_at)
        if self.holds.by_serial:
            wake_at = min(wake_at, self.holds.expires_at)
        if self.leases.starting:
            wake_at = min(wake_at, *self.leases.starting.values())
        return wake_at

    # The round: view, decide, claim, admit, place, plan

    def _decide_round(self, pool: Pool) -> None:
        if pool.apps.is_sparse:
            pool.apps.compact(pool.table)
        usable = self.ledger.usable(pool.open_gpus)
        self.placer.spreads = pool.spec.spreads
        view = self._view(pool, usable)  # 1
        pool.retry_at = self.jobs.next_retry_at(pool)
        try:
            decision, plan = self._plan(pool, view, usable)
        except Rejected as rejected:
            self._notices.append(rejected.notice)
            pool.reject(self.now)  # it keeps its last plan, and the next round tries again
            return
        pool.close_apps(decision, plan)
        pool.found_ending = self.holds.awaited()
        self._rounds.append(pool.name_round(view, decision, plan, self.ledger.cluster))
        self._execution.carry_out(pool, plan, self.now)  # 6
        pool.decision, pool.plan = decision, plan
        if pool.spec.reserves:
            self.loans.offer(pool, self.now)
        settled = pool.table.view(self.now)
        stands_until = self.now if rotates(decision, settled) else decision.stands_until
        if (tries_everything(decision) or pool.unsolved) and not settled.on_gpus.any():
            stands_until = inf  # no job is there that could leave: only an event can unblock the jobs that wait
        contest_at = self.now if stands_until <= self.now else next_contest_at(decision, settled)
        pool.settle(self.now, stands_until, contest_at)
        if self.jobs.lent and not pool.spec.reserves:
            self.loans.offer_next(plan, self.now)

    def _plan(self, pool: Pool, view: View, usable: Bools) -> tuple[Decision, RoundPlan]:
        if self._recorded is not None:
            return self._recorded.fold(pool, view)
        try:
            decision = pool.decide(view)  # 2
            claims = claim(decision, view.jobs, pool.standing(view, decision))  # 3
            plan = admit(claims, view.jobs, self._ground(pool, usable), self.placer)  # 4 and 5
            check_plan(plan, pool, self.pools.layout, self.ledger, usable)
            if self.jobs.lent:
                plan = self.loans.without_declined(pool, plan)
        except HoraeError as error:
            is_bug = isinstance(error, BrokenInvariant)
            raise Rejected(DecisionRejected(pool.spec.name, pool.policy.name, str(error), is_bug)) from error
        return decision, plan

    def _ground(self, pool: Pool, usable: Bools) -> PassInput:
        ledger = self.ledger
        held = self.holds.contested(pool) if self.holds.by_serial else _NOT_HELD
        leaving = self.leases.leaving(pool) if self.unacknowledged.open else _NO_EPOCHS
        barred = None
        if ledger.squatters or self.jobs.retry_at:
            barred = self.jobs.barred(pool, {job_id for job_id, _ in ledger.squatters}, self.now)
        # By position, in the order of its fields, as the view: one is made for every round.
        return PassInput(
            pool.spec.name, usable, ledger.holder, ledger.loads(), self.interned.demands.all, pool.table.ids,
            pool.quota_left(ledger), leaving, held, barred,
        )  # fmt: skip

    def _admit_newcomers(self, pool: Pool) -> None:
        """Starts waiting jobs on free GPUs between two rounds; nothing else changes."""
        usable = self.ledger.usable(pool.open_gpus)
        self.placer.spreads = pool.spec.spreads
        if self._recorded is not None:
            if self._recorded.rejects(pool):
                pool.forget_newcomers()
                return
            plan = self._recorded.newcomers(pool)
        else:
            view = self._view(pool, usable)
            decision = longest_waiting_first(view)
            plan = admit(claim(decision, view.jobs), view.jobs, self._ground(pool, usable), self.placer)
            check_plan(plan, pool, self.pools.layout, self.ledger, usable)
        pool.forget_newcomers()
        self._rounds.append(pool.name_newcomers(plan, self.ledger.cluster, self.now))
        self._execution.carry_out(pool, plan, self.now)
        if self.jobs.lent and not pool.spec.reserves:
            self.loans.offer_next(plan, self.now)

    def _view(self, pool: Pool, usable: Bools) -> View:
        interned, cluster, spec, apps = self.interned, self.ledger.cluster, pool.spec, pool.apps
        shapes, tenants, models = interned.shapes, interned.tenants, interned.models
        # By position, in the order of its fields: a view is made for every round, and names would take longer.
        return View(
            self.now, self.setup.seed, spec.round_seconds,
            cluster.accelerators, pool.capacity, pool.cpus, pool.memory_bytes,
            shapes.all, pool.accelerator_of(shapes), shapes.gpus, shapes.level, cluster.levels,
            pool.table.view(self.now), tenants.all, tenants.weight,
            len(apps), apps.seconds(self.now), partial(self.placer.fit, usable),
            cluster.price_per_hour, models.all, self._kept.columns(models.all, shapes.all),
            apps.columns(), *heard(pool), partial(self.placer.trial, usable, pool.table.epoch), pool.memory,
        )  # fmt: skip

    # Estimates

    def _on_speed(self, event: SpeedRevised, now: float) -> bool:
        """Gives live jobs of the model the new speed estimate; jobs submitted later carry their own."""
        if not (event.steps_per_second > 0 and isfinite(event.steps_per_second)):
            return False
        model, shape = self.interned.models.find(event.model), self.interned.shapes.find(event.shape)
        tenant = self.interned.tenants.find(event.tenant) if event.tenant else ALL
        for pool in self.pools:
            if pool.table.revise(model, shape, event.steps_per_second, now, tenant):
                pool.touch(now)
        return True

    def _on_curve(self, event: CurveRevised, now: float) -> bool:
        found = self.jobs.live.get(event.job_id)
        if found is None or not event.curve.is_sound:
            return False
        pool, serial = found
        table, row = pool.table, pool.table.row[serial]
        table.curve_rate[row], table.curve_start[row], table.curve_floor[row] = event.curve
        pool.touch(now)
        return True

    def _on_bid(self, event: BidGiven, now: float) -> bool:
        return hear(self.pools.all, event, now)

    # Time

    def _on_restarted(self, event: SchedulerRestarted, now: float) -> bool:
        if event.incarnation <= self.setup.incarnation:
            return False
        self.begin_incarnation(event.incarnation)
        return True

    def _on_tick(self, event: Tick, now: float) -> bool:
        self.jobs.forget_ended(self.now - self.setup.retention_seconds)
        if self.jobs.retry_at:
            self.jobs.retry_at = {serial: at for serial, at in self.jobs.retry_at.items() if at > self.now}
        if self.surveys.awaited:
            self._ask_what_runs()
            return True  # not known: nothing may start
        if self.holds.by_serial:
            self.holds.release_expired(self.now)
        if self.unacknowledged.open or self.unacknowledged.survey_at <= self.now:
            self._outbox.commands.extend(self.unacknowledged.overdue(self.now, busy=self._is_busy()))
        if self.leases.starting:
            self._facts.stop_overdue(self.now)
        for pool in self.pools.in_turn:
            if self.pools.has_cells:
                self.pools.recount(self.ledger, self.now)
            if pool.wake_at <= self.now:
                if not self._awaits_bids(pool):
                    self._decide_round(pool)
                    pool.auction = None
            elif pool.newcomers_at <= self.now:
                self._admit_newcomers(pool)
        return True

    def _is_busy(self) -> bool:
        """Whether anything runs, so that the engine is surveyed from time to time."""
        return bool(self.leases.by_epoch or self.ledger.squatters)

    def _ask_what_runs(self) -> None:
        """Asks for a survey, unless one was requested recently. One taken before the first request is outdated.

        Earlier commands are not sent again meanwhile: their leases may have ended.
        """
        surveys = self.surveys
        surveys.awaited_since = min(surveys.awaited_since, self.now)
        if surveys.asked_at + self.setup.acknowledge_seconds <= self.now:
            self._outbox.commands.append(Survey())
            surveys.asked_at = self.now

    def _awaits_bids(self, pool: Pool) -> bool:
        """Whether bids are still awaited; agents that have not been called yet are called now."""
        if pool.auction is None:
            call = self._call_for_bids(pool)
            self._outbox.commands.extend([] if call is None else [call])
        if pool.auction is None or pool.auction.is_over(self.now):
            return False
        pool.wake_at = pool.auction.closes_at
        return True

    def _call_for_bids(self, pool: Pool) -> CallForBids | None:
        if self._recorded is not None:
            return self.auctions.reopen(pool, self._recorded.call(pool))
        return self.auctions.open(pool, lambda: self._view(pool, self.ledger.usable(pool.open_gpus)), self.now)

    # Dump and restore

    def dump(self) -> Plain:
        """Everything that later reactions depend on, as plain data."""
        return dump(self)

    def present_setup(self) -> Setup:
        """The setup with all changes made by operators since the start."""
        return present_setup(self)

    @classmethod
    def restore(cls, plain: Plain, incarnation: int | None = None) -> Scheduler:
        """A scheduler that reacts to every later event exactly as the dumped one.

        With a new incarnation the cluster may have changed since: the scheduler starts nothing before a survey has
        reported what runs, and its epochs differ from all that were used.
        """
        scheduler = cls(setup_of(plain))
        restore(scheduler, plain)
        if incarnation is not None:
            scheduler.begin_incarnation(incarnation)
        return scheduler

    def wait_for_bids(self, seconds: float) -> None:
        """Sets how long auctions wait for agents from now on; those that are open keep their end."""
        self.setup = replace(self.setup, bid_seconds=seconds)
        self.auctions.bid_seconds = seconds

    def begin_incarnation(self, incarnation: int) -> None:
        self.setup = replace(self.setup, incarnation=incarnation)
        self.leases.begin_incarnation(incarnation)
        self.holds.release_all(self.now)  # otherwise a job could start when those before it have left
        self.surveys.awaited_since, self.surveys.asked_at = inf, -inf

    @property
    def awaits_survey(self) -> bool:
        """Whether a survey was requested that has not arrived yet."""
        return self.surveys.awaited

    # Queries

    def status(self, job_id: str) -> Status | None:
        """The status of a job; None for one that is unknown."""
        return self.jobs.status_of(job_id)

    def why(self, job_id: str) -> Reason | None:
        """Why a job waits or was rejected; None for one that runs, has ended or is unknown."""
        if job_id in self.jobs.refused:
            return self.jobs.refused[job_id]
        if job_id in self.jobs.suspended:
            return Suspended()
        if job_id not in self.jobs.live or self.jobs.on_gpus(job_id) is not None:
            return None
        pool, serial = self.jobs.live[job_id]
        hold = self.holds.by_serial.get(serial)
        awaited = sorted(hold.awaited) if hold else []
        leaving = [self.jobs.id_of[each] for epoch in awaited for each in self.leases.by_epoch[epoch].bundle]
        reason = blocker(pool, serial, self.now, tuple(leaving))
        return self._why_behind(pool, serial, reason) if isinstance(reason, BehindHead) else reason

    def _why_behind(self, pool: Pool, serial: int, reason: BehindHead) -> Reason:
        """Why a job in line waits, if those before it may run on borrowed GPUs: the first that runs nowhere counts."""
        first = self.loans.first_waiting(pool)
        if first is None:
            return AwaitsDecision(max(pool.wake_at, self.now))
        if self.jobs.id_of[first] == reason.head:
            return reason
        loan = loan_of(first)
        found = blocker(self.jobs.lent[loan], loan, self.now, ()) if loan in self.jobs.lent else None
        if first == serial and found is not None:
            return found
        shape = pool.table.jobs[pool.table.row[first]].options[0].shape
        free = self.ledger.usable(pool.open_gpus) & (self.ledger.holder == NONE)
        no_room = NoRoom(pool.spec.name, shape, self.placer.count(free, shape))
        if isinstance(found, NoRoom):
            no_room = found
        return no_room if first == serial else BehindHead(self.jobs.id_of[first], no_room)

    def rho(self, job_id: str) -> float | None:
        """The finish-time fairness of a live job's app if it ended now; None: not defined yet."""
        if job_id not in self.jobs.live:
            return None
        pool, serial = self.jobs.live[job_id]
        running, number = self.jobs.on_gpus(job_id) or (pool, serial)
        received = float(running.table.view(self.now).service_gpu_seconds[running.table.row[number]])
        app = pool.table.jobs[pool.table.row[serial]].app_id
        return pool.apps.rho(app, self.now, int(pool.capacity.sum()), received)

    def prospect(self, job: Job) -> Prospect:
        """Whether this job would start now, and at which other jobs' cost; the state does not change."""
        return prospect_of(Scheduler.restore(self.dump()), job)

    def explain(self, job_id: str) -> Explanation | None:
        """What blocks a job, which jobs hold its GPUs, and what would unblock it; None for an unknown job."""
        if job_id in self.jobs.live:
            borrowing = {home_of(loan) for loan in self.jobs.lent if self.loans.is_running(home_of(loan))}
            scene = Scene(
                self.now, self.ledger, self.placer, self.leases.by_epoch, self.interned.demands.all, borrowing
            )
            return explain(*(self.jobs.on_gpus(job_id) or self.jobs.live[job_id]), self.why(job_id), scene)
        status = self.jobs.status_of(job_id)
        return None if status is None else Explanation(job_id, self.now, status, self.why(job_id))
