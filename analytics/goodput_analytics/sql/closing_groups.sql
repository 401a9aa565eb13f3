-- Purpose: the median rank's lateness in each group of ranks, in the steps to be closed.
-- Inputs:  gp_closing, gp_measures, gp_windows, gp_grouped_attempts
-- Grain:   one row per step and group, of attempts whose ranks told groups.
-- Columns: as kept_groups, without the run's key
CREATE OR REPLACE TEMP TABLE gp_closing_groups AS
SELECT c.anchor AS source_id, m.step, m.grp, middle_ns(quantile_disc(
    CASE WHEN 2 * w.busy_ranks >= w.ranks THEN m.late_ns ELSE m.gap_ns END, [0.5, 0.5000000001])) AS typical_late_ns
FROM gp_measures m
JOIN gp_closing c ON c.attempt = m.attempt AND m.step >= c.from_step AND m.step < c.below
JOIN gp_windows w ON w.attempt = m.attempt AND w.life = m.life AND w.step = m.step
WHERE m.attempt IN (SELECT attempt FROM gp_grouped_attempts)
GROUP BY c.anchor, m.step, m.grp
