"""The commands of `horae`, each imported only when it is called; other packages add theirs by an entry point.

`horae --help` shows the lines below and imports nothing: numba, polars and matplotlib take seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from horae.model.errors import InputError

ENTRY_POINTS = "horae.commands"  # each names a typer app


class _Lazy(NamedTuple):
    target: str  # module:app
    help: str
    is_group: bool = False  # it has commands of its own


# In the order of the help page.
COMMANDS = {
    "submit": _Lazy("horae.cli.live.submit:app", "Submit a job file, or a command."),
    "ls": _Lazy("horae.cli.live.ls:app", "List jobs."),
    "show": _Lazy("horae.cli.live.show:app", "Show one job."),
    "why": _Lazy("horae.cli.live.why:app", "Tell what blocks a job, and what would unblock it."),
    "logs": _Lazy("horae.cli.live.logs:app", "Print the output of a job."),
    "stop": _Lazy("horae.cli.live.change_jobs:stop_app", "Stop jobs for good."),
    "hold": _Lazy("horae.cli.live.change_jobs:hold_app", "Keep jobs from running until they are released."),
    "release": _Lazy("horae.cli.live.change_jobs:release_app", "Let jobs run that are on hold."),
    "simulate": _Lazy("horae.cli.simulate:simulate_app", "Run one or more policies on a cluster and a workload."),
    "compare": _Lazy("horae.cli.compare:app", "Compare policies on a trace, with intervals and plots."),
    "demo": _Lazy("horae.cli.simulate:demo_app", "Four policies on the sample cluster and workload."),
    "replay": _Lazy("horae.cli.replay:app", "Decide a journal again, and compare every line."),
    "compile": _Lazy("horae.cli.compile_kernels:app", "Compile the kernels of policies before a run needs them."),
    "policy": _Lazy("horae.cli.policy:app", "Which policies there are, and what they take.", is_group=True),
    "trace": _Lazy("horae.cli.trace:app", "Look at a workload, convert it, generate one, plot it.", is_group=True),
    "speed": _Lazy("horae.cli.speed:app", "How fast models train, and where each number comes from.", is_group=True),
    "cluster": _Lazy("horae.cli.cluster:app", "Look at a cluster file, or convert one.", is_group=True),
    "tenants": _Lazy("horae.cli.tenants:app", "Which cells to reserve for which tenant.", is_group=True),
}
ELSEWHERE = {"reproduce": "horae-evaluation"}  # commands that other distributions of Horae have


class LazyGroup(TyperGroup):
    _is_listing = False

    def list_commands(self, ctx: Any) -> list[str]:
        return [*COMMANDS, *(point.name for point in installed()), *super().list_commands(ctx)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in COMMANDS:
            lazy = COMMANDS[cmd_name]
            return TyperCommand(cmd_name, help=lazy.help) if self._is_listing else _loaded(cmd_name, lazy)
        point = next((each for each in installed() if each.name == cmd_name), None)
        if point is not None:
            whose = f"Added by {point.dist.name if point.dist else 'another package'}."
            lazy = _Lazy(point.value, whose, is_group=True)
            return TyperCommand(cmd_name, help=whose) if self._is_listing else _loaded(cmd_name, lazy)
        if cmd_name in ELSEWHERE:
            raise InputError(f"{cmd_name!r} is not installed", remedy=f"pip install {ELSEWHERE[cmd_name]}")
        return super().get_command(ctx, cmd_name)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        with self._listing():
            super().format_help(ctx, formatter)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        with self._listing():
            return super().shell_complete(ctx, incomplete)

    @contextmanager
    def _listing(self) -> Iterator[None]:
        """Commands are known by name and first line only, and not imported."""
        self._is_listing = True
        try:
            yield
        finally:
            self._is_listing = False


def installed() -> list[EntryPoint]:
    """Commands of other packages; none replaces a built-in one."""
    found = sorted(entry_points(group=ENTRY_POINTS), key=lambda point: point.name)
    return [point for point in found if point.name not in COMMANDS]


def _loaded(name: str, lazy: _Lazy) -> Any:
    module, _, attribute = lazy.target.partition(":")
    try:
        app: typer.Typer = getattr(import_module(module), attribute)
    except (Exception, SystemExit) as error:  # a foreign module may raise anything when it is imported
        if module.startswith("horae."):
            raise
        problem = " ".join(f"{type(error).__name__}: {error}".split())
        raise InputError(f"{lazy.target} cannot be imported: {problem}", remedy="fix or remove the package") from None
    app.rich_markup_mode = None  # plain help: the other kind takes as long to import as everything else together
    command = typer.main.get_group(app) if lazy.is_group else typer.main.get_command(app)
    command.name = name
    return command
