"""What agents bid, from random pools: more GPUs are never worth less, a restart costs, and a poll is the least bid."""

from __future__ import annotations

from math import inf, log, nan
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from horae.model.arrays import Floats
from horae.model.cluster import CLUSTER, NODE
from horae.model.job_table import JobNumbers, JobTable
from horae.model.jobs import Job
from horae.model.shapes import Option, Shape
from horae.model.status import Status
from horae.model.view import AppColumns, View
from horae.policies.example_views import ACCELERATORS, SHAPES, TENANTS, ExampleView, cases
from horae.policies.themis import valuation
from horae.policies.themis.valuation import AuctionLedger, AuctionTerms, Prospects
from horae.solvers.auction.single_type import GpuBid

SOME = settings(max_examples=settings.default.max_examples // 2)  # type: ignore[union-attr]
LEASE_SECONDS = 1200.0
ON_GPUS = (Status.STARTING, Status.RUNNING, Status.STOPPING)


class Row(NamedTuple):
    """A job, where it stands, and what it has had."""

    app: int
    gpus: int
    seconds: float | None  # that it runs in all; None: unknown
    done_seconds: float = 0.0
    ran_seconds: float = 0.0  # before its present lease
    status: Status = Status.PENDING
    lease_left: float = 0.0
    restart_seconds: float = 0.0
    option: int = 0
    accelerator: str = ACCELERATORS[0]


class Pool(NamedTuple):
    rows: list[Row]
    gpus: int = 16
    now: float = 5000.0
    later_seconds: float = 0.0  # of every second app
    apps_average: float = 3.0

    def view(self) -> View:
        table = JobTable(options=2)
        for serial, row in enumerate(self.rows):
            self._add(table, serial, row)
        apps = max(row.app for row in self.rows) + 1
        floats = np.zeros((5, apps))
        gpus = np.zeros(apps, dtype=np.int64)
        for row in self.rows:
            gpus[row.app] += row.gpus
            floats[0, row.app] += row.gpus * (nan if row.seconds is None else row.seconds)
        floats[2, ::2] = self.later_seconds
        floats[1] = floats[2] * gpus
        floats[3] = -inf
        whole = ExampleView("", self.now, (self.gpus, 8), ()).view()
        return whole._replace(
            jobs=table.view(self.now),
            apps=apps,
            app_seconds=self.now * self.apps_average,
            app=AppColumns(floats[0], gpus, floats[1], floats[2], floats[4], floats[3]),
        )

    def _add(self, table: JobTable, serial: int, row: Row) -> None:
        shapes = [Shape(row.accelerator, row.gpus, level) for level in (NODE, CLUSTER)]
        options = (Option(shapes[0], 2.0), Option(shapes[1], 1.5))
        steps = None if row.seconds is None else 2.0 * row.seconds
        job = Job(f"j{serial}", 0.0, options, steps_total=steps, restart_seconds=row.restart_seconds)
        numbers = tuple(map(SHAPES.index, shapes))
        tenant = row.app % len(TENANTS)
        submitted_at = 100.0 * row.app
        table.add(
            serial, job, JobNumbers(row.app, tenant, 0, 0, numbers, submitted_at, submitted_at * self.apps_average)
        )
        columns, at = table.columns, table.row[serial]
        columns["steps_base"][at] = 2.0 * row.done_seconds
        columns["run_base"][at] = row.ran_seconds
        columns["status"][at] = int(row.status)
        if row.status in ON_GPUS:
            columns["epoch"][at], columns["option"][at], columns["held_gpus"][at] = serial, row.option, row.gpus
            columns["since"][at] = columns["productive_at"][at] = self.now
            columns["lease_until"][at] = self.now + row.lease_left


@st.composite
def rows(draw: st.DrawFn) -> Row:
    seconds = draw(st.none() | st.sampled_from([1.0, 1200.0, 3600.0]) | st.floats(1.0, 1e6))
    done = draw(st.sampled_from([0.0, 0.5, 1.0])) * (seconds or 0.0)
    return Row(
        app=draw(st.integers(0, 4)),
        gpus=draw(st.sampled_from([1, 2, 4, 8])),
        seconds=seconds,
        done_seconds=done,
        ran_seconds=draw(st.sampled_from([0.0, 0.0, 700.0])),
        status=draw(st.sampled_from([*ON_GPUS, Status.RUNNING, Status.HOLDING, Status.PENDING, Status.PENDING])),
        lease_left=draw(st.sampled_from([0.0, 600.0])),
        restart_seconds=draw(st.sampled_from([0.0, 45.0, 2000.0])),
        option=draw(st.integers(0, 1)),
        accelerator=draw(st.sampled_from([ACCELERATORS[0], *ACCELERATORS])),
    )


POOLS = st.builds(
    Pool,
    st.lists(rows(), min_size=1, max_size=12),
    st.sampled_from([0, 1, 16, 256]),
    st.sampled_from([500.0, 5000.0, 1e6]),
    st.sampled_from([0.0, 3600.0]),
    st.sampled_from([1.0, 3.0, 50.0]),
)
TERMS = st.builds(
    AuctionTerms,
    st.sampled_from([60.0, LEASE_SECONDS]),
    st.sampled_from(["paper", "private"]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.sampled_from([0.0, 0.5]),
)


class Asked(NamedTuple):
    books: AuctionLedger
    seen: Prospects
    rho: Floats
    bids: list[GpuBid]  # by app
    before: list[int]  # by app: rows that are served anyway


def ask(view: View, terms: AuctionTerms, option: int | None = None) -> Asked:
    books = valuation.open_books(view, terms)
    options = valuation.option_of(view, books)
    if option is not None:
        options = np.where(books.standing == valuation.WAITS, option, options)
    seen = valuation.prospects(view, books, terms, options)
    bids, before = valuation.bid(books, seen, terms, np.arange(len(books.app)))
    each = [bids.of(app) for app in range(len(books.app))]
    return Asked(books, seen, np.exp(-bids.value[bids.first[:-1]]), each, before.tolist())


def check(asked: Asked) -> None:
    books = asked.books
    for app, bid in enumerate(asked.bids):
        inside = slice(int(books.first[app]), int(books.first[app + 1]))
        standing, gang = books.standing[inside], books.gang[inside]
        contested = (standing == valuation.RENEWS) | (standing == valuation.WAITS)
        assert asked.before[app] == np.count_nonzero(standing == valuation.KEEPS)
        assert bid.gpus.tolist() == [0, *np.cumsum(gang[contested]).tolist()]
        assert np.isfinite(bid.value).all()
        assert (np.diff(bid.value) >= 0).all()
    assert np.isfinite(asked.rho).all()
    assert (asked.rho > 0).all()


@SOME
@given(POOLS, TERMS, st.sampled_from([None, -1, 1]))
def test_bids_begin_with_none_are_finite_and_are_never_worth_less_for_more_gpus(
    pool: Pool, terms: AuctionTerms, option: int | None
) -> None:
    """Whatever level its waiting gangs would get, and where they would get none at all."""
    check(ask(pool.view(), terms, option))


@pytest.mark.parametrize("seed", range(5))
def test_so_are_those_from_every_kind_of_pool_that_a_policy_may_be_shown(seed: int) -> None:
    for case in cases(seed):
        if case.jobs:
            for to_the_end in (False, True):
                check(ask(case.view(), AuctionTerms(LEASE_SECONDS, to_the_end=to_the_end)))


@SOME
@given(POOLS, TERMS, st.floats(0.1, 5.0))
def test_who_says_that_more_is_left_says_that_its_rho_is_higher(pool: Pool, terms: AuctionTerms, factor: float) -> None:
    """Where all lengths are known: the ideal does not change by what an agent says."""
    view = Pool([row._replace(seconds=row.seconds or 500.0) for row in pool.rows], *pool[1:]).view()
    books = valuation.open_books(view, terms)
    lied = valuation.open_books(view, terms, np.full(len(view.app.gpus_max), factor))
    assert lied.ideal_seconds == pytest.approx(books.ideal_seconds)
    options = valuation.option_of(view, books)
    one, other = (polled(each, valuation.prospects(view, each, terms, options), terms) for each in (books, lied))
    assert (other >= one * (1 - 1e-9)).all() if factor >= 1 else (other <= one * (1 + 1e-9)).all()


def polled(books: AuctionLedger, seen: Prospects, terms: AuctionTerms) -> Floats:
    """By app: its rho with what it keeps anyway, which is what its bid for nothing says."""
    bids, _ = valuation.bid(books, seen, terms, np.arange(len(books.app)))
    return np.exp(-bids.value[bids.first[:-1]])


# Restarts


@SOME
@given(
    seconds=st.floats(LEASE_SECONDS * 1.1, 1e6),
    gpus=st.sampled_from([1, 4, 8]),
    restart_seconds=st.floats(1.0, 2000.0),
    others=st.lists(rows(), max_size=5),
    to_the_end=st.booleans(),
)
def test_a_job_that_ran_before_bids_less_than_one_that_never_ran_for_its_restart_counts(
    seconds: float, gpus: int, restart_seconds: float, others: list[Row], to_the_end: bool
) -> None:
    """One that has more than a lease left, and all of it: only the restart is between the two."""
    job = Row(9, gpus, seconds, restart_seconds=restart_seconds)
    fresh, resumed = (Pool([*others, job._replace(ran_seconds=ran)]).view() for ran in (0.0, 500.0))
    terms = AuctionTerms(LEASE_SECONDS, to_the_end=to_the_end)
    one, two = ask(fresh, terms).bids[-1], ask(resumed, terms).bids[-1]
    assert two.gpus.tolist() == one.gpus.tolist() == [0, gpus]
    assert two.value[0] == pytest.approx(one.value[0])
    assert two.value[1] < one.value[1]
    silent = terms._replace(restarts=False)
    assert ask(resumed, silent).bids[-1].value == pytest.approx(ask(fresh, silent).bids[-1].value)


@SOME
@given(POOLS, TERMS)
def test_no_restart_makes_any_bid_worth_more(pool: Pool, terms: AuctionTerms) -> None:
    with_restarts = ask(pool.view(), terms._replace(restarts=True))
    without = ask(pool.view(), terms._replace(restarts=False))
    for one, other in zip(with_restarts.bids, without.bids, strict=True):
        assert (one.value <= other.value + 1e-12).all()


def test_a_restart_longer_than_the_lease_is_worth_no_gpu() -> None:
    job = Row(0, 1, 1e5, ran_seconds=100.0, restart_seconds=LEASE_SECONDS)
    bid = ask(Pool([job]).view(), AuctionTerms(LEASE_SECONDS)).bids[0]
    assert bid.value[1] == bid.value[0]


def test_a_job_that_would_go_on_where_it_is_pays_no_restart() -> None:
    job = Row(0, 1, 1e5, ran_seconds=100.0, restart_seconds=45.0)
    waits = ask(Pool([job]).view(), AuctionTerms(LEASE_SECONDS)).bids[0]
    renews = ask(Pool([job._replace(status=Status.RUNNING)]).view(), AuctionTerms(LEASE_SECONDS)).bids[0]
    assert renews.value[0] == pytest.approx(waits.value[0])
    assert renews.value[1] > waits.value[1]


# By hand


def test_a_bid_worked_out_by_hand() -> None:
    """Two gangs of 4 with 6000 s each on 16 GPUs, two apps on average, age 1000 s: entitled to 8 GPUs.

    The ideal is 48000 GPU-s / 8 GPUs x 2 = 12000 s. With nothing: 1000 + 1200 + 48000 / 8. One gang does 4800 GPU-s in
    a lease, which leaves 43200 / 8; both leave 38400 / 8.
    """
    pool = Pool([Row(0, 4, 6000.0), Row(0, 4, 6000.0)], now=1000.0, apps_average=2.0)
    asked = ask(pool.view(), AuctionTerms(LEASE_SECONDS))
    want = [1000 + 1200 + 6000, 1000 + 1200 + 5400, 1000 + 1200 + 4800]
    assert asked.bids[0].gpus.tolist() == [0, 4, 8]
    assert asked.bids[0].value == pytest.approx([-log(seconds / 12000) for seconds in want])
    assert asked.rho == pytest.approx([8200 / 12000])
    private = ask(pool.view(), AuctionTerms(LEASE_SECONDS, "private"))
    assert private.rho == pytest.approx([8200 / 6000])
