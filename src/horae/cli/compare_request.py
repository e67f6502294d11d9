"""The options of `horae compare`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from horae.model.setup import Cadence


class CompareFormat(Enum):
    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    MARKDOWN = "md"


class By(Enum):
    TENANT = "tenant"
    USER = "user"


@dataclass(frozen=True, kw_only=True)
class Request:
    """The request as written; None and empty values stand for omitted options."""

    jobs: str  # a file, or a generator with its options
    cluster: Path | None = None
    nodes: tuple[str, ...] = ()
    policies: tuple[str, ...] = ()
    baseline: str | None = None
    cadence: Cadence | None = None
    round_seconds: float | None = None
    seeds: int = 1
    restart_seconds: float | None = None
    days_between_failures: float | None = None
    repair_seconds: float = 3600.0
    checkpoint_seconds: float = 0.0
    format: str | None = None
    mapping: str | None = None
    where: str | None = None
    whole_nodes: bool = True
    speeds: tuple[str, ...] = ()  # tables; none: run times as the trace has them
    sharing: Path | None = None  # a table of pairs; none: no jobs share GPUs
    data: Path | None = None
    strict: bool = False
    workers: int | None = None
    cache: Path | None = None
    no_cache: bool = False
    output: CompareFormat = CompareFormat.TABLE
    by: By | None = None
    plots: Path | None = None
    verbose: bool = False
    quiet: bool = False
