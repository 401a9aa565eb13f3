-- Purpose: where a window's net time lies, between its declared spans.
-- Inputs:  gp_window_parts, gp_window_covers
-- Grain:   one row per (attempt, idx, start_ns), for windows in which declared spans lie.
-- Columns: start_ns, end_ns; net_from_ns  how much net time of the window precedes
CREATE OR REPLACE TEMP TABLE gp_free_time AS
WITH pieces AS (
    SELECT w.attempt, w.idx,
        coalesce(lag(c.end_ns) OVER own, w.begin_ns) AS start_ns, c.start_ns AS end_ns
    FROM gp_window_parts w JOIN gp_window_covers c ON c.attempt = w.attempt AND c.idx = w.idx
    WINDOW own AS (PARTITION BY w.attempt, w.idx ORDER BY c.start_ns)
    UNION ALL
    SELECT w.attempt, w.idx, max(c.end_ns), w.end_ns
    FROM gp_window_parts w JOIN gp_window_covers c ON c.attempt = w.attempt AND c.idx = w.idx
    GROUP BY w.attempt, w.idx, w.end_ns
)
SELECT *, coalesce(sum(end_ns - start_ns) OVER (PARTITION BY attempt, idx ORDER BY start_ns
    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0)::BIGINT AS net_from_ns
FROM pieces WHERE end_ns > start_ns
