"""The features of a schedule move from `extra` into a column of their own.

A hundred thousand of them are read when a run starts; as JSON that took most of the time.
"""

from __future__ import annotations

import struct
from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

JSON = sa.JSON(none_as_null=True).with_variant(
    postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), "postgresql"
)
BATCH = 2000

RECORDS = sa.table(
    "measure_records",
    sa.column("id", sa.BigInteger),
    sa.column("extra", JSON),
    sa.column("features", sa.LargeBinary),
)


def upgrade() -> None:
    op.add_column(
        "measure_records",
        sa.Column(
            "features",
            sa.LargeBinary(),
            nullable=True,
            comment="What the cost model sees of the schedule: 8-byte floats, little-endian, one "
            "after the other. NULL if none were noted.",
        ),
    )
    connection, last = op.get_bind(), 0
    while rows := connection.execute(_after(last)).all():
        last = rows[-1].id
        moved = [_moved(row.id, row.extra) for row in rows if _is_features(row.extra)]
        if moved:
            connection.execute(_MOVE, moved)


def _after(last: int) -> sa.Select[Any]:
    query = sa.select(RECORDS.c.id, RECORDS.c.extra).where(RECORDS.c.id > last)
    return query.order_by(RECORDS.c.id).limit(BATCH)


_MOVE = (
    sa.update(RECORDS)
    .where(RECORDS.c.id == sa.bindparam("record"))
    .values(extra=sa.bindparam("rest"), features=sa.bindparam("packed"))
)


def _is_features(extra: dict[str, Any]) -> bool:
    values = extra.get("features")
    return isinstance(values, list) and set(map(type, values)) <= {float, int} and bool(values)


def _moved(record: int, extra: dict[str, Any]) -> dict[str, Any]:
    values = extra.pop("features")
    return {"record": record, "rest": extra, "packed": struct.pack(f"<{len(values)}d", *values)}
