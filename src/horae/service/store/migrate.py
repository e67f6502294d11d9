"""Brings the tables of a store to this version's schema."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine

from horae.model.errors import InputError
from horae.service.store.database import writing

_SCRIPTS = Path(__file__).parent / "migrations"


def migrate(engine: Engine) -> None:
    """Creates or upgrades all tables in one transaction; a store written by a newer Horae is an `InputError`."""
    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS).replace("%", "%%"))
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    with writing(engine) as connection:
        found = MigrationContext.configure(connection).get_current_revision()
        if found is not None and found not in known:
            raise InputError(f"the store has schema {found}", field="--store", remedy="use the Horae that wrote it")
        config.attributes["connection"] = connection
        command.upgrade(config, "head")
