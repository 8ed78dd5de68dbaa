"""Reports: keys that Prefect takes, markdown and HTML that show what they should."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from db.values import RoundInfo
from flows.html_report import KEPT_REPORTS, last_complete, report_html, write_report
from flows.night_report import night_markdown, result_cells
from flows.nightly import NightReport
from flows.plots import bar_plot, data_uri, latency_plot, line_plot
from flows.progress import Snapshot
from flows.report import (
    artifact_key,
    evaluation_markdown,
    progress_text,
    publish,
    tuning_markdown,
)
from flows.text import literal
from tasks.night import NightResult, Outcome
from tasks.table import TaskRow

TIMING = {
    "network": "net<1>",
    "threads": 2,
    "noctune": {"median_ms": 1.5, "min_ms": 1.4, "mean_ms": 1.5, "std_ms": 0.1},
    "peers": {"onnxruntime": {"median_ms": 3.0, "min_ms": 2.9}},
    "ratio": {"onnxruntime": 2.0},
    "published_ratio": 1.25,
}


def snapshot() -> Snapshot:
    rows = (
        TaskRow(0, "conv2d 1x2x3", 2, 0.001, 12.5, 40, 3, "[key]"),
        TaskRow(1, "dense", 1, None, None, 0, 0, "[other]"),
    )
    return Snapshot(rows, {"net": (0.002, 1)}, 40, 43, 12.0, 3.3, 30.0, 0, "because")


@pytest.mark.parametrize(
    "name", ["ResNet_50 v1.5.onnx", "squeezenet_v1.1", "ÄÖ", "a//b", "--x--", "x" * 300, ""]
)
def test_artifact_keys_are_what_prefect_takes(name: str) -> None:
    """G4-09: capitals, underscores and blanks would be refused at the end of a long run."""
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", artifact_key("tasks", name))


def test_artifact_key_keeps_what_it_can() -> None:
    assert artifact_key("tasks", "ResNet_50 v1.5.onnx") == "tasks-resnet-50-v1-5-onnx"


def test_a_failed_report_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """G4-09: the tuning is done by then."""
    import prefect.artifacts

    def refuse(**_: object) -> None:
        raise ValueError("key refused")

    monkeypatch.setattr(prefect.artifacts, "create_markdown_artifact", refuse)
    assert publish("tasks", "text") is False


def test_tuning_report() -> None:
    text = tuning_markdown(snapshot(), "Search tasks")
    assert "| 0 | conv2d 1x2x3 | 2 | 1.000 | 12.50 | 40 | 3 |" in text
    assert "| 1 | dense | 1 | - | - | 0 | 0 |" in text
    assert "without 1 search tasks" in text
    assert "Next ID: 0 (because)" in text


def test_evaluation_report() -> None:
    good = {"ok": True, "reference": "onnxruntime 1", "max_rel_error": 1e-6}
    text = evaluation_markdown(TIMING, good, "Evaluation")
    assert "| onnxruntime | 3.000 | 2.900 | 2.00x |" in text
    assert "differ" not in text
    assert "differ" in evaluation_markdown(TIMING, {**good, "ok": False}, "Evaluation")


def night() -> NightReport:
    results = (
        NightResult("good", Outcome.PUBLISHED, "1.250x as fast", "m.onnx", "out/good.net", TIMING,
                    {"ok": True, "max_rel_error": 2e-6}, 0.0014, 1.9),
        NightResult("b|a*d*", Outcome.FAILED, "this is not ONNX <b>", "bad.onnx",
                    next_step="Mend or remove the model"),
    )  # fmt: skip
    return NightReport("run", results, 40, 3723.0, False, "", "box: CPU, 2 cores")


def test_night_report_names_failures_and_next_steps() -> None:
    text = night_markdown(night(), snapshot(), [], "Night")
    assert "1 published, 1 failed; 40 trials in 1:02:03" in text
    assert "1.25x (better)" in text and "2.00x as fast as ONNX Runtime" in text
    assert "1.900 (now better)" in text and "box: CPU, 2 cores" in text
    assert r"b\|a\*d\***: this is not ONNX &lt;b&gt;. Mend or remove the model." in text
    assert "## Published files on box" in text and str(Path("out/good.net").absolute()) in text
    line = "good** published, largest error 2.0e-06: 1.250x as fast."
    assert line in text, "reasons stand outside of the wide table"
    assert "interrupted" not in text


def test_names_show_as_they_are() -> None:
    assert literal("a|b *x* `y` <b>") == r"a\|b \*x\* \`y\` &lt;b&gt;"
    odd = replace(snapshot(), estimates={"*x*": (0.002, 0)})
    assert r"latency of \*x\*: 2.000 ms" in tuning_markdown(odd, "<i>")
    assert "# &lt;i&gt;" in tuning_markdown(odd, "<i>")


def test_progress_says_each_thing_once() -> None:
    assert progress_text(snapshot()) == "estimated 2.000 ms, 40 trials, 30 s left"
    nothing = replace(snapshot(), estimates={"net": (None, 2)})
    assert progress_text(nothing) == "no estimate yet, 40 trials, 30 s left"


def test_an_interrupted_night_says_so_and_leads_to_the_last_complete_one(tmp_path: Path) -> None:
    folder = str(tmp_path)
    skipped = NightResult("good", Outcome.SKIPPED, "stopped on request")
    cut = replace(night(), results=(skipped,), interrupted=True)
    assert last_complete(folder) == ""
    first = write_report(folder, night(), None, [], "Night")
    first = first.rename(tmp_path / "report-2026-01-01T020000.html")
    assert last_complete(folder) == str(first)
    write_report(folder, cut, None, [], "Night", last_complete(folder))
    assert last_complete(folder) == str(first), "the new one is not complete"
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "This night was interrupted. The last complete report:" in page
    assert f"<a href='{first.name}'>" in page
    empty = replace(cut, results=(*night().failed, skipped), interrupted=False)
    assert "brought no network" in report_html(folder, empty, None, [], "Night")
    text = night_markdown(cut, None, [], "Night", str(first))
    assert "This night was interrupted" in text and first.name in text


def test_old_reports_go_but_not_the_last_complete_one(tmp_path: Path) -> None:
    for i in range(KEPT_REPORTS + 5):
        (tmp_path / f"report-2026-01-{1 + i % 28:02d}T02{i:04d}.html").write_text("old")
    (tmp_path / "report-of-mine.html").write_text("mine")
    first = min(tmp_path.glob("report-2026*"))
    new = write_report(str(tmp_path), night(), None, [], "Night", str(first))
    left = sorted(tmp_path.glob("report-2026*")) + sorted(
        tmp_path.glob(time.strftime("report-%Y*"))
    )
    assert len(set(left)) == KEPT_REPORTS + 1 and new.exists() and first.exists()
    assert (tmp_path / "report-of-mine.html").exists() and (tmp_path / "report.html").exists()


def test_latencies_are_relative_so_that_small_networks_are_seen() -> None:
    rounds = [
        RoundInfo(
            "run", i, "[key]", {"big": 0.5, "small": 1e-5 / (i + 1)}, (), 9.0 * i, 9.0 * i + 8
        )
        for i in range(2)
    ]
    svg = latency_plot(rounds)
    assert "% of the first estimate" in svg and ">seconds<" in svg
    assert "small 0.0050 ms" in svg and "big 500.000 ms" in svg
    ends = [float(v) for v in re.findall(r"V([\d.]+)' fill='none' stroke='#[^8]", svg)]
    assert ends[1] - ends[0] > 50, "the small one falls to half of the axis"
    hours = [replace(r, finished=r.finished * 1e4) for r in rounds]
    assert ">hours<" in latency_plot(hours)


def test_a_file_that_is_the_same_is_not_called_worse() -> None:
    """Both were timed, and equal files differ by noise."""
    slower = {**TIMING, "published_ratio": 0.92}
    assert "0.92x (worse)" in result_cells(NightResult("a", Outcome.KEPT, "slower", timing=slower))
    same = result_cells(NightResult("a", Outcome.UNCHANGED, "nothing better", timing=slower))
    assert "same file" in same and not any("worse" in cell for cell in same)


def test_html_report_is_one_sound_file() -> None:
    rounds = [
        RoundInfo("run", i, "[key]", {"good": 0.002 / (i + 1)}, (), 10.0 * i, 10.0 * i + 9, 8, 8)
        for i in range(3)
    ]
    page = report_html("out", night(), snapshot(), rounds, "Night")
    assert "this is not ONNX &lt;b&gt;. Mend or remove the model.<" in page
    assert re.findall(r"(?:src|href)='(.*?)'", page) == ["good.net", "report.json"]
    assert "<th class=n>median ms" in page and "<td class=n>1.500" in page
    for part in ("box: CPU, 2 cores", "2.0e-06", "Trials: 40", "2.00x as fast as ONNX Runtime"):
        assert part in page
    assert page.count("<svg") == page.count("</svg>") == 2
    for svg in re.findall(r"<svg.*?</svg>", page, re.S):
        ElementTree.fromstring(svg)


def test_plots() -> None:
    svg = line_plot([("a", [(0, 3.0), (1, float("inf")), (2, 1.0)])], "T", "x", "y")
    root = ElementTree.fromstring(svg)
    assert "inf" not in svg and root.tag.endswith("svg")
    assert svg.index("<path d='M64.0") < svg.index(">a</tspan>"), "no line crosses a name"
    many = line_plot([(f"network-{i}", [(0, 1.0)]) for i in range(9)], "T", "x", "y")
    assert ElementTree.fromstring(many) is not None and many.count(">network-") == 9
    assert "tspan" not in many, "too many for one row"
    assert line_plot([("a", [])], "T", "x", "y") == "" == bar_plot([], "T", "")
    assert data_uri(svg).startswith("data:image/svg+xml;base64,")
