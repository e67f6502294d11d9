"""`horae backup`, `horae restore` and `horae journal`: copies of the store and of its log."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from horae.cli.text import examples

backup_app = typer.Typer(add_completion=False)
restore_app = typer.Typer(add_completion=False)
journal_app = typer.Typer(add_completion=False)
State = Annotated[Path | None, typer.Option(help="The folder of the service; else HORAE_STATE.")]


@backup_app.command(epilog=examples("horae backup store-2026-11-18.db", "horae backup copy.db --state /var/lib/horae"))
def backup(file: Annotated[Path, typer.Argument(help="A new file.")], state: State = None) -> None:
    """Write a copy of the store while the service runs: all jobs, their history, tokens."""
    from horae.service.backup import backup as make  # noqa: PLC0415  with the service
    from horae.service.config import default_state  # noqa: PLC0415

    size = make((state or default_state()).expanduser(), file)
    print(f"{file}: {size:,} bytes")


@restore_app.command(epilog=examples("horae restore store-2026-11-18.db", "horae restore copy.db --state /tmp/lab"))
def restore(file: Annotated[Path, typer.Argument(help="What `horae backup` wrote.")], state: State = None) -> None:
    """Put a copy of the store back; the service must be down. Jobs that run are adopted when it starts."""
    from horae.service.backup import restore as put_back  # noqa: PLC0415
    from horae.service.config import default_state  # noqa: PLC0415

    folder = (state or default_state()).expanduser()
    put_back(folder, file)
    print(f"{folder}: restored from {file}; the former store is kept as store.db.before-restore")


@journal_app.command(epilog=examples("horae journal log.jsonl", "horae replay log.jsonl"))
def journal(
    file: Annotated[Path, typer.Argument(help="A new file.")],
    state: State = None,
    store: Annotated[str | None, typer.Option(help="postgresql://...; else the file in the state folder.")] = None,
) -> None:
    """Write all events since the service began, also those that were archived, for `replay` and `why --journal`."""
    from horae.model.errors import InputError  # noqa: PLC0415
    from horae.service.config import ARCHIVE, default_state  # noqa: PLC0415
    from horae.service.log_export import export_journal  # noqa: PLC0415
    from horae.service.store.database import open_database, sqlite_url  # noqa: PLC0415

    folder = (state or default_state()).expanduser()
    if file.exists():
        raise InputError(f"{file} exists", field="FILE", remedy="name a new file")
    if store is None and not (folder / "store.db").exists():
        raise InputError(
            f"there is no embedded store in {folder}", field="--state", remedy="give --store, or another folder"
        )
    count = export_journal(open_database(store or sqlite_url(folder / "store.db")), folder / ARCHIVE, file)
    print(f"{file}: {count:,} events")
