"""Usage, shares, tokens, audit, metrics, probes."""

from __future__ import annotations

import time

import pytest
from service.api.harness import STARTED_WALL, Clients, FakeLoop, World, refused
from sqlalchemy import update

from horae.service.store import schema

MONTH = time.strftime("%Y-%m")


@pytest.fixture
def used(world: World) -> None:
    rows = ("nlp", "ann", 3, "guaranteed"), ("nlp", "anton", 1, "borrowed"), ("vision", "bob", 4, "shared")
    for tenant, user, hours, kind in rows:
        row = {"month": "2001-09", "tenant": tenant, "user": user, "gpu_type": "A100", "kind": kind}
        world.insert(schema.usage, **row, gpu_seconds=3600.0 * hours, jobs=hours)
    now = time.time() - STARTED_WALL
    world.add_running("1", 1, "a0/0 a0/1", started_at=now - 1800)
    world.add_job("2", state="finished", ended_at=now - 60, gpu_seconds=7200.0, rho=1.5)
    world.add_job("3", "vision", "bob", state="finished", ended_at=now - 60, gpu_seconds=3600.0, rho=3.0)
    world.add_job("4", state="finished", ended_at=now - 30 * 86400, gpu_seconds=3600.0, rho=9.0)


def test_usage_by_any_columns(send: Clients, used: None) -> None:
    def rows(query: str, name: str = "ann") -> list[tuple[str, str, float]]:
        found = send(name, "GET", f"/v1/usage?{query}").json()
        return [(row["tenant"], row["user"], round(row["gpu_hours"], 1)) for row in found]

    assert rows("month=2001-09&by=user") == [("", "ann", 3.0), ("", "anton", 1.0)]
    assert rows("month=2001-09&by=tenant", "olga") == [("nlp", "", 4.0), ("vision", "", 4.0)]
    assert rows(f"month={MONTH}") == [("nlp", "ann", 1.0)], "running leases count"
    assert rows("tenant=vision") == []


def test_usage_as_csv(world: World, send: Clients, used: None) -> None:
    row = {"month": "2001-09", "tenant": "nlp", "user": "=cmd", "gpu_type": "A100", "kind": "shared"}
    world.insert(schema.usage, **row, gpu_seconds=0.0, jobs=0)
    answer = send("ann", "GET", "/v1/usage?month=2001-09", accept="text/csv")
    assert answer.headers["content-type"].startswith("text/csv")
    assert answer.text.splitlines()[:2] == [
        "month,tenant,user,gpu_type,kind,gpu_hours,jobs,idle_gpu_hours",
        "2001-09,nlp,'=cmd,A100,shared,0.0,0,0.0",
    ]


def test_shares_of_tenants_and_apps(send: Clients, used: None, loop: FakeLoop) -> None:
    loop.answers["rho"] = {"rho": {"1": 2.5}}
    (row,) = send("ann", "GET", "/v1/share").json()
    assert (row["name"], row["jobs"], row["running"], row["finished"]) == ("nlp", 2, 1, 1)
    assert row["share"] == pytest.approx(3 / 4, abs=0.01)
    assert (row["rho_mean"], row["rho_max"]) == (2.0, 2.5)
    assert [each["name"] for each in send("olga", "GET", "/v1/share?by=app").json()] == ["1", "2", "3"]


def test_tokens_are_made_shown_once_and_revoked(world: World, send: Clients) -> None:
    made = send("ann", "POST", "/v1/tokens", {"name": "laptop", "days": 1}).json()
    assert (made["role"], made["tenant"], made["user"]) == ("user", "nlp", "ann")
    bearer = {"Authorization": f"Bearer {made['token']}"}
    assert send.request("GET", "/v1/me", headers=bearer).json() == {
        "user": "ann", "role": "user", "tenant": "nlp", "via": "token",
    }  # fmt: skip
    assert made["token"] not in send("ann", "GET", "/v1/tokens").text
    assert all(made["token"] not in str(row) for row in world.rows(schema.tokens))
    refused(send("bob", "DELETE", f"/v1/tokens/{made['id']}"), 404)
    assert send("ann", "DELETE", f"/v1/tokens/{made['id']}").status_code == 204
    refused(send.request("GET", "/v1/me", headers=bearer), 401)


def test_tokens_give_no_more_than_their_maker_has(send: Clients) -> None:
    for name, body, field in (
        ("ann", {"role": "operator"}, "role"),
        ("ann", {"user": "anton"}, "user"),
        ("ann", {"tenant": "vision"}, "tenant"),
        ("adam", {"role": "user", "tenant": "vision"}, "tenant"),
        ("adam", {"user": "stranger"}, "user"),
        ("adam", {"user": "bob"}, "user"),
        ("adam", {"user": "oskar"}, "user"),
    ):
        assert refused(send(name, "POST", "/v1/tokens", {"name": "x", **body}), 403)["field"] == field
    assert send("adam", "POST", "/v1/tokens", {"name": "x", "user": "anton"}).json()["user"] == "anton"
    assert refused(send("olga", "POST", "/v1/tokens", {"name": "x"}), 422)["field"] == "tenant"
    all_ = send("olga", "POST", "/v1/tokens", {"name": "x", "role": "viewer"}).json()
    assert (all_["tenant"], all_["role"]) == ("", "viewer")
    made = send("vic", "POST", "/v1/tokens", {"name": "x", "role": "viewer"}).json()
    assert made["tenant"] == "vision", "a viewer of one tenant does not make one of all"


def test_expired_tokens_are_refused(world: World, send: Clients) -> None:
    with world.engine.begin() as connection:
        connection.execute(update(schema.tokens).values(expires_wall=time.time() - 1))
    refused(send("ann", "GET", "/v1/me"), 401)


def test_the_audit_is_for_operators(send: Clients) -> None:
    job = send.submit(name="bert")
    send("ann", "DELETE", f"/v1/jobs/{job}")
    rows = send("olga", "GET", "/v1/audit").json()
    assert [(row["user"], row["action"], row["target"]) for row in rows] == [
        ("ann", "cancel", job),
        ("ann", "submit", job),
    ]
    assert len(send("olga", "GET", f"/v1/audit?before={rows[0]['id']}").json()) == 1
    assert send("olga", "GET", "/v1/audit?user=bob").json() == []
    for name in ("ann", "adam", "vera"):
        refused(send(name, "GET", "/v1/audit"), 403)


def test_metrics(world: World, send: Clients, used: None, loop: FakeLoop) -> None:
    world.insert(schema.nodes, name="a0", gpu_type="A100", gpus=8, health="healthy", reason="", position=0)
    loop.answers = {"slowest_decision": {"decision_seconds": 0.25, "slowest_decision_seconds": 0.5}}
    text = send("ann", "GET", "/metrics").text
    for line in (
        'horae_jobs{state="finished"} 3.0',
        'horae_gpus{type="A100"} 8.0',
        'horae_gpus_used{type="A100"} 2.0',
        'horae_rho{quantile="0.5"} 3.0',
        "horae_inbox_requests 0.0",
        "horae_decision_seconds 0.25",
        "horae_slowest_decision_seconds 0.5",
        "horae_scheduler_up 1.0",
    ):
        assert line in text


def test_probes_are_open(world: World, send: Clients) -> None:
    assert send.request("GET", "/healthz").json() == {"ok": True}
    answer = send.request("GET", "/readyz")
    assert (answer.status_code, answer.json()) == (503, {"ready": False, "store": True, "scheduler": False})
    with FakeLoop(world):
        assert send.request("GET", "/readyz").status_code == 200
