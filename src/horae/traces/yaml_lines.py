"""YAML with line numbers, so that an error can say where it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from horae.model.errors import InputError

Model = TypeVar("Model", bound=BaseModel)


def read_yaml(path: Path, model: type[Model]) -> Model:
    """The file as a value of this model; the first thing that is wrong with it is one clear error."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        problem = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise InputError(str(problem), file=str(path), remedy="name a readable YAML file") from None
    try:
        tree = yaml.compose(text, Loader=yaml.SafeLoader)
        plain = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        raise InputError(f"not YAML: {error.problem}", file=str(path), line=line, remedy="mend the syntax") from None
    except yaml.YAMLError as error:
        raise InputError(f"not YAML: {error}", file=str(path), remedy="mend the syntax") from None
    try:
        return model.model_validate(plain)
    except ValidationError as error:
        raise _first_error(error, path, tree) from None


def _first_error(error: ValidationError, path: Path, tree: yaml.Node | None) -> InputError:
    """The deepest complaint says most: where a field may have several forms, each of them complains."""
    details: ErrorDetails = max(error.errors(), key=lambda item: len(item["loc"]))
    location = [part for part in details["loc"] if not _is_form(part, tree, details["loc"])]
    field = ".".join(str(part) for part in location)
    problem, remedy = _in_words(details)
    return InputError(problem, file=str(path), line=line_of(tree, location), field=field, remedy=remedy)


def _is_form(part: object, tree: yaml.Node | None, location: tuple[int | str, ...]) -> bool:
    """Pydantic names the form of a union that it tried; that is no part of the file."""
    return isinstance(part, str) and (part in ("str", "int", "float") or part.startswith(("dict[", "list[")))


def _in_words(details: ErrorDetails) -> tuple[str, str]:
    given = details.get("input")
    match details["type"]:
        case "missing":
            return "is missing", "add it"
        case "extra_forbidden":
            return "is not a known field", "remove it or check its spelling"
        case "value_error":
            return str(details["ctx"]["error"]), "mend it"
    return f"is {_short(given)}", f"{details['msg'][:1].lower()}{details['msg'][1:]}"


def _short(given: object) -> str:
    text = repr(given)
    return text if len(text) <= 60 else text[:57] + "..."


def line_of(tree: yaml.Node | None, location: list[Any]) -> int:
    """The line of a place in the file, or of the last part of it that exists."""
    if tree is None:
        return 0
    line = tree.start_mark.line + 1
    for part in location:
        child = _child(tree, part)
        if child is None:
            break
        tree = child
        line = tree.start_mark.line + 1
    return line


def _child(tree: yaml.Node, part: object) -> yaml.Node | None:
    if isinstance(tree, yaml.MappingNode):
        return next((value for key, value in tree.value if key.value == str(part)), None)
    if isinstance(tree, yaml.SequenceNode) and isinstance(part, int) and part < len(tree.value):
        item: yaml.Node = tree.value[part]
        return item
    return None
