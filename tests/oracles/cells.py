"""What tenants' cells are worth, by exhaustive search over all ways to lay them on a small cluster.

A *covering* is one way in which the cells that tenants use may lie: each GPU of a guaranteed job is in a cell of its
tenant, and no tenant has more cells than it reserves. Of a job that was started in its cells, the levels of these are
known. Otherwise, which covering the scheduler has in mind cannot be seen from outside, so a promise is broken if no
covering keeps it, and a job is owed a start if every covering has room for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import islice, product
from math import prod
from typing import NamedTuple

from horae.model.chain_layout import layout_of
from horae.model.chains import CellKind
from horae.model.cluster import Cluster, Gpu
from horae.model.jobs import Job
from horae.model.setup import PoolSpec
from horae.model.shapes import Shape

COVERINGS_MAX = 3000  # of a chain, or of all chains of a type; where there are more, no start is claimed


class Cell(NamedTuple):
    """One cell of a chain: GPUs from `cell * size` on, where `size` is that of its level."""

    owner: str
    level: int
    cell: int


class Covering(NamedTuple):
    used: tuple[Cell, ...]  # pinned cells are not among them
    unused: Mapping[str, tuple[int, ...]]  # by tenant and level
    free: frozenset[int]  # GPUs in no used or pinned cell


class Chain:
    """Equal cells inside each other; GPUs are counted from the chain's first."""

    def __init__(self, sizes: Sequence[int], types: Sequence[str], node_level: int, gpus: Sequence[Gpu]) -> None:
        self.sizes, self.types, self.node_level = tuple(sizes), tuple(types), node_level
        self.gpus = tuple(gpus)
        self.index = {gpu: index for index, gpu in enumerate(gpus)}
        self.top = len(sizes) - 1
        self.reserved: dict[str, tuple[int, ...]] = {}  # by tenant and level
        self.pins: dict[str, Cell] = {}  # by "tenant/name"

    def inside(self, level: int, cell: int) -> range:
        return range(cell * self.sizes[level], (cell + 1) * self.sizes[level])

    def cells(self, level: int) -> range:
        return range(len(self.gpus) // self.sizes[level])

    def children(self, level: int, cell: int) -> range:
        fanout = self.sizes[level] // self.sizes[level - 1]
        return range(cell * fanout, (cell + 1) * fanout)

    @cached_property
    def pinned(self) -> Mapping[int, str]:
        """By GPU: the pinned cell in which it lies."""
        return {gpu: name for name, pin in self.pins.items() for gpu in self.inside(pin.level, pin.cell)}


class Claim(NamedTuple):
    """GPUs of one job that runs with a guarantee."""

    owner: str  # its tenant, or "tenant/name" of its pinned cell
    gpus: frozenset[Gpu]
    levels: Mapping[Gpu, str] = {}  # by GPU: the level of its cell, where that was told


class Estate:
    """The hardware, and what tenants reserve of it."""

    def __init__(self, cluster: Cluster, specs: Iterable[PoolSpec]) -> None:
        tenants = [spec for spec in specs if spec.reserves]
        layout = layout_of(
            cluster,
            {spec.name: dict(spec.cells) for spec in tenants},
            {spec.name: dict(spec.pinned) for spec in tenants if spec.pinned},
        )
        self.cluster = cluster
        self.chains: list[Chain] = []
        self.accelerators: list[str] = []
        for number, chain in enumerate(layout.territory.chains):
            gpus = [Gpu(node, index) for node in chain.nodes for index in range(chain.node_gpus)]
            made = Chain(chain.gpus, chain.types, chain.node_level, gpus)
            for each in layout.territory.reservations:
                made.reserved[each.tenant] = tuple(
                    each.cells.get(CellKind(number, level), 0) for level in range(made.top + 1)
                )
            for pin in layout.territory.pins:
                if pin.kind.chain == number:
                    made.pins[pin.name] = Cell(pin.name, pin.kind.level, pin.cell)
            self.chains.append(made)
            self.accelerators.append(chain.accelerator)

    # Safety: HiveD, OSDI'20, section 3

    def broken_promise(self, claims: Sequence[Claim]) -> str:
        """Why the cells of all tenants cannot be had at once where these jobs have theirs; "" if they can."""
        for chain in self.chains:
            owners = owners_of(chain, claims)
            foreign = [str(chain.gpus[gpu]) for gpu, owner in owners.items() if chain.pinned.get(gpu, owner) != owner]
            astray = [str(chain.gpus[gpu]) for gpu, owner in owners.items() if "/" in owner and gpu not in chain.pinned]
            if foreign or astray:
                return f"{foreign} are pinned for others, {astray} are not pinned"
            if next(complete(chain, claims), None) is None:
                found = next(coverings(chain, claims), None)
                problem = (
                    f"no room for the unused cells, e.g. {found}" if found else "more cells are used than reserved"
                )
                return f"{problem}; {chain.types} of {chain.sizes} GPUs, reserved {chain.reserved}, used {owners}"
        return ""

    def is_in_reach(self, claims: Sequence[Claim], bad: set[Gpu], *, surely: bool) -> list[bool]:
        """By chain: whether unused cells can be had on good hardware, in some covering or surely in every one."""
        found = []
        for chain in self.chains:
            answers = [
                can_place(chain, covering.free - indexes(chain, bad), total(covering.unused, chain.top))
                for covering in islice(complete(chain, claims), COVERINGS_MAX)
            ]
            found.append(all(answers) if surely else any(answers))
        return found

    # Room, as on a private cluster

    def is_owed_a_start(self, job: Job, claims: Sequence[Claim], staying: Sequence[Claim], bad: set[Gpu]) -> bool:
        """Whether the job, in whichever shape, fits its tenant's cells on good hardware wherever these claims may have
        theirs, once only those staying are left."""
        return all(self._fits(job, option.shape, claims, staying, bad) for option in job.options)

    def _fits(self, job: Job, shape: Shape, claims: Sequence[Claim], staying: Sequence[Claim], bad: set[Gpu]) -> bool:
        """Every covering has room for a shape."""
        owner = f"{job.tenant}/{job.pinned}" if job.pinned else job.tenant
        mine = [chain for chain, name in zip(self.chains, self.accelerators, strict=True) if name == shape.accelerator]
        found: list[list[list[Part]]] = []  # by chain and covering: what the tenant has left
        for chain in mine:
            taken = indexes(chain, {gpu for claim in staying for gpu in claim.gpus} | bad)
            unfit = indexes(chain, bad)
            if job.pinned:
                found.append([[part(chain, pin, taken) for name, pin in chain.pins.items() if name == owner]])
                continue
            options = []
            for covering in islice(complete(chain, claims), COVERINGS_MAX + 1):
                if not can_place(chain, covering.free - unfit, total(covering.unused, chain.top)):
                    return False  # hardware is scarce: which tenant loses depends on which came first
                options.append(
                    [part(chain, cell, taken) for cell in covering.used if cell.owner == owner]
                    + [
                        part(chain, Cell(owner, level, 0), set())
                        for level, count in enumerate(covering.unused.get(owner, ()))
                        for _ in range(count)
                    ]
                )
            found.append(options)
        if prod(map(len, found)) > COVERINGS_MAX:
            return False
        ways = {tuple(sorted(each for parts in way for each in parts)) for way in product(*found)}
        return all(fits(self.cluster, shape, members_of(job, shape), way) for way in ways) if ways else False

    # One cell for one gang

    def is_owed_a_cell(self, job: Job, claims: Sequence[Claim], bad: set[Gpu]) -> bool:
        """Whether every covering has, for a gang inside one node, room in a cell in use or a good cell to bind,
        however scarce good hardware is, as long as no good cell is broken that larger reservations are short of."""
        ways = list(self._ways(job, claims, bad, bad))
        return bool(ways) and all(way.in_use or any(way.idle.values()) for way in ways)

    def needs_no_eviction(self, job: Job, claims: Sequence[Claim], guests: set[Gpu], bad: set[Gpu]) -> bool:
        """Whether every covering has, for a gang inside one node, idle good cells of each kind that the job may use.

        A job that fits what is left of a cell in use is none of this: there, guests are in the way of their host. Nor
        is one that fits the good part of a bad cell which the tenant has to put up with.
        """
        ways = list(self._ways(job, claims, guests | bad, bad))
        return any(way.idle for way in ways) and all(
            not way.in_use and not way.in_bad and all(way.idle.values()) for way in ways
        )

    def _ways(self, job: Job, claims: Sequence[Claim], avoided: set[Gpu], bad: set[Gpu]) -> Iterator[Way]:
        """By covering of all chains; none where the gang may not be in one node, or has a choice."""
        if job.pinned or job.nodes or len(job.options) > 1:
            return
        shape = job.options[0].shape
        if shape.level not in self.cluster.levels[: self.cluster.node_level + 1]:
            return
        found = [
            [
                self._way(chain, covering, job, claims, avoided, bad)
                for covering in islice(complete(chain, claims), COVERINGS_MAX)
            ]
            for chain, accelerator in zip(self.chains, self.accelerators, strict=True)
            if accelerator == shape.accelerator
        ]
        if prod(map(len, found)) <= COVERINGS_MAX:
            for ways in product(*found):
                idle = {kind: is_idle for way in ways for kind, is_idle in way.idle.items()}
                yield Way(any(way.in_use for way in ways), any(way.in_bad for way in ways), idle)

    def _way(
        self, chain: Chain, covering: Covering, job: Job, claims: Sequence[Claim], avoided: set[Gpu], bad: set[Gpu]
    ) -> Way:
        shape, unfit = job.options[0].shape, indexes(chain, bad)
        taken = indexes(chain, {gpu for claim in claims for gpu in claim.gpus}) | unfit
        used = [part(chain, cell, taken) for cell in covering.used if cell.owner == job.tenant]
        kinds = [Cell(job.tenant, level, 0) for level, n in enumerate(covering.unused.get(job.tenant, ())) if n]
        kinds = [kind for kind in kinds if fits(self.cluster, shape, (), [part(chain, kind, set())])]
        is_scarce = not can_place(chain, covering.free - unfit, total(covering.unused, chain.top))
        broken = [
            part(chain, Cell(job.tenant, kind.level, number), unfit)
            for kind in kinds
            for number in chain.cells(kind.level)
            if is_scarce and not unfit.isdisjoint(chain.inside(kind.level, number))
        ]
        return Way(
            fits(self.cluster, shape, (), used),
            fits(self.cluster, shape, (), broken),
            {
                (chain.gpus[0], kind.level): _has_idle(chain, covering, kind, indexes(chain, avoided), unfit)
                for kind in kinds
            },
        )


class Way(NamedTuple):
    """Where a gang inside one node could be under one covering."""

    in_use: bool  # in what is left of a cell in use
    in_bad: bool  # in the good part of a cell with bad hardware, where good cells are short
    idle: Mapping[tuple[Gpu, int], bool]  # by kind of unused cell: whether one can be bound where nothing is avoided


def _has_idle(chain: Chain, covering: Covering, kind: Cell, avoided: set[int], bad: set[int]) -> bool:
    """Whether an unused cell can be bound to GPUs that are not avoided, so that all others can still be bound, and so
    that no larger cell of good hardware is broken of which there are too few."""
    wanted = total(covering.unused, chain.top)
    left = [count - (level == kind.level) for level, count in enumerate(wanted)]
    fit = covering.free - bad
    whole = [
        {cell for cell in chain.cells(level) if fit.issuperset(chain.inside(level, cell))}
        for level in range(chain.top + 1)
    ]
    for number in chain.cells(kind.level):
        cell = chain.inside(kind.level, number)
        if not covering.free.issuperset(cell) or not avoided.isdisjoint(cell):
            continue
        breaks = [
            above
            for above in range(kind.level + 1, chain.top + 1)
            if cell[0] // chain.sizes[above] in whole[above] and len(whole[above]) <= _due(chain, wanted, above)
        ]
        if not breaks and can_place(chain, covering.free - {*cell}, left):
            return True
    return False


def _due(chain: Chain, wanted: Sequence[int], level: int) -> int:
    """Cells of a level that reservations of that level and above could fill."""
    return sum(wanted[above] * chain.sizes[above] // chain.sizes[level] for above in range(level, chain.top + 1))


# Coverings


def owners_of(chain: Chain, claims: Iterable[Claim]) -> dict[int, str]:
    """By GPU of the chain: the tenant or pinned cell whose job has it."""
    return {chain.index[gpu]: claim.owner for claim in claims for gpu in claim.gpus if gpu in chain.index}


def levels_of(chain: Chain, claims: Iterable[Claim]) -> dict[int, int]:
    """By GPU of the chain: the level of the cell in which its job has it, where that was told."""
    return {
        chain.index[gpu]: chain.types.index(level)
        for claim in claims
        for gpu, level in claim.levels.items()
        if gpu in chain.index and chain.index[gpu] not in chain.pinned
    }


def indexes(chain: Chain, gpus: Iterable[Gpu]) -> set[int]:
    return {chain.index[gpu] for gpu in gpus if gpu in chain.index}


def total(unused: Mapping[str, Sequence[int]], top: int) -> list[int]:
    return [sum(counts[level] for counts in unused.values()) for level in range(top + 1)]


def complete(chain: Chain, claims: Sequence[Claim]) -> Iterator[Covering]:
    """The coverings with which all unused cells of all tenants can be had as well."""
    for covering in coverings(chain, claims):
        if can_place(chain, set(covering.free), total(covering.unused, chain.top)):
            yield covering


def coverings(chain: Chain, claims: Sequence[Claim]) -> Iterator[Covering]:
    owners, levels = owners_of(chain, claims), levels_of(chain, claims)

    def cover(
        todo: tuple[tuple[int, int], ...], used: tuple[Cell, ...], left: dict[str, tuple[int, ...]]
    ) -> Iterator[Covering]:
        if not todo:
            covered = {gpu for cell in used for gpu in chain.inside(cell.level, cell.cell)}
            yield Covering(used, left, frozenset(range(len(chain.gpus))) - covered - chain.pinned.keys())
            return
        (level, cell), *rest = todo
        here = chain.inside(level, cell)
        inside = {owners[gpu] for gpu in here if gpu in owners and gpu not in chain.pinned}
        if not inside:
            yield from cover(tuple(rest), used, left)
            return
        if len(inside) == 1 and chain.pinned.keys().isdisjoint(here):
            owner = next(iter(inside))
            counts = left.get(owner, (0,) * (chain.top + 1))
            if counts[level] and all(levels.get(gpu, level) == level for gpu in here):
                fewer = (*counts[:level], counts[level] - 1, *counts[level + 1 :])
                yield from cover(tuple(rest), (*used, Cell(owner, level, cell)), {**left, owner: fewer})
        if level:
            below = tuple((level - 1, child) for child in chain.children(level, cell))
            yield from cover((*below, *rest), used, left)

    yield from cover(tuple((chain.top, cell) for cell in chain.cells(chain.top)), (), dict(chain.reserved))


def can_place(chain: Chain, there: set[int] | frozenset[int], wanted: Sequence[int]) -> bool:
    """HiveD's safety condition, from the top level down: cells that are whole, less those wanted, are split."""
    spare = 0
    whole_above: set[int] = set()
    for level in reversed(range(chain.top + 1)):
        fanout = chain.sizes[level + 1] // chain.sizes[level] if level < chain.top else 1
        whole = {cell for cell in chain.cells(level) if there.issuperset(chain.inside(level, cell))}
        spare = spare * fanout + sum(cell // fanout not in whole_above for cell in whole)
        spare -= wanted[level]
        if spare < 0:
            return False
        whole_above = whole
    return True


# Private clusters


class Part(NamedTuple):
    """What is left of one cell, as a node or as nodes of a private cluster: free GPUs, counted from its first."""

    types: tuple[str, ...]
    sizes: tuple[int, ...]  # by level, up to that of the cell
    node_level: int
    free: tuple[int, ...]


def part(chain: Chain, cell: Cell, taken: set[int]) -> Part:
    here = chain.inside(cell.level, cell.cell)
    free = tuple(gpu - here[0] for gpu in here if gpu not in taken)
    return Part(chain.types[: cell.level + 1], chain.sizes[: cell.level + 1], min(chain.node_level, cell.level), free)


def members_of(job: Job, shape: Shape) -> tuple[int, ...]:
    if job.members:
        return tuple(sorted(job.members, reverse=True))
    whole, rest = divmod(shape.gpus, job.member_gpus)
    return (job.member_gpus,) * whole + ((rest,) if rest else ())


def fits(cluster: Cluster, shape: Shape, members: tuple[int, ...], parts: Iterable[Part]) -> bool:
    """Whether a gang fits what is left of a private cluster."""
    order = cluster.levels
    if shape.level not in order:
        return False
    if order.index(shape.level) <= cluster.node_level:
        return any(shape.gpus <= room for each in parts for room in rooms(each, _inner(each, shape.level, order)))
    if shape.level == order[-1]:
        return pack(members, tuple(sorted(room for each in parts for room in rooms(each, each.node_level))))
    return any(pack(members, group) for each in parts for group in _groups(each, shape.level, order))


def _inner(each: Part, level: str, order: Sequence[str]) -> int:
    """The level in its stead where a node lacks it: the next coarser one, up to the node or the cell."""
    for index, own in enumerate(each.types[: each.node_level + 1]):
        if order.index(own) >= order.index(level):
            return index
    return each.node_level


def _groups(each: Part, level: str, order: Sequence[str]) -> Iterator[tuple[int, ...]]:
    """The rooms of the nodes of each cell of a level above nodes; where that is missing, of the next finer one."""
    own = max(i for i, name in enumerate(each.types) if i == each.node_level or order.index(name) <= order.index(level))
    own = max(own, each.node_level)
    for first in range(0, each.sizes[-1], each.sizes[own]):
        inside = each._replace(free=tuple(gpu for gpu in each.free if first <= gpu < first + each.sizes[own]))
        yield tuple(sorted(rooms(inside, each.node_level)))


def rooms(each: Part, level: int) -> list[int]:
    """Free GPUs of each cell of this level."""
    found = [0] * (each.sizes[-1] // each.sizes[level])
    for gpu in each.free:
        found[gpu // each.sizes[level]] += 1
    return found


@lru_cache(maxsize=100_000)
def pack(members: tuple[int, ...], left: tuple[int, ...]) -> bool:
    """Whether members, largest first, fit into rooms: every way is tried, equal rooms are one."""
    if not members:
        return True
    return any(
        pack(members[1:], tuple(sorted((*left[:index], room - members[0], *left[index + 1 :]))))
        for index, room in enumerate(left)
        if room >= members[0] and (index == 0 or left[index - 1] != room)
    )
