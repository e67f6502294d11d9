"""The life cycle of a job: one table of transitions, the only way to change a status."""

from __future__ import annotations

from enum import IntEnum

from horae.model.errors import InvalidTransition


class Status(IntEnum):
    PENDING = 0  # waits for a decision
    HOLDING = 1  # GPUs are held for it until their present holders have left
    STARTING = 2  # the engine was told to start it
    RUNNING = 3
    STOPPING = 4  # told to save its work and exit
    CANCELLING = 5  # told to exit for good
    FINISHED = 6
    FAILED = 7
    CANCELLED = 8
    REFUSED = 9
    SUSPENDED = 10  # suspended by its owner
    BORROWING = 11  # it runs on GPUs outside its tenant's cells, and stays there although the cells have room


class Signal(IntEnum):
    HOLD = 0  # GPUs that other jobs are leaving are held for it
    RELEASE = 1  # they no longer are
    START = 2
    ACKNOWLEDGE = 3  # the engine reports it as running
    STOP = 4
    CANCEL = 5
    LEAVE = 6  # it left its GPUs before its work was done
    FINISH = 7
    FAIL = 8
    SUSPEND = 9
    RESUME = 10
    LEND = 11  # it stays on borrowed GPUs
    RETURN = 12  # it has left them


# As plain integers, because they are compared with integers of the job table very often.
PENDING, HOLDING, STARTING = int(Status.PENDING), int(Status.HOLDING), int(Status.STARTING)
RUNNING, STOPPING, CANCELLING = int(Status.RUNNING), int(Status.STOPPING), int(Status.CANCELLING)

FINAL = frozenset(map(int, (Status.FINISHED, Status.FAILED, Status.CANCELLED, Status.REFUSED)))
ON_GPUS = frozenset({STARTING, RUNNING, STOPPING, CANCELLING})

TRANSITIONS: dict[tuple[Status, Signal], Status] = {
    (Status.PENDING, Signal.HOLD): Status.HOLDING,
    (Status.PENDING, Signal.START): Status.STARTING,
    (Status.PENDING, Signal.CANCEL): Status.CANCELLED,
    (Status.PENDING, Signal.SUSPEND): Status.SUSPENDED,
    (Status.PENDING, Signal.FINISH): Status.FINISHED,  # on borrowed GPUs, as is the next
    (Status.PENDING, Signal.FAIL): Status.FAILED,
    (Status.PENDING, Signal.LEND): Status.BORROWING,
    (Status.BORROWING, Signal.RETURN): Status.PENDING,
    (Status.SUSPENDED, Signal.RESUME): Status.PENDING,
    (Status.SUSPENDED, Signal.CANCEL): Status.CANCELLED,
    (Status.HOLDING, Signal.RELEASE): Status.PENDING,
    (Status.HOLDING, Signal.START): Status.STARTING,
    (Status.HOLDING, Signal.CANCEL): Status.CANCELLED,
    (Status.STARTING, Signal.ACKNOWLEDGE): Status.RUNNING,
    (Status.STARTING, Signal.STOP): Status.STOPPING,
    (Status.STARTING, Signal.CANCEL): Status.CANCELLING,
    (Status.STARTING, Signal.LEAVE): Status.PENDING,
    (Status.STARTING, Signal.FINISH): Status.FINISHED,
    (Status.STARTING, Signal.FAIL): Status.FAILED,
    (Status.RUNNING, Signal.STOP): Status.STOPPING,
    (Status.RUNNING, Signal.CANCEL): Status.CANCELLING,
    (Status.RUNNING, Signal.LEAVE): Status.PENDING,
    (Status.RUNNING, Signal.FINISH): Status.FINISHED,
    (Status.RUNNING, Signal.FAIL): Status.FAILED,
    (Status.STOPPING, Signal.CANCEL): Status.CANCELLING,
    (Status.STOPPING, Signal.LEAVE): Status.PENDING,
    (Status.STOPPING, Signal.FINISH): Status.FINISHED,
    (Status.STOPPING, Signal.FAIL): Status.FAILED,
    (Status.CANCELLING, Signal.LEAVE): Status.CANCELLED,
    (Status.CANCELLING, Signal.FINISH): Status.FINISHED,
    (Status.CANCELLING, Signal.FAIL): Status.CANCELLED,
}


_NOWHERE = -1
_AFTER = [[int(TRANSITIONS.get((status, signal), _NOWHERE)) for signal in Signal] for status in Status]


def after(job: str, status: int, signal: Signal) -> int:
    """The status after a signal; raises an error that names the job and the cause if the transition is invalid."""
    following = _AFTER[status][signal]
    if following == _NOWHERE:
        raise InvalidTransition(job, Status(status).name, signal.name)
    return following
