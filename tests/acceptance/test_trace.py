"""`horae trace`, `horae why` and `horae policy` as a user meets them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

import pytest
from command_line import horae

from horae.policies import POLICIES

PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def four_columns(tmp_path: Path) -> Path:
    path = tmp_path / "mine.csv"
    path.write_text(
        "who,SubmitTime,n_gpu,secs\n"
        "ada,2024-05-01 08:00:00,1,600\n"
        "bob,2024-05-01 08:10:00,4,7200\n"
        "ada,2024-05-01 08:20:00,-2,60\n"
        "cyd,2024-05-01 09:00:00,8,30m\n"
    )
    return path


MAPPING = "submit=SubmitTime,gpus=n_gpu,duration=secs,user=who"


def test_info_counts_jobs_and_names_broken_rows(four_columns: Path) -> None:
    told = horae("trace", "info", four_columns, "--map", MAPPING)
    assert told.code == 0
    assert "3 jobs, second 0 is 2024-05-01" in told.out
    assert "ada 1" in told.out
    assert f"{four_columns}: 1 broken row left out" in told.err
    assert f"{four_columns}:4: n_gpu" in told.err


def test_info_as_json_has_all_numbers(four_columns: Path) -> None:
    told = json.loads(horae("trace", "info", four_columns, "--map", MAPPING, "-o", "json").out)
    assert (told["jobs"], told["broken"], told["faults"][0]["line"]) == (3, 1, 4)
    assert told["gpu_hours"] == pytest.approx((600 + 4 * 7200 + 8 * 1800) / 3600)
    assert told["users"] == {"ada": 1, "bob": 1, "cyd": 1}


def test_strict_stops_at_the_first_broken_row(four_columns: Path) -> None:
    complaint = horae("trace", "info", four_columns, "--map", MAPPING, "--strict").complaint
    assert complaint.startswith(f"{four_columns}:4: n_gpu: ")


def test_a_csv_that_nobody_knows_is_answered_with_its_columns(four_columns: Path) -> None:
    complaint = horae("trace", "info", four_columns).complaint
    assert "SubmitTime" in complaint
    assert "--map" in complaint


@pytest.mark.parametrize("name", ["out.csv", "out.csv.gz", "out.parquet"])
def test_convert_writes_our_own_format_which_reads_the_same(four_columns: Path, tmp_path: Path, name: str) -> None:
    told = horae("trace", "convert", four_columns, tmp_path / name, "--map", MAPPING)
    assert told.out == f"{tmp_path / name}: 3 jobs\n"
    again = json.loads(horae("trace", "info", tmp_path / name, "-o", "json").out)
    first = json.loads(horae("trace", "info", four_columns, "--map", MAPPING, "-o", "json").out)
    for key in ("jobs", "span_seconds", "gpu_hours", "run_seconds", "gangs", "users"):
        assert again[key] == first[key]
    assert again["broken"] == 0


@pytest.mark.parametrize("kind", ["poisson={jobs: 50}", "themis", "diurnal={jobs: 50}", "heavy-tail={jobs: 50}"])
def test_what_is_generated_is_the_same_for_the_same_seed(tmp_path: Path, kind: str) -> None:
    one, two, other = (tmp_path / name for name in ("one.csv", "two.csv", "other.csv"))
    for path, seed in ((one, 3), (two, 3), (other, 4)):
        assert horae("trace", "generate", kind, path, "--seed", seed).code == 0
    assert one.read_bytes() == two.read_bytes()
    assert one.read_bytes() != other.read_bytes()
    assert horae("trace", "info", one).code == 0


def test_gavels_workload_needs_its_throughput_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HORAE_DATA", raising=False)
    assert "--data" in horae("trace", "generate", "gavel", tmp_path / "x.csv").complaint


@pytest.mark.skipif("HORAE_DATA" not in os.environ, reason="set HORAE_DATA to the folder with the published traces")
def test_gavels_workload_is_drawn_from_the_published_table(tmp_path: Path) -> None:
    assert horae("trace", "generate", "gavel={jobs: 40}", tmp_path / "x.csv").code == 0
    told = json.loads(horae("trace", "info", tmp_path / "x.csv", "-o", "json").out)
    assert told["jobs"] == 40
    assert all("batch size" in model or model for model in told["models"])


def test_plot_draws_four_plots_in_three_formats(four_columns: Path, tmp_path: Path) -> None:
    told = horae("trace", "plot", four_columns, tmp_path / "plots", "--map", MAPPING, "--gpus", 8)
    drawn = [Path(line) for line in told.out.splitlines()]
    assert [path.suffix for path in drawn] == [".pdf", ".svg", ".png"] * 4
    assert all(path.read_bytes().startswith(PNG) for path in drawn if path.suffix == ".png")


def test_a_file_that_cannot_be_written_is_one_line(four_columns: Path, tmp_path: Path) -> None:
    assert "ends in" in horae("trace", "convert", four_columns, tmp_path / "out.txt", "--map", MAPPING).err
    assert "out.csv" in horae("trace", "convert", four_columns, tmp_path / "no/out.csv", "--map", MAPPING).err


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("generate", "magic", "x.csv"), "no generator 'magic'"),
        (("generate", "poisson={jobs: many}", "x.csv"), "many"),
        (("generate", "poisson=7", "x.csv"), "are no options"),
        (("info", "nowhere.csv"), "nowhere.csv"),
        (("info", "x.csv", "--map", "submit"), "--map"),
        (("info", "x.csv", "--format", "magic"), "no format 'magic'"),
    ],
)
def test_what_a_user_got_wrong_is_one_line_with_its_remedy(arguments: tuple[str, ...], word: str) -> None:
    assert word in horae("trace", *arguments).complaint


def test_every_policy_has_a_description_of_its_own() -> None:
    shown = {name: horae("policy", "show", name).out.splitlines()[2] for name in POLICIES}
    same = {name: text for name, text in shown.items() if list(shown.values()).count(text) > 1}
    assert set(same) <= {"fifo-on-fastest", "sjf-on-fastest"}, same  # two variants of one policy, described together


def test_policies_are_listed_and_shown_with_their_options() -> None:
    listed = horae("policy", "ls").out
    assert all(name in listed for name in ("fifo", "srtf", "gittins", "drf", "yarn-cs"))
    shown = horae("policy", "show", "yarn-cs").out
    assert "guaranteed: {}  (by tenant, fraction of the pool; others by weight)" in shown
    plain = json.loads(horae("policy", "show", "tiresias", "-o", "json").out)
    assert plain["options"]["limits"]["default"] == [3250.0, 7200.0, 18000.0]
    assert "no policy 'magic'" in horae("policy", "show", "magic").complaint


def test_why_tells_what_blocks_a_job_and_what_would_unblock_it(tmp_path: Path) -> None:
    journal = tmp_path / "run.jsonl"
    jobs = tmp_path / "jobs.csv"
    jobs.write_text("id,submit,gpus,duration\nfirst,0,2,10h\nsecond,1h,2,1h\nhuge,2h,64,1h\n")
    lab = tmp_path / "lab.yaml"
    lab.write_text("nodes: [{name: a, gpu: A100, gpus: 2}]\n")
    assert horae("simulate", "--cluster", lab, "--jobs", jobs, "--journal", journal).code == 0
    told = horae("why", "second", "--at", "2h", "--journal", journal).out
    assert "second waits at 2.00 h" in told
    assert "not now: no room for 2 x A100" in told
    assert "held by   first (2 GPUs since 0.00 h, believed until 10.00 h)" in told
    assert "once first left (believed at 10.00 h)" in told
    never = horae("why", "huge", "--journal", journal).out
    assert "huge was refused" in never
    assert "never: " in never
    assert "ask for at most 2 GPUs" in never
    plain = json.loads(horae("why", "huge", "--journal", journal, "-o", "json").out)
    assert plain["reason"]["never"] is True
    assert "did you mean first" in horae("why", "frist", "--journal", journal).complaint
    assert "is no time" in horae("why", "first", "--journal", journal, "--at", "soon").complaint


def test_a_full_disk_is_one_line_whatever_is_printed() -> None:
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "horae", "policy", "ls"]
        done = subprocess.run(command, stdout=full, stderr=PIPE, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "horae: standard output: No space left on device; make room for it, or write elsewhere\n"


def test_whoever_reads_may_stop_reading() -> None:
    command = f"{sys.executable} -m horae policy ls -o json | head -c 1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[", "")


def test_control_characters_of_a_name_do_not_reach_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("submit,gpus,duration,user\n0,1,60,\x1b[31mred\n", encoding="utf-8")
    told = horae("trace", "info", path).out
    assert "\x1b" not in told
    assert "\\x1b[31mred 1" in told


def test_more_failures_than_anybody_could_plan_are_refused() -> None:
    complaint = horae("simulate", "--days-between-failures", "1e-9", "--repair-seconds", 0).complaint
    assert "let nodes live longer" in complaint
