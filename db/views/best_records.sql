-- The fastest valid record of each workload under each scope.
SELECT
    w.workload_key,
    t.target_key,
    t.threads,
    t.timing_mode,
    t.generator_version,
    r.latency,
    r.spread,
    r.schedule,
    r.predicted,
    u.run_key AS run_id,
    r.round_index,
    r.created_at,
    r.id AS record_id
FROM targets AS t
CROSS JOIN workloads AS w
JOIN measure_records AS r
    ON r.id = (
        SELECT b.id
        FROM measure_records AS b
        WHERE b.target_id = t.id AND b.workload_id = w.id AND b.latency IS NOT NULL
        ORDER BY b.latency, b.id
        LIMIT 1
    )
JOIN tuning_runs AS u ON u.id = r.run_id
