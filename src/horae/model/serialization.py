"""Converts values to plain data (numbers, strings, lists, dicts) and back, for the journal and the API.

Fields with their default value are omitted. Infinite and missing numbers become strings, because JSON has none.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from enum import Enum
from functools import cache, partial
from math import isfinite
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from horae.model.cluster import Gpu
from horae.model.safe_text import brief

Plain = Any  # None, bool, int, float, str, or lists and dicts of these


def to_plain(value: object) -> Plain:
    return _writer(type(value))(value)


def _choose_writer(kind: Any) -> Callable[[Any], Plain]:
    """How values of a type are converted; decided once, because a service converts every event."""
    rules: tuple[tuple[tuple[type, ...], Callable[[Any], Plain]], ...] = (
        ((NoneType, bool, str), lambda value: value),
        ((Gpu,), str),
        ((Enum,), lambda value: value.value),
        ((int, np.integer), int),
        ((float,), _float_to_plain),
        ((np.ndarray,), array_to_plain),
        ((np.bool_,), bool),
        ((Mapping,), lambda value: {str(key): to_plain(item) for key, item in value.items()}),
    )
    for kinds, convert in rules:
        if issubclass(kind, kinds):
            return convert
    if dataclasses.is_dataclass(kind) or (issubclass(kind, tuple) and hasattr(kind, "_fields")):
        return _fields_of
    if issubclass(kind, tuple | list):
        return lambda value: [to_plain(item) for item in value]
    raise TypeError(f"{kind.__name__} has no plain form")


_writer: Callable[[Any], Callable[[Any], Plain]] = cache(_choose_writer)


def _float_to_plain(value: float) -> Plain:
    return float(value) if isfinite(value) else str(value)


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
    return _reader(kind)(plain)


def _choose_reader(kind: Any) -> Callable[[Plain], Any]:
    """How values of a type are made; decided once, as `_writer`."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind is Any or kind is object:
        return lambda plain: plain
    if origin is np.ndarray:
        dtype = get_args(arguments[1])[0]
        return lambda plain: array_from_plain(dtype, plain)
    if origin in (Union, UnionType):
        return _optional([each for each in arguments if each is not NoneType])
    if origin is tuple:
        return partial(_tuple, arguments)
    if kind is Gpu:
        return Gpu.parse
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return lambda plain: {key: from_plain(arguments[1], item) for key, item in plain.items()}
    if kind is float:
        return float
    if kind in (int, str, bool):
        return partial(_exactly, kind)
    if issubclass(kind, Enum):
        return kind
    return partial(_record, kind)


_reader: Callable[[Any], Callable[[Plain], Any]] = cache(_choose_reader)


def _optional(kinds: list[Any]) -> Callable[[Plain], Any]:
    """A value of one of several types, identified by its tag where there is more than one; or None."""
    union: Any = Union[tuple(kinds)]  # noqa: UP007  a union made at run time
    read = partial(untagged, union) if len(kinds) > 1 else _reader(kinds[0])
    return lambda plain: None if plain is None else read(plain)


def _exactly(kind: type, plain: Plain) -> Any:
    if type(plain) is not kind:
        raise ValueError(f"{brief(plain)} is not of type {kind.__name__}")
    return plain


def _tuple(arguments: tuple[Any, ...], plain: Plain) -> tuple[Any, ...]:
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        return tuple(map(_reader(arguments[0]), plain))
    return tuple(from_plain(kind, item) for kind, item in zip(arguments, plain, strict=True))


def _record(kind: Any, plain: Plain) -> Any:
    hints, defaults = _schema(kind)
    for name in plain:
        if name not in hints:
            raise ValueError(f"{kind.__name__} has no field {name!r}")
    for name in hints:
        if name not in plain and name not in defaults:
            raise ValueError(f"{kind.__name__} lacks {name!r}")
    return kind(**{name: _reader(hints[name])(item) for name, item in plain.items()})


def _fields_of(value: Any) -> dict[str, Plain]:
    # In one loop without calls where possible: a service converts every job and event several times.
    plain: dict[str, Plain] = {}
    for name, default, default_kind in _written(type(value)):
        item = getattr(value, name)
        kind = type(item)
        if kind is default_kind and (np.array_equal(item, default) if kind is np.ndarray else item == default):
            continue
        plain[name] = item if kind in _PLAIN else _writer(kind)(item)
    return plain


_PLAIN = frozenset({str, int, bool, NoneType})


def _fields_with_defaults(kind: Any) -> tuple[tuple[str, Any, type | None], ...]:
    """The fields of a type in order, each with its default and the type of that; None: it has none."""
    hints, defaults = _schema(kind)
    return tuple((name, defaults.get(name), type(defaults[name]) if name in defaults else None) for name in hints)


_written: Callable[[Any], tuple[tuple[str, Any, type | None], ...]] = cache(_fields_with_defaults)


def _read_schema(kind: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The fields of a type, and their defaults."""
    hints = get_type_hints(kind)
    if not dataclasses.is_dataclass(kind):
        return hints, dict(kind._field_defaults)
    fields = [field for field in dataclasses.fields(kind) if field.init]
    defaults = {field.name: field.default for field in fields if field.default is not dataclasses.MISSING}
    for field in fields:
        if field.default_factory is not dataclasses.MISSING:
            defaults[field.name] = field.default_factory()
    return {field.name: hints[field.name] for field in fields}, defaults


_schema: Callable[[Any], tuple[dict[str, Any], dict[str, Any]]] = cache(_read_schema)
