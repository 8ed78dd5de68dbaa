from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from benchmarks.kills.processes import Command, wait_for

ORPHAN = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print("ready", flush=True)
time.sleep(600)
"""


def start(folder: Path, program: str, marker: str) -> Command:
    return Command([sys.executable, "-c", program], os.environ, folder, marker)


def test_a_child_that_outlives_its_parent_is_found_and_ended(tmp_path: Path) -> None:
    command = start(tmp_path, ORPHAN, "orphan")
    assert command.wait_lines(1, 30)
    assert len(command.look()) == 2
    command.signal(signal.SIGKILL)
    assert command.wait(10) == -signal.SIGKILL
    left = command.survivors(grace_s=0.3)
    assert len(left) == 1 and "time.sleep(600)" in left[0]
    command.end_all()
    assert wait_for(lambda: not command.survivors(0.0), 10)


def test_a_command_that_does_not_end_is_killed(tmp_path: Path) -> None:
    command = start(tmp_path, "import time; time.sleep(600)", "slow")
    assert command.wait(0.3) is None
    assert not command.running and command.survivors() == []


def test_lines_and_exit_code(tmp_path: Path) -> None:
    command = start(tmp_path, "import sys; print('one'); print('two'); sys.exit(3)", "lines")
    assert command.wait(30) == 3
    assert wait_for(lambda: command.lines == ["one", "two"], 5)
    assert not command.wait_lines(3, 5), "there is no third line to come"


@pytest.mark.parametrize("group", [False, True])
def test_a_signal_to_one_that_has_ended_is_harmless(tmp_path: Path, group: bool) -> None:
    command = start(tmp_path, "pass", "gone")
    command.wait(30)
    command.signal(signal.SIGINT, group=group)
