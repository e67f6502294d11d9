"""Where the scheduler is known to differ from HiveD's records, and why; whatever no longer differs must be removed."""

from __future__ import annotations

# By scenario.
SCENARIOS: dict[str, str] = {}

INSIDE = "fault: a cell is laid on real GPUs in their order, so its first GPUs are used although guests run just there"
GUEST_BLIND = "by design: cells and GPUs are chosen as in a private cluster, where guests are not seen"
TOGETHER = "as good: members go to one node where theirs are on several, at the cost of guests there"
LOST_ANYWAY = "fault: that a gang which must leave anyway costs nothing more is ignored when cells are bound"
GPUS_NOT_GANGS = "as good: ours disturbs no more GPUs, of more gangs"
HELD = "missing: what is held for a preempting gang is not given to one of higher priority; it waits"

# By history and step: why ours is worse there.
WORSE = {
    "fuzz-7": {22: TOGETHER},
    "fuzz-16": {33: INSIDE},
    "fuzz-18": {35: INSIDE},
    "fuzz-20": {37: INSIDE},
    "fuzz-25": {33: GUEST_BLIND},
    "fuzz-29": {55: INSIDE},
    "fuzz-34": {41: GPUS_NOT_GANGS},
    "fuzz-36": {27: GUEST_BLIND, 35: INSIDE},
    "fuzz-43": {27: INSIDE},
    "fuzz-46": {55: TOGETHER},
    "fuzz-53": {24: INSIDE},
    "fuzz-69": {35: GUEST_BLIND, 36: GUEST_BLIND, 37: GUEST_BLIND, 38: GUEST_BLIND},
    "fuzz-73": {18: INSIDE},
    "fuzz-78": {54: GPUS_NOT_GANGS},
    "fuzz-91": {70: GUEST_BLIND, 71: GUEST_BLIND, 72: GUEST_BLIND},
    "fuzz-93": {11: INSIDE},
    "fuzz-97": {68: HELD},
    "fuzz-105": {64: LOST_ANYWAY, 65: LOST_ANYWAY, 66: LOST_ANYWAY, 68: GPUS_NOT_GANGS, 74: LOST_ANYWAY},
    "fuzz-107": {39: INSIDE, 40: GUEST_BLIND},
    "fuzz-110": {41: TOGETHER},
    "fuzz-114": {30: INSIDE},
    "fuzz-118": {39: INSIDE},
    "fuzz-126": {18: INSIDE},
    "fuzz-127": {22: INSIDE, 51: HELD},
    "fuzz-131": {45: INSIDE},
    "fuzz-133": {26: INSIDE},
    "fuzz-139": {57: INSIDE},
    "fuzz-142": {11: INSIDE},
    "fuzz-146": {62: GUEST_BLIND},
    "fuzz-147": {17: GUEST_BLIND},
    "fuzz-149": {17: HELD},
}

# By history: how many gangs are spread farther than theirs.
LESS_LOCAL = {
    **dict.fromkeys(
        ["fuzz-28", "fuzz-45"],
        4,
    ),
    **dict.fromkeys(
        ["fuzz-59", "fuzz-108"],
        3,
    ),
    **dict.fromkeys(
        ["fuzz-3", "fuzz-15", "fuzz-67", "fuzz-73", "fuzz-121", "fuzz-136"],
        2,
    ),
    **dict.fromkeys(
        [
            "fuzz-1",
            "fuzz-9",
            "fuzz-12",
            "fuzz-16",
            "fuzz-21",
            "fuzz-24",
            "fuzz-25",
            "fuzz-32",
            "fuzz-34",
            "fuzz-35",
            "fuzz-42",
            "fuzz-43",
            "fuzz-49",
            "fuzz-50",
            "fuzz-57",
            "fuzz-60",
            "fuzz-63",
            "fuzz-65",
            "fuzz-66",
            "fuzz-71",
            "fuzz-83",
            "fuzz-93",
            "fuzz-96",
            "fuzz-99",
            "fuzz-100",
            "fuzz-101",
            "fuzz-103",
            "fuzz-105",
            "fuzz-106",
            "fuzz-109",
            "fuzz-111",
            "fuzz-115",
            "fuzz-116",
            "fuzz-117",
            "fuzz-118",
            "fuzz-119",
            "fuzz-120",
            "fuzz-122",
            "fuzz-125",
            "fuzz-126",
            "fuzz-131",
            "fuzz-133",
            "fuzz-142",
            "fuzz-143",
            "fuzz-144",
            "fuzz-145",
            "fuzz-146",
        ],
        1,
    ),
}

# Histories that cannot be followed to their end: an adopted lease does not say which of its tenant's types of cells it
# is in, and the scheduler chose another one than the record did; or it reserved other GPUs for a preempting gang.
REFUSED = {
    "fuzz-1",
    "fuzz-4",
    "fuzz-13",
    "fuzz-15",
    "fuzz-25",
    "fuzz-26",
    "fuzz-27",
    "fuzz-33",
    "fuzz-35",
    "fuzz-37",
    "fuzz-39",
    "fuzz-40",
    "fuzz-41",
    "fuzz-43",
    "fuzz-49",
    "fuzz-52",
    "fuzz-56",
    "fuzz-79",
    "fuzz-85",
    "fuzz-101",
    "fuzz-110",
    "fuzz-113",
    "fuzz-117",
    "fuzz-125",
    "fuzz-130",
    "fuzz-137",
    "fuzz-141",
    "fuzz-147",
}
