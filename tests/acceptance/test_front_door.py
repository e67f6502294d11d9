"""`import horae`: the public names, what they cost, and the examples."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from patience import HANG_SECONDS

import horae

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
SEVEN_LINES = """
import horae
cluster = horae.load_cluster("2x4:V100")
jobs = horae.load_jobs("jobs.csv", cluster)
result = horae.simulate(cluster, jobs, "srtf")
print(result.jobs.select("id", "ended_at"))
print(result.metrics.completion_mean_seconds)
result.plots()["completion"].savefig("completion.png")
"""


def run(code: str, folder: Path) -> str:
    environment = {**os.environ, "MPLBACKEND": "Agg"}
    command = [sys.executable, "-c", code]
    answer = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=HANG_SECONDS, check=False
    )
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def test_exactly_these_names_are_public() -> None:
    assert horae.__all__ == [
        "load_cluster", "load_jobs", "simulate", "compare", "Jobs", "SimulationResult", "ComparisonResult", "Scheduler",
        "Policy", "View", "Ranking", "Shares", "Grants", "check_policy", "Journal", "HoraeError", "InputError",
        "ClusterError", "JobError", "PolicyError", "JournalError", "Client", "ServiceError", "__version__",
    ]  # fmt: skip
    for name in horae.__all__:
        assert getattr(horae, name).__doc__ or name == "__version__", f"{name} is not documented"
    with pytest.raises(AttributeError, match="has no attribute 'simulator'"):
        _ = horae.simulator
    assert (ROOT / "src/horae/py.typed").exists()


def test_the_import_loads_no_library() -> None:
    heavy = ("numpy", "polars", "numba", "matplotlib", "scipy", "typer", "pydantic", "httpx")
    assert run(f"import sys, horae; print([name for name in {heavy} if name in sys.modules])", ROOT) == "[]\n"


def test_seven_lines_simulate_a_csv_and_plot_it(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text("id,submit,gpus,duration\nlong,0,8,100\nshort,10,8,20\n")
    assert len(SEVEN_LINES.strip().splitlines()) == 7
    said = run(SEVEN_LINES, tmp_path)
    assert "short" in said
    assert (tmp_path / "completion.png").read_bytes().startswith(b"\x89PNG")


def test_results_are_data_frames(tmp_path: Path) -> None:
    cluster = horae.load_cluster("2x4:V100", cadence="events")
    (tmp_path / "jobs.csv").write_text("id,submit,tenant,gpus,duration\na,0,x,8,100\nb,10,y,8,20\n")
    jobs = horae.load_jobs(tmp_path / "jobs.csv", cluster)
    result = horae.simulate(cluster, jobs, "fifo")
    found = result.jobs.sort("id")
    assert found.select("id", "tenant", "outcome", "gpus").rows() == [
        ("a", "x", "finished", 8),
        ("b", "y", "finished", 8),
    ]
    assert found["ended_at"].to_list() == [100.0, 120.0]
    assert result.leases["job"].to_list() == ["a", "b"]
    assert isinstance(result.apps, pl.DataFrame)
    assert set(result.apps["app"]) == {"a", "b"}
    compared = horae.compare(cluster, jobs, ["fifo", "sjf"])
    assert set(compared.frame["policy"]) == {"fifo", "sjf"}
    assert "fifo" in compared.to_markdown()
    assert [row["policy"] for row in json.loads(compared.to_json())["policies"]] == ["fifo", "sjf"]


def test_wrong_input_is_an_error_of_ours(tmp_path: Path) -> None:
    cluster = horae.load_cluster("2x4:V100")
    with pytest.raises(horae.InputError):
        horae.load_cluster("many nodes")
    with pytest.raises(horae.InputError):
        horae.load_cluster(tmp_path / "none.yaml")
    with pytest.raises(horae.InputError):
        horae.load_jobs(tmp_path / "none.csv", cluster)
    with pytest.raises(horae.PolicyError, match="there is no policy 'fof'"):
        horae.simulate(cluster, [], "fof")
    with pytest.raises(horae.InputError, match="at least one"):
        horae.compare(cluster, [], [])
    with pytest.raises(horae.InputError, match="is not compared"):
        horae.compare(cluster, [], ["fifo"], baseline="sjf")


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_examples_run(name: str, tmp_path: Path) -> None:
    assert run((EXAMPLES / name).read_text(), tmp_path)


def test_the_notebook_runs(tmp_path: Path) -> None:
    cells = json.loads((EXAMPLES / "tour.ipynb").read_text())["cells"]
    assert not any(cell.get("outputs") for cell in cells), "commit notebooks without outputs"
    run("\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"), tmp_path)
