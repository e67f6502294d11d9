"""`horae demo`: the product in two minutes, or four policies in virtual time."""

from __future__ import annotations

from math import isfinite
from typing import Annotated

import typer

from horae.cli.text import examples
from horae.model.errors import InputError

app = typer.Typer(add_completion=False)
SECONDS = 120.0


@app.command(epilog=examples("horae demo", "horae demo --seconds 30 > demo.txt", "horae demo --simulated"))
def demo(
    seconds: Annotated[
        float, typer.Option(envvar="DEMO_SECONDS", help="How long the demo lasts; Ctrl-C ends it sooner.")
    ] = SECONDS,
    simulated: Annotated[
        bool, typer.Option("--simulated", help="Four policies on the sample cluster and workload, in virtual time.")
    ] = False,
) -> None:
    """Run the service on an emulated cluster: three tenants, small real training jobs, the dashboard.

    Nothing is left of it at the end, neither processes nor files.
    """
    if simulated:
        from horae.cli.simulate import simulated_demo  # noqa: PLC0415  (polars and numba: a second)

        simulated_demo()
        return
    if not (isfinite(seconds) and seconds > 0):
        remedy = "give how many seconds it lasts, such as 120"
        raise InputError(f"is {seconds:g}", field="--seconds (DEMO_SECONDS)", remedy=remedy)
    from rich.console import Console  # noqa: PLC0415

    from horae.cli.demo.run import run  # noqa: PLC0415  (the service's models take a second)

    run(seconds, Console())
