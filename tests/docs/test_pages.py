"""What the pages name exists: links, paths, types, functions, commands, targets of make."""

from __future__ import annotations

import ast
import re
from importlib import import_module
from pathlib import Path

import pytest

from engine.space.rules import RULES
from flows.cli import COMMANDS, command_parser
from tests.docs.pages import (
    PAGES,
    ROOT,
    Command,
    anchors,
    commands,
    links,
    spans,
    table_rows,
    text_of,
    tree_paths,
)

DESIGN = ROOT / "docs" / "design.md"
MADE_BY_RUNNING = {"benchmarks/RESULTS.md"}
"""Files that a command writes."""
COMMAND_LINES = [c for page in PAGES for c in commands(page)]

by_page = pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)


@by_page
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        path, _, place = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not place or place in anchors(target), link


@by_page
def test_paths_exist(page: Path) -> None:
    missing = {p for p in tree_paths(page) - MADE_BY_RUNNING if not (ROOT / p).exists()}
    assert not missing


@by_page
def test_dotted_names_can_be_imported(page: Path) -> None:
    """`engine.records`, `engine.load(path)`, `flows.tune.tune`: a module, or a name in one."""
    for span in spans(page):
        found = re.match(r"((?:engine|db|tasks|flows)(?:\.\w+)+)(?:\(|$)", span)
        if found is None or found[1].rpartition(".")[2] in ("py", "sqlite", "md"):
            continue
        module, _, name = found[1].rpartition(".")
        try:
            import_module(found[1])
        except ModuleNotFoundError:
            assert hasattr(import_module(module), name), found[1]


def test_index_names_every_page() -> None:
    text = text_of(ROOT / "docs" / "index.md")
    pages = {p.name for p in (ROOT / "docs").glob("*.md")} - {"index.md"}
    assert {name for name in pages if f"]({name})" not in text} == set()


def names_in(path: Path) -> set[str]:
    """Functions, classes and constants that a module defines at its top."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = {n.name for n in tree.body if isinstance(n, ast.ClassDef | ast.FunctionDef)}
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
        found |= {t.id for t in targets if isinstance(t, ast.Name)}
    return found


def test_key_types_stand_where_the_page_says() -> None:
    rows = table_rows(DESIGN, "type", "file")
    assert len(rows) > 10
    assert [f"{t} in {f}" for t, f in rows if t not in names_in(ROOT / f)] == []


def test_names_stand_in_the_files_beside_them() -> None:
    """Every "`name` in `file.py`" and "`name` (`file.py`)" of the page."""
    pairs = re.findall(r"`(\w+)` (?:in |\()`([\w/]+\.py)`", text_of(DESIGN).replace("\n", " "))
    assert len(pairs) > 10
    assert [f"{n} in {f}" for n, f in pairs if n not in names_in(ROOT / f)] == []


def test_sketch_rules_are_all_there_in_order() -> None:
    assert [name for name, _ in table_rows(DESIGN, "rule", "file")] == list(RULES)


@pytest.mark.parametrize("command", COMMAND_LINES, ids=str)
def test_command_lines_are_understood(command: Command) -> None:
    name, *words = command.words
    assert name in COMMANDS
    module = import_module("flows.commands." + name.replace("-", "_"))
    command_parser(name, module).parse_args(words)


def test_there_are_command_lines() -> None:
    assert {c.page for c in COMMAND_LINES} >= {"README.md", "usage.md", "nightly.md"}
    assert len(COMMAND_LINES) > 10


@by_page
def test_targets_of_make_exist(page: Path) -> None:
    made = set(re.findall(r"^([\w-]+):", text_of(ROOT / "Makefile"), re.MULTILINE))
    assert set(re.findall(r"\bmake ((?!\w+ +to )[a-z]+)\b(?=`|  )", text_of(page))) <= made


def test_changelog_has_the_version() -> None:
    version = re.search(r'^version = "(.+)"$', text_of(ROOT / "pyproject.toml"), re.MULTILINE)
    assert version and f"## {version[1]}" in text_of(ROOT / "CHANGELOG.md")


def cells(line: str) -> tuple[str, ...]:
    return tuple(cell.strip() for cell in line.strip().strip("|").split("|"))


def test_results_of_the_readme_were_measured() -> None:
    """Each row of its table stands in benchmarks/RESULTS.md, which only a benchmark writes."""
    text = text_of(ROOT / "README.md")
    part = text[text.index("<!-- results: begin") : text.index("<!-- results: end")]
    header, _, *rows = [cells(line) for line in part.splitlines() if line.startswith("|")]
    path = ROOT / "benchmarks" / "RESULTS.md"
    measured = [cells(line) for line in text_of(path).splitlines()] if path.exists() else []
    known = {row[: len(header)] for row in measured if len(row) > len(header)}
    assert not measured or header in known
    assert [row for row in rows if row not in known] == []
