"""An agent that bids for one app in Themis auctions: `python bidding_agent.py APP`.

It waits for calls, and answers each before the deadline with the rho that its app would have with each number of GPUs:
the lower, the better off. This one starts from the scheduler's own estimates and values additional GPUs higher by a
factor; an agent that knows its app computes rho itself. An agent that is late, or whose answer is not valid, does not
stop the auction: the scheduler's estimate is then its bid, and `horae auctions` says why.

The job file of the app says `bids: true`, and the pool of its tenant has the policy `themis`.
"""

from __future__ import annotations

import argparse
import time

import horae
from horae.model.errors import ServiceError

NEVER = 1e6  # for numbers of GPUs with which the app would never finish


def answer(gpus: list[int], rho: list[float | None], eagerness: float) -> tuple[list[int], list[float]]:
    """A valid bid begins with no GPUs, and rho does not grow with more GPUs."""
    estimates = [NEVER if value is None else value for value in rho]
    worst = estimates[0]
    bids = [worst if count == 0 else max(value / eagerness, 1e-6) for count, value in zip(gpus, estimates, strict=True)]
    return gpus, [min(bids[: place + 1]) for place in range(len(bids))]


def main() -> None:
    parser = argparse.ArgumentParser(description="Bid for an app in auctions.")
    parser.add_argument("app")
    parser.add_argument("--eagerness", type=float, default=1.0, help="above 1: additional GPUs are worth more")
    parser.add_argument("--auctions", type=int, default=0, help="end after so many bids; 0: go on")
    options = parser.parse_args()
    last = -1
    bids = 0
    with horae.Client() as client:
        while not options.auctions or bids < options.auctions:
            for call in client.auctions(after=last, wait_seconds=20.0):
                last = max(last, call.auction)
                for offer in call.offers:
                    if options.app in (offer.app, offer.app.partition("/")[2]):
                        gpus, rho = answer(offer.gpus, offer.rho, options.eagerness)
                        bids += 1
                        left = call.closes_at - time.time()
                        try:
                            client.bid(call.auction, offer.app, gpus, rho)
                            print(
                                f"auction {call.auction}: bid for {offer.app}, {left:.1f} s before its end", flush=True
                            )
                        except ServiceError as error:  # too late
                            print(f"auction {call.auction}: {error}", flush=True)


if __name__ == "__main__":
    main()
