"""All policies by name. A policy is made from its name and options, which is also how a journal records it.

Policies of other packages are found by entry point, in the group `horae.policies`; each is checked when first
requested.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points
from math import isnan
from typing import Any

from horae.model.errors import PolicyError
from horae.model.safe_text import brief
from horae.model.view import Policy
from horae.policies.allox import Allox
from horae.policies.conformance import check_policy
from horae.policies.cost import MinCost, ThroughputPerDollar
from horae.policies.drf import Drf
from horae.policies.elastic.afs import Afs
from horae.policies.elastic.goodput import Goodput
from horae.policies.elastic.optimus import Optimus
from horae.policies.elastic.slaq import Slaq
from horae.policies.equal_share import EqualShare
from horae.policies.fastest_type_first import FifoOnFastest, SjfOnFastest
from horae.policies.finish_time_fairness import FinishTimeFairness
from horae.policies.gandiva.fair import GandivaFair
from horae.policies.gandiva.random_packing import Gandiva
from horae.policies.gandiva.time_slicing import GandivaTimeSlicing
from horae.policies.gittins import Gittins
from horae.policies.hierarchical import Hierarchical
from horae.policies.makespan import Makespan
from horae.policies.max_min import MaxMin
from horae.policies.partial_allocation import PartialAllocation
from horae.policies.queue_orders import Fifo, Las, Priority, Sjf, Srsf, Srtf
from horae.policies.shockwave import Shockwave
from horae.policies.slurm import Slurm
from horae.policies.themis.highest_rho import HighestRho
from horae.policies.themis.policy import Themis
from horae.policies.tiresias import Tiresias
from horae.policies.total_throughput import TotalThroughput
from horae.policies.yarn_cs import YarnCs

ENTRY_POINTS = "horae.policies"

POLICIES: dict[str, type[Policy]] = {
    policy.name: policy
    for policy in (
        Fifo,
        Sjf,
        Srtf,
        Srsf,
        Las,
        Tiresias,
        Gittins,
        Priority,
        Drf,
        YarnCs,
        Slurm,
        EqualShare,
        HighestRho,
        Themis,
        MaxMin,
        FinishTimeFairness,
        Makespan,
        Hierarchical,
        TotalThroughput,
        ThroughputPerDollar,
        MinCost,
        PartialAllocation,
        FifoOnFastest,
        SjfOnFastest,
        Allox,
        Gandiva,
        GandivaTimeSlicing,
        GandivaFair,
        Optimus,
        Slaq,
        Afs,
        Goodput,
        Shockwave,
    )
}
EVALUATION = "horae-evaluation"
# The policies of that package, by what selected them before: a policy, its option and the value, if one value did.
EVALUATION_POLICIES = {
    ("gandiva", "variant", "themis-paper"): "themis-gandiva",
    ("tiresias", "variant", "themis-paper"): "themis-tiresias",
    ("optimus", "variant", "themis-paper"): "themis-optimus",
    ("slaq", "variant", "themis-paper"): "themis-slaq",
    ("themis", "noise", None): "themis-with-errors",
    ("themis", "liar", None): "themis-with-errors",
    ("themis", "overstates", None): "themis-with-errors",
}
_RENAMED = {("gandiva", "variant", "own"): GandivaTimeSlicing.name, **EVALUATION_POLICIES}
_LOADED: dict[str, type[Policy]] = {}  # from other packages, checked


def make_policy(name: str, options: Mapping[str, object] | None = None) -> Policy:
    kind = find_policy(name)
    defaults = option_defaults(kind)
    _check_renamed(name, options or {})
    values = {}
    for key, value in (options or {}).items():
        if key not in defaults:
            known = ", ".join(defaults) or "none"
            raise PolicyError(f"policy {name!r} has no option {key!r}", field="policy", remedy=f"it takes: {known}")
        values[key] = _like(name, key, value, defaults[key])
    return kind(**values)


def _check_renamed(name: str, options: Mapping[str, object]) -> None:
    """Raise if an option selects what is a policy of its own now, also in the journal of an older version."""
    for (policy, key, value), now in _RENAMED.items():
        if name == policy and key in options and value in (None, options[key]):
            what = key if value is None else f"{key}: {value}"
            where = f" of the package {EVALUATION}" if now in EVALUATION_POLICIES.values() else ""
            raise PolicyError(
                f"policy {name!r} has no option '{what}'", field="policy", remedy=f"it is now the policy {now!r}{where}"
            )


def find_policy(name: str) -> type[Policy]:
    if name in POLICIES:
        return POLICIES[name]
    if name not in _LOADED:
        found = next((point for point in installed() if point.name == name), None)
        if found is None and name in EVALUATION_POLICIES.values():
            raise PolicyError(
                f"policy {name!r} is not installed", field="policy", remedy=f"install the package {EVALUATION}"
            )
        if found is None:
            known = [*POLICIES, *(point.name for point in installed())]
            close = get_close_matches(name.lower().replace("_", "-"), known, n=2, cutoff=0.6)
            meant = f"did you mean {' or '.join(close)}? " if close else ""
            remedy = f"{meant}choose one of {', '.join(known)}"
            raise PolicyError(f"there is no policy {name!r}", field="policy", remedy=remedy)
        _LOADED[name] = _load(found)
    return _LOADED[name]


def register_policy(kind: type[Policy]) -> None:
    """Make a policy class known by its name in this process, once it has passed the conformance suite."""
    name = str(getattr(kind, "name", ""))
    known = POLICIES.get(name)
    if known is kind:
        return
    if known is not None and known.__module__.startswith("horae."):
        raise PolicyError(f"there is a policy {name!r} already", field="policy", remedy="give the class another name")
    check_policy(kind)
    POLICIES[name] = kind  # a class that is defined again, as in a notebook, replaces the former one


def uses_lengths(name: str, *, has_limits: bool = False) -> bool:
    """Whether a policy decides by run times, which a real cluster does not know; `has_limits`: all jobs have limits."""
    kind = find_policy(name)
    return bool(getattr(kind, "uses_lengths", False)) and not (has_limits and getattr(kind, "limits_suffice", False))


def installed() -> list[EntryPoint]:
    """The policies of other packages, not loaded yet."""
    return sorted(entry_points(group=ENTRY_POINTS), key=lambda point: point.name)


def option_defaults(kind: type[Policy]) -> dict[str, object]:
    if not is_dataclass(kind):
        return {}
    return {item.name: _default(item) for item in fields(kind) if item.init and _default(item) is not MISSING}


def _default(item: Any) -> object:
    return item.default_factory() if item.default_factory is not MISSING else item.default


def _load(point: EntryPoint) -> type[Policy]:
    """Load a class of another package and check that it is a conforming policy."""
    whose = f"{point.value} of {point.dist.name if point.dist else 'an unknown package'}"
    try:
        kind: type[Policy] = point.load()
    except (Exception, SystemExit) as error:  # a foreign module may raise anything when it is imported
        raise PolicyError(
            f"policy {point.name!r} ({whose}) cannot be imported: {type(error).__name__}: {error}",
            field="policy",
            remedy="fix or remove the package",
        ) from error
    if getattr(kind, "name", None) != point.name:
        raise PolicyError(
            f"policy {point.name!r} ({whose}) calls itself {getattr(kind, 'name', None)!r}",
            field="policy",
            remedy="give the class and its entry point the same name",
        )
    try:
        check_policy(kind)
    except PolicyError as error:
        raise PolicyError(f"{whose}: {error.problem}", field="policy", remedy=error.remedy) from None
    return kind


def _like(policy: str, key: str, value: object, default: object) -> object:
    """The value converted to the type of the option's default; any other type is a user error."""
    match default, value:
        case bool(), bool():
            return value
        case int(), int() if not isinstance(value, bool) and not isinstance(default, bool):
            return value
        case float(), int() | float() | str() if _is_number(value):
            return float(value)
        case str(), str():
            return value
        case tuple(), list() | tuple() if all(_is_number(item) for item in value):
            return tuple(float(item) for item in value)
        case Mapping(), Mapping() if all(_is_number(item) for item in value.values()):
            return {str(name): float(item) for name, item in value.items()}
    raise PolicyError(
        f"option {key!r} of policy {policy!r} is {brief(value)}", field="policy", remedy=f"give {_kind(default)}"
    )


def _is_number(value: Any) -> bool:
    """Whether a value is a number, also as text, because YAML reads 1e3 as a string; `.nan` is none."""
    try:
        return not isinstance(value, bool) and not isnan(float(value))
    except (TypeError, ValueError):
        return False


def _kind(default: object) -> str:
    match default:
        case bool():
            return "true or false"
        case int():
            return "a whole number"
        case float():
            return "a number"
        case str():
            return "a word"
        case tuple():
            return "a list of numbers"
    return "numbers by name: {a: 0.5, b: 0.25}"
