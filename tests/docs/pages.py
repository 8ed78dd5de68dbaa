"""The pages of the documentation: their links, code and tables.

In: the Markdown files.  Out: pieces of them, for the tests to check or to run.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = (ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md")))

_LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
_TREE = re.compile(r"(?<![\w/.@])(?:engine|db|tasks|flows|tests|docs|benchmarks)/[\w./-]*\w")
_SPAN = re.compile(r"`([^`\n]+)`")
_PLACEHOLDER = re.compile(r"\b(?:[A-Z]{2,}|[A-Z]\b)|\.\.\.")


@dataclass(frozen=True, slots=True)
class Command:
    """One `noctune` line of a page."""

    page: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.page}: {' '.join(self.words)}"


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def links(page: Path) -> list[str]:
    """Targets of all links that lead to another page or place of ours."""
    return [t for t in _LINK.findall(text_of(page)) if not t.startswith(("http:", "https:"))]


def anchors(page: Path) -> set[str]:
    """Names that the page's headings can be linked by, made as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", text_of(page), re.MULTILINE)
    kept = (re.sub(r"[^\w\- ]", "", h.replace("`", "").lower()) for h in headings)
    return {h.replace(" ", "-") for h in kept}


def tree_paths(page: Path) -> set[str]:
    """Everything on the page that looks like a path of the source tree."""
    return set(_TREE.findall(text_of(page)))


def spans(page: Path) -> set[str]:
    """Everything in single backticks."""
    return set(_SPAN.findall(text_of(page)))


def blocks(page: Path) -> list[str]:
    """Indented code blocks, without their indentation."""
    found: list[list[str]] = []
    inside = before_blank = False
    for line in text_of(page).splitlines():
        if line.startswith("    ") and (inside or not before_blank):
            if not inside:
                found.append([])
            found[-1].append(line[4:])
            inside = True
        elif line.strip():
            inside, before_blank = False, True
            continue
        before_blank = bool(line.strip()) and not inside
    return ["\n".join(lines) for lines in found]


def commands(page: Path) -> Iterator[Command]:
    """`noctune` lines of the code blocks that can be typed as they stand."""
    for block in blocks(page):
        for line in block.splitlines():
            if not line.startswith("noctune "):
                continue
            words = shlex.split(line, comments=True)
            if not _PLACEHOLDER.search(" ".join(words)):
                yield Command(page.name, tuple(words[1:]))


def python_examples(page: Path) -> list[str]:
    """Code blocks that import something."""
    return [b for b in blocks(page) if re.match(r"(import|from) \w", b)]


def table_rows(page: Path, first: str, second: str) -> list[tuple[str, str]]:
    """First two cells, without backticks, of the rows under the header `| first | second |...`."""
    lines = text_of(page).splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith(f"| {first} | {second} |"))
    rows = []
    for line in lines[at + 2 :]:
        if not line.startswith("|"):
            break
        cells = [cell.strip().strip("`") for cell in line.strip("|").split("|")]
        rows.append((cells[0], cells[1]))
    return rows
