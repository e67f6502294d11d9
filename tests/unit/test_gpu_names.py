"""Names of GPU types as clusters, Slurm and NVML write them."""

from __future__ import annotations

import pytest

from horae.traces.gpu_names import find_types


@pytest.mark.parametrize(
    ("name", "types", "found"),
    [
        ("H100", ["H100", "h100"], ("H100",)),
        ("h100", ["H100", "A100"], ("H100",)),
        ("NVIDIA H100 80GB HBM3", ["H100"], ("H100",)),
        ("nvidia_h100_80gb_hbm3", ["H100-80GB"], ("H100-80GB",)),
        ("NVIDIA A100-SXM4-80GB", ["A100"], ("A100",)),
        ("Tesla V100-SXM2-16GB", ["v100", "V100-32GB"], ("v100",)),
        ("a100", ["A100-40GB", "A100-80GB", "V100"], ("A100-40GB", "A100-80GB")),
        ("a100_80gb", ["A100-40GB", "A100-80GB"], ("A100-80GB",)),
        ("NVIDIA GeForce RTX 2080 Ti", ["2080ti"], ("2080ti",)),
        ("rtx_a6000", ["A6000"], ("A6000",)),
        ("a100_3g.20gb", ["A100"], ()),
        ("l40s", ["L40"], ()),
        ("a10", ["A100"], ()),
        ("h200", ["gpu"], ("gpu",)),
        ("80GB", ["A100-80GB"], ()),
        ("", ["A100"], ()),
    ],
)
def test_a_name_finds_its_type(name: str, types: list[str], found: tuple[str, ...]) -> None:
    assert find_types(name, types) == found


def test_aliases_of_the_user_come_first() -> None:
    assert find_types("fast", ["H100", "V100"], {"Fast": "H100"}) == ("H100",)
    assert find_types("v100", ["H100", "V100"], {"v100": "H100"}) == ("H100",)
    assert find_types("slow", ["H100", "V100"], {"fast": "H100"}) == ()
