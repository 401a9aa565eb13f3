-- Purpose: the moment at which the ranks left each step that they share.
-- Inputs:  gp_rank_steps, gp_segments, gp_members
-- Grain:   one row per (attempt, life, step) that at least two ranks report.
-- Columns: mid_ns  the lower median of the ranks' ends, each on its own clock
CREATE OR REPLACE TEMP TABLE gp_shared_steps AS
SELECT g.attempt, g.life, r.step, quantile_disc(r.end_ns, 0.5) AS mid_ns
FROM gp_rank_steps r
JOIN gp_segments g ON g.source_id = r.source_id AND r.seq BETWEEN g.from_seq AND g.to_seq
WHERE g.attempt IN (SELECT attempt FROM gp_members GROUP BY attempt HAVING count(*) > 1)
GROUP BY g.attempt, g.life, r.step
HAVING count(*) >= 2
