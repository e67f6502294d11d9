"""Schema 4: trials of searches; auctions; measured speeds by tenant."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "trials",
        sa.Column("job_id", sa.String(), nullable=False),
        sa.Column("search", _BIG, nullable=False),
        sa.Column("bracket", sa.Integer(), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("rung", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("steps", sa.Float(), nullable=False),
        sa.Column("loss", sa.Float(), nullable=True),
        sa.Column("reached", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("job_id"),
    )
    op.create_index("trials_by_search", "trials", ["search", "position"], unique=False)
    op.create_table(
        "auctions",
        sa.Column("auction", _BIG, autoincrement=False, nullable=False),
        sa.Column("app", sa.String(), nullable=False),
        sa.Column("pool", sa.String(), nullable=False),
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("called_at", sa.Float(), nullable=False),
        sa.Column("closes_at", sa.Float(), nullable=False),
        sa.Column("offer", sa.Text(), nullable=False),
        sa.Column("bid", sa.Text(), nullable=True),
        sa.Column("note", sa.Text(), nullable=False),
        sa.Column("closed_at", sa.Float(), nullable=True),
        sa.Column("won_gpus", sa.Integer(), nullable=False),
        sa.Column("lease_seconds", sa.Float(), nullable=False),
        sa.Column("payment", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("auction", "app"),
    )
    op.create_index("auctions_by_end", "auctions", ["closed_at"], unique=False)
    # Which tenant had measured a speed was not recorded, and one must not mislead another: they are measured again.
    op.drop_table("speeds")
    _create_speeds(sa.Column("tenant", sa.String(), nullable=False), wall=True)
    op.create_index("speeds_by_age", "speeds", ["tenant", "wall"], unique=False)


def downgrade() -> None:
    op.drop_index("auctions_by_end", table_name="auctions")
    op.drop_table("auctions")
    op.drop_index("trials_by_search", table_name="trials")
    op.drop_table("trials")
    op.drop_index("speeds_by_age", table_name="speeds")
    op.drop_table("speeds")
    _create_speeds(wall=False)


def _create_speeds(*first: sa.Column[str], wall: bool) -> None:
    key = [*(column.name for column in first), "model", "gpu_type", "gpus"]
    op.create_table(
        "speeds",
        *first,
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("gpu_type", sa.String(), nullable=False),
        sa.Column("gpus", sa.Integer(), nullable=False),
        sa.Column("steps_per_second", sa.Float(), nullable=False),
        sa.Column("reports", sa.Integer(), nullable=False),
        *([sa.Column("wall", sa.Float(), nullable=False)] if wall else []),
        sa.PrimaryKeyConstraint(*key),
    )
