"""Synthetic workloads by name. A generator is made from its name and options; the same seed gives the same jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, fields

from horae.model.errors import InputError
from horae.model.safe_text import brief
from horae.traces.generators.base import Generator
from horae.traces.generators.diurnal import Diurnal
from horae.traces.generators.gavel import GavelWorkload
from horae.traces.generators.heavy_tail import HeavyTail
from horae.traces.generators.poisson import Poisson
from horae.traces.generators.themis import ThemisWorkload

GENERATORS: dict[str, type[Generator]] = {
    generator.name: generator for generator in (Poisson, GavelWorkload, ThemisWorkload, Diurnal, HeavyTail)
}

__all__ = [
    "GENERATORS",
    "make_generator",
    "Generator",
    "Poisson",
    "GavelWorkload",
    "ThemisWorkload",
    "Diurnal",
    "HeavyTail",
]

_KINDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a word",
    tuple: "a list of numbers",
    dict: "a table of speeds",
}


def make_generator(name: str, options: Mapping[str, object] | None = None) -> Generator:
    if name not in GENERATORS:
        raise InputError(
            f"there is no generator {name!r}", field="generator", remedy=f"choose one of {', '.join(GENERATORS)}"
        )
    kind = GENERATORS[name]
    defaults = {item.name: _default(item) for item in fields(kind)}  # type: ignore[arg-type]
    values = {}
    for key, value in (options or {}).items():
        if key not in defaults:
            raise InputError(
                f"generator {name!r} has no option {key!r}",
                field="generator",
                remedy=f"it takes: {', '.join(defaults)}",
            )
        values[key] = _like(name, key, value, defaults[key])
    return kind(**values)


def _default(item: Field[object]) -> object:
    return item.default if item.default is not MISSING else {}


def _like(generator: str, key: str, value: object, default: object) -> object:
    """The value converted to the type of the option's default; raises an error for anything else."""
    match default, value:
        case (bool(), bool()) | (str(), str()) | (dict(), Mapping()):
            return value
        case int(), int() if not isinstance(default, bool) and not isinstance(value, bool):
            return value
        case float(), int() | float() if not isinstance(value, bool):
            return float(value)
        case tuple(), list() | tuple() if all(_is_number(item) for item in value):
            is_whole = bool(default) and all(isinstance(item, int) for item in default)
            if not is_whole or all(isinstance(item, int) for item in value):
                return tuple(value) if is_whole else tuple(float(item) for item in value)
    raise InputError(
        f"option {key!r} of generator {generator!r} is {brief(value)}",
        field="generator",
        remedy=f"give {_KINDS[type(default)]}",
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
