"""Models as plain data for JSON and CSV: dates in ISO 8601, no infinities."""

from __future__ import annotations

from math import isfinite

from pydantic import BaseModel

from horae.cli.live.times import iso

_DATES = ("at", "since", "until")


def plain(value: object, name: str = "") -> object:
    """The value with every Unix time, known by the name of its field, as a date."""
    match value:
        case BaseModel():
            return {field: plain(getattr(value, field), field) for field in type(value).model_fields}
        case dict():
            return {key: plain(item) for key, item in value.items()}
        case list():
            return [plain(item) for item in value]
        case float() if name in _DATES or name.endswith("_at"):
            return iso(value)
        case float() if not isfinite(value):
            return None
    return value


def cell(value: object) -> str:
    """A plain value as one cell of a CSV file."""
    match value:
        case None:
            return ""
        case bool():
            return str(value).lower()
        case list():
            return " ".join(cell(item) for item in value)
        case dict():
            return " ".join(f"{key}={cell(item)}" for key, item in value.items())
    return str(value)
