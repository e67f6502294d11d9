"""The reference of the command line, in Markdown, from the commands themselves.

`make docs` puts it into docs/reference/command-line.md; nothing of it is written by hand.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer

from horae.cli.main import app

NOTES = re.compile(r"  \[(?P<notes>[^\[\]]*)\]$")  # what typer adds to the help of a parameter: default, range
KINDS = {"str": "text", "path": "path", "int": "whole number", "float": "number", "bool": ""}


def commands() -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """Every command with its words and its context, groups before what they contain."""
    root: Any = typer.main.get_command(app)
    yield from _below((), root, typer.Context(root, info_name="horae"))


def reference() -> str:
    """One section per command: what it does, how it is called, what it takes."""
    return "\n\n".join(_section(words, command, context) for words, command, context in commands() if words)


def _below(words: tuple[str, ...], command: Any, context: Any) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    yield words, command, context
    if hasattr(command, "list_commands"):
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            yield from _below((*words, name), found, typer.Context(found, info_name=name, parent=context))


def _section(words: tuple[str, ...], command: Any, context: Any) -> str:
    parts = [f"{'#' * (1 + len(words))} horae {' '.join(words)}", _text(command.help or "")]
    if not hasattr(command, "list_commands"):
        usage = command.get_usage(context).removeprefix("Usage: ")
        parts.append(f"```text\n{' '.join(usage.split())}\n```")
        parts.append(_table([each for each in command.get_params(context) if "--help" not in each.opts], context))
    return "\n\n".join(part for part in parts if part)


def _table(parameters: list[Any], context: Any) -> str:
    if not parameters:
        return ""
    rows = [f"| {_names(each)} | {_value(each, context)} | {_meaning(each, context)} |" for each in parameters]
    return "\n".join(["| | value | meaning |", "|---|---|---|", *rows])


def _names(parameter: Any) -> str:
    return ", ".join(f"`{name}`" for name in [*parameter.opts, *parameter.secondary_opts])


def _value(parameter: Any, context: Any) -> str:
    kind = parameter.display_type(context).strip("<>").removesuffix(" range")
    several = re.fullmatch(r"list\[(.*)\]", kind)
    kind = several[1] if several else kind
    if kind in KINDS:
        name = KINDS[kind]
    else:
        choices = [f"`{choice}`" for choice in kind.split("|")]
        name = " or ".join(filter(None, [", ".join(choices[:-1]), choices[-1]]))
    return f"{name}, repeatable" if several else name


def _meaning(parameter: Any, context: Any) -> str:
    _, text = parameter.get_help_record(context)
    found = NOTES.search(text)
    notes = found["notes"].split("; ") if found else []
    said = _text(NOTES.sub("", text))
    return " ".join([said, *(_note(note, parameter) for note in notes)]).replace("|", "&#124;")


def _note(note: str, parameter: Any) -> str:
    name, colon, value = note.partition(": ")
    limits = re.fullmatch(r"(?:(.*)<=)?x(?:<=(.*)|>=(.*))?", note)
    if limits:
        least, most = limits[1] or limits[3], limits[2]
        return f"From {least} to {most}." if least and most else f"At least {least}." if least else f"At most {most}."
    if not colon:
        return f"{note.capitalize()}."
    if f"--{value}" in [*parameter.opts, *parameter.secondary_opts]:
        value = f"--{value}"
    named = value.strip("()") if value.startswith("(") else f"`{value}`"
    return f"{'Environment' if name == 'env var' else name.capitalize()}: {named}."


def _text(text: str) -> str:
    """Help as Markdown: paragraphs stay paragraphs, quoted values and options become code."""
    text = re.sub(r"(?<![\w`])'([^'\s][^']*)'", r"`\1`", text)
    return re.sub(r"(?<![\w`-])(--[a-z][a-z-]+)", r"`\1`", text)


if __name__ == "__main__":
    print(reference())
