"""Object code in this process: symbols, several objects, errors, life time."""

from __future__ import annotations

import ctypes
import gc

import pytest

from engine.runtime.jit import emit_object, load_object
from engine.target import host

ADD = "define i64 @add(i64 %a, i64 %b) {\n  %c = add i64 %a, %b\n  ret i64 %c\n}\n"
TWICE = (
    "declare i64 @add(i64, i64)\n"
    "define i64 @twice(i64 %a) {\n  %c = call i64 @add(i64 %a, i64 %a)\n  ret i64 %c\n}\n"
)
LENGTH = (
    "declare i64 @strlen(ptr)\n"
    "define i64 @length(ptr %s) {\n  %n = call i64 @strlen(ptr %s)\n  ret i64 %n\n}\n"
)


def emit(ir: str, passes: int = 0) -> bytes:
    return emit_object(ir, host().cpu, host().feature_string, passes=passes)


@pytest.mark.parametrize("passes", [0, 2])
def test_objects_call_one_another_and_libc(passes: int) -> None:
    code = load_object([emit(ir, passes) for ir in (TWICE, LENGTH, ADD)], ["twice", "length"])
    assert code.function("twice", ctypes.c_int64, ctypes.c_int64)(21) == 42
    assert code.function("length", ctypes.c_int64, ctypes.c_char_p)(b"seven..") == 7


def test_imported_symbols() -> None:
    kind = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)
    product = kind(lambda a, b: a * b)
    address = ctypes.cast(product, ctypes.c_void_p).value
    assert address is not None
    code = load_object(emit(TWICE), ["twice"], {"add": address})
    assert code.function("twice", ctypes.c_int64, ctypes.c_int64)(5) == 25


def test_missing_symbols_and_broken_objects_are_refused() -> None:
    with pytest.raises(RuntimeError, match="twice"):
        load_object(emit(TWICE.replace("@add", "@noctune_nowhere")), ["twice"])
    with pytest.raises(RuntimeError):
        load_object(emit(ADD)[:200], ["add"])
    with pytest.raises(RuntimeError, match="expected"):
        emit("define nonsense")


@pytest.mark.slow
def test_names_may_be_reused_and_code_is_unloaded() -> None:
    for i in range(20):
        code = load_object(emit(ADD), ["add"])
        assert code.function("add", ctypes.c_int64, *[ctypes.c_int64] * 2)(i, 1) == i + 1
        del code
        gc.collect()
