"""A comparison, or one run, as a page to send: the answer, the numbers behind it, and what they assume."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from math import isfinite, nan
from pathlib import Path

from matplotlib.figure import Figure

from horae import __version__
from horae.experiments.compare import figures
from horae.experiments.compare.as_recorded import LABEL
from horae.experiments.compare.figures import Measure, plotted_runs
from horae.experiments.compare.formats import Page, difference_text, marked, page
from horae.experiments.compare.report_file import ReportFacts
from horae.experiments.compare.report_words import Answer, answer, base_row, duration, recorded_row
from horae.experiments.compare.table import Comparison, ComparisonRow
from horae.model.errors import InputError
from horae.model.safe_text import counted
from horae.reports.html import page as html
from horae.reports.html.inline_svg import inline_svg
from horae.reports.plots import comparison as plots
from horae.reports.plots.comparison import PlottedRuns
from horae.reports.plots.gantt import gantt_figure
from horae.reports.usage import window

RANK_MAX = 3  # columns of the table that matter less have no room on a sheet of paper
GROUPS_MAX = 25  # tenants or users in a table: those with the most GPU-hours
GPU_HOURS = Measure("GPU-hours held", lambda numbers: numbers.get("gpu_hours", nan))


def write_report(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        problem = f"cannot be written: {error.strerror}"
        raise InputError(problem, file=str(path), remedy="name a file in a folder of yours") from None


def report(comparison: Comparison, facts: ReportFacts) -> str:
    """The page as text; the same comparison gives the same bytes."""
    found = answer(comparison)
    runs = plotted_runs(comparison, facts.origin)
    title = _title(comparison, facts)
    parts = [
        f"<header>\n<h1>{html.text(title)}</h1>\n{html.paragraph(_about(comparison, facts), 'about')}\n</header>",
        html.section("The answer", _answer(comparison, found), name="answer"),
        html.section("All numbers", _numbers(comparison, found), name="numbers"),
        html.section("As recorded, and simulated", _recorded(comparison, found), name="recorded"),
        html.section("How long jobs take and wait", _distributions(comparison, runs), name="times"),
    ]
    if comparison.by:
        heading = f"By {_group(comparison)}: rho and GPU-hours"
        parts.append(html.section(heading, _groups(comparison, found), name="teams"))
    parts += [
        html.section("Utilisation and queue over time", _over_time(runs), name="time"),
        html.section("Cluster over time", _gantt(comparison, runs, found, facts), name="gantt"),
        html.section("Assumptions", [html.bullets(_assumptions(comparison, facts))], name="assumptions"),
        html.section("Definitions", [html.terms(_definitions(comparison))], name="definitions"),
        f"<footer>Made by Horae {html.text(__version__)}.</footer>",
    ]
    return html.document(title, parts)


def _title(comparison: Comparison, facts: ReportFacts) -> str:
    of = f": {facts.source}" if facts.source else ""
    return (
        f"{'A GPU cluster under one policy' if len(comparison.rows) == 1 else 'GPU scheduling policies compared'}{of}"
    )


def _about(comparison: Comparison, facts: ReportFacts) -> str:
    cluster = facts.setup.cluster
    kinds: dict[str, int] = {}
    for node in cluster.nodes:
        kinds[node.accelerator] = kinds.get(node.accelerator, 0) + node.gpus
    gpus = ", ".join(f"{count:,} {kind}" for kind, count in kinds.items())
    where = f"{counted(len(cluster.nodes), 'node')} with {counted(cluster.gpu_count, 'GPU')}"
    where += f" ({gpus})" if len(kinds) > 1 or next(iter(kinds), "").lower() not in ("", "gpu") else ""
    jobs = counted(round(base_row(comparison).estimate["jobs"]), "job")
    return f"{jobs} on {where}{_period(comparison, facts.origin)}."


def _period(comparison: Comparison, origin: str) -> str:
    log = comparison.logs.get(comparison.baseline)
    if log is None or not len(log.jobs):
        return ""
    first, last = window(log).start, float(log.jobs.submitted_at.max())
    if not origin:
        return f", submitted over {duration(last - first)}"
    begin = datetime.fromisoformat(origin)
    days = [f"{moment.day} {moment:%b %Y}" for moment in (begin + timedelta(seconds=each) for each in (first, last))]
    return f", submitted on {days[0]}" if days[0] == days[1] else f", submitted from {days[0]} to {days[1]}"


# The sections


def _answer(comparison: Comparison, found: Answer) -> Iterator[str]:
    yield html.paragraph(found.lead, "lead")
    yield html.tiles(_tiles(comparison, found))
    yield html.bullets(found.lines)


def _tiles(comparison: Comparison, found: Answer) -> list[tuple[str, str, str]]:
    base = base_row(comparison)
    shown = found.best or base
    beside = f"{base.label}: " if found.best else ""

    def tile(name: str, key: str, text: str = "") -> tuple[str, str, str]:
        values = [row.estimate.get(key, nan) for row in (shown, base)]
        told = [(format(value, text) if text else duration(value)) if isfinite(value) else "-" for value in values]
        return name, told[0], f"{beside}{told[1]}" if beside else ""

    return [
        tile("Mean completion time", "completion_mean_seconds"),
        tile("Mean waiting time", "waiting_mean_seconds"),
        tile("GPU time in use", "utilisation", ".0%"),
        tile(f"Apps with rho above {comparison.unfair_above:g}", "rho_paper.unfair_share", ".1%"),
    ]


def _numbers(comparison: Comparison, found: Answer) -> Iterator[str]:
    sheet = page(comparison)
    kept = [index for index, rank in enumerate(sheet.ranks) if rank <= RANK_MAX]
    if len(comparison.rows) == 1:
        kept = [index for index in kept if not sheet.headings[index].startswith("vs ")]
    best = marked(found.best) if found.best else ""
    strong = frozenset(number for number, line in enumerate(sheet.lines) if best and line[0] == best)
    yield html.table(_chosen(sheet, kept)._replace(strong=strong))
    words = "The lower bound holds for every policy on these jobs."
    if any(row.uses_lengths for row in comparison.rows):
        words += " * knows run times in advance, which a real cluster does not."
    if found.best:
        words += f" The policy of the answer is in bold; differences are from {comparison.baseline}."
    yield html.paragraph(words, "about")
    if len(comparison.rows) > 1:
        yield _drawn(
            figures.times_figure(comparison),
            "numbers",
            f"Completion, waiting and makespan of {counted(len(comparison.rows), 'run')}, as in the table above.",
            "Times by policy: less is better.",
        )


def _chosen(sheet: Page, kept: Sequence[int]) -> html.Table:
    lines = [[line[index] for index in kept] for line in sheet.lines]
    return html.Table([sheet.headings[index] for index in kept], lines, sheet.left)


def _recorded(comparison: Comparison, found: Answer) -> Iterator[str]:
    record = recorded_row(comparison)
    if record is None:
        yield html.paragraph(
            "The trace has no usable start times, or was drawn anew: what the real scheduler did is not known, and all "
            "numbers are simulated."
        )
        return
    rows = [record, base_row(comparison), *([found.best] if found.best else [])]
    measures: tuple[tuple[str, str, str], ...] = (
        ("Finished jobs", "finished", ",.0f"),
        ("Mean completion time", "completion_mean_seconds", ""),
        ("Median completion time", "completion_median_seconds", ""),
        ("99th percentile of completion", "completion_p99_seconds", ""),
        ("Mean waiting time", "waiting_mean_seconds", ""),
        ("GPU time in use", "utilisation", ".1%"),
        ("Largest rho", "rho_paper.max", ",.2f"),
    )
    lines = [[name, *_values([row.estimate.get(key, nan) for row in rows], text)] for name, key, text in measures]
    headings = ["", *(row.label if row.label == LABEL else f"{marked(row)}, simulated" for row in rows)]
    yield html.table(html.Table(headings, lines))
    if record.versus is not None:
        yield html.paragraph(
            f"Mean completion time of the record against the simulated {comparison.baseline}: "
            f"{difference_text(record.versus)}."
        )


def _values(values: Sequence[float], text: str) -> list[str]:
    """Values side by side: times in one unit."""
    most = max(filter(isfinite, values), default=nan)
    return [("-" if not isfinite(each) else format(each, text)) if text else duration(each, most) for each in values]


def _distributions(comparison: Comparison, runs: PlottedRuns) -> Iterator[str]:
    seeds = len(comparison.rows[0].by_seed)
    of = " Curves are of the first draw." if seeds > 1 else ""
    yield _drawn(
        plots.times_figure(runs),
        "times",
        "Cumulative distributions of completion and waiting times, one line per run.",
        f"How many of the finished jobs had ended, and had waited, within a given time: higher is better.{of}",
    )
    yield _drawn(
        plots.rho_figure(runs),
        "rho",
        "Cumulative distribution of rho over apps, in two definitions, one line per run.",
        "How many apps were treated how fairly: left of 1 is at least as fast as on a fair share.",
    )


def _groups(comparison: Comparison, found: Answer) -> Iterator[str]:
    record = recorded_row(comparison)
    rows = [*([record] if record else []), base_row(comparison), *([found.best] if found.best else [])]
    last = rows[-1]
    names = sorted(last.groups, key=lambda name: (-last.groups[name].get("gpu_hours", 0.0), name))
    headings = [_group(comparison), "jobs", *(f"{what}: {marked(row)}" for what in _GROUP_COLUMNS for row in rows)]
    lines = [
        [
            name,
            f"{last.groups[name]['jobs']:,.0f}",
            *(text for what in _GROUP_COLUMNS for text in _cells(rows, name, what)),
        ]
        for name in names[:GROUPS_MAX]
    ]
    yield html.table(html.Table(headings, lines))
    if len(names) > GROUPS_MAX:
        yield html.paragraph(
            f"{len(names) - GROUPS_MAX:,} further {comparison.by} with fewer GPU-hours are not listed."
        )
    for name, measure in (("rho", figures.RHO_MAX), ("hours", GPU_HOURS)):
        yield _drawn(
            figures.group_figure(comparison, measure),
            f"teams-{name}",
            f"{measure.label} by {_group(comparison)}, one panel per run.",
            f"{measure.label[0].upper()}{measure.label[1:]} by {_group(comparison)}.",
        )


_GROUP_COLUMNS = {
    "GPU-hours": ("gpu_hours", ",.0f"),
    "mean completion": ("completion_mean_seconds", ""),
    "largest rho": ("rho_paper.max", ",.2f"),
}


def _cells(rows: Sequence[ComparisonRow], name: str, what: str) -> list[str]:
    key, text = _GROUP_COLUMNS[what]
    return _values([row.groups.get(name, {}).get(key, nan) for row in rows], text)


def _group(comparison: Comparison) -> str:
    return comparison.by.removesuffix("s")


def _over_time(runs: PlottedRuns) -> Iterator[str]:
    yield _drawn(
        plots.utilisation_figure(runs),
        "utilisation",
        "Share of GPUs in use over time, by GPU type and run.",
        "GPUs in use.",
    )
    yield _drawn(
        plots.queue_figure(runs),
        "queue",
        "GPUs wanted by jobs that wait, over time, by run.",
        "The queue, in GPUs wanted by jobs that wait.",
    )


def _gantt(comparison: Comparison, runs: PlottedRuns, found: Answer, facts: ReportFacts) -> Iterator[str]:
    labels = [LABEL, comparison.baseline, *([found.best.label] if found.best else [])]
    logs = {label: comparison.logs[label] for label in labels if label in comparison.logs}
    if not logs or not any(len(log.leases) for log in logs.values()):
        yield html.paragraph("No job ran.")
        return
    chosen = PlottedRuns(logs, runs.baseline, runs.recorded, runs.names, runs.origin)
    by = comparison.by or "tenants"
    nodes = [node.name for node in facts.setup.cluster.nodes]
    yield _drawn(
        gantt_figure(chosen, by, nodes),
        "gantt",
        f"Nodes over time, coloured by {by.removesuffix('s')}, for {counted(len(logs), 'run')}.",
        f"Nodes and their GPUs from top to bottom, coloured by the {by.removesuffix('s')} that held most of the time.",
    )


def _drawn(figure: Figure, name: str, description: str, caption: str) -> str:
    return html.figure(inline_svg(figure, f"figure-{name}", description), caption)


def _assumptions(comparison: Comparison, facts: ReportFacts) -> Iterator[str]:
    setup = facts.setup
    knowing = [row.label for row in comparison.rows if row.uses_lengths]
    if knowing:
        yield f"Run times known in advance: by {', '.join(knowing)} only. The other policies do not use them."
    else:
        yield "No policy here knows run times in advance."
    yield (
        f"A preempted job resumes from where it was stopped; resuming takes {setup.cluster.restart_seconds:g} s "
        f"unless the job says otherwise."
    )
    for pool in setup.pools:
        when = f"every {pool.round_seconds:g} s" if pool.cadence.value == "rounds" else "after every event"
        reserved = ", ".join(f"{count} x {cell}" for cell, count in pool.cells.items())
        yield f"Pool {pool.name}: decides {when}{f'; reserved cells: {reserved}' if reserved else ''}."
    if facts.failures.days_between_failures is None:
        yield "No hardware fails, other than what the run records."
    else:
        repair = duration(facts.failures.repair_seconds)
        yield f"Every node fails once in {facts.failures.days_between_failures:g} days on average, for {repair}."
    seeds = len(comparison.rows[0].by_seed)
    if seeds > 1:
        drawn = "whole days of the trace drawn anew" if comparison.is_recorded else "independent draws of the workload"
        numbers = "Numbers are of the trace as it is" if comparison.is_recorded else "Numbers are means over all"
        yield f"{seeds:,} seeds: {drawn}. {numbers}; curves and pictures are of the first."
    if facts.rows_broken:
        rows = counted(facts.rows_broken, "row")
        yield f"Broken and left out: {rows} of the trace that could not be read as a job."
    for what, counts in (("left out", facts.left_out), ("changed", facts.changed)):
        for reason, count in counts.items():
            yield f"{counted(count, 'row')} of the trace {what}: {reason}."
    yield from facts.notes


def _definitions(comparison: Comparison) -> Iterator[tuple[str, str]]:
    yield "completion time", "from the submission of a job to its end; over finished jobs"
    yield "waiting time", "completion time less the time on GPUs, before the first start and after preemptions"
    yield "makespan", "from the first submission to the last end"
    yield "utilisation", "GPU-seconds held by jobs, over GPUs times makespan"
    yield "preemption", "the scheduler takes its GPUs from a job, which continues later"
    yield "app", "one or more jobs that belong together; here mostly one job"
    yield (
        "rho (rho_paper)",
        "finish-time fairness: time in the shared cluster over the time with all GPUs for 1/N of the time, N being the "
        "apps at a time; up to 1 is fair",
    )
    yield "rho_private", "likewise, over the time with 1/N of the GPUs all the time"
    yield "p99", "99 of 100 jobs are at or below this value"
    yield (
        "interval",
        "95% confidence: of 20 comparisons like this one, 19 have an interval with the true difference in it; a range "
        "that includes 0 is within noise",
    )
    yield "lower bound", "what no policy can fall below on these jobs and GPUs"
    if LABEL in {row.label for row in comparison.rows}:
        yield LABEL, "start and run times as the trace has them; which of the GPUs is not recorded"
