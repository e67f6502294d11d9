"""A YAML document as a tree of nodes, refused where values made from it would be dangerous or ambiguous."""

from __future__ import annotations

from collections.abc import Iterator

import yaml

from horae.model.errors import InputError

ALIASED_MAX = 100_000  # values that the aliases of a small document may add to it
NUMBER_CHARACTERS_MAX = 100  # reading one of base 60 (1:30:00) takes time with the square of its length
_TIMESTAMP = "tag:yaml.org,2002:timestamp"
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_UNFINISHED = 0


class _Loader(yaml.SafeLoader):
    """Leaves dates as text, as they stand in CSV: the reader of a field knows better what it may be."""

    yaml_implicit_resolvers = {  # noqa: RUF012 (as the class above has it)
        first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIMESTAMP]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def compose(text: str) -> yaml.Node | None:
    """The document as a tree, None if there is nothing in it.

    A tree that no value should be made of is an `InputError` with its line; text that is not YAML raises
    `yaml.YAMLError` or `RecursionError`.
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
    """The plain value of a document, None if there is nothing in it; raises what the two steps raise."""
    tree = compose(text)
    return None if tree is None else construct(tree)


def _nodes(tree: yaml.Node) -> Iterator[yaml.Node]:
    """All nodes as they are written, each once: with anchors, a document is a graph that may have cycles."""
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
    """YAML would silently keep the last of them."""
    lines: dict[str, int] = {}
    for key, _ in mapping.value:
        if isinstance(key, yaml.ScalarNode):
            if key.value in lines:
                problem = f"is given twice (line {lines[key.value]})"
                raise InputError(problem, line=_line(key), field=key.value, remedy="give it once")
            lines[key.value] = _line(key)


def _expanded(node: yaml.Node, known: dict[int, int], limit: int) -> int:
    """How many values this node stands for once each alias in it is replaced by what it names."""
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
