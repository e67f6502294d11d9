"""The process of the API: `python -m horae.service.api CONFIG`."""

from __future__ import annotations

import gc
import getpass
import os
import signal
import sys
from pathlib import Path
from types import FrameType

from sqlalchemy import Engine, select

from horae.model.errors import HoraeError, InputError
from horae.service.api.context import context_of
from horae.service.api.server import serve
from horae.service.api.tokens import make_token
from horae.service.child import end_with_starter
from horae.service.config import load_config
from horae.service.models import TokenRequest
from horae.service.store.database import open_database, writing
from horae.service.store.schema import tokens

OPERATOR = "operator of this machine"


def main(path: Path) -> None:
    end_with_starter()
    config = load_config(path)
    state = config.state
    sys.stdin.readline()  # everything is imported: serve as soon as the loop leads
    _operator_token(open_database(config.store), state)
    (state / "url").write_text(f"http://{config.host}:{config.port}\n")
    context = context_of(config)

    def reload(number: int, frame: FrameType | None) -> None:
        fresh = context_of(load_config(path))
        context.limits, context.users = fresh.limits, fresh.users

    signal.signal(signal.SIGHUP, reload)
    gc.freeze()  # what is there now stays: a collection need not look at it
    serve(context, config.host, config.port, state / "api.sock")


def _operator_token(database: Engine, state: Path) -> None:
    """Makes the token of the operator, at the first start, and keeps it where only the service's user can read it."""
    path = state / "token"
    with writing(database) as connection:
        if path.exists() and connection.scalar(select(tokens.c.id).where(tokens.c.name == OPERATOR)) is not None:
            return
        made = make_token(connection, TokenRequest(name=OPERATOR, role="operator", user=getpass.getuser()))
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(f"{made.token}\n")


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except InputError as error:
        print(f"horae: {error}", file=sys.stderr)
        sys.exit(2)
    except HoraeError as error:
        sys.exit(f"horae: {error}")
