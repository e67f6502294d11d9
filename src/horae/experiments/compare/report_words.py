"""The answer of a comparison in sentences, each made from the numbers of its table and its runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

import numpy as np

from horae.experiments.compare.as_recorded import LABEL
from horae.experiments.compare.baseline_difference import CONFIDENCE, common, over_days
from horae.experiments.compare.formats import marked
from horae.experiments.compare.table import Comparison, ComparisonRow
from horae.model.safe_text import counted
from horae.reports.statistics import Difference

SAME_SECONDS = 60.0  # ends that differ by less count as equal


@dataclass(frozen=True)
class Answer:
    lead: str  # the answer in one sentence
    lines: tuple[str, ...]  # what it rests on, and what speaks against it
    best: ComparisonRow | None  # the policy of which it speaks, if several were compared


def answer(comparison: Comparison) -> Answer:
    base = base_row(comparison)
    others = [row for row in comparison.rows if row.label not in (comparison.baseline, LABEL)]
    if not others:
        return Answer(_single(base), tuple(_gone_wrong(comparison)), None)
    known = [row for row in others if row.versus is not None and isfinite(row.versus.relative.mean)]
    usable = [row for row in known if not row.uses_lengths]
    if not known:
        lead = f"The policies cannot be compared: no job finished both under {base.label} and under another one."
        return Answer(lead, tuple(_gone_wrong(comparison)), None)
    best = min(usable or known, key=_change)
    lines = [
        *_evidence(comparison, base, best),
        *_rivals(comparison, best, usable),
        *_oracles(known, best, base),
        *_record(comparison, base),
        *_gone_wrong(comparison),
    ]
    return Answer(_lead(best, base), tuple(lines), best)


def base_row(comparison: Comparison) -> ComparisonRow:
    return next(row for row in comparison.rows if row.label == comparison.baseline)


def recorded_row(comparison: Comparison) -> ComparisonRow | None:
    return next((row for row in comparison.rows if row.label == LABEL), None)


def duration(seconds: float, beside: float | None = None) -> str:
    """A time in the unit in which it is easiest to read, or in which another one is."""
    if not isfinite(seconds):
        return "-"
    for least, unit, name in ((48 * 3600.0, 86400.0, "days"), (5400.0, 3600.0, "h"), (90.0, 60.0, "min")):
        if (seconds if beside is None else beside) >= least:
            return f"{seconds / unit:,.1f} {name}"
    return f"{seconds:,.0f} s"


# The sentences


def _single(row: ComparisonRow) -> str:
    found = row.estimate
    ended = f"Under {row.label}, {found['finished']:,.0f} of {counted(int(found['jobs']), 'job')} finished"
    if not found["finished"]:
        return f"{ended}."
    return (
        f"{ended}, on average {duration(found['completion_mean_seconds'])} after their submission, of which "
        f"{duration(found['waiting_mean_seconds'])} were spent waiting; {found['utilisation']:.0%} of the GPU time was "
        f"in use."
    )


def _lead(best: ComparisonRow, base: ComparisonRow) -> str:
    assert best.versus is not None
    relative = best.versus.relative
    name = marked(best)
    if relative.is_clear and relative.mean < 0:
        return (
            f"{name} finishes jobs {-relative.mean:.0%} sooner on average than {base.label} "
            f"({CONFIDENCE:.0%} interval: {_range(relative)})."
        )
    if relative.mean == relative.low == relative.high == 0:
        return f"{name} finishes jobs exactly as {base.label} does: no policy is faster."
    if not isfinite(relative.low):
        return (
            f"{name} finishes jobs {_changed(relative.mean)} on average than {base.label}, but the jobs are too few, "
            f"or come too close together, to tell that from chance."
        )
    if relative.is_clear:
        return (
            f"No policy finishes jobs sooner on average than {base.label}; the next best, {name}, finishes them "
            f"{_changed(relative.mean)} ({CONFIDENCE:.0%} interval: {_range(relative)})."
        )
    return (
        f"No policy is clearly faster than {base.label}: {name} finishes jobs {_changed(relative.mean)} on average, "
        f"which is within noise ({CONFIDENCE:.0%} interval: {_range(relative)})."
    )


def _evidence(comparison: Comparison, base: ComparisonRow, best: ComparisonRow) -> list[str]:
    assert best.versus is not None
    versus = best.versus
    ours = versus.baseline_mean_seconds + versus.seconds.mean
    over = f"; the interval is over {versus.relative.samples} {versus.over}" if isfinite(versus.relative.low) else ""
    lines = [
        f"From submission to end, a job takes {duration(ours)} under {best.label} and "
        f"{duration(versus.baseline_mean_seconds)} under {base.label}, on average over the "
        f"{counted(versus.jobs, 'job')} that finished under both{over}."
    ]
    if versus.unpaired:
        lines.append(
            f"{counted(versus.unpaired, 'job')} finished under only one of the two and {_are(versus.unpaired)} not "
            f"compared: the policy that finished more may look slower than it is."
        )
    lines += _sooner_and_later(comparison, base, best)
    lines.append(_waiting_and_use(base, best))
    fairness = _fairness(comparison, base, best)
    return [*lines, fairness] if fairness else lines


def _sooner_and_later(comparison: Comparison, base: ComparisonRow, best: ComparisonRow) -> list[str]:
    if not {base.label, best.label} <= set(comparison.logs):
        return []
    pair = common(comparison.logs[base.label], comparison.logs[best.label])
    change = pair.other - pair.baseline
    sooner, later = int((change < -SAME_SECONDS).sum()), int((change > SAME_SECONDS).sum())
    where = " of the trace as it is" if comparison.is_recorded and len(base.by_seed) > 1 else ""
    line = (
        f"{later:,} of {counted(len(change), 'job')}{where} finish later than under {base.label} by more than a minute"
    )
    if later:
        late = change[change > SAME_SECONDS]
        half, most = duration(float(np.median(late))), duration(float(late.max()))
        line += f" (half of them by up to {half}, the most delayed by {most})"
    return [f"{line}; {sooner:,} finish sooner, and {len(change) - sooner - later:,} within a minute of the same time."]


def _waiting_and_use(base: ComparisonRow, best: ComparisonRow) -> str:
    ours, theirs = best.estimate, base.estimate
    return (
        f"Jobs wait {duration(ours['waiting_mean_seconds'])} instead of {duration(theirs['waiting_mean_seconds'])} on "
        f"average; {ours['utilisation']:.0%} instead of {theirs['utilisation']:.0%} of the GPU time is in use; "
        f"{counted(round(ours['preemptions']), 'preemption')} instead of {round(theirs['preemptions']):,}, which cost "
        f"{ours['restart_gpu_hours']:,.0f} GPU-hours of resuming."
    )


def _fairness(comparison: Comparison, base: ComparisonRow, best: ComparisonRow) -> str:
    name = "rho_paper.unfair_share"
    ours, theirs = best.estimate.get(name, np.nan), base.estimate.get(name, np.nan)
    if not (isfinite(ours) and isfinite(theirs)):
        return ""
    fair = f"rho above {comparison.unfair_above:g}"
    largest = best.estimate["rho_paper.max"], base.estimate["rho_paper.max"]
    return (
        f"{ours:.1%} of the apps are treated unfairly ({fair}) instead of {theirs:.1%}; the largest rho is "
        f"{largest[0]:,.2f} instead of {largest[1]:,.2f}."
    )


def _rivals(comparison: Comparison, best: ComparisonRow, usable: Sequence[ComparisonRow]) -> list[str]:
    """Policies that cannot be told apart from the best one; with several seeds, only logs of the first are kept."""
    if len(best.by_seed) > 1:
        return []
    logs = comparison.logs
    close = [
        row.label
        for row in usable
        if row.label != best.label and not over_days(common(logs[best.label], logs[row.label])).relative.is_clear
    ]
    if not close:
        return []
    verb = "differs" if len(close) == 1 else "differ"
    return [f"{_listed(close)} {verb} from {best.label} by no more than noise."]


def _oracles(known: Sequence[ComparisonRow], best: ComparisonRow, base: ComparisonRow) -> list[str]:
    """Faster policies that a real cluster cannot run, because it does not know run times in advance."""
    lines = []
    if base.uses_lengths and not best.uses_lengths:
        lines.append(
            f"{base.label} itself knows run times in advance here, because the jobs have no time limits; a real "
            f"cluster does not, and would be slower."
        )
    faster = [row for row in known if row.uses_lengths and row is not best and _change(row) < _change(best)]
    if best.uses_lengths:
        others = f"; so do all others that are compared with {base.label}" if len(known) > 1 else ""
        return [f"{best.label} knows run times in advance, which a real cluster does not{others}."]
    if not faster:
        return lines
    told = _listed([f"{row.label} ({_percent(_change(row))})" for row in sorted(faster, key=_change)])
    return [*lines, f"Faster still against {base.label}, but only with run times known in advance: {told}."]


def _record(comparison: Comparison, base: ComparisonRow) -> list[str]:
    record = recorded_row(comparison)
    if record is None:
        return []
    ours, theirs = (row.estimate["completion_mean_seconds"] for row in (base, record))
    if not (isfinite(ours) and theirs > 0):
        return []
    return [
        f"As recorded, a job took {duration(theirs)} on average. The simulation of {base.label} comes to "
        f"{duration(ours)} ({_percent(ours / theirs - 1)}): differences between simulated policies that are smaller "
        f"than this say little about the real cluster."
    ]


def _gone_wrong(comparison: Comparison) -> list[str]:
    lines = []
    for kind, words in (
        ("refused", "can never run on this cluster"),
        ("failed", "failed"),
        ("unfinished", "did not finish"),
    ):
        found = {row.label: round(row.estimate.get(kind, 0.0)) for row in comparison.rows}
        counts = sorted(set(found.values()))
        if counts == [0]:
            continue
        if len(counts) == 1:
            lines.append(f"{counted(counts[0], 'job')} {words}, under whatever policy.")
        else:
            told = _listed([f"{count:,} under {label}" for label, count in found.items() if count])
            lines.append(f"Jobs that {words}: {told}.")
    if len(comparison.rows) == 1:
        return [line.replace(", under whatever policy", "") for line in lines]
    return lines


# Words


def _change(row: ComparisonRow) -> float:
    assert row.versus is not None
    return row.versus.relative.mean


def _changed(relative: float) -> str:
    """As in "finishes jobs 4% later on average than"."""
    return f"{abs(relative):.1%} {'sooner' if relative < 0 else 'later'}"


def _range(found: Difference) -> str:
    if found.high <= 0:
        return f"{-found.high:.0%} to {-found.low:.0%} sooner"
    if found.low >= 0:
        return f"{found.low:.0%} to {found.high:.0%} later"
    return f"{-found.low:.1%} sooner to {found.high:.1%} later"


def _percent(relative: float) -> str:
    return f"{relative:+.1%}".replace("-", "\N{MINUS SIGN}")


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
