-- Purpose: the lives of the ranks that are named as slow.
-- Inputs:  gp_bounded_segments, gp_named_ranks, measured_early; $run_id
-- Grain:   as gp_bounded_segments.
-- Columns: measured_below  of lower numbers what the rank did of a step on its own is kept (kept_measures)
--          measured        so it is of all its steps that are kept reduced although their rows are there
CREATE OR REPLACE TEMP TABLE gp_slow_segments AS
SELECT g.*, coalesce(e.below, 0) AS measured_below, coalesce(e.below, 0) >= g.closed_below OR g.closed_below = g.gone_below AS measured
FROM gp_bounded_segments g
SEMI JOIN gp_named_ranks n ON n.attempt = g.attempt AND n.rank = g.rank
LEFT JOIN (SELECT * FROM measured_early WHERE run_id = $run_id) e ON e.source_id = g.source_id AND g.closed_below > g.gone_below
