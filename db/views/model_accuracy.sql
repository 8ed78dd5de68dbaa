-- How well the cost model ordered each round's trials: Spearman's rank correlation of its scores
-- with the measured speeds (1 is perfect, 0 is chance), and the best latency among all trials of
-- the round beside that of the trial it ranked first. Rounds with fewer than two such trials have
-- no correlation.
SELECT
    u.run_key AS run_id,
    {{night:u.started_at}} AS night,
    s.round_index,
    w.workload_key,
    s.trials,
    CASE
        WHEN s.trials > 1
            THEN 1.0 - 6.0 * s.squares / (1.0 * s.trials * (1.0 * s.trials * s.trials - 1.0))
    END AS rank_correlation,
    s.best_latency,
    s.first_choice_latency
FROM (
    SELECT
        run_id,
        round_index,
        workload_id,
        count(*) AS trials,
        sum((by_score - by_latency) * (by_score - by_latency)) AS squares,
        min(latency) AS best_latency,
        min(CASE WHEN by_score = 1 THEN latency END) AS first_choice_latency
    FROM (
        SELECT
            run_id,
            round_index,
            workload_id,
            latency,
            row_number() OVER (
                PARTITION BY run_id, round_index, workload_id ORDER BY predicted DESC, id
            ) AS by_score,
            row_number() OVER (
                PARTITION BY run_id, round_index, workload_id ORDER BY latency, id
            ) AS by_latency
        FROM measure_records
        WHERE latency IS NOT NULL AND predicted IS NOT NULL
    ) AS ranked
    GROUP BY run_id, round_index, workload_id
) AS s
JOIN tuning_runs AS u ON u.id = s.run_id
JOIN workloads AS w ON w.id = s.workload_id
