"""The example program, as a job of the local engine."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from local_jobs import Bench, a_bench, a_start
from patience import HANG_SECONDS, wait_until

from horae.engines.local.launch import Launch
from horae.model.commands import Stop
from horae.model.events import Ending


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with a_bench(tmp_path) as bench:
        yield bench


def trainer(options: str) -> str:
    return f"{shlex.quote(sys.executable)} -m horae.engines.local.example_trainer {options}"


def test_the_trainer_finishes_at_the_speed_of_its_gpus(bench: Bench) -> None:
    ended = bench.run(trainer("--steps 30 --steps-per-second 0.001 --speed slow=1 --speed fast=1000"))
    assert ended[3:] == (Ending.FINISHED, 30.0, "")


def test_the_trainer_resumes_where_it_was_stopped(bench: Bench) -> None:
    engine = bench.engine(Launch("job", trainer("--steps 100000 --steps-per-second 100"), steps_total=100_000.0))
    engine.execute([a_start(steps_done=50_000.0)])
    wait_until((bench.folder().lease(0).checkpoint / "saved.json").exists)
    engine.execute([Stop(0, "job", HANG_SECONDS)])
    ended = bench.the_end(engine)
    assert ended.ending is Ending.STOPPED
    assert 50_000 < ended.steps < 100_000
    engine.execute([a_start(epoch=1, steps_done=0.0)])
    wait_until(lambda: f"step {ended.steps:.0f} of 100000" in bench.output())


def test_the_trainer_has_nothing_to_do_when_all_is_done(bench: Bench) -> None:
    engine = bench.engine(Launch("job", trainer("--steps 5 --steps-per-second 0.001")))
    engine.execute([a_start(steps_done=5.0)])
    assert bench.the_end(engine)[3:5] == (Ending.FINISHED, 5.0)


@pytest.mark.parametrize("options", ["--steps-per-second 0", "--steps-per-second 1 --speed fast"])
def test_the_trainer_refuses_what_is_no_speed(bench: Bench, options: str) -> None:
    ended = bench.run(trainer(f"--steps 5 {options}"))
    assert ended.ending is Ending.FAILED and "exit code 2" in ended.message


@pytest.mark.parametrize("curve", ["1,2", "1,0,0.1", "-1,1,0.1", "a,b,c"])
def test_the_trainer_refuses_what_is_no_curve(bench: Bench, curve: str) -> None:
    ended = bench.run(trainer(f"--steps 5 --steps-per-second 1 --loss={curve}"))
    assert ended.ending is Ending.FAILED
    assert curve in ended.message
