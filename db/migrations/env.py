"""Alembic's entry: migrates over the connection, and inside the transaction, of `db.migrate`."""

from __future__ import annotations

from alembic import context

from db.migrate import VERSION_TABLE
from db.models import Base

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=Base.metadata,
    version_table=VERSION_TABLE,
    transactional_ddl=True,
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
