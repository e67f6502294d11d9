"""The answers of the apps' agents in an auction, used as far as they are valid.

An agent that is silent, late or sends an invalid answer must not stall or break an auction: the arbiter's own estimate
for its app is then its bid, and a notice states the reason.
"""

from __future__ import annotations

import numpy as np

from horae.model.arrays import Floats, Ints
from horae.model.decisions import Notice
from horae.model.view import View
from horae.solvers.auction.single_type import Bids

_HAIR = 1e-9


def merge_agent_bids(bids: Bids, apps: Ints, view: View) -> tuple[Notice, ...]:
    """Replace the estimated bids by valid answers of the agents, and return a notice for each invalid one."""
    notices = []
    place = {int(number): index for index, number in enumerate(apps.tolist())}
    for number in view.asked.tolist():
        if number not in place:
            continue  # it has ended meanwhile
        mine = slice(int(bids.first[place[number]]), int(bids.first[place[number] + 1]))
        said = view.bids.get(number)
        if said is None:
            notices.append(Notice(number, "its agent was silent, or late: what is believed of it is its bid"))
            continue
        fault, rho = _read(said, bids.gpus[mine])
        if fault:
            notices.append(Notice(number, f"its agent {fault}: what is believed of it is its bid"))
            continue
        bids.value[mine] = -np.log(rho)
    return tuple(notices)


def _read(said: tuple[tuple[int, ...], tuple[float, ...]], gpus: Ints) -> tuple[str, Floats]:
    """What is wrong with an answer, if anything; and the rho for each number of GPUs that can be won."""
    nothing = np.empty(0)
    counts, rho = np.array(said[0], dtype=np.float64), np.array(said[1], dtype=np.float64)
    if counts.shape != rho.shape or not len(counts) or counts[0] != 0:
        return "gave a bid that does not begin with one for nothing", nothing
    if not np.isfinite(rho).all() or not (rho > 0).all():
        return "gave a rho that is no positive number", nothing
    if not (np.diff(counts) > 0).all():
        return "gave numbers of GPUs that do not grow", nothing
    if (np.diff(rho) > _HAIR * rho[:-1]).any():
        return "gave a rho that grows with more GPUs", nothing
    # For counts that an answer does not name, the value for the next smaller count holds.
    return "", rho[np.searchsorted(counts, gpus, side="right") - 1]
