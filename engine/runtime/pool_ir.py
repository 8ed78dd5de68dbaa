"""The fork-join pool as LLVM IR text.

In: a target.  Out: a module that exports `noctune_parallel` and its helpers (`EXPORTS`).

A job is a region and a number of units.  Every thread first gets an equal, contiguous range of them
and takes from its front, a quarter of what is left at a time; one that has none left takes from the
back of another's.  So threads that others slow down (on virtual machines a core's sibling may be
somebody else's) do less, and on equal cores each keeps the part of the data that it had before.

Each worker has a mailbox of its own.  `word` counts postings in steps of two; bit 0 says that the
worker sleeps in futex(word).  The caller writes the job, then swaps the next count in; if the
value that it swapped out had bit 0 set it wakes the worker.  Workers count `pending` down; its top
bit says that the caller sleeps.  Waiting spins `spin` times before it sleeps: an idle pool costs
no CPU time.

Only one job runs at a time: a call that finds the pool busy (from inside a region, or from another
thread of the host program) does all units itself.
"""

from __future__ import annotations

from engine.runtime.cpu_ir import family_ir
from engine.target import Target

MAX_WORKERS = 255
MAX_CPUS = 1024
PATIENCE = 20
"""The caller spins so many times longer for its workers: they are at work, or soon will be."""
EXPORTS = (
    "noctune_parallel", "noctune_enter", "noctune_fp_enter", "noctune_fp_leave",
    "noctune_pool_reset", "noctune_pool_spin", "noctune_pool_workers",
    "noctune_spin", "noctune_cpus", "noctune_cpu_count", "noctune_core_of",
)  # fmt: skip

FUTEX_NUMBER = {"x86_64": 202, "i386": 240, "i686": 240, "powerpc64le": 221, "s390x": 238}
"""System call numbers of futex on Linux; every newer architecture has 98."""


def pool_ir(target: Target) -> str:
    """The pool's module for the target's processor family."""
    family = target.triple.split("-")[0]
    number = FUTEX_NUMBER.get(family, 98)
    text = _POOL.replace("$FUTEX", str(number)).replace("$CPUS", str(MAX_CPUS))
    text = (
        text.replace("$BYTES", str(MAX_CPUS // 8))
        .replace("$MAX", str(MAX_WORKERS))
        .replace("$PATIENCE", str(PATIENCE))
    )
    return f'target triple = "{target.triple}"\n' + text + family_ir(target)


_POOL = """
%Mailbox = type { i32, [60 x i8], ptr, ptr, i64, i64, [32 x i8] }

@boxes = internal global [256 x %Mailbox] zeroinitializer, align 128
@pending = internal global [32 x i32] zeroinitializer, align 128
@busy = internal global [32 x i32] zeroinitializer, align 128
; what each thread has left: the first unit in the lower half, the one past the last in the upper
@left = internal global [256 x [16 x i64]] zeroinitializer, align 128
@workers = internal global i64 0
@noctune_spin = global i64 1000
@noctune_cpus = global [$CPUS x i32] zeroinitializer
@noctune_cpu_count = global i64 0
@noctune_core_of = global [$CPUS x i32] zeroinitializer

declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(i64)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @sigfillset(ptr)
declare i32 @sched_setaffinity(i32, i64, ptr)
declare i32 @sched_getaffinity(i32, i64, ptr)
declare i32 @sched_getcpu()
declare i64 @syscall(i64, ...)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

define internal void @futex_wait(ptr %word, i32 %value) noinline {
  %r = call i64 (i64, ...) @syscall(i64 $FUTEX, ptr %word, i64 128, i32 %value, ptr null)
  ret void
}

define internal void @futex_wake(ptr %word) noinline {
  %r = call i64 (i64, ...) @syscall(i64 $FUTEX, ptr %word, i64 129, i32 1, ptr null)
  ret void
}

define internal void @pin(i64 %index) {
  %mask = alloca [$BYTES x i8], align 8
  %count = load i64, ptr @noctune_cpu_count
  %known = icmp ult i64 %index, %count
  br i1 %known, label %set, label %done
set:
  call void @llvm.memset.p0.i64(ptr %mask, i8 0, i64 $BYTES, i1 false)
  %slot = getelementptr i32, ptr @noctune_cpus, i64 %index
  %cpu = load i32, ptr %slot
  call void @set_bit(ptr %mask, i32 %cpu)
  %r = call i32 @sched_setaffinity(i32 0, i64 $BYTES, ptr %mask)
  br label %done
done:
  ret void
}

define internal void @set_bit(ptr %mask, i32 %cpu) {
  %byte = lshr i32 %cpu, 3
  %bit = and i32 %cpu, 7
  %one = shl i32 1, %bit
  %flag = trunc i32 %one to i8
  %at = getelementptr i8, ptr %mask, i32 %byte
  %old = load i8, ptr %at
  %new = or i8 %old, %flag
  store i8 %new, ptr %at
  ret void
}

define internal ptr @worker(ptr %self) {
entry:
  %signals = alloca [256 x i8], align 8
  %index = ptrtoint ptr %self to i64
  %filled = call i32 @sigfillset(ptr %signals)
  %blocked = call i32 @pthread_sigmask(i32 0, ptr %signals, ptr null)
  call void @pin(i64 %index)
  %mode = call i64 @noctune_fp_enter()
  %box = getelementptr %Mailbox, ptr @boxes, i64 %index
  %fn.at = getelementptr %Mailbox, ptr %box, i64 0, i32 2
  %args.at = getelementptr %Mailbox, ptr %box, i64 0, i32 3
  %share.at = getelementptr %Mailbox, ptr %box, i64 0, i32 4
  %threads.at = getelementptr %Mailbox, ptr %box, i64 0, i32 5
  br label %idle
idle:
  %seen = phi i32 [ 0, %entry ], [ %now, %finished ], [ %now, %wake.caller ]
  br label %spin
spin:
  %turn = phi i64 [ 0, %idle ], [ %turn.next, %pause ], [ 0, %slept ]
  %now = load atomic i32, ptr %box acquire, align 4
  %posted = and i32 %now, -2
  %work = icmp ne i32 %posted, %seen
  br i1 %work, label %run, label %check
check:
  %limit = load i64, ptr @noctune_spin
  %tired = icmp uge i64 %turn, %limit
  br i1 %tired, label %sleep, label %pause
pause:
  call void @relax()
  %turn.next = add i64 %turn, 1
  br label %spin
sleep:
  %asleep = or i32 %seen, 1
  %swap = cmpxchg ptr %box, i32 %seen, i32 %asleep seq_cst seq_cst
  %swapped = extractvalue { i32, i1 } %swap, 0
  %fresh = and i32 %swapped, -2
  %quiet = icmp eq i32 %fresh, %seen
  br i1 %quiet, label %wait, label %slept
wait:
  call void @futex_wait(ptr %box, i32 %asleep)
  %again = load atomic i32, ptr %box acquire, align 4
  %same = icmp eq i32 %again, %asleep
  br i1 %same, label %wait, label %slept
slept:
  br label %spin
run:
  %fn = load ptr, ptr %fn.at
  %args = load ptr, ptr %args.at
  %share = load i64, ptr %share.at
  %threads = load i64, ptr %threads.at
  call void @work(ptr %fn, ptr %args, i64 %share, i64 %threads)
  %left = atomicrmw sub ptr @pending, i32 1 acq_rel
  %last = icmp eq i32 %left, -2147483647
  br i1 %last, label %wake.caller, label %finished
wake.caller:
  call void @futex_wake(ptr @pending)
  br label %idle
finished:
  br label %idle
}

; Makes workers up to number %wanted; gives how many there are.
define internal i64 @grow(i64 %wanted) {
entry:
  %thread = alloca i64
  br label %more
more:
  %have = load i64, ptr @workers
  %short = icmp ult i64 %have, %wanted
  %room = icmp ult i64 %have, $MAX
  %go = and i1 %short, %room
  br i1 %go, label %make, label %done
make:
  %number = add i64 %have, 1
  %box = getelementptr %Mailbox, ptr @boxes, i64 %number
  store atomic i32 0, ptr %box seq_cst, align 4
  %self = inttoptr i64 %number to ptr
  %error = call i32 @pthread_create(ptr %thread, ptr null, ptr @worker, ptr %self)
  %made = icmp eq i32 %error, 0
  br i1 %made, label %count, label %done
count:
  %id = load i64, ptr %thread
  %detached = call i32 @pthread_detach(i64 %id)
  store i64 %number, ptr @workers
  br label %more
done:
  %total = load i64, ptr @workers
  ret i64 %total
}

; Shares 0 to %threads get equal ranges of the units.
define internal void @deal(i64 %units, i64 %threads) {
entry:
  br label %share
share:
  %i = phi i64 [ 0, %entry ], [ %next, %share ]
  %low = phi i64 [ 0, %entry ], [ %high, %share ]
  %next = add i64 %i, 1
  %scaled = mul i64 %next, %units
  %high = udiv i64 %scaled, %threads
  %upper = shl i64 %high, 32
  %range = or i64 %upper, %low
  %at = getelementptr [256 x [16 x i64]], ptr @left, i64 0, i64 %i
  store atomic i64 %range, ptr %at monotonic, align 8
  %more = icmp ult i64 %next, %threads
  br i1 %more, label %share, label %done
done:
  ret void
}

; Takes units until nobody has any left, from the own range first.
define internal void @work(ptr %fn, ptr %args, i64 %share, i64 %threads) {
entry:
  br label %owner
owner:
  %step = phi i64 [ 0, %entry ], [ %step.next, %empty ]
  %sum = add i64 %share, %step
  %around = icmp uge i64 %sum, %threads
  %wrapped = sub i64 %sum, %threads
  %whose = select i1 %around, i64 %wrapped, i64 %sum
  %own = icmp eq i64 %step, 0
  %at = getelementptr [256 x [16 x i64]], ptr @left, i64 0, i64 %whose
  br label %look
look:
  %range = load atomic i64, ptr %at monotonic, align 8
  %low = and i64 %range, 4294967295
  %high = lshr i64 %range, 32
  %some = icmp ult i64 %low, %high
  br i1 %some, label %take, label %empty
take:
  %rest = sub i64 %high, %low
  %quarter = lshr i64 %rest, 2
  %count = call i64 @llvm.umax.i64(i64 %quarter, i64 1)
  %upper = shl i64 %count, 32
  %without.front = add i64 %range, %count
  %without.back = sub i64 %range, %upper
  %new = select i1 %own, i64 %without.front, i64 %without.back
  %swap = cmpxchg ptr %at, i64 %range, i64 %new acq_rel monotonic
  %won = extractvalue { i64, i1 } %swap, 1
  br i1 %won, label %run, label %look
run:
  %back = sub i64 %high, %count
  %first = select i1 %own, i64 %low, i64 %back
  %past = add i64 %first, %count
  call void %fn(ptr %args, i64 %share, i64 %first, i64 %past)
  br label %look
empty:
  %step.next = add i64 %step, 1
  %others = icmp ult i64 %step.next, %threads
  br i1 %others, label %owner, label %done
done:
  ret void
}

define internal void @post(ptr %fn, ptr %args, i64 %share, i64 %threads) {
  %box = getelementptr %Mailbox, ptr @boxes, i64 %share
  %fn.at = getelementptr %Mailbox, ptr %box, i64 0, i32 2
  %args.at = getelementptr %Mailbox, ptr %box, i64 0, i32 3
  %share.at = getelementptr %Mailbox, ptr %box, i64 0, i32 4
  %threads.at = getelementptr %Mailbox, ptr %box, i64 0, i32 5
  store ptr %fn, ptr %fn.at
  store ptr %args, ptr %args.at
  store i64 %share, ptr %share.at
  store i64 %threads, ptr %threads.at
  %old = load atomic i32, ptr %box monotonic, align 4
  %odd = or i32 %old, 1
  %next = add i32 %odd, 1
  %was = atomicrmw xchg ptr %box, i32 %next seq_cst
  %bit = and i32 %was, 1
  %asleep = icmp ne i32 %bit, 0
  br i1 %asleep, label %wake, label %done
wake:
  call void @futex_wake(ptr %box)
  br label %done
done:
  ret void
}

define internal void @join() {
entry:
  br label %spin
spin:
  %turn = phi i64 [ 0, %entry ], [ %turn.next, %pause ], [ 0, %wait ]
  %left = load atomic i32, ptr @pending acquire, align 4
  %count = and i32 %left, 2147483647
  %finished = icmp eq i32 %count, 0
  br i1 %finished, label %done, label %check
check:
  %once = load i64, ptr @noctune_spin
  %limit = mul i64 %once, $PATIENCE
  %tired = icmp uge i64 %turn, %limit
  br i1 %tired, label %sleep, label %pause
pause:
  call void @relax()
  %turn.next = add i64 %turn, 1
  br label %spin
sleep:
  %asleep = or i32 %left, -2147483648
  %swap = cmpxchg ptr @pending, i32 %left, i32 %asleep seq_cst seq_cst
  %won = extractvalue { i32, i1 } %swap, 1
  br i1 %won, label %really, label %wait
really:
  call void @futex_wait(ptr @pending, i32 %asleep)
  br label %wait
wait:
  br label %spin
done:
  ret void
}

; Runs %fn(%args, thread, first, past) over all units, on at most %threads threads.
define void @noctune_parallel(ptr %fn, ptr %args, i64 %threads, i64 %units) {
entry:
  %mode = call i64 @noctune_fp_enter()
  %useful = call i64 @llvm.umin.i64(i64 %threads, i64 %units)
  %many = icmp ugt i64 %useful, 1
  br i1 %many, label %try, label %alone
try:
  %lock = cmpxchg ptr @busy, i32 0, i32 1 acquire monotonic
  %mine = extractvalue { i32, i1 } %lock, 1
  br i1 %mine, label %crew, label %alone
alone:
  call void %fn(ptr %args, i64 0, i64 0, i64 %units)
  br label %leave
crew:
  %wanted = sub i64 %useful, 1
  %have = load i64, ptr @workers
  %enough = icmp uge i64 %have, %wanted
  br i1 %enough, label %start, label %hire
hire:
  %hired = call i64 @grow(i64 %wanted)
  br label %start
start:
  %ready = phi i64 [ %wanted, %crew ], [ %hired, %hire ]
  %helpers = call i64 @llvm.umin.i64(i64 %ready, i64 %wanted)
  %crew.size = add i64 %helpers, 1
  call void @deal(i64 %units, i64 %crew.size)
  %helpers32 = trunc i64 %helpers to i32
  store atomic i32 %helpers32, ptr @pending monotonic, align 4
  br label %posting
posting:
  %i = phi i64 [ 1, %start ], [ %next, %post ]
  %more = icmp ule i64 %i, %helpers
  br i1 %more, label %post, label %own
post:
  call void @post(ptr %fn, ptr %args, i64 %i, i64 %crew.size)
  %next = add i64 %i, 1
  br label %posting
own:
  call void @work(ptr %fn, ptr %args, i64 0, i64 %crew.size)
  call void @join()
  store atomic i32 0, ptr @busy release, align 4
  br label %leave
leave:
  call void @noctune_fp_leave(i64 %mode)
  ret void
}

declare i64 @llvm.umin.i64(i64, i64)
declare i64 @llvm.umax.i64(i64, i64)

; Before a run: if the calling thread sits on a core that a worker is pinned to, move it to the core
; kept for callers.  Its affinity mask is the same afterwards.
define void @noctune_enter(i64 %threads) {
entry:
  %old = alloca [$BYTES x i8], align 8
  %home = alloca [$BYTES x i8], align 8
  %count = load i64, ptr @noctune_cpu_count
  %last = call i64 @llvm.umin.i64(i64 %threads, i64 %count)
  %cpu = call i32 @sched_getcpu()
  %inside = icmp ult i32 %cpu, $CPUS
  br i1 %inside, label %look, label %done
look:
  %core.at = getelementptr i32, ptr @noctune_core_of, i32 %cpu
  %core = load i32, ptr %core.at
  br label %test
test:
  %i = phi i64 [ 1, %look ], [ %next, %compare ]
  %more = icmp ult i64 %i, %last
  br i1 %more, label %compare, label %done
compare:
  %taken.at = getelementptr i32, ptr @noctune_cpus, i64 %i
  %taken = load i32, ptr %taken.at
  %taken.core.at = getelementptr i32, ptr @noctune_core_of, i32 %taken
  %taken.core = load i32, ptr %taken.core.at
  %clash = icmp eq i32 %core, %taken.core
  %next = add i64 %i, 1
  br i1 %clash, label %move, label %test
move:
  %got = call i32 @sched_getaffinity(i32 0, i64 $BYTES, ptr %old)
  %ok = icmp sgt i32 %got, -1
  br i1 %ok, label %allowed, label %done
allowed:
  %first = load i32, ptr @noctune_cpus
  %byte = lshr i32 %first, 3
  %bit = and i32 %first, 7
  %at = getelementptr i8, ptr %old, i32 %byte
  %bits = load i8, ptr %at
  %wide = zext i8 %bits to i32
  %shifted = lshr i32 %wide, %bit
  %may = trunc i32 %shifted to i1
  br i1 %may, label %hop, label %done
hop:
  call void @llvm.memset.p0.i64(ptr %home, i8 0, i64 $BYTES, i1 false)
  call void @set_bit(ptr %home, i32 %first)
  %there = call i32 @sched_setaffinity(i32 0, i64 $BYTES, ptr %home)
  %back = call i32 @sched_setaffinity(i32 0, i64 $BYTES, ptr %old)
  br label %done
done:
  ret void
}

; In a forked child: the workers did not come along.
define void @noctune_pool_reset() {
  store i64 0, ptr @workers
  store atomic i32 0, ptr @pending seq_cst, align 4
  store atomic i32 0, ptr @busy seq_cst, align 4
  ret void
}

define i64 @noctune_pool_workers() {
  %n = load i64, ptr @workers
  ret i64 %n
}

; What a waiting thread does, %n times; the loader times it to set the spin limit.
define void @noctune_pool_spin(i64 %n) {
entry:
  br label %test
test:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %more = icmp ult i64 %i, %n
  br i1 %more, label %body, label %done
body:
  %x = load atomic i32, ptr @busy acquire, align 4
  call void @relax()
  %next = add i64 %i, 1
  br label %test
done:
  ret void
}
"""
