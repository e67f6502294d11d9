"""Themis: an auction with all payments, and a whole run of W2.

Bids are those of apps like W2's: up to 98 jobs of 1, 2, 4 or 8 GPUs each, so a table of a bid for every number of jobs
served. `seconds` is the median of several auctions, on the wall; of the run it is processor time.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from functools import partial
from math import log

import numpy as np
from horae_evaluation.themis.experiment import ThemisCase, run_case

from bench.cases import Result, loop_seconds
from horae.solvers.auction.single_type import Bids, GpuBid, settle_bids, together

REPEATS = 15
LEASE_SECONDS = 1200.0


def tables(apps: int, gpus: int, seed: int = 0) -> Bids:
    random = np.random.default_rng(seed)
    made = []
    for _ in range(apps):
        jobs = int(np.clip(random.lognormal(log(23), 1), 1, 98))
        gangs = random.choice([1, 2, 4, 8], p=[0.4, 0.25, 0.25, 0.1], size=jobs)
        counts = np.concatenate([[0], np.cumsum(gangs)])
        counts = counts[counts <= gpus].astype(np.int64)
        work, age = gangs.sum() * 3.75 * 3600, random.uniform(0, 36_000)
        shared = age + LEASE_SECONDS + np.maximum(work - counts * LEASE_SECONDS, 0) / (gpus / apps)
        made.append(GpuBid(counts, -np.log(shared / 3600)))
    return together(made)


def auction(apps: int, gpus: int) -> Result:
    bids = tables(apps, gpus)
    settle_bids(bids, gpus)  # compiled, or loaded
    seconds = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        settle_bids(bids, gpus)
        seconds.append(time.perf_counter() - began)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return Result(apps, float(np.median(seconds)), memory, loop_seconds())


def whole_run() -> Result:
    run_case(ThemisCase("w2", "themis", 1))  # compiled, or loaded
    result = run_case(ThemisCase("w2", "themis", 0))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return Result(85, result.processor_seconds, memory, loop_seconds())


_SIZES = {(50, 256): 0.002, (200, 1024): 0.06, (1000, 4096): 0.6}
CASES: dict[str, Callable[[], Result]] = {
    **{f"themis, auction, {apps:,} apps, {gpus:,} GPUs": partial(auction, apps, gpus) for apps, gpus in _SIZES},
    "themis, W2, 85 apps on 256 GPUs": whole_run,
}
LIMITS_SECONDS = {
    **{f"themis, auction, {apps:,} apps, {gpus:,} GPUs": limit for (apps, gpus), limit in _SIZES.items()},
    "themis, W2, 85 apps on 256 GPUs": 20.0,
}
