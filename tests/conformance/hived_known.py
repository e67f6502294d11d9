"""Where the scheduler differs from HiveD's recorded histories, and why; a difference that is gone must be removed."""

from __future__ import annotations

TOGETHER = "as good: members go to one node where theirs are on several, and guests leave it"
CLOSER = "as good: the gang is in one socket where theirs is spread over two, and guests leave it"
GOOD_HARDWARE = "by design: a rack without bad nodes is bound rather than one without guests"
GUESTS_LEAVE = "as good: guests leave where theirs preempts a job of the tenant"
AS_IN_PRIVATE = (
    "by design: of cells that a private cluster could not tell apart, the first is taken, whatever guests it has"
)
GPUS_NOT_GANGS = "as good: ours disturbs no more GPUs, of more gangs"
RESERVED_ELSEWHERE = "artefact: GPUs reserved for a preempting gang are not recorded, and ours are others"
RETURNS = "by design: a gang that lost its guarantee is still in its tenant's queue, and gets it back before later ones"

# By history and step: why ours waits or preempts more than theirs.
WORSE = {
    "fuzz-7": {22: TOGETHER},
    "fuzz-15": dict.fromkeys((59, 63, 64, 65, 66, 70), TOGETHER),
    "fuzz-29": {50: RETURNS},
    "fuzz-34": {41: GPUS_NOT_GANGS},
    "fuzz-36": {27: GOOD_HARDWARE},
    "fuzz-41": {52: TOGETHER},
    "fuzz-46": {51: RESERVED_ELSEWHERE, 55: TOGETHER},
    "fuzz-78": {54: GPUS_NOT_GANGS},
    "fuzz-91": dict.fromkeys((70, 71, 72), GUESTS_LEAVE),
    "fuzz-105": {**dict.fromkeys((64, 65, 66, 74), AS_IN_PRIVATE), 68: GPUS_NOT_GANGS},
    "fuzz-107": {40: AS_IN_PRIVATE},
    "fuzz-117": {49: TOGETHER},
    "fuzz-118": {39: TOGETHER},
    "fuzz-131": {45: TOGETHER},
    "fuzz-146": {62: CLOSER},
}

# By history: how many gangs are spread farther than theirs.
LESS_LOCAL = {
    **dict.fromkeys(
        ["fuzz-28", "fuzz-45"],
        4,
    ),
    **dict.fromkeys(
        ["fuzz-59"],
        3,
    ),
    **dict.fromkeys(
        ["fuzz-3", "fuzz-15", "fuzz-41", "fuzz-67", "fuzz-73", "fuzz-96", "fuzz-108", "fuzz-121", "fuzz-136"],
        2,
    ),
    **dict.fromkeys(
        [
            "fuzz-0",
            "fuzz-1",
            "fuzz-2",
            "fuzz-9",
            "fuzz-12",
            "fuzz-16",
            "fuzz-21",
            "fuzz-24",
            "fuzz-32",
            "fuzz-34",
            "fuzz-35",
            "fuzz-42",
            "fuzz-43",
            "fuzz-49",
            "fuzz-50",
            "fuzz-55",
            "fuzz-57",
            "fuzz-60",
            "fuzz-63",
            "fuzz-65",
            "fuzz-66",
            "fuzz-71",
            "fuzz-83",
            "fuzz-85",
            "fuzz-93",
            "fuzz-99",
            "fuzz-100",
            "fuzz-101",
            "fuzz-103",
            "fuzz-105",
            "fuzz-106",
            "fuzz-109",
            "fuzz-111",
            "fuzz-113",
            "fuzz-115",
            "fuzz-116",
            "fuzz-117",
            "fuzz-118",
            "fuzz-119",
            "fuzz-120",
            "fuzz-122",
            "fuzz-125",
            "fuzz-126",
            "fuzz-128",
            "fuzz-131",
            "fuzz-133",
            "fuzz-137",
            "fuzz-142",
            "fuzz-143",
            "fuzz-144",
            "fuzz-145",
            "fuzz-146",
        ],
        1,
    ),
}
