"""A table of jobs that a team keeps itself, in the spelling of people and spreadsheets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import Outcome, horae

TEAM = """Who,Submitted,GPUs,Hours
Chen Wei,2026-11-02 09:10,8,4
Ada,2026-11-02 09:35,1,30
Bob,2026-11-03 10:00,2,0.5
"""


@pytest.fixture
def team(tmp_path: Path) -> Path:
    return written(tmp_path, TEAM)


def written(folder: Path, text: str) -> Path:
    path = folder / "team.csv"
    path.write_text(text, encoding="utf-8")
    return path


def info(path: Path, mapping: str = "") -> Outcome:
    return horae("trace", "info", path, *(("--map", mapping) if mapping else ()), "-o", "json")


def gpu_hours(path: Path, mapping: str = "") -> float:
    told = info(path, mapping)
    assert (told.code, told.err) == (0, "")
    return float(json.loads(told.out)["gpu_hours"])


def one_row(folder: Path, submit: str = "0", duration: str = "1h") -> Path:
    return written(folder, f"submit,gpus,duration\n{submit},1,{duration}\n")


@pytest.mark.parametrize(("unit", "seconds"), [("h", 3600), ("m", 60), ("s", 1), ("d", 86400), ("hours", 3600)])
def test_a_column_may_have_a_unit(team: Path, unit: str, seconds: int) -> None:
    hours = gpu_hours(team, f"submit=Submitted,gpus=GPUs,duration=Hours:{unit}")
    assert hours == pytest.approx((8 * 4 + 30 + 2 * 0.5) * seconds / 3600)


def test_numbers_under_hours_are_warned_of_with_the_remedy(team: Path) -> None:
    told = info(team, "submit=Submitted,gpus=GPUs,duration=Hours")
    assert told.code == 0
    (line,) = told.err.splitlines()
    assert "column Hours are read as seconds" in line
    assert "--map duration=Hours:h" in line
    run = horae("simulate", "--nodes", "1x8", "--jobs", team, "--map", "submit=Submitted,gpus=GPUs,duration=Hours")
    assert line in run.err


def test_run_times_below_a_minute_are_warned_of(tmp_path: Path) -> None:
    path = written(tmp_path, TEAM.replace("Hours", "Length"))
    (line,) = info(path, "submit=Submitted,gpus=GPUs,duration=Length").err.splitlines()
    assert "half of the jobs run for less than 60 s" in line
    assert "--map duration=Length:h" in line


def test_times_with_their_units_are_not_warned_of(tmp_path: Path) -> None:
    path = written(tmp_path, TEAM.replace(",4\n", ",4h\n").replace(",30\n", ",30h\n").replace(",0.5\n", ",30m\n"))
    assert gpu_hours(path, "submit=Submitted,gpus=GPUs,duration=Hours") == pytest.approx(8 * 4 + 30 + 1)


@pytest.mark.parametrize("field", ["duration=Hours:x", "gpus=GPUs:h,duration=Hours:h"])
def test_a_unit_that_makes_no_sense_is_an_error(team: Path, field: str) -> None:
    told = info(team, f"submit=Submitted,gpus=GPUs,{field}" if field.startswith("d") else f"submit=Submitted,{field}")
    assert "unit" in told.complaint


def test_names_of_columns_match_in_any_case(tmp_path: Path) -> None:
    path = written(tmp_path, TEAM)
    assert gpu_hours(path, "submit=submitted,gpus=gpus,duration=HOURS:h") == pytest.approx(63)
    path = written(tmp_path, "Submit,User,GPUs,Duration\n0,ada,2,1h\n")
    assert gpu_hours(path) == pytest.approx(2)


def test_a_column_that_is_there_in_two_cases_is_not_guessed(tmp_path: Path) -> None:
    path = written(tmp_path, "Submit,SUBMIT,gpus,duration\n0,0,2,1h\n")
    assert "Submit: is not a known column" in info(path).complaint


@pytest.mark.parametrize(
    ("text", "hours"),
    [("1h30m", 1.5), ("3 hours", 3), ("90 min", 1.5), ("2 days", 48), ("1 day 2 hours", 26), ("3:30", 210 / 3600)],
)
def test_durations_as_people_write_them(tmp_path: Path, text: str, hours: float) -> None:
    assert gpu_hours(one_row(tmp_path, duration=text)) == pytest.approx(hours)


def test_a_decimal_comma_is_refused_with_the_number_to_write(tmp_path: Path) -> None:
    path = written(tmp_path, "Submitted;GPUs;Length\n0;1;0,5\n")
    assert info(path, "submit=Submitted,gpus=GPUs,duration=Length:h").complaint.endswith("'0,5' is no time; write 0.5")


@pytest.mark.parametrize("date", ["2026-11-2 9:30", "2026-11-02 9:30", "2026-11-2 09:30:00", "2026-11-2T9:30:00Z"])
def test_dates_with_one_digit(tmp_path: Path, date: str) -> None:
    told = json.loads(info(one_row(tmp_path, submit=date)).out)
    assert told["origin"] == "2026-11-02 09:30:00"


@pytest.mark.parametrize("date", ["11/02/2026", "11/02/2026 09:30", "02.11.2026"])
def test_dates_of_some_country_are_refused_with_the_form_to_write(tmp_path: Path, date: str) -> None:
    assert info(one_row(tmp_path, submit=date)).complaint.endswith("write it as 2026-11-02 09:30")


@pytest.mark.parametrize("quote", ["", '"'])
def test_comments_before_the_header_are_skipped_and_lines_still_counted(tmp_path: Path, quote: str) -> None:
    rows = f"submit,gpus,duration,user\n0,1,1h,{quote}ada{quote}\n0,x,1h,bob\n"
    told = info(written(tmp_path, f'# jobs.csv\n\n# "of the team, 2026\n{rows}'))
    assert json.loads(told.out)["jobs"] == 1
    assert "team.csv:6: gpus" in told.err


@pytest.mark.parametrize("row", [",,,", " , ,, ", ",,,,,,", '"",,,'])
def test_a_row_of_separators_is_a_blank_line(tmp_path: Path, row: str) -> None:
    path = written(tmp_path, f"submit,gpus,duration,user\n0,1,1h,ada\n{row}\n0,1,1h,bob\n")
    assert gpu_hours(path) == pytest.approx(2)


def test_a_file_without_a_usable_row_is_an_error_with_the_reason(tmp_path: Path) -> None:
    assert "gpus" in info(written(tmp_path, "submit,gpus,duration\n0,two,1h\n")).complaint
    assert "has no jobs" in info(written(tmp_path, "submit,gpus,duration\n")).complaint
