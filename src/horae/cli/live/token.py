"""`horae token`: tokens, by which the service knows callers that come over the network."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from horae.cli.live.lists import ListFormat, ListOutput, Watch, print_list
from horae.cli.live.plain import plain
from horae.cli.live.tables import Column
from horae.cli.live.times import ago, local, now
from horae.cli.output import Output, OutputFormat
from horae.cli.text import examples
from horae.client import Client
from horae.model.safe_text import printable
from horae.service.models import TokenView

create_app = typer.Typer(add_completion=False)
ls_app = typer.Typer(add_completion=False)
revoke_app = typer.Typer(add_completion=False)
TOKEN_COLUMNS: tuple[Column[TokenView], ...] = (
    Column("ID", lambda token: token.id),
    Column("NAME", lambda token: token.name, is_cut=True),
    Column("ROLE", lambda token: token.role),
    Column("TENANT", lambda token: token.tenant or "-", is_cut=True),
    Column("USER", lambda token: token.user or "-", is_cut=True),
    Column("CREATED", lambda token: ago(token.created_at, now())),
    Column("EXPIRES", lambda token: ago(token.expires_at, now()) if token.expires_at else "never"),
    Column("EXPIRES AT", lambda token: local(token.expires_at), is_wide=True),
)


@create_app.command(
    epilog=examples("horae token create ci --tenant nlp --days 90", "horae token create ops --role operator")
)
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the token is for.")],
    role: Annotated[str, typer.Option(help="'viewer', 'user', 'tenant-admin' or 'operator'.")] = "user",
    tenant: Annotated[str, typer.Option(help="The tenant of its holder.")] = "",
    user: Annotated[str, typer.Option(help="The user that it stands for.")] = "",
    days: Annotated[float | None, typer.Option(help="It expires after so many days.")] = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Make a token and print it; it cannot be shown again."""
    with Client() as client:
        made = client.create_token(name, role, tenant=tenant, user=user, days=days)
    if output is OutputFormat.JSON:
        print(json.dumps(plain(made), indent=2))
        return
    print(printable(made.token or ""))
    print(printable(f"token {made.id}: use it as HORAE_TOKEN; it is not shown again"), file=sys.stderr)


@ls_app.command(epilog=examples("horae token ls", "horae token ls -o json"))
def ls(output: ListOutput = ListFormat.TABLE, watch: Watch = False) -> None:
    """List tokens, without their secrets."""
    with Client() as client:
        print_list(client.tokens, TOKEN_COLUMNS, output, watch, "no tokens")


@revoke_app.command(epilog=examples("horae token revoke 3f2a", "horae token revoke 3f2a 9c01"))
def revoke(
    tokens: Annotated[list[str], typer.Argument(metavar="TOKEN", help="Ids of tokens, as `horae token ls` has them.")],
) -> None:
    """Revoke tokens: requests with them are rejected from now on."""
    with Client() as client:
        for token in tokens:
            client.revoke_token(token)
            print(printable(f"{token}: revoked"))
