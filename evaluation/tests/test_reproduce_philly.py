"""Published results, run again. The traces are not part of the repository."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from command_line import horae
from horae_evaluation.cli.main import PHILLY_POLICIES, PHILLY_VCS, TOLERANCE, reproduce_philly


def test_all_eight_means_are_within_half_a_percent(data: Path) -> None:
    comparisons = reproduce_philly(data)
    assert [(item.vc, item.policy) for item in comparisons] == [
        (vc, policy) for vc in PHILLY_VCS for policy in PHILLY_POLICIES
    ]
    off = {(item.vc, item.policy): item.difference for item in comparisons if abs(item.difference) > TOLERANCE}
    assert not off
    assert all(item.holds for item in comparisons)
    assert [item.jobs for item in comparisons[::2]] == [1098, 747, 2199, 4243]
    assert TOLERANCE == 0.005


def test_without_a_folder_it_says_how_to_name_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HORAE_DATA", "")
    want = "--data: no data folder was named; use --data DIR or set HORAE_DATA"
    assert horae("reproduce", "philly").complaint == want


def test_a_file_is_no_data_folder(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.touch()
    want = f"{path}: --data: is not a folder; name the folder with the traces"
    assert horae("reproduce", "philly", "--data", path).complaint == want


def test_a_table_that_is_missing_is_named(tmp_path: Path) -> None:
    want = (
        f"{tmp_path}/philly/vc_nodes.csv: is not in the data folder; "
        "name the folder that holds it with --data or HORAE_DATA"
    )
    assert horae("reproduce", "philly", "--data", tmp_path).complaint == want


# Tables of a few rows, with everything that is needed, and then spoiled.

NODES = "vc,nodes_8gpu\n" + "".join(f"{vc},2\n" for vc in PHILLY_VCS)
PUBLISHED = "vc,policy,avg_jct_s\n" + "".join(f"{vc},{policy},100\n" for vc in PHILLY_VCS for policy in PHILLY_POLICIES)
JOBS = "job_id,vc,submit_s,num_gpu,duration_s\n" + "".join(f"{vc}-0,{vc},4000000,1,100\n" for vc in PHILLY_VCS)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    (tmp_path / "philly").mkdir()
    (tmp_path / "philly/vc_nodes.csv").write_text(NODES)
    (tmp_path / "philly/published_vc_results.csv").write_text(PUBLISHED)
    (tmp_path / "philly/philly_4vc.csv.gz").write_bytes(gzip.compress(JOBS.encode()))
    return tmp_path


def test_small_tables_are_enough(small: Path) -> None:
    assert horae("reproduce", "philly", "--data", small).code == 0


def test_a_published_value_that_is_off_ends_with_an_error(small: Path) -> None:
    published = PUBLISHED.replace(",100\n", ",10000\n").replace("2869ce,sjf,10000\n", "2869ce,sjf,10108\n")
    (small / "philly/published_vc_results.csv").write_text(published)
    jobs = JOBS.replace(",100\n", ",10000\n")
    (small / "philly/philly_4vc.csv.gz").write_bytes(gzip.compress(jobs.encode()))
    outcome = horae("reproduce", "philly", "--data", small)
    assert (outcome.code, outcome.err) == (1, "")
    rows = [line for line in outcome.out.splitlines() if "│" in line]
    assert len(rows) == 8
    (wrong,) = [row for row in rows if "DIFFERS" in row]
    assert "2869ce" in wrong
    assert "-1.07%" in wrong
    assert sum("within 0.5%" in row for row in rows) == 7


SPOILED = {
    "a job has no GPUs": (
        "philly_4vc.csv.gz",
        JOBS.replace("7f04ca,4000000,1,", "7f04ca,4000000,0,"),
        ":2: num_gpu: is '0'; give a whole number of at least 1",
    ),
    "a job has a word of GPUs": (
        "philly_4vc.csv.gz",
        JOBS.replace("0e4a51,4000000,1,", "0e4a51,4000000,two,"),
        ":4: num_gpu: is 'two'; give a whole number of at least 1",
    ),
    "a job was submitted before the beginning": (
        "philly_4vc.csv.gz",
        JOBS.replace("2869ce,4000000,", "2869ce,-4,"),
        ":3: submit_s: is '-4'; give a whole number of at least 0",
    ),
    "a duration is missing": (
        "philly_4vc.csv.gz",
        JOBS.removesuffix("100\n") + "\n",
        ":5: duration_s: is None; give a whole number of at least 1",
    ),
    "a column is missing": (
        "philly_4vc.csv.gz",
        JOBS.replace("num_gpu", "gpus"),
        ":1: num_gpu: is missing; fetch the file again",
    ),
    "a virtual cluster has no jobs": (
        "philly_4vc.csv.gz",
        JOBS.replace("ee9e8c-0,ee9e8c", "ee9e8c-0,other"),
        ": vc: has no 'ee9e8c'; fetch the file again",
    ),
    "a virtual cluster has no nodes": (
        "vc_nodes.csv",
        NODES.replace("7f04ca,2\n", ""),
        ": vc: has no '7f04ca'; fetch the file again",
    ),
    "the number of nodes is zero": (
        "vc_nodes.csv",
        NODES.replace("7f04ca,2\n", "7f04ca,0\n"),
        ":2: nodes_8gpu: is '0'; give a whole number of at least 1",
    ),
    "nothing was published": (
        "published_vc_results.csv",
        PUBLISHED.replace("2869ce,sjf,100\n", ""),
        ": policy: has no 'sjf' for '2869ce'; fetch the file again",
    ),
    "the file is empty": ("vc_nodes.csv", "", ": not CSV: empty CSV; fetch the file again"),
}


@pytest.mark.parametrize(("name", "text", "want"), SPOILED.values(), ids=SPOILED)
def test_a_spoiled_table_is_one_line_with_its_place(small: Path, name: str, text: str, want: str) -> None:
    path = small / "philly" / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    assert horae("reproduce", "philly", "--data", small).complaint == f"{path}{want}"
