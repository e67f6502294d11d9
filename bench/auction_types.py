"""Auctions over three GPU types: how long it takes to settle one with all payments, and how much of it is proved.

Apps are as in Themis's second workload: up to 98 gangs of 1 to 8 GPUs, each as fast on a type as its app is. A lease is
20 minutes; rho with e GPUs of the slowest type, or as much of others, is that of finishing the rest at the entitled
share. Such values are convex up to the end of the work: apps want all they can use or nothing, and prices alone leave
gaps. Bids are fine where few gangs run and coarse above: some hundred bundles.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from bench.cases import Result, loop_seconds
from horae.model.arrays import Ints
from horae.solvers.auction.multi_type import BundleBid, settle_types

LEASE_SECONDS = 1200.0
SPEED = (1.0, 2.1, 3.7, 5.2)  # of a GPU by type, about
GANGS, GANG_PARTS = (1, 2, 4, 8), (0.4, 0.25, 0.25, 0.1)
GANGS_FINE, GANGS_COARSE = 8, (0, 1, 2, 4, 8, 16, 32, 64, 96)
OFFER = (512, 320, 192)
AUCTIONS = 20
LIMITS_SECONDS = {"auction, 200 apps, 1,024 GPUs of three types": 0.25}


@dataclass(frozen=True)
class Auctions(Result):
    median_milliseconds: float  # of processor time, each settled once
    worst_milliseconds: float
    worst_width: float  # of the bounds of what an app keeps
    not_exact: int  # auctions whose welfare is not proved to be the best
    not_certified: int


def bids(seed: int, apps: int, offer: Ints) -> list[BundleBid]:
    """Apps at random, each with a table of bundles that fit into the offer."""
    random, types = np.random.default_rng(seed), len(offer)
    entitled = float(offer @ np.array(SPEED[:types])) / apps
    counts = _counts(types)
    tables = []
    for _ in range(apps):
        gang = int(random.choice(GANGS, p=GANG_PARTS))
        gangs = 1 if random.random() < 0.1 else int(np.clip(np.rint(random.lognormal(np.log(23), 1)), 1, 98))
        speed = np.array(SPEED[:types]) ** random.uniform(0.5, 1.2) * random.uniform(0.9, 1.1, types)
        work = 3600 * float(random.lognormal(np.log(3.75), 1, gangs).sum())
        left = work * random.uniform(0.02, 1)
        ideal_seconds = work / (gang * gangs)
        elapsed = ideal_seconds * random.uniform(0, 4)
        gpus = gang * counts[counts.sum(axis=1) <= gangs]
        gpus = gpus[(gpus <= offer).all(axis=1)]
        later = np.maximum(left - gpus @ speed * LEASE_SECONDS, 0) / entitled
        tables.append(BundleBid(gpus, -np.log((elapsed + LEASE_SECONDS + later) / ideal_seconds)))
    return tables


def _counts(types: int) -> Ints:
    """Numbers of gangs by type: all where they are few, some where they are many; the first is none."""
    fine = np.indices((GANGS_FINE + 1,) * types).reshape(types, -1).T
    coarse = np.stack(np.meshgrid(*[GANGS_COARSE] * types, indexing="ij"), axis=-1).reshape(-1, types)
    return np.unique(np.concatenate([fine[fine.sum(axis=1) <= GANGS_FINE], coarse]), axis=0).astype(np.int64)


def auctions(apps: int, offer: tuple[int, ...]) -> Auctions:
    gpus = np.array(offer)
    settle_types(bids(0, apps, gpus), gpus)
    outcomes, seconds = [], []
    for seed in range(AUCTIONS):
        tables = bids(seed, apps, gpus)
        started = time.process_time()
        outcomes.append(settle_types(tables, gpus))
        seconds.append(time.process_time() - started)
    return Auctions(
        jobs=apps,
        seconds=float(np.median(seconds)),
        peak_memory_mib=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        loop_seconds=loop_seconds(),
        median_milliseconds=1e3 * float(np.median(seconds)),
        worst_milliseconds=1e3 * max(seconds),
        worst_width=max(outcome.width for outcome in outcomes),
        not_exact=sum(not outcome.is_exact for outcome in outcomes),
        not_certified=sum(not outcome.is_certified for outcome in outcomes),
    )


CASES: dict[str, Callable[[], Result]] = {
    "auction, 200 apps, 1,024 GPUs of three types": partial(auctions, 200, OFFER),
}
