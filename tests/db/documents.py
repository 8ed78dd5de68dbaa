"""Run the queries of `docs/queries.md`; `python tests/db/documents.py` writes the pages anew."""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"```sql\n(?P<sql>.*?)```\n\n```text\n(?P<output>.*?)```", re.DOTALL)


def queries(page: str) -> Iterator[tuple[str, str]]:
    """Each query of the page with the output that stands below it."""
    for match in BLOCK.finditer(page):
        yield match["sql"], match["output"]


def run_query(connection: Connection, sql: str) -> str:
    result = connection.exec_driver_sql(sql.strip().rstrip(";"))
    return render(list(result.keys()), [tuple(row) for row in result])


def render(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    cells = [list(names), *([show(value) for value in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(names))]
    lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in cells]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "".join(line.rstrip() + "\n" for line in lines)


def show(value: Any) -> str:
    if value is None:
        return "NULL"
    return str(value) if isinstance(value, (int, str)) else _number_or_text(value)


def _number_or_text(value: Any) -> str:
    try:
        return f"{float(value):.4g}"
    except (TypeError, ValueError):
        return str(value)


def updated_queries(page: str, connection: Connection) -> str:
    def once(match: re.Match[str]) -> str:
        output = run_query(connection, match["sql"])
        return f"```sql\n{match['sql']}```\n\n```text\n{output}```"

    return BLOCK.sub(once, page)


def main() -> None:
    sys.path[:0] = [str(Path(__file__).parent), str(DOCS.parent)]
    from sample_nights import fill

    from db.describe import database_page
    from db.sql_store import SqlStore

    page = DOCS / "queries.md"
    with tempfile.TemporaryDirectory() as folder, SqlStore(f"{folder}/sample.db") as store:
        fill(store)
        with store._reader.begin() as connection:
            page.write_text(updated_queries(page.read_text(), connection))
    (DOCS / "database.md").write_text(database_page())


if __name__ == "__main__":
    main()
