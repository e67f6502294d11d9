"""Amounts and ranges of names, as people write them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from horae.traces.units import expand, memory_bytes, seconds


@pytest.mark.parametrize(
    ("given", "want"),
    [
        (0, 0.0),
        (90, 90.0),
        (1.5, 1.5),
        ("90", 90.0),
        ("1e3", 1000.0),
        ("90s", 90.0),
        ("10m", 600.0),
        ("10 min", 600.0),
        ("1.5h", 5400.0),
        (" 2 H ", 7200.0),
        ("1d", 86400.0),
        ("2e2s", 200.0),
    ],
)
def test_seconds(given: object, want: float) -> None:
    assert seconds(given) == want


@pytest.mark.parametrize(
    ("given", "want"),
    [
        (512, 512.0),
        ("1KB", 1e3),
        ("2 mb", 2e6),
        ("256GB", 256e9),
        ("1TB", 1e12),
        ("1KiB", 1024.0),
        ("1.5GiB", 1.5 * 2**30),
    ],
)
def test_memory_bytes(given: object, want: float) -> None:
    assert memory_bytes(given) == want


NO_TIMES = [
    "yesterday",
    "",
    "h",
    "-5",
    -5,
    "1w",
    "1.2.3",
    "1e",
    "nan",
    "inf",
    float("nan"),
    float("inf"),
    "1e400",
    True,
]


@pytest.mark.parametrize("given", [*NO_TIMES, None, [1]])
def test_what_is_no_time_says_what_would_be_one(given: object) -> None:
    with pytest.raises(ValueError, match=r" is no time; give seconds, or a number with s, m, h or d$"):
        seconds(given)


def test_minutes_are_no_memory() -> None:
    with pytest.raises(ValueError, match=r"^'10m' is no amount of memory; give bytes, or a number with KB, MB, "):
        memory_bytes("10m")


@given(st.floats(min_value=0, max_value=1e300), st.sampled_from([("", 1.0), ("s", 1.0), ("m", 60.0), ("h", 3600.0)]))
def test_any_number_may_carry_any_unit(number: float, unit: tuple[str, float]) -> None:
    assert seconds(f"{number!r}{unit[0]}") == number * unit[1]


@pytest.mark.parametrize(
    ("pattern", "want"),
    [
        ("a", ["a"]),
        ("a[0-2]", ["a0", "a1", "a2"]),
        ("a[7-7]", ["a7"]),
        ("a[08-11]", ["a08", "a09", "a10", "a11"]),
        ("a[8-11]", ["a8", "a9", "a10", "a11"]),
        ("a[0-1].lab", ["a0.lab", "a1.lab"]),
        ("r[1-2]n[0-1]", ["r1n0", "r1n1", "r2n0", "r2n1"]),
    ],
)
def test_a_range_stands_for_its_names(pattern: str, want: list[str]) -> None:
    assert expand(pattern) == want


@pytest.mark.parametrize(
    ("pattern", "want"),
    [
        ("a[3-1]", "'a[3-1]' runs backwards; write the smaller number first"),
        ("a[3", "'a[3' is no range of names; write it as a[00-15]"),
        ("a3]", "'a3]' is no range of names; write it as a[00-15]"),
        ("a[x-y]", "'a[x-y]' is no range of names; write it as a[00-15]"),
        ("a[1,3]", "'a[1,3]' is no range of names; write it as a[00-15]"),
        ("a[0-1000000]", "'a[0-1000000]' stands for more than 1,000,000 names; split it"),
        ("a[0-999][0-1000]", "'a[0-999][0-1000]' stands for more than 1,000,000 names; split it"),
    ],
)
def test_what_is_no_range_says_how_to_write_one(pattern: str, want: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(want)}$"):
        expand(pattern)
