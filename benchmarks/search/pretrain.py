"""Pretrained trees: what random layers teach about a kind of CPU, before any record exists.

    python -m benchmarks.search.pretrain --level avx512 --layers 120 --samples FILE

In: random layers (`layers.py`), none of which a built-in network has.  Out: the file that
`engine.search.pretrained` reads for that level, and how well trees that were trained on the other
layers rank the candidates of a layer.  Candidates of each layer are measured twice: those that the
machine model likes with random ones, then those that trees trained on the first half like, so that
what these overrate is seen.  What was measured is kept in the file of --samples; a second call goes
on from it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.search.layers import random_layers
from engine.files import replacing
from engine.graph import load_proto
from engine.graph.partition import extract_search_tasks, lower
from engine.graph.task import SearchTask
from engine.measure import Measurer
from engine.records import MeasureRecord
from engine.search import Samples, TaskSpace, train_base
from engine.search.cost_model import train_trees
from engine.search.evolve import Evaluator, diverse, evolve
from engine.search.population import Pool, join
from engine.search.pretrained import correct, file_of
from engine.search.protocol import Prior
from engine.search.samples import joined
from engine.search.table import task_name
from engine.space import FEATURES, prior, sketches
from engine.target import LEVELS, Target, host, named
from engine.zoo import build, names
from tasks.table import anchor_record

TREES = 200
FOLDS = 4
_BATCH = 24
_GOOD = 0.1
"""Share of the candidates, by the model, that count as promising."""


def tasks_of(target: Target, number: int, seed: int) -> Iterator[SearchTask]:
    """Search tasks of so many random layers, every third for one thread."""
    known = {
        task.key
        for name in names()
        for task in extract_search_tasks(lower(load_proto(build(name), name=name), target), 1)
    }
    found = 0
    for model in random_layers(seed):
        if found == number:
            return
        graph = lower(load_proto(model, name="layer"), target)
        task = max(extract_search_tasks(graph), key=lambda t: t.workload.flops)
        if task.key not in known:
            known.add(task.key)
            found += 1
            yield replace(task, threads=1 if found % 3 == 0 else target.cores)


def draw(space: TaskSpace, model: Prior, n: int, rng: np.random.Generator) -> Pool:
    """A third what the model likes best, a third from its best tenth, a third of each sketch."""
    pool = space.sample(1024 * len(space.sketches), rng).unique()
    order = model(space.features(pool)).argsort()
    third = max(1, n // 3)
    nothing = Samples.make(np.zeros((0, len(FEATURES)), np.float32), [], [])
    liked = Evaluator(space, train_base(nothing, model).focus(nothing, space.landmarks), 0.0)
    found = diverse(evolve(liked, space.empty(), pool.keys[:0], rng), third, distance=2)
    chosen = [*rng.permutation(order[: int(_GOOD * len(order)) + 1])[:third]]
    for sketch in range(len(space.sketches)):
        own = order[pool.which[order] == sketch]
        share = max(2, third // len(space.sketches))
        chosen += [*own[: share // 2], *rng.permutation(own)[: share - share // 2]]
    both = join([found.pool, pool.take(np.unique(chosen))]).unique()
    return both.take(rng.permutation(len(both)))


def measure(task: SearchTask, model: Prior, n: int, measurer: Measurer, tour: int) -> Samples:
    """About n candidates of the task, measured in turns."""
    space = TaskSpace(sketches(task.workload, task.target, task.threads), task.threads)
    pool = draw(space, model, n, np.random.default_rng(tour))
    schedules = space.schedules(pool)
    records: list[MeasureRecord] = []
    for i in range(0, len(schedules), _BATCH):
        batch, anchor = schedules[i : i + _BATCH], anchor_record(records)
        records += measurer.measure(task, batch, anchor=anchor, round_index=i)
    seconds = [r.latency if r.valid else np.inf for r in records]
    name = f"{task.key}-{task.threads}/{tour}"
    return Samples.make(space.features(pool), seconds, [name] * len(pool))


def train(samples: Samples, target: Target) -> Any:
    """Trees on all samples: by how much the machine model errs."""
    return train_trees(samples, partial(prior, target=target), TREES, FEATURES)


def fit(samples: Samples, target: Target) -> Prior:
    """The machine model corrected by trees on all samples."""
    return partial(correct, partial(prior, target=target), train(samples, target))


def regret(samples: Samples, model: Prior) -> list[tuple[float, ...]]:
    """For each layer, the best of the first 1, 4 and 8 candidates over the best of all."""
    found = []
    for key in dict.fromkeys(samples.workload):
        own = samples.of(key)
        order = model(own.features).argsort(kind="stable")
        best = own.latency.min()
        if np.isfinite(best):
            found.append(tuple(float(own.latency[order[:k]].min() / best) for k in (1, 4, 8)))
    return found


def held_out(samples: Samples, target: Target) -> list[tuple[float, ...]]:
    """The same by trees that have not seen the layer."""
    layers = np.array([key.partition("/")[0] for key in samples.workload])
    keys = list(dict.fromkeys(layers.tolist()))
    found = []
    for fold in range(FOLDS):
        left_out = np.isin(layers, keys[fold::FOLDS])
        found += regret(samples.take(left_out), fit(samples.take(~left_out), target))
    return found


def collect(target: Target, number: int, candidates: int, seed: int, path: Path) -> Samples:
    """All layers twice; what `path` holds already is not measured again."""
    samples = _read(path)
    tasks = list(tasks_of(target, number, seed))
    with ExitStack() as stack:
        measurers = {
            threads: stack.enter_context(Measurer(target, threads))
            for threads in sorted({t.threads for t in tasks})
        }
        for tour in (0, 1):
            model = partial(prior, target=target) if not tour else fit(samples, target)
            for i, task in enumerate(tasks):
                if f"{task.key}-{task.threads}/{tour}" in samples.workload:
                    continue
                new = measure(task, model, candidates, measurers[task.threads], tour)
                samples = joined(samples, new)
                _write(path, samples)
                print(f"tour {tour + 1}, layer {i + 1} of {len(tasks)}: {task_name(task.workload)}")
    return samples


def _read(path: Path) -> Samples:
    if not path.is_file():
        return Samples.make(np.zeros((0, 0), np.float32), [], [])
    with np.load(path) as kept:
        return Samples.make(kept["features"], kept["seconds"], kept["layers"].tolist())


def _write(path: Path, samples: Samples) -> None:
    layers = samples.workload.astype(str)
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez(file, features=samples.features, seconds=samples.latency, layers=layers)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--level", default="avx512", choices=LEVELS)
    parser.add_argument("--layers", type=int, default=120)
    parser.add_argument("--candidates", type=int, default=48, help="of a layer, each time (48)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--samples", type=Path, required=True, help="an .npz file")
    options = parser.parse_args()
    target = _host_as(options.level)
    samples = collect(target, options.layers, options.candidates, options.seed, options.samples)
    for name, found in (
        ("machine model", regret(samples, partial(prior, target=target))),
        ("trees trained on other layers", held_out(samples, target)),
    ):
        one, four, eight = np.exp(np.log(found).mean(0))
        print(f"{name}: best of the first 1, 4, 8 takes {one:.3f}, {four:.3f}, {eight:.3f}")
    train(samples, target).save_model(str(file_of(options.level)))
    print(f"{len(samples)} candidates, {file_of(options.level)}")


def _host_as(level: str) -> Target:
    """This machine, with its own model of CPU where the level is its best one."""
    target, best = named(level), host()
    return best if best.vector_bits == target.vector_bits else target


if __name__ == "__main__":
    main()
