"""Runs migrations on the connection that `migrate` gives."""

from __future__ import annotations

from alembic import context

from horae.service.store.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
context.run_migrations()
