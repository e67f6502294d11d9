"""Why a job waits, and its output."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from service.api.harness import STARTED_WALL, Clients, FakeLoop, World, served
from sqlalchemy import update

from horae.model.explanations import Explanation, Holder, Unblocking
from horae.model.reasons import BehindHead, NoRoom
from horae.model.serialization import to_plain
from horae.model.shapes import Shape
from horae.model.status import Status
from horae.service.api.log_files import Follower, JobOutput
from horae.service.store import schema

SHAPE = Shape("A100", 8, "node")


@pytest.fixture
def explained(world: World, loop: FakeLoop) -> None:
    world.add_job("8")
    world.add_job("2", "vision", "bob")
    world.add_job("3")
    world.add_lease("8", 1, ended_at=20.0, ending="stopped", reason="preempted by 2")
    holders = (Holder("2", 8, 10.0, 60.0), Holder("3", 8, 10.0, float("inf")))
    explanation = Explanation(
        "8", 30.0, Status.PENDING, BehindHead("2", NoRoom("nlp", SHAPE, 4)), "nlp", "fifo", ("2", "3"), holders,
        Unblocking(SHAPE, holders[:1]), 300.0,
    )  # fmt: skip
    text = "8 waits behind 2"
    loop.answers["why"] = {"explanation": to_plain(explanation), "reason": str(explanation.reason), "text": text}


def test_why_hides_other_tenants_jobs(send: Clients, explained: None) -> None:
    why = send("ann", "GET", "/v1/jobs/8/why").json()
    assert why["reason"].startswith("not now: waits behind other-tenant job, for which there is no room for 8 x A100")
    assert why["ahead"] == ["other-tenant job", "3"]
    assert [(holder["job_id"], holder["ends_at"]) for holder in why["holders"]] == [
        ("other-tenant job", STARTED_WALL + 60),
        ("3", None),
    ]
    assert why["next_decision_at"] == STARTED_WALL + 300
    assert why["story"] == ["lease 1: 1 x A100 in one node, stopped after 15 s: preempted by other-tenant job"]
    assert "held by   3, 1 other-tenant job (16 GPUs)" in why["text"]


def test_operators_see_all_of_it(send: Clients, explained: None) -> None:
    why = send("olga", "GET", "/v1/jobs/8/why").json()
    assert why["ahead"] == ["2", "3"]
    assert why["text"] == "8 waits behind 2"
    assert why["story"][0].endswith("preempted by 2")


def test_without_the_loop_the_tables_answer_and_say_so(world: World, send: Clients) -> None:
    world.add_job("8", state="failed", reason="out of memory")
    why = send("ann", "GET", "/v1/jobs/8/why").json()
    assert why["reason"] == "out of memory"
    assert "does not answer" in why["text"]


def test_a_job_that_the_scheduler_does_not_know_is_told_by_the_tables(
    world: World, send: Clients, loop: FakeLoop
) -> None:
    world.add_job("8", state="waiting")
    loop.answers["why"] = {"explanation": None}
    assert send("ann", "GET", "/v1/jobs/8/why").json()["text"] == "8 is waiting"


def output(world: World, job: str) -> Path:
    folder = world.state / "engine" / "jobs" / job
    folder.mkdir(parents=True, exist_ok=True)
    return folder / "output.log"


def test_output_by_tail_and_by_offset(world: World, send: Clients) -> None:
    world.add_job("8")
    assert send("ann", "GET", "/v1/jobs/8/logs").text == ""
    log = output(world, "8")
    log.with_name("output.log.0").write_text("first\n")
    log.write_text("second\n")
    answer = send("ann", "GET", "/v1/jobs/8/logs")
    assert answer.text == "first\nsecond\n"
    assert answer.headers["horae-log-next"] == "13"
    assert send("ann", "GET", "/v1/jobs/8/logs?tail=10").text == "st\nsecond\n"[-10:]
    assert send("ann", "GET", "/v1/jobs/8/logs?offset=6").text == "second\n"
    assert send("ann", "GET", "/v1/jobs/8/logs?offset=99").text == ""


def test_a_link_in_place_of_the_output_is_not_followed(world: World, send: Clients) -> None:
    world.add_job("8")
    (world.state / "private").write_text("private")
    output(world, "8").symlink_to(world.state / "private")
    assert send("ann", "GET", "/v1/jobs/8/logs").text == ""


def rotate(log: Path, start: int) -> None:
    log.rename(log.with_name(f"output.log.{start}"))


def test_a_reader_that_is_too_slow_is_told_what_it_has_missed(world: World) -> None:
    log = output(world, "8")
    log.write_text("0123")
    follower = Follower(world.state, "8", 2)
    assert [follower.read(), follower.read()] == [b"23", b""]
    for start in (0, 4, 8):
        rotate(log, start)
        log.write_text(f"{start:04}")
    for start in (0, 4):
        log.with_name(f"output.log.{start}").unlink()
    texts = [follower.read() for _ in range(4)]
    assert texts == [b"\n[4 bytes of output were deleted before they were read]\n", b"0004", b"0008", b""]
    follower.close()
    assert JobOutput(world.state, "8").read_from(0, 99) == (8, b"00040008")


def test_following_ends_with_the_job_and_crosses_two_rotations(world: World) -> None:
    world.add_job("8", state="running")
    log = output(world, "8")
    log.write_text("a\n")

    def write() -> None:
        with log.open("a") as file:
            file.write("b\n")
        rotate(log, 0)
        log.write_text("c\n")
        rotate(log, 4)
        log.with_name("output.log.0").unlink()
        log.write_text("d\n")
        with world.engine.begin() as connection:
            connection.execute(update(schema.jobs).values(state="finished"))

    asked = {"headers": world.headers("ann"), "params": {"follow": "1"}, "timeout": 20}
    with served(world) as url, httpx.stream("GET", f"{url}/v1/jobs/8/logs", **asked) as answer:  # type: ignore[arg-type]
        texts = answer.iter_text()
        assert next(texts) == "a\n"
        write()  # all of it between two looks at the files
        assert "".join(texts) == "b\nc\nd\n"
