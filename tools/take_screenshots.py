"""Takes the screenshots of the dashboard in the documentation: `python tools/take_screenshots.py`.

It starts a service with a small emulated cluster of three GPU types, submits jobs of three tenants that train a small
network, waits until some have run, wait and have been preempted, and photographs every page of the registry. It needs
Chromium (`apt-get install chromium`) and about two minutes.
"""

from __future__ import annotations

import argparse
import io
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(REPOSITORY / "tests"), str(REPOSITORY / "src")]

from live_service import Service, train  # noqa: E402
from patience import wait_until  # noqa: E402

from horae.client import Client  # noqa: E402
from horae.service.dashboard.page import Page  # noqa: E402
from horae.service.dashboard.registry import PAGES  # noqa: E402

FOLDER = REPOSITORY / "docs" / "images" / "dashboard"
CHROMIUM = "/usr/bin/chromium"
SIZE = {"width": 1280, "height": 800}
COLOURS = 256
DARK = "cluster"  # the page that is photographed in the dark theme, too
AWAITED = {"job": "#eta dl"}  # before the picture is taken
SETTLED_MS = 2500  # for what a page reads by itself, such as the output and an ETA
CLUSTER = """
name: lab
restart_seconds: 1
nodes:
  - {name: "a[0-1]", gpu: A100, gpus: 8, rack: 2}
  - {name: "v[0-2]", gpu: V100, gpus: 4, rack: 3}
  - {name: "t[0-1]", gpu: T4, gpus: 4, rack: 2}
tenants:
  nlp: {weight: 2, policy: max-min, cadence: rounds, round_seconds: 15, cells: {A100.node: 1}}
  vision: {policy: {tiresias: {limits: [40]}}, cadence: rounds, round_seconds: 15, cells: {V100.node: 1}}
spare: {policy: themis, cadence: rounds, round_seconds: 15}
"""
NAMES = {
    "nlp": ("bert-large", "t5-small", "tokenizer", "gpt-distil"),
    "vision": ("resnet50", "detr", "sam-finetune", "vit-base"),
    "research": ("ablation", "probe", "rl-sweep", "diffusion"),
}
SPEEDS = {"A100": 6.0, "V100": 4.0, "T4": 2.0}


def jobs() -> Iterator[dict[str, Any]]:
    """Jobs of three tenants, some short, some long, some larger than what is free."""
    sizes, steps = (1, 2, 4, 8, 4, 2), (40, 2000, 1200, 2400, 1600, 60)
    for number in range(18):
        tenant = tuple(NAMES)[number % 3]
        yield {
            "name": NAMES[tenant][number // 3 % 4],
            "tenant": tenant,
            "model": NAMES[tenant][number // 3 % 4],
            "gpus": sizes[number % 6],
            "steps": steps[number % 6],
            "speed": SPEEDS,
            "checkpoint": {},
            "run": train(steps[number % 6], 0.25, every=5.0),
        }
    yield {
        "name": "lr-sweep",
        "tenant": "research",
        "app": "lr-sweep",
        "gpus": 1,
        "steps": 1500,
        "checkpoint": {},
        "run": train(1500, 0.25, every=5.0),
        "sweep": {"lr": [0.001, 0.003, 0.01], "seed": [0, 1]},
    }


@contextmanager
def cluster() -> Iterator[tuple[Service, Client]]:
    with tempfile.TemporaryDirectory(prefix="horae-screenshots-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        (folder / "lab.yaml").write_text(CLUSTER)
        service = Service(folder / "state", "--config", str(folder / "lab.yaml"))
        service.start()
        try:
            with service.client() as client:
                yield service, client
        finally:
            service.end()


def prepare(client: Client) -> str:
    """Has jobs run, wait and move; returns the id of one that shows most."""
    client.submit(list(jobs()))
    client.drain("t1", reason="new driver")
    wait_until(lambda: sum(job.state == "finished" for job in client.jobs()) >= 4, 1.0)
    wait_until(lambda: any(job.preemptions and job.loss and job.state == "running" for job in client.jobs()), 1.0)
    client.submit({"name": "report", "tenant": "research", "after": [next(client.jobs()).id], "run": "true"})
    client.submit({"name": "broken", "tenant": "nlp", "run": "echo 'no such dataset' >&2; exit 3"})
    wait_until(lambda: client.find("broken").state == "failed", 0.5)
    moved = [job for job in client.jobs() if job.preemptions and job.loss and job.state == "running"]
    return max(moved or client.jobs(), key=lambda job: (job.preemptions, job.steps)).id


def photograph(browser: Browser, url: str, token: str, pages: Sequence[Page], job_id: str, folder: Path) -> None:
    context = browser.new_context(viewport=SIZE, color_scheme="light", reduced_motion="reduce")  # type: ignore[arg-type]
    tab = context.new_page()
    tab.goto(f"{url}/login#{token}")
    tab.wait_for_selector("#connection[data-state=live]")
    for page in pages:
        for dark in (False, True) if page.name == DARK else (False,):
            tab.emulate_media(color_scheme="dark" if dark else "light")
            tab.goto(url + page.path.replace("{job_id}", job_id))
            if page.is_live:
                tab.wait_for_selector("#connection[data-state=live]")
            tab.wait_for_timeout(SETTLED_MS)
            if page.name in AWAITED:
                tab.wait_for_selector(AWAITED[page.name], timeout=120_000)
            # All of a long page, but not endless tables.
            height = min(tab.evaluate("document.documentElement.scrollHeight"), 1600 if page.name == "job" else 800)
            tab.set_viewport_size({**SIZE, "height": height})  # type: ignore[typeddict-item]
            tab.wait_for_timeout(300)
            save(tab.screenshot(), folder / f"{page.name}{'-dark' if dark else ''}.png")
            tab.set_viewport_size(SIZE)  # type: ignore[arg-type]
    context.close()


def save(taken: bytes, path: Path) -> None:
    """Writes a small PNG: the pages have few colours."""
    image = (
        Image.open(io.BytesIO(taken))
        .convert("RGB")
        .quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    )
    image.save(path, optimize=True)
    print(f"{path}: {path.stat().st_size / 1024:,.0f} KiB")


def main() -> None:
    parser = argparse.ArgumentParser(description="Take the screenshots of the dashboard.")
    parser.add_argument("--output", type=Path, default=FOLDER)
    parser.add_argument("--pages", nargs="*", default=[page.name for page in PAGES])
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the service ends with this program
    options.output.mkdir(parents=True, exist_ok=True)
    pages = [page for page in PAGES if page.name in options.pages]
    with cluster() as (service, client), sync_playwright() as playwright:
        job_id = prepare(client)
        token = (service.state / "token").read_text().strip()
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            photograph(browser, f"http://127.0.0.1:{service.port}", token, pages, job_id, options.output)
        finally:
            browser.close()


if __name__ == "__main__":
    main()
