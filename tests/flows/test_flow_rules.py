"""Rules for Prefect that the source must keep, found in its syntax tree.

Each task must name its cache policy, persistence, run name and retries: Prefect's defaults have
returned an old timing for equal inputs.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted([*(ROOT / "tasks").rglob("*.py"), *(ROOT / "flows").rglob("*.py")])


def calls(path: Path, name: str) -> list[ast.Call]:
    """Every call of a bare `name` in the file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name
    ]


TASKS = [(path, call) for path in FILES for call in calls(path, "task")]
FLOWS = [(path, call) for path in FILES for call in calls(path, "flow")]


def options(call: ast.Call) -> dict[str, ast.expr]:
    return {k.arg: k.value for k in call.keywords if k.arg}


def test_there_are_tasks_and_flows() -> None:
    assert len(TASKS) >= 8 and len(FLOWS) >= 5


@pytest.mark.parametrize(
    ("path", "call"),
    TASKS,
    ids=lambda v: getattr(v, "lineno", v.name if isinstance(v, Path) else v),
)
def test_tasks_cache_and_persist_nothing(path: Path, call: ast.Call) -> None:
    found = options(call)
    assert isinstance(found.get("cache_policy"), ast.Name)
    assert ast.unparse(found["cache_policy"]) == "NO_CACHE"
    assert ast.unparse(found["persist_result"]) == "False"
    assert "name" in found and "task_run_name" in found
    assert "retries" in found and "retry_delay_seconds" in found
    assert not call.args, "task(...)(function) keeps the types, task(function) does not"


@pytest.mark.parametrize(
    ("path", "call"),
    FLOWS,
    ids=lambda v: getattr(v, "lineno", v.name if isinstance(v, Path) else v),
)
def test_flows_persist_nothing(path: Path, call: ast.Call) -> None:
    found = options(call)
    assert ast.unparse(found["persist_result"]) == "False"
    assert "name" in found and "flow_run_name" in found


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_no_bare_decorators_and_no_submit(path: Path) -> None:
    """A bare @task has Prefect's defaults; a submitted task's failure is lost."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            bare = [d.id for d in node.decorator_list if isinstance(d, ast.Name)]
            assert not {"task", "flow"} & set(bare), node.name
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            assert node.func.attr not in ("delay", "map_async"), ast.unparse(node)


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name)
def test_only_flows_and_stages_import_prefect_at_the_top(path: Path) -> None:
    """What the quick commands import must not wait for Prefect."""
    allowed = {"stages.py", "tune.py", "compile.py", "distill.py", "evaluate.py", "nightly.py"}
    if path.name in allowed and path.parent.name != "commands":
        return
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in tree.body:
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        assert not any(n.split(".")[0] == "prefect" for n in names), path
