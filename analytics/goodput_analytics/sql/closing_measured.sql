-- Purpose: ranks named as slow whose own measures are to be kept beside the steps that are kept reduced.
-- Inputs:  gp_slow_segments, gp_closing
-- Grain:   one row per process.
-- Columns: from_step, below  of its steps from from_step on and below `below`
--          with_steps        the steps are kept at the same time; else they are already
CREATE OR REPLACE TEMP TABLE gp_closing_measured AS
SELECT g.source_id, g.attempt, CASE WHEN g.measured THEN g.closed_below ELSE g.gone_below END AS from_step,
    coalesce(c.below, g.closed_below) AS below, c.attempt IS NOT NULL AS with_steps
FROM gp_slow_segments g LEFT JOIN gp_closing c ON c.attempt = g.attempt
WHERE g.life = 0 AND NOT g.late AND (c.attempt IS NOT NULL OR NOT g.measured)
