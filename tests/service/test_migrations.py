"""The schema of the store: all versions lead to the tables that the code uses, and rows are kept on the way."""

from __future__ import annotations

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Engine, insert, inspect, select, text

from horae.model.errors import InputError
from horae.service.store.database import reading, writing
from horae.service.store.migrate import downgrade, migrate
from horae.service.store.schema import metadata, notices, scheduler_notices

NOTICE = {"seq": 7, "at": 1.5, "kind": "GuaranteeLost", "text": "no room"}
WEBHOOK = {"at": 2.0, "tenant": "nlp", "job": "17", "kind": "preempted", "payload": "{}"}


def test_the_migrations_make_the_tables_that_the_code_uses(database: Engine) -> None:
    with reading(database) as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []


def test_rows_are_kept_over_a_downgrade_and_an_upgrade(database: Engine) -> None:
    with writing(database) as connection:
        connection.execute(insert(scheduler_notices).values(**NOTICE))
        connection.execute(insert(notices).values(**WEBHOOK))
        assert connection.execute(select(notices.c.attempts)).scalar_one() == 0
    downgrade(database, "0001")
    with writing(database) as connection:
        assert "scheduler_notices" not in inspect(connection).get_table_names()
        connection.execute(text("INSERT INTO notices (seq, at, kind, text) VALUES (8, 2.5, 'Other', '')"))
    migrate(database)
    with writing(database) as connection:
        connection.execute(insert(scheduler_notices).values(**NOTICE))
        connection.execute(insert(notices).values(**WEBHOOK))
        kept = connection.execute(select(scheduler_notices.c.id, scheduler_notices.c.seq)).all()
        assert [tuple(row) for row in kept] == [(1, 7), (2, 8), (3, 7)]
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []


def test_a_store_of_a_newer_version_is_refused(database: Engine) -> None:
    with writing(database) as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '0999'"))
    with pytest.raises(InputError, match=r"schema 0999.*use the Horae that wrote it"):
        migrate(database)
