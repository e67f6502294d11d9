"""Reserving cells, as a user does it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import yaml
from command_line import horae

LAB = """
nodes:
  - {name: "a[0-7]", gpu: A100, gpus: 8, levels: {socket: 4}, rack: 4}
tenants:
  nlp: {weight: 2, policy: {tiresias: {}}, cadence: rounds, cells: {a100.node: 3}}
  vision: {policy: max-min, cadence: rounds, cells: {a100.socket: 4}}
"""
JOBS = "id,submit,gpus,duration,tenant,priority\n" + "".join(
    f"j{number},{60 * number},{2 ** (number % 4)},{600 + 97 * number % 3000},{('nlp', 'vision', 'guest')[number % 3]},"
    f"{-1 if number % 5 == 0 else 0}\n"
    for number in range(60)
)

HIVED = """
physicalCluster:
  cellTypes:
    G-SWITCH: {childCellType: G, childCellNumber: 2}
    G-NODE: {childCellType: G-SWITCH, childCellNumber: 2, isNodeLevel: true}
    RACK: {childCellType: G-NODE, childCellNumber: 2}
  physicalCells:
    - cellType: RACK
      cellChildren: [{cellAddress: n1}, {cellAddress: n2}]
    - cellType: RACK
      cellChildren: [{cellAddress: n3}, {cellAddress: n4}]
virtualClusters:
  one: {virtualCells: [{cellType: RACK, cellNumber: 1}]}
  two: {virtualCells: [{cellType: RACK.G-NODE, cellNumber: 1}, {cellType: RACK.G-NODE.G-SWITCH, cellNumber: COUNT}]}
"""


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_a_cluster_with_cells_is_shown_run_and_replayed(tmp_path: Path) -> None:
    cluster, jobs = write(tmp_path / "lab.yaml", LAB), write(tmp_path / "jobs.csv", JOBS)
    shown = horae("cluster", "show", cluster).out
    assert "pool nlp: tiresias, 3 x a100.node" in shown
    assert "pool spare: hierarchical, what is idle" in shown
    journal = tmp_path / "journal"
    outcome = horae("simulate", "--jobs", jobs, "--cluster", cluster, "--journal", journal)
    assert outcome.code == 0
    assert "all the same" in horae("replay", journal).out


def test_hiveds_configuration_becomes_a_cluster_file(tmp_path: Path) -> None:
    file = write(tmp_path / "hived.yaml", HIVED.replace("COUNT", "2"))
    target = tmp_path / "lab.yaml"
    assert horae("cluster", "convert", file, "--write", target).code == 0
    assert yaml.safe_load(target.read_text())["tenants"] == {
        "one": {"cells": {"G.rack": 1}},
        "two": {"cells": {"G.node": 1, "G.G-SWITCH": 2}},
    }
    assert "pool two: fifo, 1 x G.node, 2 x G.G-SWITCH" in horae("cluster", "show", target).out


def test_virtual_clusters_that_exceed_the_cluster_are_refused_with_chain_level_and_by_how_many(tmp_path: Path) -> None:
    file = write(tmp_path / "hived.yaml", HIVED.replace("COUNT", "3"))
    for command in ("show", "convert"):
        assert horae("cluster", command, file).complaint == (
            f"{file}: virtualClusters: the tenants' cells exceed chain RACK at level G-SWITCH by 1: 9 are promised, "
            "8 are there; promise fewer cells, or add hardware"
        )


def test_a_cluster_file_of_ours_is_not_converted(tmp_path: Path) -> None:
    file = write(tmp_path / "lab.yaml", LAB)
    assert horae("cluster", "convert", file).complaint == (
        f"{file}: is no configuration of HiveD's; name one with a physicalCluster"
    )


def trace_of_weeks(path: Path, weeks: int = 4) -> Path:
    """One tenant with jobs of a node now and then, one with many small ones and more demand in GPU-hours."""
    rows = ["id,submit,gpus,duration,tenant"]
    for hour in range(24 * 7 * weeks):
        rows.append(f"s{hour},{3600 * hour},1,14000,small")
        if hour % 6 == 0:
            rows += [f"b{hour}-{number},{3600 * hour + number},8,3000,bursty" for number in range(4)]
    return write(path, "\n".join(rows) + "\n")


def test_a_plan_beats_cells_in_proportion_on_weeks_it_has_not_seen(tmp_path: Path) -> None:
    file, target = trace_of_weeks(tmp_path / "jobs.csv"), tmp_path / "lab.yaml"
    outcome = horae("tenants", "plan", file, "--nodes", "5x8", "--goal", "60", "-o", "json", "--write", target)
    assert outcome.code == 0
    found = json.loads(outcome.out)["types"]["gpu"]
    unseen = found["unseen"]
    assert unseen["plan"]["mean_seconds"] < unseen["in_proportion"]["mean_seconds"]
    assert unseen["plan"]["goals_met"] >= unseen["in_proportion"]["goals_met"]
    assert sum(share["gpus"] for share in found["shares"]) <= 40
    more = [way["expected_seconds"] for way in found["trade_off"]]
    assert more == sorted(more, reverse=True)
    assert horae("cluster", "show", target).code == 0


@pytest.mark.parametrize(
    ("options", "complaint"),
    {
        "a goal of nothing": (("--goal", "0"), "--goal: is 0; give a positive number"),
        "a tenant that is not there": (("--goals", "nlp=5"), "--goals: there is no tenant 'nlp'; use bursty, small"),
        "nothing to plan from": (("--seen", "1.5"), "--seen: is 1.5; give a part between 0 and 1"),
        "a budget for no GPU": (
            ("--budget", "1"),
            "the largest gangs of 2 tenants need 1 node, 1 gpu, that is 9 GPUs, and 0 may be reserved; "
            "raise the budget",
        ),
    }.values(),
)
def test_what_cannot_be_planned_is_one_line(tmp_path: Path, options: tuple[str, ...], complaint: str) -> None:
    file = trace_of_weeks(tmp_path / "jobs.csv")
    assert horae("tenants", "plan", file, "--nodes", "5x8", *options).complaint.splitlines()[-1] == complaint


@pytest.mark.skipif("HORAE_DATA" not in os.environ, reason="set HORAE_DATA to the folder with the published traces")
def test_cells_are_as_good_as_private_clusters_and_dynamic_binding_preempts_less() -> None:
    outcome = horae("reproduce", "hived", "--workload", "small", "--policy", "yarn-cs", "-o", "json", "--quiet")
    assert outcome.code == 0
    found = json.loads(outcome.out)
    assert found["failures"] == []
    assert all(row["is_identical"] for row in found["tenants"])
    preemptions = {row["binding"]: row["preemptions"] for row in found["guests"]}
    assert preemptions["dynamic"] < preemptions["static"]


def test_what_cannot_be_reproduced_is_one_line(tmp_path: Path) -> None:
    outcome = horae("reproduce", "hived", "--data", tmp_path, "--workload", "nothing")
    assert outcome.complaint == "--workload: is 'nothing'; use philly, small, itp"


def test_policies_are_compared_on_a_cluster_with_cells_and_tenants_have_their_own_rho(tmp_path: Path) -> None:
    cluster, jobs = write(tmp_path / "lab.yaml", LAB), write(tmp_path / "jobs.csv", JOBS)
    arguments = ("--cluster", cluster, "--policy", "fifo", "--cache", tmp_path / "cache", "-o", "json")
    assert horae("compare", jobs, *arguments).code == 0
    found = json.loads(horae("simulate", "--jobs", jobs, "--cluster", cluster, "-o", "json").out)
    (figures,) = found.values()
    assert figures["tenants"]["nlp"]["rho_private"]["max"] > 0


def test_cells_of_chains_that_are_alike_to_us_are_added_up(tmp_path: Path) -> None:
    text = """
physicalCluster:
  cellTypes:
    NODE-A: {childCellType: V100, childCellNumber: 4, isNodeLevel: true}
    NODE-B: {childCellType: V100, childCellNumber: 4, isNodeLevel: true}
  physicalCells:
  - {cellType: NODE-A, cellAddress: a1}
  - {cellType: NODE-A, cellAddress: a2}
  - {cellType: NODE-B, cellAddress: b1}
virtualClusters:
  x: {virtualCells: [{cellType: NODE-A, cellNumber: 2}, {cellType: NODE-B, cellNumber: 1}]}
"""
    found = yaml.safe_load(horae("cluster", "convert", write(tmp_path / "hived.yaml", text)).out)
    assert found["tenants"] == {"x": {"cells": {"V100.node": 3}}}


def test_a_planned_file_runs_the_policy_that_was_planned_with(tmp_path: Path) -> None:
    file, target = trace_of_weeks(tmp_path / "jobs.csv", weeks=1), tmp_path / "lab.yaml"
    options = ("--policy", "tiresias={limits: [3600, 36000]}", "--write", target)
    assert horae("tenants", "plan", file, "--nodes", "5x8", *options).code == 0
    shown = horae("cluster", "show", target)
    assert shown.code == 0
    tenant = yaml.safe_load(target.read_text())["tenants"]["small"]
    assert (tenant["policy"], tenant["cadence"]) == ({"tiresias": {"limits": [3600, 36000]}}, "rounds")


def test_one_job_is_no_history(tmp_path: Path) -> None:
    file = write(tmp_path / "jobs.csv", "id,submit,gpus,duration,tenant\na,0,1,100,x\n")
    complaint = horae("tenants", "plan", file, "--nodes", "1x1").complaint
    assert complaint == "--seen: no job is in the first part of the time; raise it"
