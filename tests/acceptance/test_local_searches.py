"""Apps that search with real processes, by the losses that these report."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from local_jobs import SAVE

from horae import driver
from horae.engines.local.job_files import JobFolder, LocalReports
from horae.engines.local.submissions import SubmittingEngine
from horae.engines.search.engine import SearchEngine, first_jobs
from horae.experiments.replay import replay_file
from horae.journal import JournalWriter
from horae.model.cluster import Cluster, Node
from horae.model.events import CurveRevised, Ending, Event, JobCancelled, JobEnded, JobSubmitted
from horae.model.jobs import Arrival, Job, Truth
from horae.model.searches import Method, Search, Trial
from horae.model.setup import PoolSpec, Setup
from horae.model.shapes import Option, Shape
from horae.scheduler import Reaction, Scheduler

CLUSTER = Cluster("bench", (Node("a", "fast", 4),))
OPTIONS = (Option(Shape("fast", 1, "node"), 50.0),)
TRAINER = f"{shlex.quote(sys.executable)} -m horae.engines.local.example_trainer --steps-per-second 50 --loss "
FINISH = SAVE + 'save "$HORAE_STEPS_TOTAL"'


def a_trial(name: str, command: str, steps: float) -> Trial:
    """How its loss falls nobody knows before it says so."""
    job = Job(name, 0.0, OPTIONS, app="search", steps_total=steps, grace_seconds=10.0, command=command)
    return Trial(Arrival(job, Truth(steps, OPTIONS)))


@dataclass
class Witness:
    told: list[Event] = field(default_factory=list)

    def reacted(self, event: Event, reaction: Reaction) -> None:
        self.told.append(event)

    @property
    def submitted(self) -> list[str]:
        return [event.job.id for event in self.told if isinstance(event, JobSubmitted)]

    @property
    def endings(self) -> dict[str, tuple[Ending, float]]:
        return {event.job_id: (event.ending, event.steps) for event in self.told if isinstance(event, JobEnded)}


def run(search: Search, directory: Path) -> Witness:
    """The whole search, whose journal must be replayable."""
    setup, witness, journal = Setup(CLUSTER, (PoolSpec("all", "fifo"),)), Witness(), directory / "journal.jsonl"
    first = [arrival.job for arrival in first_jobs(search)]
    with journal.open("w", encoding="utf-8") as file, SubmittingEngine(CLUSTER, first, directory) as engine:
        writer = JournalWriter(file, flush=True)
        writer.open(setup)
        searching = SearchEngine(engine, [search], reports=LocalReports(directory))
        driver.run(Scheduler(setup), searching, [witness], writer, strict=True)
    assert replay_file(journal).difference == ""
    return witness


def test_a_hopeless_trial_is_killed_by_what_it_has_reported_and_the_good_one_finishes(tmp_path: Path) -> None:
    trials = (a_trial("good", TRAINER + "0.1,1,0.1", 100.0), a_trial("poor", TRAINER + "0.1,1,0.9", 5000.0))
    search = Search("search", 0.0, Method.CURVES, trials, look_seconds=0.25, patience=0.005)
    witness = run(search, tmp_path)
    assert [event.job_id for event in witness.told if isinstance(event, JobCancelled)] == ["poor"]
    assert witness.endings["good"] == (Ending.FINISHED, 100.0)
    ending, steps = witness.endings["poor"]
    assert ending is Ending.STOPPED
    assert 25 <= steps < 5000  # not before it has shown enough, and not to its end
    fitted = [event.curve for event in witness.told if isinstance(event, CurveRevised) and event.job_id == "good"]
    assert fitted[-1].floor == pytest.approx(0.1, abs=0.05)


def test_halving_promotes_by_reported_losses_and_each_rung_goes_on_with_the_one_before(tmp_path: Path) -> None:
    """After two steps the third is the best by a hair, and stays at 0.43; after six the second has 0.24."""
    curves = ["1,1,0.8", "1,1,0.1", "0,4,0.18", "1,1,0.9"]
    trials = tuple(a_trial(f"t{number}", TRAINER + curve, 14.0) for number, curve in enumerate(curves))
    witness = run(Search("search", 0.0, Method.HALVING, trials), tmp_path)
    assert witness.submitted == ["t0", "t1", "t2", "t3", "t1.1", "t2.1", "t1.2"]
    steps = {"t0": 2.0, "t1": 2.0, "t2": 2.0, "t3": 2.0, "t1.1": 4.0, "t2.1": 4.0, "t1.2": 8.0}
    assert witness.endings == {job_id: (Ending.FINISHED, each) for job_id, each in steps.items()}
    last = JobFolder.of(tmp_path, "t1.2")
    assert "step 0 of 8 on fast after 6 of earlier jobs" in last.output.read_text()
    first, *_ = last.reports.read_text().splitlines()
    assert [float(part) for part in first.split()] == pytest.approx([1.0, 1 / 8 + 0.1])


def test_garbled_reports_do_no_harm_and_silence_is_not_promoted(tmp_path: Path) -> None:
    garbled = r"""printf '1 0.\n\n\0\377 7\nloss: 0.01\n1 0.7\n2 0.0001' >> "$HORAE_REPORTS"; """
    report = 'echo "1 {}" >> "$HORAE_REPORTS"; '
    commands = ["", garbled, 'mkdir "$HORAE_REPORTS"; ', report.format(0.8)]
    trials = tuple(a_trial(f"t{number}", command + FINISH, 7.0) for number, command in enumerate(commands))
    witness = run(Search("search", 0.0, Method.HALVING, trials), tmp_path)
    assert witness.submitted[4:6] == ["t1.1", "t3.1"]
    assert witness.submitted[6:] == ["t1.2"]


def test_the_path_of_the_former_checkpoint_is_handed_on_only_if_there_is_one(tmp_path: Path) -> None:
    command = (
        'echo "${HORAE_CONTINUES-none}" > found; echo "1 0.5" >> "$HORAE_REPORTS"; [ $HORAE_JOB = t0 ] && exit; '
        + FINISH
    )
    trials = tuple(a_trial(f"t{number}", command, 7.0) for number in range(4))
    witness = run(Search("search", 0.0, Method.HALVING, trials), tmp_path)
    found = {
        job_id: (JobFolder.of(tmp_path, job_id).work / "found").read_text().strip() for job_id in witness.submitted
    }
    epochs = {event.job_id: event.epoch for event in witness.told if isinstance(event, JobEnded)}
    former = {
        job_id: str(JobFolder.of(tmp_path, job_id).lease(epochs[job_id]).checkpoint / "state")
        for job_id in witness.submitted
    }
    assert found == dict.fromkeys(["t0", "t1", "t2", "t3"], "none") | {
        "t0.1": "none",  # its first rung has saved nothing
        "t1.1": former["t1"],
        "t0.2": former["t0.1"],
    }


def test_a_trial_whose_process_fails_does_not_hold_up_the_others_of_a_hyperband(tmp_path: Path) -> None:
    command = 'echo "1 0.{}" >> "$HORAE_REPORTS"; '
    commands = ["exit 3", *(command.format(loss) + FINISH for loss in (3, 2, 5))]
    trials = tuple(a_trial(f"t{number}", each, 30.0) for number, each in enumerate(commands))
    witness = run(Search("search", 0.0, Method.HYPERBAND, trials), tmp_path)
    # Two brackets of two: the first has lost its first trial, and in the second the first reports less.
    assert witness.submitted[:4] == ["t0", "t1", "t2", "t3"]
    assert sorted(witness.submitted[4:]) == ["t1.01", "t2.11"]
    assert witness.endings["t0"][0] is Ending.FAILED
