"""Network files: what goes in comes out, and every kind of damage has one clear error."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from engine.errors import ModelError, NoctuneError, TargetError
from engine.runtime.netfile import read_network
from engine.runtime.network import CompiledNetwork, load

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def saved(small: CompiledNetwork, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("net") / "small.net"
    small.save(path)
    return path


def manifest_span(data: bytes) -> tuple[int, int]:
    start, length = struct.unpack_from("<IQ", data, 12)
    return start, start + length


def test_round_trip(small: CompiledNetwork, saved: Path) -> None:
    again = load(saved)
    assert again.program == small.program
    assert again.memory == small.memory
    feeds = small.sample_inputs()
    for name, array in small.run(feeds).items():
        np.testing.assert_array_equal(again.run(feeds)[name], array)


def test_host_calls_survive(mixed: CompiledNetwork, tmp_path: Path) -> None:
    mixed.save(tmp_path / "net")
    again = load(tmp_path / "net")
    feeds = mixed.sample_inputs()
    for name, array in mixed.run(feeds).items():
        np.testing.assert_array_equal(again.run(feeds)[name], array)


def test_equal_networks_give_equal_bytes(saved: Path, tmp_path: Path) -> None:
    load(saved).save(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == saved.read_bytes()


def test_a_loaded_network_may_replace_its_own_file(saved: Path, tmp_path: Path) -> None:
    path = tmp_path / "net"
    path.write_bytes(saved.read_bytes())
    network = load(path)
    before = network.run(network.sample_inputs())
    network.save(path)
    after = network.run(network.sample_inputs())
    assert all(np.array_equal(before[name], after[name]) for name in before)
    assert os.listdir(tmp_path) == ["net"]


def test_weights_start_on_a_page_and_are_read_only(saved: Path) -> None:
    image = read_network(saved)
    assert image.weights.ctypes.data % 4096 == 0
    assert not image.weights.flags.writeable


@pytest.mark.parametrize("offered", [True, False])
def test_weights_in_huge_pages_and_mapped(
    saved: Path, monkeypatch: pytest.MonkeyPatch, offered: bool
) -> None:
    plain = read_network(saved).weights.tobytes()
    monkeypatch.setattr("engine.runtime.buffers.HUGE", 1 << 14)
    monkeypatch.setattr("engine.runtime.buffers._offers_huge_pages", lambda: offered)
    whole = saved.read_bytes()
    image = read_network(saved)
    assert image.weights.tobytes() == plain and not image.weights.flags.writeable
    assert len(plain) >= 1 << 14
    mapped = isinstance(image.weights.base, np.memmap) or isinstance(image.weights, np.memmap)
    assert mapped is not offered
    assert image.weights.ctypes.data % ((1 << 14) if offered else 4096) == 0
    assert saved.read_bytes() == whole


def flip(at: Callable[[bytes], int]) -> Callable[[bytes], bytes]:
    def change(data: bytes) -> bytes:
        place = at(data)
        return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]

    return change


DAMAGE: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda d: b"", "not a compiled network"),
    "magic": (flip(lambda d: 3), "not a compiled network"),
    "an onnx file": (lambda d: b"\x08\x0a\x12\x00" * 99, "not a compiled network"),
    "newer": (flip(lambda d: 11), "format 16777218, this program reads 2"),
    "older": (lambda d: d[:8] + b"\x01" + d[9:], "format 1, .*Compile the network again"),
    "header size": (flip(lambda d: 12), "header makes no sense"),
    "manifest length": (flip(lambda d: 19), "cut short"),
    "manifest length by a little": (flip(lambda d: 16), "checksum of the manifest"),
    "total length": (flip(lambda d: 25), "cut short|too many"),
    "manifest digest": (flip(lambda d: 40), "checksum of the manifest"),
    "manifest": (flip(lambda d: manifest_span(d)[0] + 50), "checksum of the manifest"),
    "code": (flip(lambda d: manifest_span(d)[1] + 300), "checksum of the code"),
    "weights": (flip(lambda d: len(d) - 9), "checksum of the weights"),
    "only the magic": (lambda d: d[:8], "cut short"),
    "half the magic": (lambda d: d[:5], "cut short"),
    "half the header": (lambda d: d[:30], "cut short"),
    "half the manifest": (lambda d: d[:500], "cut short"),
    "half the weights": (lambda d: d[: len(d) - 5000], "cut short"),
    "one byte less": (lambda d: d[:-1], "cut short"),
    "something behind": (lambda d: d + b"x", "1 bytes too many"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage(saved: Path, tmp_path: Path, kind: str) -> None:
    change, message = DAMAGE[kind]
    path = tmp_path / "broken.net"
    path.write_bytes(change(saved.read_bytes()))
    with pytest.raises(ModelError, match=message) as caught:
        load(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_a_manifest_that_lacks_something(saved: Path, tmp_path: Path) -> None:
    from engine.runtime import netfile

    data = saved.read_bytes()
    start, end = manifest_span(data)
    manifest = json.loads(data[start:end])
    del manifest["program"]["arena"]
    text = json.dumps(manifest, separators=(",", ":")).encode().ljust(end - start)
    head = netfile._HEADER.pack(
        netfile.MAGIC,
        netfile.VERSION,
        start,
        len(text),
        len(data),
        netfile.hashlib.sha256(text).digest(),
    )
    path = tmp_path / "broken.net"
    path.write_bytes(head + text + data[end:])
    with pytest.raises(ModelError, match=r"lacks something.*arena"):
        load(path)


def test_other_files(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="No such file"):
        load(tmp_path / "none.net")
    with pytest.raises(ModelError, match="folder"):
        load(tmp_path)


def test_another_cpu(small: CompiledNetwork, tmp_path: Path) -> None:
    features = (*small.program.target.features, "+avx1024")
    target = replace(small.program.target, name="future", features=features)
    foreign = CompiledNetwork(replace(small.program, target=target), small._code, small._weights)
    foreign.save(tmp_path / "net")
    with pytest.raises(TargetError, match="this CPU lacks avx1024"):
        load(tmp_path / "net")


def test_nothing_is_left_where_writing_fails(small: CompiledNetwork, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(NoctuneError, match="this is a folder"):
        small.save(tmp_path / "taken")
    with pytest.raises(NoctuneError, match="does not exist"):
        small.save(tmp_path / "none" / "net")
    assert os.listdir(tmp_path) == ["taken"]


def test_threads_may_save_to_one_place(small: CompiledNetwork, tmp_path: Path) -> None:
    def work() -> None:
        for _ in range(5):
            small.save(tmp_path / "net")
            load(tmp_path / "net")

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(work) for _ in range(4)]:
            done.result()
    assert os.listdir(tmp_path) == ["net"]


def test_long_names(small: CompiledNetwork, tmp_path: Path) -> None:
    small.save(tmp_path / ("n" * 250))
    load(tmp_path / ("n" * 250))


LOAD = """
import sys
for name in ("onnx", "onnxruntime", "prefect", "sqlalchemy", "lightgbm"):
    sys.modules[name] = None
import engine
network = engine.load(sys.argv[1])
print(sum(float(a.sum()) for a in network.run(network.sample_inputs()).values()))
"""


def test_loading_needs_neither_onnx_nor_prefect_nor_a_database(
    small: CompiledNetwork, saved: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOAD, str(saved)], cwd=ROOT, capture_output=True, text=True,
        timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    wanted = sum(float(a.sum()) for a in small.run(small.sample_inputs()).values())
    assert float(done.stdout) == pytest.approx(wanted, rel=1e-5)
