"""All policies by name. A policy is made from its name and options, which is also how a journal records it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields

from horae.model.errors import PolicyError
from horae.model.view import Policy
from horae.policies.equal_share import EqualShare
from horae.policies.fifo import Fifo
from horae.policies.highest_rho import HighestRho
from horae.policies.las import Las
from horae.policies.sjf import Sjf
from horae.policies.tiresias import Tiresias

POLICIES: dict[str, type[Policy]] = {
    policy.name: policy for policy in (Fifo, Sjf, Las, Tiresias, EqualShare, HighestRho)
}


def make_policy(name: str, options: Mapping[str, object] | None = None) -> Policy:
    if name not in POLICIES:
        raise PolicyError(f"there is no policy {name!r}", field="policy", remedy=f"choose one of {', '.join(POLICIES)}")
    kind = POLICIES[name]
    defaults = {item.name: item.default for item in fields(kind) if item.default is not MISSING}  # type: ignore[arg-type]
    values = {}
    for key, value in (options or {}).items():
        if key not in defaults:
            known = ", ".join(defaults) or "none"
            raise PolicyError(f"policy {name!r} has no option {key!r}", field="policy", remedy=f"it takes: {known}")
        values[key] = _like(name, key, value, defaults[key])
    return kind(**values)


def _like(policy: str, key: str, value: object, default: object) -> object:
    """The value in the type of the option's default; anything else is the user's mistake."""
    match default, value:
        case bool(), bool():
            return value
        case float(), int() | float() if not isinstance(value, bool):
            return float(value)
        case tuple(), list() | tuple() if all(isinstance(item, int | float) for item in value):
            return tuple(float(item) for item in value)
    kind = {bool: "true or false", float: "a number", tuple: "a list of numbers"}[type(default)]
    raise PolicyError(f"option {key!r} of policy {policy!r} is {value!r}", field="policy", remedy=f"give {kind}")
