-- A network's latency by night: estimated after the run's last round, and measured of the file made
-- from it. A night is the date in UTC on which its run started.
SELECT
    n.name AS network,
    {{night:u.started_at}} AS night,
    u.run_key AS run_id,
    t.target_key,
    t.threads,
    t.timing_mode,
    t.generator_version,
    u.status,
    (
        SELECT e.estimated_latency
        FROM round_estimates AS e
        WHERE e.run_id = u.id AND e.network_id = n.id
        ORDER BY e.round_index DESC
        LIMIT 1
    ) AS estimated_latency,
    (
        SELECT v.median_latency
        FROM compiled_networks AS c
        JOIN evaluations AS v ON v.compiled_id = c.id
        WHERE c.run_id = u.id AND c.network_id = n.id
        ORDER BY v.created_at DESC, v.id DESC
        LIMIT 1
    ) AS measured_latency
FROM tuning_runs AS u
JOIN run_networks AS rn ON rn.run_id = u.id
JOIN networks AS n ON n.id = rn.network_id
JOIN targets AS t ON t.id = u.target_id
