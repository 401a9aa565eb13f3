-- Purpose: the moment at which the ranks left each step that they share.
-- Inputs:  gp_lived_steps
-- Grain:   one row per (life_id, step) that at least two ranks report.
-- Columns: mid_ns  the lower median of the ranks' ends, each on its own clock
CREATE OR REPLACE TEMP TABLE gp_shared_steps AS
SELECT life_id, step, quantile_disc(end_ns, 0.5) AS mid_ns
FROM gp_lived_steps
WHERE NOT alone AND NOT closed
GROUP BY life_id, step
HAVING count(*) >= 2
