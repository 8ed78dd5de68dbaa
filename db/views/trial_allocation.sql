-- Where a run's trials went: rounds, trials and best latency of each workload, and its share.
SELECT
    u.run_key AS run_id,
    {{night:u.started_at}} AS night,
    w.workload_key,
    a.rounds,
    a.trials,
    a.valid_trials,
    CAST(a.trials AS DOUBLE PRECISION) / sum(a.trials) OVER (PARTITION BY u.run_key) AS share,
    a.best_latency
FROM (
    SELECT
        run_id,
        workload_id,
        count(DISTINCT round_index) AS rounds,
        count(*) AS trials,
        count(latency) AS valid_trials,
        min(latency) AS best_latency
    FROM measure_records
    GROUP BY run_id, workload_id
) AS a
JOIN tuning_runs AS u ON u.id = a.run_id
JOIN workloads AS w ON w.id = a.workload_id
