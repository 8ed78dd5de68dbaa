-- Best latency so far against the number of trials: one row for each trial of a workload.
SELECT
    w.workload_key,
    t.target_key,
    t.threads,
    t.timing_mode,
    t.generator_version,
    u.run_key AS run_id,
    r.round_index,
    row_number() OVER trials AS trial,
    r.error,
    r.latency,
    min(r.latency) OVER trials AS best_latency,
    r.created_at
FROM measure_records AS r
JOIN workloads AS w ON w.id = r.workload_id
JOIN targets AS t ON t.id = r.target_id
JOIN tuning_runs AS u ON u.id = r.run_id
WINDOW trials AS (
    PARTITION BY
        w.workload_key, t.target_key, t.threads, t.timing_mode, t.generator_version
    ORDER BY r.id
    ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
)
