"""Agents of apps in an auction: those who answer are heard, and those who do not cannot stop it."""

from __future__ import annotations

from dataclasses import replace
from math import inf, nan

import pytest
from answering_engine import Agent, AnsweringEngine, Honest
from builders import handle

from horae.experiments.simulate import Run, simulate
from horae.model.cluster import Cluster, Node
from horae.model.commands import CallForBids, Offer
from horae.model.decisions import Grants
from horae.model.events import BidGiven, Event, JobSubmitted, Tick
from horae.model.jobs import Arrival, Job, Truth
from horae.model.plans import Reaction
from horae.model.setup import PoolSpec, Setup
from horae.model.shapes import Option, Shape
from horae.scheduler import Scheduler

Answer = tuple[tuple[int, ...], tuple[float, ...]] | None
OPTIONS = (Option(Shape("V100", 1, "node"), 1.0),)


def app_job(name: str, app: str, at: float, seconds: float) -> Arrival:
    job = Job(name, at, OPTIONS, app=app, steps_total=seconds, restart_seconds=5.0, bids=True)
    return Arrival(job, Truth(seconds, OPTIONS))


JOBS = [
    app_job(f"{app}{index}", app, 10.0 * index, 900.0 + 70 * index) for index in range(4) for app in ("x", "y", "z")
]
SETUP = Setup(
    Cluster("small", (Node("n0", "V100", 3),)),
    (PoolSpec("all", "themis", {"lease_seconds": 300.0, "f": 0.0}, round_seconds=300.0),),
    bid_seconds=2.0,
)


class Says:
    """Always the same kind of answer."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def bid(self, offer: Offer) -> Answer:
        match self.kind:
            case "nan":
                return offer.gpus, (nan,) * len(offer.rho)
            case "infinite":
                return offer.gpus, (inf,) * len(offer.rho)
            case "negative":
                return offer.gpus, tuple(-rho for rho in offer.rho)
            case "growing":
                return offer.gpus, offer.rho[::-1]
            case "without nothing":
                return offer.gpus[1:], offer.rho[1:]
            case "too few numbers":
                return offer.gpus, offer.rho[:-1]
            case "empty":
                return (), ()
        return None


class Notices:
    def __init__(self) -> None:
        self.texts: list[str] = []
        self.calls = 0

    def reacted(self, event: Event, reaction: Reaction) -> None:
        self.calls += sum(isinstance(command, CallForBids) for command in reaction.commands)
        for each in reaction.rounds:
            if isinstance(each.decision, Grants):
                self.texts += [notice.text for notice in each.decision.notices]


def run_with(agents: dict[str, Agent]) -> tuple[Run, Notices]:
    notices = Notices()
    run = simulate(SETUP, JOBS, observers=[notices], wrap=lambda engine: AnsweringEngine(engine, agents))
    assert not run.unfinished
    return run, notices


def ends(run: Run) -> dict[str, float]:
    return dict(zip(run.log.jobs.id, run.log.jobs.ended_at.tolist(), strict=True))


def test_honest_agents_change_nothing_and_nobody_waits_for_them() -> None:
    run, notices = run_with({app: Honest() for app in "xyz"})
    alone = simulate(SETUP, [replace(each, job=replace(each.job, bids=False)) for each in JOBS])
    assert notices.calls > 5
    assert not notices.texts
    assert ends(run) == ends(alone)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("nan", "no positive number"),
        ("infinite", "no positive number"),
        ("negative", "no positive number"),
        ("growing", "grows with more GPUs"),
        ("without nothing", "begin with one for nothing"),
        ("too few numbers", "begin with one for nothing"),
        ("empty", "begin with one for nothing"),
    ],
)
def test_nonsense_gets_the_default_bid_is_told_and_changes_nothing(kind: str, said: str) -> None:
    honest, _ = run_with({app: Honest() for app in "xyz"})
    run, notices = run_with({"x": Says(kind), "y": Honest(), "z": Honest()})
    assert notices.texts
    assert all(said in text for text in notices.texts)
    assert ends(run) == ends(honest)


def test_an_auction_waits_for_silent_agents_as_long_as_was_said_and_no_longer() -> None:
    run, notices = run_with({"x": Says("silent"), "y": Honest(), "z": Honest()})
    assert all("silent, or late" in text for text in notices.texts)
    starts = run.log.leases.started_at
    assert starts.min() == 2.0  # the first auction opened at 0


def test_a_second_answer_and_one_that_is_late_are_ignored() -> None:
    scheduler = Scheduler(SETUP)
    for each in JOBS[:3]:
        handle(scheduler, JobSubmitted(0.0, each.job))
    (call,) = handle(scheduler, Tick(0.0)).commands
    assert isinstance(call, CallForBids)
    assert [offer.app for offer in call.offers] == ["x", "y", "z"]
    answer = BidGiven(0.5, call.auction, "x", (0, 1), (1.0, 0.9))
    handle(scheduler, answer)
    assert scheduler.ignored == 0
    handle(scheduler, answer._replace(rho=(1.0, 0.1)))
    assert scheduler.ignored == 1
    assert not handle(scheduler, Tick(1.0)).commands
    assert scheduler.next_wakeup_at == 2.0
    assert len(handle(scheduler, Tick(2.0)).commands) == 3
    handle(scheduler, answer._replace(at=3.0, app="y"))
    assert scheduler.ignored == 2


def test_who_says_that_it_needs_gpus_more_gets_them() -> None:
    class Needy:
        def bid(self, offer: Offer) -> Answer:
            return offer.gpus, tuple(rho / (1 + 10 * count) for rho, count in zip(offer.rho, offer.gpus, strict=True))

    needy, _ = run_with({"x": Needy(), "y": Honest(), "z": Honest()})
    honest, _ = run_with({app: Honest() for app in "xyz"})
    assert sum(ends(needy)[f"x{index}"] for index in range(4)) < sum(ends(honest)[f"x{index}"] for index in range(4))
