"""Writes a small store as text, with jobs in all states: `python make_old_store.py schema-1.sql schema-1.json`.

It is run once per schema, by the version that introduced it; every later version must read what it wrote. The second
file has what must be found again.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from builders import cluster
from live_world import LiveEngine, World, run_until_quiet, start_loop, submit

from horae.model.events import Ending
from horae.model.serialization import Plain
from horae.model.setup import Cadence, PoolSpec, Setup
from horae.scheduler import Scheduler
from horae.service.models import JobSpec
from horae.service.store.database import open_database, sqlite_url
from horae.service.store.migrate import migrate

SPARE = PoolSpec("spare", "las", cadence=Cadence.ROUNDS, round_seconds=20.0, admits_between_rounds=True)
SETUP = Setup(
    cluster(2, 2, "A100"), (PoolSpec("nlp", tenants=("nlp",), cells={"A100.node": 1}), SPARE), acknowledge_seconds=5.0
)


def facts(scheduler: Scheduler) -> Plain:
    """What must be the same after a change of version."""
    dump = scheduler.dump()
    jobs = {}
    for job_id, (pool, serial) in sorted(scheduler.jobs.live.items()):
        row, table = pool.table.row[serial], pool.table.view(scheduler.now)
        status = scheduler.status(job_id)
        jobs[job_id] = {
            "status": None if status is None else status.name,
            "steps": float(table.steps_done[row]),
            "gpu_seconds": float(table.service_gpu_seconds[row]),
            "submitted_at": float(table.submitted_at[row]),
        }
    return {
        "jobs": jobs,
        "leases": dump["leases"],
        "failures": dump["jobs"]["failures"],
        "ended": dump["jobs"]["ended"],
        "next": dump["next"],
        "now": dump["now"],
    }


def scenario(store: Path, folder: Path, setup: Setup = SETUP) -> tuple[LiveEngine, Plain]:
    """Jobs run, wait, finish, fail and are tried again, with events after the last snapshot."""
    database = open_database(sqlite_url(store))
    migrate(database)
    engine = LiveEngine(World())
    loop = start_loop(database, engine, setup, folder)
    ids = submit(
        database,
        JobSpec(run="true", gpus=2, tenant="nlp"),
        JobSpec(run="true", gpus=1, tenant="vision", retries=2),
        JobSpec(run="true", gpus=1, tenant="vision"),
        JobSpec(run="true", gpus=2, tenant="vision"),
    )
    run_until_quiet(loop)
    engine.world.seconds += 15.0
    for job_id in engine.running:
        engine.running[job_id].steps = 7.0
    engine.end(ids[2])
    engine.end(ids[1], Ending.FAILED, "exit code 1")
    run_until_quiet(loop)
    found = facts(loop.scheduler)
    database.dispose()
    return engine, found


def main(dump: Path, expected: Path) -> None:
    with TemporaryDirectory() as folder:
        store = Path(folder) / "store.db"
        _, found = scenario(store, Path(folder))
        with sqlite3.connect(store) as connection:
            dump.write_text("\n".join(connection.iterdump()) + "\n")
    expected.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
