"""The order of turns, compiled: it is computed every round for every pool that works by shares."""

from __future__ import annotations

import numpy as np

from horae.compiling import kernel, part
from horae.mechanism.pass_rules import kept_by, standings, wanting
from horae.mechanism.turn_rules import head_start, owed_seconds, pays_to_move
from horae.model.arrays import Bools, Floats, Ints

_kept_by, _wanting, _standings = part(kept_by), part(wanting), part(standings)
_owed_seconds, _head_start, _pays_to_move = part(owed_seconds), part(head_start), part(pays_to_move)


@kernel(small=20_000)
def order_of_turns(by_option: Floats, by_job: Floats, numbers: Ints, scales: Floats) -> tuple[Ints, Ints, Bools]:
    """Rows and options with a share, or held, the most owed first; and which of them their jobs would move to.

    The columns come in blocks: fraction, deficit, received before this lease and when the shares were computed, speed;
    since when a lease lasts, the seconds of a turn and of a restart; the option of the lease (-1: none), whether it is
    held alone (1) or the job has never run (2), and the serial; the time, and seconds since the shares were computed.
    Blocks, because a call with many arrays, and read-only ones, takes longer than the computation. Sorting by one key
    after the other, the least important first, is what a stable sort allows.
    """
    fraction, deficit, received_base, received_mark, speed = by_option
    since, turn_seconds, restart_seconds = by_job
    held, ahead, serial = numbers
    now, elapsed_seconds = scales
    rows, options = fraction.shape
    claim_row, claim_option = np.empty(rows * options, np.int64), np.empty(rows * options, np.int64)
    key, part, moves = np.empty(rows * options), np.empty(rows * options), np.zeros(rows * options, np.bool_)
    owed = np.empty(options)
    count = 0
    for row in np.argsort(serial):
        here = held[row]
        for option in range(options):
            received = received_base[row, option] - received_mark[row, option]
            owed[option] = _owed_seconds(deficit[row, option], fraction[row, option], elapsed_seconds, received)
        if here >= 0:
            owed[here] -= now - since[row]
        for option in range(options):
            is_held = ahead[row] == 1 and here == option
            if fraction[row, option] <= 0 and not is_held:
                continue
            claim_row[count], claim_option[count], part[count] = row, option, -fraction[row, option]
            key[count] = -owed[option] - _head_start(is_held, ahead[row] == 2, turn_seconds[row])
            if ahead[row] == 1 and not is_held:
                moves[count] = _pays_to_move(
                    speed[row, option],
                    speed[row, here],
                    turn_seconds[row],
                    restart_seconds[row],
                    owed[option],
                    owed[here],
                )
            count += 1
    order = np.argsort(part[:count], kind="mergesort")
    order = order[np.argsort(key[:count][order], kind="mergesort")]
    return claim_row[order], claim_option[order], moves[order]


@kernel(small=20_000)
def survey(
    row: Ints,
    option: Ints,
    moves: Bools,
    held: Ints,
    movable: Bools,
    contestable: Bools,
    epoch: Ints,
    holder: Ints,
    usable: Bools,
) -> tuple[Bools, Ints]:
    """By claim whether it wants something new, and by GPU the claim that keeps its holder there.

    For claims that name their options and where no jobs share GPUs: `held` is the option of each running job, -1 for
    the others.
    """
    alone = np.zeros(0, np.int64)
    satisfied = held[row] == option
    keep = _kept_by(row, alone, satisfied, len(held))
    return _wanting(row, alone, satisfied, keep, movable, moves), _standings(contestable, epoch, keep, holder, usable)
