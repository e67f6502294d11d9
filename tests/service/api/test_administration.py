"""Nodes, tenants, reservations, pools, policies, auctions: what is seen and what operators change."""

from __future__ import annotations

import time
from typing import Any

import pytest
from service.api.harness import STARTED_WALL, Clients, FakeLoop, World, refused

from horae.service.store import schema


@pytest.fixture
def nodes(world: World) -> None:
    for place, (name, kind, gpus) in enumerate((("a0", "A100", 8), ("a1", "A100", 8), ("v0", "V100", 4))):
        row = {"name": name, "gpu_type": kind, "gpus": gpus, "health": "healthy", "reason": "", "position": place}
        world.insert(schema.nodes, **row)
    world.add_running("1", 1, "a0/0 a0/1")
    world.add_running("2", 2, "a0/2", tenant="vision", user="bob", guaranteed=True)
    world.insert(schema.gpus, gpu="a1/3", state="foreign", note="used by mallory", at=1.0)


def test_nodes_show_own_jobs_and_count_others(send: Clients, nodes: None) -> None:
    first, second, _ = send("ann", "GET", "/v1/nodes").json()
    assert (first["name"], first["free"], first["jobs"]) == ("a0", 5, ["1", "other-tenant job"])
    assert (second["free"], second["unusable"]) == (7, {"a1/3": "foreign"})
    first, second, _ = send("olga", "GET", "/v1/nodes").json()
    assert first["jobs"] == ["1", "2"]
    assert second["unusable"] == {"a1/3": "foreign: used by mallory"}


def test_draining_and_resuming(world: World, send: Clients, nodes: None, loop: FakeLoop) -> None:
    assert send("olga", "POST", "/v1/nodes/a0/drain", {"reason": "fan"}).json() == {"applied": True}
    assert send("olga", "POST", "/v1/nodes/a1/drain", {"at": "2h"}).status_code == 200
    assert send("olga", "POST", "/v1/nodes/a1/resume").status_code == 200
    with world.engine.begin() as connection:
        connection.execute(schema.nodes.update().values(health="draining"))
    assert send("olga", "POST", "/v1/nodes/a0/resume").status_code == 200
    now, later, *rest = loop.applied
    assert (now[0], now[1]["node"], now[1]["reason"]) == ("DrainAt", "a0", "fan")
    assert now[1]["at_wall"] == pytest.approx(time.time(), abs=60)
    assert later[1]["at_wall"] == pytest.approx(time.time() + 7200, abs=60)
    assert rest == [
        ("DrainAt", {"node": "a1", "at_wall": None, "reason": ""}),
        ("DrainAt", {"node": "a0", "at_wall": None, "reason": ""}),
        ("NodeChanged", {"event": "NodeChanged", "at": 0.0, "node": "a0", "health": "healthy"}),
    ]
    refused(send("olga", "POST", "/v1/nodes/zz/drain", {}), 404)
    assert refused(send("olga", "POST", "/v1/nodes/a0/drain", {"at": "whenever"}), 422)["field"] == "at"
    for name in ("ann", "adam", "vera"):
        refused(send(name, "POST", "/v1/nodes/a0/drain", {}), 403)


def test_the_loops_answer_is_given(world: World, send: Clients, loop: FakeLoop) -> None:
    loop.problem = lambda kind, payload: "cells of nlp do not fit; use fewer"
    problem = refused(send("olga", "PATCH", "/v1/tenants/nlp", {"cells": {"A100.node": 9}}), 409)
    assert (problem["detail"], problem["remedy"]) == ("cells of nlp do not fit", "use fewer")


def test_without_an_answer_the_request_is_accepted(tmp_path: Any) -> None:
    world = World(tmp_path, answer_seconds=0.1)
    with world.app() as send:
        answer = send("olga", "PATCH", "/v1/tenants/nlp", {"weight": 3})
        assert (answer.status_code, answer.json()) == (202, {"applied": False})
    assert len(world.inbox()) == 1


def test_tenants_and_reservations(world: World, send: Clients, nodes: None, loop: FakeLoop) -> None:
    tenants = {each["name"]: each for each in send("olga", "GET", "/v1/tenants").json()}
    assert (tenants["nlp"]["weight"], tenants["nlp"]["cells"]) == (2.0, {"A100.node": 1})
    assert (tenants["vision"]["running_gpus"], tenants["vision"]["guaranteed_gpus"]) == (1, 1)
    assert [each["name"] for each in send("ann", "GET", "/v1/tenants").json()] == ["nlp"]
    assert [each["tenant"] for each in send("ann", "GET", "/v1/reservations").json()] == ["nlp"]
    assert send("bob", "GET", "/v1/reservations").json() == []
    assert send("olga", "PATCH", "/v1/tenants/nlp", {"weight": 3}).status_code == 200
    assert send("olga", "PUT", "/v1/reservations", {"tenants": {"nlp": {"V100.node": 1}}}).status_code == 200
    (_, weight), (_, cells) = loop.applied
    assert weight["tenants"] == {"nlp": {"weight": 3.0}}
    assert cells["tenants"] == {"nlp": {"cells": {"A100.node": 0, "V100.node": 1}}}
    refused(send("olga", "PATCH", "/v1/tenants/none", {"weight": 3}), 404)
    refused(send("olga", "PATCH", "/v1/tenants/nlp", {}), 422)
    refused(send("olga", "PUT", "/v1/reservations", {"tenants": {"vision": {"V100.node": 1}}}), 404)
    refused(send("adam", "PATCH", "/v1/tenants/nlp", {"weight": 3}), 403)
    refused(send("adam", "PUT", "/v1/reservations", {"tenants": {}}), 403)


def test_pools_and_policies(send: Clients, loop: FakeLoop) -> None:
    assert [pool["name"] for pool in send("ann", "GET", "/v1/pools").json()] == ["nlp", "spare"]
    assert [pool["name"] for pool in send("bob", "GET", "/v1/pools").json()] == ["spare"]
    policies = {policy["name"]: policy for policy in send("bob", "GET", "/v1/policies").json()}
    assert policies["fifo"]["summary"]
    change = {"policy": "tiresias", "options": {"limits": [3600.0, 36000.0]}}
    assert send("adam", "PUT", "/v1/pools/nlp/policy", change).status_code == 200
    assert send("olga", "PUT", "/v1/pools/spare/policy", {"policy": "max-min"}).status_code == 200
    assert [event["policy"] for _, event in loop.applied] == ["tiresias", "max-min"]
    assert "did you mean" in refused(send("olga", "PUT", "/v1/pools/spare/policy", {"policy": "max_mn"}), 422)["remedy"]
    refused(send("olga", "PUT", "/v1/pools/spare/policy", {"policy": "fifo", "options": {"x": 1}}), 422)
    refused(send("adam", "PUT", "/v1/pools/spare/policy", {"policy": "fifo"}), 403)
    refused(send("ann", "PUT", "/v1/pools/nlp/policy", {"policy": "fifo"}), 403)
    refused(send("olga", "PUT", "/v1/pools/none/policy", {"policy": "fifo"}), 404)


def test_apps_bid_in_open_auctions(world: World, send: Clients) -> None:
    world.add_job("1", app="nlp/mine")
    world.add_job("2", "vision", "bob", app="vision/theirs")
    now = time.time() - STARTED_WALL
    row = {"pool": "spare", "called_at": now, "offer": '[[1, 2], [2.0, "inf"]]', "note": "", "won_gpus": 0}
    for auction, closes_at in (3, now - 1), (4, now + 60):
        for app in ("nlp/mine", "vision/theirs"):
            owner, ends = {"app": app, "tenant": app.partition("/")[0]}, {"closes_at": closes_at, "payment": 0.0}
            world.insert(schema.auctions, auction=auction, lease_seconds=0.0, **row, **owner, **ends)
    (call,) = send("ann", "GET", "/v1/auctions").json()
    assert call["auction"] == 4
    assert call["offers"] == [{"app": "nlp/mine", "gpus": [1, 2], "rho": [2.0, None]}]
    assert len(send("olga", "GET", "/v1/auctions").json()[0]["offers"]) == 2
    assert send("ann", "GET", "/v1/auctions?after=4&wait=0.1").json() == []
    bid = {"app": "mine", "gpus": [1, 2], "rho": [1.5, 1.1]}
    assert send("ann", "POST", "/v1/auctions/4/bids", bid).status_code == 202
    ((_, event),) = world.inbox()
    assert (event["auction"], event["app"], event["rho"]) == (4, "nlp/mine", [1.5, 1.1])
    refused(send("ann", "POST", "/v1/auctions/3/bids", bid), 404)
    refused(send("ann", "POST", "/v1/auctions/4/bids", {**bid, "app": "vision/theirs"}), 404)
    refused(send("ann", "POST", "/v1/auctions/4/bids", {**bid, "rho": [1.0]}), 422)
    refused(send("vic", "POST", "/v1/auctions/4/bids", bid), 403)
    assert [each["app"] for each in send("ann", "GET", "/v1/auctions/history").json()] == ["nlp/mine"] * 2
    assert send("ann", "GET", "/v1/auctions/history?app=theirs").json() == []
    assert len(send("olga", "GET", "/v1/auctions/history?app=theirs").json()) == 2
