"""Commands about the cluster, its tenants and its accounts, in every form of output."""

from __future__ import annotations

import csv
import io
import json

import pytest
from command_line import horae
from fake_service import World

from horae.service.models import EventView, NodeView, PoolView, ShareRow, TenantView, TokenView, UsageRow

AT = 1_700_000_000.0


@pytest.fixture(autouse=True)
def cluster(world: World) -> None:
    """Two types of GPUs, two tenants, jobs that run, wait and have ended."""
    node = {"gpu_type": "A100", "gpus": 8, "free": 2, "health": "healthy", "reason": "", "drain_at": None}
    small = {**node, "gpu_type": "V100", "gpus": 4, "free": 0, "health": "draining", "reason": "new driver"}
    world.nodes = [
        NodeView.model_validate({**node, "name": "a1", "jobs": ["1", "2"], "unusable": {"a1/7": "used by bob"}}),
        NodeView.model_validate({**small, "name": "v1", "jobs": ["3"], "unusable": {}, "drain_at": AT}),
    ]
    tenant = {"weight": 2.0, "cells": {"A100.node": 1}, "quota": {"A100": 16}, "policy": "las", "running_gpus": 5}
    counts = {"guaranteed_gpus": 4, "pending_jobs": 1, "running_jobs": 2}
    world.tenants = [TenantView.model_validate({"name": name, **tenant, **counts}) for name in ("nlp", "vision")]
    share = {"jobs": 3, "running": 2, "finished": 1, "gpu_hours": 1234.5, "share": 0.5, "weight_share": 0.25}
    rest = {"rho_mean": 1.5, "rho_max": None, "guaranteed_gpu_hours": 1000.0, "waited_for_own_cells_seconds": 5.0}
    world.pools = [
        PoolView(
            name="nlp",
            policy="las",
            options={"limits": [3600, 36000]},
            cadence="rounds",
            round_seconds=300.0,
            tenants=["nlp"],
        ),
        PoolView(name="spare", policy="fifo", options={}, cadence="events", round_seconds=0.0, tenants=[]),
    ]
    world.shares = [
        ShareRow.model_validate({"name": name, "tenant": name, **share, **rest}) for name in ("nlp", "vision")
    ]
    world.usage = [
        UsageRow(month="2026-11", tenant="nlp", user="", gpu_type="", kind="", gpu_hours=12.25, jobs=3),
        UsageRow(month="2026-11", tenant="vision", user="", gpu_type="", kind="", gpu_hours=0.5, jobs=1),
    ]
    world.events = [
        EventView(
            seq=seq, at=AT + seq, kind="JobStarted", job_id=str(seq % 2 + 1), tenant="nlp", text=f"start\x1b {seq}"
        )
        for seq in range(1, 8)
    ]
    world.tokens = [
        TokenView(id="t0", name="ci", role="user", tenant="nlp", user="ada", created_at=AT, expires_at=None),
    ]
    world.add(number=1, state="running", held_gpus=4, places=["a1/0"], reason="")
    world.add(number=2, state="pending", wait_seconds=7500.0)
    world.add(number=3, state="failed", ended_at=AT, reason="exit code 1", run_seconds=65.0, gpu_seconds=7200.0)


def answer(*arguments: object) -> str:
    outcome = horae(*arguments)
    assert (outcome.code, outcome.err) == (0, ""), outcome
    return outcome.out


LISTS: dict[str, tuple[str, list[str], str]] = {  # first row of the table; heading only in wide; first field in JSON
    "nodes": ("a1 A100 5 2 1 8 healthy 1 2 a1/7 used by bob", ["DRAIN AT", "UNUSABLE GPUS"], "name"),
    "tenants ls": ("nlp 2 5 4 2 1 las A100.node=1", ["QUOTA"], "name"),
    "pools": ("nlp las limits=3600 36000 every 5m 00s nlp", [], "name"),
    "share": ("nlp nlp 3 2 1,234.5 50.0% 25.0% 1.50 -", ["FINISHED", "GUARANTEED", "WAITED"], "name"),
    "usage": ("2026-11 nlp 12.2 0.0 3", [], "month"),
    "history": ("3 bert ada nlp failed 8 A100 - 2h 05m 1m 05s 2023-11-14 22:13:20 exit code 1", ["GPU-HOURS"], "id"),
    "events": ("1 2023-11-14 22:13:21 JobStarted 2 start\\x1b 1", ["TENANT"], "seq"),
    "token ls": ("t0 ci user nlp ada 2023-11-14 22:13:20 never", ["EXPIRES AT"], "id"),
}


@pytest.mark.parametrize("command", LISTS)
def test_lists_in_every_form(command: str) -> None:
    row, wide_only, first = LISTS[command]
    headings, *lines = answer(*command.split()).splitlines()
    assert " ".join(lines[0].split()) == row
    wide = answer(*command.split(), "-o", "wide").splitlines()[0]
    for heading in wide_only:
        assert heading not in headings
        assert heading in wide
    plain = json.loads(answer(*command.split(), "-o", "json"))
    assert next(iter(plain[0])) == first
    rows = list(csv.reader(io.StringIO(answer(*command.split(), "-o", "csv"))))
    assert len(rows) == len(plain) + 1
    assert rows[0] == list(plain[0])


@pytest.mark.parametrize("command", LISTS)
@pytest.mark.parametrize("output", ["table", "json", "csv"])
def test_empty_lists_are_no_error(world: World, command: str, output: str) -> None:
    for kind in (
        world.jobs,
        world.nodes,
        world.tenants,
        world.pools,
        world.shares,
        world.usage,
        world.events,
        world.tokens,
    ):
        kind.clear()
    assert answer(*command.split(), "-o", output)


def test_nodes_by_state_and_type() -> None:
    assert len(answer("nodes", "--state", "draining").splitlines()) == 2
    assert answer("nodes", "--type", "h100") == "no nodes\n"
    assert horae("nodes", "--state", "sick").complaint == (
        "--state: 'sick' is no state of a node; use healthy, draining, failed"
    )


def test_nodes_are_drained_and_resumed(world: World) -> None:
    assert answer("node", "drain", "a1", "--reason", "new driver", "--at", "2026-12-01 08:00") == (
        "a1: drain applied, from 2026-12-01 08:00\n"
    )
    (asked,) = world.requests("POST", "/nodes/a1/drain")
    assert asked.body == {"reason": "new driver", "at": "2026-12-01T08:00:00+00:00"}
    answer("node", "drain", "a1", "--at", "12h")
    assert world.asked[-1].body == {"reason": "", "at": "12h"}
    assert answer("node", "resume", "a1") == "a1: resume accepted\n"
    assert horae("node", "drain", "a9").complaint == "there is no node 'a9'; list them with `horae nodes`"


def test_top_is_one_screen() -> None:
    lines = answer("top").splitlines()
    assert [" ".join(line.split()) for line in lines[:3]] == [
        "TYPE USED FREE OUT",
        "A100 5/8 ############........ 2 1",
        "V100 4/4 #################### 0 0",
    ]
    assert "queue: 1 jobs for 8 GPUs; the longest wait is 2h 05m" in lines
    assert [line.split()[0] for line in lines if line[:1].isdigit()] == ["1"]
    assert list(json.loads(answer("top", "-o", "json"))) == ["nodes", "tenants", "jobs"]


def test_tenants_are_changed(world: World) -> None:
    assert answer("tenants", "set", "nlp", "--weight", "3", "--quota", "A100=4") == "nlp: changed\n"
    assert world.asked[-1].body == {"weight": 3.0, "quota": {"A100": 4}}
    assert "not seen it yet" in answer("tenants", "set", "slow", "--weight", "1")
    assert horae("tenants", "set", "nlp").complaint == "nothing to change is given; use --weight or --quota"
    assert horae("tenants", "set", "nlp", "--weight", "-1").complaint.startswith("weight: is -1.0; ")


def test_cells_are_reserved(world: World) -> None:
    assert answer("reserve", "nlp", "A100.node=2", "V100.socket=0") == "nlp: changed\n"
    assert world.asked[-1].body == {"tenants": {"nlp": {"A100.node": 2, "V100.socket": 0}}}
    assert horae("reserve", "nlp", "A100.node").complaint == "CELL=COUNT: is 'A100.node'; write A100.node=2"
    assert horae("reserve", "nlp", "A100.node=-2").complaint.startswith("CELL=COUNT: A100.node is '-2'; ")


def test_a_policy_is_set_with_options(world: World) -> None:
    assert answer("policy", "set", "nlp", "tiresias", "limits=[1h, 10]", "flag=true") == "nlp: tiresias\n"
    (asked,) = world.requests("PUT", "/pools/nlp/policy")
    assert asked.body == {"policy": "tiresias", "options": {"limits": ["1h", 10], "flag": True}}
    assert answer("policy", "set", "slow", "las").startswith("slow: las accepted")
    assert horae("policy", "set", "nlp", "las", "limits").complaint == "OPTION=VALUE: is 'limits'; write limits=[1,3]"


def test_share_and_usage_pass_their_options_on(world: World) -> None:
    assert len(answer("share", "--by", "app", "--tenant", "nlp").splitlines()) == 2
    answer("share", "--since", "2026-11-01")
    answer("usage", "--by", "type,month", "--month", "2026-11", "--tenant", "nlp")
    queries = [each.query for each in world.asked]
    assert queries == ["by=app", "by=tenant&since=1793491200.0", "by=gpu_type&by=month&month=2026-11&tenant=nlp"]
    assert horae("usage", "--by", "colour").complaint.startswith("--by: is 'colour'; ")
    assert horae("usage", "--month", "2026-13").complaint == "--month: is '2026-13'; write it as 2026-11"
    assert horae("share", "--by", "user").complaint == "--by: is 'user'; use tenant or app"
    assert horae("share", "--since", "when").complaint.startswith("--since: is 'when'; ")


def test_history_is_limited(world: World) -> None:
    for number in range(10, 20):
        world.add(number=number, state="finished", ended_at=AT)
    assert len(json.loads(answer("history", "--limit", "5", "-o", "json"))) == 5
    assert len(json.loads(answer("history", "-o", "json"))) == 11


def test_events_of_one_job_and_the_last_ones() -> None:
    assert [each["seq"] for each in json.loads(answer("events", "--job", "1", "-o", "json"))] == [2, 4, 6]
    assert [each["seq"] for each in json.loads(answer("events", "--limit", "2", "-o", "json"))] == [6, 7]
    assert [each["seq"] for each in json.loads(answer("events", "--since", "5", "-o", "json"))] == [6, 7]


def test_a_token_is_shown_once(world: World) -> None:
    outcome = horae("token", "create", "ci", "--tenant", "nlp", "--days", "90")
    assert (outcome.code, outcome.out) == (0, "secret\n")
    assert outcome.err == "token t1: use it as HORAE_TOKEN; it is not shown again\n"
    assert world.asked[-1].body == {"name": "ci", "role": "user", "tenant": "nlp", "user": "", "days": 90.0}
    assert json.loads(answer("token", "create", "ci", "-o", "json"))["token"] == "secret"
    assert "secret" not in answer("token", "ls")
    assert answer("token", "revoke", "t1") == "t1: revoked\n"
    assert horae("token", "revoke", "x").complaint == "there is no token 'x'; list them with `horae token ls`"
    assert horae("token", "create", "ci", "--role", "king").complaint.startswith("role: is 'king'; ")
