"""GPUs that wait: jobs are leaving them, or they are held for a job. And leases that are found in tenants' cells."""

from __future__ import annotations

from typing import Any

import pytest
from builders import job

from horae.model.cluster import CLUSTER, Cluster, Gpu, Node
from horae.model.commands import Command, Start, Stop
from horae.model.events import Ending, Event, JobEnded, JobStarted, JobSubmitted, LeaseAdopted, Running, Surveyed, Tick
from horae.model.setup import PoolSpec, Setup
from horae.model.status import Status
from horae.scheduler import Scheduler


class Desk:
    """Starts are confirmed at once, stops only when a test says so; every step is taken by a restored copy."""

    def __init__(self, setup: Setup) -> None:
        self.scheduler = Scheduler(setup)
        self.starts: dict[str, Start] = {}
        self.now = 100.0

    def tell(self, *events: Event) -> list[Command]:
        commands: list[Command] = []
        for event in (*events, Tick(self.now)):
            commands += self.scheduler.handle(event).commands
            for command in commands:
                if isinstance(command, Start) and self.starts.get(command.job_ids[0]) is not command:
                    self.starts[command.job_ids[0]] = command
                    self.scheduler.handle(JobStarted(self.now, command.job_ids[0], command.epoch))
        restored = Scheduler.restore(self.scheduler.dump())
        assert restored.dump() == self.scheduler.dump()
        self.scheduler = restored
        return commands

    def submit(self, name: str, gpus: int, priority: int, **fields: Any) -> list[str]:
        """The jobs that must leave for it."""
        self.now += 100.0
        made = job(name, self.now, gpus, 1e6, accelerator="a", priority=priority, grace_seconds=50.0, **fields)
        return [each.job_id for each in self.tell(JobSubmitted(self.now, made)) if isinstance(each, Stop)]

    def leave(self, name: str) -> list[str]:
        """The jobs that start when it has left."""
        ended = JobEnded(self.now, name, self.starts[name].epoch, Ending.STOPPED, 0.0)
        return [each.job_ids[0] for each in self.tell(ended) if isinstance(each, Start)]

    def status(self, *names: str) -> list[str]:
        return [status.name for name in names if (status := self.scheduler.status(name)) is not None]


def plain(nodes: int = 2, gpus: int = 2, acknowledge_seconds: float = 1000.0) -> Desk:
    made = tuple(Node(f"n{index}", "a", gpus) for index in range(nodes))
    setup = Setup(Cluster("lab", made), (PoolSpec("all", "priority"),), acknowledge_seconds=acknowledge_seconds)
    return Desk(setup)


def test_a_job_that_ranks_before_takes_over_what_is_held_for_another() -> None:
    desk = plain(nodes=1)
    desk.submit("low", 2, 0)
    assert desk.submit("middle", 2, 1) == ["low"]
    assert desk.submit("high", 2, 2) == []  # its victim is leaving already
    assert desk.status("low", "middle", "high") == ["STOPPING", "PENDING", "HOLDING"]
    assert desk.submit("other", 2, 2) == []  # of equals the first stays
    assert desk.leave("low") == ["high"]
    assert desk.status("low", "middle", "high", "other") == ["PENDING", "PENDING", "RUNNING", "PENDING"]


def test_gpus_that_a_job_leaves_anyway_are_taken_before_another_job_is_asked_to_leave() -> None:
    desk = plain(nodes=3, gpus=1)
    desk.submit("other", 1, 0)
    desk.submit("wide", 2, 1, level=CLUSTER)
    assert desk.submit("first", 1, 2) == ["other"]
    assert desk.submit("second", 1, 3) == ["wide"]
    assert desk.submit("third", 1, 4) == []  # the second GPU of the wide job
    assert desk.status("first", "second", "third") == ["HOLDING"] * 3


@pytest.mark.parametrize("later_seconds", [0.0, 10.0])
def test_a_job_that_ranks_behind_a_leaving_one_gets_what_is_left_over_when_that_has_left(later_seconds: float) -> None:
    desk = plain(nodes=1)
    desk.submit("wide", 2, 1)
    assert desk.submit("high", 1, 2) == ["wide"]
    assert desk.submit("low", 1, 0) == []
    assert desk.status("wide", "high", "low") == ["STOPPING", "HOLDING", "PENDING"]
    desk.now += later_seconds  # or in the instant of the decision that passed over the job of low rank
    assert desk.leave("wide") == ["high", "low"]


def test_a_job_whose_place_was_taken_over_finds_another_one_in_the_same_round() -> None:
    desk = plain()
    desk.submit("one", 2, 0)
    desk.submit("two", 2, 1)
    assert desk.submit("middle", 2, 2) == ["one"]
    assert desk.submit("high", 2, 3, nodes=("n0",)) == ["two"]  # for the job that has to move
    assert desk.status("one", "two", "middle", "high") == ["STOPPING", "STOPPING", "HOLDING", "HOLDING"]
    assert desk.leave("one") == ["high"]
    assert desk.leave("two") == ["middle"]


def test_gpus_of_a_job_that_is_late_to_leave_are_not_counted_on() -> None:
    desk = plain(nodes=1, acknowledge_seconds=10.0)
    desk.submit("low", 2, 0)
    assert desk.submit("high", 2, 1) == ["low"]
    desk.now += 60.0  # its grace is over, and it has not left
    desk.tell()
    assert desk.status("low", "high") == ["STOPPING", "PENDING"]


# Leases that are found in cells


def cells(reserved: dict[str, int], **fields: Any) -> Desk:
    nodes = tuple(Node(f"n{index}", "a", 4, levels=(("socket", 2),)) for index in range(3))
    tenant = PoolSpec("t", "priority", tenants=("t",), cells=reserved, **fields)
    return Desk(Setup(Cluster("lab", nodes), (tenant, PoolSpec("spare")), acknowledge_seconds=1000.0))


def gpus(node: str, *numbers: int) -> tuple[Gpu, ...]:
    return tuple(Gpu(node, number) for number in numbers)


def found(desk: Desk, name: str, where: tuple[Gpu, ...], priority: int = 0, **fields: Any) -> None:
    desk.now += 100.0
    made = job(name, desk.now, len(where), 1e6, accelerator="a", tenant="t", priority=priority)
    epoch = desk.scheduler.leases.epoch_next
    desk.tell(JobSubmitted(desk.now, made), LeaseAdopted(desk.now, epoch, (name,), where, (0.0,), **fields))
    desk.starts[name] = Start(epoch, (name,), where, made.options[0].shape, (0.0,), (True,))


def guaranteed(desk: Desk, *names: str) -> list[bool]:
    """By job: whether it is in cells of its tenant."""
    running = [desk.scheduler.jobs.on_gpus(name) for name in names]
    return [each is not None and each[0].spec.name == "t" for each in running]


def test_a_lease_of_higher_priority_is_covered_instead_of_one_of_lower_priority() -> None:
    desk = cells({"a.node": 1})
    found(desk, "low", gpus("n0", 0, 1), priority=0)
    found(desk, "same", gpus("n1", 0, 1), priority=0)
    assert guaranteed(desk, "low", "same") == [True, False]  # which runs on without a guarantee
    found(desk, "high", gpus("n2", 0, 1), priority=1)
    assert guaranteed(desk, "low", "same", "high") == [False, False, True]
    assert desk.status("low", "same", "high") == ["RUNNING"] * 3


def test_no_lease_loses_its_guarantee_in_vain() -> None:
    desk = cells({"a.socket": 1})
    found(desk, "low", gpus("n0", 0, 1), priority=0)
    found(desk, "high", gpus("n1", 0, 1, 2), priority=1)  # no cell of the tenant holds three
    assert guaranteed(desk, "low", "high") == [True, False]


@pytest.mark.parametrize("level", ["socket", "node"])
def test_a_lease_is_found_in_the_kind_of_cell_that_its_start_named(level: str) -> None:
    desk = cells({"a.socket": 1, "a.node": 1})
    found(desk, "one", gpus("n0", 0, 1), cells=(level,) * 2)
    lease = desk.scheduler.leases.by_epoch[desk.starts["one"].epoch]
    assert desk.scheduler.ledger.cell_levels(lease.gpus) == (level,) * 2


def test_a_start_names_the_cells_and_a_survey_brings_them_back() -> None:
    desk = cells({"a.socket": 1, "a.node": 1})
    desk.submit("wide", 4, 0, tenant="t")
    desk.submit("small", 2, 0, tenant="t")
    desk.submit("guest", 2, -1, tenant="t")
    assert {name: start.cells for name, start in desk.starts.items()} == {
        "wide": ("node",) * 4,
        "small": ("socket",) * 2,
        "guest": (),
    }
    fresh = cells({"a.socket": 1, "a.node": 1})
    fresh.now = 1000.0
    for name, size, priority in (("wide", 4, 0), ("small", 2, 0), ("guest", 2, -1)):
        made = job(name, 0.0, size, 1e6, accelerator="a", tenant="t", priority=priority)
        fresh.scheduler.handle(JobSubmitted(0.0, made))
    runs = [Running(name, start.epoch, start.gpus, 0.0, cells=start.cells) for name, start in desk.starts.items()]
    fresh.tell(Surveyed(1000.0, tuple(runs)))
    for name, start in desk.starts.items():
        lease = fresh.scheduler.leases.by_epoch[start.epoch]
        assert fresh.scheduler.ledger.cell_levels(lease.gpus) == start.cells, name
        assert fresh.scheduler.status(name) is Status.RUNNING


def test_a_job_in_a_cell_spares_guests_where_other_gpus_of_the_cell_are_idle() -> None:
    desk = cells({"a.node": 3})
    for name, size in (("first", 4), ("second", 4), ("third", 2)):
        desk.submit(name, size, -1, tenant="t")  # guests
    (node,) = {gpu.node for gpu in desk.starts["third"].gpus}
    assert desk.submit("mine", 2, 0, tenant="t") == []
    assert {*desk.starts["mine"].gpus} == {*gpus(node, 0, 1, 2, 3)} - {*desk.starts["third"].gpus}
    assert desk.submit("more", 2, 0, tenant="t") == ["third"]  # the rest of the cell
