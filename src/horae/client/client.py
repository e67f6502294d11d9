"""`horae.Client`: the verbs of the service as methods, with typed results."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TypeAlias, TypedDict, Unpack
from urllib.parse import quote

from horae.client.answers import Answers, Model
from horae.client.connection import NOT_ANSWERED, OUTAGE_SECONDS_MAX, SUBMIT_DELAYS, Connection, Params
from horae.client.event_stream import sent_events
from horae.client.job_files import Submittable, specs_of, to_send
from horae.client.location import find_service
from horae.client.output import JobOutput
from horae.client.terminal import Terminal
from horae.client.user_input import checked
from horae.model.errors import ServiceError
from horae.model.safe_text import shown
from horae.service.models import (
    ENDED,
    AuctionResult,
    AuctionView,
    Bid,
    Drain,
    EtaView,
    EventView,
    Health,
    JobSpec,
    JobView,
    LeaseView,
    Me,
    NodeView,
    PlanView,
    PolicyChoice,
    PoolView,
    ShareRow,
    TenantChange,
    TenantView,
    TokenRequest,
    TokenView,
    TrialView,
    UsageRow,
    Why,
)
from horae.service.whatif_models import WhatIfRequest, WhatIfView

TIMEOUT_SECONDS = 30.0
POLL_SECONDS_MIN, POLL_SECONDS_MAX = 0.1, 2.0
PAGE_JOBS = 500
NAMED_MAX = 1000  # jobs of one name that are looked at

Job: TypeAlias = JobView | str  # or its id


class JobFilters(TypedDict, total=False):
    """Which jobs are listed: those that fit all that is given. `limit` is the size of a page."""

    state: str | Collection[str] | None
    tenant: str | None
    user: str | None
    app: str | None
    name: str | None
    since: float | None  # submitted since, Unix time
    until: float | None
    limit: int | None
    sort: str | None


class Client:
    """The service, at the address that is given, or else where `horae up` runs it for this user.

    A submission is sent with a key and repeated while the service cannot be reached: it is accepted once. Errors are
    `ServiceError`s with the field that is wrong and the remedy.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        state: str | Path | None = None,
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._connection = Connection(find_service(url, token, state), timeout_seconds, sleep)
        self._answers = Answers(self._connection)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes connections; `with Client() as client` does it."""
        self._connection.close()

    # Jobs

    def submit(self, jobs: Submittable | Sequence[Submittable], *, key: str | None = None) -> list[str]:
        """Submits jobs: specifications, mappings or job files; the ids of the jobs, several for an array or a sweep.

        With the same `key`, a later call submits nothing new and answers with the same jobs.
        """
        bodies = [to_send(spec) for spec in specs_of(jobs)]
        answer = self._connection.send(
            "POST",
            "/jobs",
            bodies[0] if len(bodies) == 1 else bodies,
            headers={"Idempotency-Key": key or uuid.uuid4().hex},
            delays=SUBMIT_DELAYS,
        )
        return self._answers.ids(answer)

    def jobs(self, **filters: Unpack[JobFilters]) -> Iterator[JobView]:
        """The jobs that fit all filters; pages are asked for as they are needed."""
        return self._answers.pages(JobView, "/jobs", {"limit": PAGE_JOBS, **filters})

    def job(self, job: Job) -> JobView:
        """One job as it is now, with its job file."""
        return self._answers.one(JobView, self._connection.get(_of(job)))

    def find(self, name: str) -> JobView:
        """The job of this id, or else the newest job of this name; an error where several tenants have one."""
        try:
            return self.job(name)
        except ServiceError as error:
            if error.status != 404:
                raise
        newest: dict[str, JobView] = {}
        for count, job in enumerate(self.jobs(name=name)):
            if job.name == name and (job.tenant not in newest or job.submitted_at > newest[job.tenant].submitted_at):
                newest[job.tenant] = job
            if count >= NAMED_MAX:
                break
        if not newest:
            raise ServiceError(f"there is no job {shown(name)}", remedy="list jobs with `horae ls --all`", status=404)
        if len(newest) > 1:
            ids = ", ".join(f"{job.id} ({job.tenant})" for job in newest.values())
            raise ServiceError(
                f"{shown(name)} is a job of several tenants", remedy=f"name one by its id: {ids}", status=409
            )
        return next(iter(newest.values()))

    def trials(self, app: str) -> list[TrialView]:
        """The jobs of an app as trials: parameters, losses, and which of them were stopped and why."""
        return self._list(TrialView, "/trials", app=app)

    def auctions(self, *, after: int = -1, wait_seconds: float = 0.0) -> list[AuctionView]:
        """Open calls for bids of the caller's apps after the auction of this number; waits for one up to 30 s."""
        return self._list(AuctionView, "/auctions", after=after, wait=wait_seconds)

    def bid(self, auction: int, app: str, gpus: Sequence[int], rho: Sequence[float]) -> bool:
        """Bids for an app: the rho that it reports for each number of GPUs, the first of which is 0."""
        body = checked(Bid, {"app": app, "gpus": list(gpus), "rho": list(rho)})
        return self._change("POST", f"/auctions/{auction}/bids", body.model_dump())

    def auction_history(self, *, app: str | None = None, limit: int | None = None) -> list[AuctionResult]:
        """The parts of the caller's apps in auctions, the latest first: offers, bids, what was won and paid."""
        return self._list(AuctionResult, "/auctions/history", app=app, limit=limit)

    def why(self, job: Job) -> Why:
        """Why a job waits, and what would unblock it."""
        return self._answers.one(Why, self._connection.get(f"{_of(job)}/why"))

    def eta(self, job: Job, *, seconds: float = 2.0, draws: int = 20) -> EtaView:
        """When a job starts and ends, over possible futures, within a time budget."""
        params = {"seconds": seconds, "draws": draws}
        return self._answers.one(EtaView, self._connection.get(f"{_of(job)}/eta", params=params))

    def plan(self, job: JobSpec, *, seconds: float = 2.0, draws: int = 20) -> PlanView:
        """What would happen if a job were submitted now, and which jobs it would delay."""
        params = {"seconds": seconds, "draws": draws}
        return self._answers.one(PlanView, self._connection.send("POST", "/plan", to_send(job), params=params))

    def whatif(self, question: WhatIfRequest, *, seconds: float = 30.0) -> WhatIfView:
        """What would have happened since some past moment under another setup, within a time budget."""
        answer = self._connection.send("POST", "/whatif", to_send(question), params={"seconds": seconds})
        return self._answers.one(WhatIfView, answer)

    def leases(self, job: Job) -> list[LeaseView]:
        """The leases of a job: when it ran, where, and how each time ended."""
        return self._list(LeaseView, f"{_of(job)}/leases")

    def logs(self, job: Job, *, follow: bool = False, tail: int | None = None) -> Iterator[bytes]:
        """The output of a job, or its last `tail` bytes; with `follow` also what comes, until the job ends."""
        output = JobOutput(self._connection, f"{_of(job)}/logs")
        if tail is not None:
            yield from output.tail(tail)
        elif not follow:
            yield from output.all()
        if follow:
            yield from output.follow()

    def terminal(self, job: Job) -> Terminal:
        """The terminal of an interactive job that runs."""
        return Terminal(self._connection, f"{_of(job)}/terminal")

    def stop(self, job: Job, *, grace: float | None = None) -> JobView:
        """Stops a job for good: it may save its work within its grace, or within at most `grace` seconds."""
        return self._changed_job("DELETE", job, params={"grace": grace})

    def hold(self, job: Job) -> JobView:
        """Keeps a job from running until it is released; one that runs is preempted."""
        return self._changed_job("POST", job, "/hold")

    def release(self, job: Job) -> JobView:
        """Lets a job run that was on hold."""
        return self._changed_job("POST", job, "/release")

    def wait(self, job: Job, timeout_seconds: float | None = None, *, states: Collection[str] = ENDED) -> JobView:
        """The job once it has ended, or is in another of these states; `TimeoutError` where that takes too long."""
        give_up_at = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        answered_at, delay = time.monotonic(), POLL_SECONDS_MIN
        while True:
            try:
                seen = self.job(job)
                if seen.state in states or seen.state in ENDED:
                    return seen
                answered_at = time.monotonic()
            except ServiceError as error:  # the job goes on without the service
                if error.status not in NOT_ANSWERED or time.monotonic() - answered_at > OUTAGE_SECONDS_MAX:
                    raise
            if give_up_at is not None and time.monotonic() >= give_up_at:
                raise TimeoutError(f"job {_id(job)} has not ended after {timeout_seconds:g} s")
            self._connection.sleep(delay)
            delay = min(1.5 * delay, POLL_SECONDS_MAX)

    # The cluster and its tenants

    def nodes(self) -> list[NodeView]:
        """The nodes: GPUs, health, and the jobs on them."""
        return self._list(NodeView, "/nodes")

    def drain(self, node: str, reason: str = "", at: str | None = None) -> bool:
        """Starts no jobs on a node, at once or from a time on; jobs there leave it with their grace."""
        body = checked(Drain, {"reason": reason, "at": at})
        return self._change("POST", f"/nodes/{_quoted(node)}/drain", body.model_dump())

    def resume(self, node: str) -> bool:
        """Lets jobs start on a node that was drained."""
        return self._change("POST", f"/nodes/{_quoted(node)}/resume")

    def tenants(self) -> list[TenantView]:
        """The tenants: weights, reserved cells, GPUs in use, queues."""
        return self._list(TenantView, "/tenants")

    def set_tenant(self, name: str, change: TenantChange | Mapping[str, object]) -> bool:
        """Changes weight, cells or quota of a tenant; what is not named stays as it is."""
        body = change if isinstance(change, TenantChange) else checked(TenantChange, change)
        return self._change("PATCH", f"/tenants/{_quoted(name)}", body.model_dump(exclude_unset=True))

    def reserve(self, tenant: str, cells: Mapping[str, int]) -> bool:
        """Reserves cells for a tenant, instead of those that it has."""
        return self._change("PUT", "/reservations", {"tenants": {tenant: dict(cells)}})

    def pools(self) -> list[PoolView]:
        """The pools: which policy decides for which tenants."""
        return self._list(PoolView, "/pools")

    def set_policy(self, pool: str, policy: str, options: Mapping[str, object] | None = None) -> bool:
        """Has a pool scheduled by another policy from now on."""
        body = checked(PolicyChoice, {"policy": policy, "options": dict(options or {})})
        return self._change("PUT", f"/pools/{_quoted(pool)}/policy", body.model_dump())

    # Accounts and history

    def share(self, *, by: str = "tenant", since: float | None = None) -> list[ShareRow]:
        """How tenants or apps were treated: rho and GPU-hours, of jobs that run or ended since (a week ago)."""
        return self._list(ShareRow, "/share", by=by, since=since)

    def usage(self, *, by: Collection[str] = (), month: str | None = None, tenant: str | None = None) -> list[UsageRow]:
        """GPU-hours, by some of month, tenant, user, gpu_type and kind, and summed over the others."""
        return self._list(UsageRow, "/usage", by=by, month=month, tenant=tenant)

    def history(self, **filters: Unpack[JobFilters]) -> Iterator[JobView]:
        """Jobs that have ended, the last ones first."""
        return self._answers.pages(JobView, "/history", {"limit": PAGE_JOBS, **filters})

    def events(
        self, *, since: int | None = None, job: str | None = None, limit: int | None = None, follow: bool = False
    ) -> Iterator[EventView]:
        """What happened after the event of this number, or else of late; with `follow` also what happens, without end.

        `limit` is the size of a page.
        """
        while True:
            page = self._connection.get("/events", {"since": since, "job": job, "limit": limit})
            yield from self._answers.several(EventView, page)
            last = page.get("next") if isinstance(page, dict) else None
            if not isinstance(last, int) or last <= (since or 0):
                break
            since = last
        if follow:
            yield from self._followed(since, job)

    def tokens(self) -> list[TokenView]:
        """The tokens that the caller may see, without their secrets."""
        return self._list(TokenView, "/tokens")

    def create_token(
        self, name: str, role: str = "user", *, tenant: str = "", user: str = "", days: float | None = None
    ) -> TokenView:
        """A new token. Its secret is in the answer and nowhere else."""
        fields = {"name": name, "role": role, "tenant": tenant, "user": user, "days": days}
        request = checked(TokenRequest, fields)
        return self._answers.one(TokenView, self._connection.send("POST", "/tokens", request.model_dump()))

    def revoke_token(self, token_id: str) -> bool:
        """Rejects requests with this token from now on."""
        return self._change("DELETE", f"/tokens/{_quoted(token_id)}")

    def me(self) -> Me:
        """The caller, as the service knows it."""
        return self._answers.one(Me, self._connection.get("/me"))

    def health(self) -> Health:
        """Which parts of the service answer, and whether its configuration file is in force."""
        return self._answers.one(Health, self._connection.get("/health"))

    # Answers as values

    def _changed_job(self, method: str, job: Job, verb: str = "", params: Params | None = None) -> JobView:
        answer = self._connection.send(method, _of(job) + verb, params=params)
        return self._answers.one(JobView, answer) if answer and "id" in answer else self.job(job)

    def _change(self, method: str, path: str, body: object = None) -> bool:
        """Whether the change is applied; False where it is accepted and the scheduler has not seen it yet."""
        answer = self._connection.send(method, path, body)
        return not (isinstance(answer, dict) and answer.get("applied") is False)

    def _followed(self, since: int | None, job: str | None) -> Iterator[EventView]:
        """Events as they happen; a connection that ends is made anew, from the last event on."""
        failures = 0
        while failures < len(SUBMIT_DELAYS):
            headers = {} if since is None else {"Last-Event-ID": str(since)}
            try:
                with self._connection.stream("/events/stream", {"since": since, "job": job}, headers) as response:
                    for sent in sent_events(response.iter_lines()):
                        since, failures = int(sent.id) if sent.id.isdecimal() else since, 0
                        if sent.data:
                            yield self._answers.one(EventView, sent.data)
            except ServiceError as error:
                if error.status not in NOT_ANSWERED or failures == len(SUBMIT_DELAYS) - 1:
                    raise
            self._connection.sleep(SUBMIT_DELAYS[failures])
            failures += 1

    def _list(self, model: type[Model], path: str, **params: object) -> list[Model]:
        return list(self._answers.pages(model, path, params))


def _id(job: Job) -> str:
    return job.id if isinstance(job, JobView) else job


def _of(job: Job) -> str:
    return f"/jobs/{_quoted(_id(job))}"


def _quoted(name: str) -> str:
    """A name as one part of a path."""
    return quote(name, safe="")
