"""Login by token, and what a session may do: pages and reads by cookie, changes only from the dashboard itself."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from service.api.harness import Clients, World, refused

from horae.service.api.sessions import HEADER, cookie_name
from horae.service.dashboard.registry import PAGES
from horae.service.store import schema

HTML = {"Accept": "text/html"}
OWN = {HEADER: "1"}


def login(send: Clients, name: str, **fields: str) -> httpx.Response:
    form = {"token": send.world.tokens[name], **fields}
    return send.request("POST", "/login", data=form, headers={"Sec-Fetch-Site": "same-origin"})


def session(send: Clients, name: str) -> dict[str, str]:
    """The header with the cookie of a login."""
    return {"Cookie": login(send, name).headers["set-cookie"].partition(";")[0]}


def test_a_page_without_a_session_leads_to_the_login_and_back(send: Clients) -> None:
    for path in ("/", "/queue", "/jobs/7"):
        answer = send.request("GET", path, headers=HTML)
        assert (answer.status_code, answer.headers["location"]) == (303, f"/login?next={path}")
    answer = send.request("GET", "/login?next=/jobs/7", headers=HTML)
    assert 'name="next" value="/jobs/7"' in answer.text
    assert login(send, "ann", next="/jobs/7").headers["location"] == "/jobs/7"


def test_requests_for_data_without_a_session_are_refused_not_led_away(send: Clients) -> None:
    for path in ("/v1/jobs", "/data/queue", "/queue"):
        refused(send.request("GET", path), 401)
    refused(send.request("GET", "/data/queue", headers=HTML), 401)


@pytest.mark.parametrize(
    "target", ["//evil.example", "https://evil.example", "/\\evil.example", "evil", "/x\r\nSet-A: b"]
)
def test_a_login_never_leads_to_another_site(send: Clients, target: str) -> None:
    assert login(send, "ann", next=target).headers["location"] == "/"


def test_the_token_is_in_a_cookie_that_scripts_cannot_read_and_other_sites_cannot_send(send: Clients) -> None:
    cookie = login(send, "ann").headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie and "path=/" in cookie


def test_services_on_several_ports_have_cookies_of_their_own() -> None:
    assert len({cookie_name(host) for host in ("localhost:1", "localhost:2", "localhost")}) == 3


@pytest.mark.parametrize("token", ["", "wrong", "x" * 10_000, "\u2028", "<script>alert(1)</script>"])
def test_a_wrong_token_is_told_in_one_line(send: Clients, token: str) -> None:
    answer = send.request("POST", "/login", data={"token": token})
    assert answer.status_code == 401
    assert "not valid" in answer.text and "<script>alert" not in answer.text
    assert "set-cookie" not in answer.headers


def test_a_login_by_the_form_of_another_site_is_refused(send: Clients) -> None:
    form = {"token": send.world.tokens["ann"]}
    for site in ("cross-site", "same-site"):
        for path in ("/login", "/logout"):
            refused(send.request("POST", path, data=form, headers={"Sec-Fetch-Site": site}), 403)


def test_a_session_reads_and_its_token_can_be_revoked(send: Clients) -> None:
    cookie = session(send, "ann")
    assert send.request("GET", "/v1/me", headers=cookie).json()["user"] == "ann"
    mine = next(each for each in send("ann", "GET", "/v1/tokens").json() if each["user"] == "ann")
    assert send("ann", "DELETE", f"/v1/tokens/{mine['id']}").status_code == 204
    refused(send.request("GET", "/v1/me", headers=cookie), 401)


def test_after_a_logout_the_cookie_is_gone(send: Clients) -> None:
    answer = send.request("POST", "/logout", headers=session(send, "ann"))
    assert answer.headers["location"] == "/login"
    assert "max-age=0" in answer.headers["set-cookie"].lower()


def test_no_change_is_made_by_a_cookie_alone(world: World, send: Clients) -> None:
    """A page of another site can make a browser send a form; it cannot make it send this header."""
    world.add_job("7")
    cookie = session(send, "ann")
    changes: list[tuple[str, str, Any]] = [
        ("DELETE", "/v1/jobs/7", None),
        ("POST", "/v1/jobs/7/hold", None),
        ("POST", "/v1/jobs", {"run": "x"}),
        ("POST", "/v1/tokens", {"name": "x"}),
    ]
    for method, path, body in changes:
        refused(send.request(method, path, headers=cookie, **({} if body is None else {"json": body})), 403)
    assert (world.inbox(), world.rows(schema.audit)) == ([], [])
    assert send.request("DELETE", "/v1/jobs/7", headers={**cookie, **OWN}).status_code == 202
    assert [kind for kind, _ in world.inbox()] == ["JobCancelled"]


def test_a_token_in_the_header_needs_nothing_else(world: World, send: Clients) -> None:
    world.add_job("7")
    assert send("ann", "DELETE", "/v1/jobs/7", Cookie="horae-session=wrong").status_code == 202


def test_the_token_of_a_job_opens_no_session(world: World, send: Clients) -> None:
    from horae.service.api.tokens import job_token  # noqa: PLC0415

    world.add_running("7", 5, "a0/0")
    cookie = {"Cookie": f"horae-session={job_token('a secret', '7', 5)}", **OWN}
    refused(send.request("POST", "/v1/jobs/7/progress", headers=cookie, json={"epoch": 5, "steps": 1}), 401)


def test_nothing_is_sniffed_and_no_page_runs_other_scripts(world: World, send: Clients) -> None:
    cookie = session(send, "ann")
    world.add_job("7")
    assert send.request("GET", "/v1/jobs/7", headers=cookie).headers["x-content-type-options"] == "nosniff"
    for path in ("/login", "/static/horae.js", *[page.path.replace("{job_id}", "7") for page in PAGES]):
        headers = send.request("GET", path, headers=cookie).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy, path
        assert headers["x-content-type-options"] == "nosniff", path
        assert headers["x-frame-options"] == "DENY", path
