-- How trials ended: count and share of each error kind for each workload under each scope.
SELECT
    w.workload_key,
    t.target_key,
    t.threads,
    t.timing_mode,
    t.generator_version,
    a.error,
    a.trials,
    CAST(a.trials AS DOUBLE PRECISION) / sum(a.trials) OVER (PARTITION BY a.workload_id, a.target_id) AS share,
    a.last_seen_at,
    a.example
FROM (
    SELECT
        workload_id,
        target_id,
        error,
        count(*) AS trials,
        max(created_at) AS last_seen_at,
        max(message) AS example
    FROM measure_records
    GROUP BY workload_id, target_id, error
) AS a
JOIN workloads AS w ON w.id = a.workload_id
JOIN targets AS t ON t.id = a.target_id
