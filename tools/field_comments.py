"""Fields of values in the reference of the Python interface: the comment beside a field is its description.

Values are named tuples and frozen dataclasses whose fields have comments. This extension of griffe turns these into a
section `Attributes` of the class' docstring.
"""

from __future__ import annotations

from typing import Any

import griffe


class FieldComments(griffe.Extension):
    def on_package(self, *, pkg: griffe.Module, **_: Any) -> None:
        for module in _modules(pkg):
            for cls in module.classes.values():
                if not cls.is_alias and cls.docstring and _is_value(cls):
                    _describe(cls)


def _modules(module: griffe.Module) -> list[griffe.Module]:
    below = [each for each in module.modules.values() if not each.is_alias]
    return [module, *(found for each in below for found in _modules(each))]


def _is_value(cls: griffe.Class) -> bool:
    return "dataclass" in cls.labels or any(str(base) == "NamedTuple" for base in cls.bases)


def _describe(cls: griffe.Class) -> None:
    lines = [line.rstrip() for line in cls.lines_collection[cls.filepath]]
    described = [
        f"    {name}: {comment}"
        for name, field in cls.attributes.items()
        if not name.startswith("_") and "property" not in field.labels and (comment := _comment(lines, field))
    ]
    if described and cls.docstring:
        cls.docstring.value += "\n\nAttributes:\n" + "\n".join(described)


def _comment(lines: list[str], field: griffe.Attribute) -> str:
    """The comment at the end of the field's last line, or the comment lines above the field."""
    if field.lineno is None or field.endlineno is None:
        return ""
    _, found, comment = lines[field.endlineno - 1].partition("  # ")
    if found:
        return comment
    above: list[str] = []
    for line in reversed(lines[: field.lineno - 1]):
        if not line.lstrip().startswith("# "):
            break
        above.insert(0, line.strip(" #"))
    return " ".join(above)
