"""What the pool's IR needs of a processor family: waiting politely, and flushing denormals to zero.

Out: `family_ir(target)` with `relax`, `noctune_fp_enter` (gives the former mode) and
`noctune_fp_leave`.
"""

from __future__ import annotations

from engine.target import Target


def family_ir(target: Target) -> str:
    """Definitions for the target's family; families without such modes get empty ones."""
    if target.is_x86:
        return _X86
    return _AARCH64 if target.triple.startswith("aarch64") else _PLAIN


_X86 = """
declare void @llvm.x86.sse2.pause()
declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)

define internal void @relax() alwaysinline {
  call void @llvm.x86.sse2.pause()
  ret void
}

; Flush denormals to zero, inputs too; gives the former mode.
define i64 @noctune_fp_enter() {
  %slot = alloca i32
  call void @llvm.x86.sse.stmxcsr(ptr %slot)
  %old = load i32, ptr %slot
  %new = or i32 %old, 32832
  %same = icmp eq i32 %old, %new
  br i1 %same, label %done, label %set
set:
  store i32 %new, ptr %slot
  call void @llvm.x86.sse.ldmxcsr(ptr %slot)
  br label %done
done:
  %wide = zext i32 %old to i64
  ret i64 %wide
}

define void @noctune_fp_leave(i64 %wide) {
  %slot = alloca i32
  %old = trunc i64 %wide to i32
  %bits = and i32 %old, 32832
  %same = icmp eq i32 %bits, 32832
  br i1 %same, label %done, label %set
set:
  store i32 %old, ptr %slot
  call void @llvm.x86.sse.ldmxcsr(ptr %slot)
  br label %done
done:
  ret void
}
"""

_AARCH64 = """
declare void @llvm.aarch64.hint(i32)
declare i64 @llvm.aarch64.get.fpcr()
declare void @llvm.aarch64.set.fpcr(i64)

define internal void @relax() alwaysinline {
  call void @llvm.aarch64.hint(i32 1)
  ret void
}

define i64 @noctune_fp_enter() {
  %old = call i64 @llvm.aarch64.get.fpcr()
  %new = or i64 %old, 16777216
  call void @llvm.aarch64.set.fpcr(i64 %new)
  ret i64 %old
}

define void @noctune_fp_leave(i64 %old) {
  call void @llvm.aarch64.set.fpcr(i64 %old)
  ret void
}
"""

_PLAIN = """
define internal void @relax() {
  ret void
}

define i64 @noctune_fp_enter() {
  ret i64 0
}

define void @noctune_fp_leave(i64 %old) {
  ret void
}
"""
