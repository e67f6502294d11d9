"""The command `horae`: what it needs is imported where Ctrl-C is heard already."""

from __future__ import annotations

import sys


def run() -> None:
    try:
        from horae.cli.main import run as run_command  # noqa: PLC0415

        run_command()
    except KeyboardInterrupt:
        print("horae: interrupted", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    run()
