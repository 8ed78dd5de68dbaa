"""Trained models, kept while the records they were trained on are the same.

The trees are trained on a prefix of the records whose length grows by a quarter from one training
to the next, and which leaves out the last `LAG` records: so the trees that a round's proposals will
need can be trained while the round before is built (`ahead`).  The prefix depends on nothing but
the number of records, so a resumed run trains the very same trees as the run that was stopped.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock

from engine.records import RecordScope
from engine.search.cost_model import MIN_TREE_ROWS, BaseModel, CostModel, train_base
from engine.search.population import TaskSpace
from engine.search.protocol import Prior
from engine.search.samples import Samples

GROWTH = 1.25
LAG = 12
"""Newest records that the trees do not see yet; the task's own layer sees all."""
_KEPT = 8


def training_rows(count: int) -> int:
    """Length of the prefix that is trained on when `count` rows exist; 0 while they are few."""
    seen = count - LAG
    if seen < MIN_TREE_ROWS:
        return 0
    size = MIN_TREE_ROWS
    while (larger := int(size * GROWTH)) <= seen:
        size = larger
    return size


class ModelCache:
    """Base models by (scope, rows); safe to use from several threads."""

    def __init__(self, prior: Prior, *, seed: int = 0, threads: int = 1) -> None:
        self._prior, self._seed, self._threads = prior, seed, threads
        self._models: OrderedDict[tuple[RecordScope, int], BaseModel] = OrderedDict()
        self._lock = Lock()

    def base(self, scope: RecordScope, samples: Samples) -> BaseModel:
        """The model of all the scope's rows, trained only when there are a quarter more."""
        return self._trained(scope, samples, training_rows(len(samples)))

    def ahead(self, scope: RecordScope, samples: Samples, coming: int) -> None:
        """Train now what `base` will be asked for when there are `coming` rows more."""
        rows = training_rows(len(samples) + coming)
        if rows <= len(samples):
            self._trained(scope, samples, rows)

    def _trained(self, scope: RecordScope, samples: Samples, rows: int) -> BaseModel:
        with self._lock:
            known = self._models.get((scope, rows))
            if known is not None:
                self._models.move_to_end((scope, rows))
                return known
            model = train_base(
                samples.take(slice(0, rows)), self._prior, seed=self._seed, threads=self._threads
            )
            self._models[scope, rows] = model
            while len(self._models) > _KEPT:
                self._models.popitem(last=False)
            return model

    def model(
        self, scope: RecordScope, samples: Samples, workload_key: str, space: TaskSpace
    ) -> CostModel:
        """The model for one task: the base, corrected by the task's own rows."""
        return self.base(scope, samples).focus(samples.of(workload_key), space.landmarks)
