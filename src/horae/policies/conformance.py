"""`check_policy`: the rules that every policy must follow, built-in or external, as a test.

A policy answers for an empty pool and for a crowded one; gives the same answer to the same input, whenever asked and
whatever the order of the rows; leaves its view unchanged; and allocates at most what is available. The suite does not
judge what a policy decides.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from math import isnan
from typing import NoReturn

import numpy as np

from horae.model.arrays import Bools, Floats, Ints
from horae.model.decisions import Decision, Grants, Pairs, Ranking, Shares
from horae.model.errors import PolicyError
from horae.model.job_table import JobColumns
from horae.model.view import Policy, View
from horae.policies.example_views import ExampleView, cases

_TOLERANCE = 1e-6


class PolicyFault(PolicyError):
    """A policy breaks a rule; the message names the rule and the case that shows it."""


def check_policy(policy: Policy | Callable[[], Policy], seed: int = 0) -> None:
    """Raise a PolicyFault that names the first rule which this policy (or the class with its defaults) breaks."""
    try:
        made = policy() if callable(policy) else policy
    except Exception as error:  # a class may raise anything
        raise PolicyFault(
            f"{getattr(policy, '__name__', policy)!r} cannot be made without options: {error}",
            field="policy",
            remedy="give each option a default",
        ) from None
    name = getattr(made, "name", None)
    if not (isinstance(name, str) and name) or not callable(getattr(made, "decide", None)):
        raise PolicyFault(
            f"{type(made).__name__} is no policy: it needs a name and decide(view)",
            field="policy",
            remedy="see horae.model.view.Policy",
        )
    for case in cases(seed):
        _Trial(made, case).run()
    _check_lengths(made, seed)
    _check_travels(made)


def _check_lengths(policy: Policy, seed: int) -> None:
    """Tables mark policies that know run times in advance, so a policy must say that it uses them."""
    if getattr(policy, "uses_lengths", False):
        return
    for case in cases(seed):
        other = case.with_other_lengths()
        one, two = (_by_serial(each.view(), policy.decide(each.view())) for each in (case, other))
        if not _same(one, two):
            raise PolicyFault(
                f"policy {policy.name!r} decides by run times, and does not say so (shown by {case.name})",
                field="policy",
                remedy="add to the class: uses_lengths: ClassVar[bool] = True",
            )


class _Trial:
    """One policy on one case of the suite."""

    def __init__(self, policy: Policy, case: ExampleView) -> None:
        self.policy = policy
        self.case = case

    def run(self) -> None:
        view = self.case.view()
        decision = self._decide(view)
        self._check_untouched(view)
        self._check_form(view, decision)
        self._check_feasible(view, decision)
        again = _by_serial(self.case.view(), self._decide(self.case.view()))
        if not _same(_by_serial(view, decision), again):
            self._fail(
                "is random: asked the same again it answers differently",
                "draw lots from numpy.random.default_rng(view.seed), and keep no history",
            )
        self._check_indifferent(_by_serial(view, decision))

    def _fail(self, fault: str, remedy: str) -> NoReturn:
        raise PolicyFault(
            f"policy {self.policy.name!r} {fault} (shown by {self.case.name})", field="policy", remedy=remedy
        )

    def _decide(self, view: View) -> Decision:
        try:
            return self.policy.decide(view)
        except Exception as error:  # a policy may raise anything
            if "read-only" in str(error):
                self._fail("mutates its view", "work on a copy of the column")
            when = "when empty" if not self.case.jobs else "on a view"
            self._fail(f"fails {when}: {type(error).__name__}: {error}", "answer every pool, the empty one too")

    def _check_untouched(self, view: View) -> None:
        """Check that the view is unchanged: columns are read-only, but values derived from them must be compared."""
        fresh = self.case.view()
        for name in list(vars(view.jobs)):
            if not _equal(getattr(view.jobs, name), getattr(fresh.jobs, name)):
                self._fail(f"mutates its view: jobs.{name.lstrip('_')} has changed", "work on a copy of the column")
        for name in ("capacity", "shape_accelerator", "shape_gpus", "shape_level", "tenant_weight"):
            if not _equal(getattr(view, name), getattr(fresh, name)):
                self._fail(f"mutates its view: {name} has changed", "work on a copy of it")

    def _check_form(self, view: View, decision: Decision) -> None:
        if not isinstance(decision, Ranking | Shares | Grants):
            self._fail(f"answers with {type(decision).__name__}", "answer with Ranking, Shares or Grants")
        if isnan(decision.stands_until):
            self._fail("does not say until when its decision stands", "give a time, or infinity")
        if decision.stands_until < view.now:
            self._fail("says that its decision stands until a time that is past", "give view.now or later")
        if isinstance(decision, Grants):
            self._check_grants(view.jobs, decision)
            self._check_ranking(view.jobs, decision.rest, decision.row)
        elif isinstance(decision, Ranking):
            self._check_ranking(view.jobs, decision, decision.order)
        elif np.shape(decision.fraction) != np.shape(view.jobs.shape):
            self._fail("gives shares of another form than jobs and options", "give one by row and option")

    def _check_grants(self, jobs: JobColumns, grants: Grants) -> None:
        row, option = np.asarray(grants.row), np.asarray(grants.option)
        if not row.shape == option.shape == np.shape(grants.lease_seconds):
            self._fail("grants columns of different lengths", "give a row, an option and a lease for each")
        if len(row) and not (row.min() >= 0 and row.max() < len(jobs)):
            self._fail("grants something to rows that do not exist", "give row numbers of view.jobs")
        exists = (option >= 0) & (option < jobs.shape.shape[1])
        if not exists.all() or (jobs.shape[row, option] < 0).any():
            self._fail("grants a shape that the job does not accept", "name options that it has")
        if not (np.asarray(grants.lease_seconds) >= 0).all() or not grants.rest_lease_seconds >= 0:
            self._fail("grants a lease that is no length of time", "give 0 or more seconds")
        if grants.partner is not None and (
            grants.partner_option is None or not row.shape == grants.partner.shape == grants.partner_option.shape
        ):
            self._fail("grants columns of different lengths", "give a partner and its option for each, -1 for none")

    def _check_ranking(self, jobs: JobColumns, ranking: Ranking, named: Ints) -> None:
        order = np.asarray(ranking.order)
        if order.ndim != 1 or order.dtype.kind not in "iu":
            self._fail("ranks something other than rows", "give an array of row numbers")
        if len(order) and not (order.min() >= 0 and order.max() < len(jobs)):
            self._fail("ranks rows that do not exist", "give row numbers of view.jobs")
        if len(np.unique(order)) < len(order):
            self._fail("over-allocates: it ranks a job twice", "name each job once")
        if ranking.preemptive and not np.isin(np.flatnonzero(jobs.running), np.append(order, named)).all():
            self._fail("preempts and yet does not rank every job that runs", "name them all")
        if ranking.allowed is not None:
            waiting = order[jobs.pending[order]]
            if not (np.asarray(ranking.allowed) & (jobs.shape >= 0))[waiting].any(axis=1).all():
                self._fail("ranks a job and allows it no shape", "leave it out, or allow it one")

    def _check_feasible(self, view: View, decision: Decision) -> None:
        total = int(view.capacity.sum())
        if isinstance(decision, Grants):
            row, first = np.unique(decision.row, return_index=True)
            granted = int(view.shape_gpus[view.jobs.shape[row, decision.option[first]]].sum())
            if granted > total:
                self._fail(f"over-allocates: it grants {granted} of {total} GPUs", "grant no more than there are")
            self._check_company(view, decision)
        if isinstance(decision, Shares) and len(view.jobs):
            self._check_shares(view, self._with_company(view, decision))

    def _check_company(self, view: View, grants: Grants) -> None:
        """Check that jobs granted the same GPUs form a valid pair, and have neither another partner nor GPUs alone."""
        if grants.partner is None or grants.partner_option is None:
            return
        both = grants.partner >= 0
        rows, options = (grants.row[both], grants.partner[both]), (grants.option[both], grants.partner_option[both])
        pairs = Pairs(*rows, *options, np.ones(len(rows[0])))
        if not len(pairs.first):
            return
        self._check_pairs(view, pairs)
        mates = dict(zip(pairs.first.tolist(), pairs.second.tolist(), strict=True))
        named = zip(grants.row.tolist(), grants.partner.tolist(), strict=True)
        if len({*mates, *mates.values()}) < 2 * len(mates) or any(
            row in mates.values() or mates.get(row, other) != other for row, other in named
        ):
            self._fail("grants a job GPUs with two others, or with another and alone", "name it with one partner")

    def _with_company(self, view: View, shares: Shares) -> tuple[Floats, Floats]:
        """By row and option: the time of each job, and the time it is charged for: half each for two that share."""
        time = np.array(shares.fraction, dtype=np.float64)
        paid, pairs = time.copy(), shares.pairs
        if pairs is None or not len(pairs.first):
            return time, paid
        self._check_pairs(view, pairs)
        for row, option in ((pairs.first, pairs.first_option), (pairs.second, pairs.second_option)):
            np.add.at(time, (row, option), pairs.fraction)
            np.add.at(paid, (row, option), pairs.fraction / 2)
        return time, paid

    def _check_pairs(self, view: View, pairs: Pairs) -> None:
        jobs = view.jobs
        shapes = jobs.shape[pairs.first, pairs.first_option], jobs.shape[pairs.second, pairs.second_option]
        if (pairs.first == pairs.second).any():
            self._fail("pairs a job with itself", "pair two jobs")
        if min(shapes[0].min(), shapes[1].min()) < 0 or any(
            (column[shapes[0]] != column[shapes[1]]).any() for column in (view.shape_accelerator, view.shape_gpus)
        ):
            self._fail("pairs jobs of different gangs or GPU types", "pair gangs of one size on one type")
        if not (pairs.fraction >= 0).all():
            self._fail("gives a pair a share that is no fraction of time", "give numbers from 0 to 1")
        both = _keeps(view, pairs.first, pairs.second, shapes[0]) & _keeps(view, pairs.second, pairs.first, shapes[1])
        if not both.all():
            self._fail("pairs jobs that do not fit on the same GPUs", "pair only jobs that both keep some speed")

    def _check_shares(self, view: View, shares: tuple[Floats, Floats]) -> None:
        fraction, paid = shares
        shape = view.jobs.shape
        if not np.isfinite(fraction).all() or (fraction < -_TOLERANCE).any():
            self._fail("gives a share that is no fraction of time", "give numbers from 0 to 1")
        if (fraction[shape < 0] > _TOLERANCE).any():
            self._fail("gives a share of a shape that the job does not accept", "give 0 where jobs.shape is negative")
        if (fraction.sum(axis=1) > 1 + _TOLERANCE).any():
            self._fail("over-allocates: it gives a job more than all of its time", "keep rows at 1 or less")
        gpus = np.where(shape >= 0, paid * view.shape_gpus[shape], 0.0)
        for number, name in enumerate(view.accelerators):
            used = float(gpus[(shape >= 0) & (view.shape_accelerator[shape] == number)].sum())
            if used > view.capacity[number] * (1 + _TOLERANCE) + _TOLERANCE:
                self._fail(
                    f"over-allocates: it gives away {used:g} of {view.capacity[number]} {name} GPUs",
                    "keep the sum of fraction x gang at what there is",
                )

    def _check_indifferent(self, answer: tuple[object, ...]) -> None:
        count = len(self.case.jobs)
        for order in (range(count)[::-1], np.random.default_rng(count).permutation(count).tolist()):
            view = self.case.view(order)
            if not _same(answer, _by_serial(view, self._decide(view))):
                self._fail(
                    "depends on job order: with the rows in another order it answers differently",
                    "break ties by jobs.serial",
                )


def _keeps(view: View, row: Ints, partner: Ints, shape: Ints) -> Bools:
    """By pair: whether the first job keeps some of its speed beside the second."""
    if not view.kept.size:
        return np.zeros(len(row), dtype=np.bool_)
    return view.kept[view.jobs.model[row], view.jobs.model[partner], shape] > 0


def _check_travels(policy: Policy) -> None:
    """Check that a policy can be pickled, because comparisons run in other processes."""
    try:
        pickle.loads(pickle.dumps(policy))
    except Exception as error:  # a policy may hold anything
        raise PolicyFault(
            f"policy {policy.name!r} cannot be sent to another process: {type(error).__name__}: {error}",
            field="policy",
            remedy="define the class at the top of a module, and keep plain values in it",
        ) from None


def _by_serial(view: View, decision: Decision) -> tuple[object, ...]:
    """A decision in terms of serials, which do not depend on the row of a job."""
    serial = view.jobs.serial
    back = np.argsort(serial)
    if isinstance(decision, Shares):
        company = () if decision.pairs is None else _pairs_by_serial(serial, decision.pairs)
        return (np.asarray(decision.fraction, dtype=np.float64)[back], decision.stands_until, *company)
    if isinstance(decision, Grants):
        closed = np.sort(decision.closed_apps), decision.closed_until, decision.rest_lease_seconds
        beside: tuple[object, ...] = ()
        if decision.partner is not None:
            beside = np.where(decision.partner < 0, -1, serial[decision.partner]), decision.partner_option
        grants = serial[decision.row], decision.option, decision.lease_seconds
        return (*grants, *beside, *closed, *_by_serial(view, decision.rest))
    return (
        serial[decision.order],
        np.sort(serial[decision.promoted]),
        None if decision.tier is None else decision.tier[back],
        None if decision.allowed is None else decision.allowed[back],
        decision.preemptive,
        decision.blocking,
        decision.stands_until,
    )


def _pairs_by_serial(serial: Ints, pairs: Pairs) -> tuple[object, ...]:
    swap = serial[pairs.first] > serial[pairs.second]
    rows = np.where(swap, pairs.second, pairs.first), np.where(swap, pairs.first, pairs.second)
    options = (
        np.where(swap, pairs.second_option, pairs.first_option),
        np.where(swap, pairs.first_option, pairs.second_option),
    )
    order = np.lexsort((options[1], options[0], serial[rows[1]], serial[rows[0]]))
    return tuple(column[order] for column in (serial[rows[0]], serial[rows[1]], *options, pairs.fraction))


def _same(one: tuple[object, ...], other: tuple[object, ...]) -> bool:
    return len(one) == len(other) and all(_equal(a, b) for a, b in zip(one, other, strict=True))


def _equal(one: object, other: object) -> bool:
    """Equality up to rounding, because sums may be added in another order."""
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return one.shape == other.shape and np.allclose(one, other, rtol=1e-9, atol=1e-12, equal_nan=True)
    if isinstance(one, dict) and isinstance(other, dict):
        return all(_equal(one[key], other.get(key)) for key in one)
    if isinstance(one, float) and isinstance(other, float):
        return one == other or abs(one - other) <= 1e-9 * abs(one)
    return bool(one == other)
