"""The grants of Gandiva by its own rules: what is to become of whom, in shapes that are named in turn."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from horae.model.arrays import Bools, Floats, Ints
from horae.model.table import NOBODY
from horae.model.view import View
from horae.policies.gandiva_packing import Company
from horae.policies.gandiva_room import Field, options_of


class Plan(NamedTuple):
    """What is to become of whom."""

    pairs: Company  # that go on or begin
    gpus: Ints  # by row: how many it is given, with its partner or alone; 0: nothing for now
    target: dict[int, int]  # by row: the option to which it moves
    rank: Ints  # by row: its class; the lowest is served first
    crowded: Bools  # by row: its GPU type is over-subscribed
    moves: bool  # somebody who runs moves where there is room for all: others may follow


def asked_for(view: View, field: Field) -> Bools:
    """By row and option: a gang of the size that it asked for, of any type; anything where there is no such."""
    jobs = view.jobs
    accepted: Bools = jobs.shape >= 0
    asked = accepted & (view.shape_gpus[jobs.shape] == field.gang[:, None])
    return np.where(asked.any(axis=1, keepdims=True), asked, accepted)


def named(view: View, field: Field, plan: Plan, order: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Row, option, partner and its option of the grants, best first: the fastest of each first, but what it has."""
    jobs, kinds = view.jobs, field.ladders.accelerator
    place = np.empty(len(jobs), dtype=np.int64)
    place[order] = np.arange(len(order))
    offers = options_of(view, kinds, plan.gpus)
    offers[plan.pairs.first] = False
    has = np.flatnonzero(jobs.running & (plan.gpus > 0) & (jobs.partner < 0) & (plan.gpus >= jobs.held_gpus))
    has = has[~plan.pairs.members(len(jobs))[has]]
    offers[has, jobs.option[has]] = True  # it keeps that if there is nothing better
    for row, option in plan.target.items():
        offers[row, option] = True
    rows, options = np.nonzero(offers)
    keeps = jobs.running[rows] & (jobs.partner[rows] < 0) & (jobs.option[rows] == options)
    turn = np.where(keeps & (plan.gpus[rows] == jobs.held_gpus[rows]), 1, np.where(keeps, 3, 2))
    turn[[plan.target.get(row) == option for row, option in zip(rows.tolist(), options.tolist(), strict=True)]] = 0
    in_turn = np.lexsort((options, -jobs.speed[rows, options], turn, place[rows]))
    rows, options = rows[in_turn], options[in_turn]
    return _with_pairs(view, field, plan, place, (rows, options))


def _with_pairs(
    view: View, field: Field, plan: Plan, place: Ints, alone: tuple[Ints, Ints]
) -> tuple[Ints, Ints, Ints, Ints]:
    """The same with the pairs that are served: each with its fastest options, then with wider levels."""
    row, option = alone
    partner = partner_option = np.full(len(row), NOBODY)
    jobs, found = view.jobs, []
    options = options_of(view, field.ladders.accelerator, field.gang)
    for first, second in zip(plan.pairs.first.tolist(), plan.pairs.second.tolist(), strict=True):
        if plan.gpus[first]:
            ways = [_fastest_first(jobs.speed[each], options[each]) for each in (first, second)]
            if jobs.running[first] and jobs.partner[first] == second:
                ways = [[int(jobs.option[first]), *ways[0]], [int(jobs.option[second]), *ways[1]]]
            for step in range(max(map(len, ways))):
                mine, other = (way[min(step, len(way) - 1)] for way in ways)
                found.append((first, mine, second, other))
    if not found:
        return row, option, partner, partner_option
    columns = zip((row, option, partner, partner_option), zip(*found, strict=True), strict=True)
    row, option, partner, partner_option = (np.append(column, more).astype(np.int64) for column, more in columns)
    in_turn = np.argsort(place[row], kind="stable")
    return row[in_turn], option[in_turn], partner[in_turn], partner_option[in_turn]


def _fastest_first(speed: Floats, named: Bools) -> list[int]:
    options = np.flatnonzero(named)
    fastest: list[int] = options[np.argsort(-speed[options], kind="stable")].tolist()
    return fastest
