"""The page Fairness: tenants, apps, their history, auctions; each requester sees its own tenant only."""

from __future__ import annotations

import json
from typing import Any

import pytest
from service.api.harness import Clients, FakeLoop, World, refused
from service.dashboard.fairness_rows import add_auction_part, add_point, log_now

CANARY = "canary"


@pytest.fixture
def treated(world: World) -> World:
    for age in (240.0, 180.0, 120.0, 60.0):
        add_point(world, "nlp", age, rho=age)
        add_point(world, "nlp", age, app=f"nlp/app-{CANARY}")
        add_point(world, "vision", age)
    world.add_job("1", app=f"nlp/app-{CANARY}", state="finished", ended_at=log_now(), gpu_seconds=7200.0, rho=1.5)
    world.add_job("2", app="mild", state="finished", ended_at=log_now(), rho=0.5)
    world.add_job("3", "vision", "bob", state="finished", ended_at=log_now(), gpu_seconds=3600.0, rho=3.0)
    bid = json.dumps([[0, 1, 2], [3.0, 2.0, 1.0]])
    add_auction_part(
        world, 7, f"nlp/app-{CANARY}", "nlp", bid=bid, note="", won_gpus=2, lease_seconds=30.0, payment=0.2
    )
    add_auction_part(world, 7, "bobs", "vision")
    add_auction_part(world, 8, "bobs", "vision")
    return world


def page(send: Clients, name: str, query: str = "") -> dict[str, Any]:
    answer = send(name, "GET", f"/data/fairness?{query}")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_an_operator_sees_tenants_apps_and_auctions(treated: World, send: Clients) -> None:
    found = page(send, "olga")
    assert {row["name"]: round(row["share"], 2) for row in found["tenants"]} == {"nlp": 0.67, "vision": 0.33}
    assert [row["rho_max"] for row in found["apps"]] == [3.0, 1.5, 0.5], "the worst off first"
    assert [(each["tenant"], each["app"]) for each in found["points"]] == [("nlp", ""), ("vision", "")] * 4
    latest, first = found["auctions"]
    assert (latest["auction"], first["auction"]) == (8, 7)
    won, lost = sorted(first["parts"], key=lambda part: -part["won_gpus"])
    assert (won["rho_before"], won["rho_after"], won["gain"], won["payment"]) == (3.0, 1.0, 3.0, 0.2)
    assert (lost["bid"], lost["rho_before"], lost["gain"]) == (None, None, None), "without GPUs it would never end"


def test_the_scheduler_is_asked_once_and_the_page_says_what_the_api_says(treated: World, send: Clients) -> None:
    treated.add_job("4", app="mild", state="running", held_gpus=2, held_type="A100")
    treated.add_job("5", "vision", "bob", state="running", held_gpus=1, held_type="A100")
    with FakeLoop(treated) as loop:
        loop.answers["rho"] = {"rho": {"4": 7.5, "5": 0.25}}
        found = page(send, "olga", "window=week")
        assert loop.asked == [{"rho": ["4", "5"]}]
        by_tenant, by_app = (send("olga", "GET", f"/v1/share?by={kind}").json() for kind in ("tenant", "app"))
    assert {row["name"]: row["rho_max"] for row in found["tenants"]} == {"nlp": 7.5, "vision": 3.0}
    assert found["tenants"] == by_tenant
    assert sorted(found["apps"], key=lambda row: row["name"]) == by_app


def test_a_tenant_has_its_own_lines_and_its_apps(treated: World, send: Clients) -> None:
    found = page(send, "olga", "tenant=nlp")
    assert {each["app"] for each in found["points"]} == {"", f"nlp/app-{CANARY}"}
    assert {each["tenant"] for each in found["points"]} == {"nlp"}
    mine = [each for each in found["points"] if each["app"] == ""]
    assert [round(each["rho_mean"]) for each in mine] == [240, 180, 120, 60]


@pytest.mark.parametrize("query", ["", "tenant=nlp", "window=month", "after=0"])
@pytest.mark.parametrize("name", ["bob", "vic"])
def test_nothing_of_another_tenant_is_on_the_page(treated: World, send: Clients, name: str, query: str) -> None:
    found = page(send, name, query)
    text = send(name, "GET", f"/fairness?{query}").text
    for told in (text, json.dumps(found)):
        assert CANARY not in told
    assert {row["name"] for row in found["tenants"]} == {"vision"}
    assert {each["tenant"] for each in found["points"]} <= {"vision"}
    assert [[part["app"] for part in each["parts"]] for each in found["auctions"]] == [["bobs"], ["bobs"]]
    assert CANARY in send("ann", "GET", f"/fairness?{query}").text, "it is there for those who may see it"


def test_a_page_that_is_open_gets_only_later_points(treated: World, send: Clients) -> None:
    points = page(send, "olga")["points"]
    later = page(send, "olga", f"after={points[3]['at']}")["points"]
    assert [each["at"] for each in later] == pytest.approx([each["at"] for each in points[4:]], abs=0.01)


def test_many_points_are_thinned_and_nothing_that_was_waited_is_lost(world: World, send: Clients) -> None:
    for age in range(2000):
        add_point(world, "nlp", 10.0 * age + 5.0, own_wait_seconds=1.0, rho=None if age == 1000 else 1.0)
    points = send("ann", "GET", "/v1/share/history").json()
    assert 200 < len(points) < 400
    assert sum(each["waited_for_own_cells_seconds"] for each in points) == pytest.approx(2000, abs=10)
    assert None in [each["rho_mean"] for each in points], "where a line is interrupted is kept"


def test_names_are_text_and_controls_are_labelled(world: World, send: Clients) -> None:
    evil = "</script><script>alert(1)</script>"
    world.add_job("1", app=evil, name=evil, state="finished", ended_at=log_now(), gpu_seconds=1.0, rho=1.0)
    text = send("ann", "GET", "/fairness").text
    assert "<script>alert" not in text and "\\u003c/script\\u003e" in text
    assert "style=" not in text


@pytest.mark.parametrize(("query", "field"), [("window=year", "window"), ("after=x", "after"), ("after=-1", "after")])
def test_a_wrong_parameter_is_told_in_one_line(send: Clients, query: str, field: str) -> None:
    assert refused(send("ann", "GET", f"/data/fairness?{query}"), 422)["field"] == field
    answer = send("ann", "GET", f"/fairness?{query}")
    assert answer.status_code == 422 and f"<code>{field}</code>" in answer.text
