"""Carries out `horae reproduce gavel`: read, run, judge, print, plot."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from horae import __version__
from horae.cli.output import need_data
from horae.experiments.compare.run_spec import PolicyChoice
from horae.experiments.compare.terminal import PIPED_WIDTH
from horae.experiments.inputs import named_options, positive
from horae.experiments.result_store import ResultStore, sources_digest
from horae.model.errors import InputError, PolicyError
from horae.model.serialization import Plain, to_plain
from horae.policies.registry import make_policy
from horae_evaluation.cli.gavel import PLOT_ENDINGS, PLOT_ENDINGS_TEXT, GavelFormat, GavelRequest
from horae_evaluation.gavel.ablation import ladder
from horae_evaluation.gavel.published import AWARE_MAX_MIN, MAKESPAN_JOBS, Published, read_published
from horae_evaluation.gavel.results import results_folder, run_cases, runs_digest
from horae_evaluation.gavel.rows import (
    RATES,
    Solve,
    choices_of,
    lines_by_rate,
    lines_of_makespan,
    missing_policies,
    rows,
)
from horae_evaluation.gavel.setup import COMPATIBLE, FIRST, LAST, OURS, ROUND_SECONDS, GavelCase, read_tables
from horae_evaluation.gavel.sweeps import SWEEPS, run_sweep
from horae_evaluation.gavel.tables import Sheet, as_csv, as_json, sheet_of_ladder, sheet_of_rows, sheet_of_sweep
from horae_evaluation.progress import Bar, ReproductionLines, ReproductionProgress

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INTERRUPTED = 128 + signal.SIGINT  # as shells have it


class GavelOutput(NamedTuple):
    sheet: Sheet
    draw: Callable[[], Figure]


def reproduce_gavel(request: GavelRequest) -> int:
    """Runs the reproduction and returns the exit code. Everything except the result goes to standard error."""
    tell = _silence if request.quiet else _tell
    data = need_data(request.data)
    like = _case(request)
    published, tables = read_published(data), read_tables(data)
    store = ResultStore(request.cache or results_folder(), tell)
    progress = _progress(request)
    solve: Solve = partial(
        run_cases,
        tables=tables,
        workers=request.workers or len(os.sched_getaffinity(0)),
        store=store,
        progress=progress,
    )
    if request.plot is not None:
        _check_plot(request.plot)
    try:
        outcome = _experiment(request, like, published, solve, tell)
    except KeyboardInterrupt:
        _tell(f"interrupted; finished runs are kept in {store.folder}, and the same command goes on from there")
        return INTERRUPTED
    _print(outcome.sheet, request, like)
    if request.plot is not None:
        _draw(outcome, request.plot, tell)
    return 1 if outcome.sheet.failures else 0


def _case(request: GavelRequest) -> GavelCase:
    """The parameters common to all runs."""
    if (request.makespan, request.ladder, request.sweep is not None).count(True) > 1:
        raise InputError("--makespan, --ladder and --sweep are experiments of their own", remedy="give one of them")
    first, last = request.measured
    if not 0 <= first < last:
        raise InputError(f"is {first} {last}", field="--jobs-measured", remedy="give two numbers, the smaller first")
    for rate in request.rates:
        positive("--rate", rate)
    if request.makespan and (request.rates or request.workloads):
        raise InputError("--makespan has one workload and no rate", remedy="leave out --workload and --rate")
    rules = COMPATIBLE if request.compatible else OURS
    return GavelCase("single", 0.0, "max-min", first=first, last=last, rules=rules)


def _experiment(
    request: GavelRequest, like: GavelCase, published: Published, solve: Solve, tell: Callable[[str], None]
) -> GavelOutput:
    if request.ladder or request.sweep is not None:
        return _without_figures(request, like, solve)
    rates = _rates(request, RATES)
    choices = _choices(request, tell)
    if request.makespan:
        lines = lines_of_makespan(choices, like)
    else:
        lines = lines_by_rate(published, choices, rates, like, named=bool(request.policies))
    if not lines:
        raise InputError("nothing was published for this", field="--rate", remedy="name policies with --policy")
    found = rows(lines, request.seeds, solve)

    def draw() -> Figure:
        from horae_evaluation.gavel import figures  # noqa: PLC0415  (matplotlib takes a second to import)

        return figures.makespan_figure(found) if request.makespan else figures.rates_figure(found, published)

    return GavelOutput(sheet_of_rows(found, "makespan" if request.makespan else "mean completion"), draw)


def _without_figures(request: GavelRequest, like: GavelCase, solve: Solve) -> GavelOutput:
    """Runs experiments for which no numbers were published."""
    like = _with_policy(like, request.policies)
    rates = _rates(request, {workload: each[:1] for workload, each in RATES.items()})
    if request.ladder:
        rungs = ladder(rates, like, request.seeds, solve)

        def draw_ladder() -> Figure:
            from horae_evaluation.gavel.figures import ladder_figure  # noqa: PLC0415

            return ladder_figure(rungs)

        return GavelOutput(sheet_of_ladder(rungs), draw_ladder)
    assert request.sweep is not None
    sweep = SWEEPS[request.sweep]
    steps = run_sweep(sweep, rates, like, request.seeds, solve)

    def draw_sweep() -> Figure:
        from horae_evaluation.gavel.figures import sweep_figure  # noqa: PLC0415

        return sweep_figure(steps, sweep)

    return GavelOutput(sheet_of_sweep(steps, sweep), draw_sweep)


def _with_policy(like: GavelCase, texts: Sequence[str]) -> GavelCase:
    if len(texts) > 1:
        raise InputError("is of one policy", field="--policy", remedy="name one policy")
    (choice,) = _checked(choices_of(_named(texts) or [(AWARE_MAX_MIN, {})], makespan=False)).values()
    return GavelCase(**{**vars(like), "policy": choice.name, "options": choice.options})


def _rates(request: GavelRequest, defaults: Mapping[str, Sequence[float]]) -> dict[str, Sequence[float]]:
    workloads = list(dict.fromkeys(request.workloads)) or list(defaults)
    if request.rates and len(workloads) > 1:
        problem = "the same rate loads one workload twice as much as the other"
        raise InputError(problem, field="--rate", remedy="add --workload single or --workload multi")
    return {workload: sorted(set(request.rates)) or defaults[workload] for workload in workloads}


def _named(texts: Sequence[str]) -> list[tuple[str, Mapping[str, object]]]:
    return [named_options(text, "--policy") for text in texts]


def _choices(request: GavelRequest, tell: Callable[[str], None]) -> dict[str, PolicyChoice]:
    """The policies to run: those requested by name must exist; of the default ones, those that do."""
    choices = choices_of(_named(request.policies), request.makespan)
    if request.policies:
        return _checked(choices)
    for name, problem in (missing := missing_policies(choices)).items():
        tell(f"left out: {name}: {problem}")
    return {name: choice for name, choice in choices.items() if name not in missing}


def _checked(choices: dict[str, PolicyChoice]) -> dict[str, PolicyChoice]:
    for choice in choices.values():
        try:
            make_policy(*choice)
        except PolicyError as error:
            raise PolicyError(error.problem, field="--policy", remedy=error.remedy) from None
    return choices


def _tell(line: str) -> None:
    print(*line.splitlines(), file=sys.stderr)


def _silence(line: str) -> None: ...


def _progress(request: GavelRequest) -> ReproductionProgress:
    if request.quiet:
        return ReproductionLines(_silence)
    return Bar(Console(stderr=True)) if sys.stderr.isatty() else ReproductionLines(_tell)


def _print(sheet: Sheet, request: GavelRequest, like: GavelCase) -> None:
    match request.output:
        case GavelFormat.TABLE:
            _print_table(sheet, _caption(request, like))
        case GavelFormat.JSON:
            sys.stdout.write(as_json(sheet, _parameters(request, like)))
        case GavelFormat.CSV:
            sys.stdout.write(as_csv(sheet))


def _print_table(sheet: Sheet, caption: str) -> None:
    columns = [
        Column(heading, justify="left" if index in sheet.left else "right")
        for index, heading in enumerate(sheet.headings)
    ]
    table = Table(*columns)
    for line in sheet.lines:
        table.add_row(*map(escape, line))
    shown = Console()
    if not shown.is_terminal:
        shown = Console(width=PIPED_WIDTH)
    shown.print(table)
    for note in (caption, *sheet.notes, *(f"FAILS: {failure}" for failure in sheet.failures)):
        shown.print(escape(note), soft_wrap=True, highlight=False)


def _caption(request: GavelRequest, like: GavelCase) -> str:
    place = f"36 V100, 36 P100 and 36 K80; rounds of {ROUND_SECONDS:g} s unless said otherwise"
    if request.makespan:
        return f"{place}; {min(MAKESPAN_JOBS, like.last)} jobs that are all there at the beginning."
    if (like.first, like.last) == (FIRST, LAST):
        return f"{place}; jobs {FIRST:,} to {LAST:,}."
    return f"{place}; a look at jobs {like.first:,} to {like.last:,}, which says little of {FIRST:,} to {LAST:,}."


def _parameters(request: GavelRequest, like: GavelCase) -> dict[str, Plain]:
    return {
        "horae": __version__,
        "sources": [sources_digest(), runs_digest()],
        "jobs_measured": list(request.measured),
        "seeds": request.seeds,
        "round_seconds": like.round_seconds,
        "rules": to_plain(like.rules),
    }


def _check_plot(path: Path) -> None:
    """Checks the plot's path before hours of work rather than after."""
    if path.suffix not in PLOT_ENDINGS:
        raise InputError(f"is {str(path)!r}", field="--plot", remedy=f"name a file that ends in {PLOT_ENDINGS_TEXT}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab"):
            pass
    except OSError as error:
        problem = f"cannot be written: {error.strerror}"
        raise InputError(problem, file=str(path), field="--plot", remedy="name a file of yours") from None


def _draw(outcome: GavelOutput, path: Path, tell: Callable[[str], None]) -> None:
    from horae_evaluation.gavel.figures import save  # noqa: PLC0415  (matplotlib takes a second to import)

    tell(f"drew {', '.join(map(str, save(outcome.draw(), path)))}")
