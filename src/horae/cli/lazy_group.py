"""The commands of `horae`, each imported only when it is called; other packages add theirs by an entry point.

`horae --help` shows the lines below and imports nothing: numba, polars and matplotlib take seconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from horae.cli.text import examples
from horae.model.errors import InputError

ENTRY_POINTS = "horae.commands"  # each names a typer app


class _Lazy(NamedTuple):
    target: str  # module:app
    help: str
    is_group: bool = False  # it has commands of its own, in its module
    commands: Mapping[str, _Lazy] = {}  # it has commands of its own, each in another module
    examples: tuple[str, ...] = ()


# In the order of the help page.
_LIVE = {
    "submit": _Lazy("horae.cli.live.submit:app", "Submit a job file, or a command."),
    "run": _Lazy("horae.cli.live.run:app", "Run a command as an interactive job."),
    "attach": _Lazy("horae.cli.live.attach:app", "Connect this terminal with that of an interactive job."),
    "ls": _Lazy("horae.cli.live.ls:app", "List jobs."),
    "show": _Lazy("horae.cli.live.show:app", "Show one job."),
    "why": _Lazy("horae.cli.live.why:app", "Tell what blocks a job, and what would unblock it."),
    "eta": _Lazy("horae.cli.live.futures:eta_app", "Estimate when a job starts and ends."),
    "plan": _Lazy("horae.cli.live.futures:plan_app", "Tell what a job would do and delay, if it were submitted."),
    "whatif": _Lazy("horae.cli.live.whatif:app", "Tell what would have happened under another setup."),
    "logs": _Lazy("horae.cli.live.logs:app", "Print the output of a job."),
    "stop": _Lazy("horae.cli.live.change_jobs:stop_app", "Stop jobs for good."),
    "hold": _Lazy("horae.cli.live.change_jobs:hold_app", "Keep jobs from running until they are released."),
    "release": _Lazy("horae.cli.live.change_jobs:release_app", "Let jobs run that are on hold."),
    "health": _Lazy("horae.cli.live.health:app", "Tell whether the service works."),
    "top": _Lazy("horae.cli.live.top:app", "Show the cluster on one screen."),
    "nodes": _Lazy("horae.cli.live.nodes:nodes_app", "List nodes."),
    "node": _Lazy(
        "",
        "Drain nodes, or take them back.",
        commands={
            "drain": _Lazy("horae.cli.live.nodes:drain_app", "Start no further jobs on nodes."),
            "resume": _Lazy("horae.cli.live.nodes:resume_app", "Let jobs start again on nodes."),
        },
        examples=("horae node drain n1 --reason 'new driver'", "horae node resume n1"),
    ),
    "tenants": _Lazy(
        "",
        "Tenants: their shares, and which cells to reserve.",
        commands={
            "ls": _Lazy("horae.cli.live.tenants:ls_app", "List tenants."),
            "set": _Lazy("horae.cli.live.tenants:set_app", "Change the weight or the quota of a tenant."),
            "plan": _Lazy("horae.cli.tenants:plan_app", "Propose cells for each tenant, from a trace."),
        },
        examples=(
            "horae tenants ls",
            "horae tenants plan jobs.csv --nodes 36x8:A100",
            "horae tenants plan jobs.csv --nodes 36x8 --goal 300 --write lab.yaml",
        ),
    ),
    "auctions": _Lazy("horae.cli.live.auctions:app", "List auctions: offers, bids, payments."),
    "pools": _Lazy("horae.cli.live.pools:app", "List pools and their policies."),
    "reserve": _Lazy("horae.cli.live.tenants:reserve_app", "Reserve cells for a tenant."),
    "share": _Lazy("horae.cli.live.accounts:share_app", "Show how apps and tenants were treated."),
    "usage": _Lazy("horae.cli.live.accounts:usage_app", "Show the GPU-hours that were used."),
    "history": _Lazy("horae.cli.live.history:history_app", "List jobs that have ended."),
    "events": _Lazy("horae.cli.live.history:events_app", "List what happened."),
    "policy": _Lazy(
        "",
        "Which policies there are, what they take, and which a pool has.",
        commands={
            "ls": _Lazy("horae.cli.policy:ls_app", "List all policies."),
            "show": _Lazy("horae.cli.policy:show_app", "Describe one policy and its options."),
            "set": _Lazy("horae.cli.live.policy:set_app", "Let a pool be scheduled by another policy."),
        },
        examples=("horae policy ls", "horae policy show tiresias", "horae policy set spare themis"),
    ),
    "token": _Lazy(
        "",
        "Tokens for callers that come over the network.",
        commands={
            "create": _Lazy("horae.cli.live.token:create_app", "Make a token and print it."),
            "ls": _Lazy("horae.cli.live.token:ls_app", "List tokens."),
            "revoke": _Lazy("horae.cli.live.token:revoke_app", "Revoke tokens."),
        },
        examples=("horae token create ci --tenant nlp --days 90", "horae token ls"),
    ),
}
COMMANDS = {
    "up": _Lazy("horae.cli.up:app", "Run the service: schedule jobs on this machine."),
    **_LIVE,
    "backup": _Lazy("horae.cli.backup:backup_app", "Write a copy of the store while the service runs."),
    "restore": _Lazy("horae.cli.backup:restore_app", "Put a copy of the store back."),
    "journal": _Lazy("horae.cli.backup:journal_app", "Write the log of the service as a journal."),
    "simulate": _Lazy("horae.cli.simulate:simulate_app", "Run one or more policies on a cluster and a workload."),
    "compare": _Lazy("horae.cli.compare:app", "Compare policies on a trace, with intervals and plots."),
    "report": _Lazy("horae.cli.report:app", "Write a page about runs: the answer in words, tables, plots."),
    "demo": _Lazy("horae.cli.demo.command:app", "Two minutes of the service on an emulated cluster."),
    "replay": _Lazy("horae.cli.replay:app", "Decide a journal again, and compare every line."),
    "compile": _Lazy("horae.cli.compile_kernels:app", "Compile the kernels of policies before a run needs them."),
    "trace": _Lazy("horae.cli.trace:app", "Look at a workload, convert it, generate one, plot it.", is_group=True),
    "speed": _Lazy("horae.cli.speed:app", "How fast models train, and where each number comes from.", is_group=True),
    "cluster": _Lazy("horae.cli.cluster:app", "Look at a cluster file, or convert one.", is_group=True),
}
ELSEWHERE = {"reproduce": "horae-evaluation"}  # commands that other distributions of Horae have


class LazyCommands(TyperGroup):
    """A group of commands that are known by name and first line, and imported when they are called."""

    lazies: Mapping[str, _Lazy] = {}
    _is_listing = False

    def list_commands(self, ctx: Any) -> list[str]:
        return [*self.lazies, *super().list_commands(ctx)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        lazy = self.find(cmd_name)
        if lazy is None:
            return super().get_command(ctx, cmd_name)
        return TyperCommand(cmd_name, help=lazy.help) if self._is_listing else _loaded(cmd_name, lazy)

    def find(self, name: str) -> _Lazy | None:
        return self.lazies.get(name)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        with self._listing():
            super().format_help(ctx, formatter)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        with self._listing():
            return super().shell_complete(ctx, incomplete)

    @contextmanager
    def _listing(self) -> Iterator[None]:
        self._is_listing = True
        try:
            yield
        finally:
            self._is_listing = False


class LazyGroup(LazyCommands):
    """All commands: those of Horae, and those of other packages."""

    lazies = COMMANDS

    def list_commands(self, ctx: Any) -> list[str]:
        own = super().list_commands(ctx)
        return [*own[: len(COMMANDS)], *(point.name for point in installed()), *own[len(COMMANDS) :]]

    def find(self, name: str) -> _Lazy | None:
        if name in COMMANDS:
            return COMMANDS[name]
        point = next((each for each in installed() if each.name == name), None)
        if point is not None:
            package = point.dist.name if point.dist else "another package"
            return _Lazy(point.value, f"Added by {package}.", is_group=True)
        if name in ELSEWHERE:
            raise InputError(f"{name!r} is not installed", remedy=f"pip install {ELSEWHERE[name]}")
        return None


def installed() -> list[EntryPoint]:
    """Commands of other packages; none replaces a built-in one."""
    found = sorted(entry_points(group=ENTRY_POINTS), key=lambda point: point.name)
    return [point for point in found if point.name not in COMMANDS]


def _loaded(name: str, lazy: _Lazy) -> Any:
    if lazy.commands:
        group = LazyCommands(
            name=name,
            help=lazy.help,
            epilog=examples(*lazy.examples),
            no_args_is_help=True,
            rich_markup_mode=None,
        )
        group.lazies = lazy.commands
        return group
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
