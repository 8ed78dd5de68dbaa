"""The flows' parameters, typed and documented: the form of a custom run in Prefect's interface."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from engine.errors import NoctuneError
from flows.options import DEFAULT_DB


def run_parameters() -> dict[str, Any]:
    """The present flow run's `job`, plain; for its name."""
    from prefect.runtime import flow_run

    job = flow_run.parameters.get("job")
    found = job.model_dump() if isinstance(job, BaseModel) else dict(job or {})
    return found


TargetName = Literal["host", "avx512", "avx2", "sse42"]
PeerName = Literal["onnxruntime", "openvino"]
Shape = Annotated[list[Annotated[int, Field(ge=1)]], Field(description="Dimensions")]


_FIRST = ("models", "model", "path", "seconds", "trials", "folder", "output")
"""What a form asks for first."""


def _ordered(schema: dict[str, Any]) -> None:
    """Prefect's form sorts the fields by their `position`."""
    first = [name for name in _FIRST if name in schema["properties"]]
    for position, name in enumerate(dict.fromkeys([*first, *schema["properties"]])):
        schema["properties"][name]["position"] = position


def refusal(error: Exception) -> NoctuneError | None:
    """What a user is told of parameters that are not allowed, None of any other error."""
    if not isinstance(error, ValidationError) or not error.title.endswith("Parameters"):
        return None
    first = error.errors(include_url=False)[0]
    name, why = ".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")
    what = f"the parameter '{name}' is not allowed" if name else "the parameters are not allowed"
    return NoctuneError(what, why=why, fix="The command's --help says what is.")


class _Parameters(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, json_schema_extra=_ordered)

    db: str = Field(
        default=DEFAULT_DB,
        title="Database",
        description="File, sqlite:///path or postgresql://user@host/name",
        min_length=1,
    )
    target: TargetName = Field(default="host", title="Target", description="CPU to make code for")
    threads: int | None = Field(
        default=None,
        ge=1,
        title="Threads",
        description="Threads of a network; all cores that the process may use if empty",
    )


class _WithModels(_Parameters):
    accuracy: Literal["strict", "default", "fast"] = Field(
        default="default",
        title="Accuracy",
        description="strict: direct sums only; default: errors below 1e-4 a layer; fast: 1e-3",
    )
    shapes: dict[str, Shape] = Field(
        default_factory=dict,
        title="Input shapes",
        description="Static shapes for dynamic inputs, by input name",
    )
    batch: int = Field(
        default=1, ge=1, title="Batch", description="Batch size of built-in networks"
    )


class TuneParameters(_WithModels):
    """What to tune, and how long."""

    models: list[str] = Field(
        min_length=1,
        title="Networks",
        description="Names of built-in networks, or paths of ONNX files",
    )
    trials: int | None = Field(
        default=None, ge=1, title="Trials", description="New trials of this run, at most"
    )
    seconds: float | None = Field(
        default=None, gt=0, title="Seconds", description="Length of this run, at most"
    )
    seed: int = Field(default=0, ge=0, title="Seed", description="Seed of all randomness")
    run_id: str = Field(
        default="",
        title="Run id",
        description="Id of the run in the database; the flow run's own if empty",
    )


class CompileParameters(_WithModels):
    """What to compile, and where to."""

    model: str = Field(title="Network", description="Name of a built-in network, or an ONNX file")
    output: str = Field(title="Output", description="The file to write", min_length=1)
    verify: bool = Field(
        default=True, title="Verify", description="Compare the outputs with a reference"
    )


class EvaluateParameters(_WithModels):
    """Which compiled network to check and time, beside which engines."""

    db: str = Field(
        default=DEFAULT_DB,
        title="Database",
        description="Where the timing is noted, if the network is known there; nowhere if empty",
    )
    path: str = Field(title="Compiled network", description="The file", min_length=1)
    model: str = Field(
        default="",
        title="Network",
        description="What it was compiled from: a built-in network or a file; if empty the outputs "
        "are not verified",
    )
    against: list[PeerName] = Field(
        default=["onnxruntime"],
        title="Peers",
        description="Engines to time beside it",
    )
    repeat: int = Field(default=3, ge=1, title="Groups", description="Groups of calls an engine")
    min_repeat_ms: float = Field(
        default=500.0, gt=0, title="Group length", description="Least milliseconds of a group"
    )


class DistillParameters(_Parameters):
    """What to keep of the records."""

    keep: int = Field(
        default=16, ge=1, title="Keep", description="Fastest records kept of each workload"
    )
    spread: int = Field(
        default=112, ge=0, title="Spread", description="Other records kept for the cost model"
    )
    output: str = Field(
        default="",
        title="Output",
        description="File for what is kept, as JSON lines; none if empty",
    )
    archive: str = Field(
        default="",
        title="Archive",
        description="File for the records that are dropped; beside the database if empty",
    )


class NightlyParameters(_WithModels):
    """Which networks to tune in which time, and where to publish them."""

    models: list[str] = Field(
        min_length=1,
        title="Networks",
        description="Folders, globs, ONNX files or names of built-in networks",
    )
    seconds: float | None = Field(
        default=4 * 3600,
        gt=0,
        title="Window",
        description="Seconds within which all is done, compiling and checking too; four hours "
        "unless it is given. May be empty if there is a number of trials",
    )
    trials: int | None = Field(
        default=None, ge=1, title="Trials", description="New trials of this night, at most"
    )
    folder: str = Field(
        default="published",
        title="Folder",
        description="Where the networks and the report are published",
        min_length=1,
    )
    keep_versions: int = Field(
        default=5, ge=1, title="Versions", description="Published versions kept of each network"
    )
    keep_records: int = Field(
        default=0,
        ge=0,
        title="Records",
        description="Distil to so many best records of each workload at the end; 0 keeps all",
    )
    against: list[PeerName] = Field(
        default=["onnxruntime"],
        title="Peers",
        description="Engines to time beside each network, where they are installed",
    )
    repeat: int = Field(default=3, ge=1, title="Groups", description="Groups of calls an engine")
    min_repeat_ms: float = Field(
        default=300.0, gt=0, title="Group length", description="Least milliseconds of a group"
    )
    seed: int = Field(default=0, ge=0, title="Seed", description="Seed of all randomness")

    @model_validator(mode="after")
    def _has_an_end(self) -> NightlyParameters:
        if self.seconds is None and self.trials is None:
            raise ValueError("a night needs a window (seconds) or a number of trials")
        return self
