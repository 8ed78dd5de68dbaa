"""The timing loop as LLVM IR, so that no Python runs between the two readings of the clock.

Out: a module with `noctune_time` and the region `noctune_probe`.

    noctune_time(regions, count, args, threads, ranges, range_count, blocks, per_block, clock, out)

calls the kernel `blocks * per_block` times.  Before each block it empties the ranges from the
caches and reads the clock around the block.  `out` gets i64s: nanoseconds inside blocks, wall and
CPU nanoseconds of everything, then the nanoseconds of each block (the last LOGGED of them);
`clock` is the CPU clock to read.  A region is {address, units}.  A range is {address, bytes, kind}:
kind 0 is flushed line by line, kind 1 is read (to push other data out where there is no flush).
"""

from __future__ import annotations

from engine.target import Target

PROBE_FLOATS = 1 << 16
LOGGED = 1 << 12
"""Blocks whose times are kept; a power of two."""

TIME = "noctune_time"
PROBE = "noctune_probe"


def timing_ir(target: Target) -> str:
    """The module for this target; calls `noctune_parallel`, `noctune_fp_enter` and `_leave`."""
    text = f'target triple = "{target.triple}"\n' + _TEXT.replace("$LAST", str(LOGGED - 1))
    if not target.is_x86:
        return text + _NO_FLUSH
    flush = "clflushopt" if "+clflushopt" in target.features else "sse2.clflush"
    return text + _X86_FLUSH.replace("$FLUSH", flush)


def can_flush(target: Target) -> bool:
    """Whether a range of kind 0 really leaves the caches."""
    return target.is_x86


_TEXT = """
declare i32 @clock_gettime(i32, ptr)
declare void @noctune_parallel(ptr, ptr, i64, i64)
declare i64 @noctune_fp_enter()
declare void @noctune_fp_leave(i64)

define internal i64 @now(i32 %clock) noinline {
  %time = alloca { i64, i64 }
  %error = call i32 @clock_gettime(i32 %clock, ptr %time)
  %seconds = load i64, ptr %time
  %rest.at = getelementptr { i64, i64 }, ptr %time, i64 0, i32 1
  %rest = load i64, ptr %rest.at
  %scaled = mul i64 %seconds, 1000000000
  %total = add i64 %scaled, %rest
  ret i64 %total
}

define internal void @call_all(ptr %regions, i64 %count, ptr %args, i64 %threads) {
entry:
  br label %test
test:
  %i = phi i64 [ 0, %entry ], [ %next, %step ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %body, label %done
body:
  %slot = getelementptr { ptr, i64 }, ptr %regions, i64 %i
  %region = load ptr, ptr %slot
  %units.at = getelementptr { ptr, i64 }, ptr %slot, i64 0, i32 1
  %units = load i64, ptr %units.at
  %many = icmp sgt i64 %threads, 1
  br i1 %many, label %fork, label %alone
fork:
  call void @noctune_parallel(ptr %region, ptr %args, i64 %threads, i64 %units)
  br label %step
alone:
  call void %region(ptr %args, i64 0, i64 0, i64 %units)
  br label %step
step:
  %next = add i64 %i, 1
  br label %test
done:
  ret void
}

define internal void @chill(ptr %ranges, i64 %count) {
entry:
  br label %test
test:
  %i = phi i64 [ 0, %entry ], [ %next, %step ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %body, label %done
body:
  %range = getelementptr { ptr, i64, i64 }, ptr %ranges, i64 %i
  %start = load ptr, ptr %range
  %bytes.at = getelementptr { ptr, i64, i64 }, ptr %range, i64 0, i32 1
  %bytes = load i64, ptr %bytes.at
  %kind.at = getelementptr { ptr, i64, i64 }, ptr %range, i64 0, i32 2
  %kind = load i64, ptr %kind.at
  %flush = icmp eq i64 %kind, 0
  br label %line.test
line.test:
  %at = phi i64 [ 0, %body ], [ %at.next, %line.step ]
  %inside = icmp slt i64 %at, %bytes
  br i1 %inside, label %line, label %step
line:
  %line.at = getelementptr i8, ptr %start, i64 %at
  br i1 %flush, label %out, label %in
out:
  call void @flush(ptr %line.at)
  br label %line.step
in:
  %value = load volatile i8, ptr %line.at
  br label %line.step
line.step:
  %at.next = add i64 %at, 64
  br label %line.test
step:
  %next = add i64 %i, 1
  br label %test
done:
  call void @fence()
  ret void
}

define void @noctune_time(ptr %regions, i64 %count, ptr %args, i64 %threads, ptr %ranges,
                          i64 %range.count, i64 %blocks, i64 %per.block, i32 %clock, ptr %out) {
entry:
  %mode = call i64 @noctune_fp_enter()
  %cpu.start = call i64 @now(i32 %clock)
  %wall.start = call i64 @now(i32 1)
  br label %test
test:
  %i = phi i64 [ 0, %entry ], [ %next, %stop ]
  %total = phi i64 [ 0, %entry ], [ %total.next, %stop ]
  %more = icmp slt i64 %i, %blocks
  br i1 %more, label %block, label %done
block:
  call void @chill(ptr %ranges, i64 %range.count)
  %start = call i64 @now(i32 1)
  br label %call
call:
  %j = phi i64 [ 0, %block ], [ %j.next, %call ]
  call void @call_all(ptr %regions, i64 %count, ptr %args, i64 %threads)
  %j.next = add i64 %j, 1
  %again = icmp slt i64 %j.next, %per.block
  br i1 %again, label %call, label %stop
stop:
  %end = call i64 @now(i32 1)
  %spent = sub i64 %end, %start
  %total.next = add i64 %total, %spent
  %cell = and i64 %i, $LAST
  %cell.past = add i64 %cell, 3
  %spent.at = getelementptr i64, ptr %out, i64 %cell.past
  store i64 %spent, ptr %spent.at
  %next = add i64 %i, 1
  br label %test
done:
  %wall.end = call i64 @now(i32 1)
  %cpu.end = call i64 @now(i32 %clock)
  %wall = sub i64 %wall.end, %wall.start
  %cpu = sub i64 %cpu.end, %cpu.start
  call void @noctune_fp_leave(i64 %mode)
  store i64 %total, ptr %out
  %wall.at = getelementptr i64, ptr %out, i64 1
  store i64 %wall, ptr %wall.at
  %cpu.at = getelementptr i64, ptr %out, i64 2
  store i64 %cpu, ptr %cpu.at
  ret void
}

; A chain of dependent multiply-adds over 65536 floats: sees the clock rate and who shares the core.
define void @noctune_probe(ptr %args, i64 %thread, i64 %first, i64 %past) {
entry:
  %data = load ptr, ptr %args
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %sum = phi float [ 1.0, %entry ], [ %sum.next, %loop ]
  %at = getelementptr float, ptr %data, i64 %i
  %x = load float, ptr %at
  %scaled = fmul float %sum, 0.5
  %sum.next = fadd float %scaled, %x
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, 65536
  br i1 %more, label %loop, label %done
done:
  store float %sum.next, ptr %data
  ret void
}
"""

_X86_FLUSH = """
declare void @llvm.x86.$FLUSH(ptr)
declare void @llvm.x86.sse2.mfence()

define internal void @flush(ptr %line) alwaysinline {
  call void @llvm.x86.$FLUSH(ptr %line)
  ret void
}

define internal void @fence() alwaysinline {
  call void @llvm.x86.sse2.mfence()
  ret void
}
"""

_NO_FLUSH = """
define internal void @flush(ptr %line) {
  ret void
}

define internal void @fence() {
  fence seq_cst
  ret void
}
"""
