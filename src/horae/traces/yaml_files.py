"""YAML with line numbers, for errors that give their location."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from horae.model.errors import InputError
from horae.model.safe_text import shown

Model = TypeVar("Model", bound=BaseModel)
Location = Sequence[str | int]  # e.g. ("nodes", 0, "gpus")
TEXT_BYTES_MAX = 16 << 20  # YAML takes a hundred times its size in memory


@dataclass(frozen=True)
class YamlFile(Generic[Model]):
    """A file as a value, with the location of everything in it."""

    path: Path
    tree: yaml.Node
    value: Model

    def line(self, *location: str | int) -> int:
        return line_of(self.tree, location)

    def place(self, error: InputError, *location: str | int) -> InputError:
        """The same error, with the field of this file that it is about."""
        return type(error)(
            error.problem,
            remedy=error.remedy,
            file=str(self.path),
            line=self.line(*location),
            field=".".join(str(part) for part in location),
        )


def read_text(path: Path, remedy: str) -> str:
    """The text of a file, with or without a byte-order mark."""
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
    """The file as a value of this model; the first problem in it is raised as one clear error."""
    tree, plain = read_tree(path, _required(model))
    try:
        return YamlFile(path, tree, model.model_validate(plain))
    except ValidationError as error:
        raise complain(error, path, tree) from None


def read_tree(path: Path, required: str) -> tuple[yaml.Node, object]:
    """The file as a tree and as a plain value; `required` names what a file that is empty lacks."""
    text = read_text(path, "name a YAML file in UTF-8")
    try:
        tree = compose(text)
        if tree is None:
            raise InputError("is empty", remedy=f"give at least {required}")
        return tree, construct(tree)
    except InputError as error:
        raise error.located(file=str(path)) from None
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise InputError(f"not YAML: {error.reason}", file=str(path), line=line, remedy="remove it") from None
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        raise InputError(f"not YAML: {error.problem}", file=str(path), line=line, remedy="fix the syntax") from None
    except (ValueError, RecursionError) as error:  # a date that does not exist, a thousand brackets
        raise InputError(f"not YAML: {error}", file=str(path), remedy="fix the syntax") from None


def first_complaint(error: ValidationError) -> tuple[ErrorDetails, str, str]:
    """The first invalid field, what is wrong with it in words, and the remedy."""
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
    """The error for an invalid file, or for the part of it at this location."""
    details, problem, remedy = first_complaint(error)
    location = _known(tree, (*inside, *details["loc"]))
    line = line_of(tree, location)
    if details["type"] == "missing":
        location.append(details["loc"][-1])
    field = ".".join(str(part) for part in location)
    return InputError(problem, file=str(path), line=line, field=field, remedy=remedy)


def _known(tree: yaml.Node, location: Location) -> list[str | int]:
    """The parts of a location that exist in the file; pydantic also adds others, e.g. to mark a key."""
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
    """The line of a location in the file, or of its last part that exists."""
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


# YAML documents as trees of nodes, rejected where values made from them would be dangerous or ambiguous

ALIASED_MAX = 100_000  # values that the aliases of a small document may add to it
NUMBER_CHARACTERS_MAX = 100  # reading one of base 60 (1:30:00) takes time with the square of its length
_TIMESTAMP = "tag:yaml.org,2002:timestamp"
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_UNFINISHED = 0


class _Loader(yaml.SafeLoader):
    """A loader that keeps dates as text, as in CSV: the reader of a field decides how to parse them."""

    yaml_implicit_resolvers = {  # noqa: RUF012 (as the class above has it)
        first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIMESTAMP]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def compose(text: str) -> yaml.Node | None:
    """The document as a tree, None if it is empty.

    A tree that must not become a value is an `InputError` with its line; text that is not YAML raises `yaml.YAMLError`
    or `RecursionError`.
    """
    tree = yaml.compose(text, Loader=_Loader)
    if tree is not None:
        for node in _nodes(tree):
            _check_node(node)
        # Every written value takes about a character, so only aliases can exceed this.
        _expanded(tree, {}, ALIASED_MAX + 2 * len(text))
    return tree


def construct(tree: yaml.Node) -> object:
    """The plain value of a tree; raises `yaml.YAMLError` or `ValueError` where there is none."""
    return yaml.SafeLoader("").construct_document(tree)


def load(text: str) -> object:
    """The plain value of a document, None if it is empty; raises what the two steps raise."""
    tree = compose(text)
    return None if tree is None else construct(tree)


def _nodes(tree: yaml.Node) -> Iterator[yaml.Node]:
    """All nodes as written, each once: with anchors, a document is a graph that may have cycles."""
    seen, waiting = set[int](), [tree]
    while waiting:
        node = waiting.pop()
        if id(node) not in seen:
            seen.add(id(node))
            yield node
            waiting += reversed(_children(node))


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return node.value if isinstance(node, yaml.SequenceNode) else []


def _check_node(node: yaml.Node) -> None:
    if isinstance(node, yaml.MappingNode):
        _refuse_doubled_keys(node)
    elif isinstance(node, yaml.ScalarNode):
        if node.tag in _NUMBERS and len(node.value) > NUMBER_CHARACTERS_MAX:
            problem = f"a number has {len(node.value):,} characters"
            raise InputError(problem, line=_line(node), remedy=f"give at most {NUMBER_CHARACTERS_MAX}")
        if not node.value.isprintable() and any("\ud800" <= letter <= "\udfff" for letter in node.value):
            raise InputError(
                "a text has half a character", line=_line(node), remedy="write \\U0001F600, not \\uD83D\\uDE00"
            )


def _refuse_doubled_keys(mapping: yaml.MappingNode) -> None:
    """Raises an error for duplicate keys, of which YAML would silently keep the last."""
    lines: dict[str, int] = {}
    for key, _ in mapping.value:
        if isinstance(key, yaml.ScalarNode):
            if key.value in lines:
                problem = f"is given twice (line {lines[key.value]})"
                raise InputError(problem, line=_line(key), field=key.value, remedy="give it once")
            lines[key.value] = _line(key)


def _expanded(node: yaml.Node, known: dict[int, int], limit: int) -> int:
    """The number of values that this node stands for once each alias in it is replaced by its target."""
    if id(node) in known:
        count = known[id(node)]
        if count == _UNFINISHED:
            raise InputError("contains itself by an alias", line=_line(node), remedy="write it out")
        return count
    known[id(node)] = _UNFINISHED
    count = 1
    for child in _children(node):
        count += _expanded(child, known, limit)
        if count > limit:
            problem = f"its aliases stand for more than {limit:,} values"
            raise InputError(problem, line=_line(node), remedy="use fewer aliases, or write the values out")
    known[id(node)] = count
    return count


def _line(node: yaml.Node) -> int:
    line: int = node.start_mark.line
    return line + 1
