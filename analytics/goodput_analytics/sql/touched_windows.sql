-- Purpose: the windows in which a declared span that blocks lies, whole or in part, on any rank.
-- Inputs:  gp_spans, gp_window_times
-- Grain:   one row per (attempt, life, step).
-- Algorithm: the spans of an attempt are joined to islands first. Of islands that exclude one another the last that began
--            before a window's end is also the last to end: if that one ended before the window's gaps, all had.
CREATE OR REPLACE TEMP TABLE gp_touched_windows AS
WITH reached AS (
    SELECT attempt, begin_ns, blocking_end_ns AS end_ns,
        max(blocking_end_ns) OVER (PARTITION BY attempt ORDER BY begin_ns, blocking_end_ns
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS reach_ns
    FROM gp_spans WHERE blocking_end_ns > begin_ns
),
numbered AS (
    SELECT *, sum((reach_ns IS NULL OR begin_ns > reach_ns)::INTEGER)
        OVER (PARTITION BY attempt ORDER BY begin_ns, end_ns ROWS UNBOUNDED PRECEDING) AS island
    FROM reached
),
islands AS (
    SELECT attempt, island, min(begin_ns) AS begin_ns, max(end_ns) AS end_ns FROM numbered GROUP BY attempt, island
)
SELECT w.attempt, w.life, w.step
FROM gp_window_times w ASOF JOIN islands i ON i.attempt = w.attempt AND w.end_ns > i.begin_ns
WHERE i.end_ns > w.reach_ns
