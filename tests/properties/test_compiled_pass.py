"""The compiled pass does what the plain one does: whole runs, command by command and reason by reason.

Both are made of the same rules. The pass that is compiled is also run as it is written, without the compiler: if that
differs, numba does something else than NumPy; if the plain pass differs, what is around the rules does.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from types import FunctionType, ModuleType
from unittest.mock import patch

import numba
from hypothesis import given
from hypothesis import strategies as st

from horae import compiling
from horae.experiments.simulate import simulate
from horae.model.cluster import CLUSTER, NODE, Cluster, Node
from horae.model.events import Event, Health, NodeChanged
from horae.model.jobs import Arrival, Job, Truth
from horae.model.plans import Reaction
from horae.model.setup import Cadence, PoolSpec, RoundRules, Setup
from horae.model.shapes import Option, Shape
from horae.scheduler import placer
from horae.scheduler.placer import Placer

TYPES = ("v100", "k80")
KERNELS = ("horae.mechanism.turns_kernel", "horae.placement.flat_kernel", "horae.scheduler.flat_pass_kernel")


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


@cache
def uncompiled_kernels() -> dict[str, ModuleType]:
    """The modules of the kernels, imported once more without the compiler."""
    with patch.dict(sys.modules), patch.object(numba.config, "DISABLE_JIT", 1):
        for name in KERNELS:
            sys.modules.pop(name, None)
        compiling.forget_parts()
        modules = {name: import_module(name) for name in KERNELS}
    compiling.forget_parts()
    return modules


@contextmanager
def uncompiled() -> Iterator[None]:
    with patch.dict(sys.modules, uncompiled_kernels()):
        yield


@contextmanager
def whatever_the_size() -> Iterator[None]:
    """Small clusters have the compiled pass too, and small calls are compiled."""
    with patch.object(placer, "COMPILED_GPUS_MIN", 0), patch.object(compiling, "size_of", lambda value: sys.maxsize):
        yield


def test_kernels_can_be_run_uncompiled() -> None:
    (settles,) = (module for name, module in uncompiled_kernels().items() if name.endswith("flat_pass_kernel"))
    for name in ("run_pass", "place", "place_over", "_win", "_search"):
        assert isinstance(getattr(settles, name), FunctionType)
    assert not isinstance(import_module("horae.scheduler.flat_pass_kernel").run_pass, FunctionType)


@given(setups(), arrivals(), st.booleans())
def test_a_run_with_the_compiled_pass_is_the_one_without(setup: Setup, made: list[Arrival], fails: bool) -> None:
    outside: list[Event] = []
    if fails:
        outside = [NodeChanged(200.0, "n0", Health.FAILED), NodeChanged(900.0, "n0", Health.HEALTHY)]
    with whatever_the_size():
        compiled = transcript(setup, made, outside)
        with uncompiled():
            assert transcript(setup, made, outside) == compiled
    with patch.object(Placer, "hasten", lambda self: None):
        assert transcript(setup, made, outside) == compiled
