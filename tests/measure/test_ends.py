"""However a tuner ends, and whatever signals come: no process and no folder stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hostile import bad, good, search_task
from watching import alive, children_of, wait_until

from engine.measure import MeasureOptions, Measurer
from engine.target import host

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent

HEAD = f"""
import os, sys, time
sys.path[:0] = [{str(ROOT)!r}, {str(HERE)!r}]
from hostile import BUILDER, bad, good, search_task
from engine.measure import Measurer, MeasureOptions
from engine.target import host
OPTIONS = MeasureOptions(
    timeout_s=60.0, passes=1, min_repeat_ms=0.2, builder=BUILDER, compile_workers=1,
    lock_path="lock", scratch="scratch", memory_limit=1 << 30,
)
"""


def start(tmp_path: Path, body: str) -> subprocess.Popen[str]:
    (tmp_path / "scratch").mkdir(exist_ok=True)
    script = tmp_path / "script.py"
    script.write_text(HEAD + textwrap.dedent(body))
    return subprocess.Popen(
        [sys.executable, str(script)], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )


def nothing_left(tmp_path: Path, pids: list[int]) -> bool:
    return not any(map(alive, pids)) and not list((tmp_path / "scratch").iterdir())


@pytest.mark.parametrize("kind", ["sleep", "loop"])
def test_killed_tuner(tmp_path: Path, kind: str) -> None:
    tuner = start(
        tmp_path,
        f"""
        with Measurer(host(), options=OPTIONS) as maker:
            maker.measure(search_task(), [good()])
            print("ready", flush=True)
            maker.measure(search_task(), [bad({kind!r})])
        """,
    )
    assert tuner.stdout is not None and tuner.stdout.readline() == "ready\n"
    time.sleep(0.5)
    pids = children_of(tuner.pid)
    assert len(pids) >= 2
    tuner.kill()
    tuner.wait()
    assert wait_until(lambda: nothing_left(tmp_path, pids)), pids
    tuner.stdout.close()


def test_tuner_that_forgets_to_close(tmp_path: Path) -> None:
    tuner = start(
        tmp_path,
        """
        maker = Measurer(host(), options=OPTIONS).__enter__()
        print(*maker.pids, maker.measure(search_task(), [good()])[0].valid)
        """,
    )
    *pids, valid = tuner.communicate(timeout=60)[0].split()
    assert tuner.returncode == 0 and valid == "True"
    assert wait_until(lambda: nothing_left(tmp_path, [int(p) for p in pids]))


def test_script_without_main_guard(tmp_path: Path) -> None:
    """The workers never import it: it runs once."""
    tuner = start(
        tmp_path,
        """
        print("started")
        with Measurer(host(), options=OPTIONS) as maker:
            print([r.valid for r in maker.measure(search_task(), [good(), good()])])
        """,
    )
    assert tuner.communicate(timeout=60)[0] == "started\n[True, True]\n"
    assert tuner.returncode == 0


def test_after_training_in_the_same_process(tmp_path: Path) -> None:
    """G6-05: OpenMP threads in the parent do not hang the workers."""
    tuner = start(
        tmp_path,
        """
        import lightgbm, numpy
        data = lightgbm.Dataset(numpy.random.rand(500, 8), numpy.random.rand(500))
        lightgbm.train({"num_threads": 2, "verbose": -1}, data, 5)
        with Measurer(host(), options=OPTIONS) as maker:
            print([r.valid for r in maker.measure(search_task(), [good(), bad("segv"), good()])])
        """,
    )
    assert tuner.communicate(timeout=60)[0] == "[True, False, True]\n"


def test_measurer_outlives_the_thread_that_made_it(options: MeasureOptions) -> None:
    made: list[Measurer] = []
    thread = threading.Thread(target=lambda: made.append(Measurer(host(), options=options)))
    thread.start()
    thread.join()
    opened = threading.Thread(target=made[0].__enter__)
    opened.start()
    opened.join()
    pids = made[0].pids
    try:
        assert made[0].measure(search_task(), [good()])[0].valid
        assert made[0].pids == pids
    finally:
        made[0].close()


def test_forked_copy_leaves_the_workers_alone(measurer: Callable[..., Measurer]) -> None:
    maker = measurer()
    assert maker.measure(search_task(), [good()])[0].valid
    child = os.fork()
    if child == 0:
        maker.close()
        os._exit(0)
    os.waitpid(child, 0)
    assert maker.measure(search_task(), [good()])[0].valid


def test_workers_killed_between_rounds(measurer: Callable[..., Measurer]) -> None:
    maker = measurer()
    assert maker.measure(search_task(), [good()])[0].valid
    before = maker.pids
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    assert wait_until(lambda: not any(map(alive, before)))
    assert maker.measure(search_task(), [good()])[0].valid
    assert not set(before) & set(maker.pids)


def test_signals_do_not_disturb(measurer: Callable[..., Measurer]) -> None:
    """G6-10: resize, stop and continue, of tuner and workers."""
    maker = measurer(timeout_s=1.5, min_repeat_ms=20.0, passes=3)
    maker.measure(search_task(), [good()])
    workers, stop = maker.pids, threading.Event()

    def pester() -> None:
        while not stop.wait(0.05):
            for pid in (os.getpid(), *workers):
                for number in (signal.SIGWINCH, signal.SIGCHLD):
                    os.kill(pid, number)

    def freeze() -> None:
        time.sleep(0.3)
        for pid in workers:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(3.0)
        for pid in workers:
            os.kill(pid, signal.SIGCONT)

    threads = [threading.Thread(target=pester), threading.Thread(target=freeze)]
    for thread in threads:
        thread.start()
    records = maker.measure(search_task(), [bad("slow")] * 6)
    stop.set()
    for thread in threads:
        thread.join()
    assert maker.pids == workers
    assert all(r.valid and r.latency < 1.0 for r in records), records


def test_stopped_tuner(tmp_path: Path) -> None:
    """Time in which the tuner itself was stopped is no time-out of its candidates."""
    tuner = start(
        tmp_path,
        """
        from dataclasses import replace
        with Measurer(host(), options=replace(OPTIONS, timeout_s=2.0)) as maker:
            maker.measure(search_task(), [good()])
            print(*maker.pids, flush=True)
            print(*(r.error for r in maker.measure(search_task(), [bad("slow")] * 20)))
        """,
    )
    assert tuner.stdout is not None
    workers = [int(pid) for pid in tuner.stdout.readline().split()]
    time.sleep(0.3)
    for pid in (tuner.pid, *workers):
        os.kill(pid, signal.SIGSTOP)
    time.sleep(3.0)
    for pid in (tuner.pid, *workers):
        os.kill(pid, signal.SIGCONT)
    assert tuner.communicate(timeout=60)[0].split() == ["ok"] * 20
