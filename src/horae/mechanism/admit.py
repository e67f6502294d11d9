"""Steps 4 and 5: one pass of trial placement over the claims, best first.

Whether a claim fits is known only by placing it. A GPU is free, taken, or held by a lease that yields to claims
before its own. The pass looks only at claims that want something they do not have; a holder that nobody
displaces keeps its GPUs without being looked at. What a claim may use only shrinks during a pass (GPUs
that a victim leaves had yielded to every earlier claim already), so once a demand has failed, all later claims of that
demand fail with it.

Under a preemptive ranking without quotas, GPUs that a job is leaving already yield to claims before its own, and do so
before any other job is asked to leave; GPUs that are held for a job yield to claims before its own, as if it ran there.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Protocol

import numpy as np

from horae.model.arrays import Bools, Ints
from horae.model.plans import (
    Claims,
    Contest,
    Departure,
    Placement,
    Riders,
    RoundPlan,
    Settlement,
    Spot,
    Turns,
)
from horae.model.reasons import BehindHead, Moved, NoRoom, Preempted, Won
from horae.model.shapes import Demand, Shape
from horae.model.table import NOBODY, JobColumns

TAKEN = -1
_NO_STANDINGS: Ints = np.empty(0, dtype=np.int64)
UNCLAIMED = int(np.iinfo(np.int64).max)  # held by a job with no claim: it may stay until somebody needs the room
_HOLDS = 1 << 62  # holds are told from leases by numbers above every epoch


class Placer(Protocol):
    """What the pass must know of placement."""

    def hasten(self) -> None: ...

    def settle(self, turns: Turns, demands: Sequence[Demand]) -> Settlement | None: ...

    def place(self, free: Bools, riders: Riders, demand: Demand, shape: Shape) -> Spot | None: ...

    def place_over(self, contest: Contest, riders: Riders, demand: Demand, shape: Shape) -> Spot | None: ...

    def obtained(self, spot: Spot, shape: Shape) -> Shape: ...

    def tighter(self, one: Shape, other: Shape) -> Shape: ...

    def count(self, free: Bools, shape: Shape) -> int: ...

    def last_of_type(self, standing: Ints, shape: Shape) -> int: ...

    def sharing(self, gpus: Ints, holder: Ints) -> set[int]: ...


class Ground(NamedTuple):
    """The GPUs of one pool as the pass finds them."""

    pool: str
    usable: Bools  # of this pool, healthy, and held for nobody
    holder: Ints  # epoch of the lease on each GPU
    riders: Riders
    demands: Sequence[Demand]
    ids: Sequence[str]  # by row
    quota_left: Mapping[str, int] | None = None  # by GPU type: so many more may be used; None: as many as there are
    leaving: frozenset[int] = frozenset()  # epochs of leases whose jobs were told to leave, and are not late
    held: Mapping[int, Ints] = MappingProxyType({})  # by row of a job that waits for others to leave: its GPUs
    barred: Bools | None = None  # by row: its job must not start now


def admit(claims: Claims, jobs: JobColumns, ground: Ground, placer: Placer) -> RoundPlan:
    if claims.option is not None:
        placer.hasten()  # shares make jobs move every round
    if claims.is_by_turns and not jobs.bundles and ground.quota_left is None and ground.barred is None:
        wanting, standing = _survey(claims, jobs, ground)
        if not len(wanting):
            return RoundPlan()
        return _at_once(claims, jobs, ground, placer, wanting, standing) or _Pass(
            claims, jobs, ground, placer, standing
        ).run(wanting, ())
    present = _present(claims, jobs)
    wanting = _wanting(claims, jobs, present)
    if ground.barred is not None:
        wanting = wanting[~_barred(claims, ground.barred)[wanting]]
    extensions = _extensions(claims, jobs, present)
    if not len(wanting):
        return RoundPlan(extensions=extensions)
    standing = _standings(jobs, ground, present) if claims.preemptive else _NO_STANDINGS
    found = _Pass(claims, jobs, ground, placer, standing)
    if claims.preemptive and claims.option is None and ground.quota_left is None:
        found.contest_waiting()
    return found.run(wanting, extensions)


def _survey(claims: Claims, jobs: JobColumns, ground: Ground) -> tuple[Ints, Ints]:
    """The claims that want something new, and the standings: as below, compiled, for the usual case of shares."""
    assert claims.option is not None
    from horae.mechanism.turns_kernel import survey  # noqa: PLC0415  numba is slow to import

    may = jobs.contestable
    held = np.where(jobs.running, jobs.option, NOBODY)
    moves = np.zeros(len(claims.row), dtype=bool) if claims.moves is None else claims.moves
    where = jobs.epoch.copy(), ground.holder, ground.usable.copy()
    return survey(claims.row, claims.option, moves, held, jobs.pending | may, may, *where)


def _at_once(
    claims: Claims, jobs: JobColumns, ground: Ground, placer: Placer, wanting: Ints, standing: Ints
) -> RoundPlan | None:
    """The pass below as one compiled search; None where there is none."""
    assert claims.option is not None
    free = ground.usable & (ground.holder == NOBODY)
    turns = Turns(
        claims.row, claims.option, wanting, jobs.demand.copy(), jobs.epoch.copy(), ground.holder, free, standing.copy()
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
    """Who has what, and who could be made to leave it."""

    contestable: Bools  # by job
    satisfied: Bools  # by claim: the job, or the pair, holds just that already
    keep: Ints  # by job: the position of the claim that keeps it where it is


def _present(claims: Claims, jobs: JobColumns) -> _Present:
    nobody = np.zeros(len(jobs), dtype=bool)
    satisfied = _satisfied(claims, jobs)
    if not claims.preemptive:
        return _Present(nobody, satisfied, _NO_STANDINGS)
    return _Present(jobs.contestable, satisfied, _kept_by(claims, jobs, satisfied))


def _satisfied(claims: Claims, jobs: JobColumns) -> Bools:
    """By claim: the job, or the pair, holds just that already."""
    running = jobs.running[claims.row]
    if claims.option is None:
        return running
    partner = NOBODY if claims.partner is None else claims.partner
    held = running & (claims.option == jobs.option[claims.row]) & (jobs.partner[claims.row] == partner)
    if claims.partner is None:
        return held
    return held & ((claims.partner == NOBODY) | (jobs.option[claims.partner] == claims.partner_option))


def _kept_by(claims: Claims, jobs: JobColumns, satisfied: Bools) -> Ints:
    """By job: the position of the claim that keeps it where it is."""
    keep = np.full(len(jobs), UNCLAIMED)
    positions = np.flatnonzero(satisfied)[::-1]
    keep[claims.row[positions]] = positions
    if claims.partner is not None:
        positions = positions[claims.partner[positions] != NOBODY]
        keep[claims.partner[positions]] = positions
    return keep


def _wanting(claims: Claims, jobs: JobColumns, present: _Present) -> Ints:
    """Positions of claims that ask for something new: of pending jobs, and of holders that would rather move."""
    if claims.option is None or not claims.preemptive:
        return (jobs.pending[claims.row] & ~present.satisfied).nonzero()[0]
    # A holder gives up nothing for a claim that ranks below the one that keeps it where it is, unless it says so.
    movable = jobs.pending | present.contestable
    keep = np.where(movable, present.keep, NOBODY)
    positions = np.arange(len(claims.row))
    before = positions < keep[claims.row]
    if claims.moves is not None:
        before |= claims.moves & movable[claims.row]
    wanting = ~present.satisfied & before
    if claims.partner is not None:
        wanting &= (claims.partner == NOBODY) | (positions < keep[claims.partner])
    return np.flatnonzero(wanting)


def _barred(claims: Claims, barred: Bools) -> Bools:
    """By claim: its job, or the one beside it, must not start now."""
    if claims.partner is None:
        return barred[claims.row]
    return barred[claims.row] | (barred[claims.partner] & (claims.partner != NOBODY))


def _extensions(claims: Claims, jobs: JobColumns, present: _Present) -> tuple[tuple[int, float], ...]:
    """Holders whose lease has run out and who won a new one where they are."""
    if claims.lease_seconds is None:
        return ()
    won = np.flatnonzero((claims.lease_seconds > 0) & present.satisfied)
    rows = claims.row[won]
    if claims.partner is not None:
        together = won[claims.partner[won] != NOBODY]
        rows, won = np.append(rows, claims.partner[together]), np.append(won, together)
    due = jobs.now >= jobs.lease_until[rows]
    serials = jobs.serial[rows][due].tolist()
    return tuple(zip(serials, claims.lease_seconds[won][due].tolist(), strict=True))


def _standings(jobs: JobColumns, ground: Ground, present: _Present) -> Ints:
    """By GPU: the position of the claim that keeps its holder there; only claims before that may have it."""
    usable, holder = ground.usable, ground.holder
    standing = np.full(len(holder), TAKEN)
    rows = np.flatnonzero(present.contestable)
    if len(rows):
        rows = rows[np.argsort(jobs.epoch[rows])]
        epochs = jobs.epoch[rows]
        held = np.flatnonzero(usable & (holder != NOBODY))
        index = np.minimum(np.searchsorted(epochs, holder[held]), len(rows) - 1)
        known = epochs[index] == holder[held]
        standing[held[known]] = present.keep[rows[index[known]]]
    return standing


class _Room(NamedTuple):
    """What there is of a GPU type, before anything is tried."""

    free: int
    last: int  # the last claim that keeps a GPU: only those before it could take one


class _Pass:
    def __init__(self, claims: Claims, jobs: JobColumns, ground: Ground, placer: Placer, standing: Ints) -> None:
        self.claims = claims
        self.jobs = jobs
        self.ground = ground
        self.placer = placer
        self.holder = ground.holder
        self.free = ground.usable & (ground.holder == NOBODY)
        self.riders = ground.riders
        self.standing = standing  # by GPU; only claims before that may have it
        self.placements: list[Placement] = []
        self.departures: dict[int, Departure] = {}  # by row
        self.won: set[int] = set()  # rows
        self.failed: set[tuple[int, int, tuple[int, ...]]] = set()  # (demand, number of its mate, options tried)
        self.every_option: dict[int, tuple[int, ...]] = {}  # by demand
        self.blocked: dict[int, NoRoom] = {}
        self.room: dict[str, _Room] = {}  # by GPU type; forgotten when somebody wins
        self.leaving: frozenset[int] = frozenset()  # epochs of leases that end anyway, if GPUs of theirs may be claimed
        self.quota_left = None if ground.quota_left is None else dict(ground.quota_left)
        self.quota_unused = dict(ground.quota_left or {})  # of this, what no departure must free first

    def contest_waiting(self) -> None:
        """GPUs that a job is leaving, or that are held for one, yield to claims before its own."""
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

    def run(self, wanting: Ints, extensions: tuple[tuple[int, float], ...]) -> RoundPlan:
        claims, jobs = self.claims, self.jobs
        head: BehindHead | None = None
        self.displaced: list[int] = []  # positions of claims of those who lost their GPUs, a heap
        while len(wanting) or self.displaced:
            if self.displaced and (not len(wanting) or self.displaced[0] < wanting[0]):
                position = heapq.heappop(self.displaced)
            else:
                position = int(wanting[0])
                wanting = wanting[1:]
            row, partner = int(claims.row[position]), self._partner(position)
            demand = int(jobs.demand[row])
            mate = NOBODY if partner == NOBODY else int(self._mates(np.array(position)))
            options = self._options(position, row, demand)
            if row in self.won or partner in self.won or (demand, mate, options) in self.failed:
                continue
            if self._try(position, row, options):
                continue
            self.failed.add((demand, mate, options))
            if claims.blocking:
                head = BehindHead(self.ground.ids[row], self.blocked[demand])
                break
            others = jobs.demand[claims.row[wanting]] != demand
            if claims.option is not None:
                others |= claims.option[wanting] != options[0]
            elif claims.allowed is not None:
                others |= (claims.allowed[claims.row[wanting]] != claims.allowed[row]).any(axis=1)
            if claims.partner is not None:
                others |= self._mates(wanting) != mate
            wanting = wanting[others]
        stopped = {departure.serial for departure in self.departures.values()}
        return RoundPlan(
            placements=tuple(self.placements),
            departures=tuple(self.departures.values()),
            extensions=tuple(item for item in extensions if item[0] not in stopped),
            blocked=self.blocked,
            head=head,
        )

    def _partner(self, position: int) -> int:
        return NOBODY if self.claims.partner is None else int(self.claims.partner[position])

    def _mates(self, positions: Ints) -> Ints:
        """By claim: one number for the demand and the option of its partner; NOBODY for those alone."""
        partner, option = self.claims.partner, self.claims.partner_option
        assert partner is not None and option is not None
        number = self.jobs.demand[partner[positions]] * self.jobs.shape.shape[1] + option[positions]
        return np.where(partner[positions] == NOBODY, NOBODY, number)

    def _demand(self, position: int) -> Demand:
        """Of the job or, for a pair, of both: GPUs once, as close as either asks, and CPUs and memory for each."""
        demands, partner = self.ground.demands, self._partner(position)
        demand = demands[self.jobs.demand[self.claims.row[position]]]
        if partner == NOBODY or self.claims.option is None:
            return demand
        option, mate = int(self.claims.option[position]), demands[self.jobs.demand[partner]]
        shape = self.placer.tighter(demand.shapes[option], mate.shapes[self._partner_option(position)])
        shapes = (*demand.shapes[:option], shape, *demand.shapes[option + 1 :])
        return demand.beside(mate)._replace(shapes=shapes)

    def _options(self, position: int, row: int, demand: int) -> tuple[int, ...]:
        """What may be tried for a claim, in the job's order of preference."""
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
            if self._room(shape).free >= shape.gpus:  # what a full cluster is asked most often
                spot = self.placer.place(self.free, self.riders, demand, shape)
                if spot is not None:
                    self._win(position, row, choice, spot)
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
                    self._win(position, row, choice, spot)
                    return True
        number = int(self.jobs.demand[row])
        if number not in self.blocked:
            shape = demand.shapes[options[0] if options else 0]
            self.blocked[number] = NoRoom(self.ground.pool, shape, self.placer.count(self.free, shape))
        return False

    def _contest(self, position: int, demand: Demand) -> Contest:
        """What a claim may have: it costs nothing more to take what a job leaves anyway, so that is taken first."""
        rank, yielding = self.standing, self.standing > position
        if self.leaving:
            rank = np.where(np.isin(self.holder, list(self.leaving)) & (rank != TAKEN), UNCLAIMED, rank)
        if self.ground.held and (demand.cpus_per_gpu or demand.memory_bytes_per_gpu):
            yielding &= self.holder < _HOLDS  # CPUs that go with a hold are given up only where its GPUs are taken over
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
        """Beyond its quota a pool gets GPUs only as its own jobs leave some, wherever that is: the last of them go."""
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
        return NOBODY if self.claims.partner_option is None else int(self.claims.partner_option[position])

    def _win(self, position: int, row: int, option: int, spot: Spot) -> None:
        jobs, gpus, demand, partner = self.jobs, spot.gpus, self._demand(position), self._partner(position)
        shape = demand.shapes[option]
        lease_seconds = self.claims.lease_seconds
        winners = (row,) if partner == NOBODY else (row, partner)
        self.won.update(winners)
        self.placements.append(
            Placement(
                serial=int(jobs.serial[row]),
                option=option,
                shape=self.placer.obtained(spot, shape),
                gpus=gpus,
                leaving=self._awaited(spot, demand, shape),
                lease_seconds=0.0 if lease_seconds is None else float(lease_seconds[position]),
                reason=Won(position),
                partner=NOBODY if partner == NOBODY else int(jobs.serial[partner]),
                partner_option=self._partner_option(position),
            )
        )
        self.free[gpus] = False
        self.room.clear()
        if self.quota_left is not None:
            self.quota_left[shape.accelerator] = self.quota_left.get(shape.accelerator, 0) - len(gpus)
        self._load(gpus, demand)
        if not self.claims.preemptive:
            return
        self.standing[gpus] = TAKEN
        for epoch in spot.leaving:
            self._displace(epoch, position, winners)
        for winner in winners:
            if jobs.epoch[winner] == NOBODY:
                continue
            if jobs.partner[winner] != NOBODY:
                self._displace(int(jobs.epoch[winner]), position, winners)  # whom it leaves behind
            if winner in self.departures:
                self.departures[winner] = Departure(int(jobs.serial[winner]), Moved(self.placements[-1].shape))
            else:
                self._vacate(winner, Moved(self.placements[-1].shape))

    def _awaited(self, spot: Spot, demand: Demand, shape: Shape) -> tuple[int, ...]:
        """Leases that must end before a winner starts: on its GPUs, or with CPUs or a part of the quota for it."""
        awaited = tuple(epoch for epoch in spot.leaving if epoch < _HOLDS)
        more: set[int] = set()
        if demand.cpus_per_gpu or demand.memory_bytes_per_gpu:
            departing = self._departing | self.leaving
            more = departing & self.placer.sharing(spot.gpus, self.ground.holder) if departing else more
        if self.quota_left is not None:
            more |= self._awaited_for_quota(spot, shape)
        return tuple(sorted(more.union(awaited))) if more else awaited

    def _awaited_for_quota(self, spot: Spot, shape: Shape) -> set[int]:
        """Who must have left so that a winner is within the quota: none, as long as that has a part that is unused."""
        replaced = self.placer.count(np.isin(self.holder, spot.leaving), shape)
        unused = self.quota_unused.get(shape.accelerator, 0) - max(shape.gpus - replaced, 0)
        self.quota_unused[shape.accelerator] = max(unused, 0)
        if unused >= 0:
            return set()
        return {epoch for epoch in self._departing if self.placer.count(self.holder == epoch, shape)}

    @property
    def _departing(self) -> set[int]:
        return {int(self.jobs.epoch[row]) for row in self.departures}

    def _load(self, gpus: Ints, demand: Demand) -> None:
        """What rides along with a winner is not there for later claims of this pass."""
        if demand.cpus_per_gpu or demand.memory_bytes_per_gpu:
            if self.riders is self.ground.riders:
                self.riders = Riders(self.riders.cpus.copy(), self.riders.memory_bytes.copy())
            self.riders.cpus[gpus] = demand.cpus_per_gpu
            self.riders.memory_bytes[gpus] = demand.memory_bytes_per_gpu

    def _displace(self, epoch: int, position: int, winners: tuple[int, ...]) -> None:
        """The lease must end: what it held beyond the winner's needs is free, and it may try its claims elsewhere."""
        claims = self.claims
        if epoch in self.leaving:
            self._free(self.holder == epoch)
            return
        if epoch >= _HOLDS:
            rows = [epoch - _HOLDS]
            self._free(self.holder == epoch)
        else:
            rows = np.flatnonzero(self.jobs.epoch == epoch).tolist()
        for row in rows:
            if row in winners or row in self.departures:
                continue
            if epoch < _HOLDS:
                self._vacate(row, Preempted(self.ground.ids[winners[0]]))
            mine = claims.row[position + 1 :] == row
            if claims.partner is not None:
                mine = self._with_partner_free(mine, row, position + 1)
            if self.ground.barred is not None:
                mine = mine & ~_barred(claims, self.ground.barred)[position + 1 :]
            for later in np.flatnonzero(mine).tolist():
                heapq.heappush(self.displaced, position + 1 + later)

    def _with_partner_free(self, mine: Bools, row: int, start: int) -> Bools:
        """Of a displaced job's claims from there on: alone, or beside somebody who waits or has been displaced."""
        claims = self.claims
        assert claims.partner is not None
        idle = self.jobs.pending.copy()
        idle[[*self.departures]] = True
        mate = claims.partner[start:]
        return (mine & ((mate == NOBODY) | idle[mate])) | ((mate == row) & idle[claims.row[start:]])

    def _vacate(self, row: int, reason: Preempted | Moved) -> None:
        self.departures[row] = Departure(int(self.jobs.serial[row]), reason)
        held = self.holder == self.jobs.epoch[row]
        self._free(held)
        if self.quota_left is not None:
            shape = self.ground.demands[self.jobs.demand[row]].shapes[int(self.jobs.option[row])]
            self.quota_left[shape.accelerator] += int(np.count_nonzero(held))

    def _free(self, held: Bools) -> None:
        """Of these GPUs, those that the pass has not given away are there for later claims."""
        left = held & (self.standing != TAKEN)
        self.standing[left] = TAKEN
        self.free |= left
