"""Saves frozen values made of arrays, names and numbers as one .npz file, and loads them.

No pickles, no dates: equal values give equal bytes.
"""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from horae.model.errors import InputError

Value = TypeVar("Value")
Arrays = dict[str, NDArray[Any]]

VERSION = 3
_DATE = (1980, 1, 1, 0, 0, 0)  # the earliest date of a zip file


def save(value: object, path: Path) -> None:
    """Saves a value atomically: to a temporary name first, then moved to its place."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with zipfile.ZipFile(beside, "w") as file:
            _write(file, "version", np.array(VERSION))
            for name, array in _flatten(value, ""):
                _write(file, name, array)
        beside.replace(path)
    except OSError as error:
        raise InputError(
            f"cannot be written: {error.strerror}", file=str(path), remedy="name a file in a folder of yours"
        ) from None
    finally:
        beside.unlink(missing_ok=True)


def load(kind: type[Value], path: Path) -> Value:
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays: Arrays = dict(file)
        if int(arrays["version"]) != VERSION:
            raise ValueError
        return _rebuild(kind, arrays, "")
    except OSError as error:
        raise InputError(
            f"cannot be read: {error.strerror or 'it is no log'}", file=str(path), remedy="name the log of a run"
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError, EOFError, zipfile.BadZipFile):
        raise InputError(
            "is not the log of a run, or one of another version", file=str(path), remedy="run it again"
        ) from None


def _write(file: zipfile.ZipFile, name: str, array: NDArray[Any]) -> None:
    page = io.BytesIO()
    npy.write_array(page, np.asarray(array, order="C"), allow_pickle=False)
    # Logs are many and large, and more than the lightest compression saves little.
    file.writestr(zipfile.ZipInfo(f"{name}.npy", _DATE), page.getbuffer(), zipfile.ZIP_DEFLATED, compresslevel=1)


def _flatten(value: object, prefix: str) -> Iterator[tuple[str, NDArray[Any]]]:
    assert is_dataclass(value)
    for each in fields(value):
        item, name = getattr(value, each.name), f"{prefix}{each.name}"
        if is_dataclass(item):
            yield from _flatten(item, f"{name}.")
        elif isinstance(item, tuple):
            # Names concatenated, with the end of each: much smaller than an array as wide as the longest.
            encoded = [text.encode() for text in item]
            yield f"{name}.text", np.frombuffer(b"".join(encoded), dtype=np.uint8)
            yield f"{name}.ends", np.cumsum([len(text) for text in encoded], dtype=np.int64)
        else:
            yield name, np.asarray(item)


def _rebuild(kind: type[Value], arrays: Arrays, prefix: str) -> Value:
    hints = get_type_hints(kind)
    made: dict[str, object] = {}
    for each in fields(kind):  # type: ignore[arg-type]
        hint, name = hints[each.name], f"{prefix}{each.name}"
        if is_dataclass(hint):
            made[each.name] = _rebuild(hint, arrays, f"{name}.")  # type: ignore[arg-type]
        elif hint == tuple[str, ...]:
            made[each.name] = _names(arrays[f"{name}.text"], arrays[f"{name}.ends"])
        else:
            made[each.name] = float(arrays[name]) if hint is float else arrays[name]
    return kind(**made)


def _names(text: NDArray[Any], ends: NDArray[Any]) -> tuple[str, ...]:
    joined, stops = text.tobytes(), ends.tolist()
    return tuple([joined[start:stop].decode() for start, stop in zip([0, *stops], stops, strict=False)])
