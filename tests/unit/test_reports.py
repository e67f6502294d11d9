"""Records and their summary, worked out by hand; and the picture of a cluster."""

from __future__ import annotations

from math import isnan

import pytest
from builders import arrival, cluster, job, simulate
from builders import gpus as named

from horae.model.cluster import Cluster, Node
from horae.model.commands import Command, Start, Stop
from horae.model.events import (
    Ending,
    Event,
    Health,
    JobCancelled,
    JobEnded,
    JobStarted,
    JobSubmitted,
    NodeChanged,
    Tick,
)
from horae.model.plans import Reaction
from horae.model.setup import PoolSpec, Setup
from horae.model.shapes import Shape
from horae.reports.cluster_tree import draw
from horae.reports.metrics import measure
from horae.reports.recorder import JobRecord, Recorder

# One node of two GPUs; Tiresias with one limit of 100 GPU-seconds, asked every 10 seconds; a restart costs 5.
#
#      0        50   70   90        145 150 160
#   0  aaaaaaaaa bbbbb      aaaaaaaaa    ddd
#   1  aaaaaaaaa ccccccccc  aaaaaaaaa    ddd
#
# a (2 GPUs, 100 s) starts at once. b and c (1 GPU, 20 and 40 s) come at 35, but a has not yet passed its limit: that
# it does at 50, when it has had 2 x 50 GPU-seconds and done half of its work. It leaves, and b and c start.
# b ends at 70, c at 90. Only then are there two GPUs for a: 5 s of restart and 50 s of work, until 145.
# d (2 GPUs, 10 s) comes at 141 and starts with the next round at 150.
JOBS = [
    arrival("a", 0.0, gpus=2, seconds=100.0, restart_seconds=5.0, tenant="nlp"),
    arrival("b", 35.0, gpus=1, seconds=20.0, restart_seconds=5.0, app="sweep"),
    arrival("c", 35.0, gpus=1, seconds=40.0, restart_seconds=5.0, app="sweep"),
    arrival("d", 141.0, gpus=2, seconds=10.0, restart_seconds=5.0),
]


ONE_POOL = Setup(cluster(nodes=1, gpus=4), (PoolSpec("all"),))


@pytest.fixture(scope="module")
def recorder() -> Recorder:
    return simulate(
        cluster(nodes=1, gpus=2), JOBS, "tiresias", "rounds", round_seconds=10.0, limits=[100], promote_after=0
    )


def test_each_job_has_one_record_in_the_order_of_their_ends(recorder: Recorder) -> None:
    assert recorder.records() == [
        JobRecord(
            "b", "default", "sweep", 1, "finished", 35.0, 50.0, 70.0, run_seconds=20.0, gpu_seconds=20.0, starts=1
        ),
        JobRecord(
            "c", "default", "sweep", 1, "finished", 35.0, 50.0, 90.0, run_seconds=40.0, gpu_seconds=40.0, starts=1
        ),
        # 50 s before the preemption and 55 s after it, on two GPUs.
        JobRecord("a", "nlp", "a", 2, "finished", 0.0, 0.0, 145.0, run_seconds=105.0, gpu_seconds=210.0, starts=2),
        JobRecord(
            "d", "default", "d", 2, "finished", 141.0, 150.0, 160.0, run_seconds=10.0, gpu_seconds=20.0, starts=1
        ),
    ]
    assert not recorder.live


def test_summary_is_what_one_computes_by_hand(recorder: Recorder) -> None:
    want = {
        "jobs": 4,
        "finished": 4,
        "refused": 0,
        "completion_mean_seconds": 63.5,  # (35 + 55 + 145 + 19) / 4
        "completion_median_seconds": 45.0,  # (35 + 55) / 2
        "completion_p99_seconds": 142.3,  # 2.97 of 3 steps along 19, 35, 55, 145: 55 + 0.97 x 90
        "queueing_mean_seconds": 9.75,  # (15 + 15 + 0 + 9) / 4
        "makespan_seconds": 160.0,
        "utilisation": 0.90625,  # (20 + 40 + 210 + 20) / (2 x 160)
        "restarts": 1,
    }
    metrics = measure(recorder.log()).plain()
    assert {name: metrics[name] for name in want} == pytest.approx(want)


def test_nothing_has_no_mean() -> None:
    summary = measure(Recorder(ONE_POOL).log())
    assert (summary.jobs, summary.finished, summary.makespan_seconds, summary.utilisation) == (0, 0, 0.0, 0.0)
    assert isnan(summary.completion_mean_seconds)
    assert isnan(summary.completion_p99_seconds)
    assert isnan(summary.queueing_mean_seconds)


# The fold, one event at a time. A story is a list of events, each with the commands that answered it.


Story = list[tuple[Event, tuple[Command, ...]]]


def tell(story: Story) -> Recorder:
    recorder = Recorder(ONE_POOL)
    for event, commands in story:
        recorder.reacted(event, Reaction(commands, ()))
    return recorder


def submitted(at: float = 0.0, retries_max: int = 0) -> tuple[Event, tuple[Command, ...]]:
    return JobSubmitted(at, job("j", at, gpus=2, retries_max=retries_max)), ()


def started(at: float, epoch: int, gpus: int = 2) -> tuple[Event, tuple[Command, ...]]:
    shape = Shape("v100", gpus, "node")
    return Tick(at), (Start(epoch, ("j",), named("n0", *range(gpus)), shape, (0.0,), (epoch > 0,)),)


def ended(at: float, epoch: int, ending: Ending) -> tuple[Event, tuple[Command, ...]]:
    return JobEnded(at, "j", epoch, ending, 0.0), ()


STORIES: dict[str, tuple[Story, str, float, float, float, int]] = {
    # outcome, started at, ended at, run seconds, starts
    "it finished": ([submitted(), started(5, 0), ended(15, 0, Ending.FINISHED)], "finished", 5, 15, 10, 1),
    "a start that is sent again is no second start": (
        [submitted(), started(5, 0), started(8, 0), ended(15, 0, Ending.FINISHED)],
        "finished",
        5,
        15,
        10,
        1,
    ),
    "time without GPUs does not count": (
        [submitted(), started(5, 0), ended(15, 0, Ending.STOPPED), started(100, 1), ended(101, 1, Ending.FINISHED)],
        "finished",
        5,
        101,
        11,
        2,
    ),
    "news of an old lease is no news": (
        [
            submitted(),
            started(5, 0),
            ended(15, 0, Ending.LOST),
            started(20, 1),
            ended(25, 0, Ending.FINISHED),
            ended(30, 1, Ending.FINISHED),
        ],
        "finished",
        5,
        30,
        20,
        2,
    ),
    "it failed": ([submitted(), started(5, 0), ended(15, 0, Ending.FAILED)], "failed", 5, 15, 10, 1),
    "it failed once and may try again": (
        [
            submitted(retries_max=1),
            started(5, 0),
            ended(15, 0, Ending.FAILED),
            started(20, 1),
            ended(30, 1, Ending.FINISHED),
        ],
        "finished",
        5,
        30,
        20,
        2,
    ),
    "it failed more often than it may": (
        [
            submitted(retries_max=1),
            started(5, 0),
            ended(15, 0, Ending.FAILED),
            started(20, 1),
            ended(30, 1, Ending.FAILED),
        ],
        "failed",
        5,
        30,
        20,
        2,
    ),
    "it was cancelled while it ran": (
        [submitted(), started(5, 0), (JobCancelled(9, "j"), (Stop(0, "j", 0.0),)), ended(12, 0, Ending.STOPPED)],
        "cancelled",
        5,
        12,
        7,
        1,
    ),
    "it was cancelled and had just finished": (
        [submitted(), started(5, 0), (JobCancelled(9, "j"), (Stop(0, "j", 0.0),)), ended(9, 0, Ending.FINISHED)],
        "finished",
        5,
        9,
        4,
        1,
    ),
}


@pytest.mark.parametrize(
    ("story", "outcome", "started_at", "ended_at", "run_seconds", "starts"), STORIES.values(), ids=STORIES
)
def test_what_became_of_a_job(
    story: Story, outcome: str, started_at: float, ended_at: float, run_seconds: float, starts: int
) -> None:
    (record,) = tell(story).records()
    assert (record.outcome, record.started_at, record.ended_at) == (outcome, started_at, ended_at)
    assert (record.run_seconds, record.gpu_seconds, record.starts) == (run_seconds, 2 * run_seconds, starts)


def test_a_job_that_was_cancelled_while_it_waited_never_started() -> None:
    (record,) = tell([submitted(), (JobCancelled(9, "j"), ())]).records()
    assert (record.outcome, record.ended_at, record.run_seconds, record.starts) == ("cancelled", 9, 0.0, 0)
    assert isnan(record.started_at)


def test_a_job_that_has_not_ended_has_no_record() -> None:
    recorder = tell([submitted(), started(5, 0), ended(15, 0, Ending.LOST)])
    assert (recorder.records(), list(recorder.live)) == ([], ["j"])


def test_news_of_nobody_is_no_news() -> None:
    recorder = tell([ended(1, 0, Ending.FINISHED), (JobCancelled(1, "j"), ()), (JobStarted(1, "j", 0), ())])
    assert (recorder.records(), recorder.live) == ([], {})


def test_only_finished_jobs_count_for_times_and_all_for_the_rest() -> None:
    first = job("first", 0.0)
    recorder = tell(
        [
            (JobSubmitted(0.0, first), ()),
            (Tick(10.0), (Start(0, ("first",), named("n0", 0), first.options[0].shape, (0.0,), (False,)),)),
            (JobEnded(30.0, "first", 0, Ending.FAILED, 0.0), ()),
            submitted(40.0),
            started(50.0, 1),
            ended(60.0, 1, Ending.FINISHED),
        ]
    )
    summary = measure(recorder.log())
    assert (summary.jobs, summary.finished) == (2, 1)
    assert (summary.completion_mean_seconds, summary.queueing_mean_seconds) == (20.0, 10.0)
    assert summary.makespan_seconds == 60.0
    assert summary.utilisation == pytest.approx(40.0 / (4 * 60))


def test_a_node_that_fails_costs_a_restart() -> None:
    jobs = [arrival("a", 0.0, gpus=2, seconds=100.0, restart_seconds=5.0)]
    outside = [NodeChanged(40.0, "n0", Health.FAILED)]
    (record,) = simulate(cluster(nodes=2, gpus=2), jobs, "fifo", outside=outside).records()
    # 40 s on the first node, then 5 s of restart and 60 s of work on the other.
    assert (record.ended_at, record.run_seconds, record.starts) == (105.0, 105.0, 2)


TREES: dict[str, tuple[tuple[Node, ...], str]] = {
    "one node of one GPU": (
        (Node("a", "A100", 1),),
        """\
lab: 1 GPU, 1 node, levels gpu < node < cluster
└── A100: 1 GPU
    └── node of 1 GPU (a)
        └── gpu""",
    ),
    "nodes of different sizes are told apart": (
        (Node("a", "A100", 8), Node("b", "A100", 8), Node("c", "A100", 4)),
        """\
lab: 20 GPUs, 3 nodes, levels gpu < node < cluster
└── A100: 20 GPUs
    ├── 2 x node of 8 GPUs (a … b)
    │   └── 8 x gpu
    └── node of 4 GPUs (c)
        └── 4 x gpu""",
    ),
    "two types, one with racks": (
        (
            *(Node(f"a{index}", "A100", 4, levels=(("socket", 2),), rack=f"r{index // 2}") for index in range(4)),
            Node("v", "V100", 2),
        ),
        """\
lab: 18 GPUs, 5 nodes, levels gpu < socket < node < rack < cluster
├── A100: 16 GPUs
│   └── 2 x rack of 8 GPUs (r0 … r1)
│       └── 2 x node of 4 GPUs (a0 … a1)
│           └── 2 x socket of 2 GPUs
│               └── 2 x gpu
└── V100: 2 GPUs
    └── node of 2 GPUs (v)
        └── 2 x gpu""",
    ),
}


@pytest.mark.parametrize(("nodes", "want"), TREES.values(), ids=TREES)
def test_tree(nodes: tuple[Node, ...], want: str) -> None:
    assert draw(Cluster("lab", nodes)) == want
