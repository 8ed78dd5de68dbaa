"""Types of options, and the text that tables are made of."""

from __future__ import annotations

import argparse

import pytest

from flows.options import age, duration, positive, shape
from flows.text import clock, dims, markdown, milliseconds, table


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90.0),
        ("90s", 90.0),
        ("10m", 600.0),
        ("1h30m", 5400.0),
        ("1.5h", 5400.0),
        ("2d", 172800),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ten",
        "10x",
        "0",
        "-5",
        "5m!",
        "m",
        "1h 30m",
        "367d",
        "9" * 21 + "h",
        "9" * 400,
        "1h30",
        "nan",
        "inf",
    ],
)
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        duration(text)


def test_the_longest_durations() -> None:
    assert duration("366d") == 366 * 86400
    with pytest.raises(argparse.ArgumentTypeError, match="at most 366d"):
        duration("8785h")
    assert age("1000d") == 1000 * 86400
    with pytest.raises(argparse.ArgumentTypeError, match="at most 36600d"):
        age("9999999d")


def test_shapes() -> None:
    assert shape("x=1,3,224,224") == ("x", (1, 3, 224, 224))
    assert shape("a=b=2") == ("a=b", (2,))
    assert shape("scalar=") == ("scalar", ())


@pytest.mark.parametrize("text", ["1,3", "x=1,a", "x=0,3", "=1,2", "x=-1", ""])
def test_what_is_no_shape(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        shape(text)


def test_counts() -> None:
    assert positive("3") == 3
    for text in ("0", "-1", "x", "1.5"):
        with pytest.raises(argparse.ArgumentTypeError):
            positive(text)


def test_numbers_for_people() -> None:
    assert milliseconds(0.0123456) == "12.346"
    assert milliseconds(None) == milliseconds(float("inf")) == "-"
    assert [clock(s) for s in (7, 125, 3723, None)] == ["7 s", "2:05", "1:02:03", "-"]
    assert dims((1, 3, 4)) == "1x3x4"


def test_tables_are_aligned() -> None:
    lines = table(("a", "n"), [("x", 1), ("long", 1234)]).splitlines()
    assert lines == ["a        n", "----  ----", "x        1", "long  1234"]
    assert markdown(("a",), [("x|y",)]).splitlines() == ["| a |", "|---|", "| x\\|y |"]
