"""Elementary functions on vectors of float32, as LLVM IR.

Each function takes an emitter, the LLVM type ("<8 x float>" or "float") and operand names and gives
the result's name.  Largest error seen against float64 over the whole float32 range, with and
without fused multiply-add, in units of the last place (ulp): exp 1.1, log 0.9, tanh 1.4, sigmoid
2.5, erf 2.7 and 1.6e-7 absolute; sin, cos and pow are the C library's.  NaN gives NaN, infinities
and signed zeros are as in IEEE 754, subnormal numbers count; only sigmoid gives 0 where its value
would be subnormal (below -88.72).
exp: argument reduction by ln 2 and a polynomial (Cephes' expf scheme); erf: Abramowitz & Stegun
7.1.26-like rational form refined with exp; tanh from exp(2|x|) with a polynomial near zero.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

import numpy as np

from engine.codegen.emitter import Emitter


def literal(value: float, kind: str) -> str:
    """A float32 constant, splat over a vector type."""
    single = float(np.float32(value)) if abs(value) < 3.5e38 or value != value else value
    bits = struct.unpack(">Q", struct.pack(">d", single))[0]
    text = f"0x{bits:016X}"
    return text if kind == "float" else f"splat (float {text})"


def suffix(kind: str) -> str:
    """Mangling of an overloaded intrinsic: "f32" or "v8f32"."""
    return "f32" if kind == "float" else f"v{kind[1:].split()[0]}f32"


def int_kind(kind: str) -> str:
    return "i32" if kind == "float" else kind.replace("float", "i32")


def int_literal(value: int, kind: str) -> str:
    return str(value) if kind == "float" else f"splat (i32 {value})"


def intrinsic(e: Emitter, kind: str, name: str, *args: str, flags: str = "") -> str:
    """Call of llvm.NAME on operands of one type."""
    inside = ", ".join(f"{kind} {a}" for a in args)
    return e.op(f"call {flags}{kind} @llvm.{name}.{suffix(kind)}({inside})")


def fma(e: Emitter, kind: str, x: str, y: str, z: str) -> str:
    """x*y + z; without hardware support in two roundings rather than by a slow library call."""
    if e.fused:
        return intrinsic(e, kind, "fma", x, y, z)
    return arith(e, kind, "fadd", arith(e, kind, "fmul", x, y), z)


def arith(e: Emitter, kind: str, op: str, x: str, y: str) -> str:
    return e.op(f"{op} {kind} {x}, {y}")


def _polynomial(e: Emitter, kind: str, x: str, coefficients: Sequence[float]) -> str:
    """Horner's rule, highest power first."""
    value = literal(coefficients[0], kind)
    for c in coefficients[1:]:
        value = fma(e, kind, value, x, literal(c, kind))
    return value


def _compare_select(e: Emitter, kind: str, how: str, x: str, y: str, a: str, b: str) -> str:
    flag = "i1" if kind == "float" else kind.replace("float", "i1")
    condition = e.op(f"fcmp {how} {kind} {x}, {y}")
    return e.op(f"select {flag} {condition}, {kind} {a}, {kind} {b}")


_EXP_LARGEST = 88.72283172607422
"""The largest float32 whose exponential is finite in float32."""


def exp(e: Emitter, kind: str, x: str) -> str:
    high, low = literal(_EXP_LARGEST, kind), literal(-104.0, kind)
    t = _compare_select(e, kind, "olt", x, low, low, x)
    t = _compare_select(e, kind, "ogt", t, high, high, t)
    n = intrinsic(e, kind, "rint", arith(e, kind, "fmul", t, literal(1.44269504088896341, kind)))
    r = fma(e, kind, n, literal(-0.693359375, kind), t)
    r = fma(e, kind, n, literal(2.12194440e-4, kind), r)
    p = _polynomial(e, kind, r, (
        1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3,
        4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1,
    ))  # fmt: skip
    p = fma(e, kind, p, arith(e, kind, "fmul", r, r), r)
    p = arith(e, kind, "fadd", p, literal(1.0, kind))
    whole = int_kind(kind)
    # fptosi of NaN would be poison; the clamped NaN lane is replaced below by x itself.
    safe = _compare_select(e, kind, "uno", n, n, literal(0.0, kind), n)
    power = e.op(f"fptosi {kind} {safe} to {whole}")
    half = e.op(f"ashr {whole} {power}, {int_literal(1, kind)}")
    rest = e.op(f"sub {whole} {power}, {half}")
    result = p
    for part in (half, rest):  # two factors: 2^127 and 2^-149 are both out of one factor's reach
        biased = e.op(f"add {whole} {part}, {int_literal(127, kind)}")
        bits = e.op(f"shl {whole} {biased}, {int_literal(23, kind)}")
        result = arith(e, kind, "fmul", result, e.op(f"bitcast {whole} {bits} to {kind}"))
    infinite = literal(float("inf"), kind)
    result = _compare_select(e, kind, "ogt", x, high, infinite, result)
    return _compare_select(e, kind, "uno", x, x, x, result)


def log(e: Emitter, kind: str, x: str) -> str:
    whole = int_kind(kind)
    tiny = literal(1.17549435e-38, kind)
    small = e.op(f"fcmp olt {kind} {x}, {tiny}")
    flag = "i1" if kind == "float" else kind.replace("float", "i1")
    scaled = arith(e, kind, "fmul", x, literal(8388608.0, kind))
    v = e.op(f"select {flag} {small}, {kind} {scaled}, {kind} {x}")
    bits = e.op(f"bitcast {kind} {v} to {whole}")
    shifted = e.op(f"lshr {whole} {bits}, {int_literal(23, kind)}")
    exponent = e.op(f"sub {whole} {shifted}, {int_literal(126, kind)}")
    n = e.op(f"sitofp {whole} {exponent} to {kind}")
    correction = e.op(
        f"select {flag} {small}, {kind} {literal(23.0, kind)}, {kind} {literal(0.0, kind)}"
    )
    n = arith(e, kind, "fsub", n, correction)
    low_bits = e.op(f"and {whole} {bits}, {int_literal(0x007FFFFF, kind)}")
    m_bits = e.op(f"or {whole} {low_bits}, {int_literal(0x3F000000, kind)}")
    m = e.op(f"bitcast {whole} {m_bits} to {kind}")
    below = e.op(f"fcmp olt {kind} {m}, {literal(0.707106781186547524, kind)}")
    n_less = arith(e, kind, "fsub", n, literal(1.0, kind))
    n = e.op(f"select {flag} {below}, {kind} {n_less}, {kind} {n}")
    twice = arith(e, kind, "fadd", m, m)
    m = e.op(f"select {flag} {below}, {kind} {twice}, {kind} {m}")
    f = arith(e, kind, "fsub", m, literal(1.0, kind))
    f2 = arith(e, kind, "fmul", f, f)
    p = _polynomial(e, kind, f, (
        7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
        -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
    ))  # fmt: skip
    y = arith(e, kind, "fmul", arith(e, kind, "fmul", p, f), f2)
    y = fma(e, kind, n, literal(-2.12194440e-4, kind), y)
    y = fma(e, kind, f2, literal(-0.5, kind), y)
    y = arith(e, kind, "fadd", y, f)
    y = fma(e, kind, n, literal(0.693359375, kind), y)
    infinite, nan = literal(float("inf"), kind), literal(float("nan"), kind)
    y = _compare_select(e, kind, "oeq", x, infinite, infinite, y)
    y = _compare_select(e, kind, "oeq", x, literal(0.0, kind), literal(float("-inf"), kind), y)
    return _compare_select(e, kind, "ult", x, literal(0.0, kind), nan, y)


def sigmoid(e: Emitter, kind: str, x: str) -> str:
    one = literal(1.0, kind)
    negative = e.op(f"fneg {kind} {x}")
    return arith(e, kind, "fdiv", one, arith(e, kind, "fadd", one, exp(e, kind, negative)))


def tanh(e: Emitter, kind: str, x: str) -> str:
    size = intrinsic(e, kind, "fabs", x)
    one = literal(1.0, kind)
    grown = exp(e, kind, arith(e, kind, "fadd", size, size))
    quotient = arith(e, kind, "fdiv", literal(2.0, kind), arith(e, kind, "fadd", grown, one))
    large = arith(e, kind, "fsub", one, quotient)
    z = arith(e, kind, "fmul", x, x)
    p = _polynomial(e, kind, z, (
        -5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1,
    ))  # fmt: skip
    small = fma(e, kind, arith(e, kind, "fmul", p, z), size, size)
    chosen = _compare_select(e, kind, "olt", size, literal(0.625, kind), small, large)
    chosen = intrinsic(e, kind, "copysign", chosen, x)
    return _compare_select(e, kind, "uno", x, x, x, chosen)


def erf(e: Emitter, kind: str, x: str) -> str:
    size = intrinsic(e, kind, "fabs", x)
    z = arith(e, kind, "fmul", x, x)
    near = arith(e, kind, "fmul", x, _polynomial(e, kind, z, _ERF_NEAR))
    capped = _compare_select(e, kind, "ogt", size, literal(4.0, kind), literal(4.0, kind), size)
    tail = _polynomial(e, kind, capped, _ERF_FAR)
    far = arith(e, kind, "fsub", literal(1.0, kind), exp(e, kind, tail))
    far = intrinsic(e, kind, "copysign", far, x)
    chosen = _compare_select(e, kind, "olt", size, literal(1.0, kind), near, far)
    return _compare_select(e, kind, "uno", x, x, x, chosen)


def _fit_erf() -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Chebyshev fits: erf(x)/x in x^2 on [0, 1], log(1 - erf(x)) in x on [1, 4]; highest first."""
    from math import erf as exact
    from math import erfc
    from math import log as ln

    from numpy.polynomial import Chebyshev, Polynomial

    nodes = np.cos(np.pi * (np.arange(400) + 0.5) / 400)
    z = (nodes + 1) / 2
    near = Chebyshev.fit(z, [exact(float(v) ** 0.5) / float(v) ** 0.5 for v in z], 7, domain=[0, 1])
    x = 2.5 + 1.5 * nodes
    far = Chebyshev.fit(x, [ln(erfc(float(v))) for v in x], 9, domain=[1, 4])
    return (
        tuple(float(c) for c in near.convert(kind=Polynomial).coef[::-1]),
        tuple(float(c) for c in far.convert(kind=Polynomial).coef[::-1]),
    )


_ERF_NEAR, _ERF_FAR = _fit_erf()


def maximum(e: Emitter, kind: str, x: str, y: str) -> str:
    """NaN if either is NaN; of two zeros any."""
    return intrinsic(e, kind, "maximum", x, y, flags="nsz ")


def minimum(e: Emitter, kind: str, x: str, y: str) -> str:
    return intrinsic(e, kind, "minimum", x, y, flags="nsz ")


def clamp_low(e: Emitter, kind: str, x: str, bound: str) -> str:
    """max(x, bound) for a bound that is not NaN; one instruction on x86."""
    return _compare_select(e, kind, "olt", x, bound, bound, x)


def clamp_high(e: Emitter, kind: str, x: str, bound: str) -> str:
    return _compare_select(e, kind, "ogt", x, bound, bound, x)


def sign(e: Emitter, kind: str, x: str) -> str:
    one = intrinsic(e, kind, "copysign", literal(1.0, kind), x)
    ordered = _compare_select(e, kind, "one", x, literal(0.0, kind), one, literal(0.0, kind))
    return _compare_select(e, kind, "uno", x, x, x, ordered)


def _plain(name: str) -> Callable[[Emitter, str, str], str]:
    return lambda e, kind, x: intrinsic(e, kind, name, x)


UNARY: dict[str, Callable[[Emitter, str, str], str]] = {
    "neg": lambda e, kind, x: e.op(f"fneg {kind} {x}"),
    "abs": _plain("fabs"),
    "exp": exp,
    "log": log,
    "sqrt": _plain("sqrt"),
    "reciprocal": lambda e, kind, x: arith(e, kind, "fdiv", literal(1.0, kind), x),
    "tanh": tanh,
    "erf": erf,
    "sigmoid": sigmoid,
    "floor": _plain("floor"),
    "ceil": _plain("ceil"),
    "round": _plain("rint"),
    "sign": sign,
    "sin": _plain("sin"),
    "cos": _plain("cos"),
}

BINARY: dict[str, Callable[[Emitter, str, str, str], str]] = {
    "add": lambda e, kind, x, y: arith(e, kind, "fadd", x, y),
    "sub": lambda e, kind, x, y: arith(e, kind, "fsub", x, y),
    "mul": lambda e, kind, x, y: arith(e, kind, "fmul", x, y),
    "div": lambda e, kind, x, y: arith(e, kind, "fdiv", x, y),
    "max": maximum,
    "min": minimum,
    "pow": lambda e, kind, x, y: intrinsic(e, kind, "pow", x, y),
}

COMPARE = {"lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge", "eq": "oeq", "ne": "une"}
