"""Tables of what two jobs on the same GPUs keep of their speeds: what they mean, and what is said about wrong ones."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest
from command_line import horae

from horae.cells.binding import CellBinding
from horae.cli.sharing import with_sharing
from horae.model.errors import InputError
from horae.model.speeds import Sharing
from horae.policies.registry import make_policy
from horae.traces.clusters.file import read_cluster
from horae.traces.sharing_table import on_types, read_sharing

HEADER = "model_a,model_b,gpu,gpus,kept_a,kept_b\n"
COLUMNS = "give the columns model_a, model_b, gpu, gpus, kept_a, kept_b"
PART = "give the part of its speed that it keeps, as 0.85; 0: the two do not fit"
LAB = "nodes:\n  - {name: a, gpu: V100, gpus: 1}\nrestart_seconds: 0\nspare: {cadence: rounds}\n"
JOBS = "id,submit,gpus,steps,model,speed\none,0,1,3600,LM,1\ntwo,0,1,3600,LM,1\n"

# Sentence, file, and all that is said about it behind the file's name.
WRONG: dict[str, tuple[str, str]] = {
    "the file is empty": ("", f": is empty; {COLUMNS}"),
    "a column is missing": ("model_a,model_b,gpu,gpus,kept_a\n", f":1: kept_b: is missing; {COLUMNS}"),
    "a column is there twice": (
        "model_a,model_a,model_b,gpu,gpus,kept_a,kept_b\n",
        f":1: model_a: is there twice; {COLUMNS}",
    ),
    "there are no rows": (HEADER, ": has no pairs; give a row for each two models that may share GPUs"),
    "a cell is missing": (
        f"{HEADER}LM,GNMT,V100,1,0.7\n",
        ":2: has 5 cells under 6 columns; give one cell for each column",
    ),
    "a model has no name": (f"{HEADER},GNMT,V100,1,0.7,0.8\n", ":2: model_a: is empty; give a name"),
    "a gang is a half": (
        f"{HEADER}LM,GNMT,V100,0.5,0.7,0.8\n",
        ":2: gpus: is '0.5'; give a whole number from 1 to 1000000",
    ),
    "a part is a percentage": (f"{HEADER}LM,GNMT,V100,1,70,80\n", f":2: kept_a: is '70'; {PART}"),
    "a part is not a number": (f"{HEADER}\nLM,GNMT,V100,1,0.7,most\n", f":3: kept_b: is 'most'; {PART}"),
    "a part is nan": (f"{HEADER}LM,GNMT,V100,1,nan,0.5\n", f":2: kept_a: is 'nan'; {PART}"),
    "one model keeps two parts": (
        f"{HEADER}LM,LM,V100,1,0.7,0.8\n",
        ":2: kept_b: is '0.8'; two jobs of one model keep the same: give 0.7",
    ),
    "a pair is given in both orders": (
        f"{HEADER}LM,GNMT,V100,1,0.7,0.8\nGNMT,LM,v100,1,0.8,0.7\n",
        ":3: model_b: the pair is on line 2 too; give each pair once, in either order",
    ),
    "all rows are for other types": (
        f"{HEADER}LM,GNMT,K80,1,0.7,0.8\n",
        ": gpu: has no row for a GPU type of the cluster; use V100, P100",
    ),
}


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


@pytest.mark.parametrize(("text", "want"), WRONG.values(), ids=WRONG)
def test_a_wrong_table_is_one_line_with_its_place_and_a_remedy(tmp_path: Path, text: str, want: str) -> None:
    path = write(tmp_path, "pairs.csv", text)
    with pytest.raises(InputError) as caught:
        on_types(read_sharing(path), ("V100", "P100"), path)
    assert str(caught.value) == f"{path}{want}"


def test_rows_about_the_types_of_the_cluster_are_taken_in_its_spelling(tmp_path: Path) -> None:
    rows = f"{HEADER}LM, GNMT, v100, 1, 0.7, 0.8\nLM,LM,P100,2,0,0\nLM,GNMT,K80,1,0.5,0.5\n"
    (tmp_path / "pairs.csv.gz").write_bytes(gzip.compress(rows.encode()))
    path = tmp_path / "pairs.csv.gz"
    assert on_types(read_sharing(path), ("V100", "P100"), path) == (
        Sharing(("LM", "GNMT"), "V100", 1, (0.7, 0.8)),
        Sharing(("LM", "LM"), "P100", 2, (0.0, 0.0)),
    )


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.csv: "):
        read_sharing(tmp_path / "none.csv")


def test_a_throughput_file_of_gavel_does_as_well(tmp_path: Path) -> None:
    """What each keeps is its speed beside the other over its speed alone."""
    speeds = {"v100": {"('LM', 1)": {"null": 10.0, "('LM', 1)": [9.0, 9.0]}}}
    path = write(tmp_path, "speeds.json", json.dumps(speeds))
    setup = read_cluster(write(tmp_path, "lab.yaml", LAB), make_policy, CellBinding)
    assert with_sharing(setup, path).sharing == (Sharing(("LM", "LM"), "V100", 1, (0.9, 0.9)),)
    assert with_sharing(setup, None) == setup


@pytest.mark.parametrize("command", [["simulate", "--jobs"], ["compare", "--no-cache", "--quiet"]])
def test_two_jobs_that_keep_most_of_their_speeds_are_done_sooner_together(tmp_path: Path, command: list[str]) -> None:
    lab, jobs = write(tmp_path, "lab.yaml", LAB), write(tmp_path, "jobs.csv", JOBS)
    pairs = write(tmp_path, "pairs.csv", f"{HEADER}LM,LM,V100,1,0.8,0.8\n")
    options = ["--cluster", lab, "--policy", "max-min={sharing: true}", "-o", "json"]
    alone, together = horae(*command, jobs, *options), horae(*command, jobs, *options, "--sharing", pairs)
    assert _makespan_seconds(alone.out) == 7200.0  # one after the other, in turns
    assert _makespan_seconds(together.out) == 4500.0  # both at 0.8 of their speeds


def _makespan_seconds(text: str) -> float:
    found = re.search(r'"makespan_seconds": ([0-9.]+)', text)
    assert found is not None
    return float(found[1])
