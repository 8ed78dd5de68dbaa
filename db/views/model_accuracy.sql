-- Predicted against measured, for each round: Spearman's rank correlation of the latencies that the
-- cost model expected with the measured ones (1 is perfect, 0 is chance; none for a single trial),
-- the mean of expected by measured, and the round's best latency beside that of the trial which the
-- model ranked first.
SELECT
    u.run_key AS run_id,
    {{night:u.started_at}} AS night,
    s.round_index,
    w.workload_key,
    s.trials,
    CASE
        WHEN s.trials > 1
            THEN 1 - CAST(6 * s.squares AS DOUBLE PRECISION)
                / (s.trials * (s.trials * s.trials - 1))
    END AS rank_correlation,
    s.predicted_by_measured,
    s.best_latency,
    s.first_choice_latency
FROM (
    SELECT
        run_id,
        round_index,
        workload_id,
        count(*) AS trials,
        sum((by_model - by_latency) * (by_model - by_latency)) AS squares,
        avg(predicted / latency) AS predicted_by_measured,
        min(latency) AS best_latency,
        min(CASE WHEN by_model = 1 THEN latency END) AS first_choice_latency
    FROM (
        SELECT
            run_id,
            round_index,
            workload_id,
            latency,
            predicted,
            row_number() OVER (
                PARTITION BY run_id, round_index, workload_id ORDER BY predicted, id
            ) AS by_model,
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
