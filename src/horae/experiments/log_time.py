"""Times of a log in words: dates where the date of second 0 is known, hours otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import inf

from horae.model.errors import InputError
from horae.model.safe_text import quoted
from horae.traces.units import iso_date, seconds


@dataclass(frozen=True)
class LogTime:
    origin: str = ""  # the date and time of second 0, as in ISO 8601; UTC unless it says otherwise

    def text(self, at: float) -> str:
        if not self.origin:
            return f"{at / 3600:,.2f} h"
        return (_date(self.origin) + timedelta(seconds=round(at))).strftime("%Y-%m-%d %H:%M:%S")

    def seconds(self, text: str, field: str = "--at") -> float:
        """Seconds from the start: given as such, as 10m, 2h or 1d, or as a date; infinity for an empty text."""
        if not text:
            return inf
        try:
            return seconds(text)
        except ValueError as error:
            problem, _, remedy = str(error).partition("; ")
        try:
            date = _date(text)
        except ValueError:
            raise InputError(problem, field=field, remedy=f"{remedy}, or a date such as 2026-03-01 14:30") from None
        if not self.origin:
            raise InputError(
                f"{quoted(text)} is a date, and this log counts from second 0 of a trace without dates",
                field=field,
                remedy=remedy,
            )
        return (date - _date(self.origin)).total_seconds()


def _date(text: str) -> datetime:
    found = datetime.fromisoformat(iso_date(text))
    return found if found.tzinfo else found.replace(tzinfo=UTC)
