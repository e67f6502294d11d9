"""What strangers gave to the Python interface and the command line, and what they are told."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from command_line import horae as command

import horae
from horae.experiments import result_store
from horae.policies.queue_orders import Fifo
from horae.traces import formats


@pytest.fixture
def lab() -> Any:
    return horae.load_cluster("2x8:V100")


@pytest.fixture
def jobs(lab: Any, tmp_path: Path) -> Any:
    path = tmp_path / "jobs.csv"
    path.write_text(
        "id,submit,gpus,duration\n" + "".join(f"j{n},{n * 60},{1 + n % 8},{600 + 60 * n}\n" for n in range(30))
    )
    return horae.load_jobs(path, lab)


class Newest:
    """The newest job first, or the oldest."""

    name: ClassVar[str] = "newest-of-a-stranger"

    def __init__(self, newest: bool = True) -> None:
        self.newest = newest

    def decide(self, view: horae.View) -> horae.Ranking:
        rows = np.flatnonzero(view.jobs.pending)
        serial = view.jobs.serial[rows]
        return horae.Ranking(rows[np.argsort(-serial if self.newest else serial)])


def test_two_policies_of_one_name_are_two_rows(lab: Any, jobs: Any) -> None:
    found = horae.compare(lab, jobs, ["fifo", Fifo(backfill=True)]).frame
    assert found["policy"].to_list() == ["fifo", "fifo={backfill: True}"]
    assert found["completion_mean_seconds"].n_unique() == 2
    with pytest.raises(horae.PolicyError, match="two policies are called 'fifo'"):
        horae.compare(lab, jobs, [Fifo(), "fifo"])


def test_values_of_an_object_are_used_or_refused(lab: Any, jobs: Any) -> None:
    with pytest.raises(horae.PolicyError, match="only this object has: newest; make it a dataclass"):
        horae.simulate(lab, jobs, Newest(newest=False))


def test_arrivals_in_any_order_are_sorted_and_ids_are_unique(lab: Any, jobs: Any) -> None:
    there = horae.simulate(lab, list(jobs.arrivals), "fifo").metrics.plain()
    back = horae.simulate(lab, list(jobs.arrivals)[::-1], "fifo").metrics.plain()
    assert there == back
    with pytest.raises(horae.InputError, match="two jobs are called 'j0'"):
        horae.simulate(lab, [*jobs.arrivals, jobs.arrivals[0]], "fifo")
    with pytest.raises(horae.InputError, match="str is no job"):
        horae.simulate(lab, "jobs.csv", "fifo")  # type: ignore[arg-type]


def test_the_seed_of_a_cluster_is_kept(jobs: Any, tmp_path: Path) -> None:
    lab = horae.load_cluster("2x8:V100", seed=7)
    horae.simulate(lab, jobs, "fifo", journal=tmp_path / "run.jsonl")
    assert horae.Journal(tmp_path / "run.jsonl").setup.seed == 7


@pytest.mark.parametrize(
    "wrong",
    [
        lambda lab, jobs: horae.compare(lab, jobs, ["fifo"], seeds=0),
        lambda lab, jobs: horae.compare(lab, jobs, ["fifo"], workers=0),
        lambda lab, jobs: horae.load_cluster("2x8", cadence="round"),
        lambda lab, jobs: horae.load_cluster("2x8:V100,4x8:A100"),
        lambda lab, jobs: horae.load_cluster("2x8:\x00"),
    ],
)
def test_wrong_values_are_one_line(lab: Any, jobs: Any, wrong: Any) -> None:
    with pytest.raises(horae.InputError) as caught:
        wrong(lab, jobs)
    assert "\n" not in str(caught.value)


@dataclass(frozen=True)
class Garbage:
    name: ClassVar[str] = "garbage-of-a-stranger"
    what: str = ""

    def decide(self, view: horae.View) -> Any:
        rows = np.flatnonzero(view.jobs.pending)
        match self.what:
            case "negative":
                return horae.Ranking(rows - 1_000)
            case "twice":
                return horae.Ranking(np.concatenate([rows, rows]))
            case "reals":
                return horae.Ranking(rows.astype(float))
            case "nan":
                return horae.Ranking(rows, stands_until=float("nan"))
            case "nothing":
                return None
        return horae.Ranking(rows)


@pytest.mark.parametrize("what", ["negative", "twice", "reals", "nan", "nothing"])
def test_a_decision_that_is_none_is_an_error(lab: Any, jobs: Any, what: str) -> None:
    with pytest.raises(horae.PolicyError, match="garbage-of-a-stranger"):
        horae.simulate(lab, jobs, Garbage(what))


def test_a_class_without_a_file_is_known_by_its_code() -> None:
    made = []
    for sign in ("-", ""):
        space: dict[str, Any] = {"__name__": "__main__"}
        exec(f"class P:\n    name = 'p'\n    def decide(self, view):\n        return {sign}view.now\n", space)
        made.append(result_store._code_digest(space["P"]))
    assert made[0] != made[1]


def test_a_broken_package_keeps_no_file_from_being_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def explode(point: EntryPoint) -> Any:
        if point.name == "number":
            return 7
        raise RuntimeError("two\nlines")

    points = [EntryPoint(name, "nowhere:F", formats.ENTRY_POINTS) for name in ("bad", "number")]
    monkeypatch.setattr(formats, "entry_points", lambda group: points)
    monkeypatch.setattr(EntryPoint, "load", explode)
    formats._installed_formats.cache_clear()
    try:
        path = tmp_path / "jobs.csv"
        path.write_text("submit,gpus,duration\n0,1,60\n")
        assert command("trace", "info", path).code == 0
    finally:
        monkeypatch.undo()
        formats._installed_formats.cache_clear()


def test_names_with_control_characters_are_escaped(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("submit,gpus,duration,user\n0,1,60,a\x1b[31mb\n1,1,60,c\n")
    for form in ("table", "md"):
        shown = command("compare", path, "--nodes", "1x4", "--policy", "fifo", "--by", "user", "--no-cache", "-o", form)
        assert "\x1b" not in shown.out, form
