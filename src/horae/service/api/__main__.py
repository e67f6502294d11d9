"""`python -m horae.service.api STATE [SOCKET]`: serves the API of the service with this state folder."""

from __future__ import annotations

import sys
from pathlib import Path

from horae.service.api.context import context_of
from horae.service.api.server import serve
from horae.service.config import load_config


def main(arguments: list[str]) -> None:
    state = Path(arguments[0])
    config = load_config(state)
    serve(context_of(config), config.host, config.port, Path(arguments[1]) if arguments[1:] else state / "api.sock")


if __name__ == "__main__":
    main(sys.argv[1:])
