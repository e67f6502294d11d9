"""Steps 4 and 5: one pass of trial placement over the claims, best first.

Whether a claim fits is known only by placing it. A GPU is free, taken, or held by a lease that yields to claims that
precede its own. The pass examines only claims that want something they do not have; a holder that no claim displaces
keeps its GPUs without being examined. What a claim may use only shrinks during a pass (GPUs released by a victim had
already yielded to every earlier claim), so once a demand has failed, all later claims of that demand fail with it.
These rules are written in `pass_rules`; this module runs the pass by them, for claims and clusters of any kind: pairs,
quotas, CPUs and memory.

Under a preemptive ranking without quotas, GPUs that a job is already releasing yield to claims that precede its own,
and do so before any other job is preempted; GPUs held for a job yield to claims that precede its own, as if it ran
there.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from horae.mechanism.pass_input import PassInput, PlacementSearch
from horae.mechanism.pass_rules import (
    STAYS,
    TAKEN,
    UNCLAIMED,
    Sides,
    kept_by,
    leavers,
    new_pass,
    next_claim,
    refuse,
    standings,
    wanting,
    win,
)
from horae.model.arrays import Bools, Ints
from horae.model.job_table import NONE, JobColumns
from horae.model.plans import (
    Claims,
    Contest,
    Departure,
    Placement,
    Riders,
    RoundPlan,
    Spot,
    Turns,
)
from horae.model.reasons import BehindHead, Moved, NoRoom, Preempted, Won
from horae.model.shapes import Demand, Shape

_NO_STANDINGS: Ints = np.empty(0, dtype=np.int64)
_HOLDS = 1 << 62  # holds are distinguished from leases by numbers above every epoch
_NO_PAIRS: Ints = np.empty(0, dtype=np.int64)
_NO_JOBS: Bools = np.empty(0, dtype=bool)


def admit(claims: Claims, jobs: JobColumns, ground: PassInput, placer: PlacementSearch) -> RoundPlan:
    if claims.option is not None:
        placer.hasten()  # shares make jobs move every round
    if claims.is_by_turns and not jobs.bundles and ground.quota_left is None and ground.barred is None:
        waiting, standing = _survey(claims, jobs, ground)
        if not np.count_nonzero(waiting):
            return RoundPlan()
        return _at_once(claims, jobs, ground, placer, waiting, standing) or _Pass(
            claims, jobs, ground, placer, standing, waiting
        ).run(())
    changes_leases = claims.preemptive or claims.lease_seconds is not None
    present = _present(claims, jobs) if changes_leases else _ALL_STAY
    waiting = _wanting(claims, jobs, present)
    barred = None if ground.barred is None else _barred(claims, ground.barred)
    if barred is not None:
        waiting &= ~barred
    extensions = _extensions(claims, jobs, present)
    if not np.count_nonzero(waiting):
        return RoundPlan(extensions=extensions)
    standing = _NO_STANDINGS
    if claims.preemptive:
        standing = standings(present.contestable, jobs.epoch, present.keep, ground.holder, ground.usable)
    found = _Pass(claims, jobs, ground, placer, standing, waiting)
    if barred is not None:
        found.state.refused[barred] = True
    if claims.preemptive and claims.option is None and ground.quota_left is None:
        found.contest_waiting()
    return found.run(extensions)


def _survey(claims: Claims, jobs: JobColumns, ground: PassInput) -> tuple[Bools, Ints]:
    """The claims that want something new, and the standings: compiled, for the usual case of shares."""
    assert claims.option is not None
    from horae.mechanism.turns_kernel import survey  # noqa: PLC0415  numba is slow to import

    may = jobs.contestable
    held = np.where(jobs.running, jobs.option, NONE)
    where = jobs.epoch.copy(), ground.holder, ground.usable.copy()
    return survey(claims.row, claims.option, _moves(claims), held, jobs.pending | may, may, *where)


def _moves(claims: Claims) -> Bools:
    return np.zeros(len(claims.row), dtype=bool) if claims.moves is None else claims.moves


def _at_once(
    claims: Claims, jobs: JobColumns, ground: PassInput, placer: PlacementSearch, waiting: Bools, standing: Ints
) -> RoundPlan | None:
    """Run the whole pass as one compiled search; None where the placer has none."""
    assert claims.option is not None
    free = ground.usable & (ground.holder == NONE)
    turns = Turns(
        claims.row, claims.option, waiting, jobs.demand.copy(), jobs.epoch.copy(), ground.holder, free, standing
    )
    settled = placer.settle(turns, ground.demands)
    if settled is None:
        return None
    placements = {}
    for position, spot in settled.wins:
        row, option = int(claims.row[position]), int(claims.option[position])
        shape = ground.demands[turns.demand[row]].shapes[option]
        serial = int(jobs.serial[row])
        obtained = placer.obtained(spot, shape)
        placements[position] = Placement(serial, option, obtained, spot.gpus, spot.leaving, 0.0, Won(position))
    departures = []
    for row, position in settled.departures:
        winner = int(claims.row[position])
        moves = Moved(placements[position].shape) if winner == row else Preempted(ground.ids[winner])
        departures.append(Departure(int(jobs.serial[row]), moves))
    blocked = {}
    for number, position, count in settled.refused:
        shape = ground.demands[number].shapes[int(claims.option[position])]
        blocked[number] = NoRoom(ground.pool, shape, count)
    return RoundPlan(tuple(placements.values()), tuple(departures), blocked=blocked)


class _Present(NamedTuple):
    """What each job holds, and which jobs could be preempted."""

    contestable: Bools  # by job
    satisfied: Bools  # by claim: the job, or the pair, already holds exactly that
    keep: Ints  # by job: the position of the claim that keeps it where it is


_ALL_STAY = _Present(_NO_JOBS, _NO_JOBS, _NO_STANDINGS)  # where claims cannot change what is held


def _present(claims: Claims, jobs: JobColumns) -> _Present:
    satisfied = _satisfied(claims, jobs)
    if not claims.preemptive:
        return _Present(_NO_JOBS, satisfied, _NO_STANDINGS)
    partner = _NO_PAIRS if claims.partner is None else claims.partner
    return _Present(jobs.contestable, satisfied, kept_by(claims.row, partner, satisfied, len(jobs)))


def _satisfied(claims: Claims, jobs: JobColumns) -> Bools:
    """By claim: whether the job, or the pair, already holds exactly that."""
    running = jobs.running[claims.row]
    if claims.option is None:
        return running
    partner = NONE if claims.partner is None else claims.partner
    held = running & (claims.option == jobs.option[claims.row]) & (jobs.partner[claims.row] == partner)
    if claims.partner is None:
        return held
    return held & ((claims.partner == NONE) | (jobs.option[claims.partner] == claims.partner_option))


def _wanting(claims: Claims, jobs: JobColumns, present: _Present) -> Bools:
    """By claim: whether it asks for something new, for a pending job or for a holder that would rather move."""
    if claims.option is None or not claims.preemptive:
        return jobs.pending[claims.row]
    partner = _NO_PAIRS if claims.partner is None else claims.partner
    movable = jobs.pending | present.contestable
    return wanting(claims.row, partner, present.satisfied, present.keep, movable, _moves(claims))


def _barred(claims: Claims, barred: Bools) -> Bools:
    """By claim: whether its job or the partner must not start now."""
    if claims.partner is None:
        return barred[claims.row]
    return barred[claims.row] | (barred[claims.partner] & (claims.partner != NONE))


def _extensions(claims: Claims, jobs: JobColumns, present: _Present) -> tuple[tuple[int, float], ...]:
    """Serial and lease length of holders whose lease has expired and that won a new one in place."""
    if claims.lease_seconds is None:
        return ()
    won = np.flatnonzero((claims.lease_seconds > 0) & present.satisfied)
    rows = claims.row[won]
    if claims.partner is not None:
        together = won[claims.partner[won] != NONE]
        rows, won = np.append(rows, claims.partner[together]), np.append(won, together)
    due = jobs.now >= jobs.lease_until[rows]
    serials = jobs.serial[rows][due].tolist()
    return tuple(zip(serials, claims.lease_seconds[won][due].tolist(), strict=True))


class _Room(NamedTuple):
    """The GPUs of one type before anything is tried."""

    free: int
    last: int  # the last claim that keeps a GPU: only earlier ones could take one


class _Pass:
    def __init__(
        self,
        claims: Claims,
        jobs: JobColumns,
        ground: PassInput,
        placer: PlacementSearch,
        standing: Ints,
        waiting: Bools,
    ) -> None:
        self.claims = claims
        self.jobs = jobs
        self.ground = ground
        self.placer = placer
        self.holder = ground.holder
        self.riders = ground.riders
        partner = _NO_PAIRS if claims.partner is None else claims.partner
        jobs_now = (jobs.pending, jobs.epoch) if claims.preemptive else (_NO_JOBS, _NO_STANDINGS)
        self.sides = Sides(claims.row, partner, *jobs_now, ground.holder)
        self.state = new_pass(len(jobs), ground.usable & (ground.holder == NONE), standing, waiting)
        self.free, self.standing = self.state.free, self.state.standing
        self.placements: dict[int, Placement] = {}  # by position
        self.every_option: dict[int, tuple[int, ...]] = {}  # by demand
        self.blocked: dict[int, NoRoom] = {}
        self.room: dict[str, _Room] = {}  # by GPU type; cleared when a claim wins
        self.leaving: frozenset[int] = frozenset()  # epochs of leases that end anyway, if their GPUs may be claimed
        self.quota_left = None if ground.quota_left is None else dict(ground.quota_left)
        self.quota_unused = dict(ground.quota_left or {})  # of this, the part that no departure must free first

    def contest_waiting(self) -> None:
        """Let GPUs that a job is releasing, or that are held for one, yield to claims that precede its own."""
        if not self.ground.leaving and not self.ground.held:
            return
        position = {row: index for index, row in enumerate(self.claims.row.tolist())}
        self.leaving, self.holder = self.ground.leaving, self.holder.copy()
        for row in np.flatnonzero(np.isin(self.jobs.epoch, list(self.leaving))).tolist():
            gpus = self.ground.usable & (self.holder == self.jobs.epoch[row])
            self.standing[gpus] = position.get(row, UNCLAIMED)
        for row, held in self.ground.held.items():
            if row in position:
                self.holder[held] = _HOLDS + row
                self.standing[held] = position[row]
        self.sides = self.sides._replace(holder=self.holder)

    def run(self, extensions: tuple[tuple[int, float], ...]) -> RoundPlan:
        claims, jobs, state, sides = self.claims, self.jobs, self.state, self.sides
        head: BehindHead | None = None
        kind: Ints | None = None
        position = next_claim(state, sides, -1)
        while position >= 0:
            row = int(claims.row[position])
            demand = int(jobs.demand[row])
            if not self._try(position, row, self._options(position, row, demand)):
                if claims.blocking:
                    head = BehindHead(self.ground.ids[row], self.blocked[demand])
                    break
                kind = self._kinds() if kind is None else kind
                refuse(state, kind, position)
            position = next_claim(state, sides, position)
        departures = self._departures()
        if extensions and departures:
            stopped = {departure.serial for departure in departures}
            extensions = tuple(item for item in extensions if item[0] not in stopped)
        return RoundPlan(tuple(self.placements.values()), departures, extensions, self.blocked, head)

    def _kinds(self) -> Ints:
        """By claim: one number for all claims that ask for the same."""
        claims, jobs = self.claims, self.jobs
        kind: Ints = jobs.demand[claims.row]
        if claims.option is not None:
            kind = kind * jobs.shape.shape[1] + claims.option
        elif claims.allowed is not None:
            masks, mask = np.unique(claims.allowed, axis=0, return_inverse=True)
            kind = kind * len(masks) + mask.ravel()[claims.row]
        if claims.partner is not None:
            mate = self._mates(np.arange(len(kind)))
            kind = kind * (mate.max() + 2) + mate + 1
        return kind

    def _departures(self) -> tuple[Departure, ...]:
        if not self.claims.preemptive:
            return ()
        found = []
        for row in leavers(self.state).tolist():
            position = int(self.state.cause[row])
            winner = int(self.claims.row[position])
            moves = row in (winner, self._partner(position))
            reason = Moved(self.placements[position].shape) if moves else Preempted(self.ground.ids[winner])
            found.append(Departure(int(self.jobs.serial[row]), reason))
        return tuple(found)

    def _partner(self, position: int) -> int:
        return NONE if self.claims.partner is None else int(self.claims.partner[position])

    def _mates(self, positions: Ints) -> Ints:
        """By claim: one number for the demand and the option of its partner; NONE for single jobs."""
        partner, option = self.claims.partner, self.claims.partner_option
        assert partner is not None and option is not None
        number = self.jobs.demand[partner[positions]] * self.jobs.shape.shape[1] + option[positions]
        return np.where(partner[positions] == NONE, NONE, number)

    def _demand(self, position: int) -> Demand:
        """The demand of the job or of both in a pair: GPUs once, as close as either asks, CPUs and memory for each."""
        demands, partner = self.ground.demands, self._partner(position)
        demand = demands[self.jobs.demand[self.claims.row[position]]]
        if partner == NONE or self.claims.option is None:
            return demand
        option, mate = int(self.claims.option[position]), demands[self.jobs.demand[partner]]
        shape = self.placer.tighter(demand.shapes[option], mate.shapes[self._partner_option(position)])
        shapes = (*demand.shapes[:option], shape, *demand.shapes[option + 1 :])
        return demand.beside(mate)._replace(shapes=shapes)

    def _options(self, position: int, row: int, demand: int) -> tuple[int, ...]:
        """The options to be tried for a claim, in the job's order of preference."""
        if self.claims.option is not None:
            return (int(self.claims.option[position]),)
        if self.claims.allowed is not None:
            return tuple(np.flatnonzero(self.claims.allowed[row]).tolist())
        options = self.every_option.get(demand)
        if options is None:
            options = self.every_option[demand] = tuple(range(len(self.ground.demands[demand].shapes)))
        return options

    def _try(self, position: int, row: int, options: tuple[int, ...]) -> bool:
        demand = self._demand(position)
        for choice in options:
            shape = demand.shapes[choice]
            if self._room(shape).free >= shape.gpus:  # the most frequent question in a full cluster
                spot = self.placer.place(self.free, self.riders, demand, shape)
                if spot is not None:
                    self._win(position, row, demand, choice, spot)
                    return True
        if self.claims.preemptive:
            contest = None
            for choice in options:
                shape = demand.shapes[choice]
                if self._room(shape).last <= position:
                    continue
                if not self._is_within_quota(shape):
                    spot = self._place_over_quota(position, demand, shape)
                else:
                    contest = contest or self._contest(position, demand)
                    spot = self.placer.place_over(contest, self.riders, demand, shape)
                if spot is not None:
                    self._win(position, row, demand, choice, spot)
                    return True
        number = int(self.jobs.demand[row])
        if number not in self.blocked:
            shape = demand.shapes[options[0] if options else 0]
            self.blocked[number] = NoRoom(self.ground.pool, shape, self.placer.count(self.free, shape))
        return False

    def _contest(self, position: int, demand: Demand) -> Contest:
        """The GPUs a claim may use; those released in any case cost nothing extra, so they are taken first."""
        rank, yielding = self.standing, self.standing > position
        if self.leaving:
            rank = np.where(np.isin(self.holder, list(self.leaving)) & (rank != TAKEN), UNCLAIMED, rank)
        if self.ground.held and (demand.cpus_per_gpu or demand.memory_bytes_per_gpu):
            yielding &= self.holder < _HOLDS  # CPUs of a hold are released only where its GPUs are claimed
        return Contest(self.free, yielding, self.holder, rank)

    def _room(self, shape: Shape) -> _Room:
        room = self.room.get(shape.accelerator)
        if room is None:
            last = self.placer.last_of_type(self.standing, shape) if self.claims.preemptive else TAKEN
            free = self.placer.count(self.free, shape)
            if self.quota_left is not None:
                free = min(free, self.quota_left.get(shape.accelerator, 0))
            room = self.room[shape.accelerator] = _Room(free, last)
        return room

    def _place_over_quota(self, position: int, demand: Demand, shape: Shape) -> Spot | None:
        """Place a gang beyond the pool's quota, evicting as many of the pool's own leases as needed, the last first."""
        assert self.quota_left is not None
        left, leaving = self.quota_left.get(shape.accelerator, 0), []
        yielding = np.flatnonzero(self.standing > position)
        order = yielding[np.argsort(-self.standing[yielding], kind="stable")]
        for epoch in dict.fromkeys(self.holder[order].tolist()):
            if left >= shape.gpus:
                break
            held = self.placer.count(self.holder == epoch, shape)
            if held:
                leaving.append(epoch)
                left += held
        if left < shape.gpus:
            return None
        free = self.free | (np.isin(self.holder, leaving) & self.ground.usable)
        spot = self.placer.place(free, self.riders, demand, shape)
        return None if spot is None else spot._replace(leaving=tuple(sorted({*spot.leaving, *leaving})))

    def _is_within_quota(self, shape: Shape) -> bool:
        return self.quota_left is None or self.quota_left.get(shape.accelerator, 0) >= shape.gpus

    def _partner_option(self, position: int) -> int:
        return NONE if self.claims.partner_option is None else int(self.claims.partner_option[position])

    def _win(self, position: int, row: int, demand: Demand, option: int, spot: Spot) -> None:
        jobs, gpus, partner = self.jobs, spot.gpus, self._partner(position)
        shape = demand.shapes[option]
        lease_seconds = self.claims.lease_seconds
        winners = self.claims.row[position : position + 1] if partner == NONE else np.array([row, partner])
        self.placements[position] = Placement(
            int(jobs.serial[row]),
            option,
            self.placer.obtained(spot, shape),
            gpus,
            self._awaited(spot, demand, shape),
            0.0 if lease_seconds is None else float(lease_seconds[position]),
            Won(position),
            NONE if partner == NONE else int(jobs.serial[partner]),
            self._partner_option(position),
        )
        self.room.clear()
        if self.quota_left is not None:
            self.quota_left[shape.accelerator] = self.quota_left.get(shape.accelerator, 0) - len(gpus)
        self._load(gpus, demand)
        stayed = None if self.quota_left is None else self.state.departure == STAYS
        if self.leaving or self.ground.held:
            waiting = [epoch for epoch in spot.leaving if epoch >= _HOLDS or epoch in self.leaving]
            win(self.state, self.sides, position, winners, gpus, tuple(e for e in spot.leaving if e not in waiting))
            for epoch in waiting:
                self._take_over(position, epoch)
        else:
            win(self.state, self.sides, position, winners, gpus, spot.leaving)
        if stayed is not None:
            self._restore_quota(np.flatnonzero(stayed & (self.state.departure != STAYS)))

    def _take_over(self, position: int, epoch: int) -> None:
        """Free the GPUs of a hold or departing lease beyond the winner's needs; the job of a hold tries elsewhere."""
        left = (self.holder == epoch) & (self.standing != TAKEN)
        self.standing[left] = TAKEN
        self.free[left] = True
        if epoch >= _HOLDS:
            mine = self.claims.row[position + 1 :] == epoch - _HOLDS
            self.state.waiting[position + 1 :] |= mine & ~self.state.refused[position + 1 :]

    def _awaited(self, spot: Spot, demand: Demand, shape: Shape) -> tuple[int, ...]:
        """Leases that must end before a winner starts: on its GPUs, or with CPUs or a part of the quota for it."""
        awaited = tuple([epoch for epoch in spot.leaving if epoch < _HOLDS])
        more: set[int] = set()
        if demand.cpus_per_gpu or demand.memory_bytes_per_gpu:
            departing = self._departing | self.leaving
            more = departing & self.placer.sharing(spot.gpus, self.ground.holder) if departing else more
        if self.quota_left is not None:
            more |= self._awaited_for_quota(spot, shape)
        return tuple(sorted(more.union(awaited))) if more else awaited

    def _awaited_for_quota(self, spot: Spot, shape: Shape) -> set[int]:
        """Leases that must end for a winner to be within the quota; none while a part of the quota is unused."""
        replaced = self.placer.count(np.isin(self.holder, spot.leaving), shape)
        unused = self.quota_unused.get(shape.accelerator, 0) - max(shape.gpus - replaced, 0)
        self.quota_unused[shape.accelerator] = max(unused, 0)
        if unused >= 0:
            return set()
        return {epoch for epoch in self._departing if self.placer.count(self.holder == epoch, shape)}

    @property
    def _departing(self) -> set[int]:
        return set(self.jobs.epoch[self.state.departure != STAYS].tolist()) if self.claims.preemptive else set()

    def _load(self, gpus: Ints, demand: Demand) -> None:
        """Charge a winner's CPUs and memory to its GPUs, so that later claims of this pass cannot use them."""
        if demand.cpus_per_gpu or demand.memory_bytes_per_gpu:
            if self.riders is self.ground.riders:
                self.riders = Riders(self.riders.cpus.copy(), self.riders.memory_bytes.copy())
            self.riders.cpus[gpus] = demand.cpus_per_gpu
            self.riders.memory_bytes[gpus] = demand.memory_bytes_per_gpu

    def _restore_quota(self, rows: Ints) -> None:
        """Return the GPUs of departing jobs to the quota, for other jobs of the pool."""
        assert self.quota_left is not None
        for row in rows.tolist():
            shape = self.ground.demands[self.jobs.demand[row]].shapes[int(self.jobs.option[row])]
            held = int(np.count_nonzero(self.holder == self.jobs.epoch[row]))
            self.quota_left[shape.accelerator] += held
