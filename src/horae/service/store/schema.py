"""The tables of the store, schema 5. Times are seconds of the log (`horae.service.clock`) unless named `wall`.

`events` is the truth. The tables that the API reads (jobs, leases, nodes, ...) change in the same transactions, and can
be rebuilt from it.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
)

metadata = MetaData()
_Big = BigInteger().with_variant(Integer, "sqlite")  # SQLite numbers rows by itself only in INTEGER columns

meta = Table("meta", metadata, Column("key", String, primary_key=True), Column("value", Text, nullable=False))

# One row: which process may write, and the clock at its last transaction.
leader = Table(
    "leader",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("term", _Big, nullable=False),  # raised by every takeover; every transaction is conditional on it
    Column("incarnation", _Big, nullable=False),
    Column("holder", Text, nullable=False),
    Column("expires_at", Float, nullable=False),  # by the database's clock
    Column("url", Text, nullable=False),
    Column("at", Float, nullable=False),
    Column("boot_id", String, nullable=False),
    Column("boot_seconds", Float, nullable=False),
    Column("wall", Float, nullable=False),
)

events = Table(
    "events",
    metadata,
    Column("seq", _Big, primary_key=True, autoincrement=False),
    Column("term", _Big, nullable=False),
    Column("at", Float, nullable=False),
    Column("wall", Float, nullable=False),
    Column("kind", String, nullable=False),
    Column("payload", Text, nullable=False),  # the event's line in a journal
    Column("effects", LargeBinary, nullable=True),  # the lines that it led to, compressed; none: no effects
)

snapshots = Table(
    "snapshots",
    metadata,
    Column("seq", _Big, primary_key=True, autoincrement=False),  # the last event that it includes
    Column("at", Float, nullable=False),
    Column("version", Integer, nullable=False),
    Column("payload", LargeBinary, nullable=False),
)

# Requests that were accepted, and that the loop has not applied yet.
inbox = Table(
    "inbox",
    metadata,
    Column("id", _Big, primary_key=True, autoincrement=True),
    Column("kind", String, nullable=False),
    Column("payload", Text, nullable=False),
    Column("wall", Float, nullable=False),
    sqlite_autoincrement=True,
)

# The results of requests whose sender waits for one, deleted after an hour.
answers = Table(
    "answers",
    metadata,
    Column("inbox_id", _Big, primary_key=True, autoincrement=False),
    Column("at", Float, nullable=False),
    Column("problem", Text, nullable=False),  # "": done
)

counters = Table("counters", metadata, Column("name", String, primary_key=True), Column("value", _Big, nullable=False))

jobs = Table(
    "jobs",
    metadata,
    Column("id", String, primary_key=True),
    Column("number", _Big, nullable=False),
    Column("name", String, nullable=False),
    Column("app", String, nullable=False),
    Column("tenant", String, nullable=False),
    Column("user", String, nullable=False),
    Column("model", String, nullable=False),
    Column("state", String, nullable=False),
    Column("reason", Text, nullable=False),  # why it was refused, stopped or failed
    Column("spec", Text, nullable=False),  # the job file as accepted
    Column("gpus", Integer, nullable=False),  # requested: of its first shape
    Column("gpu_type", String, nullable=False),  # requested; "": any
    Column("held_gpus", Integer, nullable=False),
    Column("held_type", String, nullable=False),
    Column("places", Text, nullable=False),  # the GPUs that it holds, "n1/0 n1/1"
    Column("guaranteed", Boolean, nullable=False),
    Column("epoch", _Big, nullable=True),
    Column("submitted_at", Float, nullable=False),
    Column("first_started_at", Float, nullable=True),
    Column("started_at", Float, nullable=True),  # of its present lease
    Column("ended_at", Float, nullable=True),
    Column("run_seconds", Float, nullable=False),  # over all leases that have ended
    Column("gpu_seconds", Float, nullable=False),
    Column("preemptions", Integer, nullable=False),
    Column("failures", Integer, nullable=False),
    Column("steps", Float, nullable=False),  # saved
    Column("steps_total", Float, nullable=True),
    Column("resumable", Boolean, nullable=False),
    Column("rho", Float, nullable=True),
    Column("idempotency_key", String, nullable=True, unique=True),
    Column("changed_seq", _Big, nullable=False),
    # How long it waited while cells of its own tenant were free or lent to others.
    Column("own_wait_seconds", Float, nullable=False, server_default="0"),
    Column("unused_gpu_seconds", Float, nullable=True),  # held and not used; none: the engine has not measured it
)
Index("jobs_by_state", jobs.c.state, jobs.c.number)
Index("jobs_by_tenant", jobs.c.tenant, jobs.c.number)
Index("jobs_by_app", jobs.c.app)
Index("jobs_by_number", jobs.c.number)
Index("jobs_by_name", jobs.c.name, jobs.c.number)
Index("jobs_by_user", jobs.c.user, jobs.c.number)
Index("jobs_by_end", jobs.c.ended_at)

# Jobs in state "waiting", as they will be submitted to the scheduler when the jobs before them have finished.
waiting = Table("waiting", metadata, Column("job_id", String, primary_key=True), Column("job", Text, nullable=False))

leases = Table(
    "leases",
    metadata,
    Column("job_id", String, primary_key=True),
    Column("epoch", _Big, primary_key=True),
    Column("granted_at", Float, nullable=False),
    Column("started_at", Float, nullable=True),  # confirmed by the engine
    Column("until", Float, nullable=False),  # not preempted before
    Column("ended_at", Float, nullable=True),
    Column("gpu_type", String, nullable=False),
    Column("level", String, nullable=False),
    Column("gpus", Integer, nullable=False),
    Column("places", Text, nullable=False),
    Column("guaranteed", Boolean, nullable=False),
    Column("ending", String, nullable=False),  # "": it runs
    Column("reason", Text, nullable=False),
    Column("steps", Float, nullable=False),
)
Index("leases_by_end", leases.c.ended_at)

# Reports of jobs: not history, but the latest values; the log gets what decisions depend on.
progress = Table(
    "progress",
    metadata,
    Column("job_id", String, primary_key=True),
    Column("epoch", _Big, nullable=False),
    Column("wall", Float, nullable=False),
    Column("steps", Float, nullable=False),
    Column("saved", Float, nullable=False),
    Column("loss", Float, nullable=True),
    Column("steps_per_second", Float, nullable=True),
    Column("resumable", Boolean, nullable=False),
)

# Progress and losses over time, thinned to a bounded number per job.
points = Table(
    "points",
    metadata,
    Column("job_id", String, primary_key=True),
    Column("steps", Float, primary_key=True),
    Column("wall", Float, nullable=False),
    Column("loss", Float, nullable=True),
    Column("steps_per_second", Float, nullable=True),
)

# Trials of searches that stop some of them, inserted with their jobs; `search` is the number of these.
trials = Table(
    "trials",
    metadata,
    Column("job_id", String, primary_key=True),
    Column("search", _Big, nullable=False),
    Column("bracket", Integer, nullable=False),  # the trials that are halved together, and
    Column("size", Integer, nullable=False),  # how many they are
    Column("position", Integer, nullable=False),  # within the search
    Column("rung", Integer, nullable=False),
    Column("state", String, nullable=False),  # running, paused, finished, stopped, lost
    Column("steps", Float, nullable=False),  # of its last report that counts
    Column("loss", Float, nullable=True),  # in that report; none: no valid one
    Column("reached", Boolean, nullable=False),  # the end of its rung
)
Index("trials_by_search", trials.c.search, trials.c.position)

nodes = Table(
    "nodes",
    metadata,
    Column("name", String, primary_key=True),
    Column("gpu_type", String, nullable=False),
    Column("gpus", Integer, nullable=False),
    Column("health", String, nullable=False),
    Column("reason", Text, nullable=False),
    Column("drain_at", Float, nullable=True),
    Column("position", Integer, nullable=False),
)

# GPUs that cannot be used; all others can.
gpus = Table(
    "gpus",
    metadata,
    Column("gpu", String, primary_key=True),
    Column("state", String, nullable=False),
    Column("note", Text, nullable=False),
    Column("at", Float, nullable=False),
)

pools = Table(
    "pools",
    metadata,
    Column("name", String, primary_key=True),
    Column("spec", Text, nullable=False),
    Column("position", Integer, nullable=False),
)

tenants = Table(
    "tenants",
    metadata,
    Column("name", String, primary_key=True),
    Column("weight", Float, nullable=False),
    Column("webhook", Text, nullable=False),
)

usage = Table(
    "usage",
    metadata,
    Column("month", String, primary_key=True),  # "2026-11"
    Column("tenant", String, primary_key=True),
    Column("user", String, primary_key=True),
    Column("gpu_type", String, primary_key=True),
    # guaranteed, borrowed, shared; without tenant and user: idle or unusable GPUs, which no job held
    Column("kind", String, primary_key=True),
    Column("gpu_seconds", Float, nullable=False),
    Column("jobs", Integer, nullable=False),
    Column("idle_seconds", Float, nullable=False, server_default="0"),  # of these, held and not used, as far as known
)

# How tenants were treated over time, and some apps of each: at most one row per minute, and only where it has changed.
fairness = Table(
    "fairness",
    metadata,
    Column("at", Float, primary_key=True),
    Column("tenant", String, primary_key=True),
    Column("app", String, primary_key=True),  # "": the tenant as a whole
    Column("rho", Float, nullable=True),  # if its live jobs ended now: the mean over apps; none: not defined
    Column("rho_max", Float, nullable=True),
    Column("gpus", Integer, nullable=False),  # held
    Column("guaranteed_gpus", Integer, nullable=False),  # of these, in cells of the tenant
    Column("waiting_jobs", Integer, nullable=False),
    Column("own_wait_seconds", Float, nullable=False),  # of all its jobs since the last row, beside cells of their own
    Column("is_hourly", Boolean, nullable=False),  # the first of its hour, which is kept for longer
)
Index("fairness_by_tenant", fairness.c.tenant, fairness.c.at)

# GPU-seconds by hour and type.
gpu_hours = Table(
    "gpu_hours",
    metadata,
    Column("at", Float, primary_key=True),  # the beginning of the hour
    Column("gpu_type", String, primary_key=True),
    Column("held", Float, nullable=False),
    Column("idle", Float, nullable=False),  # held by no job
    Column("unusable", Float, nullable=False),
    Column("unused", Float, nullable=True),  # held, and not used; none: the engine has not measured it
)

# What the scheduler told its operators.
scheduler_notices = Table(
    "scheduler_notices",
    metadata,
    Column("id", _Big, primary_key=True, autoincrement=True),
    Column("seq", _Big, nullable=False),
    Column("at", Float, nullable=False),
    Column("kind", String, nullable=False),
    Column("text", Text, nullable=False),
    sqlite_autoincrement=True,
)

# What the webhooks of tenants are told, and how far that has come.
notices = Table(
    "notices",
    metadata,
    Column("id", _Big, primary_key=True, autoincrement=True),
    Column("at", Float, nullable=False),
    Column("tenant", String, nullable=False),
    Column("job", String, nullable=False),
    Column("kind", String, nullable=False),
    Column("payload", Text, nullable=False),  # JSON
    Column("delivered_at", Float, nullable=True),
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("next_attempt_at", Float, nullable=True),  # none: at once
    Column("last_error", Text, nullable=True),
    sqlite_autoincrement=True,
)
Index("notices_by_delivery", notices.c.delivered_at, notices.c.next_attempt_at)

# One row per app that was called for bids in an auction; the oldest auctions are forgotten.
auctions = Table(
    "auctions",
    metadata,
    Column("auction", _Big, primary_key=True, autoincrement=False),
    Column("app", String, primary_key=True),
    Column("pool", String, nullable=False),
    Column("tenant", String, nullable=False),
    Column("called_at", Float, nullable=False),
    Column("closes_at", Float, nullable=False),
    Column("offer", Text, nullable=False),  # JSON: numbers of GPUs, and the rho estimated with each
    Column("bid", Text, nullable=True),  # JSON, likewise
    Column("note", Text, nullable=False),  # why the estimate was its bid
    Column("closed_at", Float, nullable=True),
    Column("won_gpus", Integer, nullable=False),
    Column("lease_seconds", Float, nullable=False),
    Column("payment", Float, nullable=False),  # the fraction of its lease that it gave up
)
Index("auctions_by_end", auctions.c.closed_at)

# Measured speeds, of each tenant for itself.
speeds = Table(
    "speeds",
    metadata,
    Column("tenant", String, primary_key=True),
    Column("model", String, primary_key=True),
    Column("gpu_type", String, primary_key=True),
    Column("gpus", Integer, primary_key=True),
    Column("steps_per_second", Float, nullable=False),
    Column("reports", Integer, nullable=False),
    Column("wall", Float, nullable=False),  # of the latest; the oldest ones are forgotten
)
Index("speeds_by_age", speeds.c.tenant, speeds.c.wall)

tokens = Table(
    "tokens",
    metadata,
    Column("id", String, primary_key=True),
    Column("hash", String, nullable=False, unique=True),
    Column("name", String, nullable=False),
    Column("role", String, nullable=False),
    Column("tenant", String, nullable=False),  # "": all, for operators and viewers
    Column("user", String, nullable=False),
    Column("wall", Float, nullable=False),
    Column("expires_wall", Float, nullable=True),
)

audit = Table(
    "audit",
    metadata,
    Column("id", _Big, primary_key=True, autoincrement=True),
    Column("wall", Float, nullable=False),
    Column("user", String, nullable=False),
    Column("role", String, nullable=False),
    Column("action", String, nullable=False),
    Column("target", Text, nullable=False),
    Column("detail", Text, nullable=False),
    sqlite_autoincrement=True,
)
