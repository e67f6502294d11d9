"""The losses that real jobs report, as they are found in their files."""

from __future__ import annotations

import os
from math import isnan
from pathlib import Path

import pytest

from horae.engines.local.job_files import JobFolder, LocalReports, spoil_half_a_line
from horae.engines.search.loss_forecast import Report


@pytest.fixture
def file(tmp_path: Path) -> Path:
    folder = JobFolder.of(tmp_path, "a/job")
    folder.path.mkdir(parents=True)
    return folder.reports


def told(reports: LocalReports) -> list[tuple[float, float]]:
    found = reports.until("a/job", 0.0)
    assert all(isinstance(report, Report) and report.job_id == "a/job" for report in found)
    return [(steps, loss) for _, steps, loss in found]


def append(file: Path, text: str | bytes) -> None:
    with file.open("ab") as opened:
        opened.write(text.encode() if isinstance(text, str) else text)


def test_what_is_new_is_told_once(tmp_path: Path, file: Path) -> None:
    reports = LocalReports(tmp_path)
    assert told(reports) == []
    append(file, "1 0.9\n2 0.8\n")
    assert told(reports) == [(1.0, 0.9), (2.0, 0.8)]
    assert told(reports) == []
    append(file, "3 0.7\n")
    assert told(reports) == [(3.0, 0.7)]
    assert told(LocalReports(tmp_path)) == [(1.0, 0.9), (2.0, 0.8), (3.0, 0.7)]


def test_a_line_counts_when_it_has_its_newline(tmp_path: Path, file: Path) -> None:
    reports = LocalReports(tmp_path)
    append(file, "1 0.9\n2 0.")
    assert told(reports) == [(1.0, 0.9)]
    append(file, "85")
    assert told(reports) == []
    append(file, "4\n")
    assert told(reports) == [(2.0, 0.854)]


@pytest.mark.parametrize(
    "line",
    ["", "3", "3 0.5 0.6", "three 0.5", "3 low", "3;0.5", "-3 0.5", "nan 0.5", "inf 0.5", b"\xff\xfe 0.5", b"\x00" * 9],
)
def test_what_is_no_report_is_passed_over(tmp_path: Path, file: Path, line: str | bytes) -> None:
    append(file, "1 0.9\n")
    append(file, line)
    append(file, "\n4 0.4\n")
    assert told(LocalReports(tmp_path)) == [(1.0, 0.9), (4.0, 0.4)]


def test_a_loss_that_is_not_a_number_is_a_report_that_training_went_wrong(tmp_path: Path, file: Path) -> None:
    append(file, "1 nan\n")
    ((steps, loss),) = told(LocalReports(tmp_path))
    assert steps == 1.0 and isnan(loss)


def test_a_file_that_has_shrunk_is_read_from_its_beginning(tmp_path: Path, file: Path) -> None:
    reports = LocalReports(tmp_path)
    append(file, "1 0.9\n2 0.8\n")
    told(reports)
    file.write_text("1 0.7\n")
    assert told(reports) == [(1.0, 0.7)]
    append(file, "2 0.6\n")
    assert told(reports) == [(2.0, 0.6)]


def test_a_file_that_vanishes_or_cannot_be_read_does_no_harm(tmp_path: Path, file: Path) -> None:
    reports = LocalReports(tmp_path)
    append(file, "1 0.9\n")
    told(reports)
    file.unlink()
    assert told(reports) == []
    file.mkdir()
    assert told(reports) == []
    file.rmdir()
    append(file, "7 0.3\n")
    assert told(reports) == [(7.0, 0.3)]


def test_half_a_line_of_a_run_that_was_killed_spoils_no_line_of_the_next(tmp_path: Path, file: Path) -> None:
    reports = LocalReports(tmp_path)
    spoil_half_a_line(file)
    assert not file.exists()
    append(file, "1 0.9\n1")
    assert told(reports) == [(1.0, 0.9)]
    spoil_half_a_line(file)
    append(file, "2 0.8\n")
    spoil_half_a_line(file)
    assert told(reports) == [(2.0, 0.8)]


def test_a_pipe_or_a_link_in_the_place_of_the_file_is_not_read(tmp_path: Path, file: Path) -> None:
    os.mkfifo(file)
    assert told(LocalReports(tmp_path)) == []
    spoil_half_a_line(file)
    file.unlink()
    (tmp_path / "secret").write_text("1 0.9\n")
    file.symlink_to(tmp_path / "secret")
    assert told(LocalReports(tmp_path)) == []


def test_a_large_file_is_read_in_parts(tmp_path: Path, file: Path) -> None:
    reports = LocalReports(tmp_path)
    file.write_bytes(b"x" * (5 << 20) + b"\n" + b"7 0.3\n")
    assert told(reports) == []
    assert told(reports) == [(7.0, 0.3)]
