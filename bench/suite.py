"""The cases of `make bench`, how they are run, and what is written about them."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module
from math import inf
from pathlib import Path

from bench import auction_types, cases, cells, first_minutes, gavel, solve_time, state, themis, workbench
from bench.parts import KUBERNETES, RECOVERY, SERVICE, SOLVE_TIME_PLOT, SUBMIT_TO_START, Part

HERE = Path(__file__).parent


def _of_the_service(name: str) -> cases.Result:
    """A case of the service, whose modules are not imported for the others: they would count as their memory."""
    service = import_module("bench.service")
    found: cases.Result = service.CASES[name]()
    return found


def _of_kubernetes(name: str) -> cases.Result:
    found: cases.Result = import_module("bench.kubernetes").CASES[name]()
    return found


CASES: dict[str, Callable[[], cases.Result]] = {
    "philly, 10,879 jobs, fifo on events": cases.philly_fifo,
    "philly, 10,879 jobs, tiresias in rounds": cases.philly_tiresias,
    "itp, 69,351 jobs, tiresias in rounds": cases.itp_tiresias,
    "108 GPUs, 2,032 jobs, fifo in rounds": cases.small_fifo_rounds,
    "generated, 10,000 jobs, fifo on events": lambda: cases.generated_fifo(10_000),
    "generated, 100,000 jobs, fifo on events": lambda: cases.generated_fifo(100_000),
    "generated, 1,000,000 jobs, fifo on events": lambda: cases.generated_fifo(1_000_000),
    "sacct, 1,000,000 rows read": workbench.sacct_read,
    "metrics of 1,000,000 jobs": workbench.metrics_of_a_million,
    "lower bounds of 1,000,000 jobs": workbench.bounds_of_a_million,
    "philly, eight policies compared, two workers": workbench.compare_eight_policies,
    **gavel.CASES,
    **cells.CASES,
    **state.CASES,
    **themis.CASES,
    **auction_types.CASES,
    **first_minutes.CASES,
    **{name: partial(_of_the_service, name) for name in SERVICE},
    **{name: partial(_of_kubernetes, name) for name in KUBERNETES},
}
PARTS: dict[Part, Iterable[str]] = {
    "simulator": [name for name in CASES if name.startswith(("philly", "itp", "108", "generated"))],
    "gavel": gavel.CASES,
    "cells": [*cells.CASES, *state.CASES],
    "themis": [*themis.CASES, *auction_types.CASES],
    "first-minutes": first_minutes.CASES,
    "service": SERVICE,
    "kubernetes": KUBERNETES,
}
LIMITS_SECONDS = {
    "philly, 10,879 jobs, fifo on events": 2.0,
    "philly, 10,879 jobs, tiresias in rounds": 10.0,
    "itp, 69,351 jobs, tiresias in rounds": 60.0,
    "sacct, 1,000,000 rows read": 5.0,
    "metrics of 1,000,000 jobs": 2.0,
    "philly, eight policies compared, two workers": 60.0,
    **gavel.LIMITS_SECONDS,
    **themis.LIMITS_SECONDS,
    **state.LIMITS_SECONDS,
    **auction_types.LIMITS_SECONDS,
    **first_minutes.LIMITS_SECONDS,
    SUBMIT_TO_START: 0.3,
    RECOVERY: 10.0,
}
CELLS = "cells through the scheduler, 16,384 GPUs, 10 tenants"
RUNS_COMPARED = 3


def run(case: str | None, part: Part | None, against: Path | None) -> None:
    if case == SOLVE_TIME_PLOT:
        solve_time.draw(HERE.parent / "docs/images/solve-time.png")
        return
    if case:
        print(json.dumps(CASES[case]().as_dict()))
        return
    chosen = list(PARTS[part] if part else CASES)
    results = json.loads((HERE / "results.json").read_text())["cases"] if part else {}
    if "HORAE_DATA" not in os.environ:
        for name in [name for name in chosen if name.startswith(("philly", "itp", "gavel"))]:
            print(f"{name}: skipped, set HORAE_DATA to the folder with the published traces", flush=True)
            chosen.remove(name)
    if against is not None:
        _compare(chosen, against.resolve())
        return
    for name in chosen:
        results[name] = _run(name, HERE.parent)
        print(_line(name, results[name]), flush=True)
    ratios = _ratios(results)
    for name, value in ratios.items():
        print(f"{name}: {value:.2f}")
    report = {"python": platform.python_version(), "cases": results, "ratios": ratios}
    (HERE / "results.json").write_text(json.dumps(report, indent=2) + "\n")
    _plot(results)


def _run(name: str, checkout: Path) -> dict[str, float]:
    """One case, in a process of its own, with the code of a checkout."""
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src")}
    command = [sys.executable, "-m", "bench", name]
    answer = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=True)
    return json.loads(answer.stdout.splitlines()[-1])


def _compare(names: Iterable[str], other: Path) -> None:
    """Print the seconds of each case here over those in another checkout."""
    module = "suite" if (other / "bench/suite.py").exists() else "__main__"  # where an older checkout has them
    script = f"import json; from bench.{module} import CASES; print(json.dumps(list(CASES)))"
    environment = {**os.environ, "PYTHONPATH": str(other / "src")}
    known = subprocess.run([sys.executable, "-c", script], cwd=other, env=environment, capture_output=True, check=True)
    for name in names:
        if name not in json.loads(known.stdout):
            print(f"{name}: not known to {other}", flush=True)
            continue
        fastest = dict.fromkeys((HERE.parent, other), inf)
        for _ in range(RUNS_COMPARED):
            for checkout, seconds in fastest.items():
                fastest[checkout] = min(seconds, _run(name, checkout)["seconds"])
        ours, theirs = fastest.values()
        print(f"{name}: {ours / theirs:.2f} ({ours:.3f} s over {theirs:.3f} s)", flush=True)


def _line(name: str, result: dict[str, float]) -> str:
    if "text" in result:
        return f"{name}: {result['text']}"
    limit = LIMITS_SECONDS.get(name)
    target = f", wanted under {limit:g} s" if limit else ""
    seconds = f"{result['seconds']:.2f} s" if result["seconds"] >= 1 else f"{1000 * result['seconds']:.1f} ms"
    if "p99_microseconds" in result:
        return (
            f"{name}: median {result['median_microseconds']:.0f} µs, wanted under 100; p99 "
            f"{result['p99_microseconds']:.0f} µs, wanted under 1,000; {result['preemptions']} preemptions; start-up "
            f"{result['start_seconds']:.2f} s; {result['peak_memory_mib']:.0f} MiB"
        )
    beside = ""
    if "times_faster" in result:
        beside = f"; {result['times_faster']:.0f} x as fast as cvxpy at {result['compared_jobs']:,} jobs"
    return (
        f"{name}: {seconds}{target}{beside}; {result['microseconds_per_job']:.0f} µs a job, "
        f"{result['jobs_per_second']:,.0f} jobs/s, {result['peak_memory_mib']:.0f} MiB, "
        f"{result['loops_per_job']:,.0f} turns of an empty loop a job"
    )


def _ratios(results: dict[str, dict[str, float]]) -> dict[str, float]:
    ratios = {}
    small, large = (results[f"generated, {count} jobs, fifo on events"] for count in ("10,000", "1,000,000"))
    ratios["cost of a job among 1,000,000 over one among 10,000"] = (
        large["microseconds_per_job"] / small["microseconds_per_job"]
    )
    ours = results["108 GPUs, 2,032 jobs, fifo in rounds"]["jobs_per_second"]
    if "gavel, 108 GPUs, 5,000 jobs, max-min in rounds" in results:
        simulated = results["gavel, 108 GPUs, 5,000 jobs, max-min in rounds"]["seconds"]
        ratios["Gavel's own simulation (257 s) over ours, 5,000 jobs"] = gavel.PUBLIC_SIMULATION_SECONDS / simulated
    if CELLS in results:
        median = results[CELLS]["median_microseconds"]
        ratios["HiveD's own decision and commit (821 µs) over ours, 16,384 GPUs"] = cells.PUBLIC_MICROSECONDS / median
    ratios["jobs a second over a public simulator's 25.7 (2,032 jobs in 79 CPU-seconds)"] = ours / (2032 / 79)
    return ratios


def _plot(results: dict[str, dict[str, float]]) -> None:
    from horae.reports.plots import style  # noqa: PLC0415  (matplotlib takes a second to import)

    points = [(item["jobs"], item["microseconds_per_job"]) for name, item in results.items() if "generated" in name]
    figure, (axes,) = style.panels(1, 1, style.COLUMN_INCHES, 2.2)
    axes.plot(*zip(*sorted(points), strict=True), marker="o", markersize=4, color=style.COLOURS[0])
    axes.set_xscale("log")
    axes.set_ylim(0, 1.25 * max(cost for _, cost in points))
    axes.set_xlabel("jobs in the run")
    axes.set_ylabel("µs per job")
    style.title(axes, "FIFO on events, 1,152 GPUs at load 0.8")
    style.save_as(figure, HERE / "scaling.png")
