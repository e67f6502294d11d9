"""Schema 3: idle GPU-hours, and time that jobs waited for cells of their own tenant."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("usage", sa.Column("idle_seconds", sa.Float(), nullable=False, server_default="0"))
    op.add_column("jobs", sa.Column("own_wait_seconds", sa.Float(), nullable=False, server_default="0"))


def downgrade() -> None:
    op.drop_column("jobs", "own_wait_seconds")
    op.drop_column("usage", "idle_seconds")
