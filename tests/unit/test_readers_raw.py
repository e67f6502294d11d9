"""Tables as text: what is read of them, and what is said about files that are none."""

from __future__ import annotations

import gzip
import tracemalloc
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest

from horae.model.errors import InputError
from horae.traces.readers import text_file
from horae.traces.readers.raw_table import RawTable, read_raw
from horae.traces.readers.text_file import LINE_BYTES_MAX

GOOD = "a,b\n1,2\n3,4\n"
ROWS = [("1", "2", 2), ("3", "4", 3)]


def write(folder: Path, data: str | bytes, name: str = "table.csv") -> Path:
    path = folder / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def complaint(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        read_raw(path)
    assert "\n" not in str(caught.value)
    return str(caught.value).removeprefix(str(path))


def read(folder: Path, data: str | bytes) -> RawTable:
    return read_raw(write(folder, data))


HARMLESS: dict[str, bytes] = {
    "plain": GOOD.encode(),
    "byte-order mark": b"\xef\xbb\xbf" + GOOD.encode(),
    "CRLF": GOOD.replace("\n", "\r\n").encode(),
    "CR alone": GOOD.replace("\n", "\r").encode(),
    "no last line end": GOOD.encode().removesuffix(b"\n"),
    "spaces around the cells": b" a ,b\n 1,2\t\n3 , 4\n",
    "spaces that are not ASCII": "a,b\n1,\u00a02\n3,4\u2003\n".encode(),
    "quotes": b'"a","b"\n"1","2"\n"3",4\n',
    "packed": gzip.compress(GOOD.encode()),
    "packed in pieces": gzip.compress(b"a,b\n1,") + gzip.compress(b"2\n3,4\n"),
    "packed with zeros behind": gzip.compress(GOOD.encode()) + b"\0" * 512,
}


@pytest.mark.parametrize("data", HARMLESS.values(), ids=HARMLESS)
def test_harmless_forms_of_a_table_are_all_the_same(tmp_path: Path, data: bytes) -> None:
    raw = read(tmp_path, data)
    assert (raw.columns, raw.cells.rows(), raw.faults, raw.header_line) == (["a", "b"], ROWS, (), 1)


@pytest.mark.parametrize("quote", ["", '"'], ids=["by columns", "row by row"])
def test_blank_lines_are_passed_over_and_counted(tmp_path: Path, quote: str) -> None:
    raw = read(tmp_path, f"\n  \n{quote}a{quote},b\n\n1,2\n \n3,4\n\n")
    assert (raw.cells.rows(), raw.header_line) == ([("1", "2", 5), ("3", "4", 7)], 3)


@pytest.mark.parametrize("quote", ["", '"'], ids=["by columns", "row by row"])
def test_rows_with_too_few_or_too_many_cells_are_faults(tmp_path: Path, quote: str) -> None:
    raw = read(tmp_path, f"{quote}a{quote},b,c\n1,2\n1,2,3\n1,2,3,4\n,,\n")
    assert [(fault.line, fault.field, fault.problem) for fault in raw.faults] == [
        (2, "c", "2 cells under 3 columns"),
        (4, "c", "4 cells under 3 columns"),
    ]
    assert raw.cells.rows() == [("1", "2", "3", 3)]  # a row of separators is a blank line


def test_a_million_faults_are_counted_and_a_thousand_are_listed(tmp_path: Path) -> None:
    raw = read(tmp_path, "a,b\n" + "1\n" * 3000)
    assert (len(raw.faults), raw.fault_count) == (1000, 3000)


def test_cells_in_quotes_may_have_separators_and_line_ends(tmp_path: Path) -> None:
    raw = read(tmp_path, 'a,b\n"1,\n1",2\n3,"say ""no"""\n')
    assert raw.cells.rows() == [("1,\n1", "2", 2), ("3", 'say "no"', 4)]


def test_a_column_of_lines_does_not_displace_the_count_of_lines(tmp_path: Path) -> None:
    raw = read(tmp_path, "line,b\n7,2\n")
    assert raw.cells["line"].to_list() == [2]


def test_parquet_is_read_as_text_with_the_number_of_the_row(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    pl.DataFrame({"a": [0.1, None], "b": [3, 4]}).write_parquet(path)
    assert read_raw(path).cells.rows() == [("0.1", "3", 1), (None, "4", 2)]


def test_a_parquet_column_that_is_no_text_is_named_only_if_it_is_needed(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    pl.DataFrame({"a": [1], "b": [[1, 2]], "c": [timedelta(1)], "d": [b"x"]}).write_parquet(path)
    raw = read_raw(path)
    assert raw.cells.rows() == [("1", 1)]
    for name, kind in {"b": "List(Int64)", "c": "Duration(time_unit='us')", "d": "Binary"}.items():
        with pytest.raises(InputError) as caught:
            raw.require(name)
        assert str(caught.value) == f"{path}: {name}: is a column of {kind}; make it numbers, text or dates"


def test_times_with_a_zone_stay_what_they_are_in_parquet(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    pl.DataFrame({"a": [datetime(2024, 3, 31, 1, tzinfo=UTC)], "b": [date(2024, 3, 31)]}).write_parquet(path)
    assert read_raw(path).cells.rows() == [("2024-03-31 01:00:00.000000+00:00", "2024-03-31", 1)]


WRONG: dict[str, tuple[bytes, str]] = {
    "the file is empty": (b"", ": has no jobs; add one row a job"),
    "there are only blank lines": (b"\n\n", ": has no jobs; add one row a job"),
    "there is only a header": (b"a,b\n", ": has no jobs; add one row a job"),
    "it is Latin-1": (b"a,b\n1,caf\xe9\n", ":2: is not UTF-8 text; name a CSV or YAML file in UTF-8"),
    "it is UTF-16": ("a,b\n".encode("utf-16"), ":1: is UTF-16, not UTF-8 text; name a CSV or YAML file in UTF-8"),
    "there is a NUL byte": (
        b"a,b\n1,2\n\0,3\n",
        ":3: has a NUL byte, so it is no text; name a CSV or YAML file in UTF-8",
    ),
    "a packed file is broken": (
        gzip.compress(GOOD.encode())[:10] + b"\xff" * 20,
        ": is broken gzip data before its first line ends; fetch or copy the file again",
    ),
    "a packed file is followed by something else": (
        gzip.compress(GOOD.encode()) + b"a,b\n",
        ":3: is broken gzip data after this line; fetch or copy the file again",
    ),
    "a column is given twice": (b"a,b,a\n1,2,3\n", ":1: a: is a column twice; keep one of them"),
    "a quote is not closed": (
        b'a,b\n"1,2\n',
        ":2: not CSV: unexpected end of data; fix the quotes of this row",
    ),
    "Parquet is cut short": (b"PAR1abc", ": not Parquet: "),
}


@pytest.mark.parametrize(("data", "want"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_with_a_file_is_one_line_with_its_place(tmp_path: Path, data: bytes, want: str) -> None:
    said = complaint(write(tmp_path, data))
    assert said == want or (want.endswith("Parquet: ") and said.startswith(want))


def test_a_packed_file_that_is_cut_short_says_after_which_line(tmp_path: Path) -> None:
    lines = "".join(f"{index},{index * 7919 % 10007}\n" for index in range(100_000))
    packed = gzip.compress(f"a,b\n{lines}".encode())
    said = complaint(write(tmp_path, packed[: len(packed) // 2]))
    _, line, rest = said.split(":", 2)
    assert 10_000 < int(line) < 90_000
    assert rest == " is cut short after this line; fetch or copy the file again"


def test_a_packed_file_that_lacks_its_last_bytes_is_cut_short(tmp_path: Path) -> None:
    assert complaint(write(tmp_path, gzip.compress(GOOD.encode())[:-4])).startswith(":3: is cut short after this line")


@pytest.mark.parametrize("line_count", [1, 5_001, 300_000])
def test_a_packed_file_with_a_wrong_checksum_says_after_which_line(tmp_path: Path, line_count: int) -> None:
    packed = bytearray(gzip.compress(b"a,b\n" * line_count))
    packed[-8] ^= 1
    want = f":{line_count}: is broken gzip data after this line; fetch or copy the file again"
    assert complaint(write(tmp_path, bytes(packed))) == want


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "packed"])
def test_a_file_beyond_all_bounds_is_refused_with_a_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, packed: bool
) -> None:
    monkeypatch.setattr(text_file, "FILE_BYTES_MAX", 3 << 20)
    data = b"1,2\n" * (1 << 20)
    want = ": is larger than 0.00293 GiB when unpacked; split it into several files, and read each by itself"
    assert complaint(write(tmp_path, gzip.compress(data) if packed else data)) == want


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "packed"])
def test_a_line_without_end_is_refused_before_it_is_held(tmp_path: Path, packed: bool) -> None:
    path = tmp_path / "table.csv"
    with gzip.open(path, "wb", compresslevel=1) if packed else path.open("wb") as file:
        file.write(b"a,b\n1,2\n")
        for _ in range(64):
            file.write(b"x" * LINE_BYTES_MAX)
    tracemalloc.start()
    try:
        said = complaint(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert said == ":3: is a line of more than 1,048,576 bytes; name a text file with one row a line"
    assert peak < 16 * LINE_BYTES_MAX


def test_a_file_that_is_missing_and_a_folder_are_named(tmp_path: Path) -> None:
    assert complaint(tmp_path / "none.csv") == ": No such file or directory; name a CSV or YAML file in UTF-8"
    assert complaint(tmp_path) == ": Is a directory; name a CSV or YAML file in UTF-8"


def test_rows_can_be_chosen_by_their_cells(tmp_path: Path) -> None:
    raw = read(tmp_path, "a,seed\n1,0\n2,1\n3,0\n")
    assert raw.where({"seed": "0"}).cells["a"].to_list() == ["1", "3"]
    with pytest.raises(InputError, match="has no row where seed=7; choose cells that the file has"):
        raw.where({"seed": "7"})
    with pytest.raises(InputError, match=r"table\.csv:1: sead: is missing; add a column sead; there are a, seed"):
        raw.where({"sead": "7"})
