"""The cluster page of the dashboard in Chromium, with 16,384 GPUs and 10,000 jobs that hold nearly all of them.

The processes are those of `horae up`; the machine is a table (`live_loop.py`). First paint is the time from the
navigation until the map is drawn, with an empty cache. An update is the time from the request for new data, to which a
submitted job leads, until the map is drawn anew and the browser has made a frame. The memory is that of the tab's
process. It needs Chromium (`apt-get install chromium`); HORAE_BENCH_PICTURE names a file for a picture of the page.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from bench import service
from bench.cases import Result, loop_seconds
from horae.client import Client
from horae.service.config import ServiceConfig

if TYPE_CHECKING:
    from playwright.sync_api import Browser, CDPSession, Page

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")
NODES, JOBS, TENANTS = 2048, 10_000, 8
GANGS = (1, 2, 1, 1, 4, 1, 2, 1, 1, 2)  # 16,000 GPUs in all
LOADS, UPDATES = 5, 20
PAINT_SECONDS, UPDATE_SECONDS, TAB_MIB = 1.0, 0.3, 300
CLUSTER = f"""
name: bench
nodes:
  - {{name: "n[0000-{NODES - 1}]", gpu: A100, gpus: 8, rack: 32}}
limits: {{jobs_per_user: {2 * JOBS}}}
tenants:
""" + "\n".join(
    f"  team-{number}: {{cells: {{A100.node: 128}}}}" if number % 2 else f"  team-{number}: {{}}"
    for number in range(TENANTS)
)
# By update: milliseconds from the request for data until the map is drawn and a frame is made.
RECORDER = """
window.updates = [];
new MutationObserver(() => requestAnimationFrame(() => setTimeout(() => {
  const request = performance.getEntriesByType("resource").filter((each) => each.name.includes("/data/")).at(-1);
  window.updates.push([performance.now() - request.startTime, request.duration, request.decodedBodySize]);
}))).observe(document, { subtree: true, attributes: true, attributeFilter: ["data-updates"] });
"""


def cluster_page() -> Result:
    with tempfile.TemporaryDirectory() as folder:
        file, state = Path(folder) / "horae.yaml", Path(folder) / "state"
        file.write_text(CLUSTER)
        with service.table_service(state, file) as (config, _), _chromium() as browser:
            client = Client(state=state)
            _fill(client, config)
            paints = [_first_paint(browser, config) for _ in range(LOADS)]
            with _tab(browser, config) as page:
                updates, behind = _updates(page, client)
                memory, heap = _memory_mib(browser), _heap_mib(page)
                if picture := os.environ.get("HORAE_BENCH_PICTURE"):
                    page.screenshot(path=picture)
    drawn, requests, sizes = zip(*updates, strict=True)
    text = (
        f"first paint {_ms(median(paints))} (slowest {_ms(max(paints))}), wanted under {_ms(PAINT_SECONDS)}; "
        f"update {_ms(median(drawn))} (slowest {_ms(max(drawn))}), wanted under {_ms(UPDATE_SECONDS)}, of which the "
        f"answer of {max(sizes) / 1e6:.1f} MB takes {_ms(median(requests))}; from a submission to the update on the "
        f"page {_ms(median(behind))}; tab {memory:.0f} MiB after {UPDATES} updates, wanted under {TAB_MIB}, of which "
        f"{heap:.0f} MiB in its heap"
    )
    return service.Figures(JOBS, median(paints), memory, loop_seconds(), text)


def _fill(client: Client, config: ServiceConfig) -> None:
    specs = [_spec(number) for number in range(JOBS)]
    for first in range(0, JOBS, 500):
        client.submit(specs[first : first + 500])
    service.until(lambda: service.status(config.state)["live_jobs"] >= JOBS)
    time.sleep(4 * service.ROUND_SECONDS)


def _spec(number: int) -> dict[str, Any]:
    own = {"name": f"train-{number}", "app": f"sweep-{number % 400}", "tenant": f"team-{number % TENANTS}"}
    return {**service.JOB, **own, "gpus": GANGS[number % len(GANGS)]}


@contextmanager
def _chromium() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright  # noqa: PLC0415  only this case needs it

    path = next(filter(None, map(shutil.which, CHROMIUM)), None)
    assert path is not None, "Chromium is not installed: apt-get install chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def _tab(browser: Browser, config: ServiceConfig) -> Iterator[Page]:
    """The cluster page in a session of its own, live."""
    url = f"http://127.0.0.1:{config.port}"
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    context.set_default_timeout(1000 * service.HANGS_SECONDS)
    context.add_init_script(RECORDER)
    page = context.new_page()
    try:
        page.goto(f"{url}/login")
        page.fill("#token", (config.state / "token").read_text().strip())
        page.click("button.primary")
        page.wait_for_url("**/cluster*")
        page.wait_for_selector("#connection[data-state=live]")
        yield page
    finally:
        context.close()


def _first_paint(browser: Browser, config: ServiceConfig) -> float:
    """Seconds from the navigation until the map is drawn."""
    with _tab(browser, config) as page:
        _session(page).send("Network.setCacheDisabled", {"cacheDisabled": True})
        page.reload()
        page.wait_for_selector("#connection[data-state=live]")
        script = """() => Math.max(performance.getEntriesByName("horae-painted")[0].startTime,
          performance.getEntriesByName("first-contentful-paint")[0].startTime)"""
        painted: float = page.evaluate(script)
        return painted / 1000


def _updates(page: Page, client: Client) -> tuple[list[tuple[float, float, int]], list[float]]:
    """By update: seconds until it is drawn, seconds and bytes of the answer; and seconds since a job was submitted."""
    behind = list[float]()
    for number in range(UPDATES):
        before = page.evaluate("window.updates.length")
        client.submit(_spec(JOBS + number))
        began = time.perf_counter()
        page.wait_for_function("(before) => window.updates.length > before", arg=before, polling=10)
        behind.append(time.perf_counter() - began)
        time.sleep(1.0)  # further events of the same job
    found = page.evaluate("window.updates")
    return [(drawn / 1000, request / 1000, size) for drawn, request, size in found], behind


def _memory_mib(browser: Browser) -> float:
    """Of the tab's process, with its share of what it shares."""
    found = browser.new_browser_cdp_session().send("SystemInfo.getProcessInfo")
    tabs = [each["id"] for each in found["processInfo"] if each["type"] == "renderer"]
    return max(service.memory_mib(int(pid)) for pid in tabs)


def _heap_mib(page: Page) -> float:
    session = _session(page)
    session.send("Performance.enable")
    metrics = {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}
    return float(metrics["JSHeapUsedSize"]) / 2**20


def _session(page: Page) -> CDPSession:
    return page.context.new_cdp_session(page)


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms"
