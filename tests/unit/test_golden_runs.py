"""The golden runs: the same digest in every process, another one for another decision, and every policy takes part."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from builders import gpus

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))  # `bench` is not installed

from bench import golden_api  # noqa: E402
from bench.golden import difference, environment  # noqa: E402
from bench.golden_api import gpus_by_node, policy_of  # noqa: E402
from bench.golden_inputs import MIXED  # noqa: E402
from bench.golden_runs import RUNS, GoldenRun, Input  # noqa: E402
from bench.golden_side import Vacuous, check, digest_of, run_one  # noqa: E402
from horae.policies.registry import POLICIES, find_policy  # noqa: E402

FAST = ("sjf-events-retries-cancellations", "yarn-cs-rounds-reclaim-racks")


def run_named(name: str) -> GoldenRun:
    return next(run for run in RUNS if run.name == name)


def digest_in_a_process(name: str, hash_seed: str) -> str:
    command = [sys.executable, "-m", "bench.golden_side", name]
    variables = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONHASHSEED": hash_seed}
    said = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True, check=True).stdout
    (outcome,) = (json.loads(line) for line in said.splitlines()[1:])
    assert not outcome["error"]
    return str(outcome["digest"])


@pytest.mark.parametrize("name", FAST)
def test_a_run_has_the_same_digest_whatever_the_hash_seed(name: str) -> None:
    assert digest_in_a_process(name, "1") == digest_in_a_process(name, "2")


def test_a_tampered_decision_changes_the_digest_and_the_first_difference_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = run_named(FAST[0])
    before = run_one(run)
    kind: Any = find_policy("sjf")
    decide = kind.decide

    def tampered(policy: object, view: Any) -> Any:
        decision = decide(policy, view)
        return decision._replace(order=decision.order[::-1]) if view.now > 10_000 else decision

    monkeypatch.setattr(kind, "decide", tampered)
    after = run_one(run)
    assert before.digest == digest_of(before.decisions) != after.digest
    told = difference(vars(before), vars(after))
    index = next(n for n, (one, two) in enumerate(zip(before.decisions, after.decisions, strict=False)) if one != two)
    _, at, job, _ = before.decisions[index]
    assert float(at) > 10_000
    assert told.startswith(f"here at {at} s")
    assert job in told


def test_a_run_that_fails_is_reported_with_its_error() -> None:
    def broken() -> Input:
        raise ValueError("no cluster")

    outcome = run_one(GoldenRun("broken", broken, {}))
    assert "ValueError: no cluster" in outcome.error
    assert "here ValueError: no cluster" in difference(vars(outcome), vars(outcome))


@pytest.mark.parametrize(("tally", "is_vacuous"), [({"starts": 9}, True), ({}, True), ({"starts": 10}, False)])
def test_a_run_in_which_too_little_happens_is_an_error(tally: Mapping[str, int], is_vacuous: bool) -> None:
    if not is_vacuous:
        check(tally, {"starts": 10})
        return
    with pytest.raises(Vacuous, match="of 10"):
        check(tally, {"starts": 10})


def test_gpus_are_named_alike_by_position_and_by_node() -> None:
    named = [("v0", 7), ("v1", 0), ("v1", 1)]
    assert gpus_by_node(MIXED, (7, 8, 9)) == named
    assert gpus_by_node(MIXED, gpus("v1", 0, 1) + gpus("v0", 7)) == named


def test_there_are_forty_runs_with_names_of_their_own_and_minimums() -> None:
    assert len({run.name for run in RUNS}) == len(RUNS) == 40
    assert all(run.at_least["finished"] > 50 for run in RUNS)


def test_every_registered_policy_takes_part() -> None:
    used = set()
    for run in RUNS:
        given = run.make()
        used |= {pool.policy for pool in given.setup.pools}
        used |= {getattr(event, "policy", "") for event in given.outside}
    assert set(POLICIES) - {"priority", "slurm"} <= used  # which older checkouts do not have


def test_an_older_checkout_knows_some_policies_as_options_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    given = {"lease_seconds": 600.0}
    assert policy_of("themis-slaq", given) == ("themis-slaq", given)
    older = {name: kind for name, kind in POLICIES.items() if name != "gandiva-time-slicing"}
    monkeypatch.setattr(golden_api, "POLICIES", older)
    assert policy_of("themis-slaq", given) == ("slaq", {"variant": "themis-paper", **given})
    assert policy_of("slaq", {}) == ("slaq", {})


def test_another_state_of_the_sources_has_kernels_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "horae").mkdir()
    (tmp_path / "horae" / "kernel.py").write_text("from numba import njit\n")
    part = tmp_path / "horae" / "part.py"
    part.write_text("PART = 1\n")
    before = environment(tmp_path)["NUMBA_CACHE_DIR"]
    part.write_text("PART = 2\n")
    assert environment(tmp_path)["NUMBA_CACHE_DIR"] != before
