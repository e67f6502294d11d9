"""Inputs of several commands: a cluster, policies, and numbers that are checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import yaml

from horae.cells.binding import CellBinding
from horae.experiments.compare.run_spec import PolicyChoice
from horae.model.errors import InputError, PolicyError
from horae.model.safe_text import quoted
from horae.model.setup import Cadence, PoolSpec, Setup
from horae.policies.registry import make_policy
from horae.traces.clusters.file import read_cluster
from horae.traces.clusters.node_table import is_node_table, read_node_table
from horae.traces.clusters.shorthand import parse_cluster
from horae.traces.formats import parse_mapping
from horae.traces.yaml_files import load

DAY_SECONDS = 86400.0
BASELINE = "slurm"  # what most clusters run; the default baseline where it is compared


def choose_setup(
    cluster: Path | None,
    nodes: Sequence[str],
    cadence: Cadence | None,
    round_seconds: float | None,
    restart_seconds: float | None = None,
    seed: int = 0,
) -> Setup:
    """A cluster file or a quick cluster, with its pools changed by the options given."""
    if (cluster is None) == (not nodes):
        problem = "there are both --cluster and --nodes" if nodes else "there is no cluster"
        raise InputError(problem, remedy="give --cluster FILE or --nodes 20x8, one of the two")
    setup = parse_cluster(nodes) if cluster is None else cluster_of(cluster, seed)
    if restart_seconds is not None:
        not_negative("--restart-seconds", restart_seconds)
        setup = replace(setup, cluster=replace(setup.cluster, restart_seconds=restart_seconds))
    if round_seconds is not None:
        positive("--round-seconds", round_seconds)
    return replace(setup, seed=seed, pools=tuple(_pool(pool, cadence, round_seconds) for pool in setup.pools))


def cluster_of(path: Path, seed: int = 0) -> Setup:
    """A cluster file, or a table of nodes."""
    if is_node_table(path):
        return read_node_table(path, seed)
    return read_cluster(path, make_policy, CellBinding, seed)


def _pool(pool: PoolSpec, cadence: Cadence | None, round_seconds: float | None) -> PoolSpec:
    return replace(pool, cadence=cadence or pool.cadence, round_seconds=round_seconds or pool.round_seconds)


def choose_policies(texts: Sequence[str]) -> dict[str, PolicyChoice]:
    """Policies by the text the user wrote, without duplicates: `name`, or `name={options in YAML}`."""
    return {text: _policy(text) for text in texts}


def _policy(text: str) -> PolicyChoice:
    try:
        name, options = named_options(text, "--policy")
        make_policy(name, options)
    except InputError as error:
        raise PolicyError(error.problem, field="--policy", remedy=error.remedy) from None
    return PolicyChoice(name, options)


def check_failures(days_between: float | None, repair_seconds: float, checkpoint_seconds: float) -> None:
    """Checks the options for random failures; nodes that are broken most of the time are a typing error."""
    not_negative("--repair-seconds", repair_seconds)
    not_negative("--checkpoint-seconds", checkpoint_seconds)
    if days_between is None:
        return
    positive("--days-between-failures", days_between)
    if days_between * DAY_SECONDS < repair_seconds:
        raise InputError(
            f"is {days_between:g}: a node would fail every {days_between * DAY_SECONDS:,.0f} s, and is away for "
            f"{repair_seconds:,.0f} s",
            field="--days-between-failures",
            remedy="give more days, or fewer --repair-seconds",
        )


def positive(field: str, value: float) -> None:
    _check(field, value, 0 < value < inf, "give a positive number")


def not_negative(field: str, value: float) -> None:
    _check(field, value, 0 <= value < inf, "give 0 or more")


def _check(field: str, value: float, right: bool, remedy: str) -> None:
    if not right:
        raise InputError(f"is {value:g}", field=field, remedy=remedy)


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
