"""Two jobs on the same GPUs: they start, slow down, leave and are accounted for as the bundle that they are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from io import StringIO
from math import inf
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from builders import ACCELERATOR, arrival, cluster, handle
from builders import gpus as named
from faulty_engine import Faults, FaultyEngine

from horae.driver import run
from horae.engines.simulated import SimulatedEngine
from horae.experiments.replay import replay_file, replay_text
from horae.experiments.simulate import simulate
from horae.journal import JournalWriter
from horae.model.cluster import Cluster
from horae.model.commands import Command, Start, Stop, Survey
from horae.model.decisions import Pairs, Shares
from horae.model.errors import PolicyError
from horae.model.events import (
    Ending,
    Event,
    Health,
    JobCancelled,
    JobEnded,
    JobProgressed,
    JobStarted,
    JobSubmitted,
    NodeChanged,
    PolicyChanged,
    Running,
    Surveyed,
    Tick,
)
from horae.model.job_table import JobColumns
from horae.model.jobs import Arrival
from horae.model.reasons import AwaitsVictims, NoRoom
from horae.model.setup import Cadence, PoolSpec, RoundRules, Setup
from horae.model.shapes import Option, Shape
from horae.model.speeds import Sharing
from horae.model.status import Status
from horae.model.view import View
from horae.policies import registry
from horae.reports.bounds import Bounds, bounds
from horae.reports.metrics import measure
from horae.reports.recorder import Recorder
from horae.reports.run_log import RunLog
from horae.scheduler import Reaction, Scheduler

GPUS = (1, 2, 4)
FIRST, SECOND = named("n0", 0), named("n0", 1)
KEPT = (0.5, 0.8)  # of "m" beside "n", and of "n" beside "m"


@dataclass(frozen=True)
class Twins:
    """Jobs of one app share GPUs two by two; everybody else, or with `together` off everybody, has them alone."""

    name: ClassVar[str] = "twins"
    together: bool = True
    isolated: float = 0.0  # steps a second on a share of one's own

    def decide(self, view: View) -> Shares:
        jobs = view.jobs
        fraction = np.where(jobs.shape >= 0, jobs.weight[:, None], 0.0)
        isolated = np.full(len(jobs), self.isolated) if self.isolated else None
        rows = np.lexsort((jobs.serial, jobs.app))
        twins = np.flatnonzero(np.diff(jobs.app[rows]) == 0)
        if not self.together or not len(twins):
            return Shares(fraction, isolated_speed=isolated)
        first, second = rows[twins], rows[twins + 1]
        fraction[first] = fraction[second] = 0.0
        nought = np.zeros(len(first), dtype=np.int64)
        pairs = Pairs(first, second, nought, nought, jobs.weight[first])
        return Shares(fraction, pairs=pairs, isolated_speed=isolated)


@pytest.fixture(autouse=True)
def _twins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._LOADED, Twins.name, Twins)


def sharing(kept: tuple[float, float] = KEPT) -> tuple[Sharing, ...]:
    return tuple(Sharing(("m", "n"), ACCELERATOR, gpus, kept) for gpus in GPUS)


def lab(
    gpus: int = 1,
    nodes: int = 1,
    kept: tuple[float, float] = KEPT,
    cadence: Cadence = Cadence.ROUNDS,
    cpus: float = inf,
    **options: object,
) -> Setup:
    """Rounds of 10 seconds, in which whoever has had nothing comes first."""
    pool = PoolSpec("all", "twins", options, cadence, 10.0, rules=RoundRules(turn_rounds=0.0))
    machines = cluster(nodes, gpus, cpus=cpus, levels=(("switch", 2),) if gpus > 2 else ())
    return Setup(machines, (pool,), sharing=sharing(kept))


def m(id: str = "m", at: float = 0.0, gpus: int = 1, seconds: float = 100.0, **fields: Any) -> Arrival:
    return arrival(id, at, gpus, seconds, **({"model": "m", "app": "twins"} | fields))


def n(id: str = "n", at: float = 0.0, gpus: int = 1, seconds: float = 100.0, **fields: Any) -> Arrival:
    return arrival(id, at, gpus, seconds, **({"model": "n", "app": "twins"} | fields))


def ends(setup: Setup, arrivals: Iterable[Arrival], outside: Iterable[Event] = (), **fields: Any) -> dict[str, float]:
    log = simulate(setup, arrivals, outside, **fields).log
    return dict(zip(log.jobs.id, log.jobs.ended_at.tolist(), strict=True))


class Desk:
    """A scheduler, told one thing after the other; all that it commands is kept."""

    def __init__(self, setup: Setup) -> None:
        self.scheduler = Scheduler(setup)
        self.commands: list[Command] = []

    def tell(self, *events: Event) -> list[Command]:
        before = len(self.commands)
        for event in events:
            self.commands.extend(handle(self.scheduler, event).commands)
            if self.scheduler.next_wakeup_at <= event.at:
                self.commands.extend(handle(self.scheduler, Tick(event.at)).commands)
        return self.commands[before:]

    def submit(self, *arrivals: Arrival) -> list[Command]:
        for each in arrivals:
            self.commands.extend(handle(self.scheduler, JobSubmitted(each.job.submitted_at, each.job)).commands)
        return self.tell(Tick(max(each.job.submitted_at for each in arrivals)))

    def run_pair(self, **fields: Any) -> None:
        """The two of them, on the same GPUs under epoch 0."""
        self.submit(m(**fields), n(**fields))
        self.tell(JobStarted(0.0, "m", 0), JobStarted(0.0, "n", 0))

    def tick(self, at: float) -> list[Command]:
        before = len(self.commands)
        self.commands.extend(handle(self.scheduler, Tick(at)).commands)
        return self.commands[before:]

    def statuses(self, *ids: str) -> list[Status | None]:
        return [self.scheduler.status(id) for id in ids]

    def jobs(self, at: float) -> tuple[JobColumns, dict[str, int]]:
        """The table, and its rows by job."""
        table = self.scheduler.pools.all[0].table
        return table.view(at), {id: row for row, id in enumerate(table.ids)}


# What becomes of the two


def test_two_share_a_lease_and_the_one_that_is_left_goes_on_at_full_speed() -> None:
    # Beside each other "n" ends after 100 / 0.8 = 125 s; "m" has done 62.5 by then and needs 37.5 more.
    assert ends(lab(), [m(), n()]) == {"n": 125.0, "m": 162.5}


def test_two_gangs_share_their_gpus() -> None:
    assert ends(lab(gpus=4), [m(gpus=4), n(gpus=4)]) == {"n": 125.0, "m": 162.5}


def test_who_shares_is_told_in_one_start() -> None:
    desk = Desk(lab())
    (start,) = desk.submit(m(), n())
    assert start == Start(0, ("m", "n"), FIRST, Shape(ACCELERATOR, 1, "gpu"), (0.0, 0.0), (False, False))
    assert desk.statuses("m", "n") == [Status.STARTING] * 2


def test_the_pace_of_a_gang_is_that_of_its_own_size() -> None:
    rows = (*sharing(), Sharing(("m", "n"), ACCELERATOR, 8, (1.0, 1.0)))
    setup = replace(lab(gpus=8), sharing=rows)
    assert ends(setup, [m(gpus=8), n(gpus=8)]) == {"m": 100.0, "n": 100.0}


def test_steps_are_believed_at_the_pace_that_two_keep() -> None:
    desk = Desk(lab())
    desk.run_pair()
    jobs, row = desk.jobs(at=50.0)
    assert (jobs.steps_left[row["m"]], jobs.steps_left[row["n"]]) == (75.0, 60.0)
    desk.tell(JobEnded(60.0, "n", 0, Ending.FINISHED, 100.0))
    jobs, row = desk.jobs(at=90.0)
    assert jobs.steps_left[row["m"]] == 100.0 - 60.0 * 0.5 - 30.0
    assert jobs.partner.tolist() == [-1]


def test_isolated_seconds_count_the_steps_that_were_done_in_company() -> None:
    desk = Desk(lab(isolated=0.25))
    desk.run_pair()
    jobs, row = desk.jobs(at=40.0)
    assert (jobs.isolated_seconds[row["m"]], jobs.isolated_seconds[row["n"]]) == (80.0, 128.0)


def test_a_report_of_progress_counts_beside_the_pace() -> None:
    desk = Desk(lab())
    desk.run_pair()
    desk.tell(JobProgressed(20.0, "m", 0, 15.0))
    jobs, row = desk.jobs(at=40.0)
    assert jobs.steps_done[row["m"]] == 15.0 + 20.0 * 0.5


# Leaving, together and apart


def test_a_pair_is_preempted_together_and_comes_back_together() -> None:
    # A third job comes at 5. Shares are new at 10, when the earlier ones go first; at 20 it has had nothing of its own,
    # and at 30 it has ended. By 20 the two have done 10 and 16 steps.
    log = simulate(lab(), [m(), n(), arrival("alone", 5.0, seconds=10)]).log
    starts = [(log.jobs.id[row], at) for row, at in zip(log.leases.job, log.leases.started_at, strict=True)]
    assert sorted(starts) == [("alone", 20.0), ("m", 0.0), ("m", 30.0), ("n", 0.0), ("n", 30.0)]
    assert dict(zip(log.jobs.id, log.jobs.ended_at, strict=True)) == {"alone": 30.0, "n": 135.0, "m": 172.5}


def test_both_pay_for_their_own_restart() -> None:
    jobs = [m(restart_seconds=8.0), n(restart_seconds=4.0), arrival("alone", 5.0, seconds=10)]
    # They restart at 30, with 10 and 16 steps done; "n" works from 34 on, and "m" from 38 on.
    n_ends = 34.0 + 84.0 / 0.8
    m_done = 10.0 + (n_ends - 38.0) * 0.5
    assert ends(lab(), jobs) == {"alone": 30.0, "n": n_ends, "m": pytest.approx(n_ends + 100.0 - m_done)}


def test_one_moves_from_alone_to_a_pair_and_back() -> None:
    # "m" is alone until 20, shares until "n" is cancelled at 50, and is alone again: 20 + 30 / 2 + 65.
    assert ends(lab(), [m(), n(at=15.0)], [JobCancelled(50.0, "n")]) == {"n": 50.0, "m": 115.0}


def test_a_pair_of_which_both_would_rather_be_alone_parts() -> None:
    # On two GPUs, each gets one of its own when the policy changes at 30, as of the round at 30.
    change = PolicyChanged(30.0, "all", "twins", {"together": False})
    assert ends(lab(gpus=2), [m(), n()], [change]) == {"m": 30.0 + 85.0, "n": 30.0 + 76.0}


def test_a_policy_that_ranks_takes_over_while_two_share() -> None:
    # Whoever runs keeps what it has under fifo: the two go on side by side.
    assert ends(lab(gpus=2), [m(), n()], [PolicyChanged(30.0, "all", "fifo")]) == {"n": 125.0, "m": 162.5}


def test_who_ends_first_does_not_free_the_gpus() -> None:
    desk = Desk(lab())
    desk.run_pair()
    assert desk.tell(JobEnded(5.0, "n", 0, Ending.FINISHED, 100.0)) == []
    assert desk.scheduler.ledger.holder.tolist() == [0]
    desk.tell(JobEnded(7.0, "m", 0, Ending.FINISHED, 100.0))
    assert desk.scheduler.ledger.holder.tolist() == [-1]


def test_who_ends_first_in_a_tenants_cell_leaves_the_cell_to_the_other() -> None:
    """A cell that nobody uses is anybody's; this one is in use all the time, and a guest stays away."""
    alone = lab()
    own = replace(alone.pools[0], name="own", tenants=("t",), cells={"v100.node": 1})
    spare = PoolSpec("spare", "fifo", {}, Cadence.ROUNDS, 10.0)
    setup = replace(alone, pools=(own, spare))
    guest = arrival("guest", 10.0, 1, 50.0, tenant="somebody")
    # n has 80 steps by then, the last 20 alone: m is left at 62.5 with 31.25 of its steps done, and ends at 131.25.
    assert ends(setup, [m(tenant="t"), n(seconds=50.0, tenant="t"), guest]) == {
        "n": 62.5, "m": 131.25, "guest": pytest.approx(190.0)
    }  # fmt: skip


def test_a_node_that_fails_takes_both_with_it() -> None:
    broken = [NodeChanged(40.0, "n0", Health.FAILED), NodeChanged(60.0, "n0", Health.HEALTHY)]
    # 20 and 32 steps are done; from 60 on the two go on together.
    assert ends(lab(), [m(), n()], broken) == {"n": 60.0 + 68.0 / 0.8, "m": 145.0 + 80.0 - 42.5}


def test_checkpoints_of_two_who_share_are_those_of_their_clock() -> None:
    # Checkpoints at 30 and 60. "n" ends at 50, with 25 steps of "m" done; the node fails at 55: 15 of them are safe.
    setup = lab()
    broken = [NodeChanged(55.0, "n0", Health.FAILED), NodeChanged(60.0, "n0", Health.HEALTHY)]
    assert ends(setup, [m(), n(seconds=40)], broken, checkpoint_seconds=30.0) == {"n": 50.0, "m": 60.0 + 85.0}


def test_one_of_the_two_is_cancelled_while_both_run() -> None:
    desk = Desk(lab())
    desk.run_pair(grace_seconds=5.0)
    assert desk.tell(JobCancelled(30.0, "n")) == [Stop(0, "n", 5.0)]
    assert desk.statuses("m", "n") == [Status.RUNNING, Status.CANCELLING]
    desk.tell(JobEnded(34.0, "n", 0, Ending.STOPPED, 20.0))
    assert desk.statuses("m", "n") == [Status.RUNNING, Status.CANCELLED]
    jobs, row = desk.jobs(at=40.0)
    assert jobs.steps_done[row["m"]] == 34.0 * 0.5 + 6.0


def test_one_that_fails_leaves_the_other_running_and_comes_back() -> None:
    # "n" fails for the first time at 25 and has a second try; the two are together again from the round at 30 on.
    failing = n(retries_max=1)
    failing = replace(failing, truth=replace(failing.truth, fails_at_step=20.0))
    log = simulate(lab(), [m(), failing]).log
    ended = dict(zip(log.jobs.id, log.jobs.ended_at.tolist(), strict=True))
    # "m" does 12.5 until 25, 5 until 30, 12.5 until 55, and the rest alone.
    assert ended == {"n": 55.0, "m": 55.0 + 70.0}


# Holds


def holding() -> Desk:
    """Since 20 a pair holds the GPU that an older job is leaving."""
    desk = Desk(lab())
    desk.submit(arrival("old", grace_seconds=5.0))
    desk.tell(JobStarted(0.0, "old", 0))
    desk.submit(m(at=10.0), n(at=10.0))
    assert desk.tick(20.0) == [Stop(0, "old", 5.0)]
    return desk


def test_a_pair_for_which_others_leave_starts_when_they_have() -> None:
    desk = holding()
    assert desk.statuses("m", "n") == [Status.HOLDING] * 2
    assert desk.scheduler.why("m") == desk.scheduler.why("n") == AwaitsVictims(("old",))
    (start,) = desk.tell(JobEnded(22.0, "old", 0, Ending.STOPPED, 22.0))
    assert isinstance(start, Start) and start.job_ids == ("m", "n")


def test_the_other_one_waits_again_when_one_of_a_pair_that_holds_is_cancelled() -> None:
    desk = holding()
    desk.tell(JobCancelled(21.0, "n"))
    assert desk.statuses("m", "n") == [Status.PENDING, Status.CANCELLED]
    assert (desk.scheduler.ledger.held_for == -1).all()
    desk.tell(JobEnded(22.0, "old", 0, Ending.STOPPED, 22.0), JobCancelled(23.0, "old"))
    (start,) = desk.tick(30.0)
    assert isinstance(start, Start) and start.job_ids == ("m",)


def test_a_hold_that_takes_too_long_is_undone_for_both() -> None:
    desk = holding()
    desk.tick(55.0)  # 5 seconds of grace and 30 to tell of it
    assert desk.statuses("m", "n") == [Status.PENDING] * 2
    assert (desk.scheduler.ledger.held_for == -1).all() and desk.scheduler.holds.by_serial == {}


def test_two_victims_of_one_lease_must_both_have_left() -> None:
    desk = Desk(lab())
    desk.run_pair(grace_seconds=5.0)
    desk.submit(arrival("new", at=10.0))
    assert desk.tick(20.0) == [Stop(0, "m", 5.0), Stop(0, "n", 5.0)]
    assert desk.tell(JobEnded(21.0, "n", 0, Ending.STOPPED, 16.0)) == []
    (start,) = desk.tell(JobEnded(22.0, "m", 0, Ending.STOPPED, 11.0))
    assert isinstance(start, Start) and start.job_ids == ("new",)


def test_one_that_moves_into_company_leaves_first() -> None:
    desk = Desk(lab())
    desk.submit(m(grace_seconds=5.0))
    desk.tell(JobStarted(0.0, "m", 0))
    assert desk.submit(n(at=10.0)) == [Stop(0, "m", 5.0)]
    assert desk.statuses("m", "n") == [Status.STOPPING, Status.HOLDING]
    (start,) = desk.tell(JobEnded(12.0, "m", 0, Ending.STOPPED, 12.0))
    assert isinstance(start, Start) and (start.job_ids, start.steps_done) == (("m", "n"), (12.0, 0.0))


def test_a_mover_that_finishes_on_its_way_lets_the_other_wait() -> None:
    desk = Desk(lab())
    desk.submit(m(grace_seconds=5.0))
    desk.tell(JobStarted(0.0, "m", 0))
    desk.submit(n(at=10.0))
    desk.tell(JobEnded(12.0, "m", 0, Ending.FINISHED, 100.0))
    assert desk.statuses("m", "n") == [Status.FINISHED, Status.PENDING]
    (start,) = desk.tick(20.0)
    assert isinstance(start, Start) and start.job_ids == ("n",)


# Messages


def test_a_start_that_comes_twice_changes_nothing() -> None:
    setup = lab()
    engine = SimulatedEngine(setup.cluster, [m(), n()], sharing=setup.sharing)
    engine.wait(0.0)
    start = Start(0, ("m", "n"), FIRST, Shape(ACCELERATOR, 1, "gpu"), (0.0, 0.0), (False, False))
    assert engine.execute([start]) == engine.execute([start]) == [JobStarted(0.0, "m", 0), JobStarted(0.0, "n", 0)]
    engine.wait(50.0)
    engine.execute([start])
    assert engine.execute([Survey()]) == [Surveyed(50.0, (Running("m", 0, FIRST, 25.0), Running("n", 0, FIRST, 40.0)))]
    engine.wait(100.0)
    moment = engine.wait(inf)
    assert moment is not None and moment.events == [JobEnded(125.0, "n", 0, Ending.FINISHED, 100.0)]


def test_an_engine_starts_nobody_again_under_a_lease_that_it_has_left() -> None:
    setup = lab()
    engine = SimulatedEngine(setup.cluster, [m(), n()], sharing=setup.sharing)
    engine.wait(0.0)
    start = Start(0, ("m", "n"), FIRST, Shape(ACCELERATOR, 1, "gpu"), (0.0, 0.0), (False, False))
    engine.execute([start])
    engine.wait(10.0)
    (ended,) = engine.execute([Stop(0, "n", 0.0)])
    assert engine.execute([start]) == [JobStarted(10.0, "m", 0), ended]
    engine.wait(20.0)
    assert engine.execute([Survey()]) == [Surveyed(20.0, (Running("m", 0, FIRST, 15.0),))]


def test_who_is_started_elsewhere_no_longer_slows_the_other() -> None:
    setup = lab(gpus=2)
    engine = SimulatedEngine(setup.cluster, [m(), n()], sharing=setup.sharing)
    engine.wait(0.0)
    shape = Shape(ACCELERATOR, 1, "gpu")
    engine.execute([Start(0, ("m", "n"), FIRST, shape, (0.0, 0.0), (False, False))])
    engine.wait(10.0)
    engine.execute([Start(1, ("n",), SECOND, shape, (8.0,), (True,))])
    engine.wait(20.0)
    assert engine.execute([Survey()]) == [Surveyed(20.0, (Running("m", 0, FIRST, 15.0), Running("n", 1, SECOND, 18.0)))]


def test_a_start_is_sent_again_to_those_who_are_still_there() -> None:
    desk = Desk(lab())
    desk.submit(m(), n())
    desk.tell(JobStarted(0.0, "n", 0), JobEnded(5.0, "n", 0, Ending.FINISHED, 100.0))
    again = desk.tick(30.0)
    assert [command.job_ids for command in again if isinstance(command, Start)] == [("m",)]


def test_a_survey_finds_that_one_of_the_two_is_gone() -> None:
    desk = Desk(lab())
    desk.run_pair()
    desk.tell(Surveyed(20.0, (Running("m", 0, FIRST, 10.0),)))
    assert desk.statuses("m", "n") == [Status.STOPPING, Status.HOLDING]  # on its way to being together again
    jobs, row = desk.jobs(at=20.0)
    assert jobs.pace[row["m"]] == 1.0


@pytest.mark.parametrize("cadence", Cadence)
def test_a_journal_of_pairs_replays_to_the_last_byte(tmp_path: Path, cadence: Cadence) -> None:
    setup, page = lab(gpus=2, nodes=2, cadence=cadence), tmp_path / "journal"
    jobs = [m("m0", app="a"), n("n0", app="a"), n("n1", 7.0, app="b"), m("m1", 9.0, app="b"), m("m2", 20.0, 2)]
    outside: list[Event] = [
        PolicyChanged(40.0, "all", "twins", {"together": False}),
        PolicyChanged(60.0, "all", "twins"),
        NodeChanged(70.0, "n0", Health.FAILED),
        JobCancelled(90.0, "m0"),
        NodeChanged(110.0, "n0", Health.HEALTHY),
    ]
    log = simulate(setup, jobs, outside, journal=page).log
    assert (log.leases.shared_seconds > 0).any()
    assert replay_file(page).difference == ""


def test_a_scheduler_that_is_replayed_while_two_share_is_in_the_same_state() -> None:
    page, setup = StringIO(), lab()
    scheduler, writer = Scheduler(setup), JournalWriter(page)
    writer.open(setup)
    events: list[Event] = [JobSubmitted(0.0, m().job), JobSubmitted(0.0, n(retries_max=1).job), Tick(0.0)]
    events += [JobStarted(0.0, "m", 0), JobStarted(0.0, "n", 0), Tick(10.0)]
    events += [JobEnded(25.0, "n", 0, Ending.FAILED, 0.0), Tick(30.0)]
    for event in events:
        writer.heard(event)
        writer.reacted(event, handle(scheduler, event))
    replayed = replay_text(page.getvalue())
    assert replayed.difference == "" and replayed.scheduler.dump() == scheduler.dump()


# The account


def shared_run(kept: tuple[float, float]) -> RunLog:
    """One GPU at 36 an hour, for two jobs of 100 seconds that are submitted at once."""
    setup = lab(kept=kept)
    priced = Cluster("lab", (replace(setup.cluster.nodes[0], price_per_hour=36.0),))
    return simulate(replace(setup, cluster=priced), [m(user="ada"), n(user="bob")]).log


def test_a_gpu_that_two_share_counts_once_and_they_pay_half_each() -> None:
    measured = measure(shared_run(KEPT))
    assert (measured.makespan_seconds, measured.utilisation, measured.fragmentation) == (162.5, 1.0, 0.0)
    assert measured.gpu_hours * 3600 == pytest.approx(162.5)
    assert measured.cost == pytest.approx(1.625)
    # 125 seconds together, and 37.5 that "m" has alone.
    assert measured.users["bob"].gpu_hours * 3600 == pytest.approx(62.5)
    assert measured.users["ada"].cost == pytest.approx(1.0)


def test_what_both_lose_to_restarts_counts_once() -> None:
    # Both resume at 30, for 8 and for 4 seconds: the GPU is lost for 4 to both, and for 4 more half of it is.
    jobs = [m(restart_seconds=8.0), n(restart_seconds=4.0), arrival("alone", 5.0, seconds=10)]
    assert measure(simulate(lab(), jobs).log).restart_gpu_hours * 3600 == pytest.approx(4 + 2)


def test_a_log_that_ends_early_counts_those_who_still_share() -> None:
    setup = lab()
    recorder = Recorder(setup)
    for at, ids in ((0.0, ("m", "n")),):
        for each in (m(), n()):
            recorder.reacted(JobSubmitted(at, each.job), Reaction((), ()))
        start = Start(0, ids, FIRST, Shape(ACCELERATOR, 1, "gpu"), (0.0, 0.0), (False, False))
        recorder.reacted(Tick(at), Reaction((start,), ()))
    recorder.reacted(Tick(40.0), Reaction((), ()))
    assert recorder.log().leases.shared_seconds.tolist() == [40.0, 40.0]
    recorder.reacted(JobEnded(60.0, "n", 0, Ending.FAILED, 0.0), Reaction((), ()))
    recorder.reacted(Tick(80.0), Reaction((), ()))
    assert recorder.log().leases.gpu_seconds.tolist() == [30.0, 50.0]


def test_the_lower_bounds_hold_for_two_who_lose_nothing_by_sharing() -> None:
    log = shared_run((1.0, 1.0))
    assert measure(log).completion_mean_seconds == measure(log).makespan_seconds == 100.0
    assert bounds(log) == Bounds(100.0, 100.0)


def test_the_lower_bounds_hold_for_two_who_gain_by_sharing() -> None:
    log = shared_run((1.25, 1.0))
    measured, least = measure(log), bounds(log)
    assert (measured.completion_mean_seconds, measured.makespan_seconds) == (90.0, 100.0)
    assert least.completion_mean_seconds <= 90.0 and least.makespan_seconds <= 100.0


def test_where_nobody_shared_the_bounds_are_those_of_before() -> None:
    apart = [arrival("a", model="m"), arrival("b", model="n")]
    assert bounds(simulate(lab(), apart).log) == Bounds(150.0, 200.0)


# What fits


def test_the_cpus_of_both_count() -> None:
    # Of 6 CPUs the two need 4 and 2, so that a third job with 1 has to wait until one of them has left.
    setup = lab(gpus=2, cpus=6.0)
    jobs = [m(cpus_per_gpu=4.0), n(cpus_per_gpu=2.0), arrival("third", 1.0, seconds=10, cpus_per_gpu=1.0, weight=1e-3)]
    log = simulate(replace(setup, pools=(replace(setup.pools[0], rules=RoundRules()),)), jobs).log
    started = dict(zip(log.jobs.id, log.jobs.started_at.tolist(), strict=True))
    assert started == {"m": 0.0, "n": 0.0, "third": 130.0}


def test_two_that_part_on_their_node_are_in_nobodys_way_elsewhere() -> None:
    # Until the two have left each other, the CPUs that they have and those that are held for them are more than the
    # node has. A third job on another node need not care.
    desk = Desk(lab(gpus=2, nodes=2, cpus=8.0))
    desk.submit(arrival("filler", cpus_per_gpu=7.0))
    desk.tell(JobStarted(0.0, "filler", 0))
    fields: dict[str, Any] = {"at": 5.0, "cpus_per_gpu": 3.0, "grace_seconds": 5.0}
    desk.submit(m(**fields), n(**fields))
    desk.tick(10.0)
    desk.tell(JobStarted(10.0, "m", 1), JobStarted(10.0, "n", 1))
    desk.tell(PolicyChanged(12.0, "all", "twins", {"together": False}))
    assert desk.tick(20.0) == [Stop(1, "n", 5.0), Stop(1, "m", 5.0)]
    desk.tell(JobSubmitted(21.0, arrival("third", 21.0, cpus_per_gpu=1.0).job))
    (start,) = desk.tick(30.0)
    assert isinstance(start, Start) and start.job_ids == ("third",)


def test_a_pair_that_needs_more_cpus_than_there_are_does_not_start() -> None:
    desk = Desk(lab(gpus=2, cpus=5.0))
    assert desk.submit(m(cpus_per_gpu=4.0), n(cpus_per_gpu=2.0)) == []
    assert desk.statuses("m", "n") == [Status.PENDING] * 2


def test_a_pair_is_placed_as_closely_as_either_of_the_two_asks() -> None:
    # Two switches of two GPUs, of each of which one GPU is taken: "m" would do with any two, but "n" needs a switch.
    desk = Desk(lab(gpus=4))
    desk.submit(*(arrival(f"s{index}") for index in range(4)))
    for index in range(4):
        desk.tell(JobStarted(0.0, f"s{index}", index))
    for index in (0, 2):
        desk.tell(JobEnded(1.0, f"s{index}", index, Ending.FINISHED, 100.0))
    loose = replace(m().job, options=(Option(Shape(ACCELERATOR, 2, "node"), 1.0),))
    tight = replace(n().job, options=(Option(Shape(ACCELERATOR, 2, "switch"), 1.0),))
    desk.tell(JobSubmitted(2.0, loose), JobSubmitted(2.0, tight))
    assert desk.tick(10.0) == []
    assert isinstance(desk.scheduler.why("m"), NoRoom)
    desk.tell(JobEnded(11.0, "s1", 1, Ending.FINISHED, 100.0))
    (start,) = desk.tick(20.0)
    assert isinstance(start, Start) and (start.job_ids, start.shape.level) == (("m", "n"), "switch")


def test_two_that_do_not_fit_together_never_start() -> None:
    desk = Desk(lab(kept=(0.5, 0.0)))
    with pytest.raises(PolicyError, match="do not fit"):
        desk.submit(m(), n())


@pytest.mark.parametrize("seed", range(5))
def test_pairs_end_although_messages_get_lost_delayed_doubled_and_invented(seed: int) -> None:
    setup = replace(lab(gpus=2, nodes=2), survey_seconds=120.0)
    jobs = [
        make(f"{model}{index}", 20.0 * index, app=f"app{index}", restart_seconds=2.0, grace_seconds=float(index % 3))
        for index in range(8)
        for model, make in (("m", m), ("n", n))
    ]
    simulated = SimulatedEngine(setup.cluster, jobs, sharing=setup.sharing)
    faults = Faults(drop_command=0.1, drop_event=0.1, double=0.2, delay=0.2, lie=0.2)
    scheduler = Scheduler(setup)
    run(scheduler, FaultyEngine(simulated, faults, seed), [], strict=True)
    assert {scheduler.status(each.job.id) for each in jobs} == {Status.FINISHED}
