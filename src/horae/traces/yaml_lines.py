"""YAML with line numbers, so that an error can say where it is."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from horae.model.errors import InputError
from horae.model.wording import shown
from horae.traces.yaml_tree import compose, construct

Model = TypeVar("Model", bound=BaseModel)
Location = Sequence[str | int]  # e.g. ("nodes", 0, "gpus")
TEXT_BYTES_MAX = 16 << 20  # YAML takes a hundred times its size in memory


@dataclass(frozen=True)
class YamlFile(Generic[Model]):
    """A file as a value, and where in it everything stands."""

    path: Path
    tree: yaml.Node
    value: Model

    def line(self, *location: str | int) -> int:
        return line_of(self.tree, location)

    def place(self, error: InputError, *location: str | int) -> InputError:
        """The same error, told which field of this file it is about."""
        return type(error)(
            error.problem,
            remedy=error.remedy,
            file=str(self.path),
            line=self.line(*location),
            field=".".join(str(part) for part in location),
        )


def read_text(path: Path, remedy: str) -> str:
    """The whole of a text file, with or without a byte-order mark."""
    data = b""
    try:
        with path.open("rb") as file:
            data = file.read(TEXT_BYTES_MAX + 1)
        if len(data) > TEXT_BYTES_MAX:
            problem = f"is larger than {TEXT_BYTES_MAX >> 20} MiB"
            raise InputError(problem, file=str(path), remedy=f"{remedy}; a large job table should be CSV or Parquet")
        return data.decode("utf-8-sig")
    except OSError as error:
        raise InputError(str(error.strerror), file=str(path), remedy=remedy) from None
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError("is not UTF-8 text", file=str(path), line=line, remedy=remedy) from None


def read_yaml(path: Path, model: type[Model]) -> YamlFile[Model]:
    """The file as a value of this model; the first thing that is wrong with it is one clear error."""
    text = read_text(path, "name a YAML file in UTF-8")
    try:
        tree = compose(text)
        if tree is None:
            raise InputError("is empty", remedy=f"give at least {_required(model)}")
        plain = construct(tree)
    except InputError as error:
        raise error.located(file=str(path)) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise InputError(f"not YAML: {error.reason}", file=str(path), line=line, remedy="remove it") from None
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        raise InputError(f"not YAML: {error.problem}", file=str(path), line=line, remedy="mend the syntax") from None
    except (ValueError, RecursionError) as error:  # a date that does not exist, a thousand brackets
        raise InputError(f"not YAML: {error}", file=str(path), remedy="mend the syntax") from None
    try:
        return YamlFile(path, tree, model.model_validate(plain))
    except ValidationError as error:
        raise complain(error, path, tree) from None


def first_complaint(error: ValidationError) -> tuple[ErrorDetails, str, str]:
    """The first field that is wrong, what is wrong with it in words, and the remedy."""
    details = error.errors()[0]
    given = f"is {shown(details['input'])}"
    match details["type"]:
        case "missing":
            return details, "is missing", "add it"
        case "extra_forbidden":
            return details, "is not a known field", "remove it or check its spelling"
        case "value_error":
            problem, _, remedy = str(details["ctx"]["error"]).partition("; ")
            return details, problem, remedy
        case "model_type" | "dict_type":
            return details, given, "give each value a name: {name: value}"
        case "too_short":
            return details, given, f"give at least {details['ctx']['min_length']}"
    return details, given, re.sub("^(Input|String|List)", "it", details["msg"].partition(", unable")[0])


def complain(error: ValidationError, path: Path, tree: yaml.Node, inside: Location = ()) -> InputError:
    """What is wrong with a file, or with the part of it that is at this place."""
    details, problem, remedy = first_complaint(error)
    location = _known(tree, (*inside, *details["loc"]))
    line = line_of(tree, location)
    if details["type"] == "missing":
        location.append(details["loc"][-1])
    field = ".".join(str(part) for part in location)
    return InputError(problem, file=str(path), line=line, field=field, remedy=remedy)


def _known(tree: yaml.Node, location: Location) -> list[str | int]:
    """The parts of a location that stand in the file; pydantic also knows others, e.g. that a key is meant."""
    known: list[str | int] = []
    for part in location:
        found = _child(tree, part)
        if found is not None:
            known.append(part)
            tree = found[1]
    return known


def _required(model: type[BaseModel]) -> str:
    return ", ".join(name for name, field in model.model_fields.items() if field.is_required())


def line_of(tree: yaml.Node, location: Location) -> int:
    """The line of a place in the file, or of the last part of it that exists."""
    line: int = tree.start_mark.line
    for part in location:
        found = _child(tree, part)
        if found is None:
            break
        line, tree = found
    return line + 1


def _child(tree: yaml.Node, part: object) -> tuple[int, yaml.Node] | None:
    """The line on which a part of this node begins (its key, if it has one), and the part."""
    if isinstance(tree, yaml.MappingNode):
        return next(((key.start_mark.line, value) for key, value in tree.value if key.value == str(part)), None)
    if isinstance(tree, yaml.SequenceNode) and isinstance(part, int) and part < len(tree.value):
        item: yaml.Node = tree.value[part]
        return item.start_mark.line, item
    return None
