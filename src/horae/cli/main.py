"""The command line. A user error is one line on standard error and exit code 2, never a traceback."""

from __future__ import annotations

import io
import os
import sys
from typing import Annotated, NoReturn

import typer

from horae import __version__
from horae.cli.lazy_group import LazyGroup
from horae.cli.text import examples, printable
from horae.model.errors import HoraeError, InputError, ServiceError

app = typer.Typer(
    cls=LazyGroup,
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},  # commands inherit it
    help="Shares one GPU cluster between teams.",
    epilog=examples("horae demo", "horae simulate --policy fifo --policy tiresias"),
)


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
        print(__version__)
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Shares one GPU cluster between teams."""


@app.command("version", epilog=examples("horae version", "horae --version"))
def version_command() -> None:
    """Print the version."""
    print(__version__)


def run() -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a name may have characters that the terminal lacks
    try:
        _check_arguments()
        code = app(prog_name="horae", standalone_mode=False)
        sys.stdout.flush()
        sys.exit(code)
    except typer.TyperException as error:
        problem = error.format_message()
        if problem.startswith("Usage:"):  # without a command the problem is the help
            print(problem)
            sys.exit(error.exit_code)
        _fail(f"{problem.rstrip('.')}; add --help to see what there is", error.exit_code)
    except (InputError, ServiceError) as error:
        _fail(str(error), 2)
    except HoraeError as error:
        _fail(f"this is a bug in Horae: {error}", 70)
    except (KeyboardInterrupt, typer.Abort):
        _fail("interrupted", 130)
    except MemoryError:
        _fail("memory is not enough for this; take fewer jobs, or a larger machine", 70)
    except OSError as error:
        _cannot_write(error)


def _check_arguments() -> None:
    for word in sys.argv[1:]:
        if not word.isprintable() and any("\udc80" <= letter <= "\udcff" for letter in word):
            raise InputError(f"{word!r} is not UTF-8 text", remedy="fix the argument")


def _cannot_write(error: OSError) -> NoReturn:
    """Exits after a failed write; buffered output would otherwise be written again at exit, and fail again."""
    sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115
    if isinstance(error, BrokenPipeError):
        _fail("", 141)  # the reader closed the pipe
    _fail(f"{error.filename or 'standard output'}: {error.strerror}; make room for it, or write elsewhere", 2)


def _fail(message: str, exit_code: int) -> NoReturn:
    """Prints one line, whatever characters a file has in its names, and exits."""
    if message:
        print("horae:", printable(" ".join(message.splitlines())), file=sys.stderr)
    sys.exit(exit_code)


if __name__ == "__main__":
    run()
