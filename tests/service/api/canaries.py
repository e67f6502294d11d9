"""A store in which everything of one tenant is marked, to find out where it gets to."""

from __future__ import annotations

import json
import re

from service.api.harness import FakeLoop, World

from horae.model.explanations import Explanation, Holder
from horae.model.reasons import BehindHead, NoRoom
from horae.model.serialization import to_plain
from horae.model.shapes import Shape
from horae.model.status import Status
from horae.service.store import schema

CANARY = "canary"  # in everything of the first tenant that has a text
SECRET_ID = "4711"
ID = re.compile(rf"(?<![\d.]){SECRET_ID}(?![\d.])")


def mark(world: World) -> None:
    """Marks everything of tenant nlp; jobs 8, 9 and 10 are of tenant vision, and know of it."""
    spec = {"run": f"run-{CANARY}", "name": f"name-{CANARY}", "user": f"user-{CANARY}", "env": {"KEY": CANARY}}
    marked = {
        "name": f"name-{CANARY}",
        "user": f"user-{CANARY}",
        "model": f"model-{CANARY}",
        "app": f"nlp/app-{CANARY}",
    }
    world.add_running(SECRET_ID, 5, "a0/0", reason=f"reason-{CANARY}", spec=json.dumps(spec), **marked)
    world.add_job("4712", state="failed", reason=f"reason-{CANARY}", ended_at=1.0, spec=json.dumps(spec), **marked)
    world.add_job("8", "vision", "bob", reason=f"preempted by {SECRET_ID}")
    world.add_running("9", 6, "a0/1", tenant="vision", user="bob")
    held = f"cannot start: GPU a0/0 is held by lease 5 of job {SECRET_ID}"  # as older versions have recorded it
    world.add_job("10", "vision", "bob", reason=held, spec=json.dumps({"run": "x"}))
    world.add_lease("10", 2, ended_at=9.0, ending="lost", reason=held)
    world.add_event(7, "JobEnded", job_id="10", epoch=2, ending="lost", steps=0.0, message=held)
    user = f"cannot start: GPU a0/1 is held by process 77 (python) of user-{CANARY}"
    world.add_event(8, "JobEnded", job_id="8", epoch=3, ending="lost", steps=0.0, message=user)
    world.add_lease("8", 3, ended_at=9.0, ending="stopped", reason=f"preempted by {SECRET_ID}")
    for job in (SECRET_ID, "8"):
        folder = world.state / "engine" / "jobs" / job
        folder.mkdir(parents=True)
        (folder / "output.log").write_text(f"log-{CANARY}\n" if job == SECRET_ID else "my own\n")
    world.insert(schema.nodes, name="a0", gpu_type="A100", gpus=8, health="healthy", reason="", position=0)
    world.insert(schema.gpus, gpu="a0/7", state="foreign", note=f"used by {CANARY}", at=1.0)
    world.add_event(1, "JobSubmitted", job={"id": SECRET_ID, "command": CANARY, "tenant": "nlp"})
    world.add_event(2, "JobEnded", job_id="4712", epoch=1, ending="failed", steps=1.0, message=f"message-{CANARY}")
    world.add_event(3, "SpeedRevised", model=f"model-{CANARY}", shape={}, steps_per_second=1.0)
    world.add_event(4, "BidGiven", auction=4, app=f"nlp/app-{CANARY}", gpus=[1], rho=[1.0])
    world.add_event(5, "LeaseAdopted", epoch=9, job_ids=[SECRET_ID, "8"], gpus=[], steps=[])
    world.add_event(6, "GpuChanged", gpu="a0/7", state="foreign", note=CANARY)
    row = {"month": "2001-09", "tenant": "nlp", "user": f"user-{CANARY}", "gpu_type": "A100", "kind": "shared"}
    world.insert(schema.usage, **row, gpu_seconds=1.0, jobs=1)
    treated = {"rho": 1.0, "rho_max": 1.0, "gpus": 1, "guaranteed_gpus": 0, "waiting_jobs": 1, "own_wait_seconds": 0.0}
    world.insert(schema.fairness, at=1.0, tenant="nlp", app=f"nlp/app-{CANARY}", is_hourly=True, **treated)
    world.insert(schema.gpu_hours, at=0.0, gpu_type="A100", held=1.0, idle=1.0, unusable=0.0, unused=1.0)
    speed = {"gpu_type": "A100", "gpus": 1, "steps_per_second": 1.0, "reports": 1, "wall": 1.0}
    world.insert(schema.speeds, tenant="nlp", model=f"model-{CANARY}", **speed)
    world.insert(schema.audit, wall=1.0, user=CANARY, role="user", action="submit", target=SECRET_ID, detail=CANARY)
    world.insert(schema.scheduler_notices, seq=1, at=1.0, kind="x", text=CANARY)
    world.insert(schema.notices, at=1.0, tenant="nlp", job=SECRET_ID, kind=CANARY, payload=CANARY, last_error=CANARY)
    table = json.dumps([[0, 1], [2.0, 1.0]])
    part = {"pool": "spare", "app": f"nlp/app-{CANARY}", "tenant": "nlp", "offer": table, "bid": table, "note": CANARY}
    ends = {"called_at": 1.0, "closes_at": 1e12, "won_gpus": 1, "lease_seconds": 1.0, "payment": 0.5}
    world.insert(schema.auctions, auction=4, closed_at=None, **part, **ends)
    world.insert(schema.auctions, auction=3, closed_at=2.0, **part, **ends)
    world.insert(schema.trials, job_id=SECRET_ID, search=4711, bracket=0, size=1, position=0, rung=0, state="running",
                 steps=0.0, loss=None, reached=False)  # fmt: skip
    world.insert(schema.progress, job_id=SECRET_ID, epoch=5, wall=1.0, steps=1.0, saved=0.0, resumable=False)
    world.insert(schema.tokens, id="x", hash="x", name=CANARY, role="user", tenant="nlp", user=CANARY, wall=0.0)


def answer(loop: FakeLoop) -> None:
    """Has the loop name the marked job wherever it can name one."""
    holder = Holder(SECRET_ID, 1, 0.0, 9.0)
    reason = BehindHead(SECRET_ID, NoRoom("spare", Shape("A100", 1, "node"), 0))
    explanation = Explanation("8", 1.0, Status.PENDING, reason, "spare", "fifo", (SECRET_ID,), (holder,))
    loop.answers["why"] = {
        "explanation": to_plain(explanation),
        "reason": str(reason),
        "text": f"{SECRET_ID} {CANARY}",
    }
    moment = {"median": 9.0, "low": 5.0, "high": "inf"}
    asked = {"asked_at": 1.0, "starts": moment, "ends": moment, "draws": 2, "cut_off": 0}
    loop.answers["eta"] = {"eta": {"job_id": "8", **asked}}
    loop.answers["plan"] = {"plan": {**asked, "delays": [{"job_id": SECRET_ID, "seconds": 99.0}]}}
    pool = {"policy": "max-min", "objective": CANARY, "value": 1.0, "bound": 1.0, "prices": [], "decided_at": 1.0}
    loop.answers["prices"] = {"prices": [{"pool": "nlp", **pool}]}
    loop.answers["reasons"] = {"reasons": {"8": str(reason)}}
