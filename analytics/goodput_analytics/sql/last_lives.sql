-- Purpose: the life in which each attempt ended.
-- Inputs:  gp_lives, gp_window_times
-- Grain:   one row per attempt with a step, or with a word of what it resumed from.
-- Columns: life  the last one; step  the attempt's last step, NULL if it made none
CREATE OR REPLACE TEMP TABLE gp_last_lives AS
WITH steps AS (SELECT attempt, max(life) AS life, arg_max(step, idx) AS step FROM gp_window_times GROUP BY attempt),
told AS (SELECT attempt, max(life) AS life FROM gp_lives GROUP BY attempt)
SELECT coalesce(s.attempt, t.attempt) AS attempt, greatest(s.life, t.life) AS life, s.step
FROM steps s FULL JOIN told t ON t.attempt = s.attempt
