-- Purpose: the windows of the job's steps in order: where each begins and ends.
-- Inputs:  gp_windows
-- Grain:   one row per (attempt, idx); idx counts an attempt's windows from 0.
-- Columns: begin_ns, end_ns   exclusive of one another and without a hole between the first begin and the last end
--          start_ns           the earliest start over the ranks, within the window
--          c                  steps that the window stands for; missing  of these, steps without an event
--          reach_ns           where the ranks' own gaps before this step can begin
--          new_life           the first window of a life that follows a rollback
-- Algorithm: a window runs from the end of the one before to its own end; ends never fall.
CREATE OR REPLACE TEMP TABLE gp_window_times AS
WITH begun AS (
    SELECT *,
        (row_number() OVER own - 1)::INTEGER AS idx,
        CASE WHEN lag(life) OVER own = life THEN lag(step) OVER own END AS step_before,
        max(last_end_ns) OVER (PARTITION BY attempt ORDER BY life, step ROWS UNBOUNDED PRECEDING) AS end_ns,
        max(last_end_ns) OVER (PARTITION BY attempt ORDER BY life, step
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS end_before_ns,
        lag(first_end_ns) OVER own AS first_end_before_ns,
        first_value(first_start_ns) OVER own AS attempt_start_ns
    FROM gp_windows
    WINDOW own AS (PARTITION BY attempt ORDER BY life, step)
)
SELECT
    b.attempt, b.life, b.idx, b.step,
    coalesce(b.end_before_ns, least(b.attempt_start_ns, b.end_ns)) AS begin_ns,
    b.end_ns,
    least(greatest(b.first_start_ns, coalesce(b.end_before_ns, b.attempt_start_ns)), b.end_ns) AS start_ns,
    least(coalesce(b.first_end_before_ns, b.first_start_ns), b.first_start_ns) AS reach_ns,
    greatest(b.told_c, coalesce(b.step - b.step_before, b.told_c)) AS c,
    greatest(coalesce(b.step - b.step_before, 0) - b.told_c, 0) AS missing,
    b.data_ns, b.ranks, b.busy_ranks, b.applied,
    b.life > 0 AND b.step_before IS NULL AND b.idx > 0 AS new_life
FROM begun b
