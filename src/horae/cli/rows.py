"""Reports on the rows of a trace, and column mappings on the command line."""

from __future__ import annotations

from collections.abc import Callable

from horae.traces.trace import Trace

LISTED_MAX = 10

Tell = Callable[[str], None]


def tell_rows(trace: Trace, tell: Tell, warn: Tell) -> None:
    """Warns of broken rows, counted and the first ones listed, and of what may be wrong as a whole; tells of rows left
    out by rule or changed."""
    if trace.fault_count:
        warn(f"{trace.source}: {_rows(trace.fault_count, 'broken row')} left out; --strict stops there")
        for fault in trace.faults[:LISTED_MAX]:
            warn(str(fault.error(trace.source)))
        if trace.fault_count > LISTED_MAX:
            warn(f"and {trace.fault_count - LISTED_MAX:,} more")
    for doubt in trace.doubts:
        warn(f"{trace.source}: {doubt}")
    for what, counts in (("left out", trace.left_out), ("changed", trace.changed)):
        for reason, count in counts.items():
            hours = trace.left_out_gpu_hours.get(reason) if what == "left out" else None
            used = f" ({hours:,.0f} GPU-h so far)" if hours is not None else ""
            tell(f"{trace.source}: {_rows(count)} {what}: {reason}{used}")


def _rows(count: int, noun: str = "row") -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
