-- Purpose: how long steps took, those that were thrown away later included.
-- Inputs:  gp_window_parts; $bounds_ns, in rising order
-- Grain:   one row per bucket that has steps.
-- Columns: bucket   how many of the bounds a step took longer than
--          steps    how many they are; step_ns  their time without declared spans
-- Algorithm: a window that stands for several steps counts as so many equal ones.
CREATE OR REPLACE TEMP TABLE gp_metric_steps AS
SELECT len(list_filter($bounds_ns::BIGINT[], lambda b: b < took_ns)) AS bucket,
    sum(steps)::BIGINT AS steps, sum(step_ns)::HUGEINT AS step_ns
FROM (
    SELECT net_ns // c AS took_ns, sum(c) AS steps, sum(net_ns::HUGEINT) AS step_ns FROM gp_window_parts GROUP BY took_ns
)
GROUP BY bucket
