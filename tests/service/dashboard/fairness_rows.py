"""Rows about fairness and efficiency for the store of a test."""

from __future__ import annotations

import json
import time
from typing import Any

from service.api.harness import STARTED_WALL, World

from horae.service.store import schema


def log_now() -> float:
    return time.time() - STARTED_WALL


def add_point(world: World, tenant: str, age: float, app: str = "", **values: Any) -> None:
    row = {"rho": 0.9, "rho_max": 1.4, "gpus": 4, "guaranteed_gpus": 2, "waiting_jobs": 1, "own_wait_seconds": 0.0}
    at = log_now() - age
    world.insert(schema.fairness, at=at, tenant=tenant, app=app, is_hourly=False, **{**row, **values})


def add_auction_part(world: World, auction: int, app: str, tenant: str, **values: Any) -> None:
    offer = json.dumps([[0, 1, 2], ["inf", 2.0, 1.0]])
    row: dict[str, Any] = {
        "pool": "spare", "offer": offer, "bid": None, "note": "its agent was silent", "called_at": log_now() - 60.0,
        "closes_at": log_now() - 50.0, "closed_at": log_now() - 55.0, "won_gpus": 0, "lease_seconds": 0.0,
        "payment": 0.0,
    }  # fmt: skip
    world.insert(schema.auctions, auction=auction, app=app, tenant=tenant, **{**row, **values})


def add_hour(world: World, gpu_type: str, hours_ago: int, **values: Any) -> None:
    at = (log_now() // 3600.0 - hours_ago) * 3600.0
    row = {"held": 7200.0, "idle": 3600.0, "unusable": 0.0, "unused": None}
    world.insert(schema.gpu_hours, at=at, gpu_type=gpu_type, **{**row, **values})
