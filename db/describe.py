"""`docs/database.md` out of the models and views: `python -m db.describe > docs/database.md`.

In: nothing.  Out: Markdown.  A test compares it with the file.
"""

from __future__ import annotations

from collections.abc import Iterator

from sqlalchemy import Column, Table
from sqlalchemy.engine import make_url

from db.migrate import SCHEMA, VERSION_TABLE
from db.models import Base
from db.views import NAMES, view_summary

_DIALECTS = [make_url(url).get_dialect()() for url in ("sqlite://", "postgresql+psycopg://")]

_HEAD = f"""# The database

Made from the models by `python -m db.describe`; do not edit by hand. Schema version {SCHEMA}, kept
in the table `{VERSION_TABLE}`.

The same tables and views are on SQLite and PostgreSQL. Opening a database makes its tables, or
upgrades those of an older version in place; a SQLite file is copied to `FILE.schema-VERSION.bak`
first. A database of a newer version, or of another program, is refused and left as it is.

- `id` columns are row numbers without meaning outside the database.
- Columns `..._at` are seconds since 1970-01-01 UTC.
- Latencies are seconds of one call. They are never infinite or NaN: a trial without a latency has
  `NULL`, and `error` says why.
- JSON columns hold plain data: text in SQLite, `jsonb` in PostgreSQL.
- A round and its records are written in one transaction. There are no half-finished rounds, and no
  row says that something is under way.
- The record of a trial is known by run, round, workload, target and schedule; the unique key on
  them makes it harmless to send a round twice.

[queries.md](queries.md) has questions with their SQL, [records.md](records.md) the format for
exchange.
"""


def database_page() -> str:
    """The whole page."""
    parts = [_HEAD, "## Tables\n", *map(_table, Base.metadata.sorted_tables)]
    parts.append("## Views\n")
    parts += [f"- `{name}`: {view_summary(name)}" for name in NAMES]
    return "\n".join(parts) + "\n"


def _table(table: Table) -> str:
    rows = "\n".join(_rows(table))
    return (
        f"### {table.name}\n\n{table.comment}\n\n"
        f"| column | SQLite | PostgreSQL | meaning |\n|---|---|---|---|\n{rows}\n"
    )


def _rows(table: Table) -> Iterator[str]:
    for column in table.columns:
        here, there = (column.type.compile(dialect=dialect).lower() for dialect in _DIALECTS)
        yield f"| `{column.name}` | {here} | {there} | {column.comment}{_notes(column)} |"


def _notes(column: Column[object]) -> str:
    notes = [f"refers to `{key.target_fullname}`" for key in column.foreign_keys]
    if column.primary_key and column.name != "id":
        notes.append("part of the key")
    if column.unique:
        notes.append("unique")
    if column.nullable:
        notes.append("may be NULL")
    return f" ({', '.join(notes)})" if notes else ""


if __name__ == "__main__":
    print(database_page(), end="")
