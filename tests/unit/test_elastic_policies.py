"""Policies that resize jobs, and those that serve apps gang by gang, on cases that can be worked out by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import nan
from typing import Any

import numpy as np
import pytest
from builders import arrival, cluster, simulate

from horae.model.cells import CLUSTER, NODE, Cluster
from horae.model.decisions import Grants
from horae.model.errors import PolicyError
from horae.model.jobs import Curve, Job
from horae.model.shapes import Option, Shape
from horae.model.status import Status
from horae.model.table import Entry, JobTable
from horae.model.view import AppColumns, View
from horae.placement.trial import levels_of
from horae.policies import check_policy, make_policy


def elastic(id: str, speeds: Mapping[int, float], steps: float | None, at: float = 0.0, **fields: Any) -> Job:
    """A job that accepts these counts of GPUs in one node, at these speeds; the first is its reference shape."""
    options = tuple(Option(Shape("v100", gpus, NODE), speed) for gpus, speed in speeds.items())
    return Job(id, at, options, steps_total=steps, **fields)


def view_of(
    machines: Cluster,
    jobs: Sequence[Job],
    running: Mapping[str, int] | None = None,
    now: float = 0.0,
    columns: Mapping[str, Mapping[str, float]] | None = None,
) -> View:
    """Those who run have the option of that number since now, from the first GPU on; `columns` by name and job."""
    running = running or {}
    shapes = list(dict.fromkeys(option.shape for job in jobs for option in job.options))
    apps = list(dict.fromkeys(job.app_id for job in jobs))
    table = JobTable(options=max(len(job.options) for job in jobs))
    holder = np.full(machines.gpu_count, -1)
    for serial, job in enumerate(jobs):
        numbers = tuple(shapes.index(option.shape) for option in job.options)
        table.add(serial, job, Entry(apps.index(job.app_id), 0, 0, serial, numbers, job.submitted_at, 0.0))
        if job.id in running:
            option = running[job.id]
            gpus = job.options[option].shape.gpus
            holder[np.flatnonzero(holder < 0)[:gpus]] = serial
            for name, value in (("status", Status.RUNNING), ("epoch", serial), ("option", option)):
                table.columns[name][serial] = int(value)
            table.columns["held_gpus"][serial] = gpus
            table.columns["since"][serial] = table.columns["productive_at"][serial] = now
        for name, values in (columns or {}).items():
            table.columns[name][serial] = values.get(job.id, table.columns[name][serial])
    seconds = [nan if job.steps_total is None else job.steps_total / job.options[0].steps_per_second for job in jobs]
    whole = np.zeros(len(apps))
    for job, each in zip(jobs, seconds, strict=True):
        whole[apps.index(job.app_id)] += job.gpus * each
    nothing = np.zeros(len(apps))
    names = list(machines.accelerators)

    def trial(gone: Any, accelerator: str, gangs: Any) -> Any:
        free = (holder < 0) | np.isin(holder, np.flatnonzero(gone))
        return levels_of(machines, free, accelerator, gangs)

    return View(
        now=now,
        seed=0,
        round_seconds=60.0,
        accelerators=machines.accelerators,
        capacity=np.array([stop - start for start, stop in machines.chain_gpus.values()]),
        cpus=np.inf,
        memory_bytes=np.inf,
        shapes=tuple(shapes),
        shape_accelerator=np.array([names.index(shape.accelerator) for shape in shapes]),
        shape_gpus=np.array([shape.gpus for shape in shapes]),
        shape_level=np.array([machines.levels.index(shape.level) for shape in shapes]),
        levels=machines.levels,
        jobs=table.view(now),
        tenants=("default",),
        tenant_weight=np.ones(1),
        apps=len(apps),
        app_seconds=0.0,
        fit=lambda accelerator, gpus: None,
        app=AppColumns(whole, nothing.astype(np.int64), nothing, nothing, nothing, nothing - np.inf),
        trial=trial,
    )


def decide(policy: str, view: View, **options: object) -> Grants:
    decision = make_policy(policy, options).decide(view)
    assert isinstance(decision, Grants)
    return decision


def sizes(view: View, grants: Grants, jobs: Sequence[Job]) -> dict[str, int]:
    """By job: the GPUs of the first shape that it was granted, in the order of the grants."""
    found: dict[str, int] = {}
    for row, option in zip(grants.row.tolist(), grants.option.tolist(), strict=True):
        found.setdefault(jobs[row].id, jobs[row].options[option].shape.gpus)
    return found


# Apps, gang by gang, as in the evaluation of Themis

THEMIS_PAPER = ("tiresias", "optimus", "gandiva", "slaq")


def gang(id: str, app: str, gpus: int, seconds: float | None, *levels: str, **fields: Any) -> Job:
    options = tuple(Option(Shape("v100", gpus, level), 1.0) for level in levels or (NODE,))
    return Job(id, 0.0, options, app=app, steps_total=seconds, **fields)


def winners(policy: str, jobs: Sequence[Job], machines: Cluster, **view: Any) -> list[str]:
    grants = decide(policy, view_of(machines, jobs, **view), variant="themis-paper")
    return list(dict.fromkeys(jobs[row].id for row in grants.row.tolist()))


@pytest.mark.parametrize("name", THEMIS_PAPER)
@pytest.mark.parametrize("seed", range(3))
def test_the_forms_of_the_themis_evaluation_keep_the_rules(name: str, seed: int) -> None:
    check_policy(make_policy(name, {"variant": "themis-paper"}), seed)


@pytest.mark.parametrize("name", THEMIS_PAPER)
def test_in_the_forms_of_the_themis_evaluation_all_jobs_end_and_leases_are_kept(name: str) -> None:
    jobs = [arrival(f"j{i}", 5.0 * i, 1 + i % 3, 150.0 + i, app=f"a{i % 4}") for i in range(20)]
    run = simulate(cluster(nodes=2, gpus=4), jobs, name, variant="themis-paper", lease_seconds=60.0)
    records = run.records()
    assert len(records) == 20
    # Nobody is stopped within a lease of 60 s, so that a job of less than 180 s starts three times at most.
    assert max(record.starts for record in records) <= 3


@pytest.mark.parametrize("name", THEMIS_PAPER)
def test_winners_and_the_rest_have_leases_and_everybody_is_ranked(name: str) -> None:
    jobs = [gang(f"j{i}", f"a{i % 2}", 2, 100) for i in range(4)]
    grants = decide(name, view_of(cluster(nodes=2, gpus=2), jobs), variant="themis-paper", lease_seconds=60)
    assert len(grants.row) == 2
    assert (grants.lease_seconds == 60.0).all()
    assert grants.rest_lease_seconds == 60.0
    assert sorted(grants.rest.order.tolist()) == [0, 1, 2, 3]


def test_tiresias_of_the_themis_evaluation_serves_the_app_with_the_least_service_first() -> None:
    jobs = [gang("a0", "a", 2, 100), gang("a1", "a", 2, 300), gang("b0", "b", 2, 100), gang("b1", "b", 2, 50)]
    node = cluster(nodes=1, gpus=6)
    # Without any service the app that came first, with its longest job before the others.
    assert winners("tiresias", jobs, node) == ["a1", "a0", "b0"]
    assert winners("tiresias", jobs, node, columns={"service_base": {"a0": 10.0}}) == ["b0", "b1", "a1"]
    assert winners("tiresias", jobs, node, columns={"service_base": {"a0": 10.0, "b0": 9.0, "b1": 9.0}}) == [
        "a1", "a0", "b0"
    ]  # fmt: skip


def test_tiresias_of_the_themis_evaluation_counts_what_ended_jobs_of_an_app_took() -> None:
    jobs = [gang("a0", "a", 2, 100), gang("b0", "b", 2, 100)]
    view = view_of(cluster(nodes=1, gpus=2), jobs)
    had = view.app._replace(gpu_seconds=view.app.gpu_seconds + np.array([50.0, 0.0]))  # a job of app a has ended
    grants = decide("tiresias", view._replace(app=had), variant="themis-paper")
    assert [jobs[row].id for row in grants.row.tolist()] == ["b0"]


def test_optimus_of_the_themis_evaluation_serves_who_gains_most_for_each_gpu() -> None:
    """Work: a 800, b 300 GPU-seconds. First one gang each, a before b: 400 and 150 for each GPU. Then a gains
    800 / (2 x 4) = 100 and b 300 / (2 x 4) = 37.5 with a second gang, and a 800 / (4 x 6) = 33.3 with its third."""
    jobs = [gang(f"a{i}", "a", 2, 100) for i in range(4)] + [gang("b0", "b", 2, 100), gang("b1", "b", 2, 50)]
    assert winners("optimus", jobs, cluster(nodes=5, gpus=2)) == ["a0", "b0", "a1", "b1", "a2"]


def test_who_runs_under_a_lease_keeps_its_gpus_and_they_count_as_those_of_its_app() -> None:
    jobs = [gang("a0", "a", 2, 1000), gang("a1", "a", 2, 1000), gang("b0", "b", 2, 10)]
    two = cluster(nodes=2, gpus=2)
    # A lease that has ended is contested; the app with more work to do comes first, and goes on with what runs.
    assert winners("optimus", jobs, two, running={"a1": 0}) == ["a1", "b0"]
    # One that has not is nobody's to give, and app a has GPUs already.
    leased = {"lease_until": {"a1": 100.0}}
    assert winners("optimus", jobs, two, running={"a1": 0}, columns=leased) == ["b0"]


def test_slaq_of_the_themis_evaluation_serves_the_job_whose_loss_falls_most_in_a_lease() -> None:
    """In 1,200 steps: 1 - 1/(1 + 12) = 0.92; 1 - 1/(1 + 0.5) = 0.33 without a curve; 1 - 1/(1 + 0.12) = 0.11."""
    jobs = [
        gang("slow", "a", 1, 10_000, curve=Curve(0.0001, 1.0, 0.3)),
        gang("fast", "a", 1, 10_000, curve=Curve(0.01, 1.0, 0.3)),
        gang("unknown", "b", 1, 2400),
    ]
    assert winners("slaq", jobs, cluster(nodes=1, gpus=3)) == ["fast", "unknown", "slow"]
    assert winners("slaq", jobs, cluster(nodes=1, gpus=1), running={"slow": 0}) == ["fast"]


def test_gandiva_of_the_themis_evaluation_takes_what_fits_most_tightly_and_then_the_largest() -> None:
    """Two nodes of 4: the two gangs of 3 have a node each and leave a GPU on each; the single fits in a node, and what
    is left for the pair, which would take it across nodes, is one GPU."""
    jobs = [
        gang("pair", "a", 2, 100, NODE, CLUSTER),
        gang("single", "b", 1, 100),
        gang("three", "c", 3, 100),
        gang("other", "d", 3, 100),
    ]
    assert winners("gandiva", jobs, cluster(nodes=2, gpus=4)) == ["three", "other", "single"]
    assert winners("gandiva", [jobs[0], *jobs[2:]], cluster(nodes=2, gpus=4)) == ["three", "other", "pair"]


def test_gandiva_of_the_themis_evaluation_lets_who_runs_go_on_among_equals() -> None:
    jobs = [gang("first", "a", 2, 100), gang("runs", "b", 2, 100)]
    assert winners("gandiva", jobs, cluster(nodes=1, gpus=2), running={"runs": 0}) == ["runs"]


@pytest.mark.parametrize("name", THEMIS_PAPER)
@pytest.mark.parametrize(("option", "value"), [("variant", "none"), ("lease_seconds", 0)])
def test_a_variant_or_lease_that_does_not_exist_is_told(name: str, option: str, value: object) -> None:
    with pytest.raises(PolicyError) as raised:
        make_policy(name, {option: value})
    assert raised.value.remedy
