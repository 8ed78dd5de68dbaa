"""The tables: typed SQLAlchemy models with a comment on every table and column.

In: nothing.  Out: `Base.metadata`, from which `docs/database.md` is made and which the migrations
must arrive at.  Conventions: `id` is a surrogate key, `..._at` seconds since the epoch (UTC),
latencies are seconds of one call, JSON columns hold plain data only.
"""

from __future__ import annotations

from typing import Annotated, Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

Json = JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")
BigId = BigInteger().with_variant(Integer, "sqlite")

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s",
    "pk": "pk_%(table_name)s",
}

Id = Annotated[int, mapped_column(BigId, primary_key=True, autoincrement=True, comment="Row id.")]


class Base(DeclarativeBase):
    """Base of all tables."""

    metadata = MetaData(naming_convention=NAMING)
    type_annotation_map = {  # noqa: RUF012 - SQLAlchemy reads it as a plain class attribute
        str: Text,
        float: Double,
        dict[str, Any]: Json,
        list[Any]: Json,
    }


class MachineRow(Base):
    __tablename__ = "machines"
    __table_args__ = ({"comment": "Machines that measured."},)

    id: Mapped[Id]
    machine_key: Mapped[str] = mapped_column(unique=True, comment="Equal for equal machines.")
    hostname: Mapped[str] = mapped_column(comment="Name of the machine in its network.")
    cpu_model: Mapped[str] = mapped_column(comment="CPU model as the system names it.")
    cores: Mapped[int] = mapped_column(comment="Cores that the process may use.")
    features: Mapped[list[Any]] = mapped_column(comment="CPU features, as LLVM names them.")
    caches: Mapped[dict[str, Any]] = mapped_column(comment="Cache level to size in bytes.")


class TargetRow(Base):
    __tablename__ = "targets"
    __table_args__ = (
        UniqueConstraint(
            "target_key", "threads", "timing_mode", "generator_version", name="uq_targets_scope"
        ),
        {
            "comment": "Scopes: what must be equal for two latencies to be comparable. "
            "A record counts for its own row only."
        },
    )

    id: Mapped[Id]
    target_key: Mapped[str] = mapped_column(comment="CPU model and features, in one key.")
    threads: Mapped[int] = mapped_column(comment="Threads that a kernel ran on.")
    timing_mode: Mapped[str] = mapped_column(
        comment="How it was timed: cold_weights, flush_all, hot or in_network."
    )
    generator_version: Mapped[str] = mapped_column(
        comment="Version of the code generator; another one makes other code of a schedule."
    )
    description: Mapped[dict[str, Any]] = mapped_column(
        comment="For readers: triple, CPU, features, vector bits, caches."
    )


class WorkloadRow(Base):
    __tablename__ = "workloads"
    __table_args__ = ({"comment": "Workloads: fused subgraphs with fixed shapes."},)

    id: Mapped[Id]
    workload_key: Mapped[str] = mapped_column(unique=True, comment="Equal for equal workloads.")
    description: Mapped[dict[str, Any]] = mapped_column(
        comment="For readers: anchor, shapes, strides, epilogue, FLOPs."
    )
    created_at: Mapped[float] = mapped_column(comment="When it was first seen.")


class NetworkRow(Base):
    __tablename__ = "networks"
    __table_args__ = (
        UniqueConstraint("name", "content_hash"),
        {
            "comment": "Versions of the networks; the one registered last is the current of its "
            "name."
        },
    )

    id: Mapped[Id]
    name: Mapped[str] = mapped_column(comment="Name of the network, without its folder.")
    content_hash: Mapped[str] = mapped_column(comment="Hash of the model's content.")
    model_path: Mapped[str] = mapped_column(comment="Where the model was read from last.")
    registered_at: Mapped[float] = mapped_column(comment="When it was registered last.")


class NetworkWorkloadRow(Base):
    __tablename__ = "network_workloads"
    __table_args__ = ({"comment": "Which network holds which workload how often."},)

    network_id: Mapped[int] = mapped_column(
        BigId, ForeignKey("networks.id"), primary_key=True, comment="The version of the network."
    )
    workload_id: Mapped[int] = mapped_column(
        BigId, ForeignKey("workloads.id"), primary_key=True, index=True, comment="The workload."
    )
    weight: Mapped[int] = mapped_column(comment="How often the workload occurs in the network.")


class TuningRunRow(Base):
    __tablename__ = "tuning_runs"
    __table_args__ = ({"comment": "Tuning runs: one command or one night."},)

    id: Mapped[Id]
    run_key: Mapped[str] = mapped_column(unique=True, comment="The run's id outside the database.")
    target_id: Mapped[int] = mapped_column(
        BigId, ForeignKey("targets.id"), comment="The scope that it tuned for."
    )
    machine_id: Mapped[int | None] = mapped_column(
        BigId, ForeignKey("machines.id"), comment="Where it ran, if known."
    )
    status: Mapped[str] = mapped_column(
        comment="running, finished, cancelled, failed or imported; a killed run stays running."
    )
    params: Mapped[dict[str, Any]] = mapped_column(comment="Options that it was started with.")
    message: Mapped[str] = mapped_column(comment="Why it ended, if there is more to say.")
    started_at: Mapped[float] = mapped_column(index=True, comment="When it was first started.")
    finished_at: Mapped[float | None] = mapped_column(comment="When it ended, if it has.")


class RunNetworkRow(Base):
    __tablename__ = "run_networks"
    __table_args__ = ({"comment": "Which run tuned which networks."},)

    run_id: Mapped[int] = mapped_column(
        BigId, ForeignKey("tuning_runs.id"), primary_key=True, comment="The run."
    )
    network_id: Mapped[int] = mapped_column(
        BigId, ForeignKey("networks.id"), primary_key=True, comment="The version of the network."
    )
    position: Mapped[int] = mapped_column(comment="Place in the list that the run was given.")


class TuningRoundRow(Base):
    __tablename__ = "tuning_rounds"
    __table_args__ = (
        {"comment": "Finished rounds. A round and its records are stored together or not at all."},
    )

    run_id: Mapped[int] = mapped_column(
        BigId, ForeignKey("tuning_runs.id"), primary_key=True, comment="The run."
    )
    round_index: Mapped[int] = mapped_column(
        primary_key=True, autoincrement=False, comment="Number of the round in its run, from 0."
    )
    workload_id: Mapped[int] = mapped_column(
        BigId, ForeignKey("workloads.id"), comment="The workload that the round went to."
    )
    trials: Mapped[int] = mapped_column(comment="Candidates tried.")
    valid: Mapped[int] = mapped_column(comment="Candidates that gave a latency.")
    task_table: Mapped[list[Any]] = mapped_column(
        comment="The table of search tasks after the round, one object a task."
    )
    started_at: Mapped[float] = mapped_column(comment="When it began.")
    finished_at: Mapped[float] = mapped_column(comment="When its last trial ended.")


class RoundEstimateRow(Base):
    __tablename__ = "round_estimates"
    __table_args__ = ({"comment": "Each network's estimated latency after each round."},)

    run_id: Mapped[int] = mapped_column(
        BigId, ForeignKey("tuning_runs.id"), primary_key=True, comment="The run."
    )
    round_index: Mapped[int] = mapped_column(
        primary_key=True, autoincrement=False, comment="The round."
    )
    network_id: Mapped[int] = mapped_column(
        BigId, ForeignKey("networks.id"), primary_key=True, comment="The version of the network."
    )
    estimated_latency: Mapped[float] = mapped_column(
        comment="Seconds: best latency of each workload times its weight, summed."
    )


class MeasureRecordRow(Base):
    __tablename__ = "measure_records"
    __table_args__ = (
        UniqueConstraint(
            "run_id",
            "round_index",
            "workload_id",
            "target_id",
            "schedule_hash",
            name="uq_measure_records_trial",
        ),
        Index(
            "ix_measure_records_best",
            "target_id",
            "workload_id",
            "latency",
            "id",
            sqlite_where=text("latency IS NOT NULL"),
            postgresql_where=text("latency IS NOT NULL"),
        ),
        Index("ix_measure_records_group", "target_id", "workload_id", "id"),
        Index("ix_measure_records_model", "target_id", "id"),
        {
            "comment": "Measurement records: one row for each trial, failed ones too.",
            "sqlite_autoincrement": True,  # an id that was removed must never name another record
        },
    )

    id: Mapped[Id]
    workload_id: Mapped[int] = mapped_column(
        BigId, ForeignKey("workloads.id"), comment="What was measured."
    )
    target_id: Mapped[int] = mapped_column(
        BigId, ForeignKey("targets.id"), comment="The scope that it counts for."
    )
    run_id: Mapped[int] = mapped_column(
        BigId, ForeignKey("tuning_runs.id"), comment="The run that measured it."
    )
    round_index: Mapped[int] = mapped_column(comment="The round of that run.")
    schedule_hash: Mapped[str] = mapped_column(
        comment="First 32 hexadecimal digits of the SHA-256 of the schedule's text form."
    )
    schedule: Mapped[dict[str, Any]] = mapped_column(
        comment="The schedule: sketch, and a value for each of its knobs."
    )
    error: Mapped[str] = mapped_column(comment="ok, or why the trial gave no latency.")
    message: Mapped[str] = mapped_column(comment="The error in words; empty if ok.")
    latency: Mapped[float | None] = mapped_column(
        comment="Seconds: the fastest repeat. NULL unless ok; never infinite or NaN."
    )
    spread: Mapped[float | None] = mapped_column(
        comment="Seconds: standard deviation of the repeats; NULL for fewer than two."
    )
    times: Mapped[list[Any]] = mapped_column(comment="Seconds of one call in each repeat.")
    predicted: Mapped[float | None] = mapped_column(
        comment="Seconds that the cost model expected when the trial was proposed; NULL if none."
    )
    build_seconds: Mapped[float] = mapped_column(comment="Seconds that compiling took.")
    noisy: Mapped[bool] = mapped_column(comment="The machine was busy with something else.")
    extra: Mapped[dict[str, Any]] = mapped_column(comment="Whatever else was noted.")
    created_at: Mapped[float] = mapped_column(comment="When it was measured.")
    features: Mapped[bytes | None] = mapped_column(
        comment="What the cost model sees of the schedule: 8-byte floats, little-endian, one "
        "after the other. NULL if none were noted."
    )


class CompiledNetworkRow(Base):
    __tablename__ = "compiled_networks"
    __table_args__ = (
        UniqueConstraint(
            "network_id", "target_id", "path", "file_hash", name="uq_compiled_networks_file"
        ),
        {"comment": "Compiled network files."},
    )

    id: Mapped[Id]
    network_id: Mapped[int] = mapped_column(
        BigId, ForeignKey("networks.id"), comment="The version of the network."
    )
    target_id: Mapped[int] = mapped_column(
        BigId, ForeignKey("targets.id"), comment="The scope whose best records it is made of."
    )
    run_id: Mapped[int | None] = mapped_column(
        BigId, ForeignKey("tuning_runs.id"), comment="The run that made it, if one did."
    )
    path: Mapped[str] = mapped_column(comment="Where the file was written.")
    file_hash: Mapped[str] = mapped_column(comment="Hash of the file's content.")
    estimated_latency: Mapped[float | None] = mapped_column(
        comment="Seconds: the weighted sum of the latencies of its workloads."
    )
    verification: Mapped[dict[str, Any]] = mapped_column(
        comment="Outcome of comparing its outputs with a reference."
    )
    created_at: Mapped[float] = mapped_column(comment="When it was first noted.")
    published_at: Mapped[float | None] = mapped_column(
        comment="When it became the published file of its network; NULL if never."
    )
    details: Mapped[dict[str, Any]] = mapped_column(
        server_default="{}",
        comment="What else was noted: workloads on their default schedule, host calls.",
    )


class EvaluationRow(Base):
    __tablename__ = "evaluations"
    __table_args__ = ({"comment": "Side-by-side timings of compiled networks."},)

    id: Mapped[Id]
    compiled_id: Mapped[int] = mapped_column(
        BigId, ForeignKey("compiled_networks.id"), index=True, comment="The compiled network."
    )
    median_latency: Mapped[float | None] = mapped_column(
        comment="Seconds: median latency of the whole network."
    )
    data: Mapped[dict[str, Any]] = mapped_column(
        comment="All that was measured, with the peers: what `noctune bench --json` prints."
    )
    created_at: Mapped[float] = mapped_column(comment="When it was measured.")
