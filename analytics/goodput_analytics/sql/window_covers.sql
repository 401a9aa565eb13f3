-- Purpose: what declared spans take of each window.
-- Inputs:  gp_covers, gp_window_times
-- Grain:   one row per (attempt, idx, start_ns).
CREATE OR REPLACE TEMP TABLE gp_window_covers AS
SELECT w.attempt, w.idx, greatest(c.start_ns, w.begin_ns) AS start_ns, least(c.end_ns, w.end_ns) AS end_ns,
    c.name, c.category, c.step, c.restart
FROM gp_covers c
JOIN gp_window_times w ON w.attempt = c.attempt AND w.begin_ns < c.end_ns AND w.end_ns > c.start_ns
