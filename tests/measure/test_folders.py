from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hostile import bad, good, search_task
from watching import wait_until

from engine.errors import NoctuneError
from engine.measure import Measurer
from engine.measure.folders import PREFIX, Scratch, sweep


def age(folder: Path) -> None:
    os.utime(folder, (time.time() - 100,) * 2)


def test_folder_is_removed(tmp_path: Path) -> None:
    scratch = Scratch(str(tmp_path))
    scratch.renew(scratch.folder("measure"))
    Path(scratch.folder("measure"), "junk").write_text("x")
    scratch.renew(scratch.folder("measure"))
    assert os.listdir(scratch.folder("measure")) == []
    scratch.close()
    scratch.close()
    assert list(tmp_path.iterdir()) == []


def test_sweep_takes_dead_tuners_only(tmp_path: Path) -> None:
    scratch = Scratch(str(tmp_path))
    stale, young, foreign = (tmp_path / f"{PREFIX}{n}" for n in ("old", "new", "link"))
    stale.mkdir()
    (stale / "compile0").mkdir()
    young.mkdir()
    foreign.symlink_to(tmp_path)
    age(stale)
    age(scratch.path)
    assert sweep(tmp_path) == [stale]
    assert scratch.path.exists() and young.exists() and not stale.exists()
    scratch.close()


def test_no_room_for_a_folder(tmp_path: Path) -> None:
    with pytest.raises(NoctuneError, match="temporary folder"):
        Scratch(str(tmp_path / "missing"))


def bytes_below(folder: Path) -> int:
    """Of files that may go away meanwhile."""
    total = 0
    for where, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                total += os.stat(os.path.join(where, name)).st_size
    return total


def test_bounded_use_with_kills_and_a_vanished_folder(
    measurer: Callable[..., Measurer], tmp_path: Path
) -> None:
    """G6-07: candidates that leave 1 MiB each, a tenth killed, one folder deleted by hand."""
    maker = measurer()
    maker.measure(search_task(), [good()])
    base = tmp_path / "scratch"
    peak, stop = [0], threading.Event()

    def watch() -> None:
        while not stop.wait(0.01):
            peak[0] = max(peak[0], bytes_below(base))

    watcher = threading.Thread(target=watch)
    watcher.start()
    shutil.rmtree(maker._scratch.folder("compile0"))  # its process has it as working directory
    batch = [bad("kill") if i % 10 == 5 else bad("build_files") for i in range(40)]
    records = maker.measure(search_task(), batch)
    stop.set()
    watcher.join()
    assert [r.valid for r in records] == [i % 10 != 5 for i in range(40)]
    assert peak[0] <= 4 << 20
    maker.close()
    assert wait_until(lambda: not list(base.iterdir()))
