"""Publication: versions, the atomic link, rollback, and who may replace whom."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from db.store import open_store
from engine.errors import NoctuneError
from tasks.building import CompileReport
from tasks.night import Candidate, NightResult, Outcome, judge, measured_last, note, settle
from tasks.publishing import check_folder, check_name, current, publish, rollback, versions


def compiled(folder: Path, content: str) -> Path:
    path = folder / "new.net"
    path.write_text(content)
    return path


def candidate(file: Path, **more: object) -> Candidate:
    given = {
        "network": "net", "file": str(file), "file_hash": file.read_text(), "content_hash": "model",
        "timing": {"noctune": {"median_ms": 1.0}, "published_ratio": 1.1},
        "verification": {"ok": True, "max_rel_error": 1e-6},
    }  # fmt: skip
    return Candidate(**{**given, **more})  # type: ignore[arg-type]


def test_the_newest_is_current_and_old_ones_go(tmp_path: Path) -> None:
    for i in range(5):
        publish(tmp_path / "out", "net", compiled(tmp_path, f"v{i}"), {"i": i}, keep=3)
    found = versions(tmp_path / "out", "net")
    assert [v.number for v in found] == [3, 4, 5]
    assert [v.is_current for v in found] == [False, False, True]
    assert (tmp_path / "out/net/current/net.net").read_text() == "v4"
    assert found[-1].report == {"i": 4}


def test_rollback_and_on_again(tmp_path: Path) -> None:
    for i in range(3):
        publish(tmp_path, "net", compiled(tmp_path, f"v{i}"), {})
    before, after = rollback(tmp_path, "net")
    assert (before.number, after.number) == (3, 2)
    assert (tmp_path / "net/current/net.net").read_text() == "v1"
    rollback(tmp_path, "net", to=3)
    assert current(tmp_path, "net").number == 3  # type: ignore[union-attr]
    rollback(tmp_path, "net", to=1)
    with pytest.raises(NoctuneError, match="no older version"):
        rollback(tmp_path, "net")
    with pytest.raises(NoctuneError, match="no version 9"):
        rollback(tmp_path, "net", to=9)


def test_rollback_of_what_was_never_published(tmp_path: Path) -> None:
    with pytest.raises(NoctuneError, match="never published"):
        rollback(tmp_path, "net")


def test_rollback_without_a_current_version(tmp_path: Path) -> None:
    publish(tmp_path, "net", compiled(tmp_path, "v0"), {})
    (tmp_path / "net/current").unlink()
    with pytest.raises(NoctuneError, match="--to 1 makes the newest version current"):
        rollback(tmp_path, "net")
    before, after = rollback(tmp_path, "net", to=1)
    assert before is None and after.number == 1
    assert (tmp_path / "net/current/net.net").read_text() == "v0"


def test_a_folder_in_place_of_the_link_is_left_alone(tmp_path: Path) -> None:
    publish(tmp_path, "net", compiled(tmp_path, "v0"), {})
    (tmp_path / "net/current").unlink()
    (tmp_path / "net/current").mkdir()
    for change in (
        lambda: rollback(tmp_path, "net", to=1),
        lambda: publish(tmp_path, "net", compiled(tmp_path, "v1"), {}),
    ):
        with pytest.raises(NoctuneError, match=r"not a link to a version.* Move it away"):
            change()
    assert sorted(p.name for p in (tmp_path / "net").iterdir()) == ["current", "versions"]
    assert len(versions(tmp_path, "net")) == 1


@pytest.mark.parametrize("name", ["../pub/mlp", "/pub/mlp", "mlp/", "..", "", "report.html"])
def test_what_no_network_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(NoctuneError, match="name"):
        rollback(tmp_path, name)


def test_reports_keep_their_names() -> None:
    with pytest.raises(NoctuneError, match="Rename the model's file"):
        check_name("report-2026-11-30T031500.html")
    check_name("report"), check_name("my report.html.v2")


@pytest.mark.parametrize("name", ["a-file", "a-file/below", "/proc", "/proc/below", "dangling"])
def test_a_folder_that_nothing_can_be_made_in(tmp_path: Path, name: str) -> None:
    (tmp_path / "a-file").write_text("x")
    (tmp_path / "dangling").symlink_to("nowhere")
    with pytest.raises(NoctuneError, match=r"nothing can be published.*--folder"):
        check_folder(tmp_path / name)
    with pytest.raises(NoctuneError, match="has no name"):
        check_folder(" ")


def test_checking_a_folder_makes_nothing(tmp_path: Path) -> None:
    check_folder(tmp_path / "out/of/nothing")
    check_folder(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_current_version_is_never_removed(tmp_path: Path) -> None:
    for i in range(3):
        publish(tmp_path, "net", compiled(tmp_path, f"v{i}"), {}, keep=3)
    rollback(tmp_path, "net", to=1)
    reader = (tmp_path / "net/current").resolve()
    publish(tmp_path, "net", compiled(tmp_path, "v3"), {}, keep=1)
    assert (tmp_path / "net/current/net.net").read_text() == "v3"
    assert not reader.exists(), "no longer current, and only one is kept"


def test_what_a_killed_publication_left_is_swept(tmp_path: Path) -> None:
    publish(tmp_path, "net", compiled(tmp_path, "v0"), {})
    (tmp_path / "net/versions/.0002-dead").mkdir()
    os.symlink("nowhere", tmp_path / "net/.current-1")
    assert [v.number for v in versions(tmp_path, "net")] == [1]
    publish(tmp_path, "net", compiled(tmp_path, "v1"), {})
    assert not list((tmp_path / "net/versions").glob(".*"))
    assert not (tmp_path / "net/.current-1").is_symlink()


def test_a_failed_publication_leaves_the_old_one(tmp_path: Path) -> None:
    publish(tmp_path, "net", compiled(tmp_path, "v0"), {})
    with pytest.raises(NoctuneError, match=r"cannot be published.*next night publishes"):
        publish(tmp_path, "net", tmp_path / "missing.net", {})
    assert (tmp_path / "net/current/net.net").read_text() == "v0"


def test_first_network_is_published(tmp_path: Path) -> None:
    assert judge(candidate(compiled(tmp_path, "a")), None)[0] is Outcome.PUBLISHED


def test_wrong_outputs_are_never_published(tmp_path: Path) -> None:
    wrong = candidate(compiled(tmp_path, "a"), verification={"ok": False, "max_rel_error": 0.5})
    found = settle(wrong, str(tmp_path / "out"), 3, "m", None)
    assert found.outcome is Outcome.FAILED and "5.00e-01" in found.reason
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("ratio", "outcome"),
    [(1.5, Outcome.PUBLISHED), (1.0, Outcome.PUBLISHED), (0.999, Outcome.KEPT)],
)
def test_a_slower_network_is_kept_back(tmp_path: Path, ratio: float, outcome: Outcome) -> None:
    out = str(tmp_path / "out")
    first = settle(candidate(compiled(tmp_path, "a")), out, 3, "m", None)
    assert first.outcome is Outcome.PUBLISHED
    timing = {"noctune": {"median_ms": 2.0}, "published_ratio": ratio}
    second = settle(candidate(compiled(tmp_path, "b"), timing=timing), out, 3, "m", None)
    assert second.outcome is outcome
    assert ("kept the old one" in second.reason) is (outcome is Outcome.KEPT)
    expected = "b" if outcome is Outcome.PUBLISHED else "a"
    assert (tmp_path / "out/net/current/net.net").read_text() == expected


def test_another_model_replaces_even_a_faster_one(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    settle(candidate(compiled(tmp_path, "a")), out, 3, "m", None)
    changed = candidate(
        compiled(tmp_path, "b"), content_hash="other", timing={"published_ratio": 0.5}
    )
    assert settle(changed, out, 3, "m", None).outcome is Outcome.PUBLISHED


def test_an_equal_file_is_not_published_again(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    for expected in (Outcome.PUBLISHED, Outcome.UNCHANGED):
        found = settle(candidate(compiled(tmp_path, "a")), out, 3, "m", None)
        assert found.outcome is expected
    assert len(versions(out, "net")) == 1


def test_leavings_go_even_if_nothing_is_published(tmp_path: Path) -> None:
    out = tmp_path / "out"
    first = candidate(compiled(tmp_path, "v0"))
    settle(first, str(out), 5, "model.onnx", None)
    (out / "net/versions/.0002-killed").mkdir()
    assert settle(first, str(out), 5, "model.onnx", None).outcome is Outcome.UNCHANGED
    assert [p.name for p in (out / "net/versions").glob(".*")] == []


def test_last_nights_time_is_that_of_what_was_current(tmp_path: Path) -> None:
    db = str(tmp_path / "noctune.sqlite")
    with open_store(db) as store:
        store.register_network("net", "content", {}, "net.onnx")
    assert measured_last(db, "net", 2) is None
    for outcome, new, old, expected in (
        (Outcome.PUBLISHED, 3.0, None, 3.0),
        (Outcome.KEPT, 3.5, 2.9, 2.9),
        (Outcome.PUBLISHED, 2.0, 2.8, 2.0),
    ):
        timing = {"threads": 2, "noctune": {"median_ms": new}}
        if old is not None:
            timing["published"] = {"median_ms": old}
        result = NightResult("net", outcome, "why", file=str(tmp_path / "net.net"), timing=timing)
        note(db, result, CompileReport("net", "net.net", 1, f"hash {new}", "avx2", 2, None, 1), "")
        assert measured_last(db, "net", 2) == expected
    assert measured_last(db, "net", 1) is None
