"""Runs that are on disk, for a report: the journals of simulations and of services."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from horae.experiments.compare.report_file import ReportFacts, several_names
from horae.experiments.compare.run import ComparedRun
from horae.experiments.compare.run_spec import RunSpec
from horae.experiments.compare.table import Comparison, TableOptions, tabulate
from horae.experiments.journal_log import JournalRun, journal_run
from horae.model.errors import InputError

TABLES = (".csv", ".parquet", ".json")


class RunFile(NamedTuple):
    label: str
    path: Path
    run: JournalRun


def compare_files(words: Sequence[str], by: str = "") -> tuple[Comparison, ReportFacts]:
    """The runs side by side; the first is the baseline."""
    runs = read_runs(words)
    first = runs[0].run
    for each in runs[1:]:
        if not set(first.log.jobs.id) & set(each.run.log.jobs.id):
            problem = f"has no job in common with {runs[0].path}"
            raise InputError(problem, file=str(each.path), remedy="give runs of the same jobs, or one report each")
    groups = by or several_names(first.log.tenants, first.log.users)
    options = TableOptions(by=groups, weights=first.setup.tenant_weights, has_limits=first.has_limits)
    outcomes = [ComparedRun(RunSpec(each.label, each.run.setup), each.run.log, cached=True) for each in runs]
    labels = [each.label for each in runs]
    comparison = tabulate(outcomes, labels, labels[0], options, is_recorded=True)
    notes = []
    if any(each.run.setup.cluster != first.setup.cluster for each in runs):
        notes.append(f"The runs are of different clusters; the first is that of {labels[0]}.")
    if len(runs) > 1:
        notes.append("Runs are compared with the first on the jobs that finished in both.")
    source = ", ".join(each.path.name for each in runs)
    return comparison, ReportFacts(first.setup, source, first.origin, notes=tuple(notes))


def read_runs(words: Sequence[str]) -> list[RunFile]:
    """Runs by `FILE` or `NAME=FILE`; names are those of the policies where they differ, else those of the files."""
    parts = [_named(word) for word in words]
    runs = [journal_run(_checked(path)) for _, path in parts]
    policies = ["+".join(dict.fromkeys(pool.policy for pool in run.setup.pools)) for run in runs]
    labels = []
    for (name, path), policy in zip(parts, policies, strict=True):
        labels.append(name or (policy if policies.count(policy) == 1 else path.stem))
    for label in labels:
        if labels.count(label) > 1:
            problem = f"two runs are called {label!r}"
            raise InputError(problem, field="RUN", remedy="name them: before=one.jsonl after=two.jsonl")
    return [RunFile(label, path, run) for label, (_, path), run in zip(labels, parts, runs, strict=True)]


def _named(word: str) -> tuple[str, Path]:
    name, sign, path = word.partition("=")
    return (name, Path(path)) if sign and not Path(word).exists() else ("", Path(word))


def _checked(path: Path) -> Path:
    if path.is_dir():
        remedy = "write the journal of a service with `horae journal run.jsonl --state FOLDER`, and name that file"
        raise InputError("is a folder", file=str(path), field="RUN", remedy=remedy)
    if path.suffix in TABLES:
        remedy = "name a journal (simulate --journal), or use `horae compare ... --report report.html`"
        raise InputError("is a table, and not a run", file=str(path), field="RUN", remedy=remedy)
    if path.suffix == ".npz":
        remedy = "run the comparison again with --report: what is in the cache is used"
        raise InputError("is a result in the cache, without its cluster", file=str(path), field="RUN", remedy=remedy)
    if path.suffix == ".db":
        remedy = "write its journal with `horae journal run.jsonl --state FOLDER`, and name that file"
        raise InputError("is the store of a service", file=str(path), field="RUN", remedy=remedy)
    return path
