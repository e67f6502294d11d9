"""Every page of the registry: what each role may see and do, nothing of other tenants, and text that stays text."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterator

import pytest
from service.api.canaries import CANARY, ID, SECRET_ID, answer, mark
from service.api.harness import PEOPLE, Clients, FakeLoop, World

from horae.service.dashboard.page import Page
from horae.service.dashboard.registry import PAGES
from horae.service.store import schema

HTML = {"Accept": "text/html"}
MARKUP = "</script><img src=x onerror=alert(1)>\"'&"


def paths(page: Page, job_id: str) -> list[str]:
    """A page and its data, with the parameters that change what is read."""
    plain = page.path.replace("{job_id}", job_id)
    queries = {"queue": ("?show=all", f"?ids=8,{SECRET_ID}", "?show=all&text=a"), "cluster": ("?colour=rho",),
               "events": (f"?job={job_id}",)}.get(page.name, ())  # fmt: skip
    return [f"{start}{plain}{query}" for start in ("", "/data") for query in ("", *queries)]


@pytest.fixture(params=["the loop answers", "the loop is away"])
def secret(world: World, request: pytest.FixtureRequest) -> Iterator[Clients]:
    mark(world)
    with world.app() as clients:
        if request.param == "the loop is away":
            yield clients
            return
        with FakeLoop(world) as loop:
            answer(loop)
            yield clients


def test_no_byte_of_one_tenant_reaches_another(secret: Clients) -> None:
    for person in ("bob", "vic"):
        for path in (each for page in PAGES for each in paths(page, "8")):
            found = secret(person, "GET", path, **HTML)
            assert found.status_code == 200, (person, path)
            assert CANARY not in found.text, (person, path)
            assert not ID.search(found.text.replace(path, "")), (person, path)


def test_the_job_of_another_tenant_does_not_exist(secret: Clients) -> None:
    for person in ("bob", "vic"):
        for path in (f"/jobs/{SECRET_ID}", f"/data/jobs/{SECRET_ID}"):
            found = secret(person, "GET", path, **HTML)
            assert (found.status_code, CANARY in found.text) == (404, False), (person, path)


def test_the_canaries_are_there_for_those_that_may_see_them(secret: Clients) -> None:
    for person in ("olga", "vera", "ann"):
        for path in ("/queue?show=all", "/cluster", f"/jobs/{SECRET_ID}", "/events"):
            assert CANARY in secret(person, "GET", path, **HTML).text, (person, path)


def test_every_role_opens_every_page(world: World, send: Clients) -> None:
    world.insert(schema.nodes, name="a0", gpu_type="A100", gpus=8, health="healthy", reason="", position=0)
    for number, (person, (_, tenant)) in enumerate(PEOPLE.items()):
        world.add_running(str(number), 5, f"a0/{number}", tenant=tenant or "nlp", user=person)
        for path in (each for page in PAGES for each in paths(page, str(number))):
            found = send(person, "GET", path, **HTML)
            assert found.status_code == 200, (path, found.text[-500:])
            if path.startswith("/data"):
                json.loads(found.text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


MAY = {"olga": True, "vera": False, "adam": True, "ann": True, "anton": False}


def test_only_those_that_may_change_a_job_see_controls(world: World, send: Clients) -> None:
    """What the page offers is what the API accepts."""
    world.add_running("7", 5, "a0/0")
    for person, may in MAY.items():
        text = send(person, "GET", "/jobs/7", **HTML).text
        controls = [name for name in ("stop", "hold", "release") if f'id="{name}"' in text]
        assert controls == (["stop", "hold", "release"] if may else []), person
        assert send(person, "GET", "/data/jobs/7").json()["may_change"] is may, person
        assert (send(person, "POST", "/v1/jobs/7/hold").status_code == 202) is may, person


def test_a_job_that_has_ended_has_no_controls_and_keeps_its_history(world: World, send: Clients) -> None:
    world.add_job("7", state="failed", reason="out of memory", ended_at=90.0, first_started_at=10.0, rho=1.5)
    moved = "preempted by 9"
    world.add_job("9")
    world.add_lease("7", 3, ended_at=50.0, ending="stopped", reason=moved, steps=20.0)
    world.add_lease("7", 5, granted_at=60.0, started_at=61.0, ended_at=90.0, ending="failed", reason="out of memory")
    world.insert(schema.points, job_id="7", steps=20.0, wall=5.0, loss=0.5)
    text = send("ann", "GET", "/jobs/7", **HTML).text
    assert 'id="stop"' not in text and "How it ended" in text
    data = send("ann", "GET", "/data/jobs/7").json()
    assert (data["why"], data["job"]["reason"]) == (None, "out of memory")
    ends = [(lease["epoch"], lease["ending"], lease["reason"]) for lease in data["leases"]]
    assert ends == [(3, "stopped", moved), (5, "failed", "out of memory")]
    assert [(point["steps"], point["loss"]) for point in data["progress"]["points"]] == [(20.0, 0.5)]


def test_speeds_are_those_believed_and_those_measured(world: World, send: Clients) -> None:
    spec = json.dumps({"run": "x", "model": "bert", "gpus": 2, "speed": {"A100": 4.0, "V100": 2.0}})
    world.add_running("7", 5, "a0/0 a0/1", model="bert", spec=spec)
    key = {"tenant": "nlp", "model": "bert", "gpu_type": "A100", "gpus": 2}
    world.insert(schema.speeds, **key, steps_per_second=3.0, reports=4, wall=9.0)
    world.insert(schema.speeds, **{**key, "tenant": "vision"}, steps_per_second=77.0, reports=4, wall=9.0)
    rows = send("ann", "GET", "/data/jobs/7").json()["speeds"]
    assert {(row["gpu_type"], row["gpus"], row["believed"], row["measured"], row["is_held"]) for row in rows} == {
        ("A100", 2, 3.0, 3.0, True),
        ("V100", 2, 2.0, None, False),
    }


def test_the_environment_of_a_job_is_not_on_its_page(world: World, send: Clients) -> None:
    world.add_job("7", spec=json.dumps({"run": "train --fast", "env": {"API_KEY": "hunter2"}}))
    text = send("ann", "GET", "/jobs/7", **HTML).text
    assert "train --fast" in text and "hunter2" not in text


def test_what_users_write_is_text_everywhere(world: World, send: Clients) -> None:
    """In the HTML of a page, and in the data within it, which a browser must not take for the end of an element."""
    names = {"name": MARKUP, "app": f"nlp/{MARKUP}", "user": MARKUP, "model": MARKUP, "reason": MARKUP}
    spec = json.dumps({"run": MARKUP, "workdir": f"/{MARKUP}"})
    world.add_running("7", 5, "a0/0", tenant=MARKUP, spec=spec, **names)
    world.add_job("8", tenant=MARKUP, spec=spec, **names)
    world.add_event(1, "JobCancelled", job_id="7", reason=MARKUP)
    world.insert(schema.nodes, name="a0", gpu_type="A100", gpus=8, health="draining", reason=MARKUP, position=0)
    world.insert(schema.gpus, gpu="a0/7", state="foreign", note=MARKUP, at=1.0)
    for page in PAGES:
        for path in (each for each in paths(page, "7") if not each.startswith("/data")):
            text = send("olga", "GET", path, **HTML).text
            assert "<img src=x" not in text, path
            assert text.count("</script>") == len(re.findall(r"<script[ >]", text)), path
            embedded = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
            assert embedded is not None
            is_there = "onerror=alert(1)" in json.dumps(json.loads(embedded[1])) + html.unescape(text)
            assert is_there or page.name not in ("cluster", "queue", "job", "events"), path


def test_what_does_not_exist_is_told_with_a_remedy(send: Clients) -> None:
    for path in ("/jobs/77", "/data/jobs/77", "/jobs/" + "x" * 400, "/queue?show=none", "/queue?cursor=x"):
        found = send("ann", "GET", path, **HTML)
        assert found.status_code in (404, 422)
        assert "emedy" in found.text and "Traceback" not in found.text


def test_a_page_loads_nothing_from_elsewhere(world: World, send: Clients) -> None:
    world.add_job("7")
    for page in PAGES:
        text = send("olga", "GET", page.path.replace("{job_id}", "7"), **HTML).text
        loaded = re.findall(r'(?:src|href|action)="([^"]*)"', text)
        assert loaded and all(each.startswith(("/", "#")) and not each.startswith("//") for each in loaded)
        assert not re.search(r"<script(?![^>]*(?:src=|application/json))| style=|<style| on\w+=", text)
