"""Times and durations in words."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from math import isfinite

from horae.model.errors import InputError
from horae.traces.units import seconds as seconds_of

NONE = "-"


def now() -> float:
    return time.time()


def duration(seconds: float | None) -> str:
    """45s, 12m 05s, 2h 05m, 3d 04h."""
    if seconds is None or not isfinite(seconds):
        return NONE
    whole = max(int(seconds), 0)
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if not minutes:
        return f"{whole}s"
    if not hours:
        return f"{minutes}m {whole % 60:02}s"
    return f"{hours}h {minutes % 60:02}m" if not days else f"{days:,}d {hours % 24:02}h"


def ago(at: float | None, now: float) -> str:
    """3 min ago, in 2 h; a date where it is more than a month."""
    if at is None or not isfinite(at):
        return NONE
    distance = abs(now - at)
    if distance < 1:
        return "now"
    if distance >= 30 * 86400:
        return local(at)
    for seconds, unit in ((86400, "day"), (3600, "h"), (60, "min"), (1, "s")):
        if distance >= seconds:
            count = int(distance // seconds)
            name = f"{unit}s" if unit == "day" and count != 1 else unit
            break
    return f"{count} {name} ago" if at < now else f"in {count} {name}"


def local(at: float | None) -> str:
    """The date and time here."""
    return NONE if at is None or not isfinite(at) else _date(at).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def iso(at: float | None) -> str | None:
    """The date and time as in ISO 8601, in UTC."""
    if at is None or not isfinite(at):
        return None
    return _date(at).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def moment(text: str | None, field: str, now: float) -> float | None:
    """The Unix time that a date means here, or that was so long ago: 7d, 12h."""
    if text is None:
        return None
    try:
        return now - seconds_of(text)
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text).astimezone().timestamp()
    except (ValueError, OverflowError, OSError):
        remedy = "give a date such as 2026-11-01 08:00, or a time ago such as 7d"
        raise InputError(f"is {text!r}", field=field, remedy=remedy) from None


def with_time_zone(text: str | None) -> str | None:
    """A date with the time zone of this machine, because the service may be in another; other texts as they are."""
    try:
        return text and datetime.fromisoformat(text).astimezone().isoformat()
    except (ValueError, OverflowError, OSError):
        return text


def _date(at: float) -> datetime:
    return datetime.fromtimestamp(min(max(at, 0.0), 253402300000.0), UTC)  # years 1970 to 9999
