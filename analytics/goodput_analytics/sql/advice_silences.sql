-- Purpose: how long a rank could wait for the others in a collective although all was well.
-- Inputs:  gp_window_parts, gp_window_covers
-- Grain:   one row per window that stands for no more steps than half of the run's windows do.
-- Columns: kind       checkpoint, evaluation or other where a declared span lies in it (the longest), else step
--          silence_ns the whole window, for a rank may enter at its beginning, without what was a hang
--          hang_ns    the hang in it, which ended by itself
-- Algorithm: a window holds what lies between two steps' ends: the step, and the spans before it. Of one that stands for
--            several steps nobody knows the longest, which is no longer than the whole; where most windows stand for
--            one, those with steps that nobody told of are left out.
CREATE OR REPLACE TEMP TABLE gp_advice_silences AS
WITH kinds AS (
    SELECT attempt, idx, CASE WHEN name IN ('checkpoint', 'evaluation') THEN name ELSE 'other' END AS kind,
        sum(end_ns - start_ns)::BIGINT AS covered_ns
    FROM gp_window_covers GROUP BY ALL
),
covered AS (
    SELECT attempt, idx, sum(covered_ns)::BIGINT AS covered_ns, arg_max(kind, (covered_ns, kind)) AS kind
    FROM kinds GROUP BY attempt, idx
),
joined AS (
    SELECT w.hang_ns, w.net_ns - w.hang_ns AS step_ns, coalesce(v.covered_ns, 0) AS covered_ns, v.kind
    FROM gp_window_parts w LEFT JOIN covered v ON v.attempt = w.attempt AND v.idx = w.idx
    WHERE w.c <= (SELECT quantile_disc(c, 0.5) FROM gp_window_parts)
)
SELECT coalesce(kind, 'step') AS kind, step_ns + covered_ns AS silence_ns, hang_ns
FROM joined
