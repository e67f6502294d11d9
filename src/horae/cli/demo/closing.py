"""What the demo tells at its end: by tenant, of the cluster, and what `why` and `eta` had said."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from horae.cli.demo.questions import BUDGET_SECONDS, Asked, Outcome, example
from horae.cli.demo.screen import clock, number
from horae.cli.demo.snapshot import Snapshot, mean_completion
from horae.cli.demo.workload import GRACE_SECONDS, ROUND_SECONDS
from horae.cli.live.times import NONE, duration
from horae.model.safe_text import counted

SAMPLE_SECONDS = 10.0  # the service looks for jobs that wait for their own cells this often
# As long as a job may wait for cells of its tenant: for a decision, for other jobs to leave, and as found by samples.
OWN_WAIT_SECONDS_MAX = ROUND_SECONDS + GRACE_SECONDS + SAMPLE_SECONDS
HEADINGS = ("jobs", "done", "completion", "rho", "rho max", "GPU-min", "guarantee")


def closing(
    last: Snapshot, used_seconds: Mapping[str, float], answers: Sequence[Asked], found: Sequence[Outcome]
) -> RenderableType:
    """The closing table, and the lines below it; `used_seconds` are the GPU-seconds that jobs had, by GPU type."""
    facts = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    facts.add_column(style="bold", no_wrap=True)
    facts.add_column()
    for name, text in (*_facts(last, used_seconds), ("why", _why(answers)), ("eta", _eta(found))):
        facts.add_row(name, Text(text))
    return Group(Text(f"After {clock(last.seconds)}", style="bold"), _tenants(last), facts)


def _tenants(last: Snapshot) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    for heading in ("tenant", "policy"):
        table.add_column(heading, no_wrap=True)
    for heading in HEADINGS:
        table.add_column(heading, justify="right", no_wrap=True)
    for tenant in last.tenants:
        jobs, share = last.of(tenant.name), last.shares.get(tenant.name)
        completion, wait = mean_completion(jobs), last.own_waits.get(tenant.name, 0.0)
        table.add_row(
            tenant.name,
            tenant.policy,
            str(len(jobs)),
            str(sum(job.state == "finished" for job in jobs)),
            _time(completion),
            number(share.rho_mean if share else None),
            number(share.rho_max if share else None),
            f"{sum(job.gpu_seconds for job in jobs) / 60:.1f}",
            "kept" if wait <= OWN_WAIT_SECONDS_MAX else f"{duration(wait)} late",
        )
    return table


def _time(seconds: float | None) -> str:
    return NONE if seconds is None else duration(seconds)


def _facts(last: Snapshot, used_seconds: Mapping[str, float]) -> list[tuple[str, str]]:
    completion = _time(mean_completion(last.jobs))
    preempted = sum(job.preemptions > 0 for job in last.jobs)
    facts = [
        (
            "jobs",
            f"{len(last.finished)} of {len(last.jobs)} finished, {completion} after submission on average; "
            f"{len(last.running)} ran and {len(last.waiting)} waited at the end",
        ),
        ("rho", "time taken over the time on the app's own 1/N of the cluster"),
        ("utilisation", _utilisation(last, used_seconds)),
        ("preemptions", f"{last.preemptions}, of {counted(preempted, 'job')}, which resume from their checkpoints"),
        (
            "guarantee",
            f"kept where no job waited for more than {OWN_WAIT_SECONDS_MAX:g} s (a round, a grace period and the "
            "service's sampling time) while its tenant's reserved cells had room for it",
        ),
    ]
    failed = [f"{job.name}: {job.reason}" for job in last.jobs if job.state in ("failed", "refused")]
    return [*facts, ("failed", ", ".join(failed))] if failed else facts


def _utilisation(last: Snapshot, used_seconds: Mapping[str, float]) -> str:
    gpus = Counter[str]()
    for node in last.nodes:
        gpus[node.gpu_type] += node.gpus
    parts = {kind: min(used_seconds.get(kind, 0.0) / (count * last.seconds), 1.0) for kind, count in gpus.items()}
    total = sum(parts[kind] * count for kind, count in gpus.items()) / last.gpus
    by_type = ", ".join(f"{kind} {part:.0%}" for kind, part in parts.items())
    return f"jobs held GPUs for {total:.0%} of the time: {by_type}"


def _why(answers: Sequence[Asked]) -> str:
    if not answers:
        return "not asked: no job waited when it was time to ask"
    asked = next((each for each in answers if each.why.holders), answers[0])
    return "\n".join([f"asked at {clock(asked.at_seconds)}: {asked.why_lines()[0]}", *asked.why_lines()[1:]])


def _eta(found: Sequence[Outcome]) -> str:
    shown = example(found)
    if shown is None:
        return "not asked: no job waited when it was time to ask"
    text = f"asked at {clock(shown.asked.at_seconds)}: {shown.asked.job.name} "
    if shown.predicted is None:
        text += f"has no estimate: the machine had no time for one in {BUDGET_SECONDS:g} s"
    else:
        text += f"ends in {duration(shown.predicted)}"
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
    unanswered = sum(each.predicted is None for each in found)
    text = f"\n{counted(len(errors), 'such job')}: {median(errors):.0f} s before or after the estimate in the median"
    return text + (f"; {unanswered} more without an estimate in {BUDGET_SECONDS:g} s" if unanswered else "")
