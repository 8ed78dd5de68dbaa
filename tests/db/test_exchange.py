"""JSON lines: out and in again, whatever happened to the file in between."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
from documents import show
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_nights import fill
from store_samples import OTHER_SCOPES, SCOPE, failed, record

from db.exchange import append_records, export_store, import_file, read_records
from db.lines import MAX_LINE, parse_line, record_from_json, record_line
from db.memory_store import MemoryStore
from db.sql_store import SqlStore
from db.store import Store
from db.values import RunStatus
from engine.errors import StoreError
from engine.records import MeasureRecord

BINARY = bytes(range(128, 256)) + b"\n"


def filled(store: Store, count: int = 10) -> Store:
    store.register_workload("conv-a", {"anchor": "conv2d"})
    store.register_target(SCOPE, {"cpu": "Xeon"})
    store.register_network("net", "hash-1", {"conv-a": 3, "conv-b": 1}, "/m.onnx")
    store.add_records([record(i, run_id="night-1", round_index=i // 4) for i in range(count)])
    store.add_records([failed(0, key="conv-b"), record(0, scope=OTHER_SCOPES[0])])
    return store


def test_export_and_import_give_the_same_store(store: Store, tmp_path: Path) -> None:
    filled(store)
    path = tmp_path / "records.jsonl"
    lines = export_store(store, path)
    other = MemoryStore()
    report = import_file(other, path)
    assert (report.lines, report.new, report.known, report.bad_count) == (lines, 12, 0, 0)
    assert list(other.iter_records()) == list(store.iter_records())
    assert other.workloads() == store.workloads()
    assert dict(other.targets()) == dict(store.targets())
    assert [n.weights for n in other.networks()] == [n.weights for n in store.networks()]


def test_import_is_idempotent(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    export_store(filled(MemoryStore()), path)
    assert import_file(store, path).new == 12
    again = import_file(store, path)
    assert (again.new, again.known) == (0, 12)
    assert store.stats().records == 12


def test_databases_of_several_machines_merge(store: Store, tmp_path: Path) -> None:
    for name, seconds in (("left", 2e-3), ("right", 1e-3)):
        source = MemoryStore()
        source.add_records([record(i, seconds, run_id=name) for i in range(3)])
        export_store(source, tmp_path / name)
        import_file(store, tmp_path / name)
    assert store.stats().records == 6
    assert store.best(["conv-a"], SCOPE)["conv-a"].run_id == "right"


def test_exports_are_equal_for_equal_stores(store: Store, tmp_path: Path) -> None:
    export_store(filled(store), tmp_path / "a")
    export_store(filled(MemoryStore()), tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_export_of_one_workload_or_scope(tmp_path: Path) -> None:
    store, path = filled(MemoryStore()), tmp_path / "records.jsonl"
    export_store(store, path, ["conv-b"])
    assert [r.workload_key for r in read_records(path)] == ["conv-b"]
    export_store(store, path, scope=OTHER_SCOPES[0])
    assert [r.scope for r in read_records(path)] == [OTHER_SCOPES[0]]


VIEWS = {
    "tuning_progress": "*",
    "trial_allocation": "*",
    "error_summary": "*",
    "model_accuracy": "*",
    "best_records": "workload_key, threads, latency, schedule, run_id, round_index, created_at",
    "network_latency_history": "network, night, run_id, threads, status, estimated_latency",
}
"""View -> what of it an export carries."""


def views(store: SqlStore) -> dict[str, list[str]]:
    """The rows of every view as text; numbers in the digits that both databases agree on."""
    found = {}
    with store._reader.begin() as connection:
        for name, columns in VIEWS.items():
            rows = connection.exec_driver_sql(f"SELECT {columns} FROM {name}")
            found[name] = sorted(", ".join(map(show, row)) for row in rows)
    return found


class TestRunsAndRounds:
    """An export is enough to rebuild the views in another database."""

    def exported(self, path: Path) -> dict[str, list[str]]:
        with SqlStore(str(path.with_suffix(".db"))) as source:
            fill(source)
            export_store(source, path)
            return views(source)

    def test_views_are_rebuilt(self, sql_store: SqlStore, tmp_path: Path) -> None:
        path = tmp_path / "nights.jsonl"
        wanted = self.exported(path)
        assert min(map(len, wanted.values())) > 3
        report = import_file(sql_store, path)
        assert (report.bad_count, report.new_runs, report.new_rounds) == (0, 4, 15)
        if sql_store._writer.dialect.name == "sqlite":
            assert views(sql_store) == wanted
        else:
            assert len(views(sql_store)["tuning_progress"]) == len(wanted["tuning_progress"])
            assert views(sql_store)["trial_allocation"] == wanted["trial_allocation"]
        again = import_file(sql_store, path)
        assert (again.new, again.new_runs, again.new_rounds, again.bad_count) == (0, 0, 0, 0)
        export_store(sql_store, tmp_path / "again.jsonl")
        assert (tmp_path / "again.jsonl").read_bytes() == path.read_bytes()

    @pytest.mark.parametrize("order", ["sorted", "reversed", "joined"])
    def test_lines_in_any_order(self, tmp_path: Path, order: str) -> None:
        path = tmp_path / "nights.jsonl"
        wanted = self.exported(path)
        lines = path.read_bytes().splitlines(keepends=True)
        changed = {"sorted": sorted(lines), "reversed": lines[::-1], "joined": lines * 2}[order]
        path.write_bytes(b"".join(changed))
        with SqlStore(str(tmp_path / "other.db")) as store:
            assert import_file(store, path).bad_count == 0
            found = views(store)
            assert store.stats().rounds == 15
        for name in ("trial_allocation", "error_summary"):
            assert found[name] == wanted[name]

    def test_files_without_runs_and_rounds_are_read(self, store: Store, tmp_path: Path) -> None:
        """As older versions wrote them."""
        path = tmp_path / "nights.jsonl"
        self.exported(path)
        lines = path.read_bytes().splitlines(keepends=True)
        old = [
            line for line in lines if parse_line(line)["kind"] not in ("machine", "run", "round")
        ]
        path.write_bytes(b"".join(old))
        report = import_file(store, path)
        assert (report.lines, report.bad_count, report.new_runs) == (len(old), 0, 0)
        assert report.new == 63 and {run.status for run in store.runs()} == {RunStatus.IMPORTED}

    def test_a_cut_run_line_costs_that_line(self, store: Store, tmp_path: Path) -> None:
        path = tmp_path / "nights.jsonl"
        self.exported(path)
        lines = path.read_bytes().splitlines(keepends=True)
        kept = [line[:90] if parse_line(line)["kind"] == "run" else line for line in lines]
        path.write_bytes(b"\n".join(line.rstrip(b"\n") for line in kept) + b"\n")
        report = import_file(store, path)
        assert (report.bad_count, report.new, report.new_rounds) == (4, 63, 15)
        assert sum(len(store.rounds(run.run_id)) for run in store.runs()) == 15


class TestG305BadLines:
    """A half-written line costs that line and nothing else."""

    def write(self, path: Path) -> bytes:
        good = [record_line(record(i)).encode() + b"\n" for i in range(10)]
        cut = record_line(record(10)).encode()[:100]
        content = b"".join(good[:5]) + BINARY + b"\n" + b"".join(good[5:]) + cut
        path.write_bytes(content)
        return content

    def test_good_lines_are_read_and_bad_ones_counted(self, store: Store, tmp_path: Path) -> None:
        path = tmp_path / "records.jsonl"
        content = self.write(path)
        report = import_file(store, path)
        assert (report.lines, report.new, report.bad_count) == (13, 10, 3)
        assert [(line.number, line.reason) for line in report.bad] == [
            (6, "not text in UTF-8"),
            (7, "blank line"),
            (13, "not JSON, the line is cut"),
        ]
        assert path.read_bytes() == content

    def test_nothing_is_glued_onto_the_cut_line(self, store: Store, tmp_path: Path) -> None:
        path = tmp_path / "records.jsonl"
        content = self.write(path)
        assert append_records(path, [record(20), record(21)]) == 2
        assert path.read_bytes().startswith(content + b"\n")
        report = import_file(store, path)
        assert (report.new, report.bad_count, report.lines) == (12, 3, 15)

    def test_append_to_nothing_and_to_a_whole_file(self, tmp_path: Path) -> None:
        path = tmp_path / "records.jsonl"
        append_records(path, [record(0)])
        append_records(path, [record(1)])
        assert list(read_records(path)) == [record(0), record(1)]
        assert path.read_bytes().count(b"\n") == 2

    @pytest.mark.parametrize("cut", range(0, 400, 7))
    def test_cut_anywhere(self, cut: int, tmp_path: Path) -> None:
        path = tmp_path / "records.jsonl"
        whole = record_line(record(0)).encode() + b"\n"
        path.write_bytes(whole + whole[:cut])
        append_records(path, [record(1)])
        assert list(read_records(path)) == [record(0), record(1)]


def changed(**fields: object) -> bytes:
    return json.dumps(json.loads(record_line(record(0))) | fields).encode() + b"\n"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"[1, 2]\n", "not a line of noctune-records"),
        (b'{"i": [["llvm"], "v0.6"]}\n', "not a line of noctune-records"),
        (b"\r\n", "blank line"),
        (b"[" * 100_000 + b"\n", "nested too deeply"),
        (b"x" * (MAX_LINE + 5) + b"\n", "line too long"),
        (changed(version=2), "version 2 is not known here"),
        (changed(kind="secret"), "unknown kind: 'secret'"),
        (changed(kind=None), "without a kind"),
        (changed(workload_key=3), "workload_key is not a text"),
        (changed(workload_key="k" * 9999), "workload_key: long"),
        (changed(threads=True), "threads is not a whole number in range"),
        (changed(threads=2**40), "threads is not a whole number in range"),
        (changed(threads=0), "threads is not a whole number in range"),
        (changed(threads=-1), "threads is not a whole number in range"),
        (changed(round_index=-1), "round_index is not a whole number in range"),
        (changed(workload_key=""), "workload_key is empty"),
        (changed(target_key=""), "target_key is empty"),
        (changed(run_id="a\x07b"), "run_id holds control characters"),
        (changed(workload_key="a\n"), "workload_key holds control characters"),
        (changed(created=-1), "created is not within 0 and the year 9999"),
        (changed(created=1e308), "created is not within 0 and the year 9999"),
        (changed(build_seconds=-1), "build_seconds is not within 0 and"),
        (changed(predicted=-5), "predicted is not above zero"),
        (changed(predicted=0), "predicted is not above zero"),
        (changed(kind="network", name="", content_hash="h"), "name is empty"),
        (changed(kind="network", name="n", content_hash="h", weights={"k": 0}), "k is not a whole"),
        (changed(kind="run", status="failed", started=-1), "started is not within"),
        (changed(kind="round", started=1, finished=2, trials=-1), "trials is not a whole"),
        (changed(round_index=0.5), "round_index is not a whole number in range"),
        (changed(times="fast"), "times is not a list"),
        (changed(times=[10**400]), "times is not a number"),
        (changed(times=[None]), "times is not a number"),
        (changed(error="bad luck"), "error: 'bad luck' is not a valid ErrorKind"),
        (changed(timing_mode="warm"), "timing_mode: 'warm' is not a valid TimingMode"),
        (changed(schedule={"sketch": "s"}), "knobs is not an object"),
        (changed(schedule={"sketch": "s", "knobs": {"a": "x"}}), "a is not a whole number"),
        (changed(schedule={"sketch": "s", "knobs": {"a": 2**63}}), "a is not a whole number"),
        (changed(extra=[]), "extra is not an object"),
        (changed(kind="machine"), "machine is not a text"),
        (changed(kind="run"), "status: status is not a text"),
        (changed(kind="run", status="tired"), "status: 'tired' is not a valid RunStatus"),
        (changed(kind="run", status="failed", networks="a"), "networks is not a list"),
        (changed(kind="run", status="failed"), "started is not a number"),
        (changed(kind="round", task_table=[1]), "task_table holds something else"),
        (changed(kind="round", estimates={"a": "x"}), "a is not a number"),
        (changed(kind="round", started=1, finished=2), "trials is not a whole number"),
        (b'{"format":"noctune-records","version":1,"kind":"record","times":[NaN]}\n', "not JSON"),
        (b'{"format":"noctune-records","version":1,"kind":"workload"}\n', "workload_key is not"),
        (b'{"format":"noctune-records","version":1,"kind":"network"}\n', "name is not a text"),
    ],
)
def test_foreign_and_wrong_lines(line: bytes, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_bytes(line + record_line(record(1)).encode() + b"\n")
    store = MemoryStore()
    report = import_file(store, path)
    assert (report.new, report.bad_count) == (1, 1)
    assert report.bad[0].number == 1
    assert report.bad[0].reason.startswith(reason)


def test_records_of_no_run_come_back(tmp_path: Path) -> None:
    """Their run is known by an empty text."""
    path, other = tmp_path / "records.jsonl", MemoryStore()
    source = MemoryStore()
    source.add_records([record(0)])
    export_store(source, path)
    assert import_file(other, path).bad_count == 0
    assert list(other.iter_records()) == [record(0)]


def test_byte_order_mark_and_windows_line_ends_are_fine(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + record_line(record(0)).encode() + b"\r\n")
    assert list(read_records(path)) == [record(0)]


def test_imported_networks_do_not_replace_the_current_version(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    export_store(filled(MemoryStore()), path)
    store = MemoryStore()
    store.register_network("net", "hash-2", {"conv-a": 1})
    import_file(store, path)
    assert [network.content_hash for network in store.networks()] == ["hash-2"]


def test_a_failed_export_leaves_the_old_file(tmp_path: Path) -> None:
    class Failing(MemoryStore):
        def workloads(self) -> dict[str, dict[str, object]]:
            raise StoreError("connection lost")

    path = tmp_path / "records.jsonl"
    path.write_text("old")
    with pytest.raises(StoreError, match="connection lost"):
        export_store(Failing(), path)
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["records.jsonl"]


@pytest.mark.parametrize("work", [lambda s, p: export_store(s, p), lambda s, p: import_file(s, p)])
def test_files_that_cannot_be_opened(work: Callable[..., object], tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"cannot be (written|read).*No such file"):
        work(MemoryStore(), tmp_path / "absent" / "x.jsonl")


finite = st.floats(allow_nan=False, allow_infinity=False)


@settings(max_examples=40, deadline=None)
@given(
    times=st.lists(st.floats(), max_size=4),
    predicted=st.none() | st.floats(min_value=0, exclude_min=True),
    message=st.text(),
    knobs=st.dictionaries(st.text(max_size=9), st.integers(-(2**63), 2**63 - 1), max_size=4),
    extra=st.dictionaries(st.text(max_size=9), st.none() | st.booleans() | finite | st.text()),
)
def test_any_record_survives_the_file(
    times: list[float],
    predicted: float | None,
    message: str,
    knobs: dict[str, int],
    extra: dict[str, object],
) -> None:
    from engine.records import Schedule

    given_record = record(
        times=tuple(times), predicted=predicted, message=message, extra=extra,
        schedule=Schedule("s", knobs),
    )  # fmt: skip
    line = record_line(given_record)
    assert "\n" not in line
    back = record_from_json(parse_line(line.encode() + b"\n"))
    store = MemoryStore()
    store.add_records([given_record])
    assert list(store.iter_records()) == [back]
    assert isinstance(back, MeasureRecord) and back.valid == (
        bool(times) and all(0 < t < math.inf for t in times)
    )
