"""Schema 2: notices to the webhooks of tenants; the scheduler's own notices get a table of another name."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    _rename("notices", "scheduler_notices")
    op.create_table(
        "notices",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), autoincrement=True, nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("job", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.Column("delivered_at", sa.Float(), nullable=True),
        sa.Column("attempts", sa.Integer(), server_default="0", nullable=False),
        sa.Column("next_attempt_at", sa.Float(), nullable=True),
        sa.Column("last_error", sa.Text(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
        sqlite_autoincrement=True,
    )
    op.create_index("notices_by_delivery", "notices", ["delivered_at", "next_attempt_at"], unique=False)


def downgrade() -> None:
    op.drop_index("notices_by_delivery", table_name="notices")
    op.drop_table("notices")
    _rename("scheduler_notices", "notices")


def _rename(old: str, new: str) -> None:
    op.rename_table(old, new)
    if op.get_bind().dialect.name == "postgresql":  # names that the table of the former name needs again
        op.execute(f"ALTER INDEX {old}_pkey RENAME TO {new}_pkey")
        op.execute(f"ALTER SEQUENCE {old}_id_seq RENAME TO {new}_id_seq")
