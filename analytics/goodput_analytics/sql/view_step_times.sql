-- Purpose: how long the run's steps take, in a few numbers that can stand beside another run's.
-- Inputs:  gp_window_parts
-- Grain:   one row; none for a run without steps.
-- Columns: steps          steps counted: first steps of attempts and declared spans are left out
--          least_s, p05_s, p25_s, median_s, p75_s, p95_s, p99_s, most_s   seconds per step
WITH steps AS (SELECT net_ns / c / 1e9 AS step_s, c FROM gp_window_parts WHERE idx > 0 AND c > 0),
summed AS (
    SELECT sum(c)::BIGINT AS steps, min(step_s) AS least_s, max(step_s) AS most_s,
        quantile_cont(step_s, [0.05, 0.25, 0.5, 0.75, 0.95, 0.99]) AS q
    FROM steps HAVING count(*) > 0
)
SELECT steps, least_s, q[1] AS p05_s, q[2] AS p25_s, q[3] AS median_s, q[4] AS p75_s, q[5] AS p95_s, q[6] AS p99_s, most_s
FROM summed
