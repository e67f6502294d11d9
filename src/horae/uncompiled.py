"""Kernels as plain Python: what a small call runs instead of compiled code, with results equal to the last bit."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import CellType, FunctionType
from typing import Any

import numpy as np
from numba.core.dispatcher import Dispatcher

_scopes: dict[str, dict[str, Any]] = {}  # by module


def size_of(value: Any) -> int:
    """The number of elements of all arrays in a value."""
    if isinstance(value, np.ndarray):
        return value.size
    return sum(map(size_of, value)) if isinstance(value, tuple) else 0


def plain(kernel: Dispatcher) -> Callable[..., Any]:
    """The function of a kernel, with everything that it calls uncompiled as well."""
    function = _plain(kernel)

    def called(*arguments: Any) -> Any:
        with np.errstate(all="ignore"):  # compiled code does not warn, either
            return _native(function(*arguments))

    return called


def _plain(value: Any) -> Any:
    if not isinstance(value, Dispatcher):
        return value
    function = value.py_func
    closure = function.__closure__ and tuple(CellType(_plain(cell.cell_contents)) for cell in function.__closure__)
    scope = _scope(function.__module__)
    return FunctionType(function.__code__, scope, function.__name__, function.__defaults__, closure)


def _scope(module: str) -> dict[str, Any]:
    """The contents of a module, with its kernels and those that it imports uncompiled."""
    if module not in _scopes:
        scope = _scopes[module] = dict(vars(sys.modules[module]))  # known before it is filled: kernels call each other
        for name, value in scope.items():
            scope[name] = _plain(value)
    return _scopes[module]


def _native(value: Any) -> Any:
    """A result with Python's own numbers where numpy left its scalars: compiled code returns them so."""
    if isinstance(value, np.generic):
        return value.item()
    if not isinstance(value, tuple):
        return value
    items = map(_native, value)
    return type(value)._make(items) if hasattr(value, "_make") else tuple(items)
