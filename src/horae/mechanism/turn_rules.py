"""The rules of turns. `turns` calls them as they are, with columns; `turns_kernel` compiles them for single claims."""

from __future__ import annotations

from horae.model.arrays import Bools, Floats

NEWCOMER = 0.5  # of a turn: the head start of a job that has never run


def owed_seconds(deficit: Floats, fraction: Floats, elapsed_seconds: float, received: Floats) -> Floats:
    """Total seconds owed: from before the shares were computed, plus those due since then less those received."""
    return deficit + fraction * elapsed_seconds - received


def head_start(is_held: Bools, is_new: Bools, turn_seconds: Floats) -> Floats:
    """Seconds by which a claim is ahead: a holder continues for a turn; the first start of a job costs no restart."""
    return is_held * turn_seconds + is_new * turn_seconds * NEWCOMER


def pays_to_move(
    speed: Floats, present: Floats, turn_seconds: Floats, restart_seconds: Floats, owed: Floats, owed_present: Floats
) -> Bools:
    """Whether a job that runs elsewhere is owed more here, and a turn at this speed makes up for the restart."""
    worth = (speed - present) * turn_seconds > restart_seconds * speed
    return worth & (owed > owed_present)
