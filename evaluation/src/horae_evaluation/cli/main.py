"""`horae reproduce`: reproduces published results."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import typer
from rich.table import Table

from horae.cli.output import Data, console, need_data, right
from horae.cli.text import examples
from horae.experiments.simulate import simulate
from horae.model.cluster import Cluster, Node
from horae.model.errors import InputError
from horae.model.setup import Cadence, PoolSpec, Setup
from horae.reports.recorder import Recorder
from horae.traces.jobs import arrivals
from horae_evaluation.cli.eta import eta_command
from horae_evaluation.cli.gavel import gavel_command
from horae_evaluation.cli.hived import hived_command
from horae_evaluation.cli.live import live_command
from horae_evaluation.cli.pollux import pollux_command
from horae_evaluation.cli.themis import themis_command
from horae_evaluation.philly import data as philly

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Published results, run again; and the simulator against reality.",
    epilog=examples("horae reproduce gavel --data traces", "horae reproduce themis --claim 1 --seeds 3"),
)
app.command(
    "eta",
    epilog=examples(
        "horae reproduce eta --data traces", "horae reproduce eta --ask live --jobs 100 --markdown eta-results.md"
    ),
)(eta_command)
app.command(
    "gavel",
    epilog=examples(
        "horae reproduce gavel --data traces",
        "horae reproduce gavel --data traces --workload single --rate 4.8 --seeds 1",
    ),
)(gavel_command)
app.command(
    "hived",
    epilog=examples(
        "horae reproduce hived --data traces", "horae reproduce hived --data traces --workload small --policy tiresias"
    ),
)(hived_command)
app.command(
    "live",
    epilog=examples("horae reproduce live", "horae reproduce live --jobs 60 --policy tiresias --out live.json"),
)(live_command)
app.command(
    "pollux",
    epilog=examples(
        "horae reproduce pollux --data traces", "horae reproduce pollux --data traces --policy optimus --set 0.5x"
    ),
)(pollux_command)
app.command(
    "themis",
    epilog=examples("horae reproduce themis --seeds 3", "horae reproduce themis --claim 1 --claim 2 --plot plots"),
)(themis_command)

PHILLY_VCS = ("7f04ca", "2869ce", "0e4a51", "ee9e8c")
PHILLY_POLICIES = ("fifo", "sjf")
TOLERANCE = 0.005


@dataclass(frozen=True, slots=True)
class PhillyComparison:
    vc: str
    policy: str
    jobs: int
    completion_mean_seconds: float
    published_seconds: float

    @property
    def difference(self) -> float:
        return self.completion_mean_seconds / self.published_seconds - 1

    @property
    def holds(self) -> bool:
        return abs(self.difference) <= TOLERANCE


def reproduce_philly(data: Path) -> list[PhillyComparison]:
    """Runs each virtual cluster alone on its nodes: all four in one run, as pools that own their nodes."""
    nodes, published = philly.philly_nodes(data), philly.published_completion(data)
    jobs = philly.philly_jobs(data)
    jobs = jobs.filter(jobs["submit_s"].is_between(*philly.WINDOW) & jobs["vc"].is_in(PHILLY_VCS))
    _check_complete(data, set(nodes), set(published), set(jobs["vc"]))
    comparisons = []
    for policy in PHILLY_POLICIES:
        setup = philly_setup(nodes, policy)
        made, _ = arrivals(philly.as_trace(jobs), setup.cluster, whole_nodes=True)
        recorder = simulate(setup, made).recorder
        for vc in PHILLY_VCS:
            mean, count = _mean_completion(recorder, vc)
            comparisons.append(PhillyComparison(vc, policy, count, mean, published[vc, policy]))
    return sorted(comparisons, key=lambda item: (PHILLY_VCS.index(item.vc), item.policy))


def _check_complete(data: Path, nodes: set[str], published: set[tuple[str, str]], jobs: set[str]) -> None:
    for vc in PHILLY_VCS:
        for file, known in (("vc_nodes.csv", vc in nodes), ("philly_4vc.csv.gz", vc in jobs)):
            if not known:
                raise InputError(
                    f"has no {vc!r}", file=str(data / "philly" / file), field="vc", remedy="fetch the file again"
                )
        for policy in PHILLY_POLICIES:
            if (vc, policy) not in published:
                raise InputError(
                    f"has no {policy!r} for {vc!r}",
                    file=str(data / "philly/published_vc_results.csv"),
                    field="policy",
                    remedy="fetch the file again",
                )


def philly_setup(nodes: dict[str, int], policy: str) -> Setup:
    names = {vc: tuple(f"{vc}-{index:02}" for index in range(nodes[vc])) for vc in PHILLY_VCS}
    cluster = Cluster(
        "philly",
        tuple(Node(name, philly.ACCELERATOR, philly.GPUS_PER_NODE) for vc in PHILLY_VCS for name in names[vc]),
    )
    pools = tuple(PoolSpec(vc, policy, {}, Cadence.EVENTS, tenants=(vc,), nodes=names[vc]) for vc in PHILLY_VCS)
    return Setup(cluster, pools)


def _mean_completion(recorder: Recorder, tenant: str) -> tuple[float, int]:
    times = [item.ended_at - item.submitted_at for item in recorder.records() if item.tenant == tenant]
    return sum(times) / len(times), len(times)


@app.command("philly", epilog=examples("horae reproduce philly", "horae reproduce philly --data traces"))
def philly_command(data: Data = None) -> None:
    """FIFO and SJF on four Philly virtual clusters, beside the published mean completion times."""
    comparisons = reproduce_philly(need_data(data))
    table = Table("virtual cluster", "policy", *right("jobs", "mean completion (s)", "published (s)", "difference"), "")
    for item in comparisons:
        table.add_row(
            item.vc,
            item.policy,
            f"{item.jobs:,}",
            f"{item.completion_mean_seconds:,.0f}",
            f"{item.published_seconds:,.0f}",
            f"{item.difference:+.2%}",
            "within 0.5%" if item.holds else "DIFFERS",
        )
    console().print(table)
    if not all(item.holds for item in comparisons):
        raise typer.Exit(1)
