"""Which task gets the next round: gradient time slicing.

In: the search tasks and everything measured of them.  Out: the task whose next round is expected to
lower the objective most, with the reason in one line.  All state is rebuilt from the records, so a
resumed run chooses as the stopped one would have.

For task i with best latency g after t rounds, the expected change of g by one more round is
    alpha * backward + (1 - alpha) * forward
    backward = (g(t) - g(t - w)) / w                                    what the last w rounds gave
    forward  = (1 - gamma) * (min(g - g/t, beta * C / best speed of like tasks) - g)
               + gamma * (- g * gain predicted from the task's own trials)
as in Ansor (Zheng et al. 2020, section 6), whose optimistic guess alone is gamma = 0.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from engine.graph.task import SearchTask
from engine.records import MeasureRecord
from engine.search.gain import (
    StopRule,
    gain_chance,
    latencies,
    predict_gain,
    predict_total,
    stalled,
)
from engine.search.objective import Objective, weighted_sum


@dataclass(frozen=True, slots=True)
class SchedulerOptions:
    """Constants of the gradient and of the rules around it."""

    alpha: float = 0.2
    """Trust in the recent past against the guess of the future."""
    beta: float = 2.0
    """A task is expected to reach the speed of like tasks divided by this."""
    gamma: float = 0.5
    """Trust in the gain predicted from the task's trials against the optimistic guess."""
    backward_window: int = 3
    """Rounds looked back."""
    group_patience: int = 5
    """Rounds more than the best of its group after which a slow task leaves the group."""
    starve_rounds: int = 6
    """A task waits at most so many rounds for each open task."""
    hopeless_rounds: int = 2
    """Rounds without one valid candidate after which a task is given up."""
    stop: StopRule = field(default_factory=StopRule)
    keep_going: bool = False
    """Give time to converged tasks, too, when nothing else is left."""


@dataclass(frozen=True, slots=True)
class TaskState:
    """What the records say of one task.

    `best` seconds (infinite: nothing valid), `curve` the best after each round, `last_round` the
    number of the task's latest round among all rounds (-1: none), `gain` the relative gain expected
    of the next round and `chance` that of a gain that matters.
    """

    key: str
    trials: int = 0
    failures: int = 0
    best: float = math.inf
    curve: tuple[float, ...] = ()
    last_round: int = -1
    gain: float = 0.5
    chance: float = 1.0
    first_error: str = ""
    dead: bool = False
    converged: bool = False

    @property
    def rounds(self) -> int:
        return len(self.curve)

    @property
    def open(self) -> bool:
        return not (self.dead or self.converged)


@dataclass(frozen=True, slots=True)
class Choice:
    """The task to tune next and why."""

    index: int
    reason: str


def task_states(
    tasks: Sequence[SearchTask],
    history: Iterable[MeasureRecord],
    *,
    exhausted: Collection[str] = (),
    options: SchedulerOptions = SchedulerOptions(),
) -> tuple[TaskState, ...]:
    """One state a task, in order.  Records of other workloads or scopes are ignored; `exhausted`
    are keys of tasks whose last round came back empty."""
    own: dict[tuple[str, object], list[MeasureRecord]] = {(t.key, t.scope): [] for t in tasks}
    turns: dict[tuple[str, object], int] = {}
    clock = -1
    previous: tuple[object, ...] = ()
    for record in history:
        slot = (record.workload_key, record.scope)
        if slot not in own:
            continue
        if (turn := (slot, record.run_id, record.round_index)) != previous:
            clock, previous = clock + 1, turn
        own[slot].append(record)
        turns[slot] = clock
    return tuple(
        _state(t.key, own[t.key, t.scope], turns.get((t.key, t.scope), -1), exhausted, options)
        for t in tasks
    )


def _state(
    key: str,
    records: Sequence[MeasureRecord],
    last_round: int,
    exhausted: Collection[str],
    options: SchedulerOptions,
) -> TaskState:
    if not records:
        return TaskState(key, dead=key in exhausted)
    seconds = latencies(records)
    curve = _curve(records)
    best = curve[-1]
    error = next((r for r in records if not r.valid), None)
    hopeless = not math.isfinite(best) and len(curve) >= options.hopeless_rounds
    return TaskState(
        key,
        trials=len(records),
        failures=int(np.isinf(seconds).sum()),
        best=best,
        curve=curve,
        last_round=last_round,
        gain=predict_gain(seconds, options.stop.round_size),
        chance=gain_chance(seconds, options.stop.round_size, options.stop.min_gain),
        first_error="" if error is None else f"{error.error}: {error.message}".rstrip(": "),
        dead=key in exhausted or hopeless,
        converged=stalled(seconds, options.stop),
    )


def _curve(records: Sequence[MeasureRecord]) -> tuple[float, ...]:
    """Best latency after each round, a round being what one run measured under one number."""
    best, curve = math.inf, {}
    for record in records:
        best = min(best, record.latency if record.valid else math.inf)
        curve[record.run_id, record.round_index] = best
    return tuple(curve.values())


def select_search_task(
    tasks: Sequence[SearchTask],
    states: Sequence[TaskState],
    objective: Objective | None = None,
    options: SchedulerOptions = SchedulerOptions(),
) -> Choice | None:
    """The task for the next round, None when all are dead or have converged.

    Warm-up comes first (one round each, the heaviest first; tasks with records are past it), then
    tasks that have no valid candidate yet, then one that waited too long, then the gradient.
    """
    ready = [i for i, s in enumerate(states) if s.open]
    if not ready and options.keep_going:
        ready = [i for i, s in enumerate(states) if not s.dead]
    if not ready:
        return None
    target = objective or weighted_sum(tasks)
    early = _warm_up(tasks, states, ready) or _waiting(states, ready, options)
    if early is not None:
        return early
    gains = expected_gains(tasks, states, target, options)
    best = max(ready, key=lambda i: (gains[i], -i))
    return Choice(best, _why(states[best], gains[best], len(ready)))


def _warm_up(
    tasks: Sequence[SearchTask], states: Sequence[TaskState], ready: Sequence[int]
) -> Choice | None:
    new = [i for i in ready if not states[i].rounds]
    if new:
        done = len(states) - sum(not s.rounds for s in states)
        first = max(new, key=lambda i: (tasks[i].weight * tasks[i].workload.flops, -i))
        return Choice(first, f"first round ({done} of {len(states)} tasks measured so far)")
    bare = [i for i in ready if not math.isfinite(states[i].best)]
    if bare:
        state = states[bare[0]]
        return Choice(bare[0], f"no valid schedule in {state.trials} trials ({state.first_error})")
    return None


def _waiting(
    states: Sequence[TaskState], ready: Sequence[int], options: SchedulerOptions
) -> Choice | None:
    now = max(s.last_round for s in states)
    longest = min(ready, key=lambda i: states[i].last_round)
    waited = now - states[longest].last_round
    if waited <= options.starve_rounds * len(ready):
        return None
    return Choice(longest, f"waited {waited} rounds for its turn")


def expected_gains(
    tasks: Sequence[SearchTask],
    states: Sequence[TaskState],
    objective: Objective,
    options: SchedulerOptions = SchedulerOptions(),
) -> list[float]:
    """Expected fall of the objective by one more round of each task; infinite if unmeasured."""
    best = np.array([s.best for s in states])
    slope = objective.slope(best)
    speed = _group_speed(tasks, states, options)
    return [
        float(slope[i]) * _round_gain(task.workload.flops, states[i], speed[i], options)
        for i, task in enumerate(tasks)
    ]


def _round_gain(flops: int, state: TaskState, speed: float, options: SchedulerOptions) -> float:
    """Seconds that one more round is expected to save; infinite for an unmeasured task."""
    if not math.isfinite(state.best):
        return math.inf
    g, t, window = state.best, state.rounds, options.backward_window
    past = state.curve[t - 1 - window] if t > window else math.inf
    backward = (past - g) / window if math.isfinite(past) else 0.0
    like = options.beta * flops / speed if speed > 0 else math.inf
    guess = max(0.0, g - min(g - g / t, like))
    forward = (1.0 - options.gamma) * guess + options.gamma * g * state.gain
    return options.alpha * backward + (1.0 - options.alpha) * forward


def similarity_tag(task: SearchTask) -> str:
    """Tasks with equal tags are expected to reach like speeds: same anchor, FLOPs within a golden
    ratio."""
    return f"{task.workload.anchor}/{int(math.log(task.workload.flops + 1, 1.618))}"


def _group_speed(
    tasks: Sequence[SearchTask], states: Sequence[TaskState], options: SchedulerOptions
) -> list[float]:
    """FLOP/s of the fastest task of each task's group, 0 for a task that is no member any more."""
    top: dict[str, tuple[float, int]] = {}
    speeds = [t.workload.flops / s.best for t, s in zip(tasks, states, strict=True)]
    for task, state, speed in zip(tasks, states, speeds, strict=True):
        tag = similarity_tag(task)
        top[tag] = max(top.get(tag, (0.0, 0)), (speed, state.rounds))
    found = []
    for task, state, speed in zip(tasks, states, speeds, strict=True):
        fastest, rounds = top[similarity_tag(task)]
        slow = speed < fastest / options.beta
        left = slow and state.rounds > rounds + options.group_patience
        found.append(0.0 if left else fastest)
    return found


def _why(state: TaskState, gain: float, ready: int) -> str:
    return (
        f"largest expected gain of {ready} open tasks: {gain * 1e6:.1f} us a round "
        f"(best {state.best * 1e3:.3f} ms after {state.trials} trials)"
    )


def remaining_gain(
    tasks: Sequence[SearchTask],
    histories: Sequence[Sequence[MeasureRecord]],
    more: int,
    objective: Objective | None = None,
) -> float:
    """Seconds of the objective that `more` further trials in all would probably save; tasks without
    a valid trial are left out."""
    seconds = [latencies(h) for h in histories]
    best = np.array([s.min(initial=np.inf) for s in seconds])
    slope = (objective or weighted_sum(tasks)).slope(best)
    ready = [i for i in range(len(tasks)) if math.isfinite(best[i])]
    return predict_total(slope[ready] * best[ready], [seconds[i] for i in ready], more)
