-- Purpose: steps in which more than half of the ranks were late, so that holding them against one another sees little.
-- Inputs:  gp_window_parts, gp_attempts
-- Grain:   one row over the run; none where no rank's lateness is known.
-- Columns: typical_ns  the run's own typical lateness: the lower quartile over windows of what more than half of the ranks
--                      reach; windows  those in which that is beyond 1.2 times the typical; all_windows
--          gpu_ns      what it was beyond the typical, over those windows
CREATE OR REPLACE TEMP TABLE gp_slowdowns AS
WITH late AS (
    SELECT w.half_late_ns // w.c AS late_ns, w.c, a.gpus
    FROM gp_window_parts w JOIN gp_attempts a USING (attempt)
    WHERE w.idx > 0 AND w.late_ranks > 1 AND w.half_late_ns > 0
),
typical AS (SELECT quantile_disc(late_ns, 0.25) AS typical_ns FROM late)
SELECT t.typical_ns, count(*) FILTER (l.late_ns > 1.2 * t.typical_ns) AS windows, count(*) AS all_windows,
    coalesce(sum((l.late_ns - t.typical_ns)::HUGEINT * l.c * l.gpus) FILTER (l.late_ns > 1.2 * t.typical_ns), 0) AS gpu_ns
FROM late l CROSS JOIN typical t GROUP BY t.typical_ns
