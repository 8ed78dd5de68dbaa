"""The search's view of a session: spaces and trained models, kept only to save time.

In: search tasks with all their records of one scope, oldest first, and what is known of other
workloads.  Out: which task comes next, and candidates for it.  Everything follows from the records;
two searches over equal records propose the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

import numpy as np

from engine.graph.task import SearchTask
from engine.records import MeasureRecord, Schedule
from engine.search import (
    Choice,
    FeatureTable,
    ModelCache,
    Proposal,
    Samples,
    SchedulerOptions,
    TaskSpace,
    propose_round,
    select_search_task,
    similar_schedules,
    task_states,
)
from engine.search.pretrained import pretrained
from engine.space import sketches
from engine.target import Target

Nearby = Callable[[str], Iterable[MeasureRecord]]
"""Workload key -> good records of other networks' workloads that are like it."""


class Searching:
    """Proposals for a fixed list of search tasks of one scope.

    `records` are the tasks' own; `others` are training rows of other workloads, and `nearby` finds
    good records among those.
    """

    def __init__(
        self,
        tasks: Sequence[SearchTask],
        target: Target,
        records: Iterable[MeasureRecord],
        seed: int,
        accuracy: str = "default",
        others: Samples | None = None,
        nearby: Nearby = lambda key: (),
    ) -> None:
        self._tasks = tuple(tasks)
        self._by_key = {t.key: t for t in tasks}
        self._seed, self._accuracy = seed, accuracy
        self._spaces: dict[str, TaskSpace] = {}
        self._records = list(records)
        self._nearby = nearby
        self._features = FeatureTable(self._known_space, others)
        self._models = ModelCache(pretrained(target), seed=seed)

    def space(self, task: SearchTask) -> TaskSpace:
        """The task's search space."""
        if task.key not in self._spaces:
            found = sketches(task.workload, task.target, task.threads, accuracy=self._accuracy)
            self._spaces[task.key] = TaskSpace(found, task.threads)
        return self._spaces[task.key]

    def _known_space(self, key: str) -> TaskSpace | None:
        task = self._by_key.get(key)
        return None if task is None else self.space(task)

    def add(self, records: Iterable[MeasureRecord]) -> None:
        """Take in what a round measured."""
        self._records += records

    def choose(self, exhausted: Collection[str], keep_going: bool = True) -> Choice | None:
        """The task for the next round; None when all spaces are exhausted.

        Converged tasks get rounds only when nothing else is left, and none unless `keep_going`.
        """
        options = SchedulerOptions(keep_going=keep_going)
        states = task_states(self._tasks, self._records, exhausted=exhausted, options=options)
        return select_search_task(self._tasks, states, options=options)

    def propose(
        self, task: SearchTask, history: Sequence[MeasureRecord], n: int, round_index: int
    ) -> list[Proposal]:
        """At most `n` new candidates of `task`, none when its space is exhausted."""
        rng = np.random.default_rng([self._seed, len(self._records), round_index])
        space = self.space(task)
        samples = self._features.samples(self._records)
        model = self._models.model(task.scope, samples, task.key, space)
        similar = () if history else self._similar(task)
        return propose_round(task, space, history, model, n, rng, similar)

    def refit(self, task: SearchTask, coming: int) -> None:
        """Train the model that proposals after `coming` records more will need, if it is a new one.

        To be called in another thread while those records are made; adds no records itself.
        """
        self._models.ahead(task.scope, self._features.samples(self._records), coming)

    def _similar(self, task: SearchTask) -> list[Schedule]:
        known = [*self._nearby(task.key), *self._records]
        return similar_schedules(task.key, task.scope, known)
