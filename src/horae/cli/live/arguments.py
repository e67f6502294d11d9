"""Arguments and options that several commands take."""

from __future__ import annotations

from typing import Annotated, Any, get_args

import typer
from typer.core import TyperCommand

from horae.cli.live.completion import complete_jobs
from horae.model.errors import InputError
from horae.service.models import State

JobArgument = Annotated[
    str, typer.Argument(metavar="JOB", help="The id of a job, or its name.", autocompletion=complete_jobs)
]
JobArguments = Annotated[
    list[str], typer.Argument(metavar="JOB", help="Ids or names of jobs.", autocompletion=complete_jobs)
]
States = Annotated[
    list[str] | None, typer.Option("--state", help="In this state only, e.g. 'pending'; repeat for several.")
]
_COMMAND = "horae.command"


def known_states(states: list[str] | None) -> list[str]:
    """States that exist; several may be in one word, with commas."""
    found = [state for text in states or () for state in text.split(",") if state]
    for state in found:
        if state not in get_args(State):
            raise InputError(f"{state!r} is no state", field="--state", remedy=f"use {', '.join(get_args(State))}")
    return found


def key_values(words: list[str] | None, field: str, example: str) -> dict[str, str]:
    """Words such as NAME=VALUE."""
    found = {}
    for word in words or ():
        name, equals, value = word.partition("=")
        if not name or not equals:
            raise InputError(f"is {word!r}", field=field, remedy=f"write {example}")
        found[name] = value
    return found


class CommandAfterDashes(TyperCommand):
    """A command that takes another command after `--`, word by word."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        before, after = args, list[str]()
        if "--" in args:
            at = args.index("--")
            before, after = args[:at], args[at + 1 :]
        ctx.meta[_COMMAND] = after
        return super().parse_args(ctx, before)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        pieces = super().collect_usage_pieces(ctx)
        return [*pieces, "|", "-- COMMAND..."] if len(pieces) > 1 else [*pieces, "-- COMMAND..."]


def command_after_dashes(context: typer.Context) -> list[str]:
    """The words after `--`."""
    return list(context.meta[_COMMAND])
