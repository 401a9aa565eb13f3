-- Purpose: the steps of every rank, where some ranks told a step in pieces.
-- Inputs:  gp_rank_steps, gp_merged_steps
-- Grain:   as gp_rank_steps, one row per step of a rank's life.
CREATE OR REPLACE TEMP TABLE gp_whole_steps AS
SELECT * FROM gp_rank_steps WHERE source_id NOT IN (SELECT source_id FROM gp_merged_steps)
UNION ALL
SELECT * FROM gp_merged_steps
