"""The server of one command: it ends with it, and whatever fails is told in one line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from engine.errors import NoctuneError
from engine.measure.confine import die_with
from flows.environment import server_seems_named
from flows.prefect_server import _STARTS, TemporaryServer, prefect_server
from tests.conftest import HOME

ROOT = Path(__file__).resolve().parents[2]

STARTS = """
import time
from flows.prefect_server import TemporaryServer
print(TemporaryServer()._process.pid, flush=True)
time.sleep(60)
"""

FAILS = """
from engine.errors import ModelError
from flows import prefect_server
def meanwhile():
    raise ModelError("broken")
made = []
class Noted(prefect_server.TemporaryServer):
    def __init__(self):
        super().__init__()
        made.append(self)
prefect_server.TemporaryServer = Noted
try:
    with prefect_server.prefect_server(meanwhile):
        print("ran")
except ModelError:
    print(len(made), made[0]._process.poll() is not None, flush=True)
"""


def is_running(pid: int) -> bool:
    """Whether the process lives; a zombie does not."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] != "Z"


def test_the_server_dies_with_a_killed_command() -> None:
    command = subprocess.Popen(
        [sys.executable, "-c", STARTS], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert command.stdout is not None
    server = int(command.stdout.readline())
    assert is_running(server)
    os.kill(command.pid, signal.SIGKILL)
    command.communicate()
    deadline = time.monotonic() + 60
    while is_running(server) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_running(server)


class QuickServer(TemporaryServer):
    """Answers at once, and is a process that does nothing."""

    def _launch(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", "import time; time.sleep(600)"],
            preexec_fn=partial(die_with, os.getpid()),
        )

    def _answers(self) -> bool:
        return True


def wait_for(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 60
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


def test_a_server_that_dies_is_started_again() -> None:
    """Also the last one lives on, though the thread that started it has nothing more to do."""
    server = QuickServer()
    url = server.wait()
    for _ in range(_STARTS):
        before = server._process.pid
        time.sleep(0.2)  # the child is under way
        os.kill(before, signal.SIGKILL)
        assert wait_for(lambda pid=before: server._process.pid != pid)  # type: ignore[misc]
    last = server._process.pid
    time.sleep(0.5)
    assert is_running(last) and url == f"http://127.0.0.1:{server.port}/api"
    server.stop()
    assert not is_running(last)


def test_an_error_while_it_starts_ends_it() -> None:
    unnamed = {name: value for name, value in os.environ.items() if name != "PREFECT_API_URL"}
    done = subprocess.run(
        [sys.executable, "-c", FAILS], cwd=ROOT, capture_output=True, text=True, check=True,
        env=unnamed,
    )  # fmt: skip
    assert done.stdout == "1 True\n" and done.stderr == ""


def test_a_configured_server_that_does_not_answer() -> None:
    from prefect.settings import PREFECT_API_URL, temporary_settings

    url = "http://127.0.0.1:9/api"
    with (
        pytest.MonkeyPatch.context() as patch,
        temporary_settings({PREFECT_API_URL: url}),
        pytest.raises(NoctuneError, match="does not answer"),
    ):
        patch.setenv("PREFECT_API_URL", url)
        with prefect_server(lambda: None):
            pytest.fail("nothing answers there")


@pytest.mark.parametrize(
    ("active", "named"), [("ephemeral", False), ("mine", True), ("nosuch", False)]
)
def test_servers_in_profiles(
    active: str, named: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server counts only in the profile that is active."""
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path))
    assert not server_seems_named()
    (tmp_path / "profiles.toml").write_text(
        f'active = "{active}"\n[profiles.ephemeral]\nPREFECT_LOGGING_LEVEL = "INFO"\n'
        '[profiles.mine]\nPREFECT_API_URL = "http://127.0.0.1:4200/api"\n'
    )
    assert server_seems_named() is named
    monkeypatch.setenv("PREFECT_PROFILE", "mine")
    assert server_seems_named()
    (tmp_path / "profiles.toml").write_text("not = [toml")
    assert not server_seems_named()


@pytest.mark.slow
def test_a_command_on_its_own_server(tmp_path: Path) -> None:
    """Nothing but the result on standard output, nothing on standard error, no process left."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PREFECT_")}
    done = subprocess.run(
        [sys.executable, "-m", "flows.cli", "compile", "mlp", "-o", "mlp.net", "--json"],
        cwd=tmp_path, capture_output=True, text=True,
        env={**environment, "PREFECT_HOME": HOME, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0 and done.stderr == ""
    assert done.stdout.startswith("{") and done.stdout.endswith("}\n")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mlp.net"]
