"""The rules of a pass: which claims are tried, in what order, when one has failed, and what follows from a win.

Plain functions on arrays. `admit` calls them as they are; for clusters and claims of the usual kind the scheduler
compiles them together with those of placement, so they use only the subset of NumPy that numba supports.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from horae.model.arrays import Bools, Ints

NONE = -1  # as in the job table, which compiled code does not import
STAYS = 0
TAKEN = -1
UNCLAIMED = np.iinfo(np.int64).max  # held by a job with no claim: it may stay until another needs the room


class Sides(NamedTuple):
    """The claims, the jobs and the GPUs of a pass, which do not change."""

    row: Ints  # by claim
    partner: Ints  # by claim: the job beside it, NONE where there is none; empty: there are no pairs
    pending: Bools  # by job
    epoch: Ints  # by job
    holder: Ints  # by GPU: the epoch of the lease


class PassState(NamedTuple):
    """The state that changes during a pass."""

    free: Bools  # by GPU
    standing: Ints  # by GPU: the claim that keeps its holder there, or TAKEN; empty: no holder can be preempted
    waiting: Bools  # by claim: to be tried
    refused: Bools  # by claim: it has failed, or another that asks for the same
    won: Bools  # by job
    departure: Ints  # by job: its number among those that leave, from 1, or STAYS
    cause: Ints  # by job: the claim for which it leaves: its own if it moves


def new_pass(jobs: int, free: Bools, standing: Ints, waiting: Bools) -> PassState:
    refused, won = np.zeros(len(waiting), np.bool_), np.zeros(jobs, np.bool_)
    departing = jobs if len(standing) else 0
    return PassState(
        free, standing, waiting, refused, won, np.zeros(departing, np.int64), np.zeros(departing, np.int64)
    )


# Before the pass


def kept_by(row: Ints, partner: Ints, satisfied: Bools, jobs: int) -> Ints:
    """By job: the position of the first claim that keeps it where it is. `satisfied`: claims for what is held."""
    keep = np.full(jobs, UNCLAIMED)
    positions = satisfied.nonzero()[0][::-1]
    keep[row[positions]] = positions
    if len(partner):
        positions = positions[partner[positions] != NONE]
        keep[partner[positions]] = positions
    return keep


def wanting(row: Ints, partner: Ints, satisfied: Bools, keep: Ints, movable: Bools, moves: Bools) -> Bools:
    """By claim: whether it asks for something new. `moves`: claims to which their jobs move in any case.

    A holder gives up nothing for a claim that ranks below the one that keeps it where it is, unless `moves` says so.
    """
    positions = np.arange(len(row))
    wants = movable[row] & ~satisfied & (moves | (positions < keep[row]))
    if len(partner):
        wants &= (partner == NONE) | (movable[partner] & (positions < keep[partner]))
    return wants


def standings(contestable: Bools, epoch: Ints, keep: Ints, holder: Ints, usable: Bools) -> Ints:
    """By GPU: the position of the claim that keeps its holder there; only claims before that may have it."""
    standing = np.full(len(holder), TAKEN)
    jobs = contestable.nonzero()[0]
    if len(jobs):
        jobs = jobs[np.argsort(epoch[jobs])]
        epochs = epoch[jobs]
        held = (usable & (holder != NONE)).nonzero()[0]
        index = np.minimum(np.searchsorted(epochs, holder[held]), len(jobs) - 1)
        known = epochs[index] == holder[held]
        standing[held[known]] = keep[jobs[index[known]]]
    return standing


# The pass


def next_claim(state: PassState, sides: Sides, position: int) -> int:
    """The first claim after this one that is to be tried, for jobs that have not won yet; -1: none."""
    row, partner, waiting, won = sides.row, sides.partner, state.waiting, state.won
    while position + 1 < len(waiting):
        position += 1 + int(waiting[position + 1 :].argmax())
        if not waiting[position]:
            break
        if not won[row[position]] and (len(partner) == 0 or partner[position] == NONE or not won[partner[position]]):
            return position
    return -1


def refuse(state: PassState, kind: Ints, position: int) -> None:
    """Mark a claim as failed, and all that ask for the same: what a claim may use only shrinks during a pass."""
    alike = kind == kind[position]
    state.refused[alike] = True
    state.waiting[alike] = False


def win(state: PassState, sides: Sides, position: int, winners: Ints, gpus: Ints, leaving: Iterable[int]) -> None:
    """Give the winners these GPUs, end the leases on them, and free what the winners held before."""
    state.free[gpus] = False
    state.won[winners] = True
    if len(state.standing) == 0:
        return
    state.standing[gpus] = TAKEN
    for epoch in leaving:
        _displace(state, sides, position, epoch)
    for winner in winners:
        epoch = sides.epoch[winner]
        if epoch != NONE:
            _displace(state, sides, position, epoch)  # its former partner
            _depart(state, sides, position, winner)


def _displace(state: PassState, sides: Sides, position: int, epoch: int) -> None:
    """End a lease: its jobs may try their later claims elsewhere."""
    later = position + 1
    for job in (sides.epoch == epoch).nonzero()[0]:
        if state.won[job] or state.departure[job] != STAYS:
            continue
        _depart(state, sides, position, job)
        mine = sides.row[later:] == job
        if len(sides.partner):  # with a partner only if that one waits or has been displaced
            idle, mate = sides.pending | (state.departure != STAYS), sides.partner[later:]
            mine = (mine & ((mate == NONE) | idle[mate])) | ((mate == job) & idle[sides.row[later:]])
        state.waiting[later:] |= mine & ~state.refused[later:]


def _depart(state: PassState, sides: Sides, position: int, job: int) -> None:
    """Free what the job held, except for what another has won already; a displaced job may still win and move."""
    state.cause[job] = position
    if state.departure[job] != STAYS:
        return
    state.departure[job] = state.departure.max() + 1
    left = (sides.holder == sides.epoch[job]) & (state.standing != TAKEN)
    state.standing[left] = TAKEN
    state.free[left] = True


def leavers(state: PassState) -> Ints:
    """The jobs that leave, in the order in which that was decided."""
    jobs = (state.departure != STAYS).nonzero()[0]
    return jobs[np.argsort(state.departure[jobs])]
