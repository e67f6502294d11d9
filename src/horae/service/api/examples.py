"""An example of every model in the OpenAPI description; a test checks them against the models."""

from __future__ import annotations

from typing import Any

_AT = 1_790_000_000.0
_JOB: dict[str, Any] = {
    "id": "17", "name": "bert", "app": "17", "tenant": "nlp", "user": "ada", "model": "bert-base", "state": "running",
    "reason": "", "gpus": 2, "held_gpus": 2, "gpu_type": "A100", "places": ["n0/0", "n0/1"], "guaranteed": True,
    "resumable": True, "epoch": 40, "submitted_at": _AT, "started_at": _AT + 12, "first_started_at": _AT + 12,
    "ended_at": None, "wait_seconds": 12.0, "run_seconds": 348.0, "gpu_seconds": 696.0, "preemptions": 0, "failures": 0,
    "steps": 1200.0, "steps_total": 10000.0, "steps_per_second": 3.4, "loss": 2.1, "rho": 0.9,
}  # fmt: skip
_LEASE: dict[str, Any] = {
    "job_id": "17", "epoch": 40, "granted_at": _AT, "started_at": _AT + 12, "until": _AT + 300, "ended_at": None,
    "gpu_type": "A100", "level": "node", "gpus": 2, "places": ["n0/0", "n0/1"], "guaranteed": True, "ending": "",
    "reason": "", "steps": 0.0,
}  # fmt: skip
_MOMENT = {"median": _AT + 900, "low": _AT + 300, "high": _AT + 4000}
_APP = {
    "name": "nlp/tuning", "tenant": "nlp", "jobs": 4, "states": {"running": 2, "pending": 2}, "running_gpus": 2,
    "gpu_hours": 3.5, "rho_max": 1.1,
}  # fmt: skip
_HOLDER = {"job_id": "12", "gpus": 4, "since": _AT, "ends_at": _AT + 7200}
_EVENT = {"seq": 81, "at": _AT, "kind": "JobStarted", "job_id": "17", "tenant": "nlp", "text": "job 17 started"}
_OFFER = {"app": "nlp/tuning", "gpus": [0, 1, 2, 4], "rho": [None, 2.4, 1.3, 0.8]}
_NODES: dict[str, Any] = {
    "name": ["n0"], "gpu_type": ["A100"], "gpus": [4], "group": ["rack r0"], "inside": [2], "inside_level": ["socket"],
    "health": ["healthy"], "reason": [""],
}  # fmt: skip
_JOBS: dict[str, Any] = {
    "id": ["17"], "name": ["bert"], "tenant": ["nlp"], "app": ["17"], "user": ["ada"], "state": ["running"],
    "kind": ["guaranteed"], "gpus": [2], "started_at": [_AT + 12], "rho": [0.9],
}  # fmt: skip
_TENANT_USED: dict[str, Any] = {
    "job_id": "", "name": "nlp", "tenant": "nlp", "user": "", "state": "", "gpu_type": "", "held_gpus": 2,
    "gpu_hours": 41.5, "measured_gpu_hours": 40.0, "used_gpu_hours": 32.5, "steps_per_second": None,
}  # fmt: skip
_JOB_USED: dict[str, Any] = {
    **_TENANT_USED, "job_id": "17", "name": "bert", "user": "ada", "state": "running", "gpu_type": "A100",
    "steps_per_second": 3.4,
}  # fmt: skip
_TYPE_USE = {
    "gpu_type": "A100", "gpus": 8, "held": 6, "unusable": 1, "running_jobs": 3, "steps_per_second": 12.5,
}  # fmt: skip
_SPEED = {
    "tenant": "nlp", "model": "bert-base", "gpu_type": "A100", "gpus": 2, "steps_per_second": 3.4, "reports": 120,
}  # fmt: skip
_TYPE_PRICE = {"gpu_type": "A100", "price": 0.02, "is_full": True}
_POINT = {"steps": 1200.0, "at": _AT, "loss": 2.1, "steps_per_second": 3.4}
_SIDE = {"completion_mean_seconds": 5400.0, "completion_median_seconds": 1800.0}
_WHATIF_SIDE = {**_SIDE, "utilisation": 0.81, "preemptions": 12}
_WHATIF_TENANT_SIDE = {
    **_SIDE, "rho_mean": 0.9, "rho_max": 1.4, "gpu_hours": 120.5, "preemptions": 7,
    "waited_for_own_cells_seconds": 30.0, "guarantee": "kept",
}  # fmt: skip
_WHATIF_TENANT = {
    "tenant": "nlp", "jobs": 40, "sooner": 25, "later": 5, "recorded": _WHATIF_TENANT_SIDE, "same": _WHATIF_TENANT_SIDE,
    "changed": _WHATIF_TENANT_SIDE,
}  # fmt: skip
_WHATIF_JOB = {
    "job_id": "17", "tenant": "nlp", "seconds": -600.0, "recorded_ends_at": _AT + 1210, "same_ends_at": _AT + 1200,
    "changed_ends_at": _AT + 600,
}  # fmt: skip

EXAMPLES: dict[str, Any] = {
    "AppPage": {"items": [_APP], "next": None},
    "AppView": _APP,
    "AuctionResult": {
        "auction": 4, "pool": "spare", "app": "nlp/tuning", "tenant": "nlp", "called_at": _AT, "closes_at": _AT + 5,
        "closed_at": _AT + 3, "offer": _OFFER, "bid": _OFFER, "note": "", "won_gpus": 2, "lease_seconds": 600.0,
        "payment": 0.1,
    },
    "AuctionView": {"auction": 5, "pool": "spare", "closes_at": _AT + 2, "offers": [_OFFER]},
    "AuditRow": {
        "id": 3, "at": _AT, "user": "root", "role": "operator", "action": "drain", "target": "n1", "detail": "new fan",
    },
    "Bid": {"app": "nlp/tuning", "gpus": [0, 1, 2, 4], "rho": [9.0, 2.4, 1.3, 0.8]},
    "Checkpoint": {"signal": "SIGTERM"},
    "DelayView": {"job_id": "12", "seconds": 340.0},
    "Done": {"applied": True},
    "Drain": {"reason": "new fan", "at": "2030-12-01T08:00"},
    "Efficiency": {
        "types": [_TYPE_USE], "tenants": [_TENANT_USED], "jobs": [_JOB_USED], "more_jobs": 0, "speeds": [_SPEED],
    },
    "EtaView": {
        "job_id": "18", "asked_at": _AT, "starts": _MOMENT, "ends": _MOMENT, "draws": 20, "cut_off": 0,
        "estimated": 0,
    },
    "EventPage": {"items": [_EVENT], "next": 81},
    "EventView": _EVENT,
    "FairnessPoint": {
        "at": _AT, "tenant": "nlp", "app": "", "rho_mean": 0.9, "rho_max": 1.1, "gpus": 6, "guaranteed_gpus": 4,
        "waiting_jobs": 3, "waited_for_own_cells_seconds": 0.0,
    },
    "GpuHoursRow": {"at": _AT, "gpu_type": "A100", "held": 6.5, "idle": 1.0, "unusable": 0.5, "unused": 0.25},
    "GpuMap": {
        "cluster": "lab", "nodes": _NODES, "jobs": _JOBS, "holder": [0, 0, -1, -1], "second": {},
        "unusable": {"3": "failed"},
    },
    "GpuRange": {"min": 1, "max": 4},
    "Health": {"ready": True, "store": True, "scheduler": True, "configuration": ""},
    "Holder": _HOLDER,
    "JobColumns": _JOBS,
    "JobSpec": {"name": "bert", "tenant": "nlp", "run": "python train.py", "gpus": 2, "gpu_type": ["A100", "V100"]},
    "JobView": _JOB,
    "LeasePage": {"items": [_LEASE], "other_leases": 3, "other_gpus": 6, "next": None},
    "LeaseView": _LEASE,
    "Locality": {"require": "node", "prefer": "socket"},
    "Me": {"user": "ada", "role": "user", "tenant": "nlp", "via": "token"},
    "MomentView": _MOMENT,
    "NodeView": {
        "name": "n0", "gpu_type": "A100", "gpus": 8, "free": 6, "health": "healthy", "reason": "", "drain_at": None,
        "jobs": ["17"], "unusable": {},
    },
    "OfferView": _OFFER,
    "Page": {"items": [_JOB], "next": None},
    "NodeColumns": _NODES,
    "PlanView": {
        "fits": True, "refusal": "", "asked_at": _AT, "starts": _MOMENT, "ends": _MOMENT, "shapes": ["2 x A100"],
        "delays": [{"job_id": "12", "seconds": 340.0}], "draws": 10, "cut_off": 0,
    },
    "Point": _POINT,
    "PolicyChoice": {"policy": "themis", "options": {"lease_seconds": 600}},
    "PolicyView": {"name": "fifo", "summary": "First come, first served.", "options": {"backfill": False}},
    "PoolView": {
        "name": "spare", "policy": "max-min", "options": {}, "cadence": "rounds", "round_seconds": 300.0,
        "tenants": ["nlp"],
    },
    "PoolPrices": {
        "pool": "spare", "policy": "max-min", "decided_at": _AT, "objective": "least normalised throughput",
        "value": 0.5, "bound": 0.5, "types": [_TYPE_PRICE],
    },
    "Problem": {
        "type": "about:blank", "title": "Invalid request", "status": 422, "detail": "is missing", "field": "run",
        "remedy": "add it",
    },
    "Progress": {"epoch": 40, "steps": 1200.0, "saved": 1000.0, "loss": 2.1, "steps_per_second": 3.4},
    "ProgressView": {
        "job_id": "17", "epoch": 40, "at": _AT, "steps": 1200.0, "saved": 1000.0, "steps_total": 10000.0, "loss": 2.1,
        "steps_per_second": 3.4, "resumable": True, "points": [_POINT],
    },
    "Reservation": {"tenant": "nlp", "pool": "nlp", "cells": {"A100.node": 1}, "pinned": {}},
    "Reservations": {"tenants": {"nlp": {"A100.node": 1}}},
    "ShareRow": {
        "name": "nlp", "tenant": "nlp", "jobs": 9, "running": 2, "finished": 5, "gpu_hours": 41.5, "share": 0.4,
        "weight_share": 0.5, "rho_mean": 0.9, "rho_max": 1.1, "guaranteed_gpu_hours": 30.0,
        "waited_for_own_cells_seconds": 0.0,
    },
    "SpeedRow": _SPEED,
    "Submitted": {"ids": ["17"]},
    "TenantChange": {"weight": 2.0, "cells": {"A100.node": 1}},
    "TenantView": {
        "name": "nlp", "weight": 1.0, "cells": {"A100.node": 1}, "quota": {}, "policy": "max-min", "running_gpus": 2,
        "guaranteed_gpus": 8, "pending_jobs": 3, "running_jobs": 1, "undelivered_notices": 0,
    },
    "TokenRequest": {"name": "laptop", "role": "user", "tenant": "nlp", "user": "ada", "days": 30},
    "TokenView": {
        "id": "9f2c", "name": "laptop", "role": "user", "tenant": "nlp", "user": "ada", "created_at": _AT,
        "expires_at": _AT + 30 * 86_400, "token": None,
    },
    "TrialView": {
        "job_id": "21_3", "name": "tuning", "tenant": "nlp", "app": "21", "state": "stopped",
        "reason": "its loss was not among the best 2 of 4", "parameters": {"lr": 0.1}, "steps": 100.0,
        "steps_total": 1000.0, "loss": 2.3, "rung": 0, "bracket": 0, "gpu_hours": 0.2,
    },
    "TypePrice": _TYPE_PRICE,
    "TypeUse": _TYPE_USE,
    "UsageRow": {
        "month": "2030-12", "tenant": "nlp", "user": "ada", "gpu_type": "A100", "kind": "guaranteed", "gpu_hours": 12.5,
        "jobs": 4, "idle_gpu_hours": 0.5,
    },
    "UsedRow": _JOB_USED,
    "WhatIfJob": _WHATIF_JOB,
    "WhatIfPolicy": {"policy": "themis", "options": {"lease_seconds": 600}},
    "WhatIfRequest": {"since": _AT, "policies": {"*": {"policy": "themis"}}, "weights": {"nlp": 2.0}},
    "WhatIfSide": _WHATIF_SIDE,
    "WhatIfTenant": _WHATIF_TENANT,
    "WhatIfTenantSide": _WHATIF_TENANT_SIDE,
    "WhatIfView": {
        "since": _AT, "until": _AT + 86400, "is_dated": True, "change": ["policy themis"], "is_replay": False,
        "jobs": 40, "sooner": 25, "later": 5, "unchanged": 10, "never": 0, "believed": 3, "cut_off_at": None,
        "recorded": _WHATIF_SIDE, "same": _WHATIF_SIDE, "changed": _WHATIF_SIDE, "tenants": [_WHATIF_TENANT],
        "sooner_jobs": [_WHATIF_JOB], "later_jobs": [],
    },
    "Why": {
        "job_id": "18", "state": "pending", "reason": "no GPUs are free", "pool": "nlp", "policy": "max-min",
        "ahead": ["17"], "holders": [_HOLDER], "unblocked_by": [_HOLDER], "next_decision_at": _AT + 120,
        "text": "job 18 is pending: no GPUs are free",
    },
}  # fmt: skip


def add_examples(description: dict[str, Any]) -> dict[str, Any]:
    """The OpenAPI description with an example of each of its models."""
    for name, schema in description["components"]["schemas"].items():
        if name in EXAMPLES:
            schema["examples"] = [EXAMPLES[name]]
    return description
