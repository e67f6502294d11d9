"""What the demo tells at its end: by tenant, of the cluster, and what `why` and `eta` had said."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from horae.cli.demo.questions import Asked, Outcome, example
from horae.cli.demo.screen import clock, number
from horae.cli.demo.snapshot import Completion, Snapshot
from horae.cli.demo.workload import GRACE_SECONDS, ROUND_SECONDS
from horae.cli.live.times import NONE, duration
from horae.model.safe_text import counted

SAMPLE_SECONDS = 10.0  # the service looks for jobs that wait for their own cells this often
# As long as a job may wait for cells of its tenant: for a decision, for other jobs to leave, and as found by samples.
OWN_WAIT_SECONDS_MAX = ROUND_SECONDS + GRACE_SECONDS + SAMPLE_SECONDS
HEADINGS = ("jobs", "finished", "completion", "median", "rho", "rho max", "GPU-min", "own cells")


def closing(last: Snapshot, answers: Sequence[Asked], found: Sequence[Outcome]) -> RenderableType:
    """The closing table, and the lines below it."""
    facts = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    facts.add_column(style="bold", no_wrap=True)
    facts.add_column()
    for name, text in (*_facts(last), ("why", _why(answers)), ("eta", _eta(found))):
        facts.add_row(name, Text(text))
    return Group(_tenants(last), Text(), facts)


def _tenants(last: Snapshot) -> Table:
    table = Table(title=f"The demo, after {clock(last.seconds)}", title_justify="left")
    table.add_column("tenant", no_wrap=True)
    table.add_column("policy", no_wrap=True)
    for heading in HEADINGS:
        table.add_column(heading, justify="right", min_width=len(heading) if heading != "own cells" else 5)
    for tenant in last.tenants:
        jobs, share = last.of(tenant.name), last.shares.get(tenant.name)
        wait = last.own_waits.get(tenant.name, 0.0)
        completion = Completion.of(jobs)
        table.add_row(
            tenant.name,
            tenant.policy,
            str(len(jobs)),
            str(sum(job.state == "finished" for job in jobs)),
            _time(completion.mean),
            _time(completion.median),
            number(share.rho_mean if share else None),
            number(share.rho_max if share else None),
            f"{sum(job.gpu_seconds for job in jobs) / 60:.1f}",
            "kept" if wait <= OWN_WAIT_SECONDS_MAX else f"late {duration(wait)}",
        )
    return table


def _time(seconds: float | None) -> str:
    return NONE if seconds is None else duration(seconds)


def _facts(last: Snapshot) -> list[tuple[str, str]]:
    all_of_them, ended = Completion.of(last.jobs), len(last.finished)
    used, possible = sum(job.gpu_seconds for job in last.jobs), last.gpus * last.seconds
    by_type = {node.gpu_type: 0 for node in last.nodes}
    for job in last.running:
        by_type[job.gpu_type] = by_type.get(job.gpu_type, 0) + job.held_gpus
    preempted = sum(job.preemptions > 0 for job in last.jobs)
    failed = [job for job in last.jobs if job.state in ("failed", "refused")]
    facts = [
        (
            "jobs",
            f"{ended} of {len(last.jobs)} finished, {_time(all_of_them.mean)} after their submission on average; "
            f"{len(last.running)} ran and {len(last.waiting)} waited at the end",
        ),
        ("utilisation", f"{min(used / possible, 1.0) if possible else 0.0:.0%} of {last.gpus} GPUs"),
        ("preemptions", f"{last.preemptions}, of {counted(preempted, 'job')}, which resume from their checkpoints"),
        (
            "own cells",
            f"kept: no job of the tenant waited for over {OWN_WAIT_SECONDS_MAX:g} s while the tenant's reserved cells "
            f"had room for it (a round, a grace period and the service's sampling time)",
        ),
    ]
    if failed:
        facts.append(("failed", ", ".join(f"{job.name}: {job.reason}" for job in failed)))
    return facts


def _why(answers: Sequence[Asked]) -> str:
    if not answers:
        return "not asked: no job waited when it was time to ask"
    asked = answers[0]
    return "\n".join([f"asked at {clock(asked.at_seconds)}: {asked.why_lines()[0]}", *asked.why_lines()[1:]])


def _eta(found: Sequence[Outcome]) -> str:
    shown = example(found)
    if shown is None:
        return "not asked: no job waited when it was time to ask"
    text = f"asked at {clock(shown.asked.at_seconds)}: {shown.asked.job.name} ends in {_time(shown.predicted)}"
    if shown.low is not None and shown.high is not None and shown.low != shown.high:
        text += f" (between {_time(shown.low)} and {_time(shown.high)})"
    if shown.happened is None:
        return f"{text}; it had not ended after {duration(shown.watched)}, when the demo did"
    return f"{text}; it ended after {duration(shown.happened)}" + _all(found)


def _all(found: Sequence[Outcome]) -> str:
    """How good all answers were whose jobs have ended."""
    errors = [each.error for each in found if each.error is not None]
    if len(errors) < 2:
        return ""
    return f"\nasked {counted(len(found), 'time')}; of the {len(errors)} jobs that ended, the median error is {_median(errors)}"


def _median(errors: Sequence[float]) -> str:
    return duration(sorted(errors)[len(errors) // 2])
