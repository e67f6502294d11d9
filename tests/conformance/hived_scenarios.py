"""HiveD's recorded scenarios, and what they may expect."""

from __future__ import annotations

from functools import cache
from typing import Any

from conformance_folder import FOLDER, read

FILE = "hived/cases.json"
HIVED = FOLDER / "hived"
DEFECT = "upstream-defect"
EXPECTED = {
    *("result", "victims", "victimsSubsetOf", "nodeNot", "groups", "lazyPreempted", "notLazyPreempted", "vcCells"),
    "cellsOfGroupBefore",
    # These are not part of conformance: which of several equal nodes, and the words of an error.
    *("node", "leafCellIsolation", "errorClass", "message"),
}


@cache
def scenarios() -> dict[str, dict[str, Any]]:
    found = read(FILE)
    return {} if found is None else {each["name"]: each for each in found["scenarios"]}


def check_expectation(expect: dict[str, Any]) -> None:
    assert expect.keys() <= EXPECTED, "these expectations are not known here"


def agrees(result: str, expected: str) -> bool:
    assert expected in ("bind", "wait", "preempt", "error", "not-bind"), f"unknown result {expected}"
    return result != "bind" if expected == "not-bind" else result == expected
