"""Parses amounts as people write them: 10m, 2h, 1TB."""

from __future__ import annotations

import re
from math import isfinite

from horae.model.safe_text import shown

NAMES_MAX = 1_000_000  # in one range

_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {"": 1.0, "b": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12}
_BYTES |= {"kib": 2.0**10, "mib": 2.0**20, "gib": 2.0**30, "tib": 2.0**40}
_AMOUNT = re.compile(r"\s*([0-9.+\-eE]+?)\s*([a-zA-Z]*)\s*")
_CLOCK = re.compile(r"\s*(?:(\d{1,4})-)?(?:(\d{1,4}):)?(\d{1,5}):(\d{1,2}(?:\.\d+)?)\s*")  # 1-02:03:04, 02:03:04, 03:04


def seconds(value: object) -> float:
    """A number of seconds, an amount with a unit, or a time as Slurm prints it: `1-02:03:04`, `02:03:04`, `03:04`."""
    clock = _CLOCK.fullmatch(value) if isinstance(value, str) else None
    if clock is not None and (clock[1] is None or clock[2] is not None):
        days, hours, minutes, rest = (float(part or 0) for part in clock.groups())
        return 86400.0 * days + 3600.0 * hours + 60.0 * minutes + rest
    return _amount(value, _SECONDS, "time", "give seconds, or a number with s, m, h or d")


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
