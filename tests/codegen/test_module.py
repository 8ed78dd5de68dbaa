"""Modules and loaded code: data layout, verifier, lifetime, no large stack frames."""

from __future__ import annotations

import ctypes
import gc
import re
import resource

import numpy as np
import pytest

from engine import codegen
from engine.codegen.module import target_machine
from engine.records import Schedule
from engine.runtime.jit import load_object
from engine.space import sketches
from engine.target import host, named
from tests.codegen.functions import elementwise
from tests.codegen.test_targets import ARM, kernels, workloads


@pytest.mark.parametrize(
    "given", [host(), named("sse42"), named("avx512"), ARM], ids=lambda t: t.name
)
def test_every_module_names_its_machine(given):
    machine = target_machine(given)
    for kernel in kernels(given):
        text = codegen.module([kernel], given)
        assert f'target triple = "{given.triple}"' in text
        assert f'target datalayout = "{machine.target_data}"' in text
        assert "alloca" not in text


def test_several_kernels_share_a_module():
    made = kernels(host())[:1] + kernels(host())[-3:]
    renamed = [k.ir.replace("@kernel_", f"@kernel{i}_") for i, k in enumerate(made)]
    names = [f"kernel{i}_r{r}" for i, k in enumerate(made) for r in range(len(k.regions))]
    image = codegen.compile_ir(codegen.module(renamed, host()), host())
    code = load_object(image, names)
    assert len({code.address(name) for name in names}) == len(names)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("define void @f() {\nentry:\n  br label %a\na:\n  %y = fadd float %x, 1.0\n"
         "  br label %b\nb:\n  %x = fadd float 1.0, 1.0\n  ret void\n}", "dominate"),
        ("define float @f() {\nentry:\n  ret i32 0\n}", "ret"),
    ],
)  # fmt: skip
def test_the_verifier_runs(body, words):
    with pytest.raises(RuntimeError, match=words):
        codegen.compile_ir(codegen.module([body], host()), host())


def _increment():
    """Only the function comes out; everything else may be collected."""
    loaded = elementwise(lambda x: x + 1.0, 5, host())
    return loaded.code.function(
        loaded.kernel.regions[0], None, ctypes.c_void_p, *[ctypes.c_int64] * 3
    ), loaded.kernel.units[0]


def test_code_lives_as_long_as_its_function():
    call, units = _increment()
    gc.collect()
    others = [_increment() for _ in range(3)]
    del others
    gc.collect()
    x, y = np.arange(64, dtype=np.float32), np.zeros(64, np.float32)
    pointers = (ctypes.c_void_p * 3)(x.ctypes.data, y.ctypes.data, 0)
    for _ in range(1000):
        call(ctypes.addressof(pointers), 0, 0, units)
    np.testing.assert_array_equal(y[:5], x[:5] + 1)


@pytest.mark.slow
def test_memory_stays_bounded_over_many_compilations():
    for _ in range(20):
        _increment()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(200):
        _increment()
    gc.collect()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 30_000  # KB


def test_huge_register_tiles_are_refused():
    convolution = workloads(host())[1]
    found = sketches(convolution, host())[0]
    good = found.schedule(found.default())
    sized = [k for k in good.knobs if not re.search(r"block|outer|inner|unroll|window", k)]
    for value in (512, 0, -1):
        bad = Schedule(good.sketch, {**good.knobs, sized[0]: value})
        with pytest.raises(codegen.ScheduleError, match=re.escape(sized[0])):
            codegen.generate(convolution, bad, host())


def test_register_tiles_do_not_outgrow_the_registers():
    """Values that are fine one by one may be far too much together."""
    avx2 = named("avx2")
    convolution = workloads(avx2)[1]
    sketch = sketches(convolution, avx2)[0]
    good = sketch.schedule(sketch.default())
    largest = {k.name: max(k.values) for k in sketch.knobs}
    bad = Schedule(good.sketch, largest)
    assert sketch.row(good) is not None and sketch.row(bad) is None
    with pytest.raises(codegen.ScheduleError):
        codegen.generate(convolution, bad, avx2)
