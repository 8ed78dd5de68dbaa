"""The contract of `Store`, over memory, SQLite and a real PostgreSQL."""

from __future__ import annotations

import math
import threading
from dataclasses import replace

import numpy as np
import pytest
from store_samples import OTHER_SCOPES, SCOPE, failed, record, started

from db.store import Store
from db.values import ModelRows, RoundInfo, unpack_features
from engine.records import ErrorKind, MeasureRecord, Schedule


def latencies(rows: ModelRows) -> list[float]:
    return list(rows.latencies)


class TestRecords:
    def test_round_trip_keeps_every_field(self, store: Store) -> None:
        given = record(3, run_id="night-1", round_index=2, noisy=True, message="")
        assert store.add_records([given]) == 1
        assert store.history(["conv-a"], SCOPE) == {"conv-a": (given,)}
        assert list(store.iter_records()) == [given]

    def test_records_come_in_the_order_of_storing(self, store: Store) -> None:
        given = [record(i, 1e-3 * (9 - i)) for i in (5, 1, 8, 0)]
        store.add_records(given[:2])
        store.add_records(given[2:])
        assert list(store.history(["conv-a"], SCOPE)["conv-a"]) == given
        assert list(store.iter_records()) == given
        assert latencies(store.model_rows(SCOPE)) == [r.latency for r in given]

    def test_same_records_again_change_nothing(self, store: Store) -> None:
        given = [record(i) for i in range(5)]
        assert store.add_records(given) == 5
        assert store.add_records([*given, record(5)]) == 1
        assert store.add_records([replace(given[0], times=(1e-9,))]) == 0
        assert store.history(["conv-a"], SCOPE)["conv-a"] == (*given, record(5))

    def test_twice_in_one_call_is_stored_once(self, store: Store) -> None:
        assert store.add_records([record(1), record(1)]) == 1

    def test_known_by_run_round_workload_scope_and_schedule(self, store: Store) -> None:
        base = record(1, run_id="r")
        others = [
            replace(base, run_id="s"),
            replace(base, round_index=1),
            replace(base, workload_key="conv-b"),
            replace(base, scope=OTHER_SCOPES[0]),
            replace(base, schedule=Schedule("tiled", {"tile": 2, "unroll": 4})),
        ]
        assert store.add_records([base, *others]) == 6

    def test_best_and_top_give_only_valid_ones(self, store: Store) -> None:
        store.add_records([record(0, 3e-3), record(1, 2e-3), failed(2), failed(3, times=(1e-9,))])
        store.add_records([failed(0, key="conv-b")])
        assert store.best(["conv-a", "conv-b", "never"], SCOPE) == {"conv-a": record(1, 2e-3)}
        assert store.top("conv-a", SCOPE, 9) == (record(1, 2e-3), record(0, 3e-3))
        assert store.top("conv-b", SCOPE, 9) == store.top("never", SCOPE, 9) == ()

    def test_top_gives_different_schedules(self, store: Store) -> None:
        rounds = [
            record(t, 1e-3 * (t + 1) + i * 1e-5, round_index=i) for t in range(4) for i in range(5)
        ]
        store.add_records(rounds)
        tiles = [found.schedule.knobs["tile"] for found in store.top("conv-a", SCOPE, 3)]
        assert tiles == [0, 1, 2]
        assert store.top("conv-a", SCOPE, 0) == ()

    def test_newest_come_first(self, store: Store) -> None:
        stored = [record(0), failed(1), record(2), failed(3, key="conv-b"), record(4, key="conv-b")]
        store.add_records(stored)
        assert store.newest(2) == (stored[4], stored[3])
        assert store.newest(9, ["conv-a", "absent"]) == (stored[2], stored[1], stored[0])
        assert store.newest(9, errors_only=True) == (stored[3], stored[1])
        assert store.newest(9, ["absent"]) == store.newest(0) == ()

    def test_equal_latencies_give_the_first_stored(self, store: Store) -> None:
        store.add_records([record(7), record(3), record(5)])
        assert store.best(["conv-a"], SCOPE)["conv-a"] == record(7)

    def test_empty_store(self, store: Store) -> None:
        assert store.history(["a"], SCOPE) == {"a": ()}
        assert store.best(["a"], SCOPE) == {} == store.best([], SCOPE)
        assert store.model_rows(SCOPE) == ModelRows() and store.groups() == ()
        assert list(store.iter_records()) == []
        assert store.trial_counts(["a"], SCOPE) == {"a": 0}
        assert store.stats().records == 0
        assert store.add_records([]) == 0

    def test_counts_and_groups(self, store: Store) -> None:
        store.add_records([record(0, 2e-3), record(1), failed(2), failed(0, key="conv-b")])
        store.add_records([record(0, 5e-3, scope=OTHER_SCOPES[0])])
        assert store.trial_counts(["conv-b", "conv-a"], SCOPE) == {"conv-b": 1, "conv-a": 3}
        found = [(g.workload_key, g.scope, g.records, g.valid, g.best) for g in store.groups()]
        assert found == [
            ("conv-a", SCOPE, 3, 2, 1e-3),
            ("conv-a", OTHER_SCOPES[0], 1, 1, 5e-3),
            ("conv-b", SCOPE, 1, 0, None),
        ]
        stats = store.stats()
        assert (stats.records, stats.valid, stats.workloads) == (5, 3, 2)
        assert stats.errors == {"ok": 3, "crash": 2}
        assert stats.scopes == {SCOPE: 4, OTHER_SCOPES[0]: 1}

    def test_streaming_by_workload_and_scope(self, store: Store) -> None:
        mine, theirs = record(0), record(0, scope=OTHER_SCOPES[1])
        store.add_records([mine, theirs, record(0, key="conv-b")])
        assert list(store.iter_records(["conv-a"])) == [mine, theirs]
        assert list(store.iter_records(["conv-a"], SCOPE)) == [mine]
        assert list(store.iter_records(scope=OTHER_SCOPES[1])) == [theirs]
        assert list(store.iter_records(scope=OTHER_SCOPES[2])) == []

    @pytest.mark.parametrize("kind", list(ErrorKind))
    def test_every_error_kind_is_kept(self, store: Store, kind: ErrorKind) -> None:
        given = record(0) if kind is ErrorKind.OK else failed(0, kind)
        store.add_records([given])
        assert store.history(["conv-a"], SCOPE)["conv-a"] == (given,)

    def test_text_that_databases_refuse(self, store: Store) -> None:
        store.add_records([failed(0, message="core\0dump \ud800 \U0001f600", extra={"a\0": "\0"})])
        (found,) = store.history(["conv-a"], SCOPE)["conv-a"]
        assert found.message == "core\ufffddump ? \U0001f600"
        assert found.extra == {"a\ufffd": "\ufffd"}

    def test_outcomes_are_history_without_what_the_search_does_not_ask(self, store: Store) -> None:
        given = [
            record(0, run_id="r", round_index=2, noisy=True, times=(3e-3, 1e-3, 2e-3)),
            failed(1),
            record(2, key="conv-b"),
            record(3, scope=OTHER_SCOPES[0]),
        ]
        store.add_records(given)
        found = store.outcomes(["conv-a", "conv-b", "never"], SCOPE)
        less = {"predicted": None, "build_seconds": 0.0, "extra": {}}
        assert found == {
            "conv-a": (replace(given[0], times=(1e-3,), **less), replace(given[1], **less)),
            "conv-b": (replace(given[2], times=(1e-3,), **less),),
            "never": (),
        }

    def test_odd_keys_and_large_numbers(self, store: Store) -> None:
        key = "conv'a%s:1;\"--\u00e9" + "x" * 3000
        given = record(2**62, key=key, run_id="100%", extra={"big": 2**80, "deep": [{"x": None}]})
        store.add_records([given])
        assert store.history([key], SCOPE)[key] == (given,)
        assert store.best([key], SCOPE) == {key: given}

    def test_whole_numbers_beyond_64_bits_become_floats(self, store: Store) -> None:
        extra = {"edges": [2**64 - 1, -(2**63)], "beyond": [2**64, -(2**63) - 1], "far": 10**400}
        store.add_records([record(0, extra=extra)])
        (found,) = store.iter_records()
        assert found.extra["edges"] == extra["edges"]
        assert [type(value) for value in found.extra["edges"]] == [int, int]
        assert found.extra["beyond"] == [2.0**64, -(2.0**63)]
        assert [type(value) for value in found.extra["beyond"]] == [float, float]
        assert found.extra["far"] is None

    def test_numbers_of_numpy_are_numbers(self, store: Store) -> None:
        given = record(
            0,
            schedule=Schedule("tiled", {"tile": np.int64(8)}),  # type: ignore[dict-item]
            times=(np.float32(0.5), np.float64(0.25)),
            predicted=np.float32(0.5),
            round_index=np.int64(3),
            noisy=np.bool_(True),
            extra={"a": np.int32(1), "b": np.float32(0.5), "c": np.float64("nan")},
        )
        store.add_records([given])
        (found,) = store.history(["conv-a"], SCOPE)["conv-a"]
        assert (found.schedule.knobs, found.times) == ({"tile": 8}, (0.5, 0.25))
        assert (found.predicted, found.round_index, found.noisy) == (0.5, 3, True)
        assert found.extra == {"a": 1, "b": 0.5, "c": None}

    def test_many_workloads_at_once(self, store: Store) -> None:
        given = [record(0, key=f"w{i}") for i in range(4100)]
        assert store.add_records(given) == 4100
        keys = [r.workload_key for r in given]
        assert store.best(keys, SCOPE) == {r.workload_key: r for r in given}
        assert sum(store.trial_counts(keys, SCOPE).values()) == 4100


class TestModelRows:
    """What the cost model learns from: the newest trials of the scope."""

    def test_one_row_a_trial(self, store: Store) -> None:
        seen = [1.5, -2.0, 0.1]
        given = [
            record(0, extra={"origin": "model", "features": seen}),
            failed(1, key="conv-b", extra={"features": [3.0]}),
            record(2, extra={"features": "none"}),
        ]
        store.add_records(given)
        rows = store.model_rows(SCOPE)
        assert list(rows.workload_keys) == ["conv-a", "conv-b", "conv-a"]
        assert list(rows.latencies) == [1e-3, math.inf, 1e-3]
        assert list(rows.errors) == [ErrorKind.OK, ErrorKind.CRASH, ErrorKind.OK]
        unpacked = [f and unpack_features(f) for f in rows.features]
        assert unpacked == [tuple(seen), (3.0,), None]

    def test_the_newest_without_some_workloads(self, store: Store) -> None:
        store.add_records([record(i, 1e-3 * (i + 1), key=f"w{i % 3}") for i in range(9)])
        rows = store.model_rows(SCOPE, 3)
        assert latencies(rows) == pytest.approx([7e-3, 8e-3, 9e-3])
        rows = store.model_rows(SCOPE, 3, without=["w0", "never"])
        assert latencies(rows) == pytest.approx([6e-3, 8e-3, 9e-3])
        assert len(store.model_rows(SCOPE, 0)) == 0

    @pytest.mark.parametrize("features", [[], [1, 2.5], [0.5, None], 7, {"a": 1.0}, [-0.0, 1e308]])
    def test_whatever_stands_for_features_comes_back(self, store: Store, features: object) -> None:
        given = record(0, extra={"features": features, "other": 1})
        store.add_records([given])
        (found,) = store.iter_records()
        assert found == given
        assert repr(found.extra["features"]) == repr(features)


class TestG301NonFiniteTimes:
    """Infinite and undefined times are a status, never a number that a query could meet."""

    EXTREME = (1e308, 5e-324)

    @pytest.mark.parametrize("seconds", EXTREME)
    def test_extreme_but_finite_times_round_trip(self, store: Store, seconds: float) -> None:
        given = record(0, times=(seconds, seconds))
        store.add_records([given])
        assert store.history(["conv-a"], SCOPE)["conv-a"] == (given,)
        assert store.best(["conv-a"], SCOPE)["conv-a"].latency == seconds

    @pytest.mark.parametrize("seconds", [math.inf, -math.inf, math.nan, 0.0, -1.0])
    def test_others_are_unmeasurable_and_never_best(self, store: Store, seconds: float) -> None:
        store.add_records([record(0, times=(seconds,)), record(1, times=(1e-6, seconds))])
        assert store.best(["conv-a"], SCOPE) == {}
        store.add_records([record(2, 1.0)])
        assert store.best(["conv-a"], SCOPE) == {"conv-a": record(2, 1.0)}
        assert store.top("conv-a", SCOPE, 5) == (record(2, 1.0),)
        first, second, _ = store.history(["conv-a"], SCOPE)["conv-a"]
        for found in (first, second):
            assert found.error is ErrorKind.UNMEASURABLE
            assert found.times == () and found.latency == math.inf
            assert str(seconds) in found.message

    @pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
    def test_other_numbers_become_absent(self, store: Store, value: float) -> None:
        store.add_records([record(0, predicted=value, build_seconds=value, extra={"x": [value]})])
        (found,) = store.history(["conv-a"], SCOPE)["conv-a"]
        assert found.valid
        assert (found.predicted, found.build_seconds, found.extra) == (None, 0.0, {"x": [None]})


class TestG303Scopes:
    """A record of another target, thread count, timing mode or generator is never the answer."""

    def test_only_the_scope_asked_for(self, store: Store) -> None:
        v3, avx512, cores = OTHER_SCOPES[0], SCOPE, OTHER_SCOPES[1]
        mine = record(0, 2e-3, scope=v3)
        store.add_records(
            [record(0, 1e-3, scope=avx512), mine, record(0, 5e-4, scope=replace(v3, threads=4))]
        )
        store.add_records([record(0, 1e-4, scope=cores)])
        assert store.best(["conv-a"], v3) == {"conv-a": mine}
        assert store.top("conv-a", v3, 5) == (mine,)
        assert store.history(["conv-a"], v3) == {"conv-a": (mine,)}
        assert latencies(store.model_rows(v3)) == [mine.latency]
        assert store.trial_counts(["conv-a"], v3) == {"conv-a": 1}
        assert store.best(["conv-a"], avx512)["conv-a"].latency == 1e-3

    @pytest.mark.parametrize("other", OTHER_SCOPES)
    def test_each_part_of_the_scope_counts(self, store: Store, other: object) -> None:
        store.add_records([record(0, scope=other)])
        assert store.best(["conv-a"], SCOPE) == {}
        assert store.history(["conv-a"], SCOPE) == {"conv-a": ()}
        assert len(store.model_rows(SCOPE)) == 0

    def test_targets_are_listed_so_that_one_can_ask(self, store: Store) -> None:
        store.register_target(SCOPE, {"cpu": "Xeon"})
        store.register_target(SCOPE, {})
        store.add_records([record(0, scope=OTHER_SCOPES[0])])
        assert dict(store.targets()) == {SCOPE: {"cpu": "Xeon"}, OTHER_SCOPES[0]: {}}


class TestNetworks:
    def test_versions(self, store: Store) -> None:
        store.register_network("net", "h1", {"conv-a": 1})
        store.register_network("net", "h2", {"conv-a": 2, "conv-b": 1}, "/m.onnx")
        store.register_network("net", "h1", {"conv-a": 1})
        assert [(n.content_hash, n.weights) for n in store.networks()] == [
            ("h2", {"conv-a": 2, "conv-b": 1}),
            ("h1", {"conv-a": 1}),
        ]
        assert store.stats().networks == 2

    def test_workload_descriptions(self, store: Store) -> None:
        store.register_network("net", "h1", {"conv-a": 1})
        store.register_workload("conv-a", {})
        store.register_workload("conv-a", {"anchor": "conv2d", "flops": 2.5})
        store.register_workload("conv-a", {"anchor": "other"})
        assert store.workloads() == {"conv-a": {"anchor": "conv2d", "flops": 2.5}}

    def test_compiled_networks_and_evaluations(self, store: Store) -> None:
        run_id = started(store)
        evaluation = {"noctune": {"median_ms": 4.0}, "ratio": {"onnxruntime": 1.25}}
        first = store.add_compiled_network(
            "net", SCOPE, "/out/net.net", "h1", run_id=run_id, estimated=0.003,
            verification={"max_rel_error": 1e-5}, evaluation=evaluation,
        )  # fmt: skip
        again = store.add_compiled_network(
            "net", SCOPE, "/out/net.net", "h1", estimated=math.inf, details={"defaults": ["conv-b"]}
        )
        second = store.add_compiled_network("net", SCOPE, "/out/net.net", "h2")
        assert first == again != second
        store.mark_published(second)
        store.add_evaluation(second, {"note": "no figures"})
        one, two = store.compiled_networks("net")
        assert (one.id, one.run_id, one.estimated, one.verification) == (first, "", None, {})
        assert (one.details, two.details) == ({"defaults": ["conv-b"]}, {})
        assert one.published is None and two.published is not None
        assert [(e.compiled_id, e.median) for e in store.evaluations()] == [
            (first, 0.004),
            (second, None),
        ]
        assert store.evaluations("net")[0].data == evaluation
        assert store.compiled_networks("other") == () == store.evaluations("other")
        assert store.stats().compiled_networks == 2


class TestRemoval:
    def test_removes_what_was_archived(self, store: Store) -> None:
        store.add_records([record(i, 1e-3 * (i + 1)) for i in range(6)] + [record(0, key="b")])
        archived: list[MeasureRecord] = []
        gone = store.remove_records(
            lambda group: [r.schedule.knobs["tile"] > 3 for r in group], archived.extend
        )
        assert gone == 2
        assert [r.schedule.knobs["tile"] for r in archived] == [4, 5]
        assert store.stats().records == 5
        assert store.add_records(archived) == 2

    def test_a_failing_archive_removes_nothing(self, store: Store) -> None:
        store.add_records([record(i) for i in range(3)])

        def full(records: object) -> None:
            list(records)  # type: ignore[call-overload]
            raise OSError("disk full")

        with pytest.raises(OSError, match="disk full"):
            store.remove_records(lambda group: [True] * len(group), full)
        assert store.stats().records == 3

    def test_records_stored_meanwhile_stay(self, store: Store) -> None:
        store.add_records([record(i) for i in range(3)])

        def archive(records: object) -> None:
            list(records)  # type: ignore[call-overload]
            store.add_records([record(9)])

        assert store.remove_records(lambda group: [True] * len(group), archive) == 3
        assert store.history(["conv-a"], SCOPE)["conv-a"] == (record(9),)


class TestThreads:
    def test_the_same_round_from_many_threads_is_stored_once(self, store: Store) -> None:
        run_id = started(store)
        new: list[int] = []
        errors: list[BaseException] = []

        def work() -> None:
            try:
                round_ = RoundInfo(run_id, 0, "conv-a", {"net": 1.0})
                new.append(store.commit_round(round_, [record(i) for i in range(16)]))
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert errors == []
        assert sorted(new) == [0] * 7 + [16]
        assert store.stats().records == 16
