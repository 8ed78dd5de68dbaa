"""Writes LLVM IR as text: SSA names, blocks, loops with carried values, hoisting.

A scope is a loop body.  Address arithmetic that depends on outer loops only is appended to the
entry of the loop that defines its variable, so that inner loops hold nothing but loads and
arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

Lines: TypeAlias = "list[str | Lines]"


@dataclass
class Scope:
    """A loop body under construction: `entry` grows after the fact, `memo` holds what is there."""

    variable: str | None
    entry: Lines = field(default_factory=list)
    memo: dict[object, str] = field(default_factory=dict)
    counted: bool = False
    """Whether it is a loop from 0 on."""
    moving: dict[tuple[str, int], str] = field(default_factory=dict)
    """Pointers by (start, floats a turn)."""


class Emitter:
    """Builds one function's body; `fused`: the target has fused multiply-add."""

    def __init__(self, *, fused: bool = True) -> None:
        self.fused = fused
        self._count = 0
        self.label = "entry"
        root = Scope(None)
        self.scopes = [root]
        self._lines: Lines = ["entry:", root.entry]

    def fresh(self, hint: str = "v") -> str:
        self._count += 1
        return f"%{hint}{self._count}"

    def put(self, line: str) -> None:
        self._lines.append("  " + line)

    def op(self, text: str, hint: str = "v") -> str:
        """Emits `%fresh = text` and gives the name."""
        name = self.fresh(hint)
        self._lines.append(f"  {name} = {text}")
        return name

    def block(self, label: str) -> None:
        self._lines.append(f"{label}:")
        self.label = label

    def moved(self, variable: str, pointer: str, floats: int) -> str:
        """The pointer `floats` times the loop variable further on.

        A counted loop carries it from turn to turn, which is cheaper than to compute it anew.
        """
        scope = next(s for s in reversed(self.scopes) if s.variable == variable)
        if not scope.counted:
            step = self.scaled(variable, floats)
            return self.hoisted([variable], f"getelementptr float, ptr {pointer}, i64 {step}")
        if (pointer, floats) not in scope.moving:
            scope.moving[pointer, floats] = self.fresh("m")
        return scope.moving[pointer, floats]

    def scaled(self, variable: str, factor: int) -> str:
        """SSA i64 of a loop variable times a constant."""
        value = self.value_of(variable)
        return value if factor == 1 else self.hoisted([variable], f"mul nsw i64 {value}, {factor}")

    def hoisted(self, variables: Sequence[str], instruction: str) -> str:
        """`%name = instruction`, once, at the entry of the innermost loop that defines one of
        `variables`."""
        scope = self.scopes[0]
        for candidate in reversed(self.scopes):
            if candidate.variable in variables:
                scope = candidate
                break
        known = scope.memo.get(instruction)
        if known is None:
            known = scope.memo[instruction] = self.fresh("h")
            scope.entry.append(f"  {known} = {instruction}")
        return known

    def loop(
        self,
        variable: str,
        start: str,
        stop: str,
        carried: Sequence[tuple[str, str]],
        body: Callable[[list[str]], list[str]],
        *,
        guarded: bool = False,
    ) -> list[str]:
        """A counted loop; `carried` are (type, initial value); gives the final carried values.

        `variable` is also the SSA name (without %).  With `guarded` the loop may run zero times.
        """
        self._count += 1
        tag = f"L{self._count}"
        name = "%" + ssa(variable) + f".{tag}"
        before = self.label
        skip = ""
        if guarded:
            check = self.op(f"icmp slt i64 {start}, {stop}")
            self.put(f"br i1 {check}, label %{tag}, label %{tag}.exit")
            skip = before
        else:
            self.put(f"br label %{tag}")
        self.block(tag)
        phis: Lines = []
        self._lines.append(phis)
        scope = Scope(variable, counted=start == "0")
        self._lines.append(scope.entry)
        self.scopes.append(scope)
        self.scopes[-1].memo[("value", variable)] = name
        values = [self.fresh("a") for _ in carried]
        results = body(list(values))
        self.scopes.pop()
        steps = {}
        for (pointer, floats), value in scope.moving.items():  # `asm`: out of LLVM's sight
            step = self.op(f"getelementptr float, ptr {value}, i64 {floats}")
            steps[pointer, floats] = self.op(f'call ptr asm "", "=r,0"(ptr {step})')
        count = self.op(f"add nuw nsw i64 {name}, 1")
        following = self.op(f'call i64 asm "", "=r,0"(i64 {count})')
        done = self.op(f"icmp slt i64 {following}, {stop}")
        latch = self.label
        self.put(f"br i1 {done}, label %{tag}, label %{tag}.exit")
        phis.append(f"  {name} = phi i64 [ {start}, %{before} ], [ {following}, %{latch} ]")
        for (pointer, floats), value in scope.moving.items():
            moved = steps[pointer, floats]
            phis.append(f"  {value} = phi ptr [ {pointer}, %{before} ], [ {moved}, %{latch} ]")
        for (kind, initial), value, result in zip(carried, values, results, strict=True):
            phis.append(f"  {value} = phi {kind} [ {initial}, %{before} ], [ {result}, %{latch} ]")
        self.block(f"{tag}.exit")
        if not skip:
            return results
        finals = []
        for (kind, initial), result in zip(carried, results, strict=True):
            finals.append(self.op(f"phi {kind} [ {initial}, %{skip} ], [ {result}, %{latch} ]"))
        return finals

    def branch(
        self, condition: str, yes: Callable[[], None], no: Callable[[], None] | None
    ) -> None:
        """if/else without values."""
        self._count += 1
        tag = f"B{self._count}"
        other = f"{tag}.no" if no else f"{tag}.end"
        self.put(f"br i1 {condition}, label %{tag}.yes, label %{other}")
        for label, part in ((f"{tag}.yes", yes), (f"{tag}.no", no)):
            if part is None:
                continue
            self.block(label)
            part()
            self.put(f"br label %{tag}.end")
        self.block(f"{tag}.end")

    def unless(
        self, condition: str, kind: str, known: Sequence[str], compute: Callable[[], list[str]]
    ) -> list[str]:
        """`known` values of one type where the condition holds, else those that are computed."""
        self._count += 1
        tag = f"B{self._count}"
        before = self.label
        self.put(f"br i1 {condition}, label %{tag}.end, label %{tag}.no")
        self.block(f"{tag}.no")
        values = compute()
        computed = self.label
        self.put(f"br label %{tag}.end")
        self.block(f"{tag}.end")
        return [
            self.op(f"phi {kind} [ {k}, %{before} ], [ {v}, %{computed} ]")
            for k, v in zip(known, values, strict=True)
        ]

    def value_of(self, variable: str) -> str:
        """SSA name of a loop variable in scope."""
        for scope in reversed(self.scopes):
            name = scope.memo.get(("value", variable))
            if name is not None:
                return name
        raise KeyError(variable)

    def open_scope(self, variable: str, name: str) -> None:
        """A straight-line scope that defines `variable`; close with `close_scope`."""
        scope = Scope(variable)
        scope.memo[("value", variable)] = name
        self._lines.append(scope.entry)
        self.scopes.append(scope)

    def close_scope(self) -> None:
        self.scopes.pop()

    def text(self) -> str:
        out: list[str] = []

        def flatten(lines: Lines) -> None:
            for line in lines:
                if isinstance(line, str):
                    out.append(line)
                else:
                    flatten(line)

        flatten(self._lines)
        return "\n".join(out)


def ssa(name: str) -> str:
    """A loop variable's name in characters that LLVM takes."""
    return "".join(c if c.isalnum() or c in "._" else "_" for c in name)
