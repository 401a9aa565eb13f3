-- Purpose: what was kept when the report was made, of attempts of which only measures are to be kept.
-- Inputs:  gp_closing_measured, gp_members, closed_early; $run_id
-- Grain:   as closed_early.
CREATE OR REPLACE TEMP TABLE gp_closing_seen AS
SELECT e.* FROM closed_early e
WHERE e.run_id = $run_id AND e.source_id IN (
    SELECT source_id FROM gp_members
    WHERE attempt IN (SELECT attempt FROM gp_closing_measured WHERE NOT with_steps))
