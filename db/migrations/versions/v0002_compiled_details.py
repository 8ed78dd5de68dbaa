"""Compiled networks note what else is known of them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

JSON = sa.JSON(none_as_null=True).with_variant(
    postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), "postgresql"
)


def upgrade() -> None:
    op.add_column(
        "compiled_networks",
        sa.Column(
            "details",
            JSON,
            nullable=False,
            server_default="{}",
            comment="What else was noted: workloads on their default schedule, host calls.",
        ),
    )
