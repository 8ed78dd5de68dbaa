"""The contract of `Store` for runs and rounds, over memory, SQLite and a real PostgreSQL."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from store_samples import SCOPE, failed, record, started

from db.store import Store
from db.values import MachineInfo, RoundInfo, RunInfo, RunStatus
from engine.errors import StoreError


class TestRuns:
    def test_run_and_rounds_round_trip(self, store: Store) -> None:
        store.register_machine(MachineInfo("m1", "box", "Xeon", 2, ("avx2",), {"l2": 1 << 20}))
        run_id = started(store, machine="m1")
        table = ({"id": 0, "latency_ms": 1.0, "trials": 2}, {"id": 1, "latency_ms": math.inf})
        round_ = RoundInfo(run_id, 0, "conv-a", {"net": 0.0105}, table, 10.0, 20.5)
        assert store.commit_round(round_, [record(0), failed(1)]) == 2
        (found,) = store.rounds(run_id)
        assert (found.trials, found.valid, found.estimated_total) == (2, 1, 0.0105)
        assert found.task_table == (table[0], {"id": 1, "latency_ms": None})
        assert (found.started, found.finished, found.workload_key) == (10.0, 20.5, "conv-a")
        (run,) = store.runs()
        assert (run.run_id, run.networks, run.machine) == (run_id, ("net",), "m1")
        assert (run.status, run.params, run.scope) == (RunStatus.RUNNING, {"trials": 64}, SCOPE)

    def test_records_take_run_and_round_from_the_round(self, store: Store) -> None:
        run_id = started(store)
        store.commit_round(RoundInfo(run_id, 7, "conv-a"), [record(0, run_id="x", round_index=1)])
        (found,) = store.history(["conv-a"], SCOPE)["conv-a"]
        assert (found.run_id, found.round_index) == (run_id, 7)

    def test_a_committed_round_is_closed(self, store: Store) -> None:
        run_id = started(store)
        round_ = RoundInfo(run_id, 0, "conv-a", {"net": 1.0})
        assert store.commit_round(round_, [record(0), record(1)]) == 2
        again = replace(round_, estimates={"net": 2.0}, finished=9.0)
        assert store.commit_round(again, [record(0), record(2, 1e-9)]) == 0
        assert len(store.history(["conv-a"], SCOPE)["conv-a"]) == 2
        assert store.rounds(run_id)[0].estimates == {"net": 1.0}

    def test_a_round_is_stored_as_a_whole_or_not_at_all(self, store: Store) -> None:
        run_id = started(store)
        with pytest.raises(StoreError, match="no such network: 'unknown'"):
            store.commit_round(RoundInfo(run_id, 0, "conv-a", {"unknown": 1.0}), [record(0)])
        assert store.rounds(run_id) == ()
        assert store.history(["conv-a"], SCOPE) == {"conv-a": ()}
        assert store.commit_round(RoundInfo(run_id, 0, "conv-a"), [record(0)]) == 1

    def test_estimates_that_are_not_finite_are_absent(self, store: Store) -> None:
        run_id = started(store)
        store.commit_round(RoundInfo(run_id, 0, "conv-a", {"net": math.inf}), [])
        assert store.rounds(run_id)[0].estimates == {}
        assert store.rounds(run_id)[0].estimated_total == math.inf

    def test_finishing_and_opening_again(self, store: Store) -> None:
        run_id = started(store, run_id="night-1")
        store.commit_round(RoundInfo(run_id, 0, "conv-a"), [record(0)])
        store.finish_run(run_id, "cancelled", "time is up")
        (run,) = store.runs()
        assert (run.status, run.message) == (RunStatus.CANCELLED, "time is up")
        assert run.finished is not None and run.finished >= run.started
        assert started(store, run_id="night-1") == "night-1"
        (run,) = store.runs()
        assert (run.status, run.finished, run.message) == (RunStatus.RUNNING, None, "")
        assert len(store.rounds(run_id)) == 1

    def test_clear_errors(self, store: Store) -> None:
        with pytest.raises(StoreError, match="no such network: 'absent'"):
            store.start_run(["absent"], SCOPE)
        with pytest.raises(StoreError, match="no such tuning run: 'absent'"):
            store.finish_run("absent", RunStatus.FINISHED)
        with pytest.raises(StoreError, match="no such tuning run: 'absent'"):
            store.commit_round(RoundInfo("absent", 0, "conv-a"), [])
        with pytest.raises(StoreError, match="no such tuning run: 'absent'"):
            store.rounds("absent")
        with pytest.raises(StoreError, match="no such run status: 'done'"):
            store.finish_run(started(store), "done")
        with pytest.raises(StoreError, match="no such compiled network: 9"):
            store.add_evaluation(9, {})
        with pytest.raises(StoreError, match="no such compiled network: 9"):
            store.mark_published(9)
        assert [run.networks for run in store.runs()] == [("net",)]

    def test_records_of_unknown_runs_are_imported(self, store: Store) -> None:
        store.add_records([record(0, run_id="elsewhere")])
        (run,) = store.runs()
        assert (run.run_id, run.status, run.scope) == ("elsewhere", RunStatus.IMPORTED, SCOPE)


class TestRunsOfElsewhere:
    """Runs and rounds of another database come in without being run here."""

    RUN = RunInfo(
        "night-1", SCOPE, ("net", "unknown"), {"trials": 64}, RunStatus.FINISHED, 10.0, 20.5,
        "done", "box-1",
    )  # fmt: skip
    ROUND = RoundInfo("night-1", 3, "conv-a", {"net": 0.5}, ({"id": 0},), 11.0, 12.0, 64, 60)

    def test_they_come_out_as_they_went_in(self, store: Store) -> None:
        store.register_network("net", "h", {"conv-a": 1})
        store.register_machine(MachineInfo("box-1", "box", "Xeon", 2, ("avx2",), {"l2": 7}))
        assert store.machines() == (MachineInfo("box-1", "box", "Xeon", 2, ("avx2",), {"l2": 7}),)
        assert store.add_run(self.RUN) is True
        assert store.add_rounds([(self.ROUND, SCOPE)]) == 1
        assert store.runs() == (replace(self.RUN, networks=("net",)),)
        assert store.rounds("night-1") == (self.ROUND,)

    def test_again_they_change_nothing(self, store: Store) -> None:
        store.register_network("net", "h", {"conv-a": 1})
        store.add_run(self.RUN)
        store.add_rounds([(self.ROUND, SCOPE)])
        before = store.runs(), store.rounds("night-1")
        assert store.add_run(replace(self.RUN, status=RunStatus.FAILED, started=1.0)) is False
        assert store.add_rounds([(replace(self.ROUND, trials=1, estimates={}), SCOPE)]) == 0
        assert (store.runs(), store.rounds("night-1")) == before

    def test_a_run_known_by_its_records_is_filled_in(self, store: Store) -> None:
        store.add_records([record(0, run_id="night-1")])
        assert store.add_run(self.RUN) is False
        (run,) = store.runs()
        assert (run.status, run.started, run.params) == (RunStatus.FINISHED, 10.0, {"trials": 64})
        assert store.add_run(replace(self.RUN, status=RunStatus.IMPORTED, started=1.0)) is False
        assert store.runs() == (run,)

    def test_a_run_that_counts_as_running_is_ended(self, store: Store) -> None:
        started(store, run_id="night-1")
        assert store.add_run(replace(self.RUN, status=RunStatus.RUNNING, finished=None)) is False
        assert store.runs()[0].params == {"trials": 64} and store.runs()[0].started > 10.0
        store.add_run(self.RUN)
        (run,) = store.runs()
        assert (run.status, run.finished, run.message) == (RunStatus.FINISHED, 20.5, "done")

    def test_a_round_makes_its_run_known(self, store: Store) -> None:
        assert store.add_rounds([(self.ROUND, SCOPE)]) == 1
        (run,) = store.runs()
        assert (run.status, run.scope, run.started) == (RunStatus.IMPORTED, SCOPE, 11.0)
        (found,) = store.rounds("night-1")
        assert (found.estimates, found.trials, found.valid) == ({}, 64, 60)
        assert store.stats().records == 0

    def test_its_records_may_come_before_or_after(self, store: Store) -> None:
        given = [record(i, run_id="night-1", round_index=3) for i in range(2)]
        store.add_records(given[:1])
        store.add_rounds([(self.ROUND, SCOPE)])
        assert store.add_records(given) == 1
        assert store.commit_round(self.ROUND, given) == 0
