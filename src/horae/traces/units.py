"""Parses amounts as people write them: 10m, 1h30m, 2 days, 1TB."""

from __future__ import annotations

import re
from math import isfinite

from horae.model.safe_text import shown

NAMES_MAX = 1_000_000  # in one range

_NAMES_OF_UNITS = {
    1.0: ("", "s", "sec", "secs", "second", "seconds"),
    60.0: ("m", "min", "mins", "minute", "minutes"),
    3600.0: ("h", "hr", "hrs", "hour", "hours"),
    86400.0: ("d", "day", "days"),
}
_SECONDS = {name: seconds for seconds, names in _NAMES_OF_UNITS.items() for name in names}
_TIME_REMEDY = "give seconds, or a number with s, m, h or d"
_BYTES = {"": 1.0, "b": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12}
_BYTES |= {"kib": 2.0**10, "mib": 2.0**20, "gib": 2.0**30, "tib": 2.0**40}
_AMOUNT = re.compile(r"\s*([0-9.+\-eE]+?)\s*([a-zA-Z]*)\s*")
_PART = r"\s*([0-9.]+)\s*([a-zA-Z]+)\s*"
_PARTS = re.compile(f"(?:{_PART}){{2,}}")  # 1h30m, 1 day 2 hours
_DECIMAL_COMMA = re.compile(r"\s*([0-9]+),([0-9]+)\s*([a-zA-Z]*)\s*")
_DATE_OF_SOME_COUNTRY = re.compile(r"\s*(\d{1,2}[/.]\d{1,2}[/.]\d{4}|\d{4}[/.]\d{1,2}[/.]\d{1,2})\b.*")
_DATE = re.compile(r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})(?:([T ]) *([0-9]{1,2})(:.*))?")
_CLOCK = re.compile(r"\s*(?:(\d{1,4})-)?(?:(\d{1,4}):)?(\d{1,5}):(\d{1,2}(?:\.\d+)?)\s*")  # 1-02:03:04, 02:03:04, 03:04


def seconds(value: object) -> float:
    """A number of seconds, amounts with units (`1h30m`), or a time as Slurm prints it: `1-02:03:04`, `02:03:04`,
    `03:04` (minutes and seconds)."""
    clock = _CLOCK.fullmatch(value) if isinstance(value, str) else None
    if clock is not None and (clock[1] is None or clock[2] is not None):
        days, hours, minutes, rest = (float(part or 0) for part in clock.groups())
        return 86400.0 * days + 3600.0 * hours + 60.0 * minutes + rest
    if isinstance(value, str) and _PARTS.fullmatch(value) and not _AMOUNT.fullmatch(value):
        return sum(_amount(number + unit, _SECONDS, "time", _TIME_REMEDY) for number, unit in re.findall(_PART, value))
    return _amount(value, _SECONDS, "time", _time_remedy(value))


def unit_seconds(unit: str) -> float | None:
    """The seconds of a unit of time: s, m, h, d, and their longer names; None for any other word."""
    return _SECONDS.get(unit.lower()) if unit else None


def iso_date(text: str) -> str:
    """A date with two digits for month, day and hour, which may be written with one; any other text as it is."""
    found = _DATE.fullmatch(text.strip())
    if found is None:
        return text
    year, month, day, mark, hour, rest = found.groups()
    return f"{year}-{month:0>2}-{day:0>2}" + (f"{mark}{hour:0>2}{rest}" if mark else "")


def _time_remedy(value: object) -> str:
    comma = _DECIMAL_COMMA.fullmatch(str(value))
    if comma is not None:
        return f"write {comma[1]}.{comma[2]}{comma[3]}"
    if _DATE_OF_SOME_COUNTRY.fullmatch(str(value)):
        return "if it is a date, write it as 2026-11-02 09:30"
    return _TIME_REMEDY


def memory_bytes(value: object) -> float:
    return _amount(
        value, _BYTES, "amount of memory", "give bytes, or a number with KB, MB, GB, TB, KiB, MiB, GiB or TiB"
    )


def _amount(value: object, units: dict[str, float], kind: str, remedy: str) -> float:
    match = _AMOUNT.fullmatch(str(value))
    if match is not None and not isinstance(value, bool):
        number, unit = match.groups()
        try:
            amount = float(number) * units[unit.lower()]
        except (ValueError, KeyError):
            amount = float("nan")
        if isfinite(amount) and amount >= 0:
            return amount
    given = "an empty value" if value is None else shown(value)
    raise ValueError(f"{given} is no {kind}; {remedy}")


def expand(pattern: str) -> list[str]:
    """The names that a pattern stands for: "a[00-15]" for sixteen of them, "a" for itself."""
    match = re.fullmatch(r"(.*?)\[(\d+)-(\d+)\](.*)", pattern)
    if match is None:
        if "[" in pattern or "]" in pattern:
            raise ValueError(f"{pattern!r} is no range of names; write it as a[00-15]")
        return [pattern]
    before, first, last, after = match.groups()
    if int(last) < int(first):
        raise ValueError(f"{pattern!r} runs backwards; write the smaller number first")
    width, endings = len(first), expand(after)
    if (int(last) - int(first) + 1) * len(endings) > NAMES_MAX:
        raise ValueError(f"{pattern!r} stands for more than {NAMES_MAX:,} names; split it")
    return [f"{before}{number:0{width}}{ending}" for number in range(int(first), int(last) + 1) for ending in endings]
