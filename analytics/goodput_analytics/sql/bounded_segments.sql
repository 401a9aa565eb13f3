-- Purpose: gp_segments with what is known of their attempts' ends.
-- Inputs:  gp_segments, gp_limits
-- Grain:   as gp_segments.
-- Columns: until_ns, late  as in gp_limits
CREATE OR REPLACE TEMP TABLE gp_bounded_segments AS
SELECT g.*, l.until_ns, l.late FROM gp_segments g JOIN gp_limits l ON l.attempt = g.attempt
