"""The journal: values as plain data and back, damaged files, files that were cut short."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from functools import cache
from math import inf, nan
from pathlib import Path
from typing import Any, get_args

import pytest
from builders import arrival, cluster, job
from hypothesis import given
from hypothesis import strategies as st

from horae.driver import run
from horae.engines.simulated import SimulatedEngine
from horae.experiments.replay import recover, replay_file, replay_text
from horae.experiments.simulate import simulate
from horae.journal import VERSION, JournalWriter, parse_journal, read_journal
from horae.model.cluster import Gpu, Node
from horae.model.commands import CallForBids, Command, Extend, Offer, Start, Stop, Survey
from horae.model.errors import InputError, JournalError
from horae.model.events import (
    BidGiven,
    ClusterChanged,
    CurveRevised,
    Ending,
    Event,
    GpuChanged,
    GpuState,
    Health,
    JobCancelled,
    JobEnded,
    JobHeld,
    JobPhase,
    JobProgressed,
    JobReleased,
    JobResumable,
    JobStarted,
    JobSubmitted,
    LeaseAdopted,
    NodeChanged,
    Phase,
    PolicyChanged,
    Running,
    SchedulerRestarted,
    SpeedRevised,
    Surveyed,
    TenantChange,
    TenantsChanged,
    Tick,
)
from horae.model.jobs import Arrival, Curve, Job
from horae.model.plans import Reaction
from horae.model.serialization import from_plain, to_plain
from horae.model.setup import Cadence, PoolSpec, Setup
from horae.model.shapes import Option, Shape
from horae.policies import POLICIES
from horae.policies.registry import installed
from horae.scheduler import Scheduler

times = st.floats(min_value=0.0, max_value=1e12)
amounts = st.floats(min_value=0.0)  # endless included
names = st.text(min_size=1, max_size=8)
counts = st.integers(min_value=0, max_value=2**40)
shapes = st.builds(Shape, names, st.integers(1, 10_000), names)
speeds = st.floats(min_value=1e-6, max_value=1e6)
jobs = st.builds(
    Job,
    id=names,
    submitted_at=times,
    options=st.lists(st.builds(Option, shapes, speeds), min_size=1, max_size=3).map(tuple),
    app=st.text(max_size=8),
    tenant=names,
    weight=st.floats(min_value=1e-3, max_value=1e3),
    priority=st.integers(-100, 100),
    steps_total=st.none() | st.floats(min_value=1e-3, max_value=1e12),
    deadline_at=amounts,
    restart_seconds=times,
    preemptions_max=amounts,
    retries_max=counts,
    command=st.text(max_size=20),
)
# Options of a policy are kept as they were written in a file: they are plain already.
options = st.dictionaries(names, st.booleans() | st.integers() | st.lists(times, max_size=3), max_size=3)

gpus = st.lists(st.builds(Gpu, names, counts), max_size=4).map(tuple)
cells = st.none() | st.dictionaries(names, counts, max_size=2)
runs = st.builds(Running, names, counts, gpus, amounts, st.sampled_from(Phase))
changes = st.builds(TenantChange, cells, st.none() | times, cells)

EVENTS: dict[type, st.SearchStrategy[Any]] = {
    JobSubmitted: st.builds(JobSubmitted, times, jobs),
    JobCancelled: st.builds(JobCancelled, times, names),
    JobHeld: st.builds(JobHeld, times, names),
    JobReleased: st.builds(JobReleased, times, names),
    JobStarted: st.builds(JobStarted, times, names, counts),
    JobPhase: st.builds(JobPhase, times, names, counts, st.sampled_from(Phase)),
    JobProgressed: st.builds(JobProgressed, times, names, counts, amounts, st.none() | amounts),
    JobEnded: st.builds(JobEnded, times, names, counts, st.sampled_from(Ending), amounts, st.text(max_size=8)),
    NodeChanged: st.builds(NodeChanged, times, names, st.sampled_from(Health)),
    PolicyChanged: st.builds(PolicyChanged, times, names, names, options, round_seconds=st.none() | amounts),
    GpuChanged: st.builds(
        GpuChanged, times, st.builds(Gpu, names, counts), st.sampled_from(GpuState), st.text(max_size=8)
    ),
    ClusterChanged: st.builds(
        ClusterChanged,
        times,
        st.lists(st.builds(Node, names, names, counts, amounts, amounts), max_size=2).map(tuple),
        st.lists(names, max_size=2).map(tuple),
    ),
    TenantsChanged: st.builds(TenantsChanged, times, st.dictionaries(names, changes, max_size=2)),
    LeaseAdopted: st.builds(LeaseAdopted, times, counts, st.tuples(names), gpus, st.tuples(amounts), st.booleans()),
    BidGiven: st.builds(
        BidGiven,
        times,
        counts,
        names,
        st.lists(counts, max_size=3).map(tuple),
        st.lists(amounts, max_size=3).map(tuple),
    ),
    CurveRevised: st.builds(CurveRevised, times, names, st.builds(Curve, amounts, amounts, amounts)),
    SpeedRevised: st.builds(SpeedRevised, times, names, shapes, amounts),
    Surveyed: st.builds(Surveyed, times, st.lists(runs, max_size=3).map(tuple)),
    SchedulerRestarted: st.builds(SchedulerRestarted, times, counts),
    JobResumable: st.builds(JobResumable, times, names),
    Tick: st.builds(Tick, times),
}
COMMANDS: dict[type, st.SearchStrategy[Any]] = {
    Start: st.builds(
        Start, counts, st.tuples(names), gpus, shapes, st.tuples(amounts), st.tuples(st.booleans()), amounts
    ),
    Extend: st.builds(Extend, counts, amounts),
    Stop: st.builds(Stop, counts, names, amounts),
    Survey: st.builds(Survey),
    CallForBids: st.builds(
        CallForBids,
        counts,
        names,
        times,
        st.tuples(st.builds(Offer, names, st.tuples(counts, counts), st.tuples(amounts, amounts))),
    ),
}


def test_no_kind_of_event_or_command_is_forgotten_here() -> None:
    assert set(EVENTS) == set(get_args(Event))
    assert set(COMMANDS) == set(get_args(Command))


@pytest.mark.parametrize("kind", [*EVENTS, *COMMANDS])
@given(data=st.data())
def test_a_value_comes_back_from_its_line(kind: type, data: st.DataObject) -> None:
    value = data.draw((EVENTS | COMMANDS)[kind])
    line = json.dumps(to_plain(value), allow_nan=False, ensure_ascii=False)
    assert from_plain(kind, json.loads(line)) == value


def test_endless_and_missing_numbers_are_words() -> None:
    assert to_plain(JobProgressed(1.5, "a", 3, inf)) == {"at": 1.5, "job_id": "a", "epoch": 3, "steps": "inf"}
    assert to_plain(JobProgressed(1.5, "a", 3, -inf))["steps"] == "-inf"
    assert to_plain(JobProgressed(1.5, "a", 3, nan))["steps"] == "nan"
    assert from_plain(JobProgressed, {"at": 1.5, "job_id": "a", "epoch": 3, "steps": "inf"}).steps == inf
    back = from_plain(JobProgressed, {"at": 1.5, "job_id": "a", "epoch": 3, "steps": "nan"})
    assert back.steps != back.steps


def test_what_has_its_default_is_left_out() -> None:
    assert to_plain(PolicyChanged(0.0, "all", "las")) == {"at": 0.0, "pool": "all", "policy": "las"}
    assert to_plain(JobEnded(0.0, "a", 0, Ending.LOST, 1.0)) == {
        "at": 0.0,
        "job_id": "a",
        "epoch": 0,
        "ending": "lost",
        "steps": 1.0,
    }
    plain = to_plain(job("a", 2.0, gpus=4, seconds=None, retries_max=2))
    shape = {"accelerator": "v100", "gpus": 4, "level": "node"}
    assert plain == {
        "id": "a",
        "submitted_at": 2.0,
        "options": [{"shape": shape, "steps_per_second": 1.0}],
        "retries_max": 2,
    }
    assert to_plain(Survey()) == {}


def test_a_setup_comes_back_whole() -> None:
    pools = (
        PoolSpec("nlp", "tiresias", {"limits": [1.0, 3.0]}, Cadence.ROUNDS, 60.0, ("nlp",), ("n0",)),
        PoolSpec("spare"),
    )
    setup = Setup(cluster(nodes=3, racks=1, levels=(("socket", 4),), cpus=96.0), pools, seed=7, survey_seconds=600.0)
    assert from_plain(Setup, json.loads(json.dumps(to_plain(setup), allow_nan=False))) == setup


# A small run with preemptions, and its journal.

SETUP = Setup(
    cluster(nodes=2, gpus=2),
    (PoolSpec("all", "tiresias", {"limits": [100.0], "promote_after": 0.0}, Cadence.ROUNDS, 10.0),),
)
WORKLOAD = [
    arrival(f"jöb-{index}", 13.0 * index, gpus=1 + index % 2, seconds=40.0 + 30 * (index % 3), restart_seconds=5.0)
    for index in range(8)
]


@cache
def whole() -> bytes:
    return journal_of(SETUP, WORKLOAD).encode()


def journal_of(setup: Setup, arrivals: list[Arrival]) -> str:
    page = io.StringIO()
    writer = JournalWriter(page)
    writer.open(setup)
    run(Scheduler(setup), SimulatedEngine(setup.cluster, arrivals), journal=writer)
    return page.getvalue()


def lines() -> list[str]:
    return whole().decode().splitlines(keepends=True)


def test_a_journal_has_events_rounds_and_commands_one_a_line() -> None:
    heads = [next(iter(json.loads(line))) for line in lines()]
    assert heads[0] == "journal"
    assert set(heads[1:]) == {"event", "effects", "round", "command"}
    kinds = {json.loads(line).get("command") for line in lines()}
    assert {"Start", "Stop"} <= kinds, "the run has preemptions"


def test_a_decision_that_is_the_same_as_the_last_is_left_out() -> None:
    # Two jobs take turns on one GPU: new plans, by shares that stay the same until one of them ends.
    setup = Setup(cluster(nodes=1, gpus=1), (PoolSpec("all", "equal-share", {}, Cadence.ROUNDS, 10.0),))
    journal = journal_of(setup, [arrival("a", seconds=50.0), arrival("b", seconds=50.0)])
    rounds = [record for record in map(json.loads, journal.splitlines()) if "round" in record]
    decisions = [record["decision"] for record in rounds if "decision" in record]
    assert decisions[:2] == [{"shares": {"a": [0.5], "b": [0.5]}}, {"shares": {"b": [1.0]}}]
    assert len(decisions) <= 3  # at the end nobody is left to share
    assert len(rounds) >= 6


def test_the_whole_journal_replays_the_same() -> None:
    replayed = replay_text(whole().decode())
    kinds = [next(iter(json.loads(line))) for line in lines()]
    assert replayed.difference == ""
    assert (replayed.events, replayed.commands) == (kinds.count("event"), kinds.count("command"))


def first(head: str, kind: str) -> int:
    """The index of the first line of this kind."""
    return next(index for index, line in enumerate(lines()) if json.loads(line).get(head) == kind)


def altered(index: int, change: Callable[[dict[str, Any]], object]) -> str:
    """The journal with one line changed."""
    copy = lines()
    record = json.loads(copy[index])
    change(record)
    copy[index] = json.dumps(record, separators=(",", ":"), ensure_ascii=False) + "\n"
    return "".join(copy)


def test_a_command_that_was_changed_is_found() -> None:
    index = first("command", "Stop")
    difference = replay_text(altered(index, lambda record: record.update(grace_seconds=1.0))).difference
    assert difference.startswith(f"line {index + 1}: recorded ")
    assert ", replayed " in difference


def test_a_command_that_was_removed_is_found() -> None:
    copy = lines()
    index = first("command", "Stop")
    del copy[index]
    assert replay_text("".join(copy)).difference.startswith(f"line {index + 1}: recorded ")


def test_an_event_that_was_changed_leads_elsewhere() -> None:
    index = first("event", "JobEnded")
    assert replay_text(altered(index, lambda record: record.update(ending="stopped"))).difference


def broken(index: int, line: str | bytes) -> bytes:
    copy = [each.encode() for each in lines()]
    copy[index] = line if isinstance(line, bytes) else line.encode()
    return b"".join(copy)


KNOWN_POLICIES = [*POLICIES, *(point.name for point in installed())]
DAMAGED = "the journal is damaged here: take a whole copy of it"
WRONG: dict[str, tuple[Callable[[], bytes], str]] = {
    "the file is empty": (lambda: b"", ":1: the journal has no complete line; name a file made with --journal"),
    "the file is something else": (lambda: b"id,submit\n", ":1: is no journal; name a file made with --journal"),
    "the version is another": (
        lambda: broken(0, '{"journal":99,"setup":{}}\n'),
        f":1: a journal of version 99, and not a journal of version {VERSION}; run it again with this version of Horae",
    ),
    "there is no setup": (
        lambda: broken(0, '{"journal":2}\n'),
        f":1: not a journal of version {VERSION}; name a file made with --journal",
    ),
    "the setup is no setup": (
        lambda: broken(0, '{"journal":2,"setup":{"pools":[]}}\n'),
        f":1: not a Setup: Setup lacks 'cluster'; {DAMAGED}",
    ),
    "the setup has a policy that nobody knows": (
        lambda: whole().replace(b'"policy":"tiresias"', b'"policy":"lottery"', 1),
        f": policy: there is no policy 'lottery'; choose one of {', '.join(KNOWN_POLICIES)}",
    ),
    "the setup selects a policy by a former option": (
        lambda: whole().replace(b'"options":{', b'"options":{"variant":"themis-paper",', 1),
        ": policy: policy 'tiresias' has no option 'variant: themis-paper'; "
        "it is now the policy 'themis-tiresias' of the package horae-evaluation",
    ),
    "the setup has a cluster without nodes": (
        lambda: broken(0, '{"journal":2,"setup":{"cluster":{"name":"a","nodes":[]},"pools":[]}}\n'),
        ":1: nodes: the cluster has no nodes; list at least one node",
    ),
    "there is garbage in the middle": (lambda: broken(5, "###\n"), f":6: not a JSON object; {DAMAGED}"),
    "there is a number in the middle": (lambda: broken(5, "5\n"), f":6: not a JSON object; {DAMAGED}"),
    "there are bytes in the middle that are no text": (
        lambda: broken(5, b'{"event":"Tick","at":\xff}\n'),
        f":6: not UTF-8 text; {DAMAGED}",
    ),
    "an event is of a kind that nobody knows": (
        lambda: broken(5, '{"event":"Earthquake","at":1.0}\n'),
        ":6: unknown kind of event; use a newer Horae",
    ),
    "an event is of a kind that is no word": (
        lambda: broken(5, '{"event":["Tick"],"at":1.0}\n'),
        ":6: unknown kind of event; use a newer Horae",
    ),
    "an event lacks a field": (
        lambda: broken(5, '{"event":"JobStarted","at":1.0,"epoch":0}\n'),
        f":6: not a JobStarted: JobStarted lacks 'job_id'; {DAMAGED}",
    ),
    "an event has a field too many": (
        lambda: broken(5, '{"event":"Tick","at":1.0,"by":"me"}\n'),
        f":6: not a Tick: Tick has no field 'by'; {DAMAGED}",
    ),
    "an event has a field of the wrong type": (
        lambda: broken(5, '{"event":"JobStarted","at":1.0,"job_id":"a","epoch":"0"}\n'),
        f":6: not a JobStarted: '0' is not of type int; {DAMAGED}",
    ),
    "an event is at no time": (lambda: broken(5, '{"event":"Tick","at":"nan"}\n'), f":6: at: is nan; {DAMAGED}"),
    "an event is at a time beyond all numbers": (
        lambda: broken(5, f'{{"event":"Tick","at":1{"0" * 400}}}\n'),
        f":6: not a Tick: int too large to convert to float; {DAMAGED}",
    ),
    "a job asks for no GPUs": (
        lambda: whole().replace(b'"gpus":1,', b'"gpus":0,', 1),
        ":2: gpus: job 'j\xf6b-0' asks for 0 GPUs; ask for 1 or more",
    ),
}


@pytest.mark.parametrize(("make", "want"), WRONG.values(), ids=WRONG)
def test_a_damaged_journal_is_one_line_with_its_place(tmp_path: Path, make: Callable[[], bytes], want: str) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(make())
    with pytest.raises(InputError) as raised:
        replay_file(path)
    assert str(raised.value) == f"{path}{want}"


def test_a_journal_that_is_missing_is_named(tmp_path: Path) -> None:
    path = tmp_path / "none.jsonl"
    with pytest.raises(InputError) as raised:
        read_journal(path)
    assert str(raised.value) == f"{path}: No such file or directory; name a file made with --journal"


def test_a_text_without_a_file_is_called_a_journal() -> None:
    with pytest.raises(InputError, match=r"^journal:1: is no journal; "):
        parse_journal(["hello\n"])


def cuts() -> list[int]:
    """Places at which a crash may have cut the file: all over it, and at every byte of the last lines."""
    header = whole().index(b"\n") + 1
    return [*range(header, len(whole()), 397), *range(len(whole()) - 250, len(whole()))]


def test_wherever_a_journal_was_cut_it_replays_the_same() -> None:
    for cut in cuts():
        text = whole()[:cut].decode(errors="replace")
        assert replay_text(text).difference == "", f"cut at byte {cut}"


def test_wherever_a_journal_was_cut_it_is_mended_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    for cut in cuts()[::7]:
        path.write_bytes(whole()[:cut])
        recovered = recover(path)
        mended = path.read_bytes()
        # All of the last event and what it led to, and no half line; what follows would be appended.
        assert whole().startswith(mended), f"cut at byte {cut}"
        assert len(mended) >= whole().rfind(b"\n", 0, cut) + 1, f"cut at byte {cut}"
        assert mended.endswith(b"\n")
        rest = whole()[len(mended) :]
        assert not rest or rest.startswith(b'{"event":'), f"cut at byte {cut}"
        recovered.writer.heard(Tick(1e6))
        assert path.read_bytes() == mended + b'{"event":"Tick","at":1000000.0}\n'


SMALL = Setup(cluster(nodes=1, gpus=1), (PoolSpec("all", "fifo", {}, Cadence.EVENTS),))


def test_a_cut_at_any_byte_loses_no_complete_line_and_destroys_nothing(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    content = journal_of(SMALL, [arrival("ä", seconds=5.0), arrival("b", 1.0, seconds=5.0)]).encode()
    header = content.index(b"\n")
    for cut in range(len(content) + 1):
        path.write_bytes(content[:cut])
        if cut < header:
            with pytest.raises(JournalError, match=r":1: the journal has no complete line; "):
                recover(path)
            assert path.read_bytes() == content[:cut], f"cut at byte {cut}"
            continue
        recovered = recover(path)
        # A line of which only the newline is missing is complete.
        complete = content.rfind(b"\n", 0, cut + 1) + 1
        mended = path.read_bytes()
        assert content.startswith(mended) and mended.endswith(b"\n"), f"cut at byte {cut}"
        assert len(mended) >= complete, f"cut at byte {cut}"
        recovered.writer.heard(Tick(1e6))
        recovered.writer.close()
        assert path.read_bytes() == mended + b'{"event":"Tick","at":1000000.0}\n'


UNREADABLE: dict[str, bytes] = {
    "is empty": b"",
    "is another file without a newline": b"id,submit,gpus",
    "has a header that is cut inside a character": '{"journal":2,"setup":{"cluster":{"name":"ä'.encode()[:-1],
    "has a header that is not UTF-8": b'{"journal":2,"setup":{"cluster":{"name":"\xff"}}}',
    "has a setup that cannot be": b'{"journal":2,"setup":{"cluster":{"name":"a","nodes":[]},"pools":[]}}',
    "has zeros, as a file system may leave them": bytes(100),
}


@pytest.mark.parametrize("content", UNREADABLE.values(), ids=UNREADABLE)
def test_a_journal_that_cannot_be_read_is_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(content)
    with pytest.raises(JournalError):
        recover(path)
    assert path.read_bytes() == content


def test_a_last_line_that_is_not_utf_8_was_cut(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(whole() + b'{"event":"JobCancelled","at":1.0,"job_id":"\xc3"}')
    recover(path)
    assert path.read_bytes() == whole()


def test_a_folder_is_no_journal(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match=r"Is a directory; name a file made with --journal$"):
        recover(tmp_path)


FULL = Path("/dev/full")
SURVEY = Reaction((Survey(),), ())
FULL_DISK = r"^/dev/full: cannot be written: No space left on device; make room for it, or write elsewhere$"
on_a_full_disk = pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")


@on_a_full_disk
@pytest.mark.parametrize("jobs", [1, 200], ids=["at the end", "half way"])
def test_a_run_whose_journal_does_not_fit_on_the_disk_is_told_so(jobs: int) -> None:
    with pytest.raises(JournalError, match=FULL_DISK):
        simulate(SMALL, [arrival(f"j{index}", seconds=5.0) for index in range(jobs)], journal=FULL)


def flushed(writer: JournalWriter) -> None:
    writer.reacted(Tick(0.0), SURVEY)
    writer.flush()


@on_a_full_disk
def test_a_live_journal_on_a_full_disk_says_so_wherever_it_is_noticed() -> None:
    steps: dict[str, Callable[[JournalWriter], object]] = {
        "an event is flushed": lambda writer: writer.heard(Tick(1.0)),
        "a line is larger than the buffer": lambda writer: writer.heard(JobCancelled(0.0, "a" * 100_000)),
        "its effects are flushed": flushed,
        "it is closed": JournalWriter.close,
    }
    for step in steps.values():
        writer = JournalWriter(FULL.open("w"), flush=True)
        writer.open(SMALL)
        with pytest.raises(JournalError, match=FULL_DISK), writer:
            step(writer)


def test_an_error_of_another_file_is_not_blamed_on_the_journal(tmp_path: Path) -> None:
    class Broken:
        def reacted(self, event: Event, reaction: Reaction) -> None:
            raise FileNotFoundError

    with pytest.raises(FileNotFoundError):
        simulate(SMALL, [arrival("a")], journal=tmp_path / "run.jsonl", observers=[Broken()])


def test_recovery_does_not_depend_on_what_a_policy_answers_today(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(whole())
    scheduler = recover(path).scheduler

    def fail(policy: object, view: object) -> None:
        raise AssertionError("no policy is asked")

    monkeypatch.setattr(POLICIES["tiresias"], "decide", fail)
    assert recover(path).scheduler.dump() == scheduler.dump()
    assert path.read_bytes() == whole()


def test_a_journal_that_contradicts_itself_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(b"".join(line.encode() for line in lines() if '"round"' not in line and '"effects"' not in line))
    before = path.read_bytes()
    with pytest.raises(JournalError, match=r"contradicts itself: .*; take a whole copy of it$"):
        recover(path)
    assert path.read_bytes() == before
