"""What other processes do to a store in the tests: `python processes.py COMMAND COUNT URL ...`.

Forks COUNT processes before any connection exists.  When all of them are ready it prints `ready`,
waits for a line on its standard input, lets all go at the same moment, and prints `done` when every
one has ended well.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

from store_samples import record

from db.store import Store, open_store
from db.values import RoundInfo

Wait = Callable[[], None]


def open_and_add(wait: Wait, name: str, url: str) -> None:
    """Open the database at the same moment as the others do, and store one record."""
    wait()
    with open_store(url) as store:
        assert store.add_records([record(0, run_id=name)]) == 1


def insert(wait: Wait, name: str, url: str, count: str) -> None:
    """Store records one by one, each in its own transaction."""
    with open_store(url) as store:
        wait()
        for place in range(int(count)):
            assert store.add_records([record(place, run_id=name)]) == 1


def half_a_round(wait: Wait, name: str, url: str, run_id: str) -> None:
    """Stop for ever in the middle of a round's transaction, its rows written but not committed."""
    from db import sql_write

    insert_records = sql_write._insert_records

    def stop_after(*args: object) -> int:
        insert_records(*args)  # type: ignore[arg-type]
        wait()
        time.sleep(600)
        return 0

    sql_write._insert_records = stop_after  # type: ignore[assignment]
    with open_store(url) as store:
        commit(store, run_id)


def commit(store: Store, run_id: str) -> int:
    return store.commit_round(RoundInfo(run_id, 0, "conv-a"), [record(i) for i in range(64)])


def fork_all(work: Callable[..., None], count: int, args: list[str]) -> None:
    ready_out, ready_in = os.pipe()
    go_out, go_in = os.pipe()
    children = []
    for number in range(count):
        child = os.fork()
        if child == 0:
            os.close(go_in)

            def wait() -> None:
                os.write(ready_in, b"r")
                os.read(go_out, 1)

            run_and_exit(work, wait, f"p{number}", args)
        children.append(child)
    for _ in range(count):
        os.read(ready_out, 1)
    print("ready", *children, flush=True)
    sys.stdin.readline()
    os.close(go_in)
    for child in children:
        _, status = os.waitpid(child, 0)
        if status:
            sys.exit(f"process {child} ended with status {status}")


def run_and_exit(work: Callable[..., None], wait: Wait, name: str, args: list[str]) -> None:
    status = 1
    try:
        work(wait, name, *args)
        status = 0
    except BaseException as error:
        print(repr(error), file=sys.stderr, flush=True)
    finally:
        os._exit(status)


if __name__ == "__main__":
    commands = {"open_and_add": open_and_add, "insert": insert, "half_a_round": half_a_round}
    fork_all(commands[sys.argv[1]], int(sys.argv[2]), sys.argv[3:])
    print("done", flush=True)
