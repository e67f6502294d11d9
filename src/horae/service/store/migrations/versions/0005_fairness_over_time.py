"""Schema 5: rho by tenant and GPU-hours by type over time; GPU-seconds that jobs held and did not use."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "fairness",
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("tenant", sa.String(), nullable=False),
        sa.Column("app", sa.String(), nullable=False),
        sa.Column("rho", sa.Float(), nullable=True),
        sa.Column("rho_max", sa.Float(), nullable=True),
        sa.Column("gpus", sa.Integer(), nullable=False),
        sa.Column("guaranteed_gpus", sa.Integer(), nullable=False),
        sa.Column("waiting_jobs", sa.Integer(), nullable=False),
        sa.Column("own_wait_seconds", sa.Float(), nullable=False),
        sa.Column("is_hourly", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("at", "tenant", "app"),
    )
    op.create_index("fairness_by_tenant", "fairness", ["tenant", "at"], unique=False)
    op.create_table(
        "gpu_hours",
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("gpu_type", sa.String(), nullable=False),
        sa.Column("held", sa.Float(), nullable=False),
        sa.Column("idle", sa.Float(), nullable=False),
        sa.Column("unusable", sa.Float(), nullable=False),
        sa.Column("unused", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("at", "gpu_type"),
    )
    op.add_column("jobs", sa.Column("unused_gpu_seconds", sa.Float(), nullable=True))
    op.create_index("jobs_by_end", "jobs", ["ended_at"], unique=False)


def downgrade() -> None:
    op.drop_index("jobs_by_end", table_name="jobs")
    op.drop_column("jobs", "unused_gpu_seconds")
    op.drop_table("gpu_hours")
    op.drop_index("fairness_by_tenant", table_name="fairness")
    op.drop_table("fairness")
