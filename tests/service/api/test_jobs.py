"""Lists of jobs, and requests to change them."""

from __future__ import annotations

from typing import Any

import pytest
from service.api.harness import STARTED_WALL, Clients, FakeLoop, World, refused

from horae.service.store import schema


@pytest.fixture
def jobs(world: World) -> None:
    world.add_job("1", name="bert", app="x", submitted_at=10.0)
    world.add_job(
        "2", user="anton", name="gpt", state="finished", ended_at=50.0, rho=1.5, submitted_at=20.0, app="nlp/y"
    )
    world.add_running("3", 5, "a0/0 a0/1", name="bert")
    world.add_job("4", "vision", "bob", name="secret")
    for index in (0, 1, 2, 10):
        world.add_job(f"5_{index}", app="5", name="array", gpus=2)


def ids(answer: Any) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [item["id"] for item in answer.json()["items"]]


def test_filters_and_orders(send: Clients, jobs: None) -> None:
    def listed(query: str, name: str = "ann") -> list[str]:
        return ids(send(name, "GET", f"/v1/jobs?{query}"))

    assert listed("") == ["5_10", "5_2", "5_1", "5_0", "3", "2", "1"]
    assert listed("sort=number") == ["1", "2", "3", "5_0", "5_1", "5_2", "5_10"]
    assert listed("state=running&state=finished") == ["3", "2"]
    assert listed("name=bert") == ["3", "1"]
    assert listed("user=anton") == ["2"]
    assert listed("app=5&limit=2") == ["5_10", "5_2"]
    assert listed("app=y") == listed("app=nlp/y") == ["2"]
    assert listed(f"since={STARTED_WALL + 15}&until={STARTED_WALL + 30}") == ["2"]
    assert listed("sort=-gpus&limit=3") == ["5_10", "5_2", "5_1"]
    assert listed("tenant=vision") == []
    assert listed("", "olga") == ["5_10", "5_2", "5_1", "5_0", "4", "3", "2", "1"]
    assert listed("tenant=vision", "vera") == listed("", "bob") == ["4"]


@pytest.mark.parametrize("sort", ["-number", "number", "name", "-gpus", "state", "-rho", "ended_at"])
def test_pages_have_every_job_once_while_jobs_are_added(world: World, send: Clients, jobs: None, sort: str) -> None:
    expected = ids(send("ann", "GET", f"/v1/jobs?sort={sort}"))
    seen: list[str] = []
    cursor = ""
    for number in range(20):
        page = send("ann", "GET", f"/v1/jobs?sort={sort}&limit=2{cursor}")
        seen += ids(page)
        world.add_job(str(100 + number), name=f"aa{number}")
        if page.json()["next"] is None:
            break
        cursor = f"&cursor={page.json()['next']}"
    assert [job for job in seen if job in expected] == expected
    assert len(seen) == len(set(seen))


def test_a_cursor_of_another_order_is_refused(send: Clients, jobs: None) -> None:
    cursor = send("ann", "GET", "/v1/jobs?limit=1").json()["next"]
    assert refused(send("ann", "GET", f"/v1/jobs?sort=name&cursor={cursor}"), 422)["field"] == "cursor"


def test_a_job_is_shown_with_times_places_and_progress(world: World, send: Clients, jobs: None) -> None:
    report = {"epoch": 5, "wall": 1.0, "steps": 70.0, "saved": 60.0, "loss": 0.5, "steps_per_second": 2.0}
    world.insert(schema.progress, job_id="3", resumable=True, **report)
    shown = send("ann", "GET", "/v1/jobs/3").json()
    assert shown["places"] == ["a0/0", "a0/1"]
    assert (shown["steps"], shown["loss"], shown["steps_per_second"], shown["resumable"]) == (70.0, 0.5, 2.0, True)
    assert shown["started_at"] == STARTED_WALL + 10
    assert shown["run_seconds"] > 0
    assert shown["gpu_seconds"] == pytest.approx(2 * shown["run_seconds"])


def test_why_jobs_wait_is_told_by_the_loop(world: World, send: Clients, jobs: None, loop: FakeLoop) -> None:
    loop.answers["reasons"] = {"reasons": {"1": "not now: waits behind 4, for which there is no room", "5_0": "soon"}}
    reasons = {item["id"]: item["reason"] for item in send("ann", "GET", "/v1/jobs").json()["items"]}
    assert reasons["1"] == "not now: waits behind other-tenant job, for which there is no room"
    assert reasons["5_0"] == "soon"
    assert "waits behind 4" in send("olga", "GET", "/v1/jobs/1").json()["reason"]


@pytest.mark.parametrize(
    ("method", "path", "kind"),
    [("DELETE", "", "JobCancelled"), ("POST", "/hold", "JobHeld"), ("POST", "/release", "JobReleased")],
)
def test_owners_admins_and_operators_change_jobs(
    world: World, send: Clients, jobs: None, method: str, path: str, kind: str
) -> None:
    for name in ("ann", "adam", "olga"):
        assert send(name, method, f"/v1/jobs/1{path}").status_code == 202
    refused(send("anton", method, f"/v1/jobs/1{path}"), 403)
    refused(send("vera", method, f"/v1/jobs/1{path}"), 403)
    refused(send("bob", method, f"/v1/jobs/1{path}"), 404)
    refused(send("ann", method, f"/v1/jobs/77{path}"), 404)
    refused(send("anton", method, f"/v1/jobs/2{path}"), 409)
    assert world.inbox() == [(kind, {"event": kind, "at": 0.0, "job_id": "1"})] * 3
    assert [row.user for row in world.rows(schema.audit)] == ["ann", "adam", "olga"]


def test_a_job_that_is_leaving_can_be_killed(world: World, send: Clients) -> None:
    world.add_job("1", state="cancelling")
    assert send("ann", "DELETE", "/v1/jobs/1").status_code == 202
    assert world.inbox() == []
    refused(send("anton", "DELETE", "/v1/jobs/1?grace=0"), 403)
    refused(send("ann", "DELETE", "/v1/jobs/1?grace=-1"), 422)
    assert send("ann", "DELETE", "/v1/jobs/1?grace=0").status_code == 202
    event = {"event": "JobCancelled", "at": 0.0, "job_id": "1", "grace_seconds": 0.0}
    assert world.inbox() == [("JobCancelled", event)]


def test_cancelling_twice_is_no_error(world: World, send: Clients) -> None:
    world.add_job("1", state="cancelled", ended_at=1.0)
    assert send("ann", "DELETE", "/v1/jobs/1").status_code == 202
    assert world.inbox() == []


def test_jobs_of_other_tenants_do_not_exist(send: Clients, jobs: None) -> None:
    for path in ("", "/why", "/leases", "/logs", "/progress"):
        unknown = refused(send("ann", "GET", f"/v1/jobs/9{path}"), 404)
        assert refused(send("ann", "GET", f"/v1/jobs/4{path}"), 404)["detail"] == unknown["detail"].replace("9", "4")


def test_jobs_that_share_gpus_are_on_one_page_of_leases(world: World, send: Clients) -> None:
    for job_id, epoch in (("1", 3), ("2", 3), ("3", 4), ("4", 5), ("5", 5)):
        world.add_running(job_id, epoch, "a0/0")
    for limit in (1, 2, 3, 4, 5):
        seen, cursor = [], "0"
        while cursor:
            page = send("olga", "GET", f"/v1/leases?limit={limit}&cursor={cursor}").json()
            seen += [each["job_id"] for each in page["items"]]
            cursor = page["next"]
            assert len(seen) <= 5, "no page comes again"
        assert seen == ["1", "2", "3", "4", "5"]


def test_leases_of_a_job_and_of_all(world: World, send: Clients, jobs: None) -> None:
    world.add_lease("1", 2, ended_at=9.0, ending="stopped", reason="preempted by 4", gpus=1)
    world.add_running("6", 6, "a1/0 a1/1 a1/2", tenant="vision", user="bob")
    (lease,) = send("ann", "GET", "/v1/jobs/1/leases").json()
    assert (lease["ending"], lease["reason"]) == ("stopped", "preempted by other-tenant job")
    page = send("ann", "GET", "/v1/leases").json()
    assert [(each["job_id"], each["gpus"]) for each in page["items"]] == [("3", 2)]
    assert (page["other_leases"], page["other_gpus"]) == (1, 3)
    first = send("olga", "GET", "/v1/leases?limit=1").json()
    rest = send("olga", "GET", f"/v1/leases?cursor={first['next']}").json()
    assert [each["job_id"] for each in first["items"] + rest["items"]] == ["3", "6"]


def test_history_has_ended_jobs_the_last_first(world: World, send: Clients, jobs: None) -> None:
    world.add_job("7", state="failed", ended_at=90.0, reason="out of memory")
    assert ids(send("ann", "GET", "/v1/history")) == ["7", "2"]
    assert ids(send("ann", "GET", "/v1/history?state=finished")) == ["2"]
    assert ids(send("ann", "GET", "/v1/history?state=running")) == []


def test_apps_count_their_jobs(send: Clients, jobs: None) -> None:
    apps = send("ann", "GET", "/v1/apps").json()["items"]
    assert {app["name"]: app["states"] for app in apps} == {
        "3": {"running": 1}, "5": {"pending": 4}, "nlp/y": {"finished": 1}, "x": {"pending": 1},
    }  # fmt: skip
    first = send("ann", "GET", "/v1/apps?limit=3").json()
    rest = send("ann", "GET", f"/v1/apps?cursor={first['next']}").json()
    assert [app["name"] for app in first["items"] + rest["items"]] == [app["name"] for app in apps]
