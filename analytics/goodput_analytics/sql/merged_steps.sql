-- Purpose: the steps of every rank, where some ranks told a step in pieces.
-- Inputs:  ev_step, gp_merged_steps
-- Grain:   as gp_rank_steps, one row per step of a rank's life.
CREATE OR REPLACE TEMP TABLE gp_whole_steps AS
SELECT * FROM gp_rank_steps WHERE source_id NOT IN (SELECT source_id FROM gp_merged_steps)
UNION ALL
SELECT source_id, seq, ts_ns, step, start_ns, end_ns, data_ns, busy_ns, c, applied FROM gp_merged_steps
