"""Reports on the rows of a trace, and column mappings on the command line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import yaml

from horae.model.errors import InputError
from horae.model.safe_text import quoted
from horae.traces.formats import parse_mapping
from horae.traces.trace import Trace
from horae.traces.yaml_files import load

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


def pairs(text: str | None, field: str) -> dict[str, str] | None:
    """Parses `a=b,c=d` as a mapping."""
    try:
        return None if text is None else parse_mapping(text)
    except InputError as error:
        raise InputError(error.problem, field=field, remedy=error.remedy) from None


def named_options(text: str, field: str) -> tuple[str, dict[str, Any]]:
    """Parses `name={options}`; the options are YAML."""
    name, _, rest = text.partition("=")
    if not rest:
        return name, {}
    try:
        options = load(rest)
    except InputError as error:
        problem = f"{error.field}: {error.problem}" if error.field else error.problem
        raise InputError(problem, field=field, remedy=error.remedy) from None
    except (yaml.YAMLError, ValueError, RecursionError):
        options = None
    if not isinstance(options, dict):
        raise InputError(f"{quoted(rest)} are no options", field=field, remedy="write {limits: [1, 3]}")
    return name, options
