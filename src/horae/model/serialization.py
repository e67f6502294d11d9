"""Converts values to plain data (numbers, strings, lists, dicts) and back, for the journal and the API.

Fields with their default value are omitted. Infinite and missing numbers become strings, because JSON has none.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import Enum
from functools import cache
from math import isfinite
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from horae.model.cluster import Gpu
from horae.model.safe_text import brief

Plain = Any  # None, bool, int, float, str, or lists and dicts of these


def to_plain(value: object) -> Plain:
    match value:
        case None | bool() | str():
            return value
        case Gpu():
            return str(value)
        case Enum():
            return value.value
        case int() | np.integer():
            return int(value)
        case float():
            return float(value) if isfinite(value) else str(value)
        case np.ndarray():
            return array_to_plain(value)
        case np.bool_():
            return bool(value)
        case Mapping():
            return {str(key): to_plain(item) for key, item in value.items()}
        case tuple() if hasattr(value, "_fields"):
            return _fields_of(value)
        case tuple() | list():
            return [to_plain(item) for item in value]
    if dataclasses.is_dataclass(value):
        return _fields_of(value)
    raise TypeError(f"{type(value).__name__} has no plain form")


def array_to_plain(array: NDArray[Any]) -> Plain:
    """An array as a list; with more than one dimension, its shape and the flat values."""
    values = array.ravel().tolist()
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        values = [value if isfinite(value) else str(value) for value in values]
    return values if array.ndim == 1 else {"shape": list(array.shape), "values": values}


def array_from_plain(dtype: Any, plain: Plain) -> NDArray[Any]:
    if isinstance(plain, Mapping):
        return np.array(plain["values"], dtype=dtype).reshape(plain["shape"])
    return np.array(plain, dtype=dtype)


def tagged(value: object) -> Plain:
    """A value of one of several types, with the name of its type."""
    return {"kind": type(value).__name__, **_fields_of(value)}


def untagged(kinds: Any, plain: Plain) -> Any:
    """The value of a tagged form; `kinds` is the union of the types that it may have."""
    fields = dict(plain)
    name = fields.pop("kind")
    for kind in get_args(kinds) or (kinds,):
        if kind.__name__ == name:
            return from_plain(kind, fields)
    raise ValueError(f"{name!r} is not one of {', '.join(kind.__name__ for kind in get_args(kinds))}")


def from_plain(kind: Any, plain: Plain) -> Any:
    """The value of a type from its plain form; raises ValueError, TypeError or KeyError where they do not match."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any or kind is object:
        return plain
    if origin is np.ndarray:
        return array_from_plain(get_args(arguments[1])[0], plain)
    if origin in (Union, UnionType):
        return None if plain is None else _one_of([each for each in arguments if each is not NoneType], plain)
    if origin is tuple:
        return _tuple(arguments, plain)
    if kind is Gpu:
        return Gpu.parse(plain)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {key: from_plain(arguments[1], item) for key, item in plain.items()}
    if kind is float:
        return float(plain)
    if kind in (int, str, bool):
        if type(plain) is not kind:
            raise ValueError(f"{brief(plain)} is not of type {kind.__name__}")
        return plain
    if issubclass(kind, Enum):
        return kind(plain)
    return _record(kind, plain)


def _one_of(kinds: list[Any], plain: Plain) -> Any:
    """A value of one of several types, identified by its tag where there is more than one."""
    if len(kinds) == 1:
        return from_plain(kinds[0], plain)
    return untagged(Union[tuple(kinds)], plain)  # noqa: UP007  a union made at run time


def _tuple(arguments: tuple[Any, ...], plain: Plain) -> tuple[Any, ...]:
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        return tuple(from_plain(arguments[0], item) for item in plain)
    return tuple(from_plain(kind, item) for kind, item in zip(arguments, plain, strict=True))


def _record(kind: Any, plain: Plain) -> Any:
    hints, defaults = _schema(kind)
    unknown = set(plain) - set(hints)
    if unknown:
        raise ValueError(f"{kind.__name__} has no field {sorted(unknown)[0]!r}")
    missing = set(hints) - set(plain) - set(defaults)
    if missing:
        raise ValueError(f"{kind.__name__} lacks {sorted(missing)[0]!r}")
    return kind(**{name: from_plain(hints[name], item) for name, item in plain.items()})


def _fields_of(value: Any) -> dict[str, Plain]:
    kind: type = type(value)
    hints, defaults = _schema(kind)
    plain = {}
    for name in hints:
        item = getattr(value, name)
        if name not in defaults or not _same(item, defaults[name]):
            plain[name] = to_plain(item)
    return plain


def _same(item: object, default: object) -> bool:
    if isinstance(item, np.ndarray):
        return isinstance(default, np.ndarray) and np.array_equal(item, default)
    return type(item) is type(default) and bool(item == default)


@cache
def _schema(kind: type) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields of a type, and their defaults."""
    hints = get_type_hints(kind)
    if not dataclasses.is_dataclass(kind):
        return hints, dict(kind._field_defaults)  # type: ignore[attr-defined]
    fields = [field for field in dataclasses.fields(kind) if field.init]
    defaults = {field.name: field.default for field in fields if field.default is not dataclasses.MISSING}
    for field in fields:
        if field.default_factory is not dataclasses.MISSING:
            defaults[field.name] = field.default_factory()
    return {field.name: hints[field.name] for field in fields}, defaults
