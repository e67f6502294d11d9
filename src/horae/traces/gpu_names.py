"""Names of GPU types: `H100` in a cluster file, `h100` in Slurm, `NVIDIA H100 80GB HBM3` in NVML are the same type.

A name that a job asks for is looked up among the types of a cluster: as it is, by the aliases that the user gave, in
any case, and then without vendor, form factor and memory size, which one of the two may leave out. Where a cluster has
several types of that name, such as A100 with 40 and with 80 GB, a job that asks for `a100` accepts all of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

UNTYPED = "gpu"  # the type of a cluster that names none: it stands for any

_SEPARATORS = re.compile(r"[^a-z0-9.]+")
_LEFT_OUT = re.compile(
    r"nvidia|amd|tesla|geforce|quadro|instinct|generation|gpu|sxm\d*|pcie|nvl|hbm\d*\w?|\d+gb?|[rg]tx"
)


def find_types(name: str, types: Sequence[str], aliases: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """The types of a cluster that a name stands for; none if it has no such type."""
    wanted = name if aliases is None else _alias(name, aliases)
    if wanted in types:
        return (wanted,)
    same = tuple(kind for kind in types if kind.casefold() == wanted.casefold())
    if same:
        return same
    short = short_name(wanted)
    alike = tuple(kind for kind in types if short and short_name(kind) == short and _agree(kind, wanted))
    return alike or ((UNTYPED,) if tuple(types) == (UNTYPED,) else ())


def short_name(name: str) -> str:
    """The name without vendor, form factor and memory size: `a100` for `NVIDIA A100-SXM4-80GB`."""
    return "".join(_parts(name)[0])


def _alias(name: str, aliases: Mapping[str, str]) -> str:
    by_case = {alias.casefold(): kind for alias, kind in aliases.items()}
    return aliases.get(name, by_case.get(name.casefold(), name))


def _agree(one: str, other: str) -> bool:
    """Whether what both names say beyond the short one, such as a memory size, is the same."""
    (_, mine), (_, theirs) = _parts(one), _parts(other)
    sizes = [{part for part in parts if part[0].isdigit()} for parts in (mine, theirs)]
    return not all(sizes) or sizes[0] == sizes[1]


def _parts(name: str) -> tuple[list[str], list[str]]:
    """The parts of a name that tell the type, and those that may be left out."""
    parts = [part for part in _SEPARATORS.split(name.casefold()) if part]
    kept = [part for part in parts if not _LEFT_OUT.fullmatch(part)]
    return kept, [part for part in parts if _LEFT_OUT.fullmatch(part)]
