"""Chromium for the tests of the dashboard: tabs that are logged in, and what their consoles say."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from patience import HANG_SECONDS

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

NAMES = ("chromium", "chromium-browser", "google-chrome")
# Answers that a page tells its reader: the scheduler is busy, or a job ended while its ETA was looked for.
TOLD = ("status of 503", "status of 409")
LIVE = "#connection[data-state=live]"
READY = f"body[data-live=false] main, {LIVE}"  # a form is ready at once
# What the pages said of themselves, from the first moment on: a state that lasts for milliseconds is seen, too.
RECORDER = """
window.seen = { connection: [], state: [] };
new MutationObserver(() => {
  const now = { connection: document.getElementById("connection")?.dataset.state, state: document.body?.dataset.state };
  for (const [name, value] of Object.entries(now)) {
    if (value && window.seen[name].at(-1) !== value) window.seen[name].push(value);
  }
}).observe(document, { subtree: true, attributes: true, childList: true, attributeFilter: ["data-state"] });
"""


def chromium_path() -> str:
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip("Chromium is not installed: apt-get install chromium")
    return found


@contextmanager
def chromium() -> Iterator[Browser]:
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = chromium_path()
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Tab:
    """A page of the browser in a session of its own; its faults are kept."""

    page: Page
    url: str
    faults: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)  # requests that the service answered with 401 or 403

    def open(self, path: str) -> Page:
        """Opens a page of the dashboard, and waits until it is live, if it ever is."""
        self.page.goto(self.url + path)
        self.page.wait_for_selector(READY)
        return self.page

    def seen(self, what: str) -> list[str]:
        """The states that the page has shown since it was opened, in order."""
        found: list[str] = self.page.evaluate(f"window.seen.{what}")
        return found


@contextmanager
def tab(browser: Browser, url: str, token: str, **options: Any) -> Iterator[Tab]:
    """A tab that has logged in by the form; at its end, no page has had an error."""
    context = browser.new_context(viewport={"width": 1280, "height": 800}, **options)
    context.set_default_timeout(1000 * HANG_SECONDS)
    context.set_default_navigation_timeout(1000 * HANG_SECONDS)
    context.add_init_script(RECORDER)
    page = context.new_page()
    made = Tab(page, url)
    page.on("pageerror", lambda error: made.faults.append(f"{page.url}: {error}"))
    page.on("console", lambda said: _hear(made, said))
    page.on("response", lambda answer: _note_refusal(made, answer))
    page.on("dialog", lambda dialog: _dismiss(made, dialog))
    try:
        page.goto(f"{url}/login")
        page.fill("#token", token)
        page.click("button.primary")
        page.wait_for_selector(LIVE)
        yield made
        assert not made.faults, made.faults
    finally:
        context.close()


def _hear(made: Tab, said: Any) -> None:
    if said.type == "error" and not any(each in said.text for each in TOLD):
        made.faults.append(f"{made.page.url}: {said.text}")


def _note_refusal(made: Tab, answer: Any) -> None:
    if answer.status in (401, 403):
        made.refused.append(answer.url)


def _dismiss(made: Tab, dialog: Any) -> None:
    made.faults.append(f"a dialog: {dialog.message}")
    dialog.dismiss()
