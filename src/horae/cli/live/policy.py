"""`horae policy set`: the policy of a pool."""

from __future__ import annotations

from typing import Annotated

import typer

from horae.cli.live.arguments import key_values
from horae.cli.live.spec_options import value_of
from horae.cli.text import examples
from horae.client import Client
from horae.model.safe_text import printable

set_app = typer.Typer(add_completion=False)


@set_app.command(epilog=examples("horae policy set spare themis", "horae policy set nlp tiresias limits='[1h, 10h]'"))
def set_policy(
    pool: Annotated[str, typer.Argument(metavar="POOL", help="A tenant's own pool, or 'spare'.")],
    policy: Annotated[str, typer.Argument(metavar="POLICY", help="The name of a policy; `horae policy ls` has all.")],
    options: Annotated[
        list[str] | None, typer.Argument(metavar="OPTION=VALUE", help="Options of the policy; lists as in YAML.")
    ] = None,
) -> None:
    """Let a pool be scheduled by another policy from now on."""
    given = {name: value_of(text) for name, text in key_values(options, "OPTION=VALUE", "limits=[1,3]").items()}
    with Client() as client:
        is_applied = client.set_policy(pool, policy, given)
    print(printable(f"{pool}: {policy}{'' if is_applied else ' accepted, the scheduler has not seen it yet'}"))
