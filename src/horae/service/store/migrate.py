"""Brings the tables of a store to this version's schema."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, text

from horae.model.errors import InputError
from horae.service.store.database import writing
from horae.service.store.leadership import end_expired_term

_SCRIPTS = Path(__file__).parent / "migrations"
_OTHER = "name the state folder of a service"


def migrate(engine: Engine, *, at_once: bool = True) -> bool:
    """Creates or upgrades all tables in one transaction; a store written by a newer Horae is an `InputError`.

    Unless `at_once`, tables that a leader uses are left alone: the answer is False, and it is to be asked again.
    """
    with writing(engine) as connection:
        config = _config(connection)
        scripts = ScriptDirectory.from_config(config)
        known = {script.revision for script in scripts.walk_revisions()}
        found = MigrationContext.configure(connection).get_current_revision()
        if found is not None and found not in known:
            raise InputError(f"the store has schema {found}", field="--store", remedy="use the Horae that wrote it")
        if found == scripts.get_current_head():
            return True
        if found is not None and not at_once and not end_expired_term(connection):
            return False
        if connection.dialect.name == "postgresql":  # no leader waits for these locks
            connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
        command.upgrade(config, "head")
        return True


def check_schema(connection: Connection) -> None:
    """Raises an `InputError` unless the tables are those of this version; changes nothing."""
    found = MigrationContext.configure(connection).get_current_revision()
    head = ScriptDirectory.from_config(_config(connection)).get_current_head()
    if found == head:
        return
    problem = f"has schema {found}, and this version reads {head}" if found else "is not a store of Horae"
    remedy = "read it with the Horae that wrote it, or start a service of this version on it" if found else _OTHER
    raise InputError(problem, remedy=remedy)


def downgrade(engine: Engine, revision: str) -> None:
    """Brings the tables back to an earlier schema in one transaction; rows that it has no place for are lost."""
    with writing(engine) as connection:
        command.downgrade(_config(connection), revision)


def _config(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config
