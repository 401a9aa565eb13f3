-- Purpose: attempts whose ranks told that they do different work by design.
-- Inputs:  gp_segments
-- Grain:   one row per attempt.
CREATE OR REPLACE TEMP TABLE gp_grouped_attempts AS
SELECT attempt FROM gp_segments GROUP BY attempt HAVING count(DISTINCT coalesce(grp, '')) > 1
