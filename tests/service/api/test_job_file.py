"""Job files: how they are read, and the jobs that are made of them."""

from __future__ import annotations

from math import inf
from pathlib import Path

import pytest
from service.api.harness import SETUP

from horae.model.errors import InputError
from horae.model.jobs import Job
from horae.model.shapes import Option, Shape
from horae.service.job_file import deadline_at, expand, read_job_file, to_job
from horae.service.sweeps import parameters

WHOLE = """
name: bert
tenant: nlp
run: python train.py
gpus: 4
gpu_type: [V100, a100]
locality: {require: rack, prefer: node}
priority: high
min_runtime: 10m
grace: 2m
checkpoint: {signal: SIGTERM}
max_duration: 24h
deadline: 12h
speed: {V100: 1.5, A100: 3.0}
retries: 2
steps: 1000
memory_per_gpu: 16GB
"""


def made(text: str, at: float = 100.0, **speeds: float) -> Job:
    measured = {(name, 2): speed for name, speed in speeds.items()}
    return to_job(expand(read_job_file(text))[0].spec, "7", "ann", SETUP, at, speeds=measured)


def test_every_field_reaches_the_scheduler() -> None:
    job = made(WHOLE)
    assert job == Job(
        id="7",
        submitted_at=100.0,
        options=(
            Option(Shape("V100", 4, "node"), 1.5),
            Option(Shape("V100", 4, "rack"), 1.5 / 1.05),
            Option(Shape("A100", 4, "node"), 3.0),
            Option(Shape("A100", 4, "rack"), 3.0 / 1.05),
        ),
        tenant="nlp",
        user="ann",
        priority=2,
        steps_total=1000.0,
        deadline_at=100.0 + 12 * 3600,
        restart_seconds=45.0,
        min_runtime_seconds=600.0,
        preemptions_max=inf,
        grace_seconds=120.0,
        retries_max=2,
        memory_bytes_per_gpu=16e9,
        command="python train.py",
        limit_seconds=86400.0,
    )


def test_elastic_jobs_accept_several_sizes_the_largest_first() -> None:
    job = made("{run: x, gpus: {min: 2, max: 9}, gpu_type: A100}")
    assert [(option.shape.gpus, option.steps_per_second) for option in job.options] == [(8, 4.0), (4, 2.0), (2, 1.0)]


def test_speeds_come_from_the_file_then_from_measurements_then_are_alike() -> None:
    def speeds(job: Job) -> dict[str, float]:
        return {option.shape.accelerator: option.steps_per_second for option in job.options}

    assert speeds(made("{run: x, gpus: 2}")) == {"A100": 1.0, "V100": 1.0}
    assert speeds(made("{run: x, gpus: 2, speed: {V100: 3}}", A100=9.0)) == {"V100": 3.0}
    assert speeds(made("{run: x, gpus: 4}", A100=9.0, V100=4.0)) == {"A100": 18.0, "V100": 8.0}
    assert speeds(made("{run: x, gpus: 2}", A100=9.0)) == {"A100": 9.0, "V100": 9.0}


def test_a_deadline_is_a_date_or_a_time_from_now() -> None:
    assert deadline_at(None, 5.0, 0.0) == inf
    assert deadline_at("1h", 5.0, 1000.0) == 3605.0
    assert deadline_at("1970-01-01T01:00:00+00:00", 5.0, 1000.0) == 2600.0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gpus: 2", "run: is missing; add it"),
        ("run: x\ngpus: many", "gpus: is 'many'"),
        ("run: x\nrum: y", "rum: is not a known field; remove it or check its spelling"),
        ("run: x\nmax_duration: forever", "max_duration: 'forever' is no time; give seconds"),
        ("run: [", "not YAML"),
        ("", "is empty; give at least run"),
    ],
)
def test_a_wrong_file_is_one_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError) as found:
        read_job_file(text)
    assert message in str(found.value)
    assert "\n" not in str(found.value)
    file = tmp_path / "job.yaml"
    file.write_text(text)
    with pytest.raises(InputError) as found:
        read_job_file(file)
    assert str(file) in str(found.value)


def test_a_relative_folder_is_relative_to_the_file(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("{run: x, workdir: sub}")
    assert read_job_file(file).workdir == str(tmp_path.resolve() / "sub")
    file.write_text("{run: x}")
    assert read_job_file(file).workdir == str(tmp_path.resolve())


def test_a_sweep_is_a_grid() -> None:
    text = "{run: 'go {lr} {b}', sweep: {lr: [0.1, 0.2], b: [1, 2], stop: successive-halving}, steps: 70}"
    points = expand(read_job_file(text))
    assert [point.spec.run for point in points] == ["go 0.1 1", "go 0.1 2", "go 0.2 1", "go 0.2 2"]
    assert points[2].spec.env == {"HORAE_PARAM_lr": "0.2", "HORAE_PARAM_b": "1"}
    assert all(point.spec.sweep and point.spec.sweep["stop"] == "successive-halving" for point in points)


def test_points_of_a_sweep_are_drawn_from_ranges_and_lists() -> None:
    ranges = "lr: {log_uniform: [0.001, 0.1]}, m: {uniform: [0, 1]}, n: {integer: [1, 3]}, opt: [adam, sgd]"
    points = [parameters(each.spec) for each in expand(read_job_file(f"{{run: x, sweep: {{{ranges}, random: 40}}}}"))]
    assert len(points) == 40
    assert all(0.001 <= point["lr"] <= 0.1 and 0 <= point["m"] <= 1 for point in points)
    assert {point["n"] for point in points} == {1, 2, 3} and {point["opt"] for point in points} == {"adam", "sgd"}
    assert sum(point["lr"] < 0.01 for point in points) > 10, "half of them, on a logarithmic scale"
    again = expand(read_job_file(f"{{run: x, sweep: {{{ranges}, random: {{trials: 3, seed: 0}}}}}}"))
    assert [parameters(each.spec) for each in again] == points[:3]
    other = expand(read_job_file(f"{{run: x, sweep: {{{ranges}, random: {{trials: 3, seed: 1}}}}}}"))
    assert [parameters(each.spec) for each in other] != points[:3]
