"""The page What if: a form of what the requester sees, and questions that end with their requester."""

from __future__ import annotations

import json
import os
import socket
import sys
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from patience import wait_until
from service.api.harness import SETUP, Clients, World, refused, served

from horae.model.serialization import to_plain
from horae.model.setup import PoolSpec
from horae.service.api.sessions import HEADER
from horae.service.dashboard.pages import whatif as page_module
from horae.service.store import schema
from horae.service.store.log import FIRST_SETUP

CANARY = "canary"


def test_the_form_offers_the_setup_that_the_requester_sees(world: World, send: Clients) -> None:
    secret = PoolSpec(f"pool-{CANARY}", tenants=(f"tenant-{CANARY}",), cells={"V100.node": 1})
    world.set_setup(replace(SETUP, pools=(*SETUP.pools, secret)))
    found = send("ann", "GET", "/data/whatif").json()
    assert [(each["name"], each["weight"], each["cells"]) for each in found["tenants"]] == [
        ("nlp", 2.0, {"A100.node": 1})
    ]
    assert {each["name"] for each in found["pools"]} == {"nlp", "spare"}
    assert {"fifo", "max-min", "themis"} <= {each["name"] for each in found["policies"]}
    (themis,) = [each for each in found["policies"] if each["name"] == "themis"]
    assert themis["summary"].startswith("Themis (NSDI'20)") and themis["options"]["f"] == 0.8
    text = send("ann", "GET", "/whatif").text
    assert 'data-weight="nlp"' in text and 'placeholder="A100.node=1 "' in text
    assert CANARY not in text
    assert f'data-weight="tenant-{CANARY}"' in send("olga", "GET", "/whatif").text


@pytest.mark.parametrize("name", ["olga", "ann", "vera", "vic"])
def test_all_roles_that_may_ask_see_the_form(send: Clients, name: str) -> None:
    assert 'id="question"' in send(name, "GET", "/whatif").text
    assert refused(send(name, "POST", "/v1/whatif", {}), 409), "it is asked, and the log is empty"


def test_a_role_that_may_not_ask_sees_no_form(send: Clients, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_module, "may_ask", lambda who: who.role == "operator")
    text = send("ann", "GET", "/whatif").text
    assert 'id="question"' not in text and "ask an operator" in text
    assert send("ann", "GET", "/data/whatif").json().keys() == {"seq", "may_ask"}
    assert 'id="question"' in send("olga", "GET", "/whatif").text


def test_a_question_comes_from_the_page_itself(world: World, send: Clients) -> None:
    cookie = {"Cookie": f"horae-session={world.tokens['ann']}"}
    refused(send.request("POST", "/v1/whatif", headers=cookie, json={}), 403)
    assert send.request("POST", "/v1/whatif", headers={**cookie, HEADER: "1"}, json={}).status_code == 409


def test_names_are_text(world: World, send: Clients) -> None:
    evil = '"><script>alert(1)</script>'
    world.set_setup(replace(SETUP, pools=(PoolSpec(evil, tenants=(evil,), cells={"A100.node": 1}), PoolSpec("spare"))))
    text = send("olga", "GET", "/whatif").text
    assert "<script>alert" not in text and "style=" not in text and "onclick" not in text


def test_a_question_ends_when_its_requester_goes(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world.insert(schema.meta, key=FIRST_SETUP, value=json.dumps(to_plain(SETUP)))
    started, endless = tmp_path / "started", tmp_path / "endless"
    endless.write_text(f"#!/bin/sh\necho $$ >> {started}\nexec sleep 10000\n")
    endless.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(endless))  # the process that answers, which never does
    with served(world) as url:
        host, port = urlsplit(url).hostname, urlsplit(url).port
        for count in (1, 2):  # the second one is not told to wait for the first
            with socket.create_connection((host, port)) as connection:
                head = f"POST /v1/whatif HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
                token = f"Authorization: Bearer {world.tokens['olga']}\r\n"
                connection.sendall(f"{head}{token}Content-Length: 2\r\n\r\n{{}}".encode())
                wait_until(lambda: started.exists() and len(started.read_text().split()) == count)  # noqa: B023
            process = int(started.read_text().split()[-1])
            wait_until(lambda: not _runs(process))  # noqa: B023


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
