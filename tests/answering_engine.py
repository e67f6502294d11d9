"""An engine whose apps have bidding agents: the agents answer calls for bids.

An agent is anything that answers a call. The answer of a remote agent arrives as a separate event; the scheduler cannot
tell the difference, and waits for neither beyond the end of the call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from horae.engines.engine import Engine, Moment
from horae.model.commands import CallForBids, Command, Offer
from horae.model.events import BidGiven, Event


class Agent(Protocol):
    def bid(self, offer: Offer) -> tuple[tuple[int, ...], tuple[float, ...]] | None:
        """Bids for numbers of GPUs, with the rho for each; None: no answer."""
        ...


class Honest:
    """An agent that bids the rho estimated by the scheduler."""

    def bid(self, offer: Offer) -> tuple[tuple[int, ...], tuple[float, ...]] | None:
        return offer.gpus, offer.rho


class AnsweringEngine:
    def __init__(self, engine: Engine, agents: Mapping[str, Agent]) -> None:
        self._engine = engine
        self._agents = agents
        self._now = 0.0

    def wait(self, until: float) -> Moment | None:
        moment = self._engine.wait(until)
        self._now = self._now if moment is None else moment.at
        return moment

    def execute(self, commands: Sequence[Command]) -> Sequence[Event]:
        answers: list[Event] = []
        for call in commands:
            if isinstance(call, CallForBids):
                for offer in call.offers:
                    agent = self._agents.get(offer.app)
                    said = None if agent is None else agent.bid(offer)
                    if said is not None:
                        answers.append(BidGiven(self._now, call.auction, offer.app, *said))
        others = [command for command in commands if not isinstance(command, CallForBids)]
        return [*self._engine.execute(others), *answers]
