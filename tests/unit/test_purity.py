"""The core does not know which engine it has, nor which policy, and asks nobody for the time."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import horae
from horae.policies.registry import POLICIES

ROOT = Path(horae.__file__).parent
CORE = [
    path
    for part in ("model", "cells", "mechanism", "placement", "scheduler")
    for path in sorted((ROOT / part).rglob("*.py"))
]
FORBIDDEN_NAMES = {"engine", "engines", "simulate", "simulated", "LocalEngine", "SimulatedEngine", "FaultyEngine"}


def conditions(tree: ast.AST) -> list[ast.AST]:
    """Everything that a branch in this code depends on."""
    found: list[ast.AST] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.If | ast.IfExp | ast.While | ast.Assert):
            found.append(node.test)
        elif isinstance(node, ast.Match):
            found.append(node.subject)
            found.extend(case.pattern for case in node.cases)
        elif isinstance(node, ast.comprehension):
            found.extend(node.ifs)
    return found


def offences(source: str) -> list[str]:
    """Branches on an engine or on the name of a policy."""
    found = []
    for condition in conditions(ast.parse(source)):
        for node in ast.walk(condition):
            if isinstance(node, ast.Name) and node.id in FORBIDDEN_NAMES:
                found.append(f"line {node.lineno}: {node.id}")
            elif isinstance(node, ast.Constant) and node.value in POLICIES:
                found.append(f"line {node.lineno}: {node.value!r}")
            elif isinstance(node, ast.Attribute) and node.attr == "name" and "policy" in ast.unparse(node.value):
                found.append(f"line {node.lineno}: {ast.unparse(node)}")
    return found


@pytest.mark.parametrize("path", CORE, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_branch_of_the_core_asks_for_the_engine_or_the_policy(path: Path) -> None:
    assert offences(path.read_text()) == []


@pytest.mark.parametrize(
    "source",
    [
        "if simulate: pass",
        "if policy.name == 'x': pass",
        "x = 1 if name == 'fifo' else 2",
        "assert isinstance(a, LocalEngine)",
    ],
)
def test_such_a_branch_would_be_found(source: str) -> None:
    assert offences(source)


def test_imports_run_one_way() -> None:
    lint = Path(sys.executable).with_name("lint-imports")
    result = subprocess.run([lint, "--no-cache"], cwd=ROOT.parents[1], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout
