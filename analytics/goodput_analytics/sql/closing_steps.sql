-- Purpose: the steps to be closed, reduced: all that later reports read of them.
-- Inputs:  gp_closing, gp_windows, gp_lateness, gp_lateness_grouped, gp_grouped_attempts
-- Grain:   one row per step.
-- Columns: as kept_steps, without the run's key
CREATE OR REPLACE TEMP TABLE gp_closing_steps AS
WITH own AS (
    SELECT * FROM gp_lateness_grouped WHERE attempt IN (SELECT attempt FROM gp_grouped_attempts)
)
SELECT c.anchor AS source_id, w.step, w.first_start_ns, w.last_end_ns, w.first_end_ns, w.told_c, w.data_ns, w.ranks,
    w.busy_ranks, w.applied, w.gap_ns, w.busy_key, w.busy_low,
    l.gap_ns AS late_gap_ns, l.late_ranks, l.excess_ns, l.latest_rank, l.typical_late_ns, l.half_late_ns,
    x.late_ranks AS own_late_ranks, x.excess_ns AS own_excess_ns, x.latest_rank AS own_latest_rank,
    x.typical_late_ns AS own_typical_late_ns
FROM gp_windows w
JOIN gp_closing c ON c.attempt = w.attempt AND w.step >= c.from_step AND w.step < c.below
LEFT JOIN gp_lateness l ON l.attempt = w.attempt AND l.life = w.life AND l.step = w.step
LEFT JOIN own x ON x.attempt = w.attempt AND x.life = w.life AND x.step = w.step
WHERE NOT w.closed
