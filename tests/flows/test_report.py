"""Reports: keys that Prefect takes, markdown and HTML that show what they should."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from db.values import RoundInfo
from flows.html_report import report_html
from flows.night_report import night_markdown, result_cells
from flows.nightly import NightReport
from flows.plots import bar_plot, data_uri, line_plot
from flows.progress import Snapshot
from flows.report import artifact_key, evaluation_markdown, publish, tuning_markdown
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
                    {"ok": True}, 0.0014, 1.9),
        NightResult("bad", Outcome.FAILED, "this is not ONNX <b>", "bad.onnx",
                    next_step="Mend or remove the model."),
    )  # fmt: skip
    return NightReport("run", results, 40, 3723.0, False, "")


def test_night_report_names_failures_and_next_steps() -> None:
    text = night_markdown(night(), snapshot(), [], "Night")
    assert "1 published, 1 failed; 40 trials in 1:02:03" in text
    assert "1.25x (better)" in text and "2.00x onnxruntime" in text
    assert "bad**: this is not ONNX <b>. Mend or remove the model." in text
    assert "out/good.net" in text
    assert "good** published: 1.250x as fast." in text, "reasons stand outside of the wide table"


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
    page = report_html(night(), snapshot(), rounds, "Night")
    assert "this is not ONNX &lt;b&gt;" in page
    assert not re.search(r"(src|href)=", page)
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
