"""The search: which candidates of which task to measure next.

    states   = task_states(tasks, history)
    choice   = select_search_task(tasks, states)               # gradient time slicing
    model    = cache.model(scope, table.samples(history), key, space)
    proposed = propose_round(task, space, own_history, model, n, rng, similar)

Everything is a plain function of the records; only the caches hold state, and only to save time.
"""

from engine.search.cost_model import BaseModel, CostModel, Prediction, Predictor, train_base
from engine.search.evolve import EvolveOptions
from engine.search.gain import StopRule, converged, predict_gain, predict_total
from engine.search.model_cache import ModelCache
from engine.search.objective import Objective, objective, weighted_sum
from engine.search.population import TaskSpace
from engine.search.propose import Proposal, propose_random, propose_round
from engine.search.samples import FeatureTable, Samples
from engine.search.similar import similar_schedules, workload_distance
from engine.search.table import task_name
from engine.search.task_scheduler import (
    Choice,
    SchedulerOptions,
    TaskState,
    remaining_gain,
    select_search_task,
    task_states,
)

__all__ = [
    "BaseModel", "Choice", "CostModel", "EvolveOptions", "FeatureTable", "ModelCache", "Objective",
    "Prediction", "Predictor", "Proposal", "Samples", "SchedulerOptions", "StopRule", "TaskSpace",
    "TaskState", "converged", "objective", "predict_gain", "predict_total",
    "propose_random", "propose_round", "remaining_gain", "select_search_task", "similar_schedules",
    "task_name", "task_states", "train_base", "weighted_sum", "workload_distance",
]  # fmt: skip
