"""The order of turns, compiled: it is asked every round of every pool that works by shares."""

from __future__ import annotations

import numpy as np
from numba import njit

from horae.model.arrays import Bools, Floats, Ints


@njit(cache=True)
def order_of_turns(
    by_option: Floats, by_job: Floats, numbers: Ints, now: float, elapsed_seconds: float
) -> tuple[Ints, Ints]:
    """Rows and options with a share, or held; whoever is owed most first, and holders count a turn more.

    Ties go by share, then by serial.

    The columns come in three blocks: fraction, deficit, received before this lease and when the shares were computed;
    since when a lease lasts, and the seconds of a turn; the option of the lease (-1: none), whether it is held alone
    (1) or the job has never run (2), and the serial. A call with many arrays, and read-only ones, takes longer than
    what is done here. Sorting by one key after the other, the least important first, is what a stable sort allows.
    """
    fraction, deficit, received_base, received_mark = by_option
    since, turn_seconds = by_job
    held, ahead, serial = numbers
    rows, options = fraction.shape
    claim_row, claim_option = np.empty(rows * options, np.int64), np.empty(rows * options, np.int64)
    owed, part = np.empty(rows * options), np.empty(rows * options)
    count = 0
    for row in np.argsort(serial):
        for option in range(options):
            share = fraction[row, option]
            if share > 0 or (ahead[row] == 1 and held[row] == option):
                received = received_base[row, option] - received_mark[row, option]
                if held[row] == option:
                    received += now - since[row]
                if ahead[row] == 2 or (ahead[row] == 1 and held[row] == option):
                    received -= turn_seconds[row]
                claim_row[count], claim_option[count], part[count] = row, option, -share
                owed[count] = received - deficit[row, option] - share * elapsed_seconds
                count += 1
    order = np.argsort(part[:count], kind="mergesort")
    order = order[np.argsort(owed[:count][order], kind="mergesort")]
    return claim_row[order], claim_option[order]


@njit(cache=True)
def survey(
    row: Ints, option: Ints, held: Ints, movable: Bools, contestable: Bools, epoch: Ints, holder: Ints, usable: Bools
) -> tuple[Ints, Ints]:
    """Positions of the claims that want something new, and by GPU the claim that keeps its holder there.

    What `admit` works out with arrays, for claims that name their options and where nobody shares: `held` is the option
    of each job that runs, -1 for the others.
    """
    unclaimed = np.iinfo(np.int64).max
    keep = np.full(len(held), unclaimed)
    for position in range(len(row) - 1, -1, -1):
        if held[row[position]] == option[position]:
            keep[row[position]] = position
    wanting = np.empty(len(row), np.int64)
    count = 0
    for position in range(len(row)):
        job = row[position]
        if movable[job] and held[job] != option[position] and position < keep[job]:
            wanting[count] = position
            count += 1
    standing = np.full(len(holder), -1)
    jobs = np.flatnonzero(contestable)
    jobs = jobs[np.argsort(epoch[jobs])]
    epochs = epoch[jobs]
    for gpu in range(len(holder)):
        if usable[gpu] and holder[gpu] >= 0:
            place = np.searchsorted(epochs, holder[gpu])
            if place < len(epochs) and epochs[place] == holder[gpu]:
                standing[gpu] = keep[jobs[place]]
    return wanting[:count], standing
