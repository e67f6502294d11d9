"""`horae policy`: lists policies and describes their options."""

from __future__ import annotations

import inspect
import json
import re
import sys
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from horae.cli.output import Output, OutputFormat, console
from horae.cli.text import examples, printable
from horae.model.errors import PolicyError
from horae.model.view import Policy
from horae.policies.registry import POLICIES, find_policy, installed, option_defaults

ls_app = typer.Typer(add_completion=False)
show_app = typer.Typer(add_completion=False)


@ls_app.command(epilog=examples("horae policy ls", "horae policy ls -o json"))
def ls(output: Output = OutputFormat.TABLE) -> None:
    """List all policies, those of other packages too."""
    kinds = dict(POLICIES)
    rejected = []
    for point in installed():
        try:
            kinds[point.name] = find_policy(point.name)
        except PolicyError as error:
            rejected.append(f"rejected {point.name}: {error}")
    if output is OutputFormat.JSON:
        print(json.dumps([_plain(kind) for kind in kinds.values()], indent=2))
    else:
        table = Table("policy", "what it does", "options", "from")
        for kind in kinds.values():
            options = ", ".join(f"{key}: {_yaml(value)}" for key, value in option_defaults(kind).items())
            table.add_row(*map(escape, (kind.name, _summary(kind), options, _origin(kind))))
        console().print(table)
    for line in rejected:
        print(printable(line), file=sys.stderr)


@show_app.command(epilog=examples("horae policy show tiresias", "horae policy show max-min -o json"))
def show(
    name: Annotated[str, typer.Argument(help="The name of a policy.")],
    output: Output = OutputFormat.TABLE,
) -> None:
    """Describe one policy and its options."""
    kind = find_policy(name)
    if output is OutputFormat.JSON:
        print(json.dumps(_plain(kind), indent=2))
        return
    print(f"{kind.name}\n\n{_description(kind)}\n")
    meanings = _meanings(kind)
    for key, value in option_defaults(kind).items():
        print(f"  {key}: {_yaml(value)}" + (f"  ({meanings[key]})" if key in meanings else ""))
    example = next(iter(option_defaults(kind).items()), None)
    if example is not None:
        print(f"\nuse it as --policy '{kind.name}={{{example[0]}: {_yaml(example[1])}}}', or without options")


def _plain(kind: type[Policy]) -> dict[str, object]:
    meanings = _meanings(kind)
    options = {
        key: {"default": list(value) if isinstance(value, tuple) else value, "meaning": meanings.get(key, "")}
        for key, value in option_defaults(kind).items()
    }
    return {"name": kind.name, "description": _description(kind), "options": options, "from": _origin(kind)}


def _description(kind: type[Policy]) -> str:
    """The description of a policy: the docstring of its class, or else of its module."""
    module = inspect.getmodule(kind)
    own = kind.__doc__ or ""
    if own.startswith(f"{kind.__name__}("):
        own = ""  # made up by dataclass
    return inspect.cleandoc(own or (module.__doc__ if module else "") or "It does not say.")


def _summary(kind: type[Policy]) -> str:
    """The first sentence of a policy's description."""
    text = " ".join(_description(kind).partition("\n\n")[0].split())
    return re.split(r"(?<=[a-z)])\. ", text)[0].rstrip(".")


def _meanings(kind: type[Policy]) -> dict[str, str]:
    """By option, also of a base class: the comment behind it, which is where its meaning is written."""
    try:
        source = "".join(inspect.getsource(each) for each in kind.__mro__[-2::-1])
    except (OSError, TypeError, AttributeError):  # a factory is no class
        return {}
    return dict(re.findall(r"^    (\w+): .*?=.*?  # (.+)$", source, re.MULTILINE))


def _origin(kind: type[Policy]) -> str:
    return kind.__module__.partition(".")[0]


def _yaml(value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case float():
            return f"{value:g}"
        case tuple():
            return f"[{', '.join(_yaml(item) for item in value)}]"
        case dict():
            return "{" + ", ".join(f"{key}: {_yaml(item)}" for key, item in value.items()) + "}"
    return str(value)
