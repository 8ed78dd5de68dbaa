"""The pages of `docs/` about the database are true: made from the models, and run."""

from __future__ import annotations

import json
import re

import pytest
from documents import DOCS, queries, run_query
from sample_nights import fill
from store_samples import SCOPE, failed, record

from db.describe import database_page
from db.exchange import store_lines
from db.lines import (
    FORMAT,
    VERSION,
    machine_from_json,
    machine_to_json,
    parse_line,
    record_from_json,
    record_to_json,
    round_from_json,
    round_to_json,
    run_from_json,
    run_to_json,
)
from db.memory_store import MemoryStore
from db.models import Base
from db.sql_store import SqlStore
from db.values import MachineInfo, RoundInfo, RunStatus
from db.views import NAMES
from engine.records import ErrorKind, TimingMode


def test_database_page_is_made_from_the_models() -> None:
    assert (DOCS / "database.md").read_text() == database_page()


def test_every_table_and_column_has_a_comment() -> None:
    for table in Base.metadata.tables.values():
        assert table.comment, table.name
        for column in table.columns:
            assert column.comment and column.comment.endswith("."), f"{table.name}.{column.name}"


def test_postgresql_shows_the_comments(sql_store: SqlStore) -> None:
    if sql_store._writer.dialect.name != "postgresql":
        return
    with sql_store._reader.begin() as connection:
        shown = connection.exec_driver_sql(
            "SELECT col_description('measure_records'::regclass, 10) IS NOT NULL,"
            " obj_description('measure_records'::regclass)"
        ).one()
    assert tuple(shown) == (True, Base.metadata.tables["measure_records"].comment)


def test_ten_questions_give_the_output_shown(sql_store: SqlStore) -> None:
    fill(sql_store)
    found = list(queries((DOCS / "queries.md").read_text()))
    assert len(found) == 10
    with sql_store._reader.begin() as connection:
        for sql, output in found:
            assert run_query(connection, sql) == output, sql


def test_every_view_is_asked() -> None:
    asked = " ".join(sql for sql, _ in queries((DOCS / "queries.md").read_text()))
    assert [name for name in NAMES if name not in asked] == []


class TestRecordsPage:
    page = (DOCS / "records.md").read_text()

    def test_examples_are_lines_of_the_format(self) -> None:
        examples = re.findall(r"```json\n(.*?)\n```", self.page, re.DOTALL)
        kinds = [parse_line(text.encode() + b"\n")["kind"] for text in examples]
        assert kinds == ["record", "workload", "target", "network", "machine", "run", "round"]
        data = {kind: json.loads(text) for kind, text in zip(kinds, examples, strict=True)}
        assert record_to_json(record_from_json(data["record"])) == data["record"]
        assert machine_to_json(machine_from_json(data["machine"])) == data["machine"]
        assert run_to_json(run_from_json(data["run"])) == data["run"]
        assert round_to_json(*round_from_json(data["round"])) == data["round"]

    def test_all_fields_and_words_stand_there(self) -> None:
        store = MemoryStore()
        store.register_workload("conv-a", {"anchor": "conv2d"})
        store.register_network("net", "h", {"conv-a": 1})
        store.register_machine(MachineInfo("box-1"))
        run_id = store.start_run(["net"], SCOPE, machine="box-1")
        store.commit_round(RoundInfo(run_id, 0, "conv-a"), [record(0)])
        lines = [json.loads(line) for line in store_lines(store)]
        assert {line["kind"] for line in lines} >= {"record", "machine", "run", "round"}
        words = {key for line in lines for key in line} | {"sketch", "knobs"}
        words |= {str(word) for word in (*ErrorKind, *TimingMode, *RunStatus)} | {FORMAT}
        assert [
            word for word in sorted(words) if f"`{word}`" not in self.page.replace('"', "")
        ] == []
        assert f"`{VERSION}`" in self.page


class TestViews:
    def rows(self, store: SqlStore, sql: str) -> list[tuple[object, ...]]:
        with store._reader.begin() as connection:
            return [tuple(row) for row in connection.exec_driver_sql(sql)]

    def test_all_are_empty_on_an_empty_database(self, sql_store: SqlStore) -> None:
        for name in NAMES:
            assert self.rows(sql_store, f"SELECT * FROM {name}") == []

    @pytest.mark.parametrize("order", [(1, 2, 3, 4), (4, 3, 2, 1), (2, 1, 4, 3)])
    def test_rank_correlation(self, sql_store: SqlStore, order: tuple[int, ...]) -> None:
        trials = [record(i, 1e-3 * i, predicted=1e-3 * place) for i, place in enumerate(order, 1)]
        sql_store.add_records([*trials, failed(9), record(10, predicted=None)])
        ((trials_seen, found, first),) = self.rows(
            sql_store,
            "SELECT trials, rank_correlation, first_choice_latency FROM model_accuracy",
        )
        squares = sum((i - place) ** 2 for i, place in enumerate(order, 1))
        assert trials_seen == 4
        assert found == pytest.approx(1 - 6 * squares / 60)
        assert first == pytest.approx(1e-3 * (order.index(1) + 1))

    def test_a_single_trial_has_no_correlation(self, sql_store: SqlStore) -> None:
        sql_store.add_records([record(0)])
        sql = "SELECT rank_correlation FROM model_accuracy"
        assert self.rows(sql_store, sql) == [(None,)]

    def test_progress_counts_failures_and_never_rises(self, sql_store: SqlStore) -> None:
        sql_store.add_records([failed(0), record(1, 2e-3), record(2, 3e-3), record(3, 1e-3)])
        sql = "SELECT trial, best_latency FROM tuning_progress ORDER BY trial"
        assert self.rows(sql_store, sql) == [(1, None), (2, 2e-3), (3, 2e-3), (4, 1e-3)]
