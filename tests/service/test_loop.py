"""The loop: requests become jobs, jobs run and end, and a new process continues where the last one stopped."""

from __future__ import annotations

import json
import os
import socket
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from builders import cluster
from live_world import LiveEngine, World, cancel, run_until_quiet, start_loop, states, submit
from patience import HANG_SECONDS
from sqlalchemy import Engine, insert, select, update

from horae.model.cluster import Cluster, Gpu, Node
from horae.model.events import Ending, GpuChanged, GpuState
from horae.model.setup import Cadence, PoolSpec, Setup
from horae.service.backup import backup, restore
from horae.service.config import ServiceConfig
from horae.service.loop import loop as loop_module
from horae.service.loop.decision_times import DecisionTimes
from horae.service.models import Checkpoint, JobSpec
from horae.service.store.database import open_database, reading, sqlite_url, writing
from horae.service.store.migrate import migrate
from horae.service.store.schema import gpus, inbox, jobs, leases, nodes, usage
from horae.service.unix_socket import short_address

SETUP = Setup(cluster(2, 4, "A100"), (PoolSpec("all"),), acknowledge_seconds=5.0)


def test_a_job_is_submitted_runs_and_finishes(database: Engine, tmp_path: Path) -> None:
    engine = LiveEngine(World())
    loop = start_loop(database, engine, SETUP, tmp_path)
    (job_id,) = submit(database, JobSpec(name="bert", run="true", gpus=2))
    run_until_quiet(loop)
    assert states(database) == {job_id: "running"}
    assert engine.running[job_id].gpus
    engine.world.seconds += 100
    engine.end(job_id)
    run_until_quiet(loop)
    with reading(database) as connection:
        row = connection.execute(select(jobs)).one()
        lease = connection.execute(select(leases)).one()
        used = connection.execute(select(usage).where(usage.c.user != "")).one()
        assert connection.execute(select(inbox)).all() == []
    assert (row.state, row.held_gpus, row.epoch) == ("finished", 0, None)
    assert row.run_seconds == pytest.approx(100, abs=2)
    assert (lease.ending, lease.gpus, lease.ended_at) == ("finished", 2, row.ended_at)
    assert used.gpu_seconds == pytest.approx(row.gpu_seconds)


def test_the_loop_gathers_requests_only_while_several_come_together(
    database: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = start_loop(database, LiveEngine(World()), SETUP, tmp_path)
    run_until_quiet(loop)
    pauses: list[float] = []
    monkeypatch.setattr(loop_module, "time", SimpleNamespace(sleep=pauses.append, perf_counter=time.perf_counter))
    for count, pauses_before in ((1, 0), (3, 0), (1, 1), (1, 1)):
        submit(database, *[JobSpec(run="true")] * count)
        loop.step()
        assert len(pauses) == pauses_before
    assert states(database).keys() == {"1", "2", "3", "4", "5", "6"}


OWN = PoolSpec("nlp", tenants=("nlp",), cells={"A100.node": 1})


def test_a_lease_on_cells_that_their_owner_takes_back_keeps_why_it_ended(database: Engine, tmp_path: Path) -> None:
    engine = LiveEngine(World())
    loop = start_loop(database, engine, Setup(cluster(2, 4, "A100"), (OWN, PoolSpec("spare"))), tmp_path)
    guests = submit(database, *[JobSpec(run="true", gpus=4, tenant="vision", checkpoint=Checkpoint())] * 2)
    run_until_quiet(loop)
    (owner,) = submit(database, JobSpec(run="true", gpus=4, tenant="nlp"))
    run_until_quiet(loop)
    assert ended_leases(database) == [(guests[0], "stopped", f"preempted by {owner}")]
    with reading(database) as connection:
        counts = connection.execute(select(jobs.c.id, jobs.c.preemptions).order_by(jobs.c.number)).all()
    assert [tuple(each) for each in counts] == [(guests[0], 1), (guests[1], 0), (owner, 0)]


def test_a_lease_on_borrowed_gpus_from_which_a_job_returns_keeps_why_it_ended(database: Engine, tmp_path: Path) -> None:
    nodes_ = Cluster("lab", (Node("n0", "A100", 4), Node("n1", "V100", 4)))
    engine = LiveEngine(World())
    loop = start_loop(database, engine, Setup(nodes_, (OWN, PoolSpec("spare"))), tmp_path)
    spec = JobSpec(
        run="true", gpus=4, tenant="nlp", steps=1e6, speed={"A100": 10.0, "V100": 1.0}, checkpoint=Checkpoint()
    )
    first, second = submit(database, spec, spec)
    run_until_quiet(loop)
    engine.end(first)
    run_until_quiet(loop)
    assert ended_leases(database) == [(first, "finished", ""), (second, "stopped", "moves to 4 x A100 in one node")]
    assert states(database) == {first: "finished", second: "running"}


def ended_leases(database: Engine) -> list[tuple[str, str, str]]:
    query = select(leases.c.job_id, leases.c.ending, leases.c.reason).where(leases.c.ended_at.is_not(None))
    with reading(database) as connection:
        return [tuple(row) for row in connection.execute(query.order_by(leases.c.epoch))]


def test_the_slowest_decision_is_the_one_since_it_was_last_asked_for() -> None:
    times = DecisionTimes()
    assert times.take_slowest() == 0.0
    for seconds in (0.5, 3.0, 1.0):
        times.note(seconds)
    assert (times.count, times.last_seconds, times.take_slowest()) == (3, 1.0, 3.0)
    times.note(2.0)
    assert (times.count, times.take_slowest(), times.take_slowest()) == (4, 2.0, 0.0)


def test_the_loop_tells_its_slowest_decision_once(database: Engine, tmp_path: Path) -> None:
    loop = start_loop(database, LiveEngine(World()), SETUP, tmp_path)

    def ask(question: str) -> dict[str, float]:
        with socket.socket(socket.AF_UNIX) as client, short_address(tmp_path / "loop.sock") as address:
            client.settimeout(HANG_SECONDS)
            client.connect(address)
            client.sendall(f'{{"{question}": true}}\n'.encode())
            for _ in range(2):  # it is connected, then read
                loop.step()
            found: dict[str, float] = json.loads(client.makefile().readline())
            return found

    run_until_quiet(loop)
    ask("slowest_decision")
    submit(database, JobSpec(run="true"))
    run_until_quiet(loop)
    told = ask("ping")
    assert told["decisions"] > 0 and "slowest_decision_seconds" not in told, "it is kept for those who ask for it"
    assert ask("slowest_decision")["slowest_decision_seconds"] >= told["decision_seconds"] > 0
    assert ask("slowest_decision")["slowest_decision_seconds"] == 0
    loop.close()


def test_a_new_process_adopts_what_runs(database: Engine, tmp_path: Path) -> None:
    engine = LiveEngine(World())
    loop = start_loop(database, engine, SETUP, tmp_path)
    ids = submit(database, *[JobSpec(run="true", gpus=2)] * 5)
    run_until_quiet(loop)
    ran = dict(engine.running)
    assert len(ran) == 4
    again = start_loop(database, engine, SETUP, tmp_path)
    run_until_quiet(again)
    assert engine.running == ran
    assert len(engine.starts) == 4
    engine.end(ids[0])
    run_until_quiet(again)
    assert states(database) == {ids[0]: "finished", **dict.fromkeys(ids[1:], "running")}


def test_time_after_a_job_has_ended_is_not_charged(database: Engine, tmp_path: Path) -> None:
    engine = LiveEngine(World())
    loop = start_loop(database, engine, SETUP, tmp_path)
    (job_id,) = submit(database, JobSpec(run="true", gpus=2, max_duration=500))
    run_until_quiet(loop)
    engine.world.seconds += 100
    engine.end(job_id)
    engine.world.seconds += 1000  # the service is down
    run_until_quiet(start_loop(database, engine, SETUP, tmp_path))
    with reading(database) as connection:
        row = connection.execute(select(jobs)).one()
        lease = connection.execute(select(leases)).one()
        used = connection.execute(select(usage)).one()
    assert (row.state, lease.ended_at) == ("finished", row.ended_at)
    assert row.run_seconds == pytest.approx(100, abs=2)
    assert used.gpu_seconds == pytest.approx(2 * row.run_seconds)
    assert row.ended_at == pytest.approx(100, abs=4)


def test_jobs_wait_for_those_before_them(database: Engine, tmp_path: Path) -> None:
    engine = LiveEngine(World())
    loop = start_loop(database, engine, SETUP, tmp_path)
    first, second = submit(database, *[JobSpec(run="true")] * 2)
    third, fourth = submit(database, JobSpec(run="true", after=[first]), JobSpec(run="true", after=[second]))
    run_until_quiet(loop)
    assert states(database)[third] == "waiting"
    loop = start_loop(database, engine, SETUP, tmp_path)
    engine.world.seconds += 1
    engine.end(first)
    engine.end(second, Ending.FAILED)
    run_until_quiet(loop)
    assert states(database) == {first: "finished", second: "failed", third: "running", fourth: "cancelled"}


def test_a_lease_keeps_why_it_ended(database: Engine, tmp_path: Path) -> None:
    """The events that tell it are archived some day; the leases stay."""
    engine = LiveEngine(World())
    loop = start_loop(database, engine, SETUP, tmp_path)
    first, second = submit(database, JobSpec(run="true"), JobSpec(run="true", retries=1))
    run_until_quiet(loop)
    engine.end(first, Ending.FAILED, "exit code 3")
    engine.end(second, Ending.LOST, "Xid 79")
    run_until_quiet(loop)
    with reading(database) as connection:
        rows = connection.execute(select(leases).order_by(leases.c.job_id, leases.c.epoch)).all()
    told = [(row.job_id, row.ending, row.reason) for row in rows]
    assert told == [(first, "failed", "exit code 3"), (second, "lost", "Xid 79"), (second, "", "")]


def test_a_job_is_cancelled_when_its_time_is_over(database: Engine, tmp_path: Path) -> None:
    engine = LiveEngine(World())
    loop = start_loop(database, engine, SETUP, tmp_path)
    submit(database, JobSpec(run="true", max_duration=60))
    run_until_quiet(loop)
    engine.world.seconds += 61
    run_until_quiet(loop)
    with reading(database) as connection:
        row = connection.execute(select(jobs)).one()
    assert (row.state, row.reason) == ("cancelled", "it ran for its maximum of 60 s")


def test_a_waiting_job_is_cancelled_at_once(database: Engine, tmp_path: Path) -> None:
    engine = LiveEngine(World())
    loop = start_loop(database, engine, SETUP, tmp_path)
    first, second = submit(database, *[JobSpec(run="true", gpus=4)] * 2)
    (third,) = submit(database, JobSpec(run="true", gpus=4))
    run_until_quiet(loop)
    assert states(database)[third] == "pending"
    cancel(database, third)
    cancel(database, first)
    run_until_quiet(loop)
    assert states(database) == {first: "cancelled", second: "running", third: "cancelled"}


def test_the_configuration_is_private_from_the_first_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "chmod", lambda *_: None)  # it would come too late
    (tmp_path / "config.new").touch(0o644)  # of a process that was killed
    for _ in range(2):
        ServiceConfig(SETUP, tmp_path, "postgresql://user:password@host/store").save(tmp_path / "config.json")
        assert (tmp_path / "config.json").stat().st_mode & 0o777 == 0o600


def test_after_the_restore_of_an_old_backup_all_running_jobs_are_adopted(tmp_path: Path) -> None:
    store, copy = tmp_path / "store.db", tmp_path / "copy.db"
    database = open_database(sqlite_url(store))
    migrate(database)
    engine = LiveEngine(World())
    loop = start_loop(database, engine, SETUP, tmp_path)
    submit(database, JobSpec(name="old", run="true", gpus=2))
    run_until_quiet(loop)
    backup(tmp_path, copy)
    submit(database, *[JobSpec(name="young", run="true", gpus=2, tenant="nlp")] * 2)
    run_until_quiet(loop)
    ran = dict(engine.running)
    assert len(ran) == 3
    database.dispose()
    restore(tmp_path, copy)
    database = open_database(sqlite_url(store))
    loop = start_loop(database, engine, SETUP, tmp_path, used_term=2)
    run_until_quiet(loop)
    assert engine.running == ran, "nothing was stopped or started"
    with reading(database) as connection:
        rows = {row.id: (row.name, row.tenant, row.state) for row in connection.execute(select(jobs))}
    assert rows == {"1": ("old", "default", "running"), **dict.fromkeys("23", ("young", "nlp", "running"))}
    for job_id in ran:
        engine.end(job_id)
    run_until_quiet(loop)
    assert set(states(database).values()) == {"finished"}


def test_a_job_file_that_cannot_be_read_is_refused_and_the_loop_goes_on(database: Engine, tmp_path: Path) -> None:
    engine = LiveEngine(World())
    loop = start_loop(database, engine, SETUP, tmp_path)
    bad, good = submit(database, *[JobSpec(run="true")] * 2)
    with writing(database) as connection:
        connection.execute(update(jobs).where(jobs.c.id == bad).values(spec='{"run": "true", "user": ""}'))
    run_until_quiet(loop)
    assert states(database) == {bad: "cancelled", good: "running"}


def test_opening_a_store_again_in_one_process_keeps_its_locks(tmp_path: Path) -> None:
    """Closing any descriptor of the file would drop the locks of the process, and its log would be deleted in use."""
    path = tmp_path / "store.db"
    database = open_database(sqlite_url(path))
    migrate(database)
    inode, opened = path.stat().st_ino, []
    real = os.open

    def watched(name: object, flags: int, *more: int) -> int:
        descriptor = real(name, flags, *more)  # type: ignore[arg-type]
        opened.append(os.fstat(descriptor).st_ino)
        return descriptor

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "open", watched)
        open_database(sqlite_url(path))
    assert inode not in opened


def test_another_configuration_is_applied_while_jobs_run(database: Engine, tmp_path: Path) -> None:
    engine = LiveEngine(World())
    spare = PoolSpec("spare", "max-min", cadence=Cadence.ROUNDS, round_seconds=300.0)
    loop = start_loop(database, engine, Setup(cluster(2, 4, "A100"), (replace(spare, name="all"),)), tmp_path)
    (job_id,) = submit(database, JobSpec(run="true", gpus=4))
    run_until_quiet(loop)
    ran = dict(engine.running)
    rounds = replace(spare, cadence=Cadence.EVENTS, round_seconds=60.0)
    own = PoolSpec("nlp", "fifo", tenants=("nlp",), cells={"A100.node": 1}, quota={"A100": 8})
    wanted = Setup(cluster(3, 4, "A100"), (own, rounds), tenant_weights={"nlp": 3.0})
    assert loop.change_setup(wanted) == ""
    run_until_quiet(loop)
    present = loop.scheduler.present_setup()
    by_name = {pool.name: pool for pool in present.pools}
    assert present.cluster.nodes == wanted.cluster.nodes
    assert (by_name["nlp"].cells, by_name["nlp"].policy, by_name["nlp"].cadence) == (own.cells, "fifo", own.cadence)
    assert (by_name["all"].policy, by_name["all"].cadence, by_name["all"].round_seconds) == (
        "max-min",
        Cadence.EVENTS,
        60.0,
    )
    assert present.tenant_weights["nlp"] == 3.0
    assert (states(database), engine.running) == ({job_id: "running"}, ran)
    too_much = replace(wanted, pools=(replace(own, cells={"A100.node": 9}), replace(rounds, round_seconds=30.0)))
    before = loop.scheduler.dump()
    assert "the tenants' cells exceed chain" in loop.change_setup(too_much)
    assert loop.scheduler.dump() == before


def test_a_node_with_two_failed_gpus_is_drained_until_an_operator_resumes_it(database: Engine, tmp_path: Path) -> None:
    engine = LiveEngine(World())
    loop = start_loop(database, engine, SETUP, tmp_path)
    (job_id,) = submit(database, JobSpec(run="true", gpus=2))
    run_until_quiet(loop)
    lost, _ = engine.running[job_id].gpus
    engine.events.append(GpuChanged(engine.now(), lost, GpuState.FAILED, "Xid 79"))
    run_until_quiet(loop)
    with reading(database) as connection:
        row = connection.execute(select(jobs)).one()
        assert connection.execute(select(gpus.c.gpu, gpus.c.note)).all() == [(str(lost), "Xid 79")]
        assert set(connection.scalars(select(nodes.c.health))) == {"healthy"}
    assert (row.state, row.failures, row.preemptions) == ("running", 0, 0)
    assert lost not in engine.running[job_id].gpus
    third = next(Gpu(lost.node, number) for number in range(4) if number != lost.number)
    engine.events.append(GpuChanged(engine.now(), third, GpuState.FAILED, "2 uncorrectable memory errors"))
    run_until_quiet(loop)
    with reading(database) as connection:
        (node,) = connection.execute(select(nodes).where(nodes.c.health == "draining")).all()
    names = ", ".join(map(str, sorted((lost, third))))
    assert (node.name, node.reason) == (lost.node, f"2 of its GPUs have failed: {names}")
    with writing(database) as connection:
        body = json.dumps({"node": lost.node, "at_wall": None, "reason": ""})
        connection.execute(insert(inbox).values(kind="DrainAt", payload=body, wall=0.0))
    run_until_quiet(loop)
    assert engine.repaired == [lost.node]


def test_idle_gpus_and_waiting_beside_own_cells_are_accounted_for(database: Engine, tmp_path: Path) -> None:
    engine = LiveEngine(World())
    own = PoolSpec("nlp", tenants=("nlp",), cells={"A100.node": 1}, cadence=Cadence.ROUNDS, round_seconds=1000.0)
    loop = start_loop(database, engine, Setup(cluster(2, 4, "A100"), (own, PoolSpec("spare"))), tmp_path)
    (job_id,) = submit(database, JobSpec(run="true", gpus=4, tenant="vision"))
    run_until_quiet(loop)
    assert submit(database, JobSpec(run="true", gpus=4, tenant="nlp"))  # its next round is far away
    run_until_quiet(loop)
    engine.world.seconds += 10.0
    run_until_quiet(loop)
    engine.world.seconds += 100.0
    (gpu, *_) = engine.running[job_id].gpus
    engine.idle = {gpu: 30.0}
    run_until_quiet(loop)
    engine.end(job_id)
    run_until_quiet(loop)
    with reading(database) as connection:
        rows = {(row.user, row.kind): row for row in connection.execute(select(usage))}
        waited = dict(connection.execute(select(jobs.c.tenant, jobs.c.own_wait_seconds)).all())
    free, held = rows["", "idle"], rows["ada", "shared"]
    assert free.gpu_seconds == free.idle_seconds == pytest.approx(4 * 110, abs=60)
    assert (held.gpu_seconds, held.idle_seconds) == (pytest.approx(4 * 110, abs=45), 30.0)
    assert (waited["vision"], waited["nlp"]) == (0.0, pytest.approx(110, abs=12))
