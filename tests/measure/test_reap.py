"""What is known of a child that has ended."""

from __future__ import annotations

import signal
import subprocess

import numpy as np

from engine.measure.process import _reap, explain_exit
from engine.records import ErrorKind


def test_a_large_tuner_does_not_make_crashes_look_like_lack_of_memory():
    large = np.ones(100 << 20, dtype=np.uint8)
    child = subprocess.Popen(["sh", "-c", "kill -SEGV $$"])
    code, peak = _reap(child.pid, 10.0) or (None, 0)
    child.returncode = 0
    assert code == -signal.SIGSEGV
    assert explain_exit(code, peak, large.nbytes)[0] is ErrorKind.CRASH
