"""What a page is: a template, and a function that returns its data."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from horae.service.api.identity import Identity
from horae.service.api.services import Services


@dataclass(frozen=True, slots=True)
class View:
    """One request for a page."""

    all_: Services
    who: Identity
    path: Mapping[str, str]  # the parameters in the path
    query: Mapping[str, str]


Data = Callable[[View], Awaitable[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Page:
    name: str  # of the template, and of the module where it has one
    path: str
    title: str
    data: Data
    in_navigation: bool = True
    has_module: bool = True
    is_live: bool = True  # it changes while it is open
