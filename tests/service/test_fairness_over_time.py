"""What the loop keeps of fairness and GPU-hours over time: bounded in number, nothing where nothing changes."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from builders import cluster
from live_world import LiveEngine, World, run_until_quiet, start_loop, submit
from sqlalchemy import Engine, insert, select

from horae.model.decisions import Shares
from horae.model.setup import Cadence, PoolSpec, Setup
from horae.service.loop.fairness_rows import APPS_SAMPLED, HOURLY_KEPT_SECONDS, live_rho
from horae.service.loop.loop import Loop
from horae.service.loop.questions import about_jobs
from horae.service.models import JobSpec
from horae.service.store.database import reading, writing
from horae.service.store.schema import fairness, gpu_hours, jobs

OWN = PoolSpec("nlp", tenants=("nlp",), cells={"A100.node": 1}, cadence=Cadence.ROUNDS, round_seconds=1000.0)
SETUP = Setup(cluster(2, 4, "A100"), (OWN, PoolSpec("spare")))


def rows(database: Engine, table: Any = fairness) -> list[Any]:
    with reading(database) as connection:
        return list(connection.execute(select(table).order_by(table.c.at)).all())


def minutes(loop: Loop, engine: LiveEngine, count: int) -> None:
    for _ in range(count):
        engine.world.seconds += 30.0
        run_until_quiet(loop)
        engine.world.seconds += 31.0
        run_until_quiet(loop)


def test_a_tenant_has_one_row_per_minute_and_none_while_nothing_changes(database: Engine, tmp_path: Path) -> None:
    engine = LiveEngine(World())
    loop = start_loop(database, engine, SETUP, tmp_path)
    ids = submit(database, *[JobSpec(run="true", gpus=4, tenant="vision", steps=900.0)] * 3)
    run_until_quiet(loop)
    minutes(loop, engine, 3)
    whole = [row for row in rows(database) if (row.tenant, row.app) == ("vision", "")]
    assert len(whole) >= 3
    assert all(later.at - earlier.at >= 60.0 for earlier, later in pairwise(whole))
    last = whole[-1]
    assert (last.gpus, last.guaranteed_gpus, last.waiting_jobs) == (8, 0, 1)
    known = live_rho(loop.scheduler, last.at).values()
    assert (last.rho, last.rho_max) == (pytest.approx(sum(known) / 3, abs=1e-4), max(known))
    for job_id in list(engine.running):
        engine.end(job_id)
    run_until_quiet(loop)
    assert list(engine.running) == ids[2:], "it had waited for GPUs of the others"
    engine.end(ids[2])
    minutes(loop, engine, 2)
    ended = rows(database)
    (end,) = [row for row in ended if row.tenant == "vision" and row.app == ""][-1:]
    assert (end.rho, end.rho_max, end.gpus, end.waiting_jobs) == (None, None, 0, 0)
    minutes(loop, engine, 5)
    assert rows(database) == ended, "nothing is written while nothing changes"


def test_rho_is_that_which_the_scheduler_tells_of_each_job(database: Engine, tmp_path: Path) -> None:
    engine = LiveEngine(World())
    own = PoolSpec("nlp", tenants=("nlp",), cells={"A100.node": 1})
    loop = start_loop(database, engine, Setup(cluster(3, 4, "A100"), (own, PoolSpec("spare"))), tmp_path)
    ids = submit(
        database,
        JobSpec(run="true", gpus=4, tenant="nlp", steps=500.0),
        JobSpec(run="true", gpus=4, tenant="nlp", steps=700.0),  # without room in its cells: it borrows
        JobSpec(run="true", gpus=4, tenant="vision", steps=800.0),
        JobSpec(run="true", gpus=2, tenant="vision", steps=300.0),  # it waits
    )
    run_until_quiet(loop)
    minutes(loop, engine, 1)
    ids += submit(database, JobSpec(run="true", gpus=1, tenant="vision"))  # an event: the scheduler's time goes on
    run_until_quiet(loop)
    found, now = live_rho(loop.scheduler, loop.scheduler.now), loop.scheduler.now
    expected = {each: loop.scheduler.rho(each) for each in ids}
    assert found == {each: round(rho, 4) for each, rho in expected.items() if rho is not None}
    assert found.keys() == {*ids[:4]}, "one in its cells, one that borrows, one of all, and one that waits"
    assert loop.scheduler.jobs.lent
    assert about_jobs(loop.scheduler, {"rho": ids}) == {"rho": {each: found.get(each) for each in ids}}
    assert live_rho(loop.scheduler, now + 100.0) != found, "it grows without an event"


def test_of_apps_the_oldest_few_have_rows(database: Engine, tmp_path: Path) -> None:
    engine = LiveEngine(World())
    loop = start_loop(database, engine, SETUP, tmp_path)
    ids = submit(database, *[JobSpec(run="true", gpus=1, tenant="vision", steps=900.0)] * (APPS_SAMPLED + 2))
    run_until_quiet(loop)
    minutes(loop, engine, 2)
    assert {row.app for row in rows(database) if row.app} == set(ids[:APPS_SAMPLED])
    engine.end(ids[0])
    run_until_quiet(loop)
    at = rows(database)[-1].at
    minutes(loop, engine, 2)
    assert {row.app for row in rows(database) if row.app and row.at > at} == set(ids[1 : APPS_SAMPLED + 1])


def test_old_rows_are_thinned_and_forgotten(database: Engine, tmp_path: Path) -> None:
    engine = LiveEngine(World(seconds=100 * 86_400.0))
    loop = start_loop(database, engine, SETUP, tmp_path)
    engine.world.seconds += HOURLY_KEPT_SECONDS + 86_400.0
    now = engine.now()
    values = {"tenant": "x", "app": "", "rho": 1.0, "rho_max": 1.0, "gpus": 0, "guaranteed_gpus": 0, "waiting_jobs": 0}
    ages = {"now": (60.0, False), "day": (2 * 86_400.0, False), "hour": (2 * 86_400.0 + 1, True)}
    ages |= {"old": (HOURLY_KEPT_SECONDS + 60.0, True), "end": (2 * 86_400.0 - 1800.0, False)}
    with writing(database) as connection:
        for name, (age, is_hourly) in ages.items():
            row = {**values, "tenant": "y" if name in ("day", "end") else name, "at": now - age, "is_hourly": is_hourly}
            connection.execute(insert(fairness).values(**row, own_wait_seconds=0.0))
        old = {"gpu_type": "A100", "held": 1.0, "idle": 0.0, "unusable": 0.0}
        connection.execute(insert(gpu_hours).values(at=now - HOURLY_KEPT_SECONDS - 3600.0, **old))
        connection.execute(insert(gpu_hours).values(at=now - 7200.0, **old))
    minutes(loop, engine, 2)
    assert {row.tenant for row in rows(database)} & ages.keys() == {"now", "hour"}
    assert [row.at for row in rows(database) if row.tenant == "y"] == [now - ages["end"][0]], "it stands until the next"
    assert min(row.at for row in rows(database, gpu_hours)) == now - 7200.0


def test_all_gpu_seconds_are_in_an_hour(database: Engine, tmp_path: Path) -> None:
    engine = LiveEngine(World())
    loop = start_loop(database, engine, SETUP, tmp_path)
    known, unknown = submit(database, *[JobSpec(run="true", gpus=2, tenant="vision")] * 2)
    run_until_quiet(loop)
    gpu, other = engine.running[known].gpus
    engine.idle = {gpu: 30.0, other: 0.0}
    minutes(loop, engine, 70)
    engine.idle = {gpu: 6.0}
    minutes(loop, engine, 2)
    found = rows(database, gpu_hours)
    assert [(row.at, row.gpu_type) for row in found] == [(0.0, "A100"), (3600.0, "A100")]
    total = sum(row.held + row.idle + row.unusable for row in found)
    assert total == pytest.approx(8 * engine.now(), abs=8 * 200.0), "but for what is not written yet"
    assert sum(row.held for row in found) == pytest.approx(total / 2, rel=0.02)
    assert [row.unused for row in found] == [30.0, 6.0]
    with reading(database) as connection:
        unused = dict(connection.execute(select(jobs.c.id, jobs.c.unused_gpu_seconds)).all())
    assert unused == {known: 36.0, unknown: None}


def test_prices_are_those_of_the_shares_in_force(database: Engine, tmp_path: Path) -> None:
    engine = LiveEngine(World())
    fair = PoolSpec("all", "max-min", cadence=Cadence.ROUNDS, round_seconds=20.0)
    loop = start_loop(database, engine, Setup(cluster(1, 4, "A100"), (fair,)), tmp_path)
    run_until_quiet(loop)
    assert about_jobs(loop.scheduler, {"prices": True}) == {"prices": [{"pool": "all", "policy": "max-min"}]}
    submit(database, *[JobSpec(run="true", gpus=4, tenant="vision", steps=900.0)] * 2)
    run_until_quiet(loop)
    minutes(loop, engine, 1)
    (told,) = about_jobs(loop.scheduler, {"prices": True})["prices"]
    (pool,) = loop.scheduler.pools
    assert isinstance(pool.decision, Shares) and pool.decision.evidence is not None
    assert told["value"] == pool.decision.evidence.value <= told["bound"]
    ((name, price, is_full),) = told["prices"]
    assert (name, is_full) == ("A100", True)
    assert price > 0, "two jobs want all of them"
