"""The examples of README.md and docs/usage.md, run as they stand on a small network.

The networks that they name are files of that name, which come before the built-in ones.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from db.store import open_store
from engine.records import GENERATOR_VERSION
from tests.docs.pages import ROOT, commands, python_examples

pytestmark = pytest.mark.usefixtures("prefect_server")

README, USAGE = ROOT / "README.md", ROOT / "docs" / "usage.md"
EXAMPLES = (README, USAGE)
FLOWS = ("tune", "demo", "nightly", "setup-prefect")
"""Commands that take long."""

by_page = pytest.mark.parametrize("page", EXAMPLES, ids=lambda p: p.name)


def quick(words: tuple[str, ...]) -> tuple[str, ...]:
    """The same command, less of it."""
    return (*words, "--min-repeat-ms", "5", "--repeat", "2") if words[0] == "bench" else words


@by_page
def test_commands_and_python(
    page: Path, here: Path, run: Callable[..., int], image: np.ndarray
) -> None:
    """In the order of the page: what one command writes the next one reads."""
    done = [run(*quick(c.words)) for c in commands(page) if c.words[0] not in FLOWS]
    assert len(done) >= 3
    (example,) = python_examples(page)
    names = {"image": image}
    exec(compile(example, page.name, "exec"), names)
    assert np.shape(names["scores"]) == (1, 10)
    assert np.isfinite(names["scores"]).all()


@pytest.mark.slow
def test_tuning_as_written_but_shorter(here: Path) -> None:
    """The README's tuning with a handful of trials leaves records."""
    (tune,) = [c.words for c in commands(README) if c.words[0] == "tune"]
    at = tune.index("--time")
    words = [*tune[:at], "--trials", "6", *tune[at + 2 :]]
    home = {**os.environ, "PREFECT_HOME": str(here / "prefect"), "PYTHONPATH": str(ROOT)}
    for name in ("PREFECT_API_URL", "PREFECT_PROFILE"):
        home.pop(name, None)
    done = subprocess.run(
        [sys.executable, "-m", "flows.cli", *words],
        cwd=here, env=home, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    with open_store(str(here / "noctune.sqlite")) as store:
        assert any(group.valid for group in store.groups())


@pytest.fixture
def image(workplace: Path) -> np.ndarray:
    """What the examples call a network with."""
    with np.load(workplace / "image.npz") as found:
        return found[found.files[0]]


def test_python_example_of_usage_can_run_by_name(here: Path, run: Callable[..., int]) -> None:
    """`net.run({...})` with the input's own name gives what `net(image)` gives."""
    import engine

    run("compile", "resnet-18", "-o", "named.net")
    net = engine.load("named.net")
    feeds = net.sample_inputs()
    by_name = net.run(feeds)
    np.testing.assert_array_equal(net(*feeds.values()), next(iter(by_name.values())))
    assert net.program.generator == GENERATOR_VERSION
