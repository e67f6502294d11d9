"""What the registry says of policies that are called otherwise now, or are part of another package."""

from __future__ import annotations

from pathlib import Path

import pytest

from horae.cells.binding import CellBinding
from horae.model.errors import PolicyError
from horae.policies import registry
from horae.policies.registry import make_policy
from horae.traces.clusters.file import read_cluster

OWN_RULES = "policy 'gandiva' has no option 'variant: own'; it is now the policy 'gandiva-time-slicing'"
WITH_ERRORS = "it is now the policy 'themis-with-errors' of the package horae-evaluation"
RENAMED: dict[str, tuple[str, dict[str, object], str]] = {
    "gandiva's own rules": ("gandiva", {"slice_seconds": 30.0, "variant": "own"}, OWN_RULES),
    **{
        f"{name} as in the evaluation of Themis": (
            name,
            {"lease_seconds": 60.0, "variant": "themis-paper"},
            f"policy '{name}' has no option 'variant: themis-paper'; "
            f"it is now the policy 'themis-{name}' of the package horae-evaluation",
        )
        for name in ("gandiva", "tiresias", "optimus", "slaq")
    },
    "agents with errors": ("themis", {"noise": 0.1}, f"policy 'themis' has no option 'noise'; {WITH_ERRORS}"),
    "an agent that lies": ("themis", {"liar": 3}, f"policy 'themis' has no option 'liar'; {WITH_ERRORS}"),
    "by how much": ("themis", {"overstates": 0.5}, f"policy 'themis' has no option 'overstates'; {WITH_ERRORS}"),
    "another variant": (
        "gandiva",
        {"variant": "gavel"},
        "policy 'gandiva' has no option 'variant'; it takes: packing_min",
    ),
}


@pytest.mark.parametrize(("name", "options", "want"), RENAMED.values(), ids=RENAMED)
def test_an_option_that_became_a_policy_says_which(name: str, options: dict[str, object], want: str) -> None:
    with pytest.raises(PolicyError) as raised:
        make_policy(name, options)
    assert str(raised.value) == f"policy: {want}"


def test_a_cluster_file_with_an_old_option_is_told_in_one_line_where(tmp_path: Path) -> None:
    path = tmp_path / "lab.yaml"
    path.write_text("nodes:\n  - {name: a, gpu: A100, gpus: 8}\nspare: {policy: {gandiva: {variant: own}}}\n")
    with pytest.raises(PolicyError) as raised:
        read_cluster(path, make_policy, CellBinding)
    assert str(raised.value) == f"{path}:3: spare.policy: {OWN_RULES}"


@pytest.mark.parametrize("name", sorted({*registry.EVALUATION_POLICIES.values()}))
def test_a_policy_of_the_evaluation_names_its_package_where_that_is_missing(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert make_policy(name).name == name
    monkeypatch.setattr(registry, "_LOADED", {})
    monkeypatch.setattr(registry, "installed", list)
    with pytest.raises(PolicyError) as raised:
        make_policy(name)
    assert str(raised.value) == f"policy: policy '{name}' is not installed; install the package horae-evaluation"
