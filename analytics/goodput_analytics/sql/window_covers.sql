-- Purpose: what declared spans take of each window.
-- Inputs:  gp_covers, gp_window_times
-- Grain:   one row per (attempt, idx, start_ns).
-- Columns: start_ns, end_ns  the cover's part of the window; name, category, step, restart  as in gp_covers
-- Algorithm: windows follow one another without a hole, so a cover meets a row of them: from the first that ends after
--            the cover's start to the first that ends at its end or later. Both are looked up among windows that have
--            a length (and each attempt's first), whose ends differ: linear in covers and windows.
CREATE OR REPLACE TEMP TABLE gp_window_covers AS
WITH met AS (SELECT DISTINCT attempt FROM gp_covers),
ends AS (
    SELECT attempt, idx, end_ns FROM gp_window_times
    WHERE (end_ns > begin_ns OR idx = 0) AND attempt IN (SELECT attempt FROM met)
),
lasts AS (SELECT attempt, max(idx) AS idx FROM gp_window_times GROUP BY attempt),
rows_of AS (
    SELECT c.*, unnest(range(f.idx, coalesce(t.idx, l.idx) + 1)) AS idx
    FROM gp_covers c
    ASOF JOIN ends f ON f.attempt = c.attempt AND c.start_ns < f.end_ns
    ASOF LEFT JOIN ends t ON t.attempt = c.attempt AND c.end_ns <= t.end_ns
    JOIN lasts l ON l.attempt = c.attempt
)
SELECT w.attempt, w.idx, greatest(c.start_ns, w.begin_ns) AS start_ns, least(c.end_ns, w.end_ns) AS end_ns,
    c.name, c.category, c.step, c.restart
FROM rows_of c
JOIN gp_window_times w ON w.attempt = c.attempt AND w.idx = c.idx
WHERE w.begin_ns < c.end_ns AND w.end_ns > c.start_ns
