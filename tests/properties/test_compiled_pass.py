"""The compiled pass does what the written one does: whole runs, command by command and reason by reason."""

from __future__ import annotations

from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from horae.experiment import simulate
from horae.model.cells import CLUSTER, NODE, Cluster, Node
from horae.model.events import Event, Health, NodeChanged
from horae.model.jobs import Arrival, Job, Truth
from horae.model.plans import Reaction
from horae.model.pools import Cadence, PoolSpec, RoundRules, Setup
from horae.model.shapes import Option, Shape
from horae.scheduler.placer import Placer

TYPES = ("v100", "k80")


@st.composite
def setups(draw: st.DrawFn) -> Setup:
    """A few nodes of one or two types, and rules of all kinds."""
    sizes = draw(st.lists(st.tuples(st.sampled_from(TYPES), st.integers(1, 4)), min_size=1, max_size=5))
    nodes = tuple(Node(f"n{index}", kind, gpus) for index, (kind, gpus) in enumerate(sizes))
    rules = RoundRules(turn_rounds=draw(st.sampled_from([0.0, 1.0, 3.0])), fill=draw(st.booleans()))
    policy = draw(st.sampled_from(["equal-share", "max-min", "fifo-on-fastest"]))
    return Setup(Cluster("small", nodes), (PoolSpec("all", policy, {}, Cadence.ROUNDS, 60.0, rules=rules),))


@st.composite
def arrivals(draw: st.DrawFn) -> list[Arrival]:
    found = []
    for number in range(draw(st.integers(1, 8))):
        gpus, member_gpus = draw(st.sampled_from([(1, 1), (1, 1), (2, 1), (3, 2), (4, 2), (5, 4), (6, 1)]))
        kinds = draw(st.sampled_from([TYPES, TYPES, TYPES[:1], TYPES[1:]]))
        levels = draw(st.sampled_from([(CLUSTER,), (NODE,), (NODE, CLUSTER)]))
        options = tuple(
            Option(Shape(kind, gpus, level), 1.0 + (kind == TYPES[0]) + 0.5 * (level == NODE))
            for kind in kinds
            for level in levels
        )
        steps = float(draw(st.integers(100, 1500)))
        job = Job(
            f"j{number}",
            float(draw(st.integers(0, 600))),
            options,
            steps_total=steps,
            member_gpus=member_gpus,
            restart_seconds=draw(st.sampled_from([0.0, 20.0])),
            weight=draw(st.sampled_from([1.0, 3.0])),
            cpus_per_gpu=draw(
                st.sampled_from([0.0] * 19 + [1.0])
            ),  # with the first such job the written pass takes over
        )
        found.append(Arrival(job, Truth(steps, options)))
    return sorted(found, key=lambda each: each.job.submitted_at)


class Transcript:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def reacted(self, event: Event, reaction: Reaction) -> None:
        self.lines += [repr(command) for command in reaction.commands]
        for each in reaction.rounds:
            gpus = [placement.gpus.tolist() for placement in each.plan.placements]
            plan = each.plan
            reasons = [placement._replace(gpus=()) for placement in plan.placements]  # type: ignore[arg-type]
            self.lines.append(repr((gpus, reasons, plan.departures, sorted(plan.blocked.items()), plan.head)))


def transcript(setup: Setup, made: list[Arrival], outside: list[Event]) -> list[str]:
    seen = Transcript()
    simulate(setup, made, outside, observers=[seen])
    return seen.lines


@given(setups(), arrivals(), st.booleans())
def test_a_run_with_the_compiled_pass_is_the_one_without(setup: Setup, made: list[Arrival], fails: bool) -> None:
    outside: list[Event] = []
    if fails:
        outside = [NodeChanged(200.0, "n0", Health.FAILED), NodeChanged(900.0, "n0", Health.HEALTHY)]
    compiled = transcript(setup, made, outside)
    with patch.object(Placer, "hasten", lambda self: None):
        assert transcript(setup, made, outside) == compiled
