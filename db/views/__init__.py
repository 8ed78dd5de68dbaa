"""Views for analysts: the same names, columns and SQL on SQLite and PostgreSQL.

In: nothing.  Out: `VIEWS`, name to its SELECT, one `.sql` file each beside this module.  They are
made again after every migration, so a changed view needs a new revision (an empty one will do).
"""

from __future__ import annotations

from importlib.resources import files

from sqlalchemy import Connection

NAMES = (
    "best_records",
    "tuning_progress",
    "network_latency_history",
    "trial_allocation",
    "error_summary",
    "model_accuracy",
)

_NIGHT = {
    "sqlite": "date({}, 'unixepoch')",
    "postgresql": "date(to_timestamp({}) AT TIME ZONE 'UTC')",
}


def view_sql(name: str, dialect: str) -> str:
    """The view's SELECT; `{{night:column}}` in the file becomes the column's date in UTC."""
    text = (files(__name__) / f"{name}.sql").read_text(encoding="utf-8")
    head, *rest = text.split("{{night:")
    for part in rest:
        column, tail = part.split("}}", 1)
        head += _NIGHT[dialect].format(column) + tail
    return head.strip().rstrip(";")


def view_summary(name: str) -> str:
    """What the view is for: the comment at the head of its file."""
    text = (files(__name__) / f"{name}.sql").read_text(encoding="utf-8")
    lines = [line[2:].strip() for line in text.splitlines() if line.startswith("--")]
    return " ".join(lines)


def drop_views(connection: Connection) -> None:
    """Drop our views where they exist."""
    for name in reversed(NAMES):
        connection.exec_driver_sql(f"DROP VIEW IF EXISTS {name}")


def create_views(connection: Connection) -> None:
    """Make all views; none may exist."""
    for name in NAMES:
        sql = view_sql(name, connection.dialect.name).replace("%", "%%")
        connection.exec_driver_sql(f"CREATE VIEW {name} AS\n{sql}")
