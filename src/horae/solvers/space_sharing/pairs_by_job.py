"""Distributes the time of classes to their jobs: every job of a class gets the same, in as few pairs as possible.

Jobs that share GPUs at present continue together as far as possible. The rest of the time of two classes is matched in
the order of submission, from the first jobs of both to the last (the north-west corner of a transport problem), in
whole parts of 1 / (jobs x jobs of the other class), so that sums are exact. A class with itself is paired two by two;
of an odd number, the last three take turns.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from horae.model.arrays import Floats, Ints
from horae.model.decisions import Pairs
from horae.model.job_table import NONE
from horae.model.view import View
from horae.solvers.space_sharing.columns import SharingProblem, Together


class _Members(NamedTuple):
    """The jobs of all classes, one class after the other."""

    row: Ints  # in order of submission within a class
    by_couple: Ints  # rows again, those first that share with another of their class now, adjacent
    begin: Ints  # by class: where its jobs begin
    jobs: Ints  # by class: number of jobs
    member: Ints  # by row: its class
    place: Ints  # by row: where it is in `row`
    partner: Ints  # by row: the row with which it shares a lease now, or NONE


class _Dealt(NamedTuple):
    """By pair of jobs: their rows, the number of the column, and their part of its time."""

    first: Ints
    second: Ints
    column: Ints
    part: Floats


def alone_by_job(company: SharingProblem, together: Together) -> Floats:
    """By row and option: the fraction of time that a job runs alone."""
    classes = company.classes
    fraction = np.zeros(classes.choice.shape)
    fraction[company.row, company.option] = together.alone / classes.jobs[company.row]
    return classes.by_job(fraction)


def pairs_by_job(view: View, company: SharingProblem, together: Together) -> Pairs:
    """Pairs of rows, the job submitted first first, in the order of submission."""
    one, other = together.duos.one, together.duos.other
    first, second = company.row[one], company.row[other]
    members = _members(view, company)
    own = np.flatnonzero(first == second)
    dealt = _between(members, np.flatnonzero(first != second), first, second), _within(members, own, first)
    rows, rows_too, column, part = (np.concatenate(both) for both in zip(*dealt, strict=True))
    option, option_too = company.option[one][column], company.option[other][column]
    return _in_order(view, Pairs(rows, rows_too, option, option_too, together.paired[column] * part))


def _in_order(view: View, pairs: Pairs) -> Pairs:
    serial = view.jobs.serial
    swap = serial[pairs.first] > serial[pairs.second]
    first, second = np.where(swap, pairs.second, pairs.first), np.where(swap, pairs.first, pairs.second)
    option = np.where(swap, pairs.second_option, pairs.first_option)
    option_too = np.where(swap, pairs.first_option, pairs.second_option)
    order = np.lexsort((option_too, option, serial[second], serial[first]))
    return Pairs(first[order], second[order], option[order], option_too[order], pairs.fraction[order])


def _members(view: View, company: SharingProblem) -> _Members:
    serial, member, partner = view.jobs.serial, company.classes.member, _partners(view)
    count = company.classes.jobs.astype(np.int64)
    row = np.lexsort((serial, member))
    place = np.empty(len(row), dtype=np.int64)
    place[row] = np.arange(len(row))
    couple = (partner != NONE) & (member[partner] == member)
    leader = np.where(couple, np.minimum(serial, serial[partner]), serial)
    by_couple = np.lexsort((serial, leader, ~couple, member))
    return _Members(row, by_couple, np.cumsum(count) - count, count, member, place, partner)


def _partners(view: View) -> Ints:
    epoch = view.jobs.epoch
    partner = np.full(len(epoch), NONE, dtype=np.int64)
    order = np.lexsort((view.jobs.serial, epoch))
    same = np.flatnonzero((epoch[order][1:] == epoch[order][:-1]) & (epoch[order][1:] != NONE))
    partner[order[same]], partner[order[same + 1]] = order[same + 1], order[same]
    return partner


def _runs(begin: Ints, count: Ints) -> tuple[Ints, Ints]:
    """Consecutive runs of numbers, and for each number the run that it is in."""
    run = np.repeat(np.arange(len(count)), count)
    return begin[run] + np.arange(len(run)) - (np.cumsum(count) - count)[run], run


def _between(members: _Members, columns: Ints, first: Ints, second: Ints) -> _Dealt:
    """Pairs between two classes; both have the same amount per column, so one sweep covers all columns."""
    one, other = first[columns], second[columns]
    jobs, jobs_too = members.jobs[one], members.jobs[other]
    share = np.minimum(jobs, jobs_too)
    (place, column), (place_too, column_too) = _runs(members.begin[one], jobs), _runs(members.begin[other], jobs_too)
    rows, rows_too = members.row[place], members.row[place_too]
    partner = members.partner[rows]
    faithful = np.flatnonzero((partner != NONE) & (members.member[partner] == other[column]))
    mine, mate = column[faithful], partner[faithful]
    where = members.place[mate] - members.begin[other[mine]] + (np.cumsum(jobs_too) - jobs_too)[mine]
    left, left_too = jobs_too[column], jobs[column_too]
    left[faithful] -= share[mine]
    left_too[where] -= share[mine]
    edge, edge_too = np.cumsum(left), np.cumsum(left_too)
    cut = np.unique(np.concatenate([[0], edge, edge_too]))
    corner = np.searchsorted(edge, cut[:-1], side="right")
    corner_too = np.searchsorted(edge_too, cut[:-1], side="right")
    number = np.concatenate([mine, column[corner]])
    parts = np.concatenate([share[mine], np.diff(cut)]) / (jobs * jobs_too)[number]
    return _Dealt(
        np.concatenate([rows[faithful], rows[corner]]),
        np.concatenate([mate, rows_too[corner_too]]),
        columns[number],
        parts,
    )


def _within(members: _Members, columns: Ints, first: Ints) -> _Dealt:
    """Pairs within a class."""
    own = first[columns]
    place, run = _runs(members.begin[own], members.jobs[own])
    count, nth = members.jobs[own][run], place - members.begin[own][run]
    in_turns = (count % 2 == 1) & (nth >= count - 3)
    leads = np.flatnonzero(in_turns | (nth % 2 == 0))
    place, run, in_turns, count = place[leads], run[leads], in_turns[leads], count[leads]
    follower = np.where(in_turns & (nth[leads] == count - 1), place - 2, place + 1)
    part = np.where(in_turns, 1.0, 2.0) / count
    return _Dealt(members.by_couple[place], members.by_couple[follower], columns[run], part)
