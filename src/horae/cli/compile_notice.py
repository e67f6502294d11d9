"""A notice before the first run that compiles kernels, because that takes a minute without output."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import get_type_hints

import horae
from horae.model.decisions import Shares
from horae.policies.registry import POLICIES

PACKAGE = Path(horae.__file__).parent
AUCTION = "themis"
NOTICE = "compiling kernels for the first time, which takes about a minute; later runs find them"


def tell_of_compiling(policies: Iterable[str], tell: Callable[[str], None]) -> None:
    """Announces compilation for policies that use kernels; numba caches the compiled code beside the sources."""
    if not sys.stderr.isatty() or "NUMBA_CACHE_DIR" in os.environ or not any(map(_shares, policies)):
        return
    if not any(PACKAGE.rglob("*.nbc")):
        tell(NOTICE)


def _shares(name: str) -> bool:
    kind = POLICIES.get(name)
    return kind is not None and (name == AUCTION or get_type_hints(kind.decide).get("return") is Shares)
