"""`horae whatif`: the same setup gives the same schedule, another one that of a simulation of the same trace."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import horae

from horae.engines.random_failures import fault_plan
from horae.experiments.simulate import simulate
from horae.forks.change import ALL, Change, Policy
from horae.forks.forward import Watch
from horae.forks.recording import BeforeTheLog, Recording, read_recording
from horae.forks.whatif import whatif
from horae.forks.whatif_summary import summarise
from horae.journal import read_journal
from horae.model.cluster import Cluster, Node
from horae.model.errors import InputError
from horae.model.events import Event, JobCancelled
from horae.model.jobs import Arrival
from horae.model.setup import Cadence, PoolSpec, Setup
from horae.scheduler import Scheduler
from horae.traces.generators import Poisson

CLUSTER = Cluster("test", tuple(Node(f"n{index}", "gpu", 8) for index in range(4)))
POLICIES = ("fifo", "tiresias", "themis", "srtf", "slurm")


def _setup(policy: str) -> Setup:
    cadence = Cadence.EVENTS if policy in ("fifo", "srtf", "slurm") else Cadence.ROUNDS
    return Setup(CLUSTER, (PoolSpec("all", policy, {}, cadence),))


def _workload(*, lengths_known: bool = True) -> list[Arrival]:
    arrivals = Poisson(jobs=60, cluster_gpus=32, load=1.2, median_seconds=3000.0, sigma=1.0).arrivals(seed=3)
    found = []
    for each in arrivals:
        steps = each.job.steps_total if lengths_known else None
        found.append(replace(each, job=replace(each.job, restart_seconds=30.0, steps_total=steps)))
    return found


def _run(setup: Setup, arrivals: list[Arrival], path: Path | None = None, outside: list[Event] | None = None) -> Watch:
    seen = Watch()
    simulate(setup, arrivals, outside or [], journal=path, observers=[seen])
    return seen


def _read(path: Path, since: float | None = None) -> Recording:
    journal = read_journal(path)
    return read_recording(Scheduler(journal.setup), journal.entries, since)


def _ends(account: object) -> dict[str, float]:
    jobs = account.log().jobs  # type: ignore[attr-defined]
    return dict(zip(jobs.id, jobs.ended_at.tolist(), strict=True))


@pytest.mark.parametrize("policy", POLICIES)
def test_the_same_setup_gives_the_same_schedule_and_another_that_of_a_simulation(policy: str, tmp_path: Path) -> None:
    arrivals, path = _workload(lengths_known=policy == "srtf"), tmp_path / "run.jsonl"
    recorded = _run(_setup(policy), arrivals, path)
    other = "tiresias" if policy == "fifo" else "fifo"
    simulated = _run(replace(_setup(policy), pools=(replace(_setup(policy).pools[0], policy=other),)), arrivals)
    recording = _read(path)

    replayed = whatif(recording, Change())
    assert replayed.is_replay
    assert _ends(replayed.changed) == _ends(replayed.recorded) == recorded.ended
    assert replayed.changed.started == recorded.started

    changed = whatif(recording, Change(policies={ALL: Policy(other)}))
    assert _ends(changed.same) == recorded.ended, "the same setup, simulated, is what was recorded"
    assert _ends(changed.changed) == simulated.ended
    assert changed.changed.started == simulated.started
    assert simulated.ended != recorded.ended


@pytest.mark.parametrize("policy", ["fifo", "tiresias"])
def test_from_the_middle_only_what_comes_later_differs(policy: str, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    recorded = _run(_setup(policy), _workload(lengths_known=False), path)
    recording = _read(path, 8_000.0)
    assert 8_000.0 <= recording.since < recording.until
    replayed = whatif(recording, Change())
    live = _ends(replayed.recorded)
    assert _ends(replayed.changed) == live
    assert set(live) == {job_id for job_id, at in recorded.ended.items() if at >= 8_000.0}
    changed = whatif(recording, Change(policies={"all": Policy("las")}, cadence=Cadence.ROUNDS))
    assert _ends(changed.same) == pytest.approx(live, abs=1e-6)
    assert _ends(changed.changed) != pytest.approx(live, abs=1.0)
    assert min(_ends(changed.changed).values()) >= 8_000.0


def test_failures_and_cancellations_come_again(tmp_path: Path) -> None:
    path, arrivals = tmp_path / "run.jsonl", _workload()
    cancelled = arrivals[30].job
    outside: list[Event] = [*fault_plan(CLUSTER, 1, 0.5, 3600.0, arrivals[-1].job.submitted_at)]
    outside += [JobCancelled(cancelled.submitted_at + 10.0, cancelled.id)]
    _run(_setup("fifo"), arrivals, path, outside)
    simulated = _run(_setup("srtf"), arrivals, None, outside)
    changed = whatif(_read(path), Change(policies={ALL: Policy("srtf")}))
    assert changed.believed <= {cancelled.id}
    ended = _ends(changed.changed)
    assert {job_id: ended[job_id] for job_id in simulated.ended} == pytest.approx(simulated.ended, abs=1e-6)


def test_other_nodes_cells_and_weights_are_changes(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    _run(_setup("tiresias"), _workload(), path)
    recording = _read(path)
    more = summarise(whatif(recording, Change(more_nodes=CLUSTER.nodes[:2])))
    assert more["change"] == ["2 more nodes"]
    assert more["sooner"] > more["later"]
    assert more["changed"]["completion_mean_seconds"] < more["same"]["completion_mean_seconds"]
    assert more["jobs"] == more["sooner"] + more["later"] + more["unchanged"] == 60
    tenant = next(iter({job.tenant for job in recording.submitted}))
    cells = summarise(whatif(recording, Change(cells={tenant: {"gpu.node": 4}}, weights={tenant: 2.0})))
    assert [each["changed"]["guarantee"] for each in cells["tenants"]] == ["kept"]
    assert [each["same"]["guarantee"] for each in cells["tenants"]] == [None]
    with pytest.raises(InputError, match="cell"):
        whatif(recording, Change(cells={tenant: {"gpu.node": 5}}))


def test_a_tenant_sees_its_own_jobs_only(tmp_path: Path) -> None:
    path, arrivals = tmp_path / "run.jsonl", _workload()
    named = [replace(each, job=replace(each.job, tenant="ab"[n % 2])) for n, each in enumerate(arrivals)]
    _run(_setup("fifo"), named, path)
    found = summarise(whatif(_read(path), Change(policies={ALL: Policy("srtf")})), only="a")
    assert found["jobs"] == 30
    assert {each["tenant"] for each in (*found["tenants"], *found["sooner_jobs"], *found["later_jobs"])} == {"a"}
    assert "utilisation" not in found["changed"]


def test_the_time_budget_is_kept_and_said(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    _run(_setup("fifo"), _workload(), path)
    asked = iter(range(10_000))
    outcomes = whatif(_read(path), Change(policies={ALL: Policy("srtf")}), lambda: next(asked) >= 40)
    assert outcomes.cut_off_at is not None and outcomes.cut_off_at < outcomes.until
    found = summarise(outcomes)
    assert found["cut_off_at"] == outcomes.cut_off_at
    assert found["jobs"] < 60


def test_a_moment_before_the_first_event_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    _run(_setup("fifo"), _workload(), path)
    with pytest.raises(BeforeTheLog):
        _read(path, -1.0)
    with pytest.raises(InputError, match="no later event"):
        _read(path, 1e12)


def test_the_command_compares_a_journal_in_words_and_as_json(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    _run(_setup("fifo"), _workload(), path)
    told = horae("whatif", "--journal", path, "--policy", "srtf", "--since", "2h")
    assert (told.code, told.err) == (0, "")
    assert told.out.startswith("since 2.00 h: policy srtf\n")
    assert "mean completion" in told.out and "sooner:" in told.out
    plain = json.loads(horae("whatif", "--journal", path, "-o", "json").out)
    assert plain["is_replay"] and plain["unchanged"] == plain["jobs"] == 60
    assert plain["recorded"] == plain["changed"]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--since", "0.001s"], "--since: 0.001s is before the first event"),
        (["--since", "999d"], "--since: there is no later event"),
        (["--since", "2026-01-01"], "--since: '2026-01-01' is a date"),
        (["--policy", "nothing-such"], "there is no policy 'nothing-such'"),
        (["--policy", "tiresias={limits: 7}"], "limits"),
        (["--policy", "fifo", "--pool", "none"], "there is no pool 'none'"),
        (["--pool", "all"], "--pool: is given without --policy"),
        (["--cells", "nlp=2"], "--cells"),
        (["--cells", "nlp:gpu.node=9"], "--cells: the tenants' cells exceed"),
        (["--weight", "nlp=-1"], "weights"),
        (["--nodes", "many"], "--nodes"),
        (["--more-nodes", "8"], "--more-nodes"),
        (["--cadence", "never"], "--cadence: is 'never'"),
        (["--cluster", "/nowhere/lab.yaml"], "/nowhere/lab.yaml"),
    ],
)
def test_a_wrong_question_is_one_line(options: list[str], complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    _run(_setup("fifo"), _workload()[:10], path)
    assert complaint in horae("whatif", "--journal", path, *options).complaint


NODES = "name: lab\nnodes:\n  - {name: a, gpu: gpu, gpus: 8}\n"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "--cluster: is empty; give at least nodes"),
        ("{", "--cluster: line 1: not YAML"),
        ("nodes:\n  - {name: a, gpu: gpu, gpus: -1}\n", "--cluster: line 2: nodes.0.gpus: is -1"),
        (NODES + "  - {name: a, gpu: gpu, gpus: 8}\n", "--cluster: line 4: nodes.1: node 'a' is listed twice"),
        (NODES + "spare: {policy: nothing-such}\n", "--cluster: line 4: spare.policy: there is no policy"),
        (NODES + "tenants:\n  nlp: {cells: {gpu.node: 3}}\n", "the tenants' cells exceed chain gpu at level node by 2"),
    ],
)
def test_an_impossible_cluster_file_is_one_line(text: str, complaint: str, tmp_path: Path) -> None:
    path, file = tmp_path / "run.jsonl", tmp_path / "lab.yaml"
    _run(_setup("fifo"), _workload()[:10], path)
    file.write_text(text)
    assert complaint in horae("whatif", "--journal", path, "--cluster", file).complaint


def test_jobs_that_a_smaller_cluster_cannot_run_are_counted(tmp_path: Path) -> None:
    path, file = tmp_path / "run.jsonl", tmp_path / "lab.yaml"
    _run(_setup("fifo"), _workload()[:10], path)
    file.write_text(NODES.replace("gpus: 8", "gpus: 1"))
    found = json.loads(horae("whatif", "--journal", path, "--cluster", file, "-o", "json").out)
    too_large = sum(each.job.gpus > 1 for each in _workload()[:10])
    assert too_large > 0 and (found["never"], found["jobs"]) == (too_large, 10 - too_large)


def test_a_log_of_another_version_and_a_policy_that_fails_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.jsonl"
    _run(_setup("fifo"), _workload()[:10], path)
    text = path.read_text()
    other = tmp_path / "other.jsonl"
    other.write_text(text.replace('{"journal":2', '{"journal":9', 1))
    assert "not a journal of version 2" in horae("whatif", "--journal", other).complaint
    other.write_text(text.replace('"event":"JobSubmitted"', '"event":"JobDreamt"', 1))
    assert "unknown kind of event; use a newer Horae" in horae("whatif", "--journal", other).complaint
    empty = tmp_path / "archive"
    empty.mkdir()
    assert "has no store" in horae("whatif", "--journal", empty).complaint
    monkeypatch.setattr("horae.policies.queue_orders.Srtf.decide", _fail)
    assert "policy 'srtf' failed" in horae("whatif", "--journal", path, "--policy", "srtf").complaint


def _fail(*_: object) -> None:
    raise ValueError("no")
