-- Purpose: the gaps of every rank, where some ranks told a step in pieces.
-- Inputs:  gp_rank_gaps, gp_merged_steps
-- Grain:   as gp_rank_gaps, one row per step of a rank's life.
CREATE OR REPLACE TEMP TABLE gp_rank_gaps AS
SELECT * FROM gp_rank_gaps WHERE source_id NOT IN (SELECT source_id FROM gp_merged_steps)
UNION ALL
SELECT source_id, seq, step, gap_ns, busy_ns, back, false AS again FROM gp_merged_steps
