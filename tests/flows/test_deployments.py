"""prefect.yaml: its entrypoints exist and its parameters are what the flows take."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel, ValidationError

from flows import parameters

ROOT = Path(__file__).resolve().parents[2]
DEPLOYMENTS = yaml.safe_load((ROOT / "prefect.yaml").read_text(encoding="utf-8"))["deployments"]
MODELS = [
    model
    for model in vars(parameters).values()
    if isinstance(model, type)
    and issubclass(model, BaseModel)
    and model.__module__ == parameters.__name__
]


def test_all_are_there() -> None:
    assert [d["name"] for d in DEPLOYMENTS] == ["nightly", "tune", "distill", "evaluate"]


@pytest.mark.parametrize("deployment", DEPLOYMENTS, ids=lambda d: d["name"])
def test_parameters_are_valid(deployment: dict[str, Any]) -> None:
    module, _, name = deployment["entrypoint"].rpartition(".")
    assert "/" not in deployment["entrypoint"], "the dotted form loads a module once"
    flow = getattr(import_module(module), name)
    assert flow.name == deployment["name"]
    flow.validate_parameters(deployment["parameters"])
    with pytest.raises(Exception, match="nosuch"):
        flow.validate_parameters({"job": {**deployment["parameters"]["job"], "nosuch": 1}})


def test_nights_are_one_at_a_time_with_a_timezone() -> None:
    night = DEPLOYMENTS[0]
    assert night["concurrency_limit"]["limit"] == 1
    assert all(s["timezone"] and s["cron"] for s in night["schedules"])


@pytest.mark.parametrize("model", MODELS, ids=lambda m: m.__name__)
def test_every_parameter_is_documented(model: type[BaseModel]) -> None:
    for name, field in model.model_fields.items():
        assert field.title and field.description, f"{model.__name__}.{name}"


def test_a_night_needs_an_end() -> None:
    assert parameters.NightlyParameters(models=["m"]).seconds == 4 * 3600, "the form's default"
    with pytest.raises(ValidationError, match="a night needs"):
        parameters.NightlyParameters(models=["m"], seconds=None)


def test_the_form_asks_for_networks_and_window_first() -> None:
    fields = parameters.NightlyParameters.model_json_schema()["properties"]
    order = sorted(fields, key=lambda name: fields[name]["position"])
    assert order[:4] == ["models", "seconds", "trials", "folder"]
    assert sorted(f["position"] for f in fields.values()) == list(range(len(fields)))


def test_parameters_that_are_refused_are_named() -> None:
    with pytest.raises(ValidationError) as caught:
        parameters.NightlyParameters(models=["m"], folder="")
    found = str(parameters.refusal(caught.value))
    assert "'folder'" in found and "at least 1 character" in found and "--help" in found
    assert parameters.refusal(ValueError("another")) is None
    with pytest.raises(ValidationError) as caught:
        parameters.NightlyParameters(models=["m"], seconds=None)
    assert "(a night needs a window" in str(parameters.refusal(caught.value))
