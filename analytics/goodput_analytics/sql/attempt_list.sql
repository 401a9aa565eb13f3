-- Purpose: the attempts as people read them.
-- Inputs:  gp_attempts, gp_end_causes, gp_window_parts
-- Grain:   one row per attempt, in order.
-- Columns: end_ns NULL while it lives; first_step, last_step NULL without a step
CREATE OR REPLACE TEMP TABLE gp_attempt_list AS
WITH steps AS (
    SELECT attempt, arg_min(step - c + 1, idx) AS first_step, arg_max(step, idx) AS last_step
    FROM gp_window_parts GROUP BY attempt
)
SELECT a.attempt, a.job, a.world_size, a.process_ns AS start_ns, CASE WHEN a.outcome <> 'live' THEN a.end_ns END AS end_ns,
    c.end_cause, s.first_step, s.last_step
FROM gp_attempts a JOIN gp_end_causes c USING (attempt) LEFT JOIN steps s USING (attempt)
ORDER BY a.attempt
