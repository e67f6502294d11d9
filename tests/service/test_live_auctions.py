"""Auctions through the loop: agents are called, answer or do not, and what came of it is on record."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from builders import cluster
from live_world import LiveEngine, World, run_until_quiet, start_loop, submit
from sqlalchemy import Engine, insert, select

from horae.journal import JournalLines
from horae.model.events import BidGiven, Event
from horae.model.setup import PoolSpec, Setup
from horae.service.loop.loop import Loop
from horae.service.models import JobSpec
from horae.service.store.database import reading, writing
from horae.service.store.schema import auctions, inbox

SETUP = Setup(cluster(1, 2, "A100"), (PoolSpec("all", "themis", {"f": 0.0}),), acknowledge_seconds=5.0, bid_seconds=5.0)


def rows(database: Engine) -> list[Any]:
    with reading(database) as connection:
        return list(connection.execute(select(auctions).order_by(auctions.c.auction, auctions.c.app)).all())


def bid(database: Engine, auction: int, app: str, gpus: list[int], rho: list[float]) -> None:
    line = JournalLines().event(BidGiven(0.0, auction, app, tuple(gpus), tuple(rho)))
    with writing(database) as connection:
        connection.execute(insert(inbox).values(kind="BidGiven", payload=line, wall=0.0))


def called(database: Engine, folder: Path) -> tuple[Loop, LiveEngine, list[str]]:
    """Two apps with agents want both GPUs, and have been called for bids."""
    engine = LiveEngine(World())
    loop = start_loop(database, engine, SETUP, folder)
    run_until_quiet(loop)
    ids = submit(database, *[JobSpec(run="true", gpus=2, steps=100.0, bids=True)] * 2)
    loop.step()
    loop.step()
    assert [(row.app, row.closed_at, row.bid) for row in rows(database)] == [(each, None, None) for each in ids]
    assert not engine.running, "the decision waits for the bids"
    return loop, engine, ids


def test_the_higher_bid_wins_and_is_on_record(database: Engine, tmp_path: Path) -> None:
    loop, engine, ids = called(database, tmp_path)
    (number,) = {row.auction for row in rows(database)}
    bid(database, number, ids[0], [0, 2], [2.0, 1.9])
    bid(database, number, ids[1], [0, 2], [2.0, 0.1])
    bid(database, number, ids[0], [0, 2], [9.0, 0.1])  # a second answer does not count
    before = engine.now()
    run_until_quiet(loop)
    assert list(engine.running) == [ids[1]]
    assert engine.now() - before < SETUP.bid_seconds, "it waits no longer when all have answered"
    first, second = (row for row in rows(database) if row.auction == number)
    assert json.loads(first.bid) == [[0, 2], [2.0, 1.9]]
    assert (first.won_gpus, second.won_gpus) == (0, 2)
    assert first.note == second.note == "" and second.lease_seconds > 0
    assert 0 <= second.payment <= 1


@pytest.mark.parametrize("answer", [None, ([0, 2], [1.0, 5.0]), ([2], [1.0])])
def test_without_a_valid_answer_the_estimate_counts_and_the_decision_does_not_wait(
    answer: tuple[list[int], list[float]] | None, database: Engine, tmp_path: Path
) -> None:
    _, engine, ids = called(database, tmp_path)
    if answer is not None:
        bid(database, 1, ids[0], *answer)
    called_at = rows(database)[0].called_at
    again = start_loop(database, engine, SETUP, tmp_path)  # a restart in the middle of an auction
    replies: Sequence[Event] = ()
    for _ in range(40):
        replies = again.step(replies)
        if engine.running:
            break
    assert len(engine.running) == 1
    row = next(row for row in rows(database) if row.app == ids[0] and row.auction == 1)
    assert row.closed_at is not None and row.closed_at <= called_at + SETUP.bid_seconds + 2.0
    assert ("silent" in row.note) if answer is None else ("gave" in row.note)
    assert "what is believed of it is its bid" in row.note
