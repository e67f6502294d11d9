"""Answers questions that only the scheduler can answer, between two events: one JSON object per line, each way.

The sockets are in the state folder, which only the service's user may enter. Their descriptors are watched by the
engine's wait, so that a question is answered at once; a slow or broken client delays nothing.
"""

from __future__ import annotations

import json
import selectors
import socket
from collections.abc import Callable
from contextlib import suppress
from math import isfinite
from pathlib import Path
from typing import Any

from horae.model.decisions import Shares
from horae.model.serialization import to_plain
from horae.model.status import Status
from horae.scheduler import Scheduler
from horae.scheduler.jobs import home_of
from horae.scheduler.pool import Pool
from horae.service.loop.fairness_rows import RHO_DIGITS, live_rho
from horae.service.unix_socket import short_address

_BYTES_MAX = 4 << 20
_BACKLOG = 64
_FEW = 8  # jobs about which one asks one by one; for more of them all are computed together

# None: the connection was handed over to another process, which answers.
Answer = Callable[[dict[str, Any], socket.socket], dict[str, Any] | None]


class Questions:
    def __init__(self, folder: Path) -> None:
        self._selector = selectors.EpollSelector()
        self._stream = _bind(folder / "loop.sock", socket.SOCK_STREAM)
        self._stream.listen(_BACKLOG)
        self._wake = _bind(folder / "loop-wake", socket.SOCK_DGRAM)
        self._selector.register(self._stream, selectors.EVENT_READ)
        self._selector.register(self._wake, selectors.EVENT_READ)
        self._pending: dict[socket.socket, bytes] = {}

    def fileno(self) -> int:
        """Readable when a question or a request has arrived."""
        return self._selector.fileno()

    def serve(self, answer: Answer) -> None:
        """Answers all complete questions."""
        for key, _ in self._selector.select(0):
            source = key.fileobj
            if source is self._stream:
                with suppress(OSError):
                    client, _ = self._stream.accept()
                    client.setblocking(False)
                    self._pending[client] = b""
                    self._selector.register(client, selectors.EVENT_READ)
            elif source is self._wake:
                with suppress(OSError):
                    while self._wake.recv(64):
                        pass
            elif isinstance(source, socket.socket):
                self._read(source, answer)

    def close(self) -> None:
        for client in list(self._pending):
            self._drop(client)
        for listener in (self._stream, self._wake):
            self._selector.unregister(listener)
            listener.close()
        self._selector.close()

    def _read(self, client: socket.socket, answer: Answer) -> None:
        try:
            received = client.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            received = b""
        text = self._pending[client] + received
        if not received or len(text) > _BYTES_MAX:
            self._drop(client)
            return
        *lines, rest = text.split(b"\n")
        self._pending[client] = rest
        for line in lines:
            if not self._reply(client, line, answer):
                return

    def _reply(self, client: socket.socket, line: bytes, answer: Answer) -> bool:
        try:
            question = json.loads(line)
            reply = answer(question, client) if isinstance(question, dict) else {"error": "not an object"}
        except ValueError:
            reply = {"error": "not JSON"}
        if reply is None:
            self._drop(client)
            return False
        try:
            client.settimeout(0.2)  # answers are small; a client that does not read them is dropped
            client.sendall(json.dumps(reply).encode() + b"\n")
            client.setblocking(False)
        except OSError:
            self._drop(client)
            return False
        return True

    def _drop(self, client: socket.socket) -> None:
        self._pending.pop(client, None)
        with suppress(KeyError, ValueError):
            self._selector.unregister(client)
        client.close()


def about_jobs(scheduler: Scheduler, question: dict[str, Any]) -> dict[str, Any]:
    """What the scheduler knows about the jobs in a question; empty if it asks something else."""
    if "why" in question:
        explanation = scheduler.explain(str(question["why"]))
        if explanation is None:
            return {"explanation": None}
        reason = "" if explanation.reason is None else str(explanation.reason)
        return {"explanation": to_plain(explanation), "reason": reason, "now": scheduler.now}
    if "reasons" in question:
        reasons = {str(each): scheduler.why(str(each)) for each in question["reasons"]}
        return {"reasons": {job_id: str(why) for job_id, why in reasons.items() if why is not None}}
    if "positions" in question:
        wanted = {str(each) for each in question["positions"]}
        return {"positions": {job_id: place for job_id, place in positions(scheduler).items() if job_id in wanted}}
    if "rho" in question:
        asked = [str(each) for each in question["rho"]]
        if len(asked) > _FEW:
            known = live_rho(scheduler, scheduler.now)
            return {"rho": {each: known.get(each) for each in asked}}
        return {"rho": {each: _rounded(scheduler.rho(each)) for each in asked}}
    if "prices" in question:
        return {"prices": [_prices(pool, scheduler) for pool in scheduler.pools]}
    return {}


def _rounded(rho: float | None) -> float | None:
    return None if rho is None else round(rho, RHO_DIGITS)


def _prices(pool: Pool, scheduler: Scheduler) -> dict[str, Any]:
    """Value and prices of the program behind a pool's shares; without `value` if there is none."""
    decision = pool.decision
    evidence = decision.evidence if isinstance(decision, Shares) else None
    found = {"pool": pool.spec.name, "policy": pool.spec.policy}
    if evidence is None:
        return found
    names = scheduler.ledger.cluster.accelerators
    columns = zip(names, evidence.prices.tolist(), evidence.is_full.tolist(), pool.capacity.tolist(), strict=True)
    prices = [[name, _finite(price), is_full] for name, price, is_full, gpus in columns if gpus]
    values = {"objective": evidence.objective, "value": _finite(evidence.value), "bound": _finite(evidence.bound)}
    return {**found, **values, "prices": prices, "decided_at": pool.shared_at}


def _finite(value: float) -> float | None:
    return value if isfinite(value) else None


def positions(scheduler: Scheduler) -> dict[str, int]:
    """The places of waiting jobs in the orders of their pools, from 1; pools that share out time have no order."""
    found: dict[str, int] = {}
    borrowing = {home_of(loan) for loan in scheduler.jobs.lent if scheduler.loans.is_running(home_of(loan))}
    for pool in scheduler.pools:
        status, row, ids = pool.table.status, pool.table.row, pool.table.ids
        ranked = (each for each in pool.ranked() if status[row[each]] == int(Status.PENDING) and each not in borrowing)
        found |= {ids[row[serial]]: place for place, serial in enumerate(ranked, start=1)}
    return found


def _bind(path: Path, kind: socket.SocketKind) -> socket.socket:
    """A socket at this path; one left over from a former process is replaced."""
    bound = socket.socket(socket.AF_UNIX, kind)
    bound.setblocking(False)
    with suppress(FileNotFoundError):
        path.unlink()
    with short_address(path) as address:
        bound.bind(address)
    path.chmod(0o600)
    return bound
