"""Reports on the rows of a trace, and column mappings on the command line."""

from __future__ import annotations

from collections.abc import Callable

from horae.traces.trace import Trace

LISTED_MAX = 10

Tell = Callable[[str], None]


def tell_rows(trace: Trace, tell: Tell) -> None:
    """Reports broken rows, rows left out and rows changed: counted, and the first broken ones listed."""
    if trace.fault_count:
        tell(f"{trace.source}: {_rows(trace.fault_count, 'broken row')} left out; --strict stops there")
        for fault in trace.faults[:LISTED_MAX]:
            tell(str(fault.error(trace.source)))
        if trace.fault_count > LISTED_MAX:
            tell(f"and {trace.fault_count - LISTED_MAX:,} more")
    for what, counts in (("left out", trace.left_out), ("changed", trace.changed)):
        for reason, count in counts.items():
            tell(f"{trace.source}: {_rows(count)} {what}: {reason}")


def _rows(count: int, noun: str = "row") -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
