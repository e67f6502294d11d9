"""A team lead with one box: what the commands say, and the way out that they name."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from command_line import horae

BOX = """nodes:
- {name: n0, gpu: A100, gpus: 8}
tenants:
  a: {cells: {A100.gpu: 1}}
spare: {policy: fifo, cadence: events}
"""
JOBS = "id,submit,tenant,gpus,duration\n" + "".join(f"{number},2026-11-02 09:00,a,1,1h\n" for number in range(1, 10))


@pytest.fixture
def box(tmp_path: Path) -> Path:
    return written(tmp_path / "box.yaml", BOX)


@pytest.fixture
def jobs(tmp_path: Path) -> Path:
    return written(tmp_path / "jobs.csv", JOBS)


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_an_idle_box_is_lent_out_and_the_bound_holds(box: Path, jobs: Path, tmp_path: Path) -> None:
    out = tmp_path / "jobs-out.csv"
    told = horae("compare", jobs, "--cluster", box, "--policy", "fifo", "--jobs-out", out)
    assert told.code == 0, told.err
    with out.open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["policy"] == "fifo"]
    assert sorted(float(row["started_at"]) for row in rows) == [0.0] * 8 + [3600.0]
    last = max(rows, key=lambda row: row["ended_at"])
    assert (last["submitted_date"], last["ended_date"]) == ("2026-11-02 09:00:00", "2026-11-02 11:00:00")


def test_why_says_when_a_job_ended_and_when_it_started_in_fact(box: Path, jobs: Path, tmp_path: Path) -> None:
    journal = tmp_path / "run.jsonl"
    horae("simulate", jobs, "--cluster", box, "--journal", journal)
    assert horae("why", "1", "--journal", journal).out.startswith("1 has finished at 2026-11-02 10:00:00 (3,600 s)")
    waits = horae("why", "9", "--at", "10m", "--journal", journal).out
    assert "  in fact   it started at 2026-11-02 10:00:00" in waits
    assert "in fact" not in horae("why", "9", "--journal", journal).out


def test_a_refused_job_is_told_its_way_out(box: Path, tmp_path: Path) -> None:
    jobs = written(tmp_path / "large.csv", "id,submit,tenant,gpus,duration\nx,60,a,4,1h\ny,60,a,16,1h\n")
    journal = tmp_path / "run.jsonl"
    told = horae("simulate", jobs, "--cluster", box, "--journal", journal)
    lines = {line.split(":")[0]: line for line in told.out.splitlines() if line.startswith("refused")}
    assert lines["refused x"].endswith("with a negative priority it runs on idle GPUs in pool 'spare'")
    assert "priority" not in lines["refused y"]
    why = horae("why", "x", "--journal", journal).out
    assert why.startswith("x was refused at 0.02 h (60 s)")
    assert "unblocks  a negative priority: it then runs on idle GPUs in pool 'spare'" in why
    assert "at most 1 GPU of that kind" in why


def test_a_table_is_no_journal(jobs: Path) -> None:
    assert "is no journal; name a file made with --journal" in horae("why", "1", "--journal", jobs).complaint


def test_jobs_may_be_given_without_their_option_but_only_once(jobs: Path) -> None:
    assert "9/9" in horae("simulate", jobs, "--nodes", "1x8").out
    assert "give one of the two" in horae("simulate", jobs, "--jobs", jobs, "--nodes", "1x8").complaint


def test_another_cluster_may_be_a_quick_one(jobs: Path) -> None:
    told = horae("compare", jobs, "--nodes", "1x8:A100", "--vs", "1x12:A100", "--policy", "fifo")
    assert told.code == 0, told.err
    assert "fifo on 1x12:A100" in told.out


def test_too_many_cells_are_told_with_their_total(tmp_path: Path) -> None:
    tenants = "".join(f"  {name}: {{cells: {{A100.gpu: 4}}}}\n" for name in "abc")
    box = written(tmp_path / "box.yaml", f"nodes:\n- {{name: n0, gpu: A100, gpus: 8}}\ntenants:\n{tenants}")
    assert "12 are promised, 8 are there" in horae("cluster", "show", box).complaint


def test_one_of_a_kind_is_not_called_several(box: Path, tmp_path: Path) -> None:
    assert "8 GPUs, 1 node, levels" in horae("cluster", "show", box).out
    one = written(tmp_path / "one.yaml", "nodes:\n- {name: n0, gpu: A100, gpus: 1}\n")
    assert "1 GPU, 1 node, levels" in horae("cluster", "show", one).out


TWO_TYPES = ("--nodes", "1x8:A100", "--nodes", "1x8:V100")


def test_gpu_types_of_equal_speed_are_told_once(jobs: Path, tmp_path: Path) -> None:
    told = horae("simulate", jobs, *TWO_TYPES)
    assert told.err.count("all GPU types count as equally fast: give a column speed") == 1
    fast = written(tmp_path / "fast.csv", "submit,gpus,duration,speed\n0,1,1h,A100=3;V100=1\n")
    assert "equally fast" not in horae("simulate", fast, *TWO_TYPES).err
    assert "equally fast" not in horae("simulate", jobs, "--nodes", "1x8").err


def test_models_without_a_known_speed_are_counted(tmp_path: Path) -> None:
    jobs = written(tmp_path / "models.csv", "submit,gpus,duration,model\n0,1,1h,bert\n0,1,1h,my-own\n0,1,1h,my-own\n")
    told = horae("simulate", jobs, *TWO_TYPES, "--speeds", "shipped")
    assert "rows changed: the speed tables do not have its model" in told.err


TWOS = "id,submit,tenant,gpus,duration\n" + "".join(
    f"{number},{number * 3600},{'abcde'[number % 5]},2,1h\n" for number in range(50)
)


def test_a_plan_divides_quick_nodes_into_halves(tmp_path: Path) -> None:
    told = horae("tenants", "plan", written(tmp_path / "twos.csv", TWOS), "--nodes", "2x8:A100")
    assert told.code == 0, told.err
    assert "A100.pair: " in told.out
    assert "On the last 0.8 days, unseen and begun on an empty cluster" in told.out


def test_a_plan_names_the_cells_that_are_needed(tmp_path: Path) -> None:
    jobs = written(tmp_path / "twos.csv", TWOS)
    plain = written(tmp_path / "plain.yaml", "nodes:\n- {name: 'n[0-1]', gpu: A100, gpus: 8}\n")
    said = horae("tenants", "plan", jobs, "--cluster", plain)
    assert said.code == 2
    assert (
        "the largest gangs of 5 tenants need 5 nodes, that is 40 GPUs, and 2 nodes (16 GPUs) of A100 are there; "
        "a gang of 2 takes a whole node, because nodes have no smaller cells" in said.err
    )


def test_a_plan_takes_a_cluster_file_with_its_names_and_levels(tmp_path: Path) -> None:
    nodes = "name: lab\nnodes:\n- {name: 'box[1-2]', gpu: A100, gpus: 8, levels: {pair: 2}}\n"
    file, planned = written(tmp_path / "lab.yaml", nodes), tmp_path / "planned.yaml"
    jobs = written(tmp_path / "twos.csv", TWOS)
    told = horae("tenants", "plan", jobs, "--cluster", file, "--write", planned)
    assert told.code == 0, told.err
    assert "box2" in planned.read_text(encoding="utf-8")
    assert horae("simulate", jobs, "--cluster", planned).code == 0


def test_a_plan_without_tenants_says_how_to_name_them(tmp_path: Path) -> None:
    jobs = written(tmp_path / "users.csv", TWOS.replace("tenant", "user"))
    told = horae("tenants", "plan", jobs, "--nodes", "2x8")
    assert "all jobs are of tenant 'default'; use --map tenant=" in told.err


def test_nan_is_no_option_of_a_policy() -> None:
    said = horae("simulate", "--policy", "tiresias={limits: [.nan]}").complaint
    assert "--policy" in said
    assert "give a list of numbers" in said
