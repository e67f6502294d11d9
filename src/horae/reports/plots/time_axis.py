"""The axis of time: dates where the trace has dates, otherwise hours or days since the first submission."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, DayLocator, date2num, num2date
from matplotlib.ticker import FuncFormatter, MaxNLocator

from horae.model.arrays import Floats

HOUR, DAY = 3600.0, 86400.0
YEAR_DAYS = 330.0  # a span from which ticks name months and years
CENTURY_DAYS = 36525.0  # a span from which dates say nothing; calendars end with the year 9999
SECONDS_DAYS = 1 / 144  # a span up to which ticks name seconds
DATED_DAYS = 2.5  # a span from which ticks name days, and no times of the day


@dataclass(frozen=True)
class TimeAxis:
    """Seconds of a run as positions on an axis."""

    start: float  # the first second shown
    stop: float
    origin: str = ""  # the date and time of second 0, where the trace has dates

    @property
    def span_days(self) -> float:
        return (self.stop - self.start) / DAY

    @property
    def has_dates(self) -> bool:
        return bool(self.origin) and self.span_days < CENTURY_DAYS

    def positions(self, seconds: Floats) -> Floats:
        if self.has_dates:
            second_0 = float(date2num(datetime.fromisoformat(self.origin)))  # type: ignore[no-untyped-call]
            return second_0 + seconds / DAY
        return (seconds - self.start) / self._unit()[1]

    @property
    def label(self) -> str:
        if not self.has_dates:
            return f"time since the first submission ({self._unit()[0]})"
        first, last = self._date(self.start), self._date(self.stop)
        if self.span_days >= YEAR_DAYS:
            return "date"
        if self.span_days < 1 and first.date() == last.date():
            return f"time on {_day(first)} {first.year}"
        years = f"{first.year}" if first.year == last.year else f"{first.year} and {last.year}"
        return f"date in {years}"

    def apply(self, axes: Axes, ticks_max: int = 8) -> None:
        """Sets ticks and their labels, at most as many as given."""
        if not self.has_dates:
            axes.xaxis.set_major_locator(MaxNLocator(ticks_max))
            return
        if DATED_DAYS <= self.span_days < ticks_max:
            axes.xaxis.set_major_locator(DayLocator())  # type: ignore[no-untyped-call]
        else:
            locator = AutoDateLocator(minticks=min(3, ticks_max), maxticks=ticks_max)  # type: ignore[no-untyped-call]
            axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda position, _: self._tick(_date_at(position))))

    def _tick(self, moment: datetime) -> str:
        if self.span_days >= YEAR_DAYS:
            return f"{moment:%b %Y}"
        if self.span_days >= DATED_DAYS:
            return _day(moment)
        if self.span_days < 1 and self._date(self.start).date() == self._date(self.stop).date():
            return f"{moment:%H:%M}" if self.span_days > SECONDS_DAYS else f"{moment:%H:%M:%S}"
        # Only midnight names its day: with a date at each tick, labels would touch.
        return f"{moment:%H:%M}\n{_day(moment)}" if moment.hour == moment.minute == 0 else f"{moment:%H:%M}"

    def _date(self, seconds: float) -> datetime:
        return datetime.fromisoformat(self.origin) + timedelta(seconds=seconds)

    def _unit(self) -> tuple[str, float]:
        return ("hours", HOUR) if self.span_days < 4 else ("days", DAY)


def _date_at(position: float) -> datetime:
    found: datetime = num2date(position)  # type: ignore[no-untyped-call]
    return found


def _day(moment: datetime) -> str:
    return f"{moment.day} {moment:%b}"
