"""Ten real processes share four emulated GPUs: they are demoted, stopped and resumed, and all of them finish."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from patience import HANG_SECONDS

from horae import driver
from horae.engines.local.submissions import SubmittingEngine
from horae.experiments.replay import replay_file
from horae.journal import JournalWriter
from horae.model.cluster import Cluster, Gpu, Node
from horae.model.commands import Command, Start, Stop
from horae.model.decisions import Ranking
from horae.model.events import Ending, Event, JobEnded
from horae.model.jobs import Job
from horae.model.plans import Round
from horae.model.setup import Cadence, PoolSpec, Setup
from horae.model.shapes import Option, Shape
from horae.reports.recorder import Recorder
from horae.scheduler import Reaction, Scheduler

CLUSTER = Cluster("bench", (Node("a", "fast", 2), Node("b", "slow", 2)))
STEPS_PER_UNIT = {"fast": 40.0, "slow": 20.0}


def unit_seconds() -> float:
    """The unit of time of the run: a second, or longer where a program takes long to start.

    The long jobs must have done steps when the short ones come, 2.6 units later, on a machine of any speed.
    """
    program = [
        sys.executable,
        "-m",
        "horae.engines.local.example_trainer",
        "--steps",
        "1",
        "--steps-per-second",
        "1000",
    ]
    started_at = time.monotonic()
    subprocess.run(program, check=True, capture_output=True, timeout=HANG_SECONDS)
    return max(1.0, 4 * (time.monotonic() - started_at))


def the_pool(unit: float) -> PoolSpec:
    """Without promotions, which would come or not as the machine is slow or fast."""
    tiresias = {"limits": (1.0 * unit, 3.0 * unit), "promote_after": 0.0}
    return PoolSpec("all", policy="tiresias", options=tiresias, cadence=Cadence.ROUNDS, round_seconds=0.5 * unit)


def a_job(name: str, submitted_at: float, steps: int, unit: float) -> Job:
    speeds = {name: each / unit for name, each in STEPS_PER_UNIT.items()}
    program = (
        f"{shlex.quote(sys.executable)} -m horae.engines.local.example_trainer --steps {steps} --steps-per-second 1"
    )
    flags = " ".join(f"--speed {name}={speed}" for name, speed in speeds.items())
    return Job(
        name,
        submitted_at * unit,
        tuple(Option(Shape(name, 1, "node"), speed) for name, speed in speeds.items()),
        steps_total=float(steps),
        grace_seconds=HANG_SECONDS,
        command=f"{program} {flags}",
    )


def the_workload(unit: float) -> list[Job]:
    """Four long jobs fill the cluster and are demoted long before the short ones come, so that these preempt them."""
    return [
        *(a_job(f"long-{number}", 0.0, steps=140, unit=unit) for number in range(4)),
        *(a_job(f"short-{number}", 2.6, steps=12, unit=unit) for number in range(6)),
    ]


@dataclass
class Witness:
    """Remembers everything in the order in which it happened."""

    told: list[Event | Command] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)

    def reacted(self, event: Event, reaction: Reaction) -> None:
        self.told.append(event)
        self.told.extend(reaction.commands)
        self.rounds.extend(reaction.rounds)

    def of(self, job_id: str) -> list[Start | Stop | JobEnded]:
        """What one job was told to do, and how that ended."""
        story: list[Start | Stop | JobEnded] = []
        for item in self.told:
            match item:
                case Start(job_ids=job_ids) if job_id in job_ids:
                    story.append(item)
                case Stop() | JobEnded() if item.job_id == job_id:
                    story.append(item)
        return story

    def tiers(self, job_id: str) -> list[int]:
        """The queues in which a job stood, round by round."""
        tiers: list[int] = []
        for decided in self.rounds:
            assert isinstance(decided.decision, Ranking) and decided.decision.tier is not None
            if job_id in decided.job_ids:
                row = int(decided.rows[decided.job_ids.index(job_id)])
                tiers.append(int(decided.decision.tier[row]))
        return tiers


def test_ten_processes_share_four_gpus_of_two_types_under_tiresias(tmp_path: Path) -> None:
    unit = unit_seconds()
    setup, workload = Setup(CLUSTER, (the_pool(unit),)), the_workload(unit)
    witness, recorder = Witness(), Recorder(setup)
    journal = tmp_path / "journal.jsonl"
    with journal.open("w", encoding="utf-8") as file, SubmittingEngine(CLUSTER, workload, tmp_path / "jobs") as engine:
        writer = JournalWriter(file, flush=True)
        writer.open(setup)
        observers: list[driver.Observer] = [witness, recorder]
        driver.run(Scheduler(setup), engine, observers, writer, strict=True)
    records = {record.job_id: record for record in recorder.records()}
    assert {job_id: record.outcome for job_id, record in records.items()} == {job.id: "finished" for job in workload}
    assert any(was_demoted_stopped_and_resumed(witness, job.id) for job in workload)
    assert_every_resumption_continues_what_was_saved(witness, workload)
    assert_no_gpu_serves_two_jobs_at_once(witness)
    assert accelerators_used(witness) == set(STEPS_PER_UNIT)
    assert_the_journal_tells_a_story_of_demotion_stop_and_resumption(journal, workload)
    replayed = replay_file(journal)
    assert (replayed.difference, replayed.events > 40) == ("", True)


def assert_the_journal_tells_a_story_of_demotion_stop_and_resumption(journal: Path, workload: Sequence[Job]) -> None:
    """In the file as anybody can read it: a job sinks to a lower queue, is stopped, and resumes at what it saved."""
    lines = [json.loads(line) for line in journal.read_text(encoding="utf-8").splitlines()]
    told = 0
    for job in workload:
        tiers = [
            line["decision"]["tier"][job.id] for line in lines if job.id in line.get("decision", {}).get("tier", {})
        ]
        stops = [line["epoch"] for line in lines if line.get("command") == "Stop" and line["job_id"] == job.id]
        saved = {
            line["epoch"]: line["steps"]
            for line in lines
            if line.get("event") == "JobEnded" and line["job_id"] == job.id and line["ending"] == "stopped"
        }
        starts = [line for line in lines if line.get("command") == "Start" and line["job_ids"] == [job.id]]
        for epoch in stops:
            later = [start for start in starts if start["epoch"] > epoch]
            if saved.get(epoch) and max(tiers) > tiers[0] and later and later[0]["steps_done"] == [saved[epoch]]:
                told += 1
    assert told


def was_demoted_stopped_and_resumed(witness: Witness, job_id: str) -> bool:
    story = witness.of(job_id)
    rises = bool((np.diff(witness.tiers(job_id)) > 0).any())
    for first, stop, ended, second in zip(story, story[1:], story[2:], story[3:], strict=False):
        match first, stop, ended, second:
            case Start(), Stop(), JobEnded(ending=Ending.STOPPED), Start():
                if rises and ended.steps > 0 and second.steps_done == (ended.steps,):
                    return True
    return False


def assert_every_resumption_continues_what_was_saved(witness: Witness, workload: Sequence[Job]) -> None:
    for job in workload:
        steps_saved = 0.0
        for item in witness.of(job.id):
            if isinstance(item, JobEnded):
                steps_saved = item.steps
            elif isinstance(item, Start):
                assert item.steps_done == (steps_saved,)
        assert steps_saved == job.steps_total


def assert_no_gpu_serves_two_jobs_at_once(witness: Witness) -> None:
    user: dict[Gpu, int] = {}  # by GPU: the epoch of the lease on it
    for item in witness.told:
        if isinstance(item, Start):
            assert not user.keys() & item.gpus, f"{item} while {user}"
            user |= dict.fromkeys(item.gpus, item.epoch)
        elif isinstance(item, JobEnded):
            user = {gpu: epoch for gpu, epoch in user.items() if epoch != item.epoch}
    assert not user


def accelerators_used(witness: Witness) -> set[str]:
    return {item.shape.accelerator for item in witness.told if isinstance(item, Start)}
