"""Fill a database with the records of `benchmarks.db.world`, in minutes.

In: a database and a number of records.  Out: the same rows as the store would have written round
by round, put in by the run: `executemany` on SQLite, COPY on PostgreSQL.  What names, networks and
runs need goes through the store itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import Connection, select, update

from benchmarks.db import world
from db.connect import connect
from db.models import MeasureRecordRow, NetworkRow, TargetRow, TuningRunRow, WorkloadRow
from db.store import open_store
from db.values import to_json

PER_RUN = world.ROUND * world.ROUNDS


def fill(url: str, count: int, say: Callable[[str], None]) -> int:
    """Bring the database to at least `count` records; returns the number of its runs.

    A fill that broke off is taken up again: every run goes in as a whole.
    """
    runs = -(-count // PER_RUN)
    with open_store(url) as store:
        for machine in world.MACHINES:
            store.register_machine(machine)
        for scope in world.SCOPES:
            store.register_target(scope, {"vector_bits": 256})
        for network in range(world.NETWORKS):
            keys = world.task_keys(network)
            for number, key in enumerate(keys):
                store.register_workload(key, world.describe_task(number))
            store.register_network(
                world.network_name(network), f"hash-{network}", dict.fromkeys(keys, 2)
            )
        done = len(store.runs())
        for run in map(world.run_of, range(done, runs)):
            store.start_run(
                [world.network_name(run.network)], run.scope, run_id=run.run_id, machine=run.machine
            )
    sql_engine = connect(url)
    with sql_engine.connect() as connection:
        driver: Any = connection.connection.driver_connection
        if connection.dialect.name == "sqlite":
            driver.execute("PRAGMA synchronous=OFF")
            driver.execute("PRAGMA cache_size=-2000000")
        ids = _Ids(connection)
        filled = ids.filled()
        connection.commit()
        start = time.perf_counter()
        for number in range(filled, runs):
            _put_run(connection, world.run_of(number), ids)
            connection.commit()
            if number % 50 == 49:
                rate = (number + 1 - filled) * PER_RUN / (time.perf_counter() - start)
                say(f"{(number + 1) * PER_RUN} records, {rate:.0f} records/s")
        _settle(connection)
    sql_engine.dispose()
    return runs


class _Ids:
    """Row ids behind keys."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.workloads = self._pairs(WorkloadRow.workload_key, WorkloadRow.id)
        self.runs = self._pairs(TuningRunRow.run_key, TuningRunRow.id)
        self.networks = self._pairs(NetworkRow.name, NetworkRow.id)
        query = select(TargetRow.target_key, TargetRow.threads, TargetRow.id)
        self.targets = {(key, threads): id_ for key, threads, id_ in connection.execute(query)}

    def _pairs(self, *columns: Any) -> dict[str, int]:
        return {row[0]: row[1] for row in self._connection.execute(select(*columns))}

    def filled(self) -> int:
        """How many runs have their records."""
        last = select(MeasureRecordRow.run_id).order_by(MeasureRecordRow.id.desc()).limit(1)
        row = self._connection.execute(last).scalar()
        by_row = {id_: key for key, id_ in self.runs.items()}
        if row is None:
            return 0
        return next(n for n in range(len(self.runs)) if world.run_of(n).run_id == by_row[row]) + 1


def _put_run(connection: Connection, run: world.Run, ids: _Ids) -> None:
    row = ids.runs[run.run_id]
    target = ids.targets[run.scope.target_key, run.scope.threads]
    records: list[dict[str, Any]] = []
    rounds, estimates = [], []
    for round_ in world.rounds_of(run):
        workload = ids.workloads[round_.workload_key]
        known = {"workload_id": workload, "target_id": target, "run_id": row}
        records += [known | values for values in world.record_rows(round_)]
        place = {"run_id": row, "round_index": round_.index}
        rounds.append(
            place
            | {
                "workload_id": workload,
                "trials": world.ROUND,
                "valid": int((~round_.failed).sum()),
                "task_table": to_json(world.task_table(run, round_)),
                "started_at": round_.started,
                "finished_at": round_.started + 20.0,
            }
        )
        network = ids.networks[world.network_name(run.network)]
        estimates.append(place | {"network_id": network, "estimated_latency": 0.01})
    put = _insert if connection.dialect.name == "sqlite" else _copy
    put(connection, "tuning_rounds", rounds)
    put(connection, "round_estimates", estimates)
    put(connection, "measure_records", records)
    change = update(TuningRunRow).where(TuningRunRow.id == row)
    times = {"started_at": run.started, "finished_at": run.started + 3000.0}
    connection.execute(change.values(status="finished", **times))


def _insert(connection: Connection, table: str, rows: Sequence[dict[str, Any]]) -> None:
    marks = ", ".join("?" * len(rows[0]))
    sql = f"INSERT INTO {table} ({', '.join(rows[0])}) VALUES ({marks})"
    connection.exec_driver_sql(sql, [tuple(row.values()) for row in rows])


def _copy(connection: Connection, table: str, rows: Sequence[dict[str, Any]]) -> None:
    driver: Any = connection.connection.driver_connection
    sql = f"COPY {table} ({', '.join(rows[0])}) FROM STDIN"
    with driver.cursor() as cursor, cursor.copy(sql) as copy:
        for row in rows:
            copy.write_row(tuple(row.values()))


def _settle(connection: Connection) -> None:
    """What a running database has done long since: the log is written back, statistics made."""
    driver: Any = connection.connection.driver_connection
    if connection.dialect.name == "sqlite":
        driver.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return
    driver.autocommit = True
    with driver.cursor() as cursor:
        cursor.execute("VACUUM (ANALYZE)")
    driver.autocommit = False
