"""The distribution: its names, its version, no dependencies, syntax of Python 3.8."""

from __future__ import annotations

import ast
import sys
import tomllib
from pathlib import Path

import horae_sdk
import pytest

FOLDER = Path(__file__).parents[1]
MODULES = sorted((FOLDER / "src/horae_sdk").glob("*.py"))


def test_public_names() -> None:
    assert horae_sdk.__all__ == ["init", "Run", "PREEMPTED", "__version__"]
    assert horae_sdk.PREEMPTED == 75


def test_the_version_is_that_of_the_distribution() -> None:
    project = tomllib.loads((FOLDER / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == horae_sdk.__version__
    assert project["dependencies"] == []
    assert project["requires-python"] == ">=3.8"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_python_3_8_can_read_it_and_nothing_else_is_imported(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 8))
    imported = {
        name.partition(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert imported <= {*sys.stdlib_module_names, "horae_sdk"}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_annotations_are_never_evaluated(path: Path) -> None:
    """Python 3.8 has neither `str | None` nor `dict[str, int]`: both are written in annotations only."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    annotated = any(isinstance(node, (ast.arg, ast.AnnAssign)) for node in ast.walk(tree))
    postponed = any(isinstance(node, ast.ImportFrom) and node.module == "__future__" for node in tree.body)
    assert postponed or not annotated
