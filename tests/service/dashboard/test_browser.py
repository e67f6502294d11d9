"""The dashboard in a browser, over a real service with emulated GPUs and over a store with many jobs."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest
from cut_connection import Mode, proxy
from live_service import Service, service, train
from patience import HANG_SECONDS, wait_until
from service.api.harness import World, served
from service.dashboard.browser import LIVE, READY, Tab, chromium, tab
from sqlalchemy import insert

from horae.client import Client
from horae.service.dashboard.registry import PAGES
from horae.service.store import schema

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CLUSTER = """
name: lab
restart_seconds: 1
nodes:
  - {name: "a[0-1]", gpu: A100, gpus: 4}
  - {name: v0, gpu: V100, gpus: 2}
tenants:
  nlp: {weight: 2, policy: fifo, cells: {A100.node: 1}}
spare: {policy: fifo}
"""
MARKUP = "<img src=x onerror=alert(1)><script>alert(2)<!--"
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
SERIOUS = ("serious", "critical")
MANY = 10_000


@dataclass(frozen=True)
class Lab:
    """A running service with jobs in most states."""

    service: Service
    client: Client
    folder: Path
    token: str
    viewer: str
    ann: str  # a user of tenant nlp
    finished: str
    running: str

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.service.port}"

    def until(self, name: str) -> str:
        """A command that ends when the test says so."""
        return f"while [ ! -e '{self.folder / name}' ]; do sleep 0.2; done"

    def say(self, name: str) -> None:
        (self.folder / name).touch()

    def paths(self) -> list[str]:
        return [page.path.replace("{job_id}", self.running) for page in PAGES]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def lab(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    folder = tmp_path_factory.mktemp("lab")
    (folder / "lab.yaml").write_text(CLUSTER)
    with service(folder, "--config", str(folder / "lab.yaml")) as running, running.client() as client:
        viewer, ann = [
            str(client.create_token(name, role=role, tenant=tenant, user=name).token)
            for name, role, tenant in (("vera", "viewer", ""), ("ann", "user", "nlp"))
        ]
        sleep = f"while [ ! -e {folder / 'end'} ]; do sleep 0.5; done"
        said = f"printf '%s\\n' '{MARKUP}'; {sleep}"
        trained = {"name": "trained", "steps": 5, "run": train(5, 0.0), "checkpoint": {}, "model": "mlp"}
        marked = {"name": MARKUP, "app": MARKUP, "model": MARKUP, "tenant": "nlp", "gpus": 4, "run": said}
        marked["gpu_type"] = "A100"
        first, second, *_ = client.submit([trained, marked])
        on_a100 = {"gpu_type": "A100", "run": sleep}
        client.submit(
            [{"name": "large", "gpus": 2, **on_a100}, {"name": "waits", "tenant": "nlp", "gpus": 4, **on_a100}]
        )
        client.submit({"name": "broken", "run": f"echo '{MARKUP}' >&2; exit 3"})
        client.drain("v0", reason=MARKUP)
        wait_until(lambda: client.job(first).state == "finished" and client.job(second).state == "running", 0.2)
        token = (running.state / "token").read_text().strip()
        yield Lab(running, client, folder, token, viewer, ann, first, second)
        (folder / "end").touch()


@pytest.fixture
def operator(browser: Browser, lab: Lab) -> Iterator[Tab]:
    with tab(browser, lab.url, lab.token) as opened:
        yield opened


def text_of(page: Page, selector: str) -> str:
    return page.inner_text(selector)


def wait_for_text(page: Page, selector: str, text: str) -> None:
    page.wait_for_function(
        "([selector, text]) => document.querySelector(selector)?.textContent.includes(text)", arg=[selector, text]
    )


def wait_for_eta(page: Page) -> None:
    """Asks again as often as needed: on a busy machine no possible future may be ready in time."""
    while True:
        page.wait_for_selector("#eta dl, #ask-eta")
        if page.query_selector("#eta dl"):
            return
        page.click("#ask-eta")


def test_every_page_opens_accessibly_in_both_themes(lab: Lab, operator: Tab) -> None:
    """Without errors on the console, which the tab checks at its end, and without serious faults found by axe-core."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page = operator.page
    for path in [*lab.paths(), f"/jobs/{lab.finished}", "/jobs/77"]:
        page.goto(operator.url + path)
        if path != "/jobs/77":
            page.wait_for_selector(READY)
        for theme in THEMES:
            page.emulate_media(color_scheme=theme, reduced_motion="reduce")
            found = axe.run(page, options={"resultTypes": ["violations"]}).response["violations"]
            serious = [(each["id"], each["nodes"][0]["html"][:200]) for each in found if each["impact"] in SERIOUS]
            assert serious == [], (path, theme)
    operator.faults[:] = [each for each in operator.faults if "/jobs/77" not in each]  # it does not exist: 404


def test_a_job_goes_from_queued_to_running_to_done_without_a_reload(lab: Lab, browser: Browser, operator: Tab) -> None:
    lab.client.resume("v0")
    before, job = lab.client.submit(
        [
            {"name": "before", "gpus": 2, "gpu_type": "V100", "run": lab.until("let it run")},
            {
                "name": "followed",
                "gpus": 2,
                "gpu_type": "V100",
                "run": f"echo it runs; {lab.until('let it end')}; echo done",
            },
        ]
    )
    wait_until(lambda: lab.client.job(before).state == "running", 0.1)
    with tab(browser, lab.url, lab.viewer) as other:
        queue, page = other.open("/queue"), operator.open(f"/jobs/{job}")
        row = f"tr[data-key='{job}']"
        assert text_of(queue, f"{row} .badge") == "pending"
        wait_for_text(page, "#reason", "not now")
        wait_for_eta(page)
        assert "possible futures" in text_of(page, "#eta")
        for each in (queue, page):
            each.evaluate("window.sameDocument = true")
        lab.say("let it run")
        wait_for_text(page, "#state", "running")
        wait_for_text(page, "#output", "it runs")
        wait_for_text(queue, f"{row} .badge", "running")
        lab.say("let it end")
        wait_for_text(page, "#state", "finished")
        wait_for_text(page, "#output", "done")
        wait_for_text(page, "#leases", "finished")
        wait_for_text(page, "#events", "JobEnded")
        wait_for_text(queue, f"{row} .badge", "finished")
        assert queue.evaluate("window.sameDocument") and page.evaluate("window.sameDocument")
        assert page.is_hidden("#actions")
    shown = operator.seen("state")
    assert [each for each in shown if each in ("pending", "running", "finished")] == ["pending", "running", "finished"]
    lab.client.drain("v0", reason=MARKUP)


def test_a_viewer_is_offered_nothing_that_it_may_not_do(lab: Lab, browser: Browser) -> None:
    """Every button of every page is pressed: the service refuses none of what they ask for."""
    with tab(browser, lab.url, lab.viewer) as viewer:
        for path in lab.paths():
            page = viewer.open(path)
            assert page.locator("#stop, #hold, #release").count() == 0
            for index in range(min(page.locator("main button").count(), 15)):
                button = page.locator("main button").nth(index)
                if button.is_visible() and button.is_enabled():
                    button.click()
            page.wait_for_load_state()
        assert viewer.refused == []
    assert {job.state for job in lab.client.jobs(name=MARKUP)} == {"running"}


def test_a_user_holds_releases_and_stops_its_own_job_and_no_other(lab: Lab, browser: Browser) -> None:
    job = lab.client.submit({"name": "own", "tenant": "nlp", "user": "ann", "gpus": 4, "run": lab.until("never")})[0]
    with tab(browser, lab.url, lab.ann) as ann:
        page = ann.open(f"/jobs/{job}")
        page.click("#hold")
        wait_for_text(page, "#state", "suspended")
        page.click("#release")
        wait_for_text(page, "#state", "pending")
        page.click("#stop")
        page.click("#confirm button[value='']")
        assert lab.client.job(job).state == "pending"
        page.click("#stop")
        page.click("#confirm button[value=stop]")
        wait_for_text(page, "#state", "cancelled")
        assert page.is_hidden("#actions")
        assert ann.open(f"/jobs/{lab.running}").locator("#stop, #hold, #release").count() == 0


def test_what_users_write_is_text_everywhere(lab: Lab, operator: Tab) -> None:
    """Nothing of it becomes an element; the tab fails if it opens a dialog or has an error."""
    for path in lab.paths():
        page = operator.open(path)
        if path.startswith("/jobs/"):
            wait_for_text(page, "#output", MARKUP)
            wait_for_text(page, "#trials", "this")
        if path == "/cluster":
            page.click("#by-node summary")
        assert page.evaluate("document.querySelectorAll('img[src=x], main script').length") == 0, path
        if path in ("/queue", f"/jobs/{lab.running}"):
            assert MARKUP in text_of(page, "main"), path
    logs = operator.page.request.get(f"{lab.url}/v1/jobs/{lab.running}/logs")
    assert (logs.headers["content-type"], logs.headers["x-content-type-options"]) == (
        "text/plain; charset=utf-8",
        "nosniff",
    )


def test_a_lost_connection_is_told_and_resumed_without_a_gap(lab: Lab, browser: Browser) -> None:
    with proxy(str(lab.service.state / "api.sock")) as line:
        context = browser.new_context()
        context.set_default_timeout(1000 * HANG_SECONDS)
        page = context.new_page()
        page.goto(f"http://127.0.0.1:{line.port}/events")
        page.wait_for_selector(LIVE)
        shown = "[...document.querySelectorAll('#table tbody tr')].map((row) => Number(row.dataset.key))"
        lab.client.submit({"name": "before", "run": "true", "gpus": 1})
        newest = page.evaluate(shown)[0]
        line.cut(Mode.RESET)
        page.wait_for_selector("#lost:not([hidden])")
        assert "lost since" in text_of(page, "#lost")
        jobs = lab.client.submit([{"name": f"meanwhile-{each}", "run": "true", "gpus": 1} for each in range(5)])
        for job in jobs:
            lab.client.wait(job)
        line.restore()
        page.wait_for_selector(LIVE)
        assert page.is_hidden("#lost")
        last = lab.client.submit({"name": "after", "run": "true", "gpus": 1})[0]
        page.wait_for_selector(f"#table a[href='/jobs/{last}']")
        numbers = page.evaluate(shown)
        assert numbers == sorted(set(numbers), reverse=True), "each once, in order"
        happened = [each.seq for each in lab.client.events(since=newest) if newest < each.seq <= numbers[0]]
        assert len(happened) >= 10 and set(happened) <= set(numbers)
        context.close()


def test_a_restarted_service_is_found_again(lab: Lab, operator: Tab) -> None:
    page = operator.open("/queue?show=all")
    page.evaluate("window.sameDocument = true")
    os.kill(lab.service.pids("horae.service.api")[0], signal.SIGKILL)
    page.wait_for_function("() => window.seen.connection.includes('lost') && window.seen.connection.at(-1) === 'live'")
    wait_until(lambda: lab.client.health().ready, 0.2)
    lab.client.submit({"name": "afterwards", "run": "true", "gpus": 1})
    page.wait_for_selector("#fresh button")
    page.click("#fresh button")
    wait_for_text(page, "#table", "afterwards")
    assert page.evaluate("window.sameDocument")
    operator.faults[:] = [each for each in operator.faults if "net::ERR" not in each]  # that it was away


def test_the_keyboard_is_enough(lab: Lab, operator: Tab) -> None:
    page = operator.open("/queue?show=all")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "filter"
    page.keyboard.type("trained")
    page.wait_for_function("() => document.querySelectorAll('#table tbody tr').length === 1")
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.textContent") == lab.finished
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/jobs/{lab.finished}")
    page.wait_for_selector(LIVE)
    page.keyboard.press("?")
    assert page.is_visible("#keys")
    page.keyboard.press("Escape")
    assert page.is_hidden("#keys")
    themes = []
    for _ in range(3):
        page.keyboard.press("t")
        themes.append(page.evaluate("document.documentElement.dataset.theme ?? 'system'"))
    assert themes == ["light", "dark", "system"]
    for number, each in enumerate([each for each in PAGES if each.in_navigation], start=1):
        page.keyboard.press("g")
        page.keyboard.press(str(number))
        page.wait_for_url(f"**{each.path}*")
        page.wait_for_selector(READY)


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A store with many jobs: names in another order than numbers, and many with equal values."""
    world = World(tmp_path_factory.mktemp("crowd"), loop_seconds=1.0)
    world.add_job("1")
    row: dict[str, Any] = world.rows(schema.jobs)[0]._asdict()
    rows = [
        {**row, "id": str(each), "number": each, "name": f"job {each * 7919 % MANY:05}", "user": f"user{each % 3}",
         "gpus": 1 + each % 4, "app": str(each)}
        for each in range(2, MANY + 1)
    ]  # fmt: skip
    with world.engine.begin() as connection:
        connection.execute(insert(schema.jobs), rows)
    return world


def test_a_table_of_ten_thousand_jobs_is_sorted_and_filtered_stably(crowd: World, browser: Browser) -> None:
    keys = "[...document.querySelectorAll('#table tbody tr')].map((row) => row.dataset.key)"
    with served(crowd) as url, tab(browser, url, crowd.tokens["olga"]) as olga:
        page = olga.open("/queue")
        page.click("th button:text('Name')")
        page.wait_for_selector("th[aria-sort]:has-text('Name')")
        wait_for_text(page, "#table tbody tr", "job 00000")
        first = page.evaluate(keys)
        names = [page.inner_text(f"tr[data-key='{key}'] td.name") for key in first[:5]]
        assert names == [f"job {each:05}" for each in range(5)]
        # Jobs arrive and change meanwhile: rows keep their places, and no page repeats or leaves out one.
        crowd.add_job(str(MANY + 1), name="job 00000 again")
        crowd.add_event(1, "JobSubmitted", job={"id": str(MANY + 1)})
        page.wait_for_selector("#fresh button")
        assert page.evaluate(keys) == first
        seen = list(first)
        for _ in range(2):
            page.click("#next")
            page.wait_for_function(f"() => {keys}[0] !== '{seen[-len(first)]}'")
            seen += page.evaluate(keys)
        read = [page_row["id"] for page_row in _sorted_rows(crowd) if page_row["id"] != str(MANY + 1)]
        assert seen == read[: len(seen)] and len(set(seen)) == len(seen)
        page.fill("#filter", f"user{1234 % 3} {1234 * 7919 % MANY:05}")
        page.wait_for_function("() => document.querySelectorAll('#table tbody tr').length === 1")
        assert page.evaluate(keys) == ["1234"]
        page.fill("#filter", "nothing has this")
        page.wait_for_selector("#table .empty:visible")


def _sorted_rows(world: World) -> list[dict[str, Any]]:
    rows = [row._asdict() for row in world.rows(schema.jobs)]
    return sorted(rows, key=lambda row: (row["name"], row["number"]))


def test_a_table_within_a_page_is_sorted_and_filtered_stably(crowd: World, browser: Browser) -> None:
    """The part of which all tables are made, with as many rows as there may be nodes or trials."""
    with served(crowd) as url, tab(browser, url, crowd.tokens["olga"]) as olga:
        page = olga.open("/events")
        got = page.evaluate(
            """async (count) => {
              const { DataTable } = await import("/static/table.js");
              const place = document.createElement("div");
              document.getElementById("main").append(place);
              const table = new DataTable(place, [
                { key: "id", label: "Id", value: (row) => row.id, cell: (row) => String(row.id) },
                { key: "kind", label: "Kind", value: (row) => row.kind, cell: (row) => row.kind },
              ], { caption: "Many" });
              const rowOf = (_, id) => ({ id: (id * 7919) % count, kind: `kind ${id % 3}` });
              const rows = Array.from({ length: count }, rowOf);
              const shown = () => [...table.body.rows].map((row) => [...row.cells].map((cell) => cell.textContent));
              table.show(rows);
              place.querySelectorAll("button.sort")[0].click();
              const byId = shown();
              place.querySelectorAll("button.sort")[1].click();
              const byKind = shown();
              table.update(rows.map((row) => ({ ...row, kind: "kind 9" })).reverse());
              const updated = shown();
              table.filter("kind 9 9999");
              return { byId, byKind, updated, filtered: shown() };
            }""",
            MANY,
        )
    assert [int(row[0]) for row in got["byId"]] == list(range(MANY))
    kinds = [(row[1], int(row[0])) for row in got["byKind"]]
    assert kinds == sorted(kinds), "equal ones keep the order that they had"
    assert [row[0] for row in got["updated"]] == [row[0] for row in got["byKind"]], "new values move no row"
    assert {row[1] for row in got["updated"]} == {"kind 9"}
    assert [row[0] for row in got["filtered"]] == ["9999"]
    assert all(a != b for a, b in pairwise([row[0] for row in got["byId"]]))
