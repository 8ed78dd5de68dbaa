"""Code for other CPUs: it compiles, and uses what the target has and nothing more."""

from __future__ import annotations

import re
import struct
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from engine import codegen, target
from engine.codegen.kernel import Kernel
from engine.graph.builder import Builder
from engine.space import sketches
from engine.target import Target, host, missing_features, named
from tests.codegen.harness import check, random_feeds
from tests.codegen.workloads import network

ARM = Target("arm", "aarch64-unknown-linux-gnu", "generic", (), 128, 32, 2)
RISCV = Target("riscv", "riscv64-unknown-linux-gnu", "generic-rv64", ("+m", "+a", "+f", "+d"),
               128, 32, 2)  # fmt: skip
MACHINES = {"x86_64": 62, "aarch64": 183, "riscv64": 243}
"""Architecture -> its number in an ELF header."""


def layers(b: Builder) -> str:
    """A convolution with ragged channels, a pool, a matrix product and a softmax."""
    weight = np.random.default_rng(2).uniform(-1, 1, (20, 5, 3, 3)).astype(np.float32)
    attrs = {"kernel_shape": (3, 3), "strides": (1, 1), "dilations": (1, 1), "pads": (1,) * 4}
    out = b.emit("Relu", b.emit("Conv", "x", b.constant(weight), **attrs, group=1))
    out = b.emit("MaxPool", out, **(attrs | {"strides": (2, 2)}), ceil_mode=0)
    out = b.emit("MatMul", b.reshape(out, (20, 9)), b.constant(np.ones((9, 10), np.float32)))
    return b.emit("Softmax", out, axis=1)


def workloads(given: Target):
    lowered = network({"x": (1, 5, 6, 6)}, layers, given)
    return [s.workload for s in lowered.steps if s.workload is not None]


def forms(workload, given: Target):
    """The first sketch, and the last one if it is another algorithm."""
    found = sketches(workload, given, accuracy="fast")
    return found[:1] if found[-1].dag is found[0].dag else (found[0], found[-1])


@cache
def kernels(given: Target) -> tuple[Kernel, ...]:
    """All workloads' kernels in all forms, default schedules."""
    return tuple(
        codegen.generate(workload, sketch.schedule(sketch.default()), given)
        for workload in workloads(given)
        for sketch in forms(workload, given)
    )


@cache
def assembly(given: Target) -> str:
    return "\n".join(codegen.assembly(codegen.module([k], given), given) for k in kernels(given))


@pytest.mark.parametrize("name", ["host", "avx512", "avx2", "sse42"])
def test_kernels_of_a_level_run_here(name):
    given = named(name)
    if missing_features(given):
        pytest.skip(f"this machine lacks {missing_features(given)}")
    for workload in workloads(given):
        feeds = random_feeds(workload.dag, np.random.default_rng(0))
        for sketch in forms(workload, given):
            schedule = sketch.schedule(sketch.default())
            check(workload, sketch, schedule, given, feeds)


@pytest.mark.parametrize("given", [named("avx512"), ARM, RISCV], ids=lambda t: t.name)
def test_kernels_compile_for_other_machines(given):
    for kernel in kernels(given):
        image = codegen.compile_ir(codegen.module([kernel], given), given)
        assert image[:4] == b"\x7fELF"
        assert struct.unpack_from("<H", image, 18)[0] == MACHINES[given.triple.split("-")[0]]


def test_wide_registers_may_take_two_turns():
    wide = replace(named("avx512"), cpu="znver4")
    targets = (named("avx512"), wide, replace(wide, vector_bits=256))
    assert [t.fmas_per_cycle for t in targets] == [2, 1, 2]


def test_wide_vectors_where_there_are_any():
    text = assembly(named("avx512"))
    assert "zmm" in text and "vfmadd" in text
    assert "v0.4s" in assembly(ARM)


def test_no_fused_operations_or_wide_registers_below_avx():
    text = assembly(named("sse42"))
    assert "xmm" in text
    assert not re.search(r"%[yz]mm|vfmadd|fmaf", text)


def test_an_avx512_cpu_whose_system_hides_avx512(monkeypatch):
    """Hypervisors may mask features of the CPU whose name they report."""
    triple, _, features = target._host_cpu()
    if not triple.startswith("x86_64"):
        pytest.skip("for x86 only")
    masked = {f: on and not f.startswith("avx512") for f, on in features.items()}
    masked |= {"avx2": True, "fma": True, "avx512f": False, "avx512vl": False, "avx512bw": False,
               "avx512dq": False, "avx512cd": False, "evex512": False}  # fmt: skip
    monkeypatch.setattr(target, "_host_cpu", lambda: (triple, "znver4", masked))
    found = target.host.__wrapped__(2)
    assert found.cpu == "znver4" and found.vector_bits == 256
    text = assembly(found)
    assert "ymm" in text
    assert not re.search(r"%zmm|%k[0-7]|%[xy]mm(1[6-9]|2\d|3[01])", text)


def test_features_are_part_of_the_machine_code():
    given = replace(host(), cpu="x86-64-v3", features=("-fma",), triple="x86_64-unknown-linux-gnu")
    assert "vfmadd" not in assembly(replace(given, vector_bits=128))
