"""The conformance tests themselves: they check what the folder holds, whatever that is."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conformance_folder import FOLDER, missing

TESTS = Path(__file__).parent
GAVEL, HIVED = "gavel/cases.json", "hived/cases.json"
needs_cases = pytest.mark.skipif(bool(missing(GAVEL) or missing(HIVED)), reason=missing(GAVEL) or missing(HIVED))


def outcome(folder: Path, *names: str) -> tuple[dict[str, int], str]:
    """How many tests of these files passed, failed and so on with this folder, and what was printed."""
    finished = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *(str(TESTS / name) for name in names)],
        env={**os.environ, "HORAE_CONFORMANCE": str(folder)},
        cwd=TESTS.parent.parent,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    counts = re.findall(r"(\d+) (passed|failed|skipped|errors?)\b", finished.stdout.splitlines()[-1])
    return {word: int(count) for count, word in counts}, finished.stdout


def write(folder: Path, name: str, content: object) -> None:
    path = folder / name
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(json.dumps(content))


def recorded(name: str) -> Any:
    return json.loads((FOLDER / name).read_text())


@pytest.mark.parametrize("name", ["none", ""], ids=["the folder is missing", "the folder is empty"])
def test_without_cases_all_is_skipped_and_says_why(tmp_path: Path, name: str) -> None:
    counts, said = outcome(tmp_path / name, "test_gavel.py", "test_hived.py", "test_programs.py")
    assert set(counts) == {"skipped"}, said
    assert f"HORAE_CONFORMANCE holds no {GAVEL}: {tmp_path / name}" in said
    assert f"HORAE_CONFORMANCE holds no {HIVED}: {tmp_path / name}" in said


@needs_cases
def test_a_few_cases_are_enough(tmp_path: Path) -> None:
    write(tmp_path, GAVEL, [case for case in recorded(GAVEL) if case["policy"] == "isolated"][:2])
    kept = [each for each in recorded(HIVED)["scenarios"] if each["name"] in ("doc-gang", "invalid-initial-assignment")]
    write(tmp_path, HIVED, {"scenarios": kept})
    shutil.copytree(FOLDER / "hived/configs", tmp_path / "hived/configs")
    counts, said = outcome(tmp_path, "test_gavel.py", "test_hived.py")
    assert (counts["passed"], counts.get("failed", 0)) == (2 + 2 + 2, 0), said  # and one for each whole file


@needs_cases
def test_cases_of_a_kind_that_is_not_known_fail(tmp_path: Path) -> None:
    case = next(case for case in recorded(GAVEL) if case["policy"] == "isolated")
    write(tmp_path, GAVEL, [case, {**case, "policy": "lottery"}])
    first = next(each for each in recorded(HIVED)["scenarios"] if each["name"] == "doc-gang")
    defect = {**first, "name": "upstream-defect-other", "upstreamBug": {"desired": "something else"}}
    strange = {**first, "name": "strange", "steps": [{"op": "dance"}]}
    hopeful = {**first, "name": "hopeful", "steps": [{**first["steps"][0], "expect": {"beauty": 1}}]}
    write(tmp_path, HIVED, {"scenarios": [defect, strange, hopeful]})
    shutil.copytree(FOLDER / "hived/configs", tmp_path / "hived/configs")
    counts, said = outcome(tmp_path, "test_gavel.py", "test_hived.py")
    assert counts["failed"] == 4, said
    for word in ("lottery", "something else", "unknown step dance", "beauty"):
        assert word in said


@needs_cases
def test_a_case_that_is_answered_otherwise_fails(tmp_path: Path) -> None:
    case = next(case for case in recorded(GAVEL) if case["policy"] == "max_min_fairness_perf")
    case["expected"]["objective"] *= 1.001
    write(tmp_path, GAVEL, [case])
    scenario = next(each for each in recorded(HIVED)["scenarios"] if each["name"] == "doc-gang")
    scenario["steps"][0]["expect"]["result"] = (
        "not-bind" if scenario["steps"][0]["expect"]["result"] == "bind" else "bind"
    )
    write(tmp_path, HIVED, {"scenarios": [scenario]})
    shutil.copytree(FOLDER / "hived/configs", tmp_path / "hived/configs")
    counts, said = outcome(tmp_path, "test_gavel.py", "test_hived.py")
    assert counts["failed"] == 2, said
