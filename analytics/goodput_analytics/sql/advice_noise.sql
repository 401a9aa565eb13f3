-- Purpose: how long each rank's own work took in a sample of the steps of the last attempt that tells it.
-- Inputs:  gp_window_parts, gp_measures, gp_attempts; $most_rows
-- Grain:   one row per rank and step of the sample.
-- Columns: place     the step's place in the attempt; rank; late_ns  its gap and its own work
--          window_ns the step at job level: without declared spans and hangs
-- Algorithm: every so many steps, so that there are about $most_rows rows, or 60 steps if that is more; steps whose event stands for several are left
--            out, and so are an attempt's first step and steps with a declared span.
CREATE OR REPLACE TEMP TABLE gp_advice_noise AS
WITH told AS (
    SELECT attempt, life, step, idx, ranks, net_ns - hang_ns AS window_ns,
        row_number() OVER (PARTITION BY attempt ORDER BY idx) AS place
    FROM gp_window_parts
    WHERE idx > 0 AND c = 1 AND NOT covered AND 2 * busy_ranks >= ranks AND ranks > 1
),
sizes AS (
    SELECT attempt, sum(ranks) AS rows, count(*) AS steps FROM told GROUP BY attempt
),
chosen AS (
    SELECT attempt, greatest(least(ceil(rows / $most_rows)::BIGINT, steps // 60), 1) AS every FROM sizes
    WHERE steps >= 30 ORDER BY attempt DESC LIMIT 1
),
sample AS (
    SELECT t.* FROM told t JOIN chosen c ON c.attempt = t.attempt WHERE t.place % c.every = 0
)
SELECT s.place, m.rank, m.late_ns, s.window_ns
FROM sample s JOIN gp_measures m ON m.attempt = s.attempt AND m.life = s.life AND m.step = s.step
WHERE m.late_ns IS NOT NULL
