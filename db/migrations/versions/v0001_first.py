"""The first schema."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

BIG_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
JSON = sa.JSON(none_as_null=True).with_variant(
    postgresql.JSONB(none_as_null=True, astext_type=sa.Text()), "postgresql"
)


def upgrade() -> None:
    op.create_table(
        "machines",
        sa.Column("id", BIG_ID, autoincrement=True, nullable=False, comment="Row id."),
        sa.Column("machine_key", sa.Text(), nullable=False, comment="Equal for equal machines."),
        sa.Column(
            "hostname", sa.Text(), nullable=False, comment="Name of the machine in its network."
        ),
        sa.Column(
            "cpu_model", sa.Text(), nullable=False, comment="CPU model as the system names it."
        ),
        sa.Column("cores", sa.Integer(), nullable=False, comment="Cores that the process may use."),
        sa.Column("features", JSON, nullable=False, comment="CPU features, as LLVM names them."),
        sa.Column("caches", JSON, nullable=False, comment="Cache level to size in bytes."),
        sa.PrimaryKeyConstraint("id", name="pk_machines"),
        sa.UniqueConstraint("machine_key", name="uq_machines_machine_key"),
        comment="Machines that measured.",
    )
    op.create_table(
        "networks",
        sa.Column("id", BIG_ID, autoincrement=True, nullable=False, comment="Row id."),
        sa.Column(
            "name", sa.Text(), nullable=False, comment="Name of the network, without its folder."
        ),
        sa.Column(
            "content_hash", sa.Text(), nullable=False, comment="Hash of the model's content."
        ),
        sa.Column(
            "model_path", sa.Text(), nullable=False, comment="Where the model was read from last."
        ),
        sa.Column(
            "registered_at", sa.Double(), nullable=False, comment="When it was registered last."
        ),
        sa.PrimaryKeyConstraint("id", name="pk_networks"),
        sa.UniqueConstraint("name", "content_hash", name="uq_networks_name_content_hash"),
        comment="Versions of the networks; the one registered last is the current of its name.",
    )
    op.create_table(
        "targets",
        sa.Column("id", BIG_ID, autoincrement=True, nullable=False, comment="Row id."),
        sa.Column(
            "target_key", sa.Text(), nullable=False, comment="CPU model and features, in one key."
        ),
        sa.Column("threads", sa.Integer(), nullable=False, comment="Threads that a kernel ran on."),
        sa.Column(
            "timing_mode",
            sa.Text(),
            nullable=False,
            comment="How it was timed: cold_weights, flush_all, hot or in_network.",
        ),
        sa.Column(
            "generator_version",
            sa.Text(),
            nullable=False,
            comment="Version of the code generator; another one makes other code of a schedule.",
        ),
        sa.Column(
            "description",
            JSON,
            nullable=False,
            comment="For readers: triple, CPU, features, vector bits, caches.",
        ),
        sa.PrimaryKeyConstraint("id", name="pk_targets"),
        sa.UniqueConstraint(
            "target_key", "threads", "timing_mode", "generator_version", name="uq_targets_scope"
        ),
        comment="Scopes: what must be equal for two latencies to be comparable. "
        "A record counts for its own row only.",
    )
    op.create_table(
        "workloads",
        sa.Column("id", BIG_ID, autoincrement=True, nullable=False, comment="Row id."),
        sa.Column("workload_key", sa.Text(), nullable=False, comment="Equal for equal workloads."),
        sa.Column(
            "description",
            JSON,
            nullable=False,
            comment="For readers: anchor, shapes, strides, epilogue, FLOPs.",
        ),
        sa.Column("created_at", sa.Double(), nullable=False, comment="When it was first seen."),
        sa.PrimaryKeyConstraint("id", name="pk_workloads"),
        sa.UniqueConstraint("workload_key", name="uq_workloads_workload_key"),
        comment="Workloads: fused subgraphs with fixed shapes.",
    )
    op.create_table(
        "network_workloads",
        sa.Column("network_id", BIG_ID, nullable=False, comment="The version of the network."),
        sa.Column("workload_id", BIG_ID, nullable=False, comment="The workload."),
        sa.Column(
            "weight",
            sa.Integer(),
            nullable=False,
            comment="How often the workload occurs in the network.",
        ),
        sa.ForeignKeyConstraint(
            ["network_id"], ["networks.id"], name="fk_network_workloads_network_id"
        ),
        sa.ForeignKeyConstraint(
            ["workload_id"], ["workloads.id"], name="fk_network_workloads_workload_id"
        ),
        sa.PrimaryKeyConstraint("network_id", "workload_id", name="pk_network_workloads"),
        comment="Which network holds which workload how often.",
    )
    op.create_index(
        "ix_network_workloads_workload_id", "network_workloads", ["workload_id"], unique=False
    )
    op.create_table(
        "tuning_runs",
        sa.Column("id", BIG_ID, autoincrement=True, nullable=False, comment="Row id."),
        sa.Column(
            "run_key", sa.Text(), nullable=False, comment="The run's id outside the database."
        ),
        sa.Column("target_id", BIG_ID, nullable=False, comment="The scope that it tuned for."),
        sa.Column("machine_id", BIG_ID, nullable=True, comment="Where it ran, if known."),
        sa.Column(
            "status",
            sa.Text(),
            nullable=False,
            comment="running, finished, cancelled, failed or imported; a killed run stays running.",
        ),
        sa.Column("params", JSON, nullable=False, comment="Options that it was started with."),
        sa.Column(
            "message", sa.Text(), nullable=False, comment="Why it ended, if there is more to say."
        ),
        sa.Column("started_at", sa.Double(), nullable=False, comment="When it was first started."),
        sa.Column("finished_at", sa.Double(), nullable=True, comment="When it ended, if it has."),
        sa.ForeignKeyConstraint(["machine_id"], ["machines.id"], name="fk_tuning_runs_machine_id"),
        sa.ForeignKeyConstraint(["target_id"], ["targets.id"], name="fk_tuning_runs_target_id"),
        sa.PrimaryKeyConstraint("id", name="pk_tuning_runs"),
        sa.UniqueConstraint("run_key", name="uq_tuning_runs_run_key"),
        comment="Tuning runs: one command or one night.",
    )
    op.create_index("ix_tuning_runs_started_at", "tuning_runs", ["started_at"], unique=False)
    op.create_table(
        "compiled_networks",
        sa.Column("id", BIG_ID, autoincrement=True, nullable=False, comment="Row id."),
        sa.Column("network_id", BIG_ID, nullable=False, comment="The version of the network."),
        sa.Column(
            "target_id",
            BIG_ID,
            nullable=False,
            comment="The scope whose best records it is made of.",
        ),
        sa.Column("run_id", BIG_ID, nullable=True, comment="The run that made it, if one did."),
        sa.Column("path", sa.Text(), nullable=False, comment="Where the file was written."),
        sa.Column("file_hash", sa.Text(), nullable=False, comment="Hash of the file's content."),
        sa.Column(
            "estimated_latency",
            sa.Double(),
            nullable=True,
            comment="Seconds: the weighted sum of the latencies of its workloads.",
        ),
        sa.Column(
            "verification",
            JSON,
            nullable=False,
            comment="Outcome of comparing its outputs with a reference.",
        ),
        sa.Column("created_at", sa.Double(), nullable=False, comment="When it was first noted."),
        sa.Column(
            "published_at",
            sa.Double(),
            nullable=True,
            comment="When it became the published file of its network; NULL if never.",
        ),
        sa.ForeignKeyConstraint(
            ["network_id"], ["networks.id"], name="fk_compiled_networks_network_id"
        ),
        sa.ForeignKeyConstraint(["run_id"], ["tuning_runs.id"], name="fk_compiled_networks_run_id"),
        sa.ForeignKeyConstraint(
            ["target_id"], ["targets.id"], name="fk_compiled_networks_target_id"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_compiled_networks"),
        sa.UniqueConstraint(
            "network_id", "target_id", "path", "file_hash", name="uq_compiled_networks_file"
        ),
        comment="Compiled network files.",
    )
    op.create_table(
        "measure_records",
        sa.Column("id", BIG_ID, autoincrement=True, nullable=False, comment="Row id."),
        sa.Column("workload_id", BIG_ID, nullable=False, comment="What was measured."),
        sa.Column("target_id", BIG_ID, nullable=False, comment="The scope that it counts for."),
        sa.Column("run_id", BIG_ID, nullable=False, comment="The run that measured it."),
        sa.Column("round_index", sa.Integer(), nullable=False, comment="The round of that run."),
        sa.Column(
            "schedule_hash",
            sa.Text(),
            nullable=False,
            comment="First 32 hexadecimal digits of the SHA-256 of the schedule's text form.",
        ),
        sa.Column(
            "schedule",
            JSON,
            nullable=False,
            comment="The schedule: sketch, and a value for each of its knobs.",
        ),
        sa.Column(
            "error", sa.Text(), nullable=False, comment="ok, or why the trial gave no latency."
        ),
        sa.Column("message", sa.Text(), nullable=False, comment="The error in words; empty if ok."),
        sa.Column(
            "latency",
            sa.Double(),
            nullable=True,
            comment="Seconds: the fastest repeat. NULL unless ok; never infinite or NaN.",
        ),
        sa.Column(
            "spread",
            sa.Double(),
            nullable=True,
            comment="Seconds: standard deviation of the repeats; NULL for fewer than two.",
        ),
        sa.Column("times", JSON, nullable=False, comment="Seconds of one call in each repeat."),
        sa.Column(
            "predicted",
            sa.Double(),
            nullable=True,
            comment="Seconds that the cost model expected when the trial was proposed; "
            "NULL if none.",
        ),
        sa.Column(
            "build_seconds", sa.Double(), nullable=False, comment="Seconds that compiling took."
        ),
        sa.Column(
            "noisy",
            sa.Boolean(),
            nullable=False,
            comment="The machine was busy with something else.",
        ),
        sa.Column("extra", JSON, nullable=False, comment="Whatever else was noted."),
        sa.Column("created_at", sa.Double(), nullable=False, comment="When it was measured."),
        sa.ForeignKeyConstraint(["run_id"], ["tuning_runs.id"], name="fk_measure_records_run_id"),
        sa.ForeignKeyConstraint(["target_id"], ["targets.id"], name="fk_measure_records_target_id"),
        sa.ForeignKeyConstraint(
            ["workload_id"], ["workloads.id"], name="fk_measure_records_workload_id"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_measure_records"),
        sa.UniqueConstraint(
            "run_id",
            "round_index",
            "workload_id",
            "target_id",
            "schedule_hash",
            name="uq_measure_records_trial",
        ),
        comment="Measurement records: one row for each trial, failed ones too.",
        sqlite_autoincrement=True,
    )
    op.create_index(
        "ix_measure_records_best",
        "measure_records",
        ["target_id", "workload_id", "latency", "id"],
        unique=False,
        sqlite_where=sa.text("latency IS NOT NULL"),
        postgresql_where=sa.text("latency IS NOT NULL"),
    )
    op.create_index(
        "ix_measure_records_group",
        "measure_records",
        ["target_id", "workload_id", "id"],
        unique=False,
    )
    op.create_index(
        "ix_measure_records_model", "measure_records", ["target_id", "id"], unique=False
    )
    op.create_table(
        "round_estimates",
        sa.Column("run_id", BIG_ID, nullable=False, comment="The run."),
        sa.Column(
            "round_index", sa.Integer(), autoincrement=False, nullable=False, comment="The round."
        ),
        sa.Column("network_id", BIG_ID, nullable=False, comment="The version of the network."),
        sa.Column(
            "estimated_latency",
            sa.Double(),
            nullable=False,
            comment="Seconds: best latency of each workload times its weight, summed.",
        ),
        sa.ForeignKeyConstraint(
            ["network_id"], ["networks.id"], name="fk_round_estimates_network_id"
        ),
        sa.ForeignKeyConstraint(["run_id"], ["tuning_runs.id"], name="fk_round_estimates_run_id"),
        sa.PrimaryKeyConstraint("run_id", "round_index", "network_id", name="pk_round_estimates"),
        comment="Each network's estimated latency after each round.",
    )
    op.create_table(
        "run_networks",
        sa.Column("run_id", BIG_ID, nullable=False, comment="The run."),
        sa.Column("network_id", BIG_ID, nullable=False, comment="The version of the network."),
        sa.Column(
            "position",
            sa.Integer(),
            nullable=False,
            comment="Place in the list that the run was given.",
        ),
        sa.ForeignKeyConstraint(["network_id"], ["networks.id"], name="fk_run_networks_network_id"),
        sa.ForeignKeyConstraint(["run_id"], ["tuning_runs.id"], name="fk_run_networks_run_id"),
        sa.PrimaryKeyConstraint("run_id", "network_id", name="pk_run_networks"),
        comment="Which run tuned which networks.",
    )
    op.create_table(
        "tuning_rounds",
        sa.Column("run_id", BIG_ID, nullable=False, comment="The run."),
        sa.Column(
            "round_index",
            sa.Integer(),
            autoincrement=False,
            nullable=False,
            comment="Number of the round in its run, from 0.",
        ),
        sa.Column(
            "workload_id", BIG_ID, nullable=False, comment="The workload that the round went to."
        ),
        sa.Column("trials", sa.Integer(), nullable=False, comment="Candidates tried."),
        sa.Column("valid", sa.Integer(), nullable=False, comment="Candidates that gave a latency."),
        sa.Column(
            "task_table",
            JSON,
            nullable=False,
            comment="The table of search tasks after the round, one object a task.",
        ),
        sa.Column("started_at", sa.Double(), nullable=False, comment="When it began."),
        sa.Column("finished_at", sa.Double(), nullable=False, comment="When its last trial ended."),
        sa.ForeignKeyConstraint(["run_id"], ["tuning_runs.id"], name="fk_tuning_rounds_run_id"),
        sa.ForeignKeyConstraint(
            ["workload_id"], ["workloads.id"], name="fk_tuning_rounds_workload_id"
        ),
        sa.PrimaryKeyConstraint("run_id", "round_index", name="pk_tuning_rounds"),
        comment="Finished rounds. A round and its records are stored together or not at all.",
    )
    op.create_table(
        "evaluations",
        sa.Column("id", BIG_ID, autoincrement=True, nullable=False, comment="Row id."),
        sa.Column("compiled_id", BIG_ID, nullable=False, comment="The compiled network."),
        sa.Column(
            "median_latency",
            sa.Double(),
            nullable=True,
            comment="Seconds: median latency of the whole network.",
        ),
        sa.Column(
            "data",
            JSON,
            nullable=False,
            comment="All that was measured, with the peers: what `noctune bench --json` prints.",
        ),
        sa.Column("created_at", sa.Double(), nullable=False, comment="When it was measured."),
        sa.ForeignKeyConstraint(
            ["compiled_id"], ["compiled_networks.id"], name="fk_evaluations_compiled_id"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_evaluations"),
        comment="Side-by-side timings of compiled networks.",
    )
    op.create_index("ix_evaluations_compiled_id", "evaluations", ["compiled_id"], unique=False)
