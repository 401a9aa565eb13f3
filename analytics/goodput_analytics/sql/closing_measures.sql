-- Purpose: those measures.
-- Inputs:  gp_closing_measured, gp_named_measures
-- Grain:   one row per process and step.
-- Columns: as kept_measures, without the run's key
CREATE OR REPLACE TEMP TABLE gp_closing_measures AS
SELECT m.source_id, m.step, m.gap_ns, m.busy_ns
FROM gp_named_measures m JOIN gp_closing_measured c
    ON c.source_id = m.source_id AND m.step >= c.from_step AND m.step < c.below
