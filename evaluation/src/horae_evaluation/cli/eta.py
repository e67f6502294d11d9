"""`horae reproduce eta`: how good the answers of `horae eta` and `horae plan` are."""

from __future__ import annotations

import json
import sys
import tempfile
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from horae.cli.output import Data, Output, OutputFormat, console, need_data, right
from horae.model.errors import InputError
from horae.model.serialization import to_plain
from horae_evaluation.eta import live as live_run
from horae_evaluation.eta.calibration import HORIZONS, PARTS, Answer, Horizons, ask_etas
from horae_evaluation.eta.delays import PlanAnswer, ask_plans
from horae_evaluation.eta.histories import POLICIES, helios_history, philly_history
from horae_evaluation.eta.page import ETA_COLUMNS, PLAN_COLUMNS, Row, eta_rows, groups, page, plan_rows


class Ask(StrEnum):
    ETA = "eta"
    PLAN = "plan"
    LIVE = "live"


def eta_command(
    ask: Annotated[list[Ask], typer.Option(help="eta, plan or live; again for more.")] = list(Ask),  # noqa: B006
    policy: Annotated[list[str], typer.Option(help="Of the histories; again for more.")] = list(POLICIES),  # noqa: B006
    questions: Annotated[int, typer.Option(min=1, help="About starts, by history and policy.")] = 50,
    plans: Annotated[int, typer.Option(min=1, help="About delays, by history and policy.")] = 4,
    draws: Annotated[int, typer.Option(min=1, max=200, help="Possible futures for each question.")] = 20,
    part: Annotated[
        str, typer.Option(help="Of the histories: first, to choose a model by; second, to judge it.")
    ] = "second",
    jobs: Annotated[int, typer.Option(min=1, help="Of the live run.")] = 200,
    seed: Annotated[int, typer.Option(min=0, help="Of the questions, and of the live jobs.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Write all answers into this JSON file.")] = None,
    markdown: Annotated[Path | None, typer.Option(help="Write the tables into this file.")] = None,
    data: Data = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Tell nothing on the way.")] = False,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Predicted starts and delays beside what happened: in histories of Philly and Helios, and under a real service."""
    _check(policy, part, [file for file in (out, markdown) if file is not None])

    def tell(text: str) -> None:
        if not quiet:
            print(text, file=sys.stderr, flush=True)

    etas: list[Answer] = []
    delays: list[PlanAnswer] = []
    lives: list[Answer] = []
    if {Ask.ETA, Ask.PLAN} & set(ask):
        folder = need_data(data)
        for history in (philly_history(folder), helios_history(folder)):
            for name in policy:
                tell(f"{history.name}, {name}")
                if Ask.ETA in ask:
                    etas += ask_etas(history, name, part, questions, draws, seed)
                if Ask.PLAN in ask:
                    delays += ask_plans(history, name, part, plans, max(draws // 4, 1), seed)
    if Ask.LIVE in ask:
        with tempfile.TemporaryDirectory(prefix="horae-eta-") as folder_name:
            lives = live_run.ask_live(jobs, seed, Path(folder_name), tell)
    found = to_plain({"seed": seed, "part": part, "eta": etas, "plan": delays, "live": lives})
    if out is not None:
        out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if markdown is not None:
        markdown.write_text(page(etas, delays, lives, live_run.HORIZONS), encoding="utf-8")
    if output is OutputFormat.JSON:
        print(json.dumps(found, indent=1))
    else:
        _print(etas, HORIZONS)
        _print_table(PLAN_COLUMNS, plan_rows(delays), 2)
        _print(lives, live_run.HORIZONS)


def _check(policies: list[str], part: str, files: list[Path]) -> None:
    for name in policies:
        if name not in POLICIES:
            raise InputError(f"is {name!r}", field="--policy", remedy=f"use {', '.join(POLICIES)}")
    if part not in PARTS:
        raise InputError(f"is {part!r}", field="--part", remedy=f"use {' or '.join(PARTS)}")
    for file in files:
        if not file.absolute().parent.is_dir():
            raise InputError(f"{file} cannot be written", remedy="name a file in a folder that exists")


def _print(answers: list[Answer], horizons: Horizons) -> None:
    rows = [(*key, *row) for key, group in groups(answers).items() for row in eta_rows(group, horizons)]
    _print_table(("history", "policy", *ETA_COLUMNS), rows + [("all", "", *row) for row in _all(answers, horizons)], 3)


def _all(answers: list[Answer], horizons: Horizons) -> list[Row]:
    return eta_rows(answers, horizons) if answers else []


def _print_table(columns: tuple[str, ...], rows: list[Row], text_columns: int) -> None:
    if not rows:
        return
    table = Table(*columns[:text_columns], *right(*columns[text_columns:]))
    for row in rows:
        table.add_row(*row)
    console().print(table)
