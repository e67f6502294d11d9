"""`horae whatif` over the log of a real service with real processes, three tenants and three policies."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from command_line import horae
from live_service import service, wait_for

from horae.experiments.simulate import simulate
from horae.forks.account import Account
from horae.forks.change import ALL, Change, Policy
from horae.forks.forward import Watch
from horae.forks.recording import Recording, read_recording
from horae.forks.whatif import whatif
from horae.journal import read_journal
from horae.model.commands import Start
from horae.model.jobs import Arrival, Truth
from horae.scheduler import Scheduler
from horae.service.models import JobView, LeaseView

CLUSTER = """
name: lab
restart_seconds: 1
nodes:
  - {name: "a[0-1]", gpu: A100, gpus: 4}
  - {name: v0, gpu: V100, gpus: 4}
tenants:
  nlp: {weight: 2, policy: max-min, cadence: rounds, round_seconds: 2, cells: {A100.node: 1}}
  vision: {policy: {tiresias: {limits: [8]}}, cadence: rounds, round_seconds: 2, cells: {V100.node: 1}}
spare: {policy: themis, cadence: rounds, round_seconds: 2}
"""
TENANTS = ("nlp", "vision", "other")
JOBS = 18
CLOSE_SECONDS = 1e-3  # the log's times are rounded in the API


def _spec(number: int) -> dict[str, object]:
    """Its length is known to the job alone."""
    seconds, gpus = 0.5 + 0.25 * (number % 7), (2, 4, 1)[number // 3 % 3]
    return {"tenant": TENANTS[number % 3], "gpus": gpus, "run": f"sleep {seconds}", "checkpoint": {}}


@pytest.fixture(scope="module")
def journal_and_tables(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, Path, dict[str, JobView], list[LeaseView]]:
    """The log of a whole life of a service, as a journal and as its state folder, and what its API says happened."""
    folder = tmp_path_factory.mktemp("live")
    (folder / "lab.yaml").write_text(CLUSTER)
    with service(folder, "--config", str(folder / "lab.yaml")) as running, running.client() as client:
        client.submit([_spec(number) for number in range(JOBS)])
        wait_for(client, ["finished"], poll_seconds=0.5)
        jobs = {job.id: job for job in client.jobs()}
        leases = [lease for job_id in jobs for lease in client.leases(job_id)]
        path = folder / "journal.jsonl"
        written = horae("journal", path, "--state", running.state)
        assert (written.code, written.err) == (0, ""), written
        return path, running.state, jobs, leases


def _recording(path: Path) -> Recording:
    journal = read_journal(path)
    return read_recording(Scheduler(journal.setup), journal.entries)


def _leases(account: Account) -> list[tuple[str, float, int]]:
    """By lease: the job, when it was given, and how many GPUs."""
    log = account.log()
    ids = [log.jobs.id[row] for row in log.leases.job]
    return sorted(zip(ids, log.leases.started_at.tolist(), log.leases.gpus.tolist(), strict=True))


def _ended(account: Account) -> dict[str, float]:
    jobs = account.log().jobs
    return dict(zip(jobs.id, jobs.ended_at.tolist(), strict=True))


def test_the_recorded_events_decided_again_give_what_the_service_did(
    journal_and_tables: tuple[Path, Path, dict[str, JobView], list[LeaseView]],
) -> None:
    path, _, jobs, leases = journal_and_tables
    outcomes = whatif(_recording(path), Change())
    assert outcomes.is_replay
    assert _leases(outcomes.changed) == _leases(outcomes.recorded)
    assert _ended(outcomes.changed) == _ended(outcomes.recorded)
    assert outcomes.changed.started == outcomes.recorded.started

    recording = _recording(path)
    scheduler, starts = recording.scheduler(), set()
    for event, effects in recording.events:
        for command in scheduler.handle(event, effects).commands:
            if isinstance(command, Start):
                starts |= {(job_id, command.epoch, tuple(map(str, command.gpus))) for job_id in command.job_ids}
    assert starts == {(each.job_id, each.epoch, tuple(each.places)) for each in leases}, (
        "the same jobs on the same GPUs"
    )
    assert len(_leases(outcomes.changed)) == len(leases) >= JOBS == len(jobs)
    first = min(each.granted_at for each in leases)
    assert any(each.granted_at > first + 1.0 for each in leases), "none had to wait"


def test_the_command_says_so_for_the_journal_and_for_the_state_folder(
    journal_and_tables: tuple[Path, Path, dict[str, JobView], list[LeaseView]],
) -> None:
    path, state, *_ = journal_and_tables
    for source in (path, state):
        found = json.loads(horae("whatif", "--journal", source, "-o", "json").out)
        assert found["is_replay"] and (found["unchanged"], found["jobs"]) == (JOBS, JOBS)
        assert found["recorded"] == found["changed"] == found["same"]
        assert {each["tenant"] for each in found["tenants"]} == set(TENANTS)
    changed = json.loads(horae("whatif", "--journal", path, "--policy", "srtf", "-o", "json").out)
    assert (changed["is_replay"], changed["change"], changed["jobs"]) == (False, ["policy srtf"], JOBS)


@pytest.mark.parametrize("policy", ["fifo", "srtf", "tiresias"])
def test_another_policy_gives_the_schedule_of_a_simulation_of_the_same_trace(
    policy: str, journal_and_tables: tuple[Path, Path, dict[str, JobView], list[LeaseView]]
) -> None:
    path, _, jobs, leases = journal_and_tables
    recording = _recording(path)
    trace = []
    for job in recording.submitted:
        truth = recording.lengths.truth(job.id)
        assert truth is not None
        trace.append(Arrival(job, truth))
    _check_lengths({each.job.id: each.truth for each in trace}, jobs, leases)
    pools = tuple(replace(pool, policy=policy, options={}) for pool in recording.setup.pools)
    simulated = Watch()
    simulate(replace(recording.setup, pools=pools), trace, recording.outside, observers=[simulated])
    outcomes = whatif(recording, Change(policies={ALL: Policy(policy)}))
    assert len(simulated.ended) == JOBS
    assert _ended(outcomes.changed) == pytest.approx(simulated.ended, abs=1e-6)
    assert outcomes.changed.started == pytest.approx(simulated.started, abs=1e-6)
    assert simulated.started != pytest.approx(outcomes.recorded.started, abs=0.5), "the change changed nothing"


def _copy(state: Path, folder: Path) -> Path:
    """A state folder with a copy of the store alone."""
    copy = folder / "state"
    copy.mkdir()
    with closing(sqlite3.connect(state / "store.db")) as source, closing(sqlite3.connect(copy / "store.db")) as target:
        source.backup(target)
    return copy


def test_the_state_of_another_version_or_a_damaged_one_is_one_line(
    journal_and_tables: tuple[Path, Path, dict[str, JobView], list[LeaseView]], tmp_path: Path
) -> None:
    state = _copy(journal_and_tables[1], tmp_path)
    assert horae("whatif", "--journal", state).code == 0
    archive = state / "archive" / "events-000000000001-000000000001.parquet"
    archive.parent.mkdir()
    archive.write_text("no Parquet")
    assert re.search(r"parquet: cannot be read: .*; put a whole copy", horae("whatif", "--journal", state).complaint)
    pl.DataFrame({"seq": [1], "story": ["once"]}).write_parquet(archive)
    complaint = horae("whatif", "--journal", archive).complaint
    assert "other columns than this version's archives: seq, story; read it with the Horae that wrote it" in complaint
    archive.unlink()
    with closing(sqlite3.connect(state / "store.db")) as store, store:
        store.execute("UPDATE alembic_version SET version_num = '9999'")
    assert "store.db: --journal: has schema 9999" in horae("whatif", "--journal", state).complaint
    with closing(sqlite3.connect(state / "store.db")) as store, store:
        store.execute("DELETE FROM alembic_version")
    assert "is not a store of Horae" in horae("whatif", "--journal", state).complaint
    (state / "store.db").write_text("no database, though it has the name of one")
    assert "cannot be read: file is not a database" in horae("whatif", "--journal", state).complaint


def _check_lengths(truths: dict[str, Truth], jobs: dict[str, JobView], leases: list[LeaseView]) -> None:
    """What the log tells of a job's length is how long it ran, where it ran once and in its first shape."""
    checked = 0
    for job_id, truth in truths.items():
        own = [each for each in leases if each.job_id == job_id]
        ended_at, started_at = jobs[job_id].ended_at, own[0].started_at
        assert ended_at is not None and started_at is not None
        if len(own) == 1 and own[0].gpu_type == truth.options[0].shape.accelerator:
            seconds = truth.steps_total / truth.options[0].steps_per_second
            assert seconds == pytest.approx(ended_at - started_at, abs=CLOSE_SECONDS)
            checked += 1
    assert checked
