-- Purpose: the moment at which the ranks left each step that they share.
-- Inputs:  gp_rank_steps, gp_segments
-- Grain:   one row per (life_id, step) that at least two ranks report.
-- Columns: mid_ns  the lower median of the ranks' ends, each on its own clock
CREATE OR REPLACE TEMP TABLE gp_shared_steps AS
SELECT g.life_id, r.step, quantile_disc(r.end_ns, 0.5) AS mid_ns
FROM gp_rank_steps r
JOIN gp_segments g ON g.source_id = r.source_id AND r.seq BETWEEN g.from_seq AND g.to_seq
WHERE NOT g.alone
GROUP BY g.life_id, r.step
HAVING count(*) >= 2
